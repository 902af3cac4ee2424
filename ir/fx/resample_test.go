package fx_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"testing"
)

// mix is the factor of element i of in for element o of out along one dimension.
type mix func(o, i, in, out int64) float64

// mixed has, along its last dimensions, the sums that mixes say, and the gradient dx that
// comes back of dy.
func mixed(x, dy array, front int, mixes []mix) (y, dx array) {
	y, dx = zeros(dy.shape...), zeros(x.shape...)
	each(dy.shape, func(o []int64) {
		each(x.shape[front:], func(i []int64) {
			f := 1.0
			for d := range i {
				f *= mixes[d](o[front+d], i[d], x.shape[front+d], dy.shape[front+d])
			}
			at := append(append([]int64{}, o[:front]...), i...)
			*y.at(o...) += float32(f) * *x.at(at...)
			*dx.at(at...) += float32(f) * *dy.at(o...)
		})
	})
	return y, dx
}

// pick takes the element at a place.
func pick(at func(o, in, out int64) int64) mix {
	return func(o, i, in, out int64) float64 {
		if at(o, in, out) == i {
			return 1
		}
		return 0
	}
}

// tent mixes the two elements around a place.
func tent(at func(o, in, out int64) float64) mix {
	return func(o, i, in, out int64) float64 {
		p := math.Max(0, math.Min(at(o, in, out), float64(in-1)))
		return math.Max(0, 1-math.Abs(p-float64(i)))
	}
}

// mean takes a part of the elements, as even as may be.
func mean(o, i, in, out int64) float64 {
	begin, end := o*in/out, (o*in+in+out-1)/out
	if i < begin || i >= end {
		return 0
	}
	return 1 / float64(end-begin)
}

// TestResample holds paddings, upsampling and adaptive pools against their definitions.
func TestResample(t *testing.T) {
	rng := rand.New(rand.NewPCG(9, 10))
	for trial := range 18 {
		n := 1 + trial%3
		front := []int64{2, 3}[rng.IntN(2):]
		var in, out, padsOf, bigger []int64
		reflects, repeats := make([]mix, n), make([]mix, n)
		for d := range n {
			size := 2 + rng.Int64N(3)
			low, high := rng.Int64N(size+1)-1, rng.Int64N(size+1)-1
			if size+low+high < 1 {
				low, high = 0, 0
			}
			in, out = append(in, size), append(out, size+low+high)
			bigger = append(bigger, size*2-rng.Int64N(2)*rng.Int64N(size))
			padsOf = append([]int64{low, high}, padsOf...)
			reflects[d] = pick(func(o, in, _ int64) int64 {
				i := o - low
				return in - 1 - int64(math.Abs(float64(in-1)-math.Abs(float64(i))))
			})
			repeats[d] = pick(func(o, in, _ int64) int64 { return max(0, min(o-low, in-1)) })
		}
		shape := func(of []int64) []int64 { return append(append([]int64{}, front...), of...) }
		all := func(m mix) (out []mix) {
			for range n {
				out = append(out, m)
			}
			return out
		}
		align := rng.IntN(2) == 0
		between := tent(func(o, in, out int64) float64 { // in single precision, as PyTorch
			if align {
				return float64(float32(o) * (float32(in-1) / max(1, float32(out-1))))
			}
			scale := float32(in) / float32(out)
			return float64(float32(scale*(float32(o)+0.5)) - 0.5)
		})
		nones := map[int]string{1: "None", 2: "None, None", 3: "None, None, None"}[n]
		flag := map[bool]string{false: "False", true: "True"}[align]
		name := []string{"linear1d", "bilinear2d", "trilinear3d"}[n-1]
		adaptive := []string{"aten.adaptive_avg_pool1d", "aten._adaptive_avg_pool2d", "aten._adaptive_avg_pool3d"}[n-1]
		for _, k := range []struct {
			target, back, args, backArgs string
			mixes                        []mix
			out                          []int64
		}{
			{fmt.Sprintf("aten.reflection_pad%dd.default", n), fmt.Sprintf("aten.reflection_pad%dd_backward.default", n), "(x0, " + list(padsOf) + ")", "(x0, x1, " + list(padsOf) + ")", reflects, out},
			{fmt.Sprintf("aten.replication_pad%dd.default", n), fmt.Sprintf("aten.replication_pad%dd_backward.default", n), "(x0, " + list(padsOf) + ")", "(x0, x1, " + list(padsOf) + ")", repeats, out},
			{fmt.Sprintf("aten.upsample_nearest%dd.vec", n), fmt.Sprintf("aten.upsample_nearest%dd_backward.default", n), "(x0, " + list(bigger) + ", None)", fmt.Sprintf("(x0, %s, %s, %s)", list(bigger), list(shape(in)), nones),
				all(pick(func(o, in, out int64) int64 { return o * in / out })), bigger},
			{"aten.upsample_" + name + ".vec", "aten.upsample_" + name + "_backward.default", "(x0, " + list(bigger) + ", " + flag + ", None)", fmt.Sprintf("(x0, %s, %s, %s, %s)", list(bigger), list(shape(in)), flag, nones), all(between), bigger},
			{adaptive + ".default", adaptive + "_backward.default", "(x0, " + list(out) + ")", "(x0, x1)", all(mean), out},
			{adaptive + ".default", adaptive + "_backward.default", "(x0, " + list(in) + ")", "(x0, x1)", all(mean), in},
		} {
			x, dy := small(rng, shape(in)...), small(rng, shape(k.out)...)
			y, dx := mixed(x, dy, len(front), k.mixes)
			calls := []recorded{{Target: k.target, Args: k.args, In: []recordedTensor{x.recorded()}, Out: []recordedTensor{y.recorded()}}}
			back := recorded{Target: k.back, Args: k.backArgs, In: []recordedTensor{dy.recorded(), x.recorded()}, Out: []recordedTensor{dx.recorded()}}
			if k.backArgs[:7] != "(x0, x1" {
				back.In = back.In[:1]
			}
			if k.back != "aten.adaptive_avg_pool1d_backward.default" {
				calls = append(calls, back)
			}
			for _, r := range calls {
				if msg := r.differs(t); msg != "" {
					t.Fatalf("trial %d: %s%s of %v: %s", trial, r.Target, r.Args, r.types(), msg)
				}
			}
		}
	}
}

