package stablehlo

import (
	"fmt"
	"slices"
	"strconv"

	"github.com/seed-ee968945/concert/ir/internal/decompose"
	"github.com/seed-ee968945/concert/ir/stablehlo/mlir"
)

// This file imports operations whose shape is an operand that is a constant, and parts of
// complex numbers that real ones are.

// refine fills the sizes that the declared type of the result leaves open with those of an
// operand that is a constant.
func (im *importer) refine(v *value) error {
	l, err := im.literal(v, "the shape")
	if err != nil {
		return err
	}
	t, err := im.result(0)
	if err != nil {
		return err
	}
	n, _ := mlir.NumElements(l.Shape)
	if l.DType.IsFloat() || len(l.Shape) != 1 || n != int64(len(t.Shape)) {
		return im.errorf("a shape of type %s for a result of type %s", v.typ, t)
	}
	shape := l.Ints()
	for i, d := range t.Shape {
		if shape[i] < 0 || d >= 0 && d != shape[i] {
			return im.errorf("the shape is %v, declared is %s", shape, t)
		}
	}
	o := *im.op
	o.Outs = slices.Clone(o.Outs)
	o.Outs[0].Shape = shape
	im.op = &o
	return nil
}

// dynamic imports an operation whose last operand is the shape of its result.
func dynamic(f func(*importer, *mlir.Operation, []*value) ([]*value, error)) func(*importer, *mlir.Operation, []*value) ([]*value, error) {
	return func(im *importer, _ *mlir.Operation, in []*value) ([]*value, error) {
		last := len(in) - 1
		if last < 0 {
			return nil, im.errorf("%s without a shape", im.op.Name)
		}
		if err := im.refine(in[last]); err != nil {
			return nil, err
		}
		return f(im, im.op, in[:last])
	}
}

// dynamicPad is a padding whose widths are operands that are constants.
func dynamicPad(im *importer, _ *mlir.Operation, in []*value) ([]*value, error) {
	args, err := im.irs(in[:2])
	if err != nil {
		return nil, err
	}
	var widths [3][]int64
	for i := range widths {
		if widths[i], err = im.sizesOf(in, 2+i, fmt.Sprintf("operand %d", 2+i)); err != nil {
			return nil, err
		}
	}
	return im.decomposed1(decompose.Pad(im.cur, args[0], args[1], widths[0], widths[1], widths[2]))
}

// realDynamicSlice is a slice whose bounds are operands that are constants.
func realDynamicSlice(im *importer, _ *mlir.Operation, in []*value) ([]*value, error) {
	x, err := im.ir(in[0])
	if err != nil {
		return nil, err
	}
	var b [3][]int64
	for i := range b {
		if b[i], err = im.sizesOf(in, 1+i, fmt.Sprintf("operand %d", 1+i)); err != nil {
			return nil, err
		}
	}
	return im.cut(x, b)
}

// dynamicConv is a convolution whose padding is an operand that is a constant.
func dynamicConv(im *importer, _ *mlir.Operation, in []*value) ([]*value, error) {
	l, err := im.literal(in[2], "the padding")
	if err != nil {
		return nil, err
	}
	if n, _ := mlir.NumElements(l.Shape); l.DType.IsFloat() || n > 2*mlir.MaxRank {
		return nil, im.errorf("a padding of type %s", in[2].typ)
	}
	var list mlir.Attr
	list.Kind = mlir.KindList
	for _, n := range l.Ints() {
		list.List = append(list.List, mlir.Attr{Kind: mlir.KindNumber, Text: strconv.FormatInt(n, 10), At: im.op.At})
	}
	o := *im.op
	o.Attrs = append(slices.Clone(o.Attrs), mlir.Named{Name: "padding", Val: list})
	im.op = &o
	return convolution(im, im.op, in[:2])
}

