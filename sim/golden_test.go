package sim_test

import (
	"fmt"
	"testing"

	"github.com/seed-ee968945/concert/sim"
	"github.com/seed-ee968945/concert/sim/simtest"
)

// traced is the published evaluation of nine traced programs.
var traced = []struct{ name, makespan, bound, peak string }{
	{"gpt_ddp8.bw", "117.12", "91.09", "13.41"},
	{"llama8b_fsdp8.fw", "179.07", "130.25", "26.34"},
	{"llama8b_fsdp8.bw", "391.72", "291.55", "41.18"},
	{"llama8b_tp8_infer.fw", "21.78", "21.78", "2.81"},
	{"llama8b_tpsp8.fw", "35.07", "35.07", "7.59"},
	{"llama8b_tpsp8.bw", "62.06", "46.34", "7.47"},
	{"mixtral_ep8_fsdp8.fw", "231.02", "217.51", "46.21"},
	{"llama70b_fsdp8_tp8.fw", "267.07", "201.54", "23.95"},
	{"llama70b_fsdp8_tp8.bw", "493.21", "287.82", "39.96"},
}

func TestTracedProgramsToThePrintedDigit(t *testing.T) {
	for _, want := range traced {
		t.Run(want.name, func(t *testing.T) {
			m := simtest.Model(t, want.name)
			tl, err := sim.Evaluate(m, m.InputOrder(), nil)
			if err != nil {
				t.Fatal(err)
			}
			b := sim.LowerBound(m)
			if got := fmt.Sprintf("%.2f", tl.Makespan); got != want.makespan {
				t.Errorf("makespan %s ms, want %s", got, want.makespan)
			}
			if got := fmt.Sprintf("%.2f", b.Bound); got != want.bound || !b.Exact {
				t.Errorf("lower bound %s ms (exact %v), want %s: %+v", got, b.Exact, want.bound, b)
			}
			if got := fmt.Sprintf("%.2f", float64(tl.Peak)/(1<<30)); got != want.peak {
				t.Errorf("peak %s GiB, want %s", got, want.peak)
			}
		})
	}
}

func BenchmarkLowerBound(b *testing.B) {
	for _, x := range traced {
		m := simtest.Model(b, x.name)
		b.Run(x.name, func(b *testing.B) {
			for range b.N {
				sim.LowerBound(m)
			}
		})
	}
}

func BenchmarkEvaluate(b *testing.B) {
	m := simtest.Model(b, "llama70b_fsdp8_tp8.bw")
	order := m.InputOrder()
	for range b.N {
		if _, err := sim.Evaluate(m, order, nil); err != nil {
			b.Fatal(err)
		}
	}
}
