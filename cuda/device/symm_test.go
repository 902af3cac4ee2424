//go:build linux

package device_test

import (
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/seed-ee968945/concert/cost"
	"github.com/seed-ee968945/concert/internal/hostrun"
	"github.com/seed-ee968945/concert/interp"
	"github.com/seed-ee968945/concert/ir"
	"github.com/seed-ee968945/concert/ir/fx"
	"github.com/seed-ee968945/concert/lower"
	"github.com/seed-ee968945/concert/passes"
	"github.com/seed-ee968945/concert/passes/standard"
	rt "github.com/seed-ee968945/concert/runtime"
)

// symmCase is one call of an operator of PyTorch's symmetric memory: tensors in and out, by
// their types, and what the results are, of what all ranks hold.
type symmCase struct {
	name, target, args string
	in, out            []symmTensor
	pair               bool // the results are a tensor and a list
	rows               bool // the collective is along rows of the matmuls
	want               func(in [][]array) [][]array
}

type symmTensor struct {
	dtype string
	shape []int
}

// array is a tensor in float64.
type array struct {
	shape []int
	data  []float64
}

func newArray(shape ...int) array {
	n := 1
	for _, d := range shape {
		n *= d
	}
	return array{shape, make([]float64, n)}
}

// apart is the elements before and behind dimension d.
func (a array) apart(d int) (outer, inner int) {
	outer, inner = 1, 1
	for i, n := range a.shape {
		if i < d {
			outer *= n
		} else if i > d {
			inner *= n
		}
	}
	return outer, inner
}

// join puts pieces one after the other along d.
func join(d int, parts ...array) array {
	shape := slices.Clone(parts[0].shape)
	shape[d] *= len(parts)
	out := newArray(shape...)
	outer, inner := out.apart(d)
	each := parts[0].shape[d] * inner
	for r, p := range parts {
		for o := range outer {
			copy(out.data[(o*len(parts)+r)*each:], p.data[o*each:(o+1)*each])
		}
	}
	return out
}

// piece is the r-th of n along d.
func (a array) piece(d, r, n int) array {
	shape := slices.Clone(a.shape)
	shape[d] /= n
	out := newArray(shape...)
	outer, inner := out.apart(d)
	each := shape[d] * inner
	for o := range outer {
		copy(out.data[o*each:(o+1)*each], a.data[(o*n+r)*each:])
	}
	return out
}

// times multiplies the rows of a by b, and the results by scales of rows and columns and adds
// a bias, each if it is there.
func (a array) times(b array, rows, cols, bias []float64) array {
	k := b.shape[0]
	out := newArray(append(slices.Clone(a.shape[:len(a.shape)-1]), b.shape[1])...)
	n := b.shape[1]
	for i := range out.data {
		r, c := i/n, i%n
		for j := range k {
			out.data[i] += a.data[r*k+j] * b.data[j*n+c]
		}
		for _, s := range []struct {
			v  []float64
			at int
		}{{rows, r}, {cols, c}} {
			if len(s.v) > 0 {
				out.data[i] *= s.v[s.at%len(s.v)]
			}
		}
		if bias != nil {
			out.data[i] += bias[c]
		}
	}
	return out
}

