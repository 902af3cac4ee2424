package sched

import (
	"errors"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/seed-ee968945/concert/sim"
)

var allReduce = sim.Key{Op: "all_reduce", Group: "g", GroupSize: 2, Reduce: "sum"}

func linear(_ sim.Key, bytes int64) float64 { return 1 + float64(bytes)/1024 }

// Small programs at the edges of what a model can be.
func TestEdges(t *testing.T) {
	for name, build := range map[string]func(b *sim.Builder){
		"empty":       func(*sim.Builder) {},
		"inputs only": func(b *sim.Builder) { b.Output(b.Input(true, 8), b.Input(false, 8)) },
		"views only":  func(b *sim.Builder) { b.Output(b.View(b.View(b.Input(false, 8)))) },
		"one node":    func(b *sim.Builder) { b.Output(b.Compute(1, nil, 8)) },
		"no output":   func(b *sim.Builder) { b.Compute(1, []int32{b.Input(false, 8)}, 8) },
		"unused input, unused result": func(b *sim.Builder) {
			b.Input(false, 4096)
			b.Output(b.Compute(1, nil, 8))
			b.Compute(1, nil, 4096)
		},
		"collective of no time": func(b *sim.Builder) {
			b.Output(b.Wait(b.Start(0, allReduce, true, 8, []int32{b.Input(true, 8)}, 8)))
		},
		"in flight at the start": func(b *sim.Builder) { b.Output(b.Compute(1, []int32{b.Wait(b.Input(true, 8))}, 8)) },
		"in flight at the end": func(b *sim.Builder) {
			b.Output(b.Start(3, allReduce, true, 8, []int32{b.Input(true, 8)}, 8), b.Compute(1, nil, 8))
		},
		"waited for twice": func(b *sim.Builder) {
			w := b.Wait(b.Start(3, allReduce, true, 8, []int32{b.Compute(1, nil, 8)}, 8))
			b.Output(b.Compute(1, []int32{w}, 8), b.Wait(w))
		},
		"two waits on one start": func(b *sim.Builder) {
			s := b.Start(3, allReduce, true, 8, []int32{b.Compute(1, nil, 8)}, 8)
			b.Output(b.Compute(1, []int32{b.Wait(s)}, 8), b.Compute(2, []int32{b.Wait(s)}, 8))
		},
		"collective of a collective": func(b *sim.Builder) {
			x := b.Input(true, 8)
			for range 3 {
				x = b.Wait(b.Start(3, allReduce, true, 8, []int32{x}, 8))
			}
			b.Output(x, b.Compute(2, nil, 8))
		},
		"no collectives": func(b *sim.Builder) {
			x := b.Input(false, 512)
			for range 100 {
				x = b.Compute(1, []int32{x}, 512)
			}
			b.Output(x)
		},
		"zero sizes": func(b *sim.Builder) {
			b.Output(b.Compute(0, []int32{b.Input(false, 0)}, 0))
		},
	} {
		t.Run(name, func(t *testing.T) {
			b := sim.NewBuilder(0)
			build(b)
			m, err := b.Build()
			if err != nil {
				t.Fatal(err)
			}
			for _, o := range []Options{{}, {Cost: linear}, {MemoryTradeoff: -1, ExactStates: -1}, {InFlight: 1, Cost: linear}} {
				r, err := Schedule(m, o)
				if err != nil {
					t.Fatal(err)
				}
				checkResult(t, m, r, r.Cap)
				if r.Gap() > 1e-9 && len(r.Buckets) == 0 && name != "collective of a collective" {
					t.Errorf("gap %g", r.Gap())
				}
			}
			j, err := Join(m, Options{Cost: linear})
			if err != nil {
				t.Fatal(err)
			}
			checkResult(t, m, j, j.Cap)
		})
	}
}

func TestInfeasible(t *testing.T) {
	b := sim.NewBuilder(0)
	b.Output(b.Compute(1, []int32{b.Input(true, 1<<20)}, 1<<20))
	m, err := b.Build()
	if err != nil {
		t.Fatal(err)
	}
	_, err = Schedule(m, Options{Cap: 1 << 20})
	var e *InfeasibleError
	if !errors.As(err, &e) || !errors.Is(err, ErrInfeasible) || !e.Proved || e.Floor != 2<<20 || !strings.Contains(err.Error(), "2097152") {
		t.Fatalf("%v", err)
	}
}

// Independent collectives that queue up are bucketed, whatever lies between.
func TestQueuedReductionsJoin(t *testing.T) {
	b := sim.NewBuilder(0)
	var out []int32
	for range 20 {
		g := b.Compute(1, nil, 1024)
		out = append(out, b.Wait(b.Start(2, allReduce, true, 1024, []int32{g}, 1024)))
	}
	b.Output(out...)
	m, err := b.Build()
	if err != nil {
		t.Fatal(err)
	}
	r, err := Schedule(m, Options{Cap: 1 << 30, Cost: func(_ sim.Key, bytes int64) float64 { return 1.9 + float64(bytes)/(10<<10) }})
	if err != nil {
		t.Fatal(err)
	}
	// One by one, 20 collectives take 40 ms after the first millisecond.
	if len(r.Buckets) == 0 || r.Timeline.Makespan > 25 {
		t.Fatalf("%d buckets, %g ms", len(r.Buckets), r.Timeline.Makespan)
	}
}

// Collectives that depend on each other, or differ in key, never join.
func TestDependentCollectivesDoNotJoin(t *testing.T) {
	b := sim.NewBuilder(0)
	x := b.Input(true, 1024)
	other := allReduce
	other.Reduce = "max"
	for i := range 6 {
		k := allReduce
		if i%2 == 1 {
			k = other
		}
		x = b.Compute(1, []int32{b.Wait(b.Start(1, k, true, 1024, []int32{x}, 1024))}, 1024)
	}
	b.Output(x)
	m, err := b.Build()
	if err != nil {
		t.Fatal(err)
	}
	r, err := Schedule(m, Options{Cap: 1 << 30, Cost: linear})
	if err != nil {
		t.Fatal(err)
	}
	if len(r.Buckets) != 0 {
		t.Fatalf("buckets %v", r.Buckets)
	}
}

func FuzzSchedule(f *testing.F) {
	for i := range uint64(8) {
		f.Add(i, uint16(20+10*i), uint8(i*30))
	}
	f.Fuzz(func(t *testing.T, seed uint64, nodes uint16, cap uint8) {
		m := randomModel(rand.New(rand.NewPCG(seed, 1)), 4+int(nodes%200))
		in, err := sim.Evaluate(m, m.InputOrder(), nil)
		if err != nil {
			t.Fatal(err)
		}
		o := Options{Cap: in.Peak * int64(64+int(cap)) / 128, ExactStates: 500, Runs: 6}
		if seed%2 == 0 {
			o.Cost = linear
		}
		r, err := Schedule(m, o)
		if errors.Is(err, ErrInfeasible) {
			return
		}
		if err != nil {
			t.Fatal(err)
		}
		checkResult(t, m, r, o.Cap)
	})
}
