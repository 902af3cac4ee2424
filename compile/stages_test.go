package compile_test

import (
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/seed-ee968945/concert/compile"
	"github.com/seed-ee968945/concert/cost"
	"github.com/seed-ee968945/concert/internal/hostrun"
	"github.com/seed-ee968945/concert/internal/llama"
	"github.com/seed-ee968945/concert/interp"
	"github.com/seed-ee968945/concert/ir"
	"github.com/seed-ee968945/concert/lower"
	"github.com/seed-ee968945/concert/passes/pipeline"
	"github.com/seed-ee968945/concert/passes/standard"
	"github.com/seed-ee968945/concert/program"
	"github.com/seed-ee968945/concert/runtime/host"
	"github.com/seed-ee968945/concert/sim"
)

// TestStages compiles a decoder cut into four stages and runs it on four ranks of the host, on one
// host and on two: each rank gives what the interpreter gives, to the bit, and all together loss
// and gradients of one device and the whole batch.
func TestStages(t *testing.T) {
	for _, c := range []struct {
		micro  int64
		passes string
	}{{8, "pipeline{stages=4,micro-batches=8},default"}, {4, "pipeline{stages=4,micro-batches=4,schedule=interleaved}"}, {4, "pipeline{stages=4,micro-batches=4,schedule=zero-bubble}"}} {
		l := llama.Step{Layers: 4, Hidden: 8, FFN: 16, Heads: 4, Keys: 2, Head: 4, Vocab: 8, Batch: c.micro, Seq: 4, Data: 1, Model: 1, DType: ir.F64}
		one := l
		whole, err := l.Device(nil)
		if err != nil {
			t.Fatal(err)
		}
		inputs, err := interp.RandomInputs(whole, 1, interp.RandomOptions{})
		if err != nil {
			t.Fatal(err)
		}
		device, err := interp.Run(t.Context(), whole, inputs, interp.Options{})
		if err != nil {
			t.Fatal(err)
		}
		one.Batch = 1
		step, err := one.Device(nil)
		if err != nil {
			t.Fatal(err)
		}
		m, progs := stages(t, step, c.passes)
		s := m.Stages()[0]
		in := make([][]interp.Tensor, m.World)
		for rank := range in {
			for _, slot := range interp.InputSlots(m.Func(s.Funcs[s.Index(rank)])) {
				i := slices.IndexFunc(interp.InputSlots(whole), func(o interp.Slot) bool { return o.Name == slot.Name })
				in[rank] = append(in[rank], inputs[0][i])
			}
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
				places := m.Func(s.Funcs[rank]).Return().Meta().Ints(pipeline.MetaPlaces)
				for i := range want[rank] {
					if !interp.Equal(got[rank][i], want[rank][i]) {
						t.Errorf("%s, %d hosts: rank %d, result %d differs", c.passes, hosts, rank, i)
					}
					for j, v := range got[rank][i].Float64s() {
						if w := device[0][places[i]].Float64s()[j]; !(math.Abs(v-w) <= 1e-12) {
							t.Fatalf("%s, %d hosts: rank %d, result %d, element %d is %v, on one device %v", c.passes, hosts, rank, i, j, v, w)
						}
					}
				}
			}
		}
	}
}

// stages compiles a step with passes that cut it, and checks its programs.
func stages(t *testing.T, f *ir.Func, text string) (*ir.Module, program.Stages) {
	t.Helper()
	p, err := standard.Table().Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	r, err := compile.Compile(t.Context(), f.Module(), compile.Target{}, compile.Options{Pipeline: p})
	if err != nil {
		t.Fatal(err)
	}
	progs, err := lower.Stages(r.Module, r.Module.Stages()[0], lower.Options{})
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
	return r.Module, progs
}

