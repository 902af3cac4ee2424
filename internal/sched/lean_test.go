package sched

import (
	"testing"

	"github.com/seed-ee968945/concert/sim"
	"github.com/seed-ee968945/concert/sim/simtest"
)

var arena = []string{"gpt_ddp8.bw", "llama8b_fsdp8.fw", "llama8b_fsdp8.bw", "llama8b_tp8_infer.fw",
	"llama8b_tpsp8.fw", "llama8b_tpsp8.bw", "mixtral_ep8_fsdp8.fw", "llama70b_fsdp8_tp8.fw", "llama70b_fsdp8_tp8.bw"}

func load(t testing.TB, name string) *sim.Model {
	t.Helper()
	g, err := simtest.Load(name)
	if err != nil {
		t.Fatal(err)
	}
	m, err := g.Model()
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func TestLean(t *testing.T) {
	for _, name := range arena {
		p := contract(load(t, name))
		tl, err := sim.Evaluate(p.m, p.expand(p.inputJobs(), nil), nil)
		if err != nil {
			t.Fatal(err)
		}
		t.Logf("%-24s n=%d floor %.2f traced %.4f/%.4f lazy comm %.4f lazy all %.4f", name, p.n(), gib(p.floor()), gib(tl.Peak), gib(p.peak(p.inputJobs())),
			gib(p.peak(p.lazyComm(false))), gib(p.peak(p.lazyComm(true))))
		for _, b := range []bool{false, true} {
			tl, err := sim.Evaluate(p.m, p.expand(p.lazyComm(b), nil), nil)
			if err != nil {
				t.Fatal(err)
			}
			if tl.Peak != p.peak(p.lazyComm(b)) {
				t.Errorf("%s: peak %d, sim says %d", name, p.peak(p.lazyComm(b)), tl.Peak)
			}
		}
	}
}
