package sched

import (
	"errors"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/seed-ee968945/concert/sim"
)

// randomModel returns a program of at most nodes nodes with one or two
// communication streams, about two fifths of its time spent in collectives.
func randomModel(r *rand.Rand, nodes int) *sim.Model {
	b := sim.NewBuilder(nodes)
	streams := 1 + r.IntN(2)
	var avail, ran []int32 // ran: nodes that order-only edges may come from
	for range 1 + r.IntN(3) {
		avail = append(avail, b.Input(r.IntN(2) == 0, int64(1+r.IntN(64))<<10))
	}
	used := map[int32]bool{}
	pick := func() []int32 {
		var ops []int32
		for range 1 + r.IntN(2) {
			k := len(avail) - 1 - r.IntN(min(len(avail), 6))
			ops = append(ops, avail[k])
			used[avail[k]] = true
		}
		return ops
	}
	count := len(avail)
	for count < nodes-1 {
		ms := float64(1 + r.IntN(20))
		bytes := int64(1+r.IntN(64)) << 10
		switch {
		case count+2 < nodes && r.IntN(100) < 40:
			g := string(rune('a' + r.IntN(streams)))
			ordered := len(ran) > 0 && r.IntN(8) == 0 // an order-only edge on the wait: it is not bucketed
			s := b.Start(ms, sim.Key{Op: "all_reduce", Group: g, GroupSize: 2, Reduce: "sum"}, !ordered, bytes, pick()[:1], bytes)
			if ordered {
				avail = append(avail, b.Add(sim.Spec{Kind: sim.Wait, StartOf: s, Operands: []int32{s, ran[r.IntN(len(ran))]}, Shares: b.Results(s)}))
				ran = append(ran, avail[len(avail)-1])
			} else {
				avail = append(avail, b.Wait(s))
			}
			count += 2
		case r.IntN(8) == 0:
			avail = append(avail, b.View(pick()[0]))
			count++
		default:
			avail = append(avail, b.Compute(ms, pick(), bytes))
			ran = append(ran, avail[len(avail)-1])
			count++
		}
	}
	var out []int32
	for _, v := range avail {
		if !used[v] {
			out = append(out, v)
		}
	}
	b.Output(out...)
	m, err := b.Build()
	if err != nil {
		panic(err)
	}
	return m
}

func TestRandomAgainstExact(t *testing.T) {
	const graphs = 1000
	r := rand.New(rand.NewPCG(1, 2))
	solved, optimal, gap, worst, full := 0, 0, 0.0, 0.0, 0
	for i := range graphs {
		m := randomModel(r, 8+r.IntN(23))
		s, err := Schedule(m, Options{Cap: 1 << 50, MemoryTradeoff: -1, ExactStates: -1})
		if err != nil {
			t.Fatal(err)
		}
		order, complete, err := Exact(m, 0, 30_000)
		if err != nil {
			t.Fatal(err)
		}
		if !complete {
			continue
		}
		best, err := sim.Evaluate(m, order, nil)
		if err != nil {
			t.Fatal(err)
		}
		solved++
		whole, err := Schedule(m, Options{Cap: 1 << 50, MemoryTradeoff: -1})
		if err != nil {
			t.Fatal(err)
		}
		if whole.Timeline.Makespan <= best.Makespan*(1+1e-9) {
			full++
		}
		if s.Timeline.Makespan < best.Makespan*(1-1e-9) {
			t.Fatalf("graph %d: %g ms, exact search says %g", i, s.Timeline.Makespan, best.Makespan)
		}
		g := s.Timeline.Makespan/best.Makespan - 1
		gap += g
		worst = max(worst, g)
		if g < 1e-9 {
			optimal++
		}
	}
	t.Logf("solved %d of %d; without exact search optimal %.1f%%, mean gap %.3f%%, worst %.1f%%; with it optimal %.1f%%", solved, graphs,
		100*float64(optimal)/float64(solved), 100*gap/float64(solved), 100*worst, 100*float64(full)/float64(solved))
	if solved < graphs*9/10 || optimal*10 < solved*9 || gap > 0.01*float64(solved) || full*100 < solved*99 {
		t.Error("too few optimal")
	}
}