// TestMeasureStages plays two micro-batches by hand: @a computes 2 ms and sends for 1, twice, and
// @b computes 5 ms of each. The second transfer waits for the first to be taken, at 7.
func TestMeasureStages(t *testing.T) {
	m, err := ir.Parse("t.ir", `world 2
group @pp = [[0, 1]]
group @up = [[0, 1]]
stages @step on @pp = @a, @b

func @a(%x: f32[4]) -> () {
  %h0 = neg %x : f32[4] ms 2
  %s0 = collective_permute %h0 on @up {pairs=[0, 1]} : async f32[4] ms 1
  %h1 = neg %x : f32[4] ms 2
  %s1 = collective_permute %h1 on @up {pairs=[0, 1]} : async f32[4] ms 1
  %w0 = wait_tensor %s0 : f32[4]
  %w1 = wait_tensor %s1 : f32[4]
  return
}

func @b(%x: f32[4]) -> (f32[4], f32[4]) {
  %r0 = collective_permute %x on @up {pairs=[0, 1]} : async f32[4] ms 1
  %g0 = wait_tensor %r0 : f32[4]
  %y0 = neg %g0 : f32[4] ms 5
  %r1 = collective_permute %x on @up {pairs=[0, 1]} : async f32[4] ms 1
  %g1 = wait_tensor %r1 : f32[4]
  %y1 = neg %g1 : f32[4] ms 5
  return %y0, %y1
}
`)
	if err != nil {
		t.Fatal(err)
	}
	got, err := compile.MeasureStages(m, m.Stages()[0], cost.Default())
	if err != nil {
		t.Fatal(err)
	}
	a, b := got.Stages[0], got.Stages[1]
	if got.Step != 14 || a.Makespan != 9 || a.Compute != 4 || a.Exposed != 5 || b.Makespan != 14 || b.Exposed != 4 || got.Bubble != 0.5 {
		t.Errorf("got %+v", got)
	}
	f, err := sim.FromFunc(m.Func("b"), sim.FuncOptions{})
	if err != nil {
		t.Fatal(err)
	}
	order := f.InputOrder()
	joint := []sim.StageCollective{{{Stage: 0, Node: 1}, {Stage: 1, Node: 4}}, {{Stage: 0, Node: 4}, {Stage: 1, Node: 1}}}
	if _, err := sim.EvaluateStages([]*sim.Model{f, f}, [][]int32{order, order}, joint); err == nil || !strings.Contains(err.Error(), "stages 0, 1 wait for each other") {
		t.Errorf("crossed collectives: %v", err)
	}
	slices.Reverse(order)
	if _, err := sim.EvaluateStages([]*sim.Model{f}, [][]int32{order}, nil); err == nil {
		t.Error("an order without rhyme is legal")
	}
}

// TestBubble holds the simulated stages of a step of equal layers against the formulas: with F
// of 1 and B and W of 1 each, 1F1B waits (p-1)(F+B), of v chunks each interleaved (p-1)(F+B)/v, and
// zero-bubble (p-1)(F+B-W).
func TestBubble(t *testing.T) {
	const layers, stages, micro = 8, 4, 8
	b := ir.NewBuilder(1)
	f := b.Func("step")
	x := f.Input("x", ir.Tensor(ir.F64, 4, 4))
	var ws []*ir.Value
	for range layers {
		ws = append(ws, f.Parameter("w", ir.Tensor(ir.F64, 4, 4)))
	}
	free, one := f.Cost(0), f.Cost(1)
	in := []*ir.Value{x}
	for _, w := range ws {
		in = append(in, one.MatMul(in[len(in)-1], w))
	}
	outs := []*ir.Value{free.Reduce(ir.OpSum, in[layers], false, 0, 1)}
	d := in[layers]
	for i, w := range slices.Backward(ws) {
		outs = append(outs, one.MatMul(f.Permute(in[i], 1, 0), d))
		if i > 0 {
			d = one.MatMul(d, f.Permute(w, 1, 0))
		}
	}
	f.Return(outs...)
	m, err := b.Finish()
	if err != nil {
		t.Fatal(err)
	}
	for schedule, wait := range map[string]float64{"1f1b": (stages - 1) * 4, "interleaved": (stages - 1) * 4 / 2, "zero-bubble": (stages - 1) * 2} {
		p, err := standard.Table().Parse("pipeline{stages=4,micro-batches=8,schedule=" + schedule + "}")
		if err != nil {
			t.Fatal(err)
		}
		r, err := compile.Compile(t.Context(), m, compile.Target{}, compile.Options{Pipeline: p})
		if err != nil {
			t.Fatal(err)
		}
		got, err := compile.MeasureStages(r.Module, r.Module.Stages()[0], r.Costs())
		if err != nil {
			t.Fatal(err)
		}
		want := 3.0*layers/stages*micro + wait
		if math.Abs(got.Step-want) > 0.03*want {
			t.Errorf("%s: the step takes %v, want %v", schedule, got.Step, want)
		}
	}
}
