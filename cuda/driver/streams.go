package driver

import (
	"slices"
	"sync"
)

// StreamPool is the idle streams of a driver's contexts, which stay with them until somebody
// wants one again. A GPU gives each stream a hardware queue when it is made, and streams that
// share one wait for each other. One that is made anew may get the queue of another that
// is still there, while fewer live than there are queues: ranks that share a GPU hung so, after some
// hundred streams that had come and gone. Streams that are used again keep theirs. The zero
// value is ready.
type StreamPool struct {
	mu   sync.Mutex
	made map[Stream]streamKind
	idle map[streamKind][]Stream
}

type streamKind struct {
	c    Ctx
	high bool // of the highest priority
}

// Take gives a stream that was given back, or one that make makes.
func (p *StreamPool) Take(c Ctx, high bool, make func() (Stream, error)) (Stream, error) {
	k := streamKind{c, high}
	p.mu.Lock()
	if n := len(p.idle[k]); n > 0 {
		s := p.idle[k][n-1]
		p.idle[k] = p.idle[k][:n-1]
		p.mu.Unlock()
		return s, nil
	}
	p.mu.Unlock()
	s, err := make() // which may wait for one device: those of others go on
	if err != nil {
		return 0, err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.made == nil {
		p.made, p.idle = map[Stream]streamKind{}, map[streamKind][]Stream{}
	}
	p.made[s] = k
	return s, nil
}

// Give keeps a stream that has no work left. Any other is to be destroyed, which it reports by
// false: what is behind a wait that never ends would hold up the next owner.
func (p *StreamPool) Give(s Stream, idle bool) (kept bool, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	k, known := p.made[s]
	switch {
	case slices.Contains(p.idle[k], s):
		return true, &Error{Call: "cuStreamDestroy", Code: CodeInvalid, Name: "CUDA_ERROR_INVALID_VALUE", Text: "the stream was destroyed before"}
	case known && idle:
		p.idle[k] = append(p.idle[k], s)
		return true, nil
	}
	delete(p.made, s)
	return false, nil
}
