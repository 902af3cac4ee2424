package stablehlo

import (
	"slices"

	"github.com/seed-ee968945/concert/ir"
	"github.com/seed-ee968945/concert/ir/stablehlo/mlir"
)

// sizes are the static sizes of a value.
func sizes(v *ir.Value) []int64 {
	s, _ := v.Type().Shape().Static()
	return s
}

// viewed is a value under another shape: without a copy where its layout allows that.
func (im *importer) viewed(v *ir.Value, shape []int64) (*ir.Value, error) {
	if slices.Equal(sizes(v), shape) {
		return v, nil
	}
	t := ir.TensorOf(dtypeOf(v), ir.Dims(shape...))
	if _, err := ir.Infer(ir.OpView, nil, nil, []ir.Type{v.Type()}, t); err != nil && !v.Type().Contiguous() {
		if v, err = im.emit(ir.OpClone, nil, []*ir.Value{v}); err != nil {
			return nil, err
		}
	}
	return im.emit(ir.OpView, nil, []*ir.Value{v}, t)
}

// permuted is a value with its dimensions in another order.
func (im *importer) permuted(v *ir.Value, dims []int64) (*ir.Value, error) {
	if slices.IsSorted(dims) {
		return v, nil
	}
	return im.emit(ir.OpPermute, ir.A("dims", dims), []*ir.Value{v})
}

// sliced is a value with indices start, start+step, ... below end of a dimension.
func (im *importer) sliced(v *ir.Value, dim int, start, end, step int64) (*ir.Value, error) {
	if start == 0 && end == sizes(v)[dim] && step == 1 {
		return v, nil
	}
	return im.emit(ir.OpSlice, ir.A("dim", int64(dim), "start", start, "end", end, "step", step), []*ir.Value{v})
}

// expanded is a value whose dimensions are dims of a shape, repeated along the others.
func (im *importer) expanded(v *ir.Value, dims, shape []int64) (*ir.Value, error) {
	order := make([]int64, len(dims))
	for i := range order {
		order[i] = int64(i)
	}
	slices.SortFunc(order, func(a, b int64) int { return int(dims[a] - dims[b]) })
	v, err := im.permuted(v, order)
	if err != nil {
		return nil, err
	}
	ones := make([]int64, len(shape))
	for i := range ones {
		ones[i] = 1
	}
	for i, k := range order {
		ones[dims[k]] = sizes(v)[i]
	}
	if v, err = im.viewed(v, ones); err != nil || slices.Equal(ones, shape) {
		return v, err
	}
	return im.emit(ir.OpExpand, nil, []*ir.Value{v}, ir.TensorOf(dtypeOf(v), ir.Dims(shape...)))
}

// alone is an operation on shapes that in a body, which is computed on whole tensors, may only have one
// element, and is that element.
func alone(f func(*importer, *mlir.Operation, []*value) ([]*value, error)) func(*importer, *mlir.Operation, []*value) ([]*value, error) {
	return func(im *importer, o *mlir.Operation, in []*value) ([]*value, error) {
		if !im.vector {
			return f(im, o, in)
		}
		t, err := im.result(0)
		if err != nil {
			return nil, err
		}
		if n, ok := mlir.NumElements(t.Shape); !ok || n != 1 || slices.Contains(t.Shape, -1) {
			return nil, im.errorf("op not supported: %s of %s in a body that is computed on whole tensors", o.Name, t)
		}
		return in, nil
	}
}

func iotaOp(im *importer, _ *mlir.Operation, _ []*value) ([]*value, error) {
	t, err := im.result(0)
	if err != nil {
		return nil, err
	}
	dt, err := im.tensorType(t)
	if err != nil {
		return nil, im.errorf("%v", err)
	}
	d, err := im.dim(len(t.Shape), "dim", "iota_dimension")
	if err != nil {
		return nil, err
	}
	v, err := im.emit(ir.OpIota, nil, nil, ir.Tensor(dt.DType(), t.Shape[d]))
	if err != nil {
		return nil, err
	}
	return im.one(im.expanded(v, []int64{d}, t.Shape))
}

func broadcast(im *importer, _ *mlir.Operation, in []*value) ([]*value, error) {
	t, err := im.result(0)
	if err != nil {
		return nil, err
	}
	dims, err := im.dims(len(t.Shape), "dims", "broadcast_dimensions")
	if err != nil {
		return nil, err
	}
	if len(dims) != len(in[0].typ.Shape) {
		return nil, im.errorf("%d dims for an operand of %d dimensions", len(dims), len(in[0].typ.Shape))
	}
	if l := in[0].lit; l != nil && l.Splat {
		return []*value{literalValue(&mlir.Literal{DType: l.DType, Shape: t.Shape, Splat: true, Data: l.Data})}, nil
	}
	v, err := im.ir(in[0])
	if err != nil {
		return nil, err
	}
	for i, d := range dims {
		if n := sizes(v)[i]; n != 1 && n != t.Shape[d] {
			return nil, im.errorf("dimension %d of %s does not broadcast to dimension %d of %s", i, in[0].typ, d, t)
		}
	}
	return im.one(im.expanded(v, dims, t.Shape))
}

