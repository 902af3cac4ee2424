package driver

import (
	"sync"
	"time"
)

// turn lets the threads of a process submit to a context one after the other, each a whole
// command buffer. An H200's driver gives a stream that has nothing left a hardware queue that is
// idle just then. Two streams whose work came in pieces, from two threads, got the same one, and
// then a kernel stood behind a kernel of another rank that its own rank held up.
//
// A driver blocks a launch into a stream that has about a thousand before it, and others may
// have to launch before it goes on. So a turn that lasts longer than patience is over: its queue
// is not idle, and nobody gets it. The zero value is ready.
type turn struct {
	mu     sync.Mutex
	holder uint64 // 0: nobody
	last   uint64
	ended  chan struct{} // at most one message, for one of those that wait; nil while nobody has
}

// patience is far longer than any submission that nothing holds up.
const patience = time.Second

// take waits for the turn, and gives the number to end it with.
func (t *turn) take() uint64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	for t.holder != 0 {
		t.wait()
	}
	t.last++
	t.holder = t.last
	return t.holder
}

// wait returns when a turn has ended, or the one that was held has lasted too long and is no more.
func (t *turn) wait() {
	held := t.holder
	if t.ended == nil {
		t.ended = make(chan struct{}, 1)
	}
	t.mu.Unlock()
	timer := time.NewTimer(patience)
	select {
	case <-t.ended:
	case <-timer.C:
	}
	late := !timer.Stop()
	t.mu.Lock()
	if late && t.holder == held {
		t.holder = 0
	}
}

func (t *turn) end(mine uint64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.holder != mine {
		return // it had lasted too long
	}
	t.holder = 0
	select {
	case t.ended <- struct{}{}:
	default: // nobody waits, or a message is there
	}
}

// turns has a turn for each context. The zero value is ready.
type turns struct{ of sync.Map } // of *turn, by Ctx

func (t *turns) take(c Ctx) (*turn, uint64) {
	x, ok := t.of.Load(c)
	if !ok {
		x, _ = t.of.LoadOrStore(c, new(turn))
	}
	return x.(*turn), x.(*turn).take()
}
