package cudagen_test

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/seed-ee968945/concert/ir"
	"github.com/seed-ee968945/concert/lower/cudagen"
)

// written is a function that writes rows of a table after each other, over each other and with
// steps, of what is given, computed, or read from the table.
func written(r *rand.Rand) (*ir.Module, error) {
	some := func(of ...int64) int64 { return of[r.IntN(len(of))] }
	n, width, d := some(2, 5, 9, 16, 33), some(1, 1, 2, 3, 4, 8, 32), int64(1)
	shape := [][]int64{{n, width}, {width, n}, {1, n, width}, {2, n, width}}[r.IntN(4)]
	if shape[0] == n {
		d = 0
	}
	whole := ir.Tensor([]ir.DType{ir.F32, ir.BF16, ir.F16, ir.F64, ir.I64, ir.U8}[r.IntN(6)], shape...)
	b := ir.NewBuilder(1)
	f := b.Func("f")
	table, other := f.Input("x", whole), f.Input("y", whole)
	op := func(op ir.Op, attrs ir.Attrs, args ...*ir.Value) *ir.Value { return f.Op(op, nil, attrs, args)[0] }
	at := int64(0)
	for range 1 + r.IntN(24) {
		rows, step := min(some(1, 1, 1, 2, 3), n), some(1, 1, 1, 2)
		if (rows-1)*step >= n {
			step = 1
		}
		span := (rows-1)*step + 1
		if at+span > n || r.IntN(4) == 0 {
			at = r.Int64N(n - span + 1)
		}
		begin := r.Int64N(n - rows + 1)
		part := op(ir.OpSlice, ir.A("dim", d, "end", begin+rows, "start", begin), []*ir.Value{table, other}[r.IntN(2)])
		if r.IntN(3) > 0 {
			part = op(ir.OpMaximum, nil, part, part)
		}
		table = op(ir.OpSliceScatter, ir.A("dim", d, "end", at+span, "start", at, "step", step), table, part)
		if at += span; r.IntN(8) == 0 {
			table = op(ir.OpClone, nil, table)
		}
	}
	if last := int64(len(shape) - 1); shape[last] == 1 && d != last { // known before a loop over vectors
		input := func(name string, n int64) *ir.Value {
			return f.Input(name, ir.Tensor(whole.DType(), append(shape[:last:last], n)...))
		}
		all := op(ir.OpCat, ir.A("dim", last), table, input("z", 5))
		f.Return(op(ir.OpAmax, ir.A("dims", []int64{last}), op(ir.OpMaximum, nil, all, input("m", 6))))
		return b.Finish()
	}
	f.Return(op(ir.OpAdd, nil, table, table))
	return b.Finish()
}

// Tables whose rows are written one after the other have the interpreter's bits.
func TestRandomRows(t *testing.T) {
	seeds := uint64(60)
	if testing.Short() {
		seeds = 30
	}
	var trials []*trial
	long := 0
	for seed := range seeds {
		m, err := written(rand.New(rand.NewPCG(seed, 11)))
		if err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		chain := strings.Count(m.String(), "slice_scatter")
		fused(t, m, "fuse{kernels=true}")
		f := m.Funcs()[0]
		st, err := ir.ComputeStorages(f)
		if err != nil {
			t.Fatal(err)
		}
		for _, nodes := range regions(t, f) {
			k, err := cudagen.Generate("k", st, nodes)
			if err != nil {
				t.Errorf("seed %d: %v\n%s", seed, err, m)
				continue
			}
			one := alone(nodes, k.Outs)
			if one.Module().Verify() != nil {
				continue // a view of an operand that has other strides there
			}
			tr, err := newTrial(fmt.Sprint("rows", len(trials)), one, 0, seed, nil)
			if err != nil {
				t.Errorf("seed %d: %v", seed, err)
				continue
			}
			if chain > 8 {
				long++
			}
			trials = append(trials, tr)
		}
	}
	t.Logf("%d kernels, %d of long chains", len(trials), long)
	if long < int(seeds)/8 {
		t.Error("too few kernels are of long chains")
	}
	compare(t, trials, runOnHost(t, trials, "-DEXACT_MATH"), true)
	together(t, trials, "-DEXACT_MATH")
}