func reshape(im *importer, _ *mlir.Operation, in []*value) ([]*value, error) {
	t, err := im.result(0)
	if err != nil {
		return nil, err
	}
	a, _ := mlir.NumElements(t.Shape)
	if b, _ := mlir.NumElements(in[0].typ.Shape); a != b {
		return nil, im.errorf("reshape of %s to %s", in[0].typ, t)
	}
	if l := in[0].lit; l != nil {
		return []*value{literalValue(&mlir.Literal{DType: l.DType, Shape: t.Shape, Splat: l.Splat, Data: l.Data})}, nil
	}
	v, err := im.ir(in[0])
	if err != nil {
		return nil, err
	}
	return im.one(im.viewed(v, t.Shape))
}

func transpose(im *importer, _ *mlir.Operation, in []*value) ([]*value, error) {
	v, err := im.ir(in[0])
	if err != nil {
		return nil, err
	}
	dims, err := im.dims(len(sizes(v)), "dims", "permutation")
	if err != nil {
		return nil, err
	}
	if len(dims) != len(sizes(v)) {
		return nil, im.errorf("%d dims for an operand of %d dimensions", len(dims), len(sizes(v)))
	}
	return im.one(im.permuted(v, dims))
}

// bounds are start, limit and stride of each dimension of a slice.
func (im *importer) bounds(o *mlir.Operation) ([3][]int64, error) {
	var b [3][]int64
	if a, ok := o.Attr("ranges"); ok {
		for _, r := range a.List {
			n, err := im.m.Ints(r)
			if err != nil {
				return b, err
			}
			if len(n) == 2 {
				n = append(n, 1)
			}
			if len(n) != 3 {
				return b, im.errorf("a range of %d numbers, want start:limit or start:limit:stride", len(n))
			}
			for i := range b {
				b[i] = append(b[i], n[i])
			}
		}
	} else {
		for i, name := range []string{"start_indices", "limit_indices", "strides"} {
			var err error
			if b[i], err = im.ints(name); err != nil {
				return b, err
			}
		}
	}
	return b, nil
}

func slice(im *importer, o *mlir.Operation, in []*value) ([]*value, error) {
	b, err := im.bounds(o)
	if err != nil {
		return nil, err
	}
	if l := in[0].lit; l != nil && len(l.Shape) == 1 && l.Shape[0] <= mlir.MaxRank && len(b[0]) == 1 && len(b[1]) == 1 && len(b[2]) == 1 && !l.DType.IsFloat() {
		if first, end := b[0][0], b[1][0]; b[2][0] == 1 && first >= 0 && first <= end && end <= l.Shape[0] { // of a shape
			size := int64(l.DType.Size())
			return []*value{literalValue(&mlir.Literal{DType: l.DType, Shape: []int64{end - first}, Data: slices.Clone(l.Expand()[first*size : end*size])})}, nil
		}
	}
	v, err := im.ir(in[0])
	if err != nil {
		return nil, err
	}
	return im.cut(v, b)
}

// cut is a value between bounds: start, limit and stride of each dimension.
func (im *importer) cut(v *ir.Value, b [3][]int64) ([]*value, error) {
	var err error
	for i, n := range sizes(v) {
		if len(b[0]) != len(sizes(v)) || len(b[1]) != len(b[0]) || len(b[2]) != len(b[0]) {
			return nil, im.errorf("a slice of %d dimensions of %d", len(b[0]), len(sizes(v)))
		}
		if b[0][i] < 0 || b[1][i] < b[0][i] || b[1][i] > n || b[2][i] < 1 {
			return nil, im.errorf("slice %d:%d:%d of a dimension of %d", b[0][i], b[1][i], b[2][i], n)
		}
		if v, err = im.sliced(v, i, b[0][i], b[1][i], b[2][i]); err != nil {
			return nil, err
		}
	}
	return im.one(v, nil)
}

func concatenate(im *importer, _ *mlir.Operation, in []*value) ([]*value, error) {
	args, err := im.irs(in)
	if err != nil {
		return nil, err
	}
	if len(args) == 0 {
		return nil, im.errorf("concatenate without operands")
	}
	d, err := im.dim(len(sizes(args[0])), "dim", "dimension")
	if err != nil {
		return nil, err
	}
	return im.one(im.emit(ir.OpCat, ir.A("dim", d), args))
}

// setDimensionSize leaves the first elements of a dimension, of which the others count as padding. How
// many does not depend on a run.
func setDimensionSize(im *importer, o *mlir.Operation, in []*value) ([]*value, error) {
	d, err := im.dim(len(in[0].typ.Shape), "dim", "dimension")
	if err != nil {
		return nil, err
	}
	n, ok := in[1].known()
	switch {
	case !ok:
		return nil, im.errorf("op not supported: %s to a size that is not known before the program runs", o.Name)
	case n < 0 || n > in[0].typ.Shape[d]:
		return nil, im.errorf("%s to %d of the %d elements of dimension %d", o.Name, n, in[0].typ.Shape[d], d)
	case n == in[0].typ.Shape[d]:
		return in[:1], nil
	}
	v, err := im.first(in[0], int(d), n)
	return []*value{v}, err
}

func dimensionSize(im *importer, _ *mlir.Operation, in []*value) ([]*value, error) {
	d, err := im.dim(len(in[0].typ.Shape), "dim", "dimension")
	if err != nil {
		return nil, err
	}
	n := in[0].typ.Shape[d]
	return []*value{literalValue(&mlir.Literal{DType: ir.I32, Splat: true, Data: []byte{byte(n), byte(n >> 8), byte(n >> 16), byte(n >> 24)}})}, nil
}
