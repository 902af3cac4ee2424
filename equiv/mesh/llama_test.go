package mesh

import (
	"fmt"
	"strings"
	"testing"

	"github.com/seed-ee968945/concert/equiv/mesh/placement"
	"github.com/seed-ee968945/concert/internal/llama"
	"github.com/seed-ee968945/concert/ir"
)

// steps are the step of one device and that of the ranks, written by hand.
func steps(t testing.TB, l llama.Step) (device, ranks *ir.Func, o Options) {
	one, many := l, l
	device, err := one.Device(nil)
	if err != nil {
		t.Fatal(err)
	}
	if ranks, err = many.Ranks(); err != nil {
		t.Fatal(err)
	}
	o = Options{Mesh: placement.Mesh{Axes: []placement.Axis{{Name: "data", Size: l.Data}, {Name: "model", Size: l.Model}}}}
	for _, p := range many.In {
		o.Inputs = append(o.Inputs, p)
	}
	// the loss, and gradients where their parameters lie
	o.Results = []placement.Placement{{}, o.Inputs[2], o.Inputs[3]}
	for i := range int(l.Layers) {
		w := o.Inputs[4+9*i:]
		o.Results = append(o.Results, w[7], w[2], w[1], w[0], w[3], w[8], w[5], w[4], w[6])
	}
	return device, ranks, o
}

// TestLlama proves a small step and holds it against a run.
func TestLlama(t *testing.T) {
	device, ranks, o := steps(t, llama.Step{Layers: 2, Hidden: 8, FFN: 16, Heads: 4, Keys: 2, Head: 4, Vocab: 8, Batch: 2, Seq: 4, Data: 2, Model: 2, DType: ir.F64})
	if rep, err := Check(device, ranks, o); err != nil || len(rep.Unknown) > 0 {
		t.Fatalf("%v %v", err, rep)
	}
	if !agrees(t, device, ranks, o, 1) {
		t.Fatal("what is proved gives other results")
	}
}

// llama405 is a step of 405 billion parameters on 512 ranks.
var llama405 = llama.Step{Layers: 126, Hidden: 16384, FFN: 53248, Heads: 128, Keys: 8, Head: 128, Vocab: 128256, Batch: 128, Seq: 8192, Data: 64, Model: 8, DType: ir.BF16}

// TestLlama405B proves the large step: an axis of 64 gathers and reduces, and nothing is looked
// at rank by rank.
func TestLlama405B(t *testing.T) {
	device, ranks, o := steps(t, llama405)
	if rep, err := Check(device, ranks, o); err != nil || len(rep.Unknown) > 0 {
		t.Fatalf("%v %v", err, rep)
	}
}

// TestBudget takes less work than a proof needs: what it says then is not what is wrong.
func TestBudget(t *testing.T) {
	device, ranks, o := steps(t, llama.Step{Layers: 2, Hidden: 8, FFN: 16, Heads: 4, Keys: 2, Head: 4, Vocab: 8, Batch: 2, Seq: 4, Data: 2, Model: 2, DType: ir.F64})
	for _, o.Budget = range []int{1, 100, 300} {
		_, err := Check(device, ranks, o)
		_, again := Check(device, ranks, o)
		if want := fmt.Sprintf("the proof has taken its budget of %d steps", o.Budget); err == nil || !strings.Contains(err.Error(), want) || again.Error() != err.Error() {
			t.Errorf("%v, and %v the second time: want %s", err, again, want)
		}
	}
}

func BenchmarkLlama405B(b *testing.B) {
	device, ranks, o := steps(b, llama405)
	for b.Loop() {
		if _, err := Check(device, ranks, o); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(len(device.Order())+len(ranks.Order())), "nodes")
}