func TestRandomUnderCap(t *testing.T) {
	const graphs = 300
	r := rand.New(rand.NewPCG(3, 4))
	feasible, found, same, alone := 0, 0, 0, 0
	gap := 0.0
	for i := range graphs {
		m := randomModel(r, 8+r.IntN(18))
		in, err := sim.Evaluate(m, m.InputOrder(), nil)
		if err != nil {
			t.Fatal(err)
		}
		cap := in.Peak * int64(60+r.IntN(50)) / 100
		order, complete, err := Exact(m, cap, 50_000)
		if err != nil {
			t.Fatal(err)
		}
		s, serr := Schedule(m, Options{Cap: cap, MemoryTradeoff: -1})
		if _, err := Schedule(m, Options{Cap: cap, MemoryTradeoff: -1, ExactStates: -1}); err == nil {
			alone++
		} else if inf := new(InfeasibleError); !errors.As(err, &inf) || inf.Proved {
			t.Fatal(err)
		}
		if serr == nil && s.Timeline.Peak > cap {
			t.Fatalf("graph %d: peak %d above cap %d", i, s.Timeline.Peak, cap)
		}
		if serr != nil && !errors.Is(serr, ErrInfeasible) {
			t.Fatal(serr)
		}
		if !complete || order == nil {
			if order == nil && complete && serr == nil {
				t.Fatalf("graph %d: found an order that the exact search rules out", i)
			}
			continue
		}
		feasible++
		if serr != nil {
			continue
		}
		found++
		best, err := sim.Evaluate(m, order, nil)
		if err != nil {
			t.Fatal(err)
		}
		if best.Peak > cap {
			t.Fatalf("graph %d: exact search broke the cap", i)
		}
		g := s.Timeline.Makespan/best.Makespan - 1
		gap += g
		if g < 1e-9 {
			same++
		}
	}
	t.Logf("feasible %d, found %d (%d without exact search), optimal %d, mean gap %.2f%%", feasible, found, alone, same, 100*gap/float64(max(1, found)))
	if found < feasible {
		t.Error("an order under the cap was missed")
	}
}

// The search ends where no window kept to the cap and the best policy has none, which
// doubles to itself.
func TestSearchWithoutWindow(t *testing.T) {
	reached := false
	for seed := range uint64(200) {
		r := rand.New(rand.NewPCG(seed, 11))
		p := contract(randomModel(r, 10+r.IntN(60)), nil)
		ref, floor := p.minMemory(0)
		s := newSearch(p, ref, floor, 0)
		s.light = true
		_, ok := s.under(floor-1, DefaultRuns)
		reached = reached || ok && s.bestKey.feed && s.bestKey.window == 0
	}
	if !reached {
		t.Error("no search came to a window of 0 that feeds streams first")
	}
}

// checkResult holds a result to what Schedule promises.
func checkResult(t *testing.T, m *sim.Model, r *Result, cap int64) {
	t.Helper()
	tl, err := sim.Evaluate(m, r.Order, r.Buckets)
	if err != nil {
		t.Fatal(err)
	}
	if tl.Peak > cap {
		t.Fatalf("peak %d above cap %d", tl.Peak, cap)
	}
	if tl.Makespan != r.Timeline.Makespan || tl.Peak != r.Timeline.Peak {
		t.Fatalf("evaluated %g ms at %d bytes, claimed %g at %d", tl.Makespan, tl.Peak, r.Timeline.Makespan, r.Timeline.Peak)
	}
	if r.Input.Peak <= cap && tl.Makespan > r.Input.Makespan*(1+1e-12) {
		t.Fatalf("%g ms, the input takes %g", tl.Makespan, r.Input.Makespan)
	}
	if len(r.Buckets) == 0 && tl.Makespan < r.Bounds.Bound*(1-1e-9) {
		t.Fatalf("%g ms, below the bound of %g", tl.Makespan, r.Bounds.Bound)
	}
}

func TestRandomPrograms(t *testing.T) {
	cost := func(_ sim.Key, bytes int64) float64 { return 2 + float64(bytes)/(8<<10) }
	r := rand.New(rand.NewPCG(9, 10))
	scheduled, refused, buckets := 0, 0, 0
	for range 400 {
		m := randomModel(r, 20+r.IntN(300))
		in, err := sim.Evaluate(m, m.InputOrder(), nil)
		if err != nil {
			t.Fatal(err)
		}
		opts := Options{ExactStates: 2000}
		switch r.IntN(4) {
		case 0:
			opts.Cap = in.Peak * int64(70+r.IntN(60)) / 100
		case 1:
			opts.MemoryTradeoff = -1
		case 2:
			opts.InFlight = int64(1+r.IntN(100)) << 10
		}
		if r.IntN(2) == 0 {
			opts.Cost = cost
		}
		s, err := Schedule(m, opts)
		cap := opts.Cap
		if cap == 0 {
			cap = in.Peak
		}
		if errors.Is(err, ErrInfeasible) && cap < in.Peak {
			refused++
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		checkResult(t, m, s, cap)
		scheduled++
		buckets += len(s.Buckets)
	}
	t.Logf("scheduled %d, refused %d, %d buckets", scheduled, refused, buckets)
	if scheduled < 300 || buckets < 300 {
		t.Errorf("too few to mean anything")
	}
}

// Exact is the exact search on a whole model.
func Exact(m *sim.Model, cap int64, limit int) (order []int32, complete bool, err error) {
	p := contract(m, nil)
	jobs, complete, err := exact(p, cap, limit, math.Inf(1))
	if err != nil || jobs == nil {
		return nil, complete, err
	}
	return p.expand(jobs, nil), complete, nil
}
