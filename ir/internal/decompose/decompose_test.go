package decompose_test

import (
	"context"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/seed-ee968945/concert/internal/intmath"
	"github.com/seed-ee968945/concert/interp"
	"github.com/seed-ee968945/concert/ir"
	"github.com/seed-ee968945/concert/ir/internal/decompose"
)

// run computes what build appends on inputs.
func run(t *testing.T, in []interp.Tensor, build func(f *ir.FuncBuilder, in []*ir.Value) ([]*ir.Value, error)) []interp.Tensor {
	t.Helper()
	return runOn(t, in, func(_ *ir.Builder, f *ir.FuncBuilder, in []*ir.Value) ([]*ir.Value, error) { return build(f, in) })
}

// runOn is run of what makes functions, too.
func runOn(t *testing.T, in []interp.Tensor, build func(b *ir.Builder, f *ir.FuncBuilder, in []*ir.Value) ([]*ir.Value, error)) []interp.Tensor {
	t.Helper()
	b := ir.NewBuilder(1)
	f := b.Func("f")
	var args []*ir.Value
	for _, x := range in {
		args = append(args, f.Input("x", ir.Tensor(x.DType, x.Shape...)))
	}
	got, err := build(b, f, args)
	if err != nil {
		t.Fatal(err)
	}
	f.Return(got...)
	m, err := b.Finish()
	if err != nil {
		t.Fatal(err)
	}
	out, err := interp.Run(context.Background(), m.Func("f"), [][]interp.Tensor{in}, interp.Options{})
	if err != nil {
		t.Fatalf("%v\n%s", err, m)
	}
	return out[0]
}

func floats(t *testing.T, dt ir.DType, vals []float64, shape ...int64) interp.Tensor {
	t.Helper()
	x, err := interp.FromFloats(dt, vals, shape...)
	if err != nil {
		t.Fatal(err)
	}
	return x
}

// each calls fn for every index of a shape, in row-major order.
func each(shape []int64, fn func(at []int64)) {
	at := make([]int64, len(shape))
	for i := int64(0); i < intmath.Product(shape); i++ {
		rest := i
		for d := len(shape) - 1; d >= 0; d-- {
			at[d] = rest % shape[d]
			rest /= shape[d]
		}
		fn(at)
	}
}

func flat(at, shape []int64) int64 {
	n := int64(0)
	for d := range shape {
		n = n*shape[d] + at[d]
	}
	return n
}

// numbering is a random set of dimension numbers: an operand, indices and slices of it.
type numbering struct {
	shape, indices, slice           []int64
	vector                          int64
	toDims, batching, indexBatching []int64
	dropped, windows                []int64 // of the operand; dimensions of the slices among all
	out                             []int64 // shape of the slices: batch and windows
	batch                           []int64
}

func draw(r *rand.Rand) numbering {
	n := numbering{}
	rank := 1 + r.IntN(4)
	for range rank {
		n.shape = append(n.shape, 1+r.Int64N(4))
	}
	perm := r.Perm(rank)
	batching := 0
	if rank > 2 {
		batching = r.IntN(2)
	}
	looked := r.IntN(rank - batching + 1)
	for _, d := range perm[:batching] {
		n.batching = append(n.batching, int64(d))
	}
	slices.Sort(n.batching)
	for _, d := range perm[batching : batching+looked] {
		n.toDims = append(n.toDims, int64(d))
	}
	// Indices: some dimensions, of which one is the vector and some are batching.
	more := r.IntN(3)
	for range more + batching {
		n.indices = append(n.indices, 1+r.Int64N(3))
	}
	for i, d := range n.batching {
		n.indices[i] = n.shape[d]
		n.indexBatching = append(n.indexBatching, int64(i))
	}
	n.batch = slices.Clone(n.indices)
	n.vector = r.Int64N(int64(len(n.indices)) + 1)
	if looked != 1 || r.IntN(2) == 0 {
		n.indices = slices.Insert(n.indices, int(n.vector), int64(looked))
		for i := range n.indexBatching {
			if n.indexBatching[i] >= n.vector {
				n.indexBatching[i]++
			}
		}
	} else {
		n.vector = int64(len(n.indices))
	}
	var sizes []int64
	for d := range int64(rank) {
		s := 1 + r.Int64N(n.shape[d])
		switch {
		case slices.Contains(n.batching, d):
			s = 1
		case r.IntN(3) == 0:
			s = 1
			n.dropped = append(n.dropped, d)
		case r.IntN(2) == 0:
			s = n.shape[d]
		}
		n.slice = append(n.slice, s)
		if !slices.Contains(n.batching, d) && !slices.Contains(n.dropped, d) {
			sizes = append(sizes, s)
		}
	}
	total := len(n.batch) + len(sizes)
	for _, p := range r.Perm(total)[:len(sizes)] {
		n.windows = append(n.windows, int64(p))
	}
	slices.Sort(n.windows)
	b, w := 0, 0
	for i := range int64(total) {
		if slices.Contains(n.windows, i) {
			n.out = append(n.out, sizes[w])
			w++
		} else {
			n.out = append(n.out, n.batch[b])
			b++
		}
	}
	return n
}

