package rendezvous

import (
	"slices"
	"sync"
	"time"
)

// outbox is a queue of messages to one end of a session, so that nobody who has
// something to say waits for one that does not listen.
type outbox struct {
	mu     sync.Mutex
	cond   *sync.Cond
	queue  []*message
	own    *message // in queue, if nobody else has it
	bytes  int
	closed bool
	done   chan struct{} // closed when pump has returned
}

// maxQueued bounds the bytes that a session's end may be behind. One that does not
// listen any more is lost.
const maxQueued = 256 << 20

func newOutbox() *outbox {
	o := &outbox{done: make(chan struct{})}
	o.cond = sync.NewCond(&o.mu)
	return o
}

// put queues m, unless the outbox is closed.
func (o *outbox) put(m *message) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.closed {
		return false
	}
	o.bytes += m.size()
	if n := len(o.queue); n > 0 && o.queue[n-1].joins(m) {
		if o.own != o.queue[n-1] { // others have it, too
			both := *o.queue[n-1]
			both.Who, both.coded = slices.Clone(both.Who), nil
			o.own, o.queue[n-1] = &both, &both
		}
		o.own.Who = append(o.own.Who, m.Who...)
	} else {
		o.queue = append(o.queue, m)
	}
	if o.bytes > maxQueued {
		o.queue, o.closed = nil, true
	}
	o.cond.Signal()
	return !o.closed
}

// joins reports whether m and one behind it say one thing of several ranks: a large world
// leaves all at once.
func (m *message) joins(next *message) bool {
	return m.Kind == next.Kind && (m.Kind == kindLeave || m.Kind == kindGone) && len(m.Who) > 0 && len(next.Who) > 0 &&
		m.Group == next.Group && m.Lost == next.Lost && (m.Kind == kindLeave || m.Rank == next.Rank)
}

// flush waits until everything that is queued now has been handed on, or nothing is any more, and
// reports false if the limit comes first.
func (o *outbox) flush(limit <-chan time.Time) bool {
	passed := make(chan struct{})
	o.put(&message{passed: passed})
	select {
	case <-passed:
	case <-o.done:
	case <-limit:
		return false
	}
	return true
}

// close lets pump end behind what is queued.
func (o *outbox) close() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.closed = true
	o.cond.Signal()
}

// pump hands messages to f, as many as there are, in order until the outbox is closed and
// empty, or f fails.
func (o *outbox) pump(f func([]*message) error) error {
	defer close(o.done)
	for {
		o.mu.Lock()
		for len(o.queue) == 0 && !o.closed {
			o.cond.Wait()
		}
		batch := o.queue
		o.queue, o.own, o.bytes = nil, nil, 0
		o.mu.Unlock()
		if len(batch) == 0 {
			return nil
		}
		for len(batch) > 0 {
			n := slices.IndexFunc(batch, func(m *message) bool { return m.passed != nil })
			if n == 0 {
				close(batch[0].passed)
				batch = batch[1:]
				continue
			}
			if n < 0 {
				n = len(batch)
			}
			if err := f(batch[:n]); err != nil {
				o.close()
				return err
			}
			batch = batch[n:]
		}
	}
}

// size is about what m takes.
func (m *message) size() int {
	n := 256 + len(m.Data) + len(m.Err) + 8*(len(m.Who)+len(m.Ranks))
	parts := m.Parts
	if m.Arrival != nil {
		parts = m.Arrival.Data
		for _, s := range m.Arrival.Facts {
			n += 64 * len(s.Facts)
		}
	}
	for _, p := range parts {
		n += 64 + len(p.Data)
	}
	return n
}