// document is the case as a graph file of so many ranks.
func (c *symmCase) document(ranks int) string {
	type tensor struct {
		Shape  []int  `json:"shape"`
		Stride []int  `json:"stride"`
		DType  string `json:"dtype"`
	}
	describe := func(s symmTensor) tensor {
		stride := make([]int, len(s.shape))
		n := 1
		for i := len(s.shape) - 1; i >= 0; i-- {
			stride[i] = n
			n *= s.shape[i]
		}
		return tensor{s.shape, stride, s.dtype}
	}
	var nodes []map[string]any
	node := func(name, kind, target string, inputs []string, args string, out ...symmTensor) {
		outs := []tensor{}
		for _, o := range out {
			outs = append(outs, describe(o))
		}
		nodes = append(nodes, map[string]any{"name": name, "kind": kind, "target": target, "inputs": inputs, "args": args, "out": outs})
	}
	var names, results []string
	for i, x := range c.in {
		names = append(names, fmt.Sprintf("x%d", i))
		node(names[i], "input", names[i], []string{}, "()", x)
	}
	const item = "<built-in function getitem>"
	node("y", "compute", "symm_mem."+c.target+".default", names, c.args, c.out...)
	first := 0
	if c.pair {
		node("whole", "view", item, []string{"y"}, "(y, 0)", c.out[0])
		node("list", "view", item, []string{"y"}, "(y, 1)", c.out[1:]...)
		results, first = []string{"whole"}, 1
	}
	for k := first; k < len(c.out); k++ {
		if !c.pair {
			results = append(results, "y")
			continue
		}
		results = append(results, fmt.Sprintf("y%d", k))
		node(results[k], "view", item, []string{"list"}, fmt.Sprintf("(list, %d)", k-first), c.out[k])
	}
	node("output", "output", "output", results, "(("+strings.Join(results, ", ")+",),)")
	group := []int{}
	for r := range ranks {
		group = append(group, r)
	}
	text, err := json.Marshal(map[string]any{"name": "call", "world": ranks, "groups": map[string]any{"g": [][]int{group}}, "nodes": nodes})
	if err != nil {
		panic(err)
	}
	return string(text)
}

const symmRanks = 4

// gathers is a case of an all_gather along d with matmuls by several matrices.
func gathers(name string, dtype string, shape []int, d, n, matrices int) symmCase {
	shard := slices.Clone(shape)
	shard[d] /= symmRanks
	c := symmCase{name: name, target: "fused_all_gather_matmul", pair: true, rows: d < len(shape)-1, in: []symmTensor{{dtype, shard}}, out: []symmTensor{{dtype, shape}}}
	last := len(shape) - 1
	var list []string
	for k := range matrices {
		list = append(list, fmt.Sprintf("x%d", k+1))
		c.in = append(c.in, symmTensor{dtype, []int{shape[last], n}})
		c.out = append(c.out, symmTensor{dtype, append(slices.Clone(shape[:last]), n)})
	}
	c.args = fmt.Sprintf("(x0, [%s], %d, 'g')", strings.Join(list, ", "), d)
	c.want = func(in [][]array) (out [][]array) {
		var parts []array
		for _, x := range in {
			parts = append(parts, x[0])
		}
		whole := join(d, parts...)
		for _, x := range in {
			of := []array{whole}
			for _, b := range x[1:] {
				of = append(of, whole.times(b, nil, nil, nil))
			}
			out = append(out, of)
		}
		return out
	}
	return c
}

// gathersScaled is one of scaled numbers of 8 bits; mode says which scales A has.
func gathersScaled(mode string, shape []int, d, n int) symmCase {
	const f8 = "float8_e4m3fn"
	shard := slices.Clone(shape)
	shard[d] /= symmRanks
	last := len(shape) - 1
	scale := map[string][]int{"tensor-wise": {1}, "row-wise-sharded": append(slices.Clone(shard[:last]), 1), "row-wise-replicated": append(slices.Clone(shape[:last]), 1)}[mode]
	cols := []int{1, n}
	if mode == "tensor-wise" {
		cols = []int{1}
	}
	return symmCase{name: fmt.Sprintf("%s %d", mode, d), target: "fused_all_gather_scaled_matmul", pair: true, rows: true,
		args: fmt.Sprintf("(x0, [x1, x2], x3, [x4, x5], %d, 'g', [None, x6], [None, None], [torch.bfloat16, torch.bfloat16], [False, True])", d),
		in: []symmTensor{{f8, shard}, {f8, []int{shape[last], n}}, {f8, []int{shape[last], n}}, {"float32", scale}, {"float32", cols}, {"float32", cols},
			{"bfloat16", []int{n}}},
		out: []symmTensor{{f8, shape}, {"bfloat16", append(slices.Clone(shape[:last]), n)}, {"bfloat16", append(slices.Clone(shape[:last]), n)}},
		want: func(in [][]array) (out [][]array) {
			var parts, scales []array
			for _, x := range in {
				parts, scales = append(parts, x[0]), append(scales, x[3])
			}
			whole := join(d, parts...)
			for _, x := range in {
				rows := x[3]
				if mode == "row-wise-sharded" {
					rows = join(d, scales...)
				}
				out = append(out, []array{whole, whole.times(x[1], rows.data, x[4].data, nil), whole.times(x[2], rows.data, x[5].data, x[6].data)})
			}
			return out
		}}
}

