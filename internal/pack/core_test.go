package pack

import (
	"math/rand/v2"
	"testing"
)

// peaked makes a problem like a training step: buffers that live from the start
// until some time after the middle, buffers that live from before the middle to the
// end, and short ones that fill what is free. Up to slack bytes stay free at the
// middle, more before and after. It fits below height.
func peaked(r *rand.Rand, n int, height, slack int64) Problem {
	const clock = 1000
	var p Problem
	add := func(lower, upper int, size int64) {
		p.Buffers = append(p.Buffers, Buffer{Lower: int64(lower), Upper: int64(upper), Size: size * 512, Align: 512})
	}
	bottom, top := int64(0), height // what is free at the middle
	for range n {
		size := 1 + r.Int64N(height/int64(n))
		if r.IntN(2) == 0 {
			add(0, clock/2+1+r.IntN(clock/2), size)
			bottom += size
		} else {
			add(r.IntN(clock/2), clock, size)
			top -= size
		}
	}
	// Short ones stand in rows of bricks between the two stacks at the middle.
	for at := bottom; top-at > slack; {
		size := min(top-at, []int64{1, 4, 8, 16, 32, 64}[r.IntN(6)])
		at += size
		for from := clock/2 - 9 - r.IntN(6); from < clock/2+9; {
			to := from + 4 + r.IntN(12)
			add(from, to, size)
			from = to
		}
	}
	r.Shuffle(len(p.Buffers), func(i, j int) { p.Buffers[i], p.Buffers[j] = p.Buffers[j], p.Buffers[i] })
	return p
}

// What the core search gives is correct, and meets the bound where greedy placement
// alone does not.
func TestCore(t *testing.T) {
	r := rand.New(rand.NewPCG(9, 10))
	tried, better, exact := 0, 0, 0
	for range 40 {
		p := peaked(r, 30+r.IntN(100), 2000, int64(r.IntN(3)))
		goal := newBound(&p).height
		g := newGreedy(t.Context(), &p, goal)
		if g.try(bySize, true) {
			continue
		}
		tried++
		before := g.height
		if !g.core() {
			continue
		}
		if err := Verify(p, g.best, g.height); err != nil {
			t.Fatal(err)
		}
		if g.height < before {
			better++
		}
		if g.height == goal {
			exact++
		}
	}
	if tried < 20 || better < tried/2 || exact < tried/4 {
		t.Errorf("of %d problems, %d got better and %d met the bound", tried, better, exact)
	}
}

// A repair never moves pinned buffers aside, however many lie on top of each other:
// their costs must not overflow when they are added up.
func TestRepairKeepsPins(t *testing.T) {
	r := rand.New(rand.NewPCG(11, 12))
	for _, pins := range []int{7, 8, 15, 16, 17, 32, 64} {
		var p Problem
		for k := range pins {
			p.Buffers = append(p.Buffers, Buffer{Lower: 0, Upper: 100, Size: 4, Pinned: true, Offset: int64(4 * k)})
		}
		for range 60 {
			lo := r.IntN(90)
			p.Buffers = append(p.Buffers, Buffer{Lower: int64(lo), Upper: int64(lo + 1 + r.IntN(100-lo)), Size: int64(1 + r.IntN(4*pins))})
		}
		g := newGreedy(t.Context(), &p, newBound(&p).height)
		g.try(byTime, true)
		at := append([]int64(nil), g.best...)
		newRepairer(g.f).descend(at, g.goal, 10_000_000)
		if err := Verify(p, at, p.Height(at)); err != nil {
			t.Errorf("%d pins: %v", pins, err)
		}
	}
}
