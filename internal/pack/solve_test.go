package pack

import (
	"context"
	"errors"
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"
)

// bruteForce returns the least height of p. Taken in order of offset, the
// buffers of a best placement can each be moved down onto the earlier ones
// that they conflict with (and past pinned ones), so trying every order is
// enough.
func bruteForce(p *Problem) int64 {
	n := len(p.Buffers)
	offsets := make([]int64, n)
	placed := make([]bool, n)
	best := int64(infinity)
	left := 0
	base := int64(0)
	for i, b := range p.Buffers {
		if b.Pinned {
			offsets[i] = b.Offset
			if b.Size > 0 {
				base = max(base, b.Offset+b.Size)
			}
		} else if b.Size > 0 {
			left++
		}
	}
	var rec func(left int, height int64)
	rec = func(left int, height int64) {
		if height >= best {
			return
		}
		if left == 0 {
			best = height
			return
		}
		for i, b := range p.Buffers {
			if placed[i] || b.Pinned || b.Size == 0 {
				continue
			}
			o := int64(0)
			for j := range p.Buffers {
				if placed[j] && conflict(p, i, j) {
					o = max(o, offsets[j]+p.Buffers[j].Size)
				}
			}
			for again := true; again; {
				again = false
				o = alignUp(o, max(b.Align, 1))
				for j, c := range p.Buffers {
					if c.Pinned && conflict(p, i, j) && max(o, c.Offset) < min(o+b.Size, c.Offset+c.Size) {
						o = c.Offset + c.Size
						again = true
					}
				}
			}
			offsets[i], placed[i] = o, true
			rec(left-1, max(height, o+b.Size))
			placed[i] = false
		}
	}
	rec(left, base)
	return best
}

func TestSolveAgreesWithBruteForce(t *testing.T) {
	rounds := 1500
	if testing.Short() {
		rounds = 150
	}
	for name, k := range kinds {
		t.Run(name, func(t *testing.T) {
			r := rand.New(rand.NewPCG(5, 6))
			searched := 0
			for range rounds {
				p := randomProblem(r, k)
				want := bruteForce(&p)
				// Searching from a bad start exercises the search: BestFit
				// alone solves most tiny problems.
				res := searchOnly(t, p)
				if res.Method == "search" {
					searched++
				}
				// The search counts sizes as rounded up to the common
				// alignment, so it may miss less than one of those.
				if res.Height < want || res.Height-want >= commonAlign(&p) {
					t.Fatalf("height %d (bound %d), brute force %d: %+v", res.Height, res.LowerBound, want, p)
				}
				if res.LowerBound > want {
					t.Fatalf("lower bound %d above the optimum %d: %+v", res.LowerBound, want, p)
				}
				if !k.aligned && res.LowerBound != want {
					t.Fatalf("height %d not proved optimal (bound %d): %+v", want, res.LowerBound, p)
				}
				full, err := Solve(context.Background(), p, Options{})
				if err != nil || full.Height < want || full.Height-want >= commonAlign(&p) || !naiveCheck(&p, full.Offsets, full.Height) {
					t.Fatalf("Solve = %+v, %v, brute force %d: %+v", full, err, want, p)
				}
				if full.Exact != (full.Height == full.LowerBound) {
					t.Fatalf("Exact is wrong: %+v", full)
				}
				if lb, err := LowerBound(p); err != nil || lb > want {
					t.Fatalf("LowerBound = %d, %v above the optimum %d: %+v", lb, err, want, p)
				}
				offsets, h, err := BestFit(p)
				if err != nil || h < want || !naiveCheck(&p, offsets, h) {
					t.Fatalf("BestFit = %v, %d, %v: %+v", offsets, h, err, p)
				}
			}
			if searched < rounds/2 {
				t.Errorf("only %d of %d problems reached the search", searched, rounds)
			}
		})
	}
}

// searchOnly runs the search from a placement that stacks everything.
func searchOnly(t *testing.T, p Problem) Result {
	t.Helper()
	v := &solver{p: &p}
	v.res.Height = 1
	v.res.Offsets = make([]int64, len(p.Buffers))
	for i, b := range p.Buffers {
		if b.Pinned {
			v.res.Offsets[i] = b.Offset
			v.res.Height = max(v.res.Height, b.Offset+b.Size)
		}
	}
	for i, b := range p.Buffers {
		if !b.Pinned {
			v.res.Offsets[i] = alignUp(v.res.Height, max(b.Align, 1))
			v.res.Height = v.res.Offsets[i] + b.Size
		}
	}
	// Stay above every height, so that the search has to find something.
	v.res.Height += 64
	bd := newBound(&p)
	v.res.LowerBound, v.goal = bd.height, bd.height
	v.search(context.Background())
	if v.res.Method == "search" && !naiveCheck(&p, v.res.Offsets, v.res.Height) {
		t.Fatalf("wrong placement %+v of %+v", v.res, p)
	}
	return v.res
}

// TestSolveMedium runs problems beyond brute force, of every kind.
func TestSolveMedium(t *testing.T) {
	r := rand.New(rand.NewPCG(7, 8))
	for name, k := range kinds {
		k.n, k.clock, k.size = 60, 40, 200
		for range 5 {
			p := randomProblem(r, k)
			res, err := Solve(context.Background(), p, Options{Steps: 20_000_000})
			if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			if !naiveCheck(&p, res.Offsets, res.Height) {
				t.Fatalf("%s: wrong placement", name)
			}
			if res.Height < res.LowerBound || res.Exact != (res.Height == res.LowerBound) {
				t.Fatalf("%s: inconsistent result %+v", name, res)
			}
			again, err := Solve(context.Background(), p, Options{Steps: 20_000_000})
			if err != nil || !reflect.DeepEqual(res, again) {
				t.Fatalf("%s: two runs differ", name)
			}
		}
	}
}

