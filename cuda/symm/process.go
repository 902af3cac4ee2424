package symm

import (
	"context"
	"fmt"
	"slices"

	"github.com/seed-ee968945/concert/cuda/driver"
	"github.com/seed-ee968945/concert/runtime/rendezvous"
)

// NewProcessWorld builds a world of the ranks of g, of which this process drives one, on
// device dev. All processes run on one host and call it with the same options. The world
// takes g over and leaves it when it is closed, or here if this fails. It returns when
// every process has mapped all memory, or with the errors of rendezvous: a *MismatchError
// if options differ, a *CanceledError with the rank that failed, a *PeerLostError, or a
// *rendezvous.TimeoutError.
//
// Start the processes by exec, before any of them opens the driver: a process that
// forked with an open driver cannot use it.
func NewProcessWorld(ctx context.Context, drv driver.Driver, g *rendezvous.Group, dev int, o WorldOptions) (*World, error) {
	if err := CheckContext(ctx); err != nil {
		return nil, err
	}
	if g == nil {
		return nil, Invalid("group", "it is nil")
	}
	c := &control{g: g, stop: func() {}}
	w := newWorld(drv, len(g.Ranks()))
	w.control = c
	rank := g.Rank()
	w, err := w.build(ctx, []int{rank}, []int{dev}, &o, func() error {
		r := w.local[rank]
		if r.alone != nil {
			return fmt.Errorf("rank %d: %w", rank, r.alone)
		}
		if err := w.agree(ctx, g, r, &o); err != nil {
			return err
		}
		if err := w.life.Defer("membership", c.Close); err != nil {
			return err
		}
		c.watch(w)
		return nil
	})
	if err != nil {
		c.Close()
		return nil, err
	}
	return w, nil
}

// agree compares what must be the same in all processes, and that each has a device of its
// own.
func (w *World) agree(ctx context.Context, g *rendezvous.Group, r *Rank, o *WorldOptions) error {
	host, err := rendezvous.Machine()
	if err != nil {
		return err
	}
	parts, err := g.Exchange(ctx, rendezvous.Call{Op: "opening the world", Data: r.Info.UUID[:], Facts: []rendezvous.Fact{
		{What: "machines", Value: host}, {What: "ways of sharing memory", Value: r.how.String()}, {What: "uses of multicast", Value: fmt.Sprint(o.Multicast)},
		{What: "bytes of symmetric memory", Value: fmt.Sprint(w.stride)}, {What: "digests of kernels", Value: o.digest()}}})
	if err != nil {
		return err
	}
	seen, on := map[string]int{}, map[string]int{}
	for i, p := range parts {
		if other, ok := seen[string(p.Data)]; ok && !o.ShareDevice {
			return fmt.Errorf("%w: ranks %d and %d", ErrSharedDevice, other, i)
		}
		seen[string(p.Data)] = i
		on[string(p.Data)]++
		w.sharing = max(w.sharing, on[string(p.Data)])
	}
	return nil
}

// Compare is Barrier, at which every process says something: it returns what they said, by
// rank, and must be called where the others call it. Texts are short, such as digests:
// rendezvous.MaxData at most.
func (w *World) Compare(ctx context.Context, text string) ([]string, error) {
	if w == nil {
		return nil, w.Usable()
	}
	if err := CheckContext(ctx); err != nil {
		return nil, err
	}
	if err := w.life.Begin(); err != nil {
		return nil, err
	}
	defer w.life.Done()
	ctx, free := w.life.Bound(ctx)
	defer free()
	if len(text) > rendezvous.MaxData {
		return nil, Invalid("text", "%d bytes: %d at most", len(text), rendezvous.MaxData)
	}
	if w.control == nil {
		return []string{text}, context.Cause(ctx)
	}
	parts, err := w.control.g.Exchange(ctx, rendezvous.Call{Op: "barrier of the world", Data: []byte(text)})
	texts := make([]string, len(parts))
	for i, p := range parts {
		texts[i] = string(p.Data)
	}
	return texts, err
}

// Barrier waits until every process of the world has called it as often as this one. In a
// world of one process it returns at once. It fails with a *PeerLostError when a process
// has ended or left, and with a *rendezvous.TimeoutError when time is up. When ctx ends the
// barrier is canceled for all: the others get a *CanceledError, and all of them, with this
// one, go on to the next.
func (w *World) Barrier(ctx context.Context) error {
	_, err := w.Compare(ctx, "")
	return err
}

// jobRanks are ranks of the world, as the job counts them.
func (w *World) jobRanks(ranks []int) []int {
	if w.control == nil {
		return slices.Clone(ranks)
	}
	out := make([]int, len(ranks))
	for i, r := range ranks {
		out[i] = w.control.g.Ranks()[r]
	}
	return out
}
