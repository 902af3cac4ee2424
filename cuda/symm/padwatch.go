package symm

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/seed-ee968945/concert/cuda/driver"
	"github.com/seed-ee968945/concert/cuda/internal/hostmem"
	"github.com/seed-ee968945/concert/internal/stall"
)

// A stream's wait for a word has no end of its own. The host keeps a list of those that
// were enqueued and not yet passed, and a goroutine that looks at it while it is not
// empty. Events say where a stream is: one before the wait, from which on the deadline
// runs, and one behind it. A wait that is to end without its peer gets its value from the
// host, by its own stream (HostStream), again and again until the stream has gone on: waits
// of other values may be for the same word.

// padWait is a wait that the host watches.
type padWait struct {
	from, word int
	s          driver.Stream
	at         driver.Ptr
	v          uint32
	num        uint32       // of the call
	come, gone driver.Event // before and behind the wait
	since      time.Time    // when the host saw that the stream had come to it
}

// padWatch is a member's list.
type padWatch struct {
	mu      sync.Mutex
	list    []*padWait
	running bool
	idle    sync.Cond       // nothing is running
	spare   []driver.Event  // of waits that are over
	heeded  time.Time       // when the device's abort word was asked for last
	copied  driver.Event    // behind its copy
	gaveUp  *stall.Clock    // since it says that a peer's kernel gave up; nil while it does not
	held    []driver.Stream // look's, to use again
}

// over takes the events of a wait back. mu is held.
func (k *padWatch) over(w *padWait) {
	for _, ev := range [...]driver.Event{w.come, w.gone} {
		if ev != 0 {
			k.spare = append(k.spare, ev)
		}
	}
}

// padEvent gives an event that no wait uses.
func (m *Member) padEvent() (driver.Event, error) {
	k := &m.pad
	k.mu.Lock()
	defer k.mu.Unlock()
	if n := len(k.spare); n > 0 {
		ev := k.spare[n-1]
		k.spare = k.spare[:n-1]
		return ev, nil
	}
	return m.NewEvent()
}

// drainPad waits until streams have passed all watched waits, and for what was written to
// let them pass.
func (m *Member) drainPad() error {
	k := &m.pad
	k.mu.Lock()
	for k.running {
		k.idle.Wait()
	}
	k.mu.Unlock()
	return m.Rank.World.drv.StreamSync(m.Rank.Ctx, m.stream)
}

// PendingWaits is how many waits for values streams have not passed yet, as far as the host
// knows.
func (m *Member) PendingWaits() int {
	m.pad.mu.Lock()
	defer m.pad.mu.Unlock()
	if !m.pad.running {
		return 0
	}
	return max(1, len(m.pad.list))
}

// padPassed reports whether streams have passed all watched waits.
func (m *Member) padPassed() bool {
	return m.PendingWaits() == 0
}

// stopPad breaks the group if there is a wait that streams have not passed.
func (m *Member) stopPad() {
	if !m.padPassed() {
		m.abort(errors.New("the group was closed before a stream had passed a wait for a word of its pad"))
	}
}

// watched enqueues a wait and has it watched.
func (m *Member) watched(s driver.Stream, from, word int, at driver.Ptr, v uint32) error {
	d, c := m.Rank.World.drv, m.Rank.Ctx
	if in, err := d.StreamCapture(c, s); err != nil {
		return err
	} else if in != 0 {
		return Invalid("stream", "it is being captured: a wait for a value would be over at once in a replay; Wait counts by itself")
	}
	w := &padWait{from: from, word: word, s: s, at: at, v: v, num: m.Number(callWaitValue, 0)}
	forget := func(err error) error {
		m.pad.mu.Lock()
		defer m.pad.mu.Unlock()
		m.pad.over(w)
		return err
	}
	for _, ev := range []*driver.Event{&w.come, &w.gone} {
		var err error
		if *ev, err = m.padEvent(); err != nil {
			return forget(err)
		}
	}
	if err := d.EventRecord(c, w.come, s); err != nil {
		return forget(err)
	}
	if err := d.StreamWait32(c, s, at, v); err != nil {
		return forget(err)
	}
	if err := d.EventRecord(c, w.gone, s); err != nil {
		// It is in the stream, and cannot be watched.
		m.Break(err)
		return errors.Join(forget(err), d.StreamWrite32(c, m.stream, at, v))
	}
	k := &m.pad
	k.mu.Lock()
	defer k.mu.Unlock()
	k.list = append(k.list, w)
	if !k.running {
		k.running = true
		go m.watch()
	}
	return nil
}

