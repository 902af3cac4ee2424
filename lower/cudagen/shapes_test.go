package cudagen_test

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/seed-ee968945/concert/ir"
)

// alike is a function of one operation on tensors of any shape, many dimensions of which have
// one element, and any order in memory; nil where the operation has no such form.
func alike(r *rand.Rand) (*ir.Module, error) {
	some := func(of ...int64) int64 { return of[r.IntN(len(of))] }
	rank := r.IntN(7)
	shape, total := make([]int64, rank), int64(1)
	for d := range shape {
		if shape[d] = some(1, 1, 1, 2, 2, 3, 4, 8, 17); total*shape[d] > 4096 {
			shape[d] = 1
		}
		total *= shape[d]
	}
	b := ir.NewBuilder(1)
	f := b.Func("f")
	op := func(op ir.Op, attrs ir.Attrs, args ...*ir.Value) *ir.Value { return f.Op(op, nil, attrs, args)[0] }
	order := make([]int64, rank)
	for d, to := range r.Perm(rank) {
		order[d] = int64(to)
	}
	of := func(name string, dt ir.DType) *ir.Value { // of the shape, after its dimensions were put in another order
		if rank < 2 || r.IntN(2) == 0 {
			return f.Input(name, ir.Tensor(dt, shape...))
		}
		from := make([]int64, rank)
		for d, to := range order {
			from[to] = shape[d]
		}
		return op(ir.OpPermute, ir.A("dims", order), f.Input(name, ir.Tensor(dt, from...)))
	}
	dt := []ir.DType{ir.F32, ir.BF16, ir.F16, ir.I64, ir.U8}[r.IntN(5)]
	x := of("x", dt)
	var dims []int64
	for d := range shape {
		if r.IntN(3) == 0 {
			dims = append(dims, int64(d))
		}
	}
	folds := []ir.Op{ir.OpSum, ir.OpAmax, ir.OpAmin, ir.OpProd}
	if dt.IsFloat() {
		folds = append(folds, ir.OpMean)
	}
	attrs := ir.A("keepdim", r.IntN(2) == 0)
	if len(dims) > 0 {
		attrs = ir.A("dims", dims, "keepdim", r.IntN(2) == 0)
	}
	along := ir.A("dim", r.Int64N(max(int64(rank), 1)))
	switch k := r.IntN(10); {
	case k < 5 || rank == 0:
		f.Return(op(folds[r.IntN(len(folds))], attrs, x))
	case k == 5:
		f.Return(op(ir.OpArgmax, along, x))
	case k == 6 && dt.IsFloat():
		f.Return(op([]ir.Op{ir.OpSoftmax, ir.OpLogSoftmax}[r.IntN(2)], along, x))
	case k == 7:
		f.Return(op(ir.OpCat, along, x, of("y", dt)))
	case k == 8:
		f.Return(op(ir.OpCumsum, along, x))
	default:
		f.Return(op(ir.OpMaximum, nil, x, of("y", dt)))
	}
	return b.Finish()
}

// Operations of any shape have a kernel with the interpreter's bits: what has none is no program
// for a GPU.
func TestEveryShape(t *testing.T) {
	var trials []*trial
	for seed := range uint64(2000) {
		m, err := alike(rand.New(rand.NewPCG(seed, 12)))
		if err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		tr, err := newTrial(fmt.Sprint("shape", seed), m.Funcs()[0], 0, seed, nil)
		if err != nil {
			t.Errorf("seed %d: %v\n%s", seed, err, m)
			continue
		}
		if seed%20 == 0 { // compilers take longer
			trials = append(trials, tr)
		}
	}
	compare(t, trials, runOnHost(t, trials, "-DEXACT_MATH", "-Og"), true)
	together(t, trials, "-DEXACT_MATH")
}
