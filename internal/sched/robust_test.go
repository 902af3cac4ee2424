package sched

import (
	"slices"
	"testing"

	"github.com/seed-ee968945/concert/sim"
	"github.com/seed-ee968945/concert/sim/simtest"
)

// The last step must not cost time or memory by the costs as given, and must gain on
// average over the scenarios; where communication bounds a step, visibly so.
func TestRobust(t *testing.T) {
	cost := simtest.TracedH200Cost()
	gained := 0
	for _, c := range []struct {
		name    string
		compute float64 // factor of compute, for what kernels of several operations save
		least   float64 // gain on average, as a fraction
	}{
		{"llama8b_l4_fsdp4.fw", 0.66, 0.03}, {"llama8b_l4_fsdp4.bw", 0.75, 0}, {"llama8b_l4_tpsp4.bw", 1, 0},
		{"mixtral_l2_ep4_fsdp4.fw", 0.8, 0}, {"mixtral_l2_ep4_fsdp4.bw", 0.8, 0}, {"llama8b_fsdp8.bw", 1, 0}, {"gpt_ddp8.bw", 1, 0},
	} {
		m := simtest.Model(t, c.name)
		m.Dur = slices.Clone(m.Dur)
		for i := range m.Dur {
			if m.Kind[i] == sim.Compute {
				m.Dur[i] *= c.compute
			}
		}
		a, err := newAttempt(m, Options{Cost: cost})
		if err != nil {
			t.Fatal(err)
		}
		b, err := a.tradeMemory()
		if err != nil {
			t.Fatal(err)
		}
		x, err := a.robust(b)
		if err != nil {
			t.Fatal(err)
		}
		if x.t.Makespan > b.t.Makespan*(1+1e-12) || x.t.Peak > b.t.Peak {
			t.Errorf("%s: from %.4f ms at %d bytes to %.4f at %d", c.name, b.t.Makespan, b.t.Peak, x.t.Makespan, x.t.Peak)
		}
		was, now := a.spans(b), a.spans(x)
		mean := 0.0
		for k := range was {
			mean += (1 - now[k]/was[k]) / float64(len(was))
		}
		if t.Logf("%-24s %9.3f ms to %9.3f, in scenarios %.4f less", c.name, b.t.Makespan, x.t.Makespan, mean); mean < c.least {
			t.Errorf("%s: gain in scenarios %.4f, want %.4f", c.name, mean, c.least)
		}
		if mean > 0.001 {
			gained++
		}
	}
	if gained < 3 {
		t.Errorf("%d programs gain", gained)
	}
}

// Spans in a scenario are what the simulator says of a model with those costs.
func TestSpans(t *testing.T) {
	cost := simtest.TracedH200Cost()
	for _, name := range []string{"llama8b_l4_fsdp4.bw", "mixtral_l2_ep4_fsdp4.fw", "llama8b_tpsp8.bw"} {
		m := simtest.Model(t, name)
		r, err := Schedule(m, Options{Cost: cost})
		if err != nil {
			t.Fatal(err)
		}
		a, err := newAttempt(m, Options{})
		if err != nil {
			t.Fatal(err)
		}
		for i, got := range a.spans(&bucketed{order: r.Order, list: r.Buckets}) {
			c := scenarios[i]
			list := slices.Clone(r.Buckets)
			for k := range list {
				list[k].Dur *= c.comm
			}
			tl, err := sim.Evaluate(a.variant(c).p.m, r.Order, list)
			if err != nil {
				t.Fatal(err)
			}
			if d := got/tl.Makespan - 1; d > 1e-9 || d < -1e-9 {
				t.Errorf("%s %v: %g ms, the simulator says %g", name, c, got, tl.Makespan)
			}
		}
	}
}

// A critical chain, a product beside each of its links that feeds a reduction, and
// nothing that limits how far products may be put off. Links have the longer way to
// go, so that they all come first, and reductions begin when they have ended, unless
// streams are fed.
func TestFeed(t *testing.T) {
	b := sim.NewBuilder(0)
	x := b.Input(true, 512)
	var out []int32
	for range 12 {
		x = b.Compute(1, []int32{x}, 512)
		g := b.Compute(1, []int32{x}, 512)
		out = append(out, b.Wait(b.Start(1.8, allReduce, true, 512, []int32{g}, 512)))
	}
	b.Output(append(out, x)...)
	m, err := b.Build()
	if err != nil {
		t.Fatal(err)
	}
	p := contract(m, nil)
	e := newEngine(p, newCertificate(p, p.inputJobs(), 1<<40))
	span := func(feed bool) float64 {
		return e.run(policy{tail: p.tails(), window: 100, feed: feed}).makespan
	}
	if put, fed := span(false), span(true); put < 33 || fed > 27 {
		t.Errorf("%g ms, %g with streams fed", put, fed)
	}
}

// TestVariantRuns: nobody who asks for few policies gets more of them in a scenario.
func TestVariantRuns(t *testing.T) {
	m := simtest.Model(t, "llama8b_l4_fsdp4.fw")
	for runs, want := range map[int]int{0: againRuns, 1: 1, 6: 6, DefaultRuns: againRuns} {
		a, err := newAttempt(m, Options{Cost: simtest.TracedH200Cost(), Runs: runs})
		if err != nil {
			t.Fatal(err)
		}
		if v := a.variant(variants[0]); v.opts.runs() != want {
			t.Errorf("%d runs asked for: %d in a scenario", runs, v.opts.runs())
		}
	}
}
