package runtime

import "sync"

// Latch keeps the first failure of a device: whatever comes later is a consequence.
// Methods may be called from any goroutine.
type Latch struct {
	mu  sync.Mutex // of those who set it
	err error      // written before ch is closed, never after
	ch  chan struct{}
}

// NewLatch makes a latch without a failure.
func NewLatch() *Latch { return &Latch{ch: make(chan struct{})} }

// Set keeps err, which is not nil, if it is the first failure, and reports whether it is.
func (l *Latch) Set(err error) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.err != nil {
		return false
	}
	l.err = err
	close(l.ch)
	return true
}

// Err is the first error that it was set to, nil while there is none. It takes no lock.
func (l *Latch) Err() error {
	select {
	case <-l.ch:
		return l.err
	default:
		return nil
	}
}

// Done is closed once there is a failure.
func (l *Latch) Done() <-chan struct{} { return l.ch }
