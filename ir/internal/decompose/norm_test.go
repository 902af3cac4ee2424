package decompose_test

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/seed-ee968945/concert/interp"
	"github.com/seed-ee968945/concert/ir"
	"github.com/seed-ee968945/concert/ir/internal/decompose"
)

// Training normalises to mean 0 and variance 1, and the gradients are quotients of
// differences of its output.
func TestBatchNorm(t *testing.T) {
	r := rand.New(rand.NewPCG(21, 22))
	shape, feature := []int64{3, 2, 4}, int64(1)
	n := decompose.BatchNorm{Epsilon: 1e-3, Feature: feature}
	draw := func(count int64) []float64 {
		v := make([]float64, count)
		for i := range v {
			v[i] = r.Float64()*2 - 0.7
		}
		return v
	}
	x, scale, offset, grad := draw(24), draw(2), draw(2), draw(24)
	train := func(x, scale, offset []float64) [][]float64 {
		out := run(t, []interp.Tensor{floats(t, ir.F64, x, shape...), of(t, scale...), of(t, offset...)}, func(f *ir.FuncBuilder, in []*ir.Value) ([]*ir.Value, error) {
			return n.Training(f, in[0], in[1], in[2])
		})
		return [][]float64{out[0].Float64s(), out[1].Float64s(), out[2].Float64s()}
	}
	out := train(x, scale, offset)
	for c := range shape[feature] {
		var mean, variance float64
		each(shape, func(at []int64) {
			if at[feature] == c {
				mean += x[flat(at, shape)] / 12
			}
		})
		each(shape, func(at []int64) {
			if at[feature] == c {
				variance += (x[flat(at, shape)] - mean) * (x[flat(at, shape)] - mean) / 12
			}
		})
		if !near(out[1][c], mean, 1e-12) || !near(out[2][c], variance, 1e-12) {
			t.Errorf("feature %d: mean %v and variance %v, want %v and %v", c, out[1][c], out[2][c], mean, variance)
		}
		each(shape, func(at []int64) {
			want := (x[flat(at, shape)]-mean)/math.Sqrt(variance+n.Epsilon)*scale[c] + offset[c]
			if at[feature] == c && math.Abs(out[0][flat(at, shape)]-want) > 1e-12 {
				t.Errorf("%v is %v, want %v", at, out[0][flat(at, shape)], want)
			}
		})
	}
	in := []interp.Tensor{floats(t, ir.F64, x, shape...), of(t, scale...), of(t, out[1]...), of(t, out[2]...), floats(t, ir.F64, grad, shape...), of(t, offset...)}
	got := run(t, in, func(f *ir.FuncBuilder, in []*ir.Value) ([]*ir.Value, error) {
		gs, err := n.Gradients(f, in[0], in[1], in[2], in[3], in[4])
		if err != nil {
			return nil, err
		}
		y, err := n.Inference(f, in[0], in[1], in[5], in[2], in[3])
		return append(gs, y), err
	})
	for i, v := range got[3].Float64s() {
		if !near(v, out[0][i], 1e-12) {
			t.Errorf("inference by the same numbers: element %d is %v, in training %v", i, v, out[0][i])
		}
	}
	const step = 1e-5
	for k, p := range [][]float64{x, scale, offset} {
		for i := range p {
			was := p[i]
			loss := func(v float64) float64 {
				p[i] = v
				sum := 0.0
				for j, y := range train(x, scale, offset)[0] {
					sum += y * grad[j]
				}
				return sum
			}
			want := (loss(was+step) - loss(was-step)) / (2 * step)
			p[i] = was
			if g := got[k].Float64s()[i]; math.Abs(g-want) > 1e-6 {
				t.Errorf("gradient %d of operand %d is %v, want %v", i, k, g, want)
			}
		}
	}
}

// Of many numbers the mean, the variance and the bounds are known.
func TestRng(t *testing.T) {
	got := run(t, nil, func(f *ir.FuncBuilder, _ []*ir.Value) ([]*ir.Value, error) {
		u, err := decompose.Uniform(f, f.Full(ir.Tensor(ir.F32), 2), f.Full(ir.Tensor(ir.F32), 5), []int64{4000})
		if err != nil {
			return nil, err
		}
		i, err := decompose.Uniform(f, f.Full(ir.Tensor(ir.I32), -1), f.Full(ir.Tensor(ir.I32), 3), []int64{4000})
		if err != nil {
			return nil, err
		}
		n, err := decompose.Normal(f, f.Full(ir.Tensor(ir.F32), 1), f.Full(ir.Tensor(ir.F32), 2), []int64{4000})
		if err != nil {
			return nil, err
		}
		wide, err := decompose.Uniform(f, f.Full(ir.Tensor(ir.I64), 0), f.Full(ir.Tensor(ir.I64), 1<<40), []int64{4000})
		return []*ir.Value{u, i, n, wide}, err
	})
	odd := 0
	for _, v := range got[3].Float64s() {
		odd += int(int64(v) & 1)
	}
	if odd < 1600 || odd > 2400 { // 12 standard deviations around half of them
		t.Errorf("%d of 4000 numbers below 2^40 are odd", odd)
	}
	for k, want := range []struct{ low, high, mean, variance float64 }{{2, 5, 3.5, 0.75}, {-1, 2, 0.5, 1.25}, {-20, 20, 1, 4}} {
		var sum, squares float64
		vals := got[k].Float64s()
		for _, v := range vals {
			if v < want.low || v > want.high {
				t.Errorf("%d: %v is outside %v..%v", k, v, want.low, want.high)
			}
			sum += v
			squares += v * v
		}
		n := float64(len(vals))
		mean := sum / n
		variance := squares/n - mean*mean
		if math.Abs(mean-want.mean) > 0.2 || math.Abs(variance-want.variance) > 0.4 {
			t.Errorf("%d: mean %v and variance %v, want about %v and %v", k, mean, variance, want.mean, want.variance)
		}
	}
}
