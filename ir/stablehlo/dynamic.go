package stablehlo

import (
	"fmt"
	"slices"

	"github.com/seed-ee968945/concert/ir/internal/decompose"
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
	n, _ := elements(l.Shape)
	if l.DType.IsFloat() || len(l.Shape) != 1 || n != int64(len(t.Shape)) {
		return im.errorf("a shape of type %s for a result of type %s", v.typ, t)
	}
	shape := l.ints()
	for i, d := range t.Shape {
		if shape[i] < 0 || d >= 0 && d != shape[i] {
			return im.errorf("the shape is %v, declared is %s", shape, t)
		}
	}
	o := *im.op
	o.outs = slices.Clone(o.outs)
	o.outs[0].Shape = shape
	im.op = &o
	return nil
}

// dynamic imports an operation whose last operand is the shape of its result.
func dynamic(f func(*importer, *op, []*value) ([]*value, error)) func(*importer, *op, []*value) ([]*value, error) {
	return func(im *importer, _ *op, in []*value) ([]*value, error) {
		last := len(in) - 1
		if last < 0 {
			return nil, im.errorf("%s without a shape", im.op.name)
		}
		if err := im.refine(in[last]); err != nil {
			return nil, err
		}
		return f(im, im.op, in[:last])
	}
}

// dynamicPad is a padding whose widths are operands that are constants.
func dynamicPad(im *importer, _ *op, in []*value) ([]*value, error) {
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
func realDynamicSlice(im *importer, _ *op, in []*value) ([]*value, error) {
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

func realPart(_ *importer, _ *op, in []*value) ([]*value, error) { return in, nil }

// imaginaryPart of a real number is zero.
func imaginaryPart(im *importer, _ *op, in []*value) ([]*value, error) {
	t, err := im.tensorType(in[0].typ)
	if err != nil {
		return nil, im.errorf("%v", err)
	}
	return []*value{literalValue(&Literal{DType: t.DType(), Shape: in[0].typ.Shape, Splat: true, Data: make([]byte, t.DType().Size())})}, nil
}
