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

// convolutionCase is a random convolution: the tensor a that its window slides over, what that
// gives, b, its weight w, and the gradients of all three.
type convolutionCase struct {
	rank                     int
	groups, c, o             int64 // channels of a and of b in a group
	stride, pad, dil, outPad []int64
	transposed, beside       bool // b is the input and a the result; windows adjoin each other
	a, b, w                  array
	ga, gb, gw               array
}

func randomConvolution(rng *rand.Rand, trial int) *convolutionCase {
	x := &convolutionCase{rank: 1 + rng.IntN(3), groups: 1 + rng.Int64N(3)}
	n := 1 + rng.Int64N(2)
	x.c, x.o = 1+rng.Int64N(2), 1+rng.Int64N(2)
	as, bs, ws := []int64{n, x.c * x.groups}, []int64{n, x.o * x.groups}, []int64{x.o * x.groups, x.c}
	x.transposed = rng.IntN(3) == 0
	x.beside = trial%6 == 0
	if x.beside {
		x.transposed, x.groups, as[1], bs[1], ws[0] = false, 1, x.c, x.o, x.o
	}
	for range x.rank {
		s, p, d, k := 1+rng.Int64N(3), rng.Int64N(3), 1+rng.Int64N(2), 1+rng.Int64N(3)
		in := max(1, (k-1)*d+1-2*p) + rng.Int64N(4)
		if x.beside {
			s, p, d, in = k, 0, 1, k*(1+rng.Int64N(3))
		}
		out := (in+2*p-(k-1)*d-1)/s + 1
		x.stride, x.pad, x.dil = append(x.stride, s), append(x.pad, p), append(x.dil, d)
		as, bs, ws = append(as, in), append(bs, out), append(ws, k)
		x.outPad = append(x.outPad, in-((out-1)*s-2*p+(k-1)*d+1))
	}
	if !x.transposed {
		x.outPad = make([]int64, x.rank)
	}
	x.a, x.b, x.w = small(rng, as...), small(rng, bs...), small(rng, ws...)
	x.ga, x.gb, x.gw = zeros(as...), zeros(bs...), zeros(ws...)
	return x
}

// differentiate adds up the gradients by their definition. That of b is the convolution of a.
func (x *convolutionCase) differentiate() {
	each(x.b.shape, func(at []int64) {
		each(x.w.shape[1:], func(tap []int64) {
			from, weight := []int64{at[0], at[1]/x.o*x.c + tap[0]}, []int64{at[1], tap[0]}
			for d := range x.rank {
				i := at[2+d]*x.stride[d] + tap[1+d]*x.dil[d] - x.pad[d]
				if i < 0 || i >= x.a.shape[2+d] {
					return
				}
				from, weight = append(from, i), append(weight, tap[1+d])
			}
			*x.gb.at(at...) += *x.a.at(from...) * *x.w.at(weight...)
			*x.ga.at(from...) += *x.b.at(at...) * *x.w.at(weight...)
			*x.gw.at(weight...) += *x.b.at(at...) * *x.a.at(from...)
		})
	})
}

// calls are the recorded calls that must give what differentiate has: forward, forward with a random
// bias, and backward with a random mask.
func (x *convolutionCase) calls(rng *rand.Rand) []recorded {
	in, gradient, gin, result := x.a, x.b, x.ga, x.gb
	if x.transposed {
		in, gradient, gin, result = x.b, x.a, x.gb, x.ga
	}
	flag := map[bool]string{false: "False", true: "True"}
	how := fmt.Sprintf("%s, %s, %s, %s, %s, %d", list(x.stride), list(x.pad), list(x.dil), flag[x.transposed], list(x.outPad), x.groups)
	bias, sums := small(rng, result.shape[1]), zeros(result.shape[1])
	biased := zeros(result.shape...)
	each(result.shape, func(at []int64) {
		*biased.at(at...) = *result.at(at...) + bias.v[at[1]]
		sums.v[at[1]] += *gradient.at(at...)
	})
	mask := [3]bool{rng.IntN(2) == 0, rng.IntN(2) == 0, rng.IntN(2) == 0}
	calls := []recorded{
		{Target: "aten.convolution.default", Args: "(x0, x1, None, " + how + ")", In: []recordedTensor{in.recorded(), x.w.recorded()}, Out: []recordedTensor{result.recorded()}},
		{Target: "aten.convolution.default", Args: "(x0, x1, x2, " + how + ")", In: []recordedTensor{in.recorded(), x.w.recorded(), bias.recorded()}, Out: []recordedTensor{biased.recorded()}},
	}
	back := recorded{Target: "aten.convolution_backward.default", In: []recordedTensor{gradient.recorded(), in.recorded(), x.w.recorded()},
		Args: fmt.Sprintf("(x0, x1, x2, [%d], %s, [%s, %s, %s])", result.shape[1], how, flag[mask[0]], flag[mask[1]], flag[mask[2]])}
	for k, g := range []array{gin, x.gw, sums} {
		if mask[k] {
			back.Items, back.Out = append(back.Items, k), append(back.Out, g.recorded())
		}
	}
	if back.Items != nil {
		calls = append(calls, back)
	}
	return calls
}

// TestConvolutions holds convolutions and their gradients against their definition: every
// product of an element, a weight and an element of the result's gradient, one by one.
func TestConvolutions(t *testing.T) {
	rng := rand.New(rand.NewPCG(5, 6))
	for trial := range 120 {
		x := randomConvolution(rng, trial)
		x.differentiate()
		calls := x.calls(rng)
		if !x.transposed && !x.beside {
			again(t, calls[0])
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
