package compile_test

import (
	"testing"

	"github.com/seed-ee968945/concert/compile"
	"github.com/seed-ee968945/concert/internal/hostrun"
	"github.com/seed-ee968945/concert/internal/llama"
	"github.com/seed-ee968945/concert/interp"
	"github.com/seed-ee968945/concert/ir"
	"github.com/seed-ee968945/concert/lower"
	"github.com/seed-ee968945/concert/passes/standard"
	"github.com/seed-ee968945/concert/program"
	"github.com/seed-ee968945/concert/runtime/host"
)

// TestStages compiles a decoder cut into four stages and eight micro-batches, and runs it on
// four ranks of the host, on one host and on two: each rank gives what the interpreter gives.
func TestStages(t *testing.T) {
	l := llama.Step{Layers: 4, Hidden: 8, FFN: 16, Heads: 4, Keys: 2, Head: 4, Vocab: 8, Batch: 1, Seq: 4, Data: 1, Model: 1, DType: ir.F32}
	f, err := l.Device(nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, schedule := range []string{"1f1b", "interleaved", "zero-bubble"} {
		p, err := standard.Table().Parse("pipeline{stages=4,micro-batches=8,schedule=" + schedule + "},default")
		if err != nil {
			t.Fatal(err)
		}
		r, err := compile.Compile(t.Context(), f.Module(), compile.Target{}, compile.Options{Pipeline: p})
		if err != nil {
			t.Fatal(err)
		}
		m := r.Module
		s := m.Stages()[0]
		progs, err := lower.Stages(m, s, lower.Options{})
		if err != nil {
			t.Fatal(err)
		}
		for _, p := range progs {
			rep, err := program.CheckWith(p, lower.CheckOptions())
			if err != nil {
				t.Fatal(err)
			}
			if err := rep.Err(); err != nil {
				t.Error(err)
			}
		}
		again, err := program.ParseStages("t", progs.String())
		if err != nil || again.String() != progs.String() || program.CheckStages(again) != nil {
			t.Errorf("the text of the stages does not read as it was written: %v", err)
		}
		in := make([][]interp.Tensor, m.World)
		for rank := range in {
			all, err := interp.RandomInputs(m.Func(s.Funcs[s.Place(rank)]), 1, interp.RandomOptions{})
			if err != nil {
				t.Fatal(err)
			}
			in[rank] = all[rank]
		}
		want, err := interp.RunStages(t.Context(), m, s, in, interp.Options{})
		if err != nil {
			t.Fatal(err)
		}
		for _, hosts := range []int{1, 2} {
			got, err := hostrun.Stages(t.Context(), host.Options{Hosts: hosts}, s.Name, progs, in)
			if err != nil {
				t.Fatal(err)
			}
			for rank := range want {
				for i := range want[rank] {
					if !interp.Equal(got[rank][i], want[rank][i]) {
						t.Errorf("%s, %d hosts: rank %d, result %d differs", schedule, hosts, rank, i)
					}
				}
			}
		}
	}
}