// watch looks at the list until it is empty. What is behind another wait of its stream need
// not be looked at each time; it is now and then, because two threads that use one stream
// may have put their waits into the list the other way around.
func (m *Member) watch() {
	k := &m.pad
	const least, every = 20 * time.Microsecond, 16
	for pause, pass := least, 0; ; pause, pass = min(2*pause, time.Millisecond), pass+1 {
		k.mu.Lock()
		list := slices.Clone(k.list)
		k.mu.Unlock()
		left := m.look(list, pass%every == 0)
		if len(left) < len(list) {
			pause = least // things move
		}
		k.mu.Lock()
		k.list = append(left, k.list[len(list):]...) // others may have come meanwhile
		if len(k.list) == 0 {
			k.running = false
			k.idle.Broadcast()
			k.mu.Unlock()
			return
		}
		k.mu.Unlock()
		time.Sleep(pause)
	}
}

// look gives the waits of the list that are not over, and ends those that have to. Unless
// it is asked for all it takes those for waiting that are behind another one of their
// stream.
func (m *Member) look(list []*padWait, all bool) (left []*padWait) {
	broken, k := m.checkBroken(), &m.pad
	d, c := m.Rank.World.drv, m.Rank.Ctx
	k.held = k.held[:0]
	for _, w := range list {
		if !all && slices.Contains(k.held, w.s) {
			left = append(left, w)
			continue
		}
		if gone, err := d.EventQuery(c, w.gone); gone || err != nil && !captureForbids(err) {
			k.mu.Lock()
			k.over(w) // an error is the device's, which all other calls report
			k.mu.Unlock()
			continue
		}
		left, k.held = append(left, w), append(k.held, w.s)
		if w.since.IsZero() {
			if come, _ := d.EventQuery(c, w.come); come {
				w.since = time.Now()
			}
			continue
		}
		if waited, limit := time.Since(w.since), m.Timeout(); !broken && limit != 0 && waited > limit {
			m.Break(m.TimedOut(w.from, w.num, waited, fmt.Sprintf("word %d", w.word)))
			broken = true
		}
		if broken && m.AbortDelivered() {
			d.StreamWrite32(c, m.stream, w.at, w.v) // if it fails, the next time
		}
	}
	return left
}

// checkBroken says whether the group is broken. A peer's kernel that times out writes that into
// the device's memory only, and where no kernel waits nobody else looks there. The host has one
// copy of that word on its way at a time and does not wait for it: the device's queues may be
// stuck behind the very wait that is to end.
func (m *Member) checkBroken() bool {
	const often = 5 * time.Millisecond
	k, d, c := &m.pad, m.Rank.World.drv, m.Rank.Ctx
	if m.Failure() == nil && time.Since(k.heeded) > often {
		k.heeded = time.Now()
		if copied, err := d.EventQuery(c, k.copied); copied && err == nil {
			switch {
			case hostmem.Load32(m.host+abortSeen) == 0:
				k.gaveUp = nil
			case k.gaveUp == nil:
				k.gaveUp = new(stall.Start())
			}
			if m.copyAbort() == nil {
				d.EventRecord(c, k.copied, m.stream) // if it fails, what was copied is seen a little late
			}
		}
		if k.gaveUp != nil && !m.awaitsReason(k.gaveUp) {
			m.unknown()
		}
	}
	return m.Failure() != nil
}

// captureForbids says that the driver gave no answer because some thread is capturing in
// its global mode, which forbids others to ask. It may answer later.
func captureForbids(err error) bool {
	const first, last = 900, 908 // CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED and what follows it
	var e *driver.Error
	return errors.As(err, &e) && e.Code >= first && e.Code <= last
}
