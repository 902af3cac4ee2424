package fx_test

import (
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
)

// as is a record of whole numbers in another type.
func (a array) as(dtype string) recordedTensor {
	r := a.recorded()
	r.DType, r.Data = dtype, nil
	for _, v := range a.v {
		r.Data = append(r.Data, json.RawMessage(fmt.Sprint(int64(v))))
	}
	return r
}

// TestPools holds pools and their gradients against PyTorch's definitions, window by window.
func TestPools(t *testing.T) {
	rng := rand.New(rand.NewPCG(7, 8))
	for trial := range 80 {
		rank := 1 + trial%3
		front := []int64{1 + rng.Int64N(3), 1 + rng.Int64N(2)}[rng.IntN(2):]
		ceil, include := rng.IntN(2) == 0, rng.IntN(2) == 0
		var kernel, stride, pad, dil, in, out []int64
		for range rank {
			k, d := 1+rng.Int64N(3), 1+rng.Int64N(2)
			s, p := 1+rng.Int64N(3), rng.Int64N(k/2+1)
			n := (k-1)*d + 1 + rng.Int64N(5)
			o := (n+2*p-(k-1)*d-1)/s + 1
			if ceil {
				if o = (n+2*p-(k-1)*d-1+s-1)/s + 1; (o-1)*s >= n+p {
					o--
				}
			}
			kernel, stride, pad, dil, in, out = append(kernel, k), append(stride, s), append(pad, p), append(dil, d), append(in, n), append(out, o)
		}
		shape := func(of []int64) []int64 { return append(append([]int64{}, front...), of...) }
		x, dy := small(rng, shape(in)...), small(rng, shape(out)...)
		largest, place, index, dmax := zeros(shape(out)...), zeros(shape(out)...), zeros(shape(out)...), zeros(shape(in)...)
		each(shape(out), func(at []int64) {
			best := float32(math.Inf(-1))
			var where []int64
			number := float32(0)
			each(kernel, func(tap []int64) {
				from := append([]int64{}, at[:len(front)]...)
				for d := range rank {
					i := at[len(front)+d]*stride[d] + tap[d]*dil[d] - pad[d]
					if i < 0 || i >= in[d] {
						from = nil
						break
					}
					from = append(from, i)
				}
				if from != nil && *x.at(from...) > best {
					best, where = *x.at(from...), from
					*place.at(at...) = number
				}
				number++
			})
			i := int64(0)
			for d := range rank {
				i = i*in[d] + where[len(front)+d]
			}
			*largest.at(at...), *index.at(at...) = best, float32(i)
			*dmax.at(where...) += *dy.at(at...)
		})
		flag := map[bool]string{false: "False", true: "True"}
		how := fmt.Sprintf("%s, %s, %s, %s", list(kernel), list(stride), list(pad), list(dil))
		name := fmt.Sprintf("%dd", rank)
		calls := []recorded{
			{Target: "aten.max_pool" + name + "_with_indices.default", Args: "(x0, " + how + ", " + flag[ceil] + ")", In: []recordedTensor{x.recorded()}, Out: []recordedTensor{largest.recorded(), index.as("int64")}},
			{Target: "prims._low_memory_max_pool_with_offsets.default", Args: "(x0, " + how + ", " + flag[ceil] + ")", In: []recordedTensor{x.recorded()}, Out: []recordedTensor{largest.recorded(), place.as("int8")}},
			{Target: "prims._low_memory_max_pool_offsets_to_indices.default", Args: fmt.Sprintf("(x0, %s, %s, %s, %s, %s)", list(kernel), list(in), list(stride), list(pad), list(dil)), In: []recordedTensor{place.as("int8")}, Out: []recordedTensor{index.as("int64")}},
			{Target: "aten.max_pool" + name + "_with_indices_backward.default", Args: "(x0, x1, " + how + ", " + flag[ceil] + ", x2)", In: []recordedTensor{dy.recorded(), x.recorded(), index.as("int64")}, Out: []recordedTensor{dmax.recorded()}},
		}
		if rank == 1 {
			calls = nil // of averages only
		}
		calls = append(calls, averages(x, dy, len(front), kernel, stride, pad, ceil, include)...)
		for _, r := range calls {
			if msg := r.differs(t); msg != "" {
				t.Fatalf("trial %d: %s%s of %v: %s", trial, r.Target, r.Args, r.types(), msg)
			}
		}
	}
}

// averages are calls of avg_pool on x and, with the gradient dy, of its backward; nil where
// dy is not of the windows without dilation.
func averages(x, dy array, front int, kernel, stride, pad []int64, ceil, include bool) []recorded {
	in, out := x.shape[front:], dy.shape[front:]
	y, dx := zeros(dy.shape...), zeros(x.shape...)
	override := int64(0)
	if ceil && include {
		override = 7
	}
	for d, n := range in {
		if (out[d]-1)*stride[d] >= n+pad[d] {
			return nil
		}
	}
	each(dy.shape, func(at []int64) {
		count, begins, ends := int64(1), []int64{}, []int64{}
		for d, n := range in {
			begin := at[front+d]*stride[d] - pad[d]
			end := min(begin+kernel[d], n+pad[d])
			size := end - begin
			begin, end = max(begin, 0), min(end, n)
			if !include {
				size = end - begin
			}
			count *= size
			begins, ends = append(begins, begin), append(ends, end)
		}
		if override > 0 {
			count = override
		}
		each(kernel, func(tap []int64) {
			from := append([]int64{}, at[:front]...)
			for d := range in {
				if begins[d]+tap[d] >= ends[d] {
					return
				}
				from = append(from, begins[d]+tap[d])
			}
			*y.at(at...) += *x.at(from...)
			*dx.at(from...) += *dy.at(at...) / float32(count)
		})
		*y.at(at...) /= float32(count)
	})
	flag := map[bool]string{false: "False", true: "True"}
	how := fmt.Sprintf("%s, %s, %s, %s, %s", list(kernel), list(stride), list(pad), flag[ceil], flag[include])
	if override > 0 {
		how += ", 7"
	} else {
		how += ", None"
	}
	name := fmt.Sprintf("aten.avg_pool%dd", len(in))
	if len(in) == 1 {
		return []recorded{{Target: name + ".default", Args: "(x0, " + how + ")", In: []recordedTensor{x.recorded()}, Out: []recordedTensor{y.recorded()}}}
	}
	return []recorded{
		{Target: name + ".default", Args: "(x0, " + how + ")", In: []recordedTensor{x.recorded()}, Out: []recordedTensor{y.recorded()}},
		{Target: name + "_backward.default", Args: "(x0, x1, " + how + ")", In: []recordedTensor{dy.recorded(), x.recorded()}, Out: []recordedTensor{dx.recorded()}},
	}
}
