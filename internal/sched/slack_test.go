package sched

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/seed-ee968945/concert/sim"
)

// asGiven is the program of b, and its schedule in the order in which it was built.
func asGiven(t *testing.T, b *sim.Builder) (*problem, *bucketed) {
	t.Helper()
	m, err := b.Build()
	if err != nil {
		t.Fatal(err)
	}
	tl, err := sim.Evaluate(m, m.InputOrder(), nil)
	if err != nil {
		t.Fatal(err)
	}
	return contract(m, nil), &bucketed{order: m.InputOrder(), t: tl}
}

// Whatever things really take, a loose schedule is nowhere later than the one it
// comes from: no job begins later, and nothing ends later. Its peak is no higher
// either.
func TestLooseSchedulesAreNeverLater(t *testing.T) {
	r := rand.New(rand.NewPCG(11, 12))
	cost := func(_ sim.Key, bytes int64) float64 { return 2 + float64(bytes)/(8<<10) }
	changed, earlier := 0, 0
	for range 300 {
		m := randomModel(r, 20+r.IntN(200))
		p := contract(m, nil)
		b := loose(t, m, p, cost)
		l, err := p.addSlack(b)
		if err != nil {
			t.Fatal(err)
		}
		if slices.Equal(l.order, b.order) {
			continue
		}
		changed++
		run := p.bucketOf(b.list)
		was, _ := p.packedPeak(p.jobsOf(b.order), run, len(b.list))
		now, _ := p.packedPeak(p.jobsOf(l.order), run, len(b.list))
		if l.t.Peak > b.t.Peak || now > was {
			t.Fatalf("peak from %d to %d, of buckets as one buffer from %d to %d", b.t.Peak, l.t.Peak, was, now)
		}
		for range 5 {
			q := *m
			q.Dur = slices.Clone(m.Dur)
			for i := range q.Dur {
				q.Dur[i] *= 0.5 + r.Float64()
			}
			list := slices.Clone(b.list)
			for i := range list {
				list[i].Dur *= 0.5 + r.Float64()
			}
			x, err := sim.Evaluate(&q, b.order, list)
			if err != nil {
				t.Fatal(err)
			}
			y, err := sim.Evaluate(&q, l.order, list)
			if err != nil {
				t.Fatal(err)
			}
			for v, k := range m.Kind {
				if (k == sim.Compute || k == sim.Start) && y.Begin[v] > x.Begin[v]+1e-9 {
					t.Fatalf("node %d begins at %g instead of %g", v, y.Begin[v], x.Begin[v])
				}
			}
			if y.Makespan > x.Makespan+1e-9 {
				t.Fatalf("%g ms instead of %g", y.Makespan, x.Makespan)
			}
			if y.Makespan < x.Makespan-1e-9 {
				earlier++
			}
		}
	}
	t.Logf("%d of 300 schedules changed; %d of %d faster with other costs", changed, earlier, 5*changed)
	if changed < 150 || earlier < 100 {
		t.Error("too few to mean anything")
	}
}

