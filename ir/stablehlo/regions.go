package stablehlo

import (
	"errors"
	"slices"

	"github.com/seed-ee968945/concert/internal/diag"
	"github.com/seed-ee968945/concert/ir"
	"github.com/seed-ee968945/concert/ir/internal/decompose"
	"github.com/seed-ee968945/concert/ir/stablehlo/mlir"
)

// body is the computation that a region of the operation says, for package decompose: its
// operations compute each element by itself, so that they compute all of a tensor at once.
func (im *importer) body(region int) (decompose.Body, error) {
	o := im.op
	if region >= len(o.Regions) {
		return nil, im.errorf("%s without a body", o.Name)
	}
	b := o.Regions[region]
	return func(e decompose.Emitter, args []*ir.Value) ([]*ir.Value, error) {
		defer func(o *mlir.Operation, cur *stage, vector bool) {
			im.op, im.cur, im.vector = o, cur, vector
		}(im.op, im.cur, im.vector)
		im.cur = &stage{im: im, index: im.cur.index, to: e, have: map[*value]*ir.Value{}}
		im.vector = true
		in := make([]*value, len(args))
		for i, a := range args {
			in[i] = im.value(a)
			if i < len(b.Args) && b.Args[i].Type.Elem != in[i].typ.Elem {
				return nil, im.errorf("argument %d of the body of %s is %s, gets elements of %s", i, o.Name, b.Args[i].Type, in[i].typ.Elem)
			}
		}
		out, err := im.block(b, b.Args, in)
		if err != nil {
			return nil, err
		}
		if out, err = im.flatten(out); err != nil { // HLO's computations give a tuple
			return nil, err
		}
		return im.irs(out)
	}, nil
}