// repeated puts dimensions of its own in front of those of the operand.
func repeated(im *importer, _ *mlir.Operation, in []*value) ([]*value, error) {
	front, err := im.ints("broadcast_sizes", "sizes")
	if err != nil {
		return nil, err
	}
	x, err := im.ir(in[0])
	if err != nil {
		return nil, err
	}
	var dims []int64
	for d := range sizes(x) {
		dims = append(dims, int64(d+len(front)))
	}
	return im.one(im.expanded(x, dims, slices.Concat(front, sizes(x))))
}

// constantLike is a tensor of one number, of the type of the operand.
func constantLike(im *importer, o *mlir.Operation, in []*value) ([]*value, error) {
	a, ok := o.Attr("value")
	t, err := im.tensorType(in[0].typ)
	if err != nil || !ok || a.Kind != mlir.KindNumber {
		return nil, im.errorf("%s of type %s: want a number", o.Name, in[0].typ)
	}
	b := make([]byte, t.DType().Size())
	if err := mlir.StoreElement(b, t.DType(), a.Text); err != nil {
		return nil, im.errorf("%v", err)
	}
	return []*value{literalValue(&mlir.Literal{DType: t.DType(), Shape: in[0].typ.Shape, Splat: true, Data: b})}, nil
}

// dot is a product of vectors and matrices.
func dot(im *importer, _ *mlir.Operation, in []*value) ([]*value, error) {
	args, dt, err := im.typedArgs(in)
	if err != nil {
		return nil, err
	}
	last := int64(len(sizes(args[0])) - 1)
	if last < 0 || last > 1 || len(sizes(args[1])) < 1 || len(sizes(args[1])) > 2 || sizes(args[0])[last] != sizes(args[1])[0] {
		return nil, im.errorf("dot of %s and %s", in[0].typ, in[1].typ)
	}
	l, err := im.sideOf(args[0], nil, []int64{last})
	if err != nil {
		return nil, err
	}
	r, err := im.sideOf(args[1], nil, []int64{0})
	if err != nil {
		return nil, err
	}
	return im.one(im.product(l, r, dt))
}

// broadcasting repeats operands to one shape before it imports what an operation of chlo
// does with them: as NumPy does, or with the dimensions of the smaller one as named.
func broadcasting(f rule) func(*importer, *mlir.Operation, []*value) ([]*value, error) {
	return func(im *importer, o *mlir.Operation, in []*value) ([]*value, error) {
		rank := 0
		for _, v := range in {
			rank = max(rank, len(v.typ.Shape))
		}
		dims, err := im.dims(rank, "broadcast_dimensions")
		if err != nil {
			return nil, err
		}
		to := slices.Clone(in)
		for i, v := range in {
			n := len(v.typ.Shape)
			if n == rank || n == 0 || dims == nil || len(dims) != n {
				continue
			}
			shape := make([]int64, rank)
			for d := range shape {
				shape[d] = 1
			}
			for k, d := range dims {
				shape[d] = v.typ.Shape[k]
			}
			x, err := im.ir(v)
			if err != nil {
				return nil, err
			}
			if x, err = im.expanded(x, dims, shape); err != nil {
				return nil, err
			}
			to[i] = im.value(x)
		}
		if f.args >= 0 && len(to) != f.args {
			return nil, im.errorf("%s takes %d operands, got %d", o.Name, f.args, len(to))
		}
		return f.run(im, o, to)
	}
}

func realPart(_ *importer, _ *mlir.Operation, in []*value) ([]*value, error) { return in, nil }

// imaginaryPart of a real number is zero.
func imaginaryPart(im *importer, _ *mlir.Operation, in []*value) ([]*value, error) {
	t, err := im.tensorType(in[0].typ)
	if err != nil {
		return nil, im.errorf("%v", err)
	}
	return []*value{literalValue(&mlir.Literal{DType: t.DType(), Shape: in[0].typ.Shape, Splat: true, Data: make([]byte, t.DType().Size())})}, nil
}
