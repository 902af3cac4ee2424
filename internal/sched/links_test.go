package sched

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/seed-ee968945/concert/sim"
)

// A long collective that no rank waits for yet is issued behind a short one of another
// group on the same links that compute waits for, unless it is needed by then, or the
// groups share no links.
func TestApart(t *testing.T) {
	long, short := sim.Key{Op: "all_gather", Group: "a"}, sim.Key{Op: "all_to_all", Group: "b"}
	for name, c := range map[string]struct {
		shared, want []int32
	}{
		"shared":     {[]int32{0, 0}, []int32{1, 3, 2, 4, 5, 6, 7}},
		"not shared": {[]int32{0, 1}, []int32{1, 2, 3, 4, 5, 6, 7}},
		"unknown":    {nil, []int32{1, 2, 3, 4, 5, 6, 7}},
	} {
		t.Run(name, func(t *testing.T) {
			b := sim.NewBuilder(0)
			x := b.Input(true, 512)
			c1 := b.Compute(2, []int32{x}, 512)             // 1
			b.Start(5, long, false, 4096, []int32{x}, 4096) // 2
			s := b.Start(1, short, false, 512, []int32{c1}, 512)
			w := b.Wait(s)                      // 4
			c2 := b.Compute(9, []int32{w}, 512) // 5
			l := b.Wait(2)                      // 6
			b.Output(b.Compute(1, []int32{l, c2}, 512))
			p, out := asGiven(t, b)
			if links(c.shared).shared() {
				var err error
				if out, err = p.apart(out, c.shared); err != nil {
					t.Fatal(err)
				}
			}
			if got := out.order[1:8]; !slices.Equal(got, c.want) {
				t.Errorf("order %v, want %v", got, c.want)
			}
		})
	}
}

// Whatever the program, keeping collectives apart makes it no slower by the costs as
// given, takes no memory, and makes some programs faster where links are shared.
func TestApartRandom(t *testing.T) {
	r := rand.New(rand.NewPCG(31, 32))
	better := 0
	for range 200 {
		m := randomModel(r, 20+r.IntN(120))
		if m.Streams < 2 {
			continue
		}
		p := contract(m, nil)
		was, err := sim.Evaluate(m, m.InputOrder(), nil)
		if err != nil {
			t.Fatal(err)
		}
		in, err := p.addSlackTo(&bucketed{order: m.InputOrder(), t: was}, 1<<50, true)
		if err != nil {
			t.Fatal(err)
		}
		was = in.t
		shared := make(links, m.Streams)
		out, err := p.apart(in, shared)
		if err != nil {
			t.Fatal(err)
		}
		if out.t.Makespan > was.Makespan+1e-9 || out.t.Peak > was.Peak {
			t.Fatalf("%g ms and %d bytes instead of %g and %d", out.t.Makespan, out.t.Peak, was.Makespan, was.Peak)
		}
		if slices.Equal(out.order, in.order) {
			continue
		}
		score := func(b *bucketed) float64 {
			s := newSpanner(p, b)
			s.links = shared
			return s.span(scenario{1, 1}) + s.span(scenario{1, 1.5})
		}
		if score(out) < score(in)-1e-9 {
			better++
		}
	}
	if better < 10 {
		t.Errorf("only %d programs are faster", better)
	}
	t.Log(better, "programs are faster")
}
