package stablehlo

import (
	"fmt"
	"slices"

	"github.com/seed-ee968945/concert/ir"
	"github.com/seed-ee968945/concert/ir/internal/decompose"
	"github.com/seed-ee968945/concert/ir/stablehlo/internal/dimensions"
	"github.com/seed-ee968945/concert/ir/stablehlo/mlir"
)

// windowAttrs are the attributes of a window under concert's names.
func (im *importer) windowAttrs() (ir.Attrs, error) {
	var fields mlir.Attrs
	if a, ok := im.op.Attr("window"); ok {
		fields = a.Dict
	}
	var out ir.Attrs
	for _, n := range [][3]string{{"strides", "stride", "window_strides"}, {"padding", "pad", "padding"}, {"base_dilation", "lhs_dilate", "lhs_dilation"},
		{"window_dilation", "rhs_dilate", "rhs_dilation"}, {"reverse", "reverse", "window_reversal"}} {
		a, ok := fields.Get(n[1])
		if !ok {
			a, ok = im.op.Attr(n[2])
		}
		if !ok {
			continue
		}
		l, err := im.m.Ints(a)
		if err != nil {
			return nil, err
		}
		out = out.With(n[0], ir.A(n[0], l)[0].Val)
	}
	return out, nil
}

func convolution(im *importer, _ *mlir.Operation, in []*value) ([]*value, error) {
	args, err := im.irs(in)
	if err != nil {
		return nil, err
	}
	rank := len(sizes(args[0]))
	if rank < 2 || len(sizes(args[1])) != rank {
		return nil, im.errorf("convolution of %s and %s", in[0].typ, in[1].typ)
	}
	ls, err := dimensions.Layouts(im.m.Module, im.op, rank)
	if err != nil {
		return nil, err
	}
	l, err := im.windowAttrs()
	if err != nil {
		return nil, err
	}
	for _, n := range [][2]string{{"groups", "feature_group_count"}, {"batch_groups", "batch_group_count"}} {
		if _, ok := im.op.Attr(n[1]); !ok {
			continue
		}
		k, err := im.integer(n[1])
		if err != nil {
			return nil, err
		}
		if k != 1 {
			l = l.With(n[0], ir.A(n[0], k)[0].Val)
		}
	}
	for i := range args {
		if args[i], err = im.permuted(args[i], ls[i]); err != nil {
			return nil, err
		}
	}
	t, err := im.result(0)
	if err != nil {
		return nil, err
	}
	dt, err := im.resultDType()
	if err != nil || len(t.Shape) != rank {
		return nil, im.errorf("a convolution of %d dimensions gives %s", rank, t)
	}
	shape := make([]int64, rank)
	back := make([]int64, rank)
	for k, d := range ls[2] {
		shape[k], back[d] = max(t.Shape[d], 0), int64(k)
	}
	if slices.Contains(t.Shape, -1) { // as the operands give
		got, err := ir.Infer(ir.OpConvolution, nil, l, []ir.Type{args[0].Type(), args[1].Type()}, ir.Tensor(dt, shape...))
		if err != nil {
			return nil, im.errorf("%v", err)
		}
		shape, _ = got[0].Shape().Static()
	}
	v, err := im.emit(ir.OpConvolution, l, args, ir.Tensor(dt, shape...))
	if err != nil {
		return nil, err
	}
	return im.one(im.permuted(v, back))
}

// selectAndScatter finds the element that each window selects, by a fold over elements, their
// numbers, and whether they are any, which padding is not; then it scatters to the numbers.
func selectAndScatter(im *importer, _ *mlir.Operation, in []*value) ([]*value, error) {
	args, err := im.irs(in)
	if err != nil {
		return nil, err
	}
	x := args[0]
	added, err := im.promoted(1, 0, []*ir.Value{args[2], args[1]})
	if err != nil {
		return nil, err
	}
	init, source := added[0], added[1]
	w := decompose.Window{}
	for _, l := range []struct {
		name string
		to   *[]int64
	}{{"window_dimensions", &w.Dimensions}, {"window_strides", &w.Strides}} {
		if *l.to, err = im.ints(l.name); err != nil {
			return nil, err
		}
	}
	if w.Dimensions == nil { // one element each
		for range sizes(x) {
			w.Dimensions = append(w.Dimensions, 1)
		}
	}
	if w.Padding, err = im.pairs("padding"); err != nil {
		return nil, err
	}
	n, _ := mlir.NumElements(sizes(x))
	at, err := im.emit(ir.OpIota, nil, nil, ir.Tensor(ir.I64, n))
	if err != nil {
		return nil, err
	}
	if at, err = im.viewed(at, sizes(x)); err != nil {
		return nil, err
	}
	full := func(dt ir.DType, c int64, shape []int64) *ir.Value {
		return im.cur.Op(ir.OpFull, nil, ir.A("value", c), nil, ir.Tensor(dt, shape...))[0]
	}
	pick, err := im.body(0)
	if err != nil {
		return nil, err
	}
	add, err := im.body(1)
	if err != nil {
		return nil, err
	}
	xs := []*ir.Value{x, at, full(ir.Bool, 1, sizes(x))}
	inits := []*ir.Value{full(dtypeOf(x), 0, nil), full(ir.I64, -1, nil), full(ir.Bool, 0, nil)}
	selected, err := decompose.ReduceWindow(im.cur, xs, inits, w, selecting(pick))
	if err := im.positioned(err); err != nil {
		return nil, err
	}
	if !slices.Equal(sizes(selected[1]), sizes(source)) {
		return nil, im.errorf("%s windows, %s to scatter", selected[1].Type(), in[1].typ)
	}
	m, _ := mlir.NumElements(sizes(source))
	indices, err := im.viewed(selected[1], []int64{m, 1})
	if err != nil {
		return nil, err
	}
	if source, err = im.viewed(source, []int64{m}); err != nil {
		return nil, err
	}
	if len(sizes(init)) != 0 {
		return nil, im.errorf("the initial value is %s, want a single number", in[2].typ)
	}
	to, err := im.expanded(init, nil, []int64{n})
	if err != nil {
		return nil, err
	}
	out, err := decompose.Scatter(im.cur, []*ir.Value{to}, indices, []*ir.Value{source},
		decompose.ScatterDims{InsertedWindowDims: []int64{0}, ScatterDimsToOperandDims: []int64{0}, IndexVectorDim: 1}, add)
	if err := im.positioned(err); err != nil {
		return nil, err
	}
	v, err := im.viewed(out[0], sizes(x))
	return im.decomposed1(v, err)
}

// selecting chooses between two elements, their numbers and whether they are any.
func selecting(pick decompose.Body) decompose.Body {
	return func(e decompose.Emitter, a []*ir.Value) ([]*ir.Value, error) {
		one := func(o ir.Op, args ...*ir.Value) *ir.Value { return e.Op(o, nil, nil, args)[0] }
		p, err := pick(e, []*ir.Value{a[0], a[3]})
		if err != nil {
			return nil, err
		}
		if len(p) != 1 {
			return nil, fmt.Errorf("the selection gives %d values, want 1", len(p))
		}
		first := one(ir.OpLogicalAnd, a[2], one(ir.OpLogicalOr, p[0], one(ir.OpLogicalNot, a[5])))
		return []*ir.Value{one(ir.OpWhere, first, a[0], a[3]), one(ir.OpWhere, first, a[1], a[4]), one(ir.OpLogicalOr, a[2], a[5])}, nil
	}
}