func TestInput12(t *testing.T) {
	p := readInstance(t, "input.12")
	res, err := Solve(context.Background(), p, Options{Capacity: 12})
	if err != nil || !res.Exact || res.Height > 12 || !naiveCheck(&p, res.Offsets, 12) {
		t.Fatalf("Solve = %+v, %v", res, err)
	}
}

// TestInstances fits minimalloc's instances into their capacity, within a
// bounded effort each.
func TestInstances(t *testing.T) {
	names := instances
	if testing.Short() {
		names = []string{"A", "C", "H"}
	}
	for _, name := range names {
		t.Run(name, func(t *testing.T) {
			p := readInstance(t, name+".1048576")
			res, err := Solve(context.Background(), p, Options{Capacity: instanceCapacity, Goal: instanceCapacity, Steps: 500_000_000})
			if err != nil {
				t.Fatal(err)
			}
			if !naiveCheck(&p, res.Offsets, instanceCapacity) {
				t.Error("wrong placement")
			}
			if err := Verify(p, res.Offsets, res.Height); err != nil {
				t.Error(err)
			}
			if name == "C" && (res.Height != 1039360 || !res.Exact) {
				t.Errorf("height %d, want the lower bound 1039360", res.Height)
			}
			t.Logf("height %d, bound %d, %d nodes", res.Height, res.LowerBound, res.Nodes)
		})
	}
}

func TestCapacityError(t *testing.T) {
	p := Problem{Buffers: []Buffer{{Lower: 0, Upper: 9, Size: 3}, {Lower: 4, Upper: 5, Size: 6}, {Lower: 5, Upper: 6, Size: 4}}}
	res, err := Solve(context.Background(), p, Options{Capacity: 8})
	var ce *CapacityError
	if !errors.As(err, &ce) {
		t.Fatalf("err = %v", err)
	}
	if !ce.Proved || ce.Height != 9 || ce.LowerBound != 9 || ce.PeakTime != 4 || !slices.Equal(ce.Peak, []int{1, 0}) {
		t.Errorf("%+v", ce)
	}
	want := "capacity of 8 bytes cannot be reached: the best placement needs 9, every placement at least 9, and the 2 buffers live at time 4 have 9"
	if err.Error() != want {
		t.Errorf("message %q, want %q", err, want)
	}
	if !naiveCheck(&p, res.Offsets, 9) {
		t.Errorf("no usable result beside the error: %+v", res)
	}
}

func TestCancelled(t *testing.T) {
	p := readInstance(t, "K.1048576")
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	res, err := Solve(ctx, p, Options{Steps: 1 << 40})
	if err != nil {
		t.Fatal(err)
	}
	if !naiveCheck(&p, res.Offsets, res.Height) {
		t.Error("wrong placement")
	}
}

func TestPinnedOverlap(t *testing.T) {
	p := Problem{Buffers: []Buffer{
		{Lower: 0, Upper: 1, Size: 1},
		{Lower: 0, Upper: 2, Size: 4, Pinned: true, Offset: 4},
		{Lower: 1, Upper: 2, Size: 4, Pinned: true, Offset: 7},
	}}
	for name, f := range map[string]func() error{
		"Solve":   func() error { _, err := Solve(context.Background(), p, Options{}); return err },
		"BestFit": func() error { _, _, err := BestFit(p); return err },
	} {
		var oe *OverlapError
		if err := f(); !errors.As(err, &oe) || oe.A != 1 || oe.B != 2 {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestBestFitLarge checks BestFit where the tree is deep and lifetimes are
// both short and long, as in a training step.
func TestBestFitLarge(t *testing.T) {
	p := stepLike(20_000)
	offsets, h, err := BestFit(p)
	if err != nil {
		t.Fatal(err)
	}
	if err := Verify(p, offsets, h); err != nil {
		t.Fatal(err)
	}
	lb, err := LowerBound(p)
	if err != nil {
		t.Fatal(err)
	}
	if float64(h) > 1.005*float64(lb) {
		t.Errorf("height %d is %.4f of the bound %d", h, float64(h)/float64(lb), lb)
	}
}

// stepLike makes a problem with the lifetimes of a training step: parameters
// that live throughout, activations from forward to the mirrored place in
// backward, and short temporaries.
func stepLike(n int) Problem {
	r := rand.New(rand.NewPCG(9, 10))
	sizes := []int64{512, 4096, 32 << 10, 1 << 20, 16 << 20, 24 << 20, 112 << 20}
	var p Problem
	for i := range n {
		at := int64(i)
		b := Buffer{Lower: at, Upper: at + 1 + int64(r.IntN(30)), Size: sizes[r.IntN(len(sizes))], Align: 512}
		switch {
		case i < n/100:
			b.Lower, b.Upper = 0, int64(n)
		case i < n/2 && r.IntN(5) == 0:
			b.Upper = int64(n) - at
		}
		p.Buffers = append(p.Buffers, b)
	}
	return p
}
