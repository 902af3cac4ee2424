package pipeline_test

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/seed-ee968945/concert/interp"
	"github.com/seed-ee968945/concert/ir"
)

// randomStep is a step of some layers: products, skips that reach over several, a scale and a
// mask that all read, weights that two layers share, gathers of weights and sums of gradients
// over the ranks, and for a backward something of the shape of one.
func randomStep(r *rand.Rand) (*ir.Func, error) {
	world := 1 + r.IntN(2)
	b := ir.NewBuilder(world)
	all := make([]int, world)
	for i := range all {
		all[i] = i
	}
	dp := b.Group("dp", [][]int{all})
	f := b.Func("step")
	const rows, width = 2, 4
	x := f.Input("x", ir.Tensor(ir.F64, rows, width))
	mask := f.Input("mask", ir.Tensor(ir.F64, rows, 1))
	scale := f.Parameter("scale", ir.Tensor(ir.F64, width))
	n := 3 + r.IntN(6)
	var ws []*ir.Value
	for i := range n {
		if i > 0 && r.IntN(4) == 0 {
			ws = append(ws, ws[r.IntN(i)])
			continue
		}
		w := f.Parameter("w", ir.Tensor(ir.F64, width/int64(world), width))
		ws = append(ws, f.Wait1(f.AllGather(dp, 0, w)))
	}
	twice := f.Unary(ir.OpTanh, scale) // of no data
	hs := []*ir.Value{x}
	for _, w := range ws {
		h := f.MatMul(hs[len(hs)-1], w)
		switch r.IntN(4) {
		case 0:
			h = f.Add(h, hs[r.IntN(len(hs))])
		case 1:
			h = f.Mul(h, twice)
		case 2:
			h = f.Mul(f.Unary(ir.OpTanh, h), mask)
		}
		hs = append(hs, h)
	}
	last := hs[n]
	loss := f.Reduce(ir.OpMean, f.Mul(last, last), false, 0, 1)
	outs := []*ir.Value{loss}
	d := f.Scalar(ir.OpMul, last, 0.25)
	for i := n - 1; i >= 0; i-- {
		dw := f.MatMul(f.Permute(hs[i], 1, 0), f.Mul(d, mask))
		switch r.IntN(4) {
		case 0:
			dw = f.Wait1(f.ReduceScatter(ir.Sum, dp, 0, dw))
		case 1:
			dw = f.View(f.Wait1(f.AllReduce(ir.Avg, dp, dw)), ir.Dims(width*width))
		case 2:
			dw = f.Wait1(f.AllReduce(ir.Sum, dp, dw))
			outs = append(outs, f.Permute(dw, 1, 0)) // twice: not once
		}
		outs = append(outs, dw)
		d = f.MatMul(d, f.Permute(ws[i], 1, 0))
		if r.IntN(3) == 0 {
			d = f.Add(d, hs[r.IntN(i+1)])
		}
	}
	if r.IntN(2) == 0 {
		both := f.Wait(f.AllReduce(ir.Avg, dp, outs[0], outs[1]))
		outs[0], outs[1] = both[0], both[1]
	}
	outs = append(outs, f.Reduce(ir.OpSum, f.Mul(d, twice), false, 0), twice)
	f.Return(outs...)
	m, err := b.Finish()
	if err != nil {
		return nil, err
	}
	return m.Funcs()[0], nil
}

// microBatches are inputs of a step, and the average of what it gives of each.
type microBatches struct {
	parts   [][][]interp.Tensor // by micro-batch, rank and input; only data differ
	average [][][]float64       // by rank, result and element
}

func runMicroBatches(t *testing.T, step *ir.Func, seed uint64, micro int) *microBatches {
	t.Helper()
	b := &microBatches{}
	for k := range micro {
		in, err := interp.RandomInputs(step, seed*10+uint64(k), interp.RandomOptions{})
		if err != nil {
			t.Fatal(err)
		}
		b.parts = append(b.parts, in)
		for rank := range in {
			for i, n := range step.Inputs() {
				if n.Role() != ir.RoleData {
					in[rank][i] = b.parts[0][rank][i]
				}
			}
		}
		out, err := interp.Run(t.Context(), step, in, interp.Options{})
		if err != nil {
			t.Fatal(err)
		}
		for rank := range out {
			if k == 0 {
				b.average = append(b.average, make([][]float64, len(out[rank])))
			}
			for i := range out[rank] {
				for j, v := range out[rank][i].Float64s() {
					if k == 0 {
						b.average[rank][i] = append(b.average[rank][i], 0)
					}
					b.average[rank][i][j] += v / float64(micro)
				}
			}
		}
	}
	return b
}

// whole is the inputs of all micro-batches in one, by rank.
func (b *microBatches) whole(t *testing.T, step *ir.Func) [][]interp.Tensor {
	t.Helper()
	out := make([][]interp.Tensor, len(b.parts[0]))
	for rank := range out {
		for i, n := range step.Inputs() {
			x := b.parts[0][rank][i]
			if n.Role() == ir.RoleData {
				var all []float64
				for k := range b.parts {
					all = append(all, b.parts[k][rank][i].Float64s()...)
				}
				var err error
				if x, err = interp.FromFloats(ir.F64, all, x.Shape[0]*int64(len(b.parts)), x.Shape[1]); err != nil {
					t.Fatal(err)
				}
			}
			out[rank] = append(out[rank], x)
		}
	}
	return out
}

// randomCut draws options of the pass, and how many micro-batches they ask for.
func randomCut(r *rand.Rand) (options string, micro int) {
	micro, stages := 1+r.IntN(4), 2+r.IntN(2)
	options = fmt.Sprintf("stages=%d,micro-batches=%d,schedule=%s", stages, micro, []string{"gpipe", "1f1b", "1f1b,most=1", "zero-bubble", "zero-bubble,most=2"}[r.IntN(5)])
	if r.IntN(2) == 0 {
		options += ",scatter-once=true"
	}
	if r.IntN(5) == 0 {
		micro = 2 * (1 + r.IntN(2))
		options = fmt.Sprintf("stages=2,micro-batches=%d,schedule=interleaved", micro)
	}
	return options, micro
}

// TestRandomSteps cuts random steps in random ways: what the stages give is the average of what
// the step gives of each micro-batch.
func TestRandomSteps(t *testing.T) {
	once := 0.0
	for seed := range uint64(40) {
		r := rand.New(rand.NewPCG(seed, 1))
		step, err := randomStep(r)
		if err != nil {
			t.Fatal(err)
		}
		options, micro := randomCut(r)
		m, rep := cut(t, step, options)
		once += rep.Steps[0].Stat("reduced-once")
		b := runMicroBatches(t, step, seed, micro)
		got, err := interp.RunStages(t.Context(), m, m.Stages()[0], spread(t, m, step, b.whole(t, step)), interp.Options{Poison: true})
		if err != nil {
			t.Fatalf("seed %d, %s: %v\n%s\n%s", seed, options, err, step.Module(), m)
		}
		out := collect(m, step.Module().World, got)
		for rank := range b.average {
			for i := range b.average[rank] {
				for j, v := range out[rank][i].Float64s() {
					if want := b.average[rank][i][j]; !(max(v-want, want-v) <= 1e-12*max(1, want, -want)) {
						t.Fatalf("seed %d, %s: rank %d, result %d, element %d: %v, want %v\n%s\n%s", seed, options, rank, i, j, v, want, step.Module(), m)
					}
				}
			}
		}
	}
	if once == 0 {
		t.Error("no step reduced a result once")
	}
}