// promoted are values in the element types of the arguments of a region, the first of which is
// the argument of the first of them: one may compute in a wider type of the same kind.
func (im *importer) promoted(region, first int, vs []*ir.Value) ([]*ir.Value, error) {
	if region >= len(im.op.Regions) {
		return vs, nil
	}
	args := im.op.Regions[region].Args
	out := slices.Clone(vs)
	for i, v := range vs {
		if first+i >= len(args) {
			break
		}
		to, err := mlir.ElementType(args[first+i].Type.Elem)
		if from := dtypeOf(v); err != nil || to.Size() < from.Size() || to.IsFloat() != from.IsFloat() || to.IsUnsigned() != from.IsUnsigned() || to == ir.Bool || from == ir.Bool {
			continue
		}
		if out[i], err = im.converted(v, to); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// decomposed are the results of a rule.
func (im *importer) decomposed(vs []*ir.Value, err error) ([]*value, error) {
	if err := im.positioned(err); err != nil {
		return nil, err
	}
	if err := im.check(); err != nil {
		return nil, err
	}
	out := make([]*value, len(vs))
	for i, v := range vs {
		out[i] = im.value(v)
	}
	return out, nil
}

// positioned is an error with a place in the text: its own, as one of a body has, or that
// of the operation.
func (im *importer) positioned(err error) error {
	var f *diag.Finding
	if err == nil {
		return nil
	}
	if errors.As(err, &f) && f.Source == im.m.Source {
		return f
	}
	return im.errorf("%v", err)
}

// halves are operands as two rows of one length, in the element types of the body.
func (im *importer) halves(in []*value) (first, second []*ir.Value, err error) {
	args, err := im.irs(in)
	if err == nil && (len(in) == 0 || len(in)%2 != 0) {
		err = im.errorf("%s of %d operands: want as many initial values as tensors", im.op.Name, len(in))
	}
	if err != nil {
		return nil, nil, err
	}
	n := len(in) / 2
	if first, err = im.promoted(0, 0, args[:n]); err == nil {
		second, err = im.promoted(0, n, args[n:])
	}
	return first, second, err
}

func reduce(im *importer, _ *mlir.Operation, in []*value) ([]*value, error) {
	xs, inits, err := im.halves(in)
	if err != nil {
		return nil, err
	}
	dims, err := im.dims(len(sizes(xs[0])), "dimensions")
	if err != nil {
		return nil, err
	}
	body, err := im.body(0)
	if err != nil {
		return nil, err
	}
	return im.decomposed(decompose.Reduce(im.cur, xs, inits, dims, body))
}

func mapOp(im *importer, _ *mlir.Operation, in []*value) ([]*value, error) {
	args, err := im.irs(in)
	if err != nil {
		return nil, err
	}
	body, err := im.body(0)
	if err != nil {
		return nil, err
	}
	out, err := body(im.cur, args)
	if err != nil {
		return nil, err
	}
	if len(out) != 1 || len(args) == 0 {
		return nil, im.errorf("map of %d operands to %d results", len(args), len(out))
	}
	if !slices.Equal(sizes(out[0]), sizes(args[0])) {
		return im.one(im.expanded(out[0], nil, sizes(args[0])))
	}
	return im.one(out[0], nil)
}

func reduceWindow(im *importer, _ *mlir.Operation, in []*value) ([]*value, error) {
	xs, inits, err := im.halves(in)
	if err != nil {
		return nil, err
	}
	var w decompose.Window
	for _, l := range []struct {
		name string
		to   *[]int64
	}{{"window_dimensions", &w.Dimensions}, {"window_strides", &w.Strides}, {"base_dilations", &w.BaseDilations}, {"window_dilations", &w.WindowDilations}} {
		if *l.to, err = im.ints(l.name); err != nil {
			return nil, err
		}
	}
	if w.Padding, err = im.pairs("padding"); err != nil {
		return nil, err
	}
	body, err := im.body(0)
	if err != nil {
		return nil, err
	}
	return im.decomposed(decompose.ReduceWindow(im.cur, xs, inits, w, body))
}

// pairs are the numbers of an attribute two by two; nil where it is absent.
func (im *importer) pairs(name string) ([][2]int64, error) {
	l, err := im.ints(name)
	if err != nil {
		return nil, err
	}
	if len(l)%2 != 0 {
		return nil, im.errorf("%s: %d numbers, want pairs", name, len(l))
	}
	var out [][2]int64
	for i := 0; i < len(l); i += 2 {
		out = append(out, [2]int64{l[i], l[i+1]})
	}
	return out, nil
}

func sortOp(im *importer, _ *mlir.Operation, in []*value) ([]*value, error) {
	xs, err := im.irs(in)
	if err != nil {
		return nil, err
	}
	if len(xs) == 0 {
		return nil, im.errorf("sort without operands")
	}
	d := int64(len(sizes(xs[0])) - 1)
	if _, ok := im.op.Attr("dimension"); ok {
		if d, err = im.integer("dimension"); err != nil {
			return nil, err
		}
	}
	if d < 0 {
		d += int64(len(sizes(xs[0])))
	}
	body, err := im.body(0)
	if err != nil {
		return nil, err
	}
	return im.decomposed(decompose.Sort(im.cur, xs, d, body))
}

// numbers reads the fields of dimension numbers into lists.
func (im *importer) numbers(attr string, lists map[string]*[]int64) error {
	a, ok := im.op.Attr(attr)
	if !ok {
		return im.errorf("%s without %s", im.op.Name, attr)
	}
	fields, err := im.m.Fields(a)
	if err != nil {
		return err
	}
	for _, f := range fields {
		if to := lists[f.Name]; to != nil {
			if *to, err = im.m.Ints(f.Val); err != nil {
				return err
			}
		}
	}
	return nil
}

func gather(im *importer, _ *mlir.Operation, in []*value) ([]*value, error) {
	if len(in) < 2 {
		return nil, im.errorf("%s takes two operands or three", im.op.Name)
	}
	args, err := im.irs(in[:2])
	if err != nil {
		return nil, err
	}
	var d decompose.GatherDims
	var vector []int64
	if err := im.numbers("dimension_numbers", map[string]*[]int64{"offset_dims": &d.OffsetDims, "collapsed_slice_dims": &d.CollapsedSliceDims,
		"operand_batching_dims": &d.OperandBatchingDims, "start_indices_batching_dims": &d.StartIndicesBatchingDims,
		"start_index_map": &d.StartIndexMap, "index_vector_dim": &vector}); err != nil {
		return nil, err
	}
	if len(vector) > 0 {
		d.IndexVectorDim = vector[0]
	}
	if d.SliceSizes, err = im.sizesOf(in, 2, "slice_sizes"); err != nil {
		return nil, err
	}
	return im.decomposed1(decompose.Gather(im.cur, args[0], args[1], d))
}

// sizesOf are numbers that an attribute has, or an operand that is a constant.
func (im *importer) sizesOf(in []*value, operand int, name string) ([]int64, error) {
	if len(in) <= operand {
		return im.ints(name)
	}
	l, err := im.literal(in[operand], name)
	if err != nil {
		return nil, err
	}
	if n, _ := mlir.NumElements(l.Shape); l.DType.IsFloat() || n > mlir.MaxRank {
		return nil, im.errorf("%s is %s, want at most %d whole numbers", name, in[operand].typ, mlir.MaxRank)
	}
	return l.Ints(), nil
}

// decomposed1 is decomposed of one value.
func (im *importer) decomposed1(v *ir.Value, err error) ([]*value, error) {
	return im.decomposed([]*ir.Value{v}, err)
}

func scatter(im *importer, _ *mlir.Operation, in []*value) ([]*value, error) {
	args, err := im.irs(in)
	if err != nil {
		return nil, err
	}
	n := len(args) / 2
	if len(args) != 2*n+1 || n == 0 {
		return nil, im.errorf("scatter of %d operands: want tensors, indices, and as many updates", len(args))
	}
	var d decompose.ScatterDims
	var vector []int64
	if err := im.numbers("scatter_dimension_numbers", map[string]*[]int64{"update_window_dims": &d.UpdateWindowDims, "inserted_window_dims": &d.InsertedWindowDims,
		"input_batching_dims": &d.InputBatchingDims, "scatter_indices_batching_dims": &d.ScatterIndicesBatchingDims,
		"scatter_dims_to_operand_dims": &d.ScatterDimsToOperandDims, "index_vector_dim": &vector}); err != nil {
		return nil, err
	}
	if len(vector) > 0 {
		d.IndexVectorDim = vector[0]
	}
	if a, ok := im.op.Attr("unique_indices"); ok {
		d.UniqueIndices = a.Text == "true"
	}
	d.Entire = im.flag("concert.entire") // of HLO
	body, err := im.body(0)
	if err != nil {
		return nil, err
	}
	xs, err := im.promoted(0, 0, args[:n])
	if err != nil {
		return nil, err
	}
	updates, err := im.promoted(0, n, args[n+1:])
	if err != nil {
		return nil, err
	}
	return im.decomposed(decompose.Scatter(im.cur, xs, args[n], updates, d, body))
}

func pad(im *importer, _ *mlir.Operation, in []*value) ([]*value, error) {
	args, err := im.irs(in)
	if err != nil {
		return nil, err
	}
	var widths [3][]int64
	for i, names := range [][]string{{"low", "edge_padding_low"}, {"high", "edge_padding_high"}, {"interior", "interior_padding"}} {
		if widths[i], err = im.ints(names...); err != nil {
			return nil, err
		}
	}
	return im.decomposed1(decompose.Pad(im.cur, args[0], args[1], widths[0], widths[1], widths[2]))
}

func reverse(im *importer, _ *mlir.Operation, in []*value) ([]*value, error) {
	x, err := im.ir(in[0])
	if err != nil {
		return nil, err
	}
	dims, err := im.dims(len(sizes(x)), "dims", "dimensions")
	if err != nil {
		return nil, err
	}
	return im.decomposed1(decompose.Reverse(im.cur, x, dims))
}

// starts are where a slice begins, moved so that it lies within a tensor, if all are constants.
func starts(in []*value, shape, slice []int64) ([]int64, bool) {
	var out []int64
	for d, v := range in {
		n, ok := v.known()
		if !ok || d >= len(shape) || d >= len(slice) || slice[d] > shape[d] {
			return nil, false
		}
		if v.lit.DType == ir.U64 && n < 0 {
			n = shape[d]
		}
		out = append(out, min(max(n, 0), shape[d]-slice[d]))
	}
	return out, len(out) == len(shape) && len(slice) == len(shape)
}

func dynamicSlice(im *importer, _ *mlir.Operation, in []*value) ([]*value, error) {
	if len(in) == 0 {
		return nil, im.errorf("%s without operands", im.op.Name)
	}
	shape, err := im.ints("sizes", "slice_sizes")
	if err != nil {
		return nil, err
	}
	if at, ok := starts(in[1:], in[0].typ.Shape, shape); ok {
		x, err := im.ir(in[0])
		if err != nil {
			return nil, err
		}
		b := [3][]int64{at, make([]int64, len(at)), make([]int64, len(at))}
		for d := range at {
			b[1][d], b[2][d] = at[d]+shape[d], 1
		}
		return im.cut(x, b)
	}
	if out, err := im.shard(in[0], in[1:], shape); out != nil || err != nil {
		return out, err
	}
	args, err := im.irs(in)
	if err != nil {
		return nil, err
	}
	return im.decomposed1(decompose.DynamicSlice(im.cur, args[0], args[1:], shape))
}

func dynamicUpdateSlice(im *importer, _ *mlir.Operation, in []*value) ([]*value, error) {
	if len(in) < 2 {
		return nil, im.errorf("%s of %d operands", im.op.Name, len(in))
	}
	part := in[1].typ.Shape
	if at, ok := starts(in[2:], in[0].typ.Shape, part); ok {
		dim, differ := 0, 0
		for d, n := range in[0].typ.Shape {
			if part[d] != n {
				dim, differ = d, differ+1
			}
		}
		if differ == 1 { // a slice along one dimension
			args, err := im.irs(in[:2])
			if err != nil {
				return nil, err
			}
			return im.one(im.emit(ir.OpSliceScatter, ir.A("dim", int64(dim), "start", at[dim], "end", at[dim]+part[dim]), args))
		}
	}
	args, err := im.irs(in)
	if err != nil {
		return nil, err
	}
	return im.decomposed1(decompose.DynamicUpdateSlice(im.cur, args[0], args[1], args[2:]))
}
