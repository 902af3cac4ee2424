package driver

import (
	"slices"
	"sync"
)

// StreamPool is the idle streams of a driver's contexts, which stay with them until somebody
// wants one again. To make a stream can need the device to itself: an H200's driver held some such
// calls up until the kernel that ran had ended, and one that waits for a peer may wait for the
// caller. So a context's streams are made with it, as many as it has hardware queues, and used again.
// The zero value is ready.
type StreamPool struct {
	mu   sync.Mutex
	full map[Ctx]bool // contexts that have their reserve
	made map[Stream]streamKind
	idle map[streamKind][]Stream
}

type streamKind struct {
	c    Ctx
	high bool // of the highest priority
}

// Reserve makes the streams that a context begins with, one for each of its queues, once: five of
// eight are of the highest priority, since all but those that compute are. What was made when make
// fails stays, and the next call goes on.
func (p *StreamPool) Reserve(c Ctx, queues int, make func(high bool) (Stream, error)) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.full[c] {
		return nil
	}
	first := queues * 5 / 8
	for i, n := range []int{queues - first, first} {
		k := streamKind{c, i == 1}
		for len(p.idle[k]) < n {
			s, err := make(k.high)
			if err != nil {
				return err
			}
			p.add(s, k)
			p.idle[k] = append(p.idle[k], s)
		}
	}
	if p.full == nil {
		p.full = map[Ctx]bool{}
	}
	p.full[c] = true
	return nil
}

// add notes a stream.
func (p *StreamPool) add(s Stream, k streamKind) {
	if p.made == nil {
		p.made, p.idle = map[Stream]streamKind{}, map[streamKind][]Stream{}
	}
	p.made[s] = k
}

// Take gives an idle stream, or one that make makes where there is none: the context's reserve is
// in use.
func (p *StreamPool) Take(c Ctx, high bool, make func(high bool) (Stream, error)) (Stream, error) {
	k := streamKind{c, high}
	p.mu.Lock()
	if n := len(p.idle[k]); n > 0 {
		s := p.idle[k][n-1]
		p.idle[k] = p.idle[k][:n-1]
		p.mu.Unlock()
		return s, nil
	}
	p.mu.Unlock()
	s, err := make(high) // which may wait for one device: those of others go on
	if err != nil {
		return 0, err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.add(s, k)
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
