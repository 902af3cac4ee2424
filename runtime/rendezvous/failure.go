package rendezvous

import "sync"

// Failure keeps the first failure of a rank's part in what fails as a whole, such as a
// device: whatever comes later is a consequence. Methods may be called from any goroutine.
type Failure struct {
	mu  sync.Mutex // of those who set it
	err error      // written before ch is closed, never after
	ch  chan struct{}
}

// NewFailure makes one that has not come.
func NewFailure() *Failure { return &Failure{ch: make(chan struct{})} }

// Set keeps err, which is not nil, if it is the first failure, and reports whether it is. The
// other ranks hear of it by tell, if that is not nil, before anybody sees it here: who sees it
// may leave, and nobody would be left to tell them. tell must not use the Failure.
func (f *Failure) Set(err error, tell func()) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.err != nil {
		return false
	}
	if tell != nil {
		tell()
	}
	f.err = err
	close(f.ch)
	return true
}

// Err is the first error that it was set to, nil while there is none. It takes no lock.
func (f *Failure) Err() error {
	select {
	case <-f.ch:
		return f.err
	default:
		return nil
	}
}

// Done is closed once there is a failure.
func (f *Failure) Done() <-chan struct{} { return f.ch }
