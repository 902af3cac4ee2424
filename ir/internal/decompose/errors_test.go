package decompose_test

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/seed-ee968945/concert/ir"
	"github.com/seed-ee968945/concert/ir/internal/decompose"
)

// Numbers that nobody meant make an error, here or in the function that is built.
func TestStrayNumbers(t *testing.T) {
	r := rand.New(rand.NewPCG(23, 24))
	stray := func(n int) []int64 {
		var l []int64
		for range r.IntN(n + 1) {
			v := r.Int64N(5) - 1
			if r.IntN(8) == 0 {
				v = []int64{math.MaxInt64, math.MinInt64, 1 << 62, -1 << 40}[r.IntN(4)]
			}
			l = append(l, v)
		}
		return l
	}
	refused := 0
	for range 3000 {
		b := ir.NewBuilder(1)
		f := b.Func("f")
		tensor := func(dt ir.DType) *ir.Value {
			var shape []int64
			for range r.IntN(4) {
				shape = append(shape, r.Int64N(4))
			}
			return f.Input("x", ir.Tensor(dt, shape...))
		}
		dt := []ir.DType{ir.F32, ir.I32, ir.Bool, ir.U64}[r.IntN(4)]
		x, y, i := tensor(dt), tensor(dt), tensor(ir.I64)
		var out []*ir.Value
		var v *ir.Value
		var err error
		switch r.IntN(12) {
		case 0:
			v, err = decompose.Gather(f, x, i, decompose.GatherDims{OffsetDims: stray(2), CollapsedSliceDims: stray(2), OperandBatchingDims: stray(1), StartIndicesBatchingDims: stray(1),
				StartIndexMap: stray(2), IndexVectorDim: r.Int64N(4) - 1, SliceSizes: stray(3)})
		case 1:
			out, err = decompose.Scatter(f, []*ir.Value{x}, i, []*ir.Value{y}, decompose.ScatterDims{UpdateWindowDims: stray(2), InsertedWindowDims: stray(2), InputBatchingDims: stray(1),
				ScatterIndicesBatchingDims: stray(1), ScatterDimsToOperandDims: stray(2), IndexVectorDim: r.Int64N(4) - 1}, pairs(ir.OpMaximum))
		case 2:
			out, err = decompose.Reduce(f, []*ir.Value{x}, []*ir.Value{y}, stray(2), pairs(ir.OpMaximum))
		case 3:
			w := decompose.Window{Dimensions: stray(3), Strides: stray(3), BaseDilations: stray(3), WindowDilations: stray(3)}
			for range r.IntN(4) {
				w.Padding = append(w.Padding, [2]int64{append(stray(1), 1)[0], append(stray(1), 2)[0]})
			}
			out, err = decompose.ReduceWindow(f, []*ir.Value{x}, []*ir.Value{f.Full(ir.Tensor(dt), 0)}, w, pairs(ir.OpMaximum))
		case 4:
			out, err = decompose.Sort(f, []*ir.Value{x}, r.Int64N(5)-1, pairs([]ir.Op{ir.OpLt, ir.OpAdd}[r.IntN(2)]))
		case 5:
			v, err = decompose.Pad(f, x, f.Full(ir.Tensor(dt), 0), stray(3), stray(3), stray(3))
		case 6:
			v, err = decompose.DynamicSlice(f, x, []*ir.Value{i, i}, stray(3))
		case 7:
			v, err = decompose.DynamicUpdateSlice(f, x, y, []*ir.Value{i})
		case 8:
			v, err = decompose.TriangularSolve(f, x, y, true, true, false, false)
		case 9:
			v, err = decompose.Bitcast(f, x, []ir.DType{ir.F64, ir.U8, ir.Bool}[r.IntN(3)])
		case 10:
			var lu decompose.Factors
			if lu, err = decompose.LU(f, x); err == nil {
				v, err = decompose.SolveLU(f, lu, y, r.IntN(2) == 0, r.IntN(2) == 0)
			}
		case 11:
			v, _, err = decompose.QR(f, x)
		}
		if err != nil {
			refused++
			continue
		}
		if v != nil {
			out = append(out, v)
		}
		f.Return(out...)
		if _, err := b.Finish(); err != nil {
			refused++
		}
	}
	if refused < 1500 || refused > 2999 {
		t.Errorf("%d of 3000 were refused", refused)
	}
}