// scatters is a case of a matmul and a reduce_scatter along d; scaled by rows, by one number or
// not at all ("").
func scatters(mode, dtype, reduce string, shape []int, d, n int) symmCase {
	last := len(shape) - 1
	result := append(slices.Clone(shape[:last]), n)
	result[d] /= symmRanks
	c := symmCase{name: fmt.Sprintf("%s %s %d", mode, reduce, d), target: "fused_matmul_reduce_scatter", rows: d < last, args: fmt.Sprintf("(x0, x1, '%s', %d, 'g')", reduce, d),
		in: []symmTensor{{dtype, shape}, {dtype, []int{shape[last], n}}}, out: []symmTensor{{dtype, result}}}
	if mode != "" {
		rows, cols := append(slices.Clone(shape[:last]), 1), []int{1, n}
		if mode == "tensor-wise" {
			rows, cols = []int{1}, []int{1}
		}
		c.target, c.out[0].dtype = "fused_scaled_matmul_reduce_scatter", "bfloat16"
		c.in = append(c.in, symmTensor{"float32", rows}, symmTensor{"float32", cols})
		whole := append(slices.Clone(shape[:last]), n)
		c.args = fmt.Sprintf("(x0, x1, x2, x3, '%s', %d, %d, 'g', %s, None, None, torch.bfloat16, False)", reduce, d, d, strings.ReplaceAll(fmt.Sprint(whole), " ", ", "))
	}
	c.want = func(in [][]array) (out [][]array) {
		sum := newArray(append(slices.Clone(shape[:last]), n)...)
		for _, x := range in {
			var rows, cols []float64
			if mode != "" {
				rows, cols = x[2].data, x[3].data
			}
			for i, v := range x[0].times(x[1], rows, cols, nil).data {
				if reduce == "avg" {
					v /= symmRanks
				}
				sum.data[i] += v
			}
		}
		for r := range in {
			out = append(out, []array{sum.piece(d, r, symmRanks)})
		}
		return out
	}
	return c
}

func symmCases() []symmCase {
	var out []symmCase
	shapes := [][]int{{16, 3, 32}, {3, 16, 32}, {2, 3, 32}}
	for d := range 3 {
		out = append(out, gathers(fmt.Sprintf("gather %d", d), "float32", shapes[d], d, 16, 3), scatters("", "float32", "sum", shapes[d], d, 16))
	}
	out = append(out, gathers("native", "bfloat16", []int{256, 64}, 0, 64, 1), scatters("", "bfloat16", "avg", []int{64, 32}, 0, 64))
	for d := range 2 {
		for _, mode := range []string{"tensor-wise", "row-wise-sharded", "row-wise-replicated"} {
			out = append(out, gathersScaled(mode, shapes[d], d, 16))
		}
		out = append(out, scatters([]string{"tensor-wise", "row-wise"}[d], "float8_e4m3fn", []string{"sum", "avg"}[d], shapes[d], d, 16))
	}
	return append(out,
		symmCase{name: "low contention gather", target: "_low_contention_all_gather", args: "(x0, 'g')", in: []symmTensor{{"float32", []int{4, 6}}}, out: []symmTensor{{"float32", []int{16, 6}}},
			want: func(in [][]array) (out [][]array) {
				for range in {
					out = append(out, []array{join(0, in[0][0], in[1][0], in[2][0], in[3][0])})
				}
				return out
			}},
		symmCase{name: "low contention scatter", target: "_low_contention_reduce_scatter", args: "(x0, 'sum', 'g')", in: []symmTensor{{"float32", []int{16, 6}}}, out: []symmTensor{{"float32", []int{4, 6}}},
			want: func(in [][]array) (out [][]array) {
				for r := range in {
					sum := newArray(4, 6)
					for _, x := range in {
						for i, v := range x[0].piece(0, r, symmRanks).data {
							sum.data[i] += v
						}
					}
					out = append(out, []array{sum})
				}
				return out
			}})
}

