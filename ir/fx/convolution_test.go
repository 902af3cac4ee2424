package fx_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/seed-ee968945/concert/ir"
	"github.com/seed-ee968945/concert/ir/fx"
)

// array is a float32 tensor in row-major order.
type array struct {
	shape []int64
	v     []float32
}

func zeros(shape ...int64) array {
	n := int64(1)
	for _, d := range shape {
		n *= d
	}
	return array{shape, make([]float32, n)}
}

// small has integers, so that sums are exact in any order.
func small(rng *rand.Rand, shape ...int64) array {
	a := zeros(shape...)
	for i := range a.v {
		a.v[i] = float32(rng.IntN(9) - 4)
	}
	return a
}

func (a array) at(index ...int64) *float32 {
	i := int64(0)
	for d, n := range a.shape {
		i = i*n + index[d]
	}
	return &a.v[i]
}

func (a array) recorded() recordedTensor {
	r := recordedTensor{DType: "float32", Shape: a.shape, Stride: make([]int64, len(a.shape))}
	n := int64(1)
	for d := len(a.shape) - 1; d >= 0; d-- {
		r.Stride[d], n = n, n*max(a.shape[d], 1)
	}
	for _, v := range a.v {
		r.Data = append(r.Data, json.RawMessage(fmt.Sprintf("%q", fmt.Sprintf("%08x", math.Float32bits(v)))))
	}
	return r
}

// each calls fn for all indices of a shape.
func each(shape []int64, fn func(at []int64)) {
	at := make([]int64, len(shape))
	var walk func(d int)
	walk = func(d int) {
		if d == len(shape) {
			fn(at)
			return
		}
		for at[d] = 0; at[d] < shape[d]; at[d]++ {
			walk(d + 1)
		}
	}
	walk(0)
}

// list is the text of numbers in Python.
func list(n []int64) string {
	return strings.ReplaceAll(fmt.Sprint(n), " ", ", ")
}

// TestConvolutions holds convolutions and their gradients against their definition: every
// product of an element, a weight and an element of the result's gradient, one by one.
func TestConvolutions(t *testing.T) {
	rng := rand.New(rand.NewPCG(5, 6))
	for trial := range 120 {
		rank := 1 + rng.IntN(3)
		groups := 1 + rng.Int64N(3)
		n, c, o := 1+rng.Int64N(2), 1+rng.Int64N(2), 1+rng.Int64N(2)
		var stride, pad, dil, outPad []int64
		// a is the tensor that the window slides over, b what it gives.
		as, bs, ws := []int64{n, c * groups}, []int64{n, o * groups}, []int64{o * groups, c}
		transposed := rng.IntN(3) == 0
		beside := trial%6 == 0 // windows lie side by side
		if beside {
			transposed, groups, as[1], bs[1], ws[0] = false, 1, c, o, o
		}
		for range rank {
			s, p, d, k := 1+rng.Int64N(3), rng.Int64N(3), 1+rng.Int64N(2), 1+rng.Int64N(3)
			in := max(1, (k-1)*d+1-2*p) + rng.Int64N(4)
			if beside {
				s, p, d, in = k, 0, 1, k*(1+rng.Int64N(3))
			}
			out := (in+2*p-(k-1)*d-1)/s + 1
			stride, pad, dil = append(stride, s), append(pad, p), append(dil, d)
			as, bs, ws = append(as, in), append(bs, out), append(ws, k)
			outPad = append(outPad, in-((out-1)*s-2*p+(k-1)*d+1))
		}
		a, b, w := small(rng, as...), small(rng, bs...), small(rng, ws...)
		da, db, dw := zeros(as...), zeros(bs...), zeros(ws...)
		each(bs, func(at []int64) {
			each(ws[1:], func(tap []int64) {
				from, weight := []int64{at[0], at[1]/o*c + tap[0]}, []int64{at[1], tap[0]}
				for d := range rank {
					i := at[2+d]*stride[d] + tap[1+d]*dil[d] - pad[d]
					if i < 0 || i >= as[2+d] {
						return
					}
					from, weight = append(from, i), append(weight, tap[1+d])
				}
				*db.at(at...) += *a.at(from...) * *w.at(weight...)
				*da.at(from...) += *b.at(at...) * *w.at(weight...)
				*dw.at(weight...) += *b.at(at...) * *a.at(from...)
			})
		})
		// Transposed, b is the input and a the result.
		x, y, gx, result := a, b, da, db
		if transposed {
			x, y, gx, result = b, a, db, da
		}
		flag := map[bool]string{false: "False", true: "True"}
		if !transposed {
			outPad = make([]int64, rank)
		}
		how := fmt.Sprintf("%s, %s, %s, %s, %s, %d", list(stride), list(pad), list(dil), flag[transposed], list(outPad), groups)
		if !transposed && !beside {
			again(t, recorded{Target: "aten.convolution.default", Args: "(x0, x1, None, " + how + ")", In: []recordedTensor{x.recorded(), w.recorded()}, Out: []recordedTensor{result.recorded()}})
		}
		bias, sums := small(rng, result.shape[1]), zeros(result.shape[1])
		biased := zeros(result.shape...)
		each(result.shape, func(at []int64) {
			*biased.at(at...) = *result.at(at...) + bias.v[at[1]]
			sums.v[at[1]] += *y.at(at...)
		})
		mask := [3]bool{rng.IntN(2) == 0, rng.IntN(2) == 0, rng.IntN(2) == 0}
		calls := []recorded{
			{Target: "aten.convolution.default", Args: "(x0, x1, None, " + how + ")", In: []recordedTensor{x.recorded(), w.recorded()}, Out: []recordedTensor{result.recorded()}},
			{Target: "aten.convolution.default", Args: "(x0, x1, x2, " + how + ")", In: []recordedTensor{x.recorded(), w.recorded(), bias.recorded()}, Out: []recordedTensor{biased.recorded()}},
		}
		back := recorded{Target: "aten.convolution_backward.default", In: []recordedTensor{y.recorded(), x.recorded(), w.recorded()},
			Args: fmt.Sprintf("(x0, x1, x2, [%d], %s, [%s, %s, %s])", result.shape[1], how, flag[mask[0]], flag[mask[1]], flag[mask[2]])}
		for k, g := range []array{gx, dw, sums} {
			if mask[k] {
				back.Items, back.Out = append(back.Items, k), append(back.Out, g.recorded())
			}
		}
		if back.Items != nil {
			calls = append(calls, back)
		}
		for _, r := range calls {
			if msg := r.differs(t); msg != "" {
				t.Fatalf("trial %d: %s%s of %v: %s", trial, r.Target, r.Args, r.types(), msg)
			}
		}
	}
}