// place is the element of the operand that stands at an index of the slices, as the
// specification says it.
func (n numbering) place(at []int64, starts []float64, clamp bool) (to []int64, inside bool) {
	var batch, window []int64
	for i, v := range at {
		if slices.Contains(n.windows, int64(i)) {
			window = append(window, v)
		} else {
			batch = append(batch, v)
		}
	}
	inside = true
	w := 0
	for d := range int64(len(n.shape)) {
		start := int64(0)
		if k := slices.Index(n.toDims, d); k >= 0 {
			vec := slices.Clone(batch)
			if n.vector < int64(len(n.indices)) {
				vec = slices.Insert(vec, int(n.vector), int64(k))
			}
			start = int64(starts[flat(vec, n.indices)])
			if clamp {
				start = max(0, min(start, n.shape[d]-n.slice[d]))
			}
		}
		if k := slices.Index(n.batching, d); k >= 0 {
			i := n.indexBatching[k]
			if i > n.vector {
				i--
			}
			start = batch[i]
		}
		if !slices.Contains(n.dropped, d) && !slices.Contains(n.batching, d) {
			start += window[w]
			w++
		}
		inside = inside && start >= 0 && start < n.shape[d]
		to = append(to, start)
	}
	return to, inside
}

func random(t *testing.T, r *rand.Rand, dt ir.DType, least, most int64, shape ...int64) interp.Tensor {
	vals := make([]float64, intmath.Product(shape))
	for i := range vals {
		vals[i] = float64(least + r.Int64N(most-least+1))
	}
	return floats(t, dt, vals, shape...)
}

func TestGather(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for range 150 {
		n := draw(r)
		x, idx := random(t, r, ir.F32, -99, 99, n.shape...), random(t, r, []ir.DType{ir.I32, ir.I64, ir.I8}[r.IntN(3)], -2, 5, n.indices...)
		got := run(t, []interp.Tensor{x, idx}, func(f *ir.FuncBuilder, in []*ir.Value) ([]*ir.Value, error) {
			y, err := decompose.Gather(f, in[0], in[1], decompose.GatherDims{OffsetDims: n.windows, CollapsedSliceDims: n.dropped, OperandBatchingDims: n.batching,
				StartIndicesBatchingDims: n.indexBatching, StartIndexMap: n.toDims, IndexVectorDim: n.vector, SliceSizes: n.slice})
			return []*ir.Value{y}, err
		})[0]
		var want []float64
		values, starts := x.Float64s(), idx.Float64s()
		each(n.out, func(at []int64) {
			to, inside := n.place(at, starts, true)
			if !inside {
				t.Fatalf("%+v: %v", n, to)
			}
			want = append(want, values[flat(to, n.shape)])
		})
		if !slices.Equal(got.Shape, n.out) || !slices.Equal(got.Float64s(), want) {
			t.Fatalf("%+v of %v at %v:\n got %v\nwant %v %v", n, x, idx, got, n.out, want)
		}
	}
}

// joins are computations of a scatter, with what they mean.
var joins = []struct {
	name string
	op   ir.Op
	join func(a, b float64) float64
}{
	{"replace", ir.OpInvalid, func(a, b float64) float64 { return b }},
	{"add", ir.OpAdd, func(a, b float64) float64 { return a + b }},
	{"multiply", ir.OpMul, func(a, b float64) float64 { return a * b }},
	{"maximum", ir.OpMaximum, func(a, b float64) float64 { return max(a, b) }},
	{"minimum", ir.OpMinimum, func(a, b float64) float64 { return min(a, b) }},
	{"subtract", ir.OpSub, func(a, b float64) float64 { return a - b }}, // no operation of a scatter
}

func pairs(op ir.Op) decompose.Body {
	return func(e decompose.Emitter, args []*ir.Value) ([]*ir.Value, error) {
		if op == ir.OpInvalid {
			return args[1:], nil
		}
		return e.Op(op, nil, nil, args), nil
	}
}

func TestScatter(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	for i := range 240 {
		n := draw(r)
		j := joins[i%len(joins)]
		dt, least := []ir.DType{ir.F64, ir.I64, ir.I32, ir.U64, ir.U16}[r.IntN(5)], int64(-2)
		if dt.IsUnsigned() && j.op != ir.OpSub {
			least = 0
		} else if dt.IsUnsigned() {
			dt = ir.I16
		}
		x, idx, up := random(t, r, dt, least, 9, n.shape...), random(t, r, ir.I64, -1, 4, n.indices...), random(t, r, dt, least, 2, n.out...)
		if intmath.Product(n.out) > 60 && j.op == ir.OpSub {
			continue
		}
		got := run(t, []interp.Tensor{x, idx, up}, func(f *ir.FuncBuilder, in []*ir.Value) ([]*ir.Value, error) {
			return decompose.Scatter(f, in[:1], in[1], in[2:], decompose.ScatterDims{UpdateWindowDims: n.windows, InsertedWindowDims: n.dropped, InputBatchingDims: n.batching,
				ScatterIndicesBatchingDims: n.indexBatching, ScatterDimsToOperandDims: n.toDims, IndexVectorDim: n.vector}, pairs(j.op))
		})[0]
		want, starts, updates := x.Float64s(), idx.Float64s(), up.Float64s()
		each(n.out, func(at []int64) {
			if to, inside := n.place(at, starts, false); inside {
				k := flat(to, n.shape)
				want[k] = j.join(want[k], updates[flat(at, n.out)])
			}
		})
		if !slices.Equal(got.Shape, n.shape) || !slices.Equal(got.Float64s(), want) {
			t.Fatalf("%s of %+v of %v at %v from %v:\n got %v\nwant %v", j.name, n, x, idx, up, got, want)
		}
	}
}