// Places between elements of double precision have it, too.
func TestLinearDouble(t *testing.T) {
	x := []float64{1, -2, 5}
	y := make([]float64, 7)
	for o := range y {
		at := max(0, (float64(o)+0.5)*3/7-0.5)
		i := int(at)
		y[o] = x[i]*(1-(at-float64(i))) + x[min(i+1, 2)]*(at-float64(i))
	}
	r := recorded{Target: "aten.upsample_linear1d.vec", Args: "(x0, [7], False, None)", In: []recordedTensor{double(x, 1, 1, 3)}, Out: []recordedTensor{double(y, 1, 1, 7)}}
	if msg := r.differs(t); msg != "" {
		t.Error(msg)
	}
}

// Sizes that no constant of positions has room for are refused before one is made; pools of
// one size need none.
func TestResampleHuge(t *testing.T) {
	line := func(n int64) recordedTensor {
		return recordedTensor{DType: "float32", Shape: []int64{1, 1, n}, Stride: []int64{n, n, 1}}
	}
	for _, r := range []recorded{
		{Target: "aten.upsample_nearest1d.vec", Args: "(x0, [1099511627776], None)", In: []recordedTensor{line(1)}, Out: []recordedTensor{line(1 << 40)}},
		{Target: "aten.replication_pad1d.default", Args: "(x0, [1, 1])", In: []recordedTensor{line(1 << 40)}, Out: []recordedTensor{line(1<<40 + 2)}},
		{Target: "aten.adaptive_avg_pool1d.default", Args: "(x0, [1099511627775])", In: []recordedTensor{line(1 << 40)}, Out: []recordedTensor{line(1<<40 - 1)}},
		{Target: "aten.adaptive_avg_pool1d.default", Args: "(x0, [3])", In: []recordedTensor{line(1 << 40)}, Out: []recordedTensor{line(3)}},
	} {
		if _, msg := r.run(t); !strings.Contains(msg, "arguments that concert does not know") {
			t.Errorf("%s%s: %q", r.Target, r.Args, msg)
		}
	}
	x, y := zeros(1, 1, 20000), zeros(1, 1, 2)
	for i := range int64(20000) {
		*x.at(0, 0, i) = float32(1 + i/10000)
	}
	*y.at(0, 0, 0), *y.at(0, 0, 1) = 1, 2
	r := recorded{Target: "aten.adaptive_avg_pool1d.default", Args: "(x0, [2])", In: []recordedTensor{x.recorded()}, Out: []recordedTensor{y.recorded()}}
	if msg := r.differs(t); msg != "" {
		t.Error(msg)
	}
}