// loose schedules a model without the last steps, which stand costs that are off.
func loose(t *testing.T, m *sim.Model, p *problem, cost Cost) *bucketed {
	t.Helper()
	a, err := newAttempt(m, Options{Cost: cost, Cap: 1 << 50})
	if err != nil {
		t.Fatal(err)
	}
	b, err := a.tradeMemory()
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// A wait that nothing needs soon goes back, and a start that can be issued ahead
// goes forward, as far as memory allows.
func TestAddSlack(t *testing.T) {
	for name, c := range map[string]struct {
		held int64 // bytes of the operand of the collective
		want []int32
	}{
		"room":    {0, []int32{0, 1, 2, 4, 5, 6, 3, 7}},
		"some":    {4096, []int32{0, 1, 2, 4, 3, 5, 6, 7}},
		"no room": {8192, []int32{0, 1, 2, 3, 4, 5, 6, 7}},
	} {
		t.Run(name, func(t *testing.T) {
			b := sim.NewBuilder(0)
			x := b.Input(true, 512)
			g := b.Compute(1, []int32{x}, c.held)                  // 1
			s := b.Start(1, allReduce, true, 512, []int32{g}, 512) // 2
			w := b.Wait(s)                                         // 3
			c1 := b.Compute(1, []int32{x}, 4096)                   // 4
			c2 := b.Compute(1, []int32{c1}, 4096)                  // 5
			c3 := b.Compute(1, []int32{c2}, 512)                   // 6
			b.Output(b.Compute(1, []int32{w, c3}, 512))            // 7, 8
			p, given := asGiven(t, b)
			l, err := p.addSlack(given)
			if err != nil {
				t.Fatal(err)
			}
			if got := l.order[:8]; !slices.Equal(got, c.want) {
				t.Errorf("order %v, want %v", got, c.want)
			}
		})
	}
}

// What AddSlack makes takes no longer by the costs given, begins no launch later, and
// stays within the limit; now and then a collective passes another one of its stream,
// but none that is waited for earlier.
func TestAddSlackAhead(t *testing.T) {
	r := rand.New(rand.NewPCG(21, 22))
	changed, passed, over := 0, 0, 0
	for range 300 {
		m := randomModel(r, 20+r.IntN(200))
		was, err := sim.Evaluate(m, m.InputOrder(), nil)
		if err != nil {
			t.Fatal(err)
		}
		limit := was.Peak + was.Peak*int64(r.IntN(3))/10
		order, now, err := AddSlack(m, nil, nil, was.Peak, limit)
		if err != nil {
			t.Fatal(err)
		}
		if now.Peak > limit {
			t.Fatalf("peak from %d to %d, limit %d", was.Peak, now.Peak, limit)
		}
		if now.Peak > was.Peak {
			over++
		}
		if now.Makespan > was.Makespan+1e-9 {
			t.Fatalf("%g ms instead of %g", now.Makespan, was.Makespan)
		}
		for v, k := range m.Kind {
			if k == sim.Compute && now.Begin[v] > was.Begin[v]+1e-9 {
				t.Fatalf("node %d begins at %g instead of %g", v, now.Begin[v], was.Begin[v])
			}
		}
		if !slices.Equal(order, m.InputOrder()) {
			changed++
		}
		if passes(t, m, order) {
			passed++
		}
	}
	t.Logf("%d of 300 orders changed, in %d a collective passed another one, %d took more memory", changed, passed, over)
	if changed < 100 || passed < 10 || over < 3 {
		t.Error("too few to mean anything")
	}
}

// passes reports whether an order has starts of one stream in another order than the
// input order, and fails if one passes another that is waited for earlier.
func passes(t *testing.T, m *sim.Model, order []int32) bool {
	t.Helper()
	pos, need := make([]int, m.Len()), make([]int, m.Len())
	for i := range need {
		need[i] = m.Len()
	}
	launches := 0
	for p, v := range order {
		if pos[v] = p; m.Kind[v] == sim.Compute {
			launches++
		}
		if c := m.StartOf[v]; c >= 0 {
			need[c] = min(need[c], launches)
		}
	}
	any := false
	for a, k := range m.Kind {
		for b := a + 1; b < m.Len() && k == sim.Start; b++ {
			if m.Kind[b] == sim.Start && m.Stream[a] == m.Stream[b] && pos[b] < pos[a] {
				if any = true; need[b] > need[a] {
					t.Errorf("start %d passes %d, which is waited for earlier", b, a)
				}
			}
		}
	}
	return any
}

// A gather behind a reduction goes into the time before it in which the stream is idle,
// if that has room for it, and memory has.
func TestAddSlackFillsGaps(t *testing.T) {
	for name, c := range map[string]struct {
		ms    float64 // of the gather
		limit int64
		want  []int32
	}{
		"fits":      {2, 1 << 40, []int32{5, 1, 2, 3, 4, 6, 7}},
		"too long":  {4, 1 << 40, []int32{1, 2, 3, 4, 5, 6, 7}},
		"no memory": {2, 0, []int32{1, 2, 3, 4, 5, 6, 7}},
	} {
		t.Run(name, func(t *testing.T) {
			b := sim.NewBuilder(0)
			x := b.Input(true, 512)
			y := b.Compute(1, []int32{x}, 2<<20)                           // 1
			big := b.Compute(2, []int32{y}, 1<<20)                         // 2
			red := b.Start(5, allReduce, false, 512, []int32{big}, 512)    // 3
			b.Compute(1, []int32{x}, 512)                                  // 4
			g := b.Start(c.ms, allReduce, false, 1<<20, []int32{x}, 1<<20) // 5
			use := b.Compute(1, []int32{b.Wait(g)}, 512)                   // 6, 7
			b.Output(b.Wait(red), use)
			m, err := b.Build()
			if err != nil {
				t.Fatal(err)
			}
			order, _, err := AddSlack(m, nil, nil, c.limit)
			if err != nil {
				t.Fatal(err)
			}
			got := slices.DeleteFunc(order, func(v int32) bool { return v < 1 || v > 7 })
			if !slices.Equal(got, c.want) {
				t.Errorf("order %v, want %v", got, c.want)
			}
		})
	}
}
