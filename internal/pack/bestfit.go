package pack

import (
	"context"
	"math"
	"slices"
)

// bestFitWork bounds what bestFit spends on orders, in span visits and list
// insertions; a new order is begun only below it. repairWork, and repairEach for
// every buffer, bound what it spends on repairs, in visits of rectangles. Each
// comes to about a tenth of a second, orderWork to ten.
const (
	bestFitWork    = 4_000_000
	repairWork     = 40_000_000
	repairEach     = 4000
	repairedOrders = 3
	orderWork      = 250_000_000 // of one order, beyond which the sweep takes over
)

// bestFit places the buffers of a checked problem one after another, each into the smallest or
// into the lowest gap that takes it between the already placed ones that it
// conflicts with, and returns the best of several orders: by size, by
// lifetime, by area, by time, and then orders in which the buffers that stuck
// out move to the front (squeaky-wheel optimisation). The placements that the
// first orders give are repaired (see repair.go). Where the first order does not
// do, placements from the fullest moment outwards are tried before the others (see
// core.go). It stops early when the lower bound is met, and begins nothing new
// after a fixed effort. Where even the first order takes too much, since tens of
// thousands of buffers live at once, it answers by best fit in the order of time
// (see sweep.go). It stops at height goal, and with what it has when ctx ends.
//
// The occupied addresses of a time range come from a segment tree over the
// columns of the problem whose nodes keep unions of address ranges. Such
// unions are short where the arena is dense, so an order costs about
// n log n list visits however many buffers are live at once.
//
// It returns offsets by buffer and the height in bytes.
func bestFit(ctx context.Context, p *Problem, goal int64) ([]int64, int64) {
	g := newGreedy(ctx, p, goal)
	if g.try(bySize, true) {
		return g.best, g.height
	}
	if g.height == infinity {
		g.keep(sweep(p))
		return g.best, g.height
	}
	rest, back, base := p.withoutSpanning()
	if base == 0 {
		g.more()
		return g.best, g.height
	}
	h := newGreedy(ctx, rest, goal-base)
	h.f.work = g.f.work
	if !h.try(bySize, true) {
		h.more()
	}
	if h.height+base >= g.height {
		return g.best, g.height
	}
	next := int64(0)
	for i, b := range p.Buffers {
		g.best[i] = 0
		if len(back) > 0 && back[0] == i {
			g.best[i] = base + h.best[len(h.best)-len(back)]
			back = back[1:]
		} else if b.Size > 0 {
			g.best[i] = next
			next += b.Size
		}
	}
	return g.best, h.height + base
}

// checkPins reports two pinned buffers that conflict and share bytes.
func checkPins(p *Problem) error {
	pinned := Problem{}
	back := []int{}
	offsets := []int64{}
	for i, b := range p.Buffers {
		if b.Pinned {
			pinned.Buffers = append(pinned.Buffers, b)
			back = append(back, i)
			offsets = append(offsets, b.Offset)
		}
	}
	err := Verify(pinned, offsets, infinity)
	if o, ok := err.(*OverlapError); ok {
		o.A, o.B = back[o.A], back[o.B]
	}
	return err
}

// greedy is the state of bestFit: the best placement so far, and what finds others.
type greedy struct {
	p      *Problem
	goal   int64
	f      *fitter
	best   []int64
	height int64
}

func newGreedy(ctx context.Context, p *Problem, goal int64) *greedy {
	return &greedy{p: p, goal: goal, f: newFitter(ctx, p), best: make([]int64, len(p.Buffers)), height: infinity}
}

// keep keeps a placement if it is the best, and reports whether to stop.
func (g *greedy) keep(at []int64) (stop bool) {
	if h := g.p.Height(at); h < g.height {
		copy(g.best, at)
		g.height = h
	}
	return g.height <= g.goal
}

// try places all buffers in an order.
func (g *greedy) try(o placementOrder, lowest bool) (stop bool) {
	g.f.lowest, g.f.top = lowest, 0
	if o == byEnd {
		g.f.top = g.goal
	}
	g.f.sort(o)
	stop = g.f.placeAll() && g.keep(g.f.at)
	g.f.top = 0
	return stop
}

// more goes on where one order did not do: it places from the fullest moment
// outwards; if that does not work out it tries the other orders, repairs what the
// first few give, and then goes for what sticks out.
func (g *greedy) more() {
	if g.core() {
		return
	}
	r := newRepairer(g.f)
	effort := min(repairWork, repairEach*len(g.f.ids))
	at := slices.Clone(g.f.at)
	for k, pass := range []struct {
		order  placementOrder
		lowest bool
	}{{bySize, true}, {byClass, true}, {byLife, true}, {bySize, false}, {byArea, true}, {byArea, false}, {byTime, false}} {
		if g.f.work >= bestFitWork {
			break
		}
		if k > 0 && g.try(pass.order, pass.lowest) {
			return
		}
		if k < repairedOrders && g.f.complete {
			copy(at, g.f.at)
			r.descend(at, g.goal, r.work+effort/8)
			if g.keep(at) {
				return
			}
		}
	}
	// Squeaky wheel: what sticks out goes first the next time.
	g.f.sort(bySize)
	copy(g.f.at, g.best)
	for k := 0; k < 20 && g.f.work < bestFitWork; k++ {
		g.f.lowest = k%2 == 0
		g.f.promote(g.goal)
		if !g.f.placeAll() || g.keep(g.f.at) {
			return
		}
	}
	copy(at, g.best)
	r.descend(at, g.goal, effort)
	g.keep(at)
}

// withoutSpanning takes out the buffers that live beside all others. They may as
// well lie at the bottom: in any placement, what is beneath them can change places
// with them. It returns the rest, the indices of the rest, and the bytes that the
// others take; 0 if there are none, or where pins, mixed alignments or sizes that end
// between multiples of it would make that wrong.
func (p *Problem) withoutSpanning() (rest *Problem, back []int, base int64) {
	start, end, align := int64(math.MinInt64), int64(math.MaxInt64), int64(0) // latest start, earliest end
	for i := range p.Buffers {
		b := &p.Buffers[i]
		if b.Size == 0 {
			continue
		}
		if align == 0 {
			align = b.align()
		}
		if b.Pinned || b.align() != align || b.Size%align != 0 || b.Lower == b.Upper {
			return nil, nil, 0
		}
		start, end = max(start, b.Lower), min(end, b.Upper)
	}
	rest = &Problem{}
	for i, b := range p.Buffers {
		switch {
		case b.Size == 0:
		case b.Lower < end && b.Upper > start:
			base += b.Size
		default:
			rest.Buffers = append(rest.Buffers, b)
			back = append(back, i)
		}
	}
	return rest, back, base
}