// The matmuls that carry collectives of PyTorch's tests of symmetric memory, on the
// interpreter, the host and devices, and in chunks of rows.
func TestSymmetricMemory(t *testing.T) {
	for _, c := range symmCases() {
		t.Run(c.target+"/"+c.name, func(t *testing.T) {
			f, err := fx.Read("call.json", strings.NewReader(c.document(symmRanks)))
			if err != nil {
				t.Fatal(err)
			}
			res, err := f.Import()
			if err != nil {
				t.Fatal(err)
			}
			if len(res.Warnings) > 0 {
				t.Fatal(res.Warnings[0])
			}
			in, err := interp.RandomInputs(res.Func, 5, interp.RandomOptions{})
			if err != nil {
				t.Fatal(err)
			}
			arrays := make([][]array, symmRanks)
			for r := range in {
				for k, x := range in[r] {
					arrays[r] = append(arrays[r], array{c.in[k].shape, x.Float64s()})
				}
			}
			want := c.want(arrays)
			drv, devs, o := target(t, symmRanks)
			for name, run := range map[string]func() ([][]interp.Tensor, error){
				"interpreter": func() ([][]interp.Tensor, error) { return interp.Run(t.Context(), res.Func, in, interp.Options{}) },
				"host":        func() ([][]interp.Tensor, error) { return hostrun.Goroutines(rt.Config{})(t.Context(), res.Func, in) },
				"in chunks": func() ([][]interp.Tensor, error) {
					return interp.Run(t.Context(), inChunks(t, res.Func, c.rows), in, interp.Options{})
				},
				"devices": func() ([][]interp.Tensor, error) {
					return runner(drv, devs, o, lower.Options{Kernels: true}, graph, 1)(t.Context(), res.Func, in)
				},
			} {
				got, err := run()
				if err != nil {
					t.Errorf("%s: %v", name, err)
					continue
				}
				for r := range want {
					for k, w := range want[r] {
						if msg := w.differs(got[r][k], c.out[k].dtype); msg != "" {
							t.Errorf("%s: rank %d, result %d: %s", name, r, k, msg)
						}
					}
				}
			}
		})
	}
}

// inChunks is f with matmuls and collectives in chunks of rows, if they are cut.
func inChunks(t *testing.T, f *ir.Func, want bool) *ir.Func {
	t.Helper()
	p, err := standard.Table().Parse("canonicalize,simplify-collectives,fuse-collectives{chunks=2}")
	if err != nil {
		t.Fatal(err)
	}
	m := f.Module().Clone()
	g := passes.Manager{Costs: cost.TracedH200(), Verify: passes.VerifyEach, Validate: passes.ValidateAlways}
	rep, err := g.Run(m, p)
	if err != nil {
		t.Fatal(err)
	}
	if cut := rep.Steps[len(rep.Steps)-1].Stat("fused") > 0; cut != want {
		t.Errorf("cut: %v", cut)
	}
	return m.Func(f.Name)
}

// differs compares with what is exact, up to a few roundings of the type.
func (a array) differs(got interp.Tensor, dtype string) string {
	largest := 0.0
	for _, v := range a.data {
		largest = max(largest, math.Abs(v))
	}
	bound := map[string]float64{"float32": 1e-6, "bfloat16": 1.0 / 100}[dtype] * largest
	for i, v := range got.Float64s() {
		if !(math.Abs(v-a.data[i]) <= bound) {
			return fmt.Sprintf("element %d is %g, want %g", i, v, a.data[i])
		}
	}
	return ""
}
