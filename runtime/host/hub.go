package host

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	rt "github.com/seed-ee968945/concert/runtime"
	"github.com/seed-ee968945/concert/runtime/internal/shm"
)

// Hub is where ranks that are goroutines of one process exchange their segments.
// One hub serves any number of worlds, one after the other or at once.
type Hub struct {
	mu     sync.Mutex
	worlds map[string]*hubWorld
}

// hubWorld is a world that is forming.
type hubWorld struct {
	segs    []*shm.Segment
	missing int           // segments that have not been handed in
	taken   int           // ranks that have left with all segments
	full    chan struct{} // closed when none is missing
}

// NewHub returns an empty hub.
func NewHub() *Hub { return &Hub{worlds: map[string]*hubWorld{}} }

// exchange hands in rank's segment and returns everyone's.
func (h *Hub) exchange(ctx context.Context, nonce string, rank, world int, seg *shm.Segment) ([]*shm.Segment, error) {
	start := time.Now()
	h.mu.Lock()
	w := h.worlds[nonce]
	if w == nil {
		w = &hubWorld{segs: make([]*shm.Segment, world), missing: world, full: make(chan struct{})}
		h.worlds[nonce] = w
	}
	w.segs[rank] = seg
	if w.missing--; w.missing == 0 {
		close(w.full)
	}
	h.mu.Unlock()
	var err error
	select {
	case <-w.full:
	case <-ctx.Done():
		err = ctx.Err()
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if w.taken++; w.taken == world {
		delete(h.worlds, nonce)
	}
	if err == nil {
		return w.segs, nil
	}
	var missing []int
	for r, s := range w.segs {
		if s == nil {
			missing = append(missing, r)
		}
	}
	return nil, joinError(err, rank, missing, time.Since(start))
}

// joinError is what a rank returns that met its peers but did not get through to
// all of them.
func joinError(err error, rank int, missing []int, elapsed time.Duration) error {
	if errors.Is(err, context.Canceled) || len(missing) == 0 {
		return &rt.AbortedError{Op: "rendezvous", Rank: rank, Origin: rank, Err: err}
	}
	return &rt.TimeoutError{Op: "rendezvous", Rank: rank, Peer: missing[0], Missing: missing, Elapsed: elapsed,
		Detail: "met, but shared no memory"}
}

// openGoroutine opens the device of a rank that is a goroutine.
func openGoroutine(ctx context.Context, spec rt.Spec, opts Options, lay layout) (rt.Device, error) {
	seg := shm.Heap(lay.bytes(), int(spec.ArenaBytes))
	initPad(seg, lay, opts)
	meeting, err := spec.Meet(ctx, nil)
	if err != nil {
		return nil, err
	}
	if err := oneHost(spec, meeting, true); err != nil {
		return nil, err
	}
	segs, err := opts.Hub.exchange(ctx, meeting.Nonce, spec.Rank, spec.World, seg)
	if err != nil {
		return nil, err
	}
	return newDevice(spec, opts, lay, meeting.Nonce, segs, make([]atomic.Uint32, spec.World), nil), nil
}

// initPad sets up this rank's pad before a peer can see it.
func initPad(seg *shm.Segment, lay layout, opts Options) {
	lo, _ := lay.desc(0, 0)
	for w := inboxStart; w < lo*2; w += lineWords {
		seg.Words[w] = opts.FirstEpoch
	}
	seg.Words[wordMagic] = padMagic
	atomic.StoreUint32(&seg.Words[wordStatus], statusAlive)
}