// again imports a call, writes what was imported without its source, and imports that.
func again(t *testing.T, r recorded) {
	t.Helper()
	read := func(doc string) *fx.Result {
		f, err := fx.Read("call.json", strings.NewReader(doc))
		if err != nil {
			t.Fatal(err)
		}
		res, err := f.Import()
		if err != nil || len(res.Warnings) > 0 {
			t.Fatal(err, res)
		}
		return res
	}
	first := read(r.document())
	var out strings.Builder
	if err := fx.Export(&out, nil, first.Func); err != nil {
		t.Fatal(err)
	}
	if second := read(out.String()); second.Module.String() != first.Module.String() {
		t.Fatalf("%s%s: written again it is\n%s\nnot\n%s", r.Target, r.Args, second.Module, first.Module)
	}
}

// Patches of an image of few channels are multiplied, in either direction; matrix units take
// many channels as they are.
func TestPatches(t *testing.T) {
	for channels, want := range map[int]map[ir.Op]int{3: {ir.OpMatmul: 2}, 8: {ir.OpConvolution: 2}} {
		x := fmt.Sprintf(`{"shape": [2, %d, 8, 4], "stride": [%d, 32, 4, 1], "dtype": "bfloat16"}`, channels, 32*channels)
		w := fmt.Sprintf(`{"shape": [5, %d, 4, 2], "stride": [%d, 8, 2, 1], "dtype": "bfloat16"}`, channels, 8*channels)
		const y = `{"shape": [2, 5, 2, 2], "stride": [20, 4, 2, 1], "dtype": "bfloat16"}`
		const how = "[4, 2], [0, 0], [1, 1], False, [0, 0], 1"
		node := func(name, kind, target, inputs, args, out string) string {
			return fmt.Sprintf(`{"name": %q, "kind": %q, "target": %q, "inputs": [%s], "args": %q, "kwargs": "", "out": [%s], "ms": %d}`, name, kind, target, inputs, args, out, strings.Count(kind, "compute"))
		}
		f, err := fx.Read("patches.json", strings.NewReader(`{"name": "f", "world": 1, "groups": {}, "nodes": [`+strings.Join([]string{
			node("x", "input", "x", "", "()", x), node("w", "input", "w", "", "()", w), node("dy", "input", "dy", "", "()", y),
			node("y", "compute", "aten.convolution.default", `"x", "w"`, "(x, w, None, "+how+")", y),
			node("g", "compute", "aten.convolution_backward.default", `"dy", "x", "w"`, "(dy, x, w, [0], "+how+", [False, True, False])", w),
			node("dw", "view", "<built-in function getitem>", `"g"`, "(g, 1)", w),
			node("output", "output", "output", `"y", "dw"`, "((y, dw),)", ""),
		}, ",")+"]}"))
		if err != nil {
			t.Fatal(err)
		}
		res, err := f.Import()
		if err != nil {
			t.Fatal(err)
		}
		got, ms := map[ir.Op]int{}, 0.0
		for _, n := range res.Func.Order() {
			if op := n.Op(); op == ir.OpMatmul || op == ir.OpConvolution {
				got[op]++
			}
			if cost, ok := n.Cost(); ok {
				ms += cost
			}
		}
		if !maps.Equal(got, want) || ms != 2 {
			t.Errorf("%d channels: %v of %g ms, want %v of 2 ms", channels, got, ms, want)
		}
	}
}
