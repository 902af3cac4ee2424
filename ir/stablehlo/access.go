package stablehlo

import (
	"strings"

	"github.com/seed-ee968945/concert/ir"
	"github.com/seed-ee968945/concert/ir/stablehlo/internal/dimensions"
	"github.com/seed-ee968945/concert/ir/stablehlo/mlir"
)

// This file reads the attributes of operations, under the names of the generic form and of
// the forms that dialects print.

// ints are the numbers of an attribute that has one of some names; nil where it is absent.
func (im *importer) ints(names ...string) ([]int64, error) {
	a, ok := im.op.Attr(names...)
	if !ok {
		return nil, nil
	}
	return im.m.Ints(a)
}

// integer is the number of an attribute that has one of some names, and must be there.
func (im *importer) integer(names ...string) (int64, error) {
	a, ok := im.op.Attr(names...)
	if !ok {
		return 0, im.errorf("%s without %s", im.op.Name, names[0])
	}
	return im.m.Integer(a)
}

// dims are the numbers of an attribute that has one of some names: dimensions below rank,
// each once.
func (im *importer) dims(rank int, names ...string) ([]int64, error) {
	l, err := im.ints(names...)
	if err != nil {
		return nil, err
	}
	return l, im.checkDims(l, rank, names[0])
}

func (im *importer) checkDims(l []int64, rank int, what string) error {
	return dimensions.Check(im.m.Module, im.op, l, rank, what)
}

// dim is a dimension below rank.
func (im *importer) dim(rank int, names ...string) (int64, error) {
	d, err := im.integer(names...)
	if err == nil && (d < 0 || d >= int64(rank)) {
		err = im.errorf("%s = %d: there are %d dimensions", names[0], d, rank)
	}
	return d, err
}

// enum is an enumerated attribute such as LT, which stands by itself, under a name, or as
// #stablehlo<comparison_direction LT>; empty if it is absent.
func (im *importer) enum(name string, flag int) string {
	if a, ok := im.op.Attr(name); ok {
		switch a.Kind {
		case mlir.KindOpaque:
			body := strings.Fields(im.m.Source.Text[a.Start:a.End])
			if len(body) > 0 {
				return body[len(body)-1]
			}
		default:
			return a.Text
		}
	}
	if flag >= 0 && flag < len(im.op.Flags) && im.op.Flags[flag].Kind == mlir.KindWord {
		return im.op.Flags[flag].Text
	}
	return ""
}

// literal is the constant that a value is.
func (im *importer) literal(v *value, what string) (*mlir.Literal, error) {
	if v.lit == nil {
		return nil, im.errorf("%s of %s is not a constant", what, im.op.Name)
	}
	return v.lit, nil
}

// result is the declared type of a result.
func (im *importer) result(i int) (mlir.Type, error) {
	if i >= len(im.op.Outs) || !im.op.Outs[i].Tensor {
		return mlir.Type{}, im.errorf("%s does not declare the type of result %d", im.op.Name, i)
	}
	return im.op.Outs[i], nil
}

// resultDType is the declared element type of the first result.
func (im *importer) resultDType() (ir.DType, error) {
	t, err := im.result(0)
	if err != nil {
		return 0, err
	}
	dt, err := mlir.ElementType(t.Elem)
	if err != nil {
		return 0, im.errorf("%v", err)
	}
	return dt, nil
}

// typedArgs are the operands, and the declared element type of the first result.
func (im *importer) typedArgs(in []*value) ([]*ir.Value, ir.DType, error) {
	dt, err := im.resultDType()
	if err != nil {
		return nil, 0, err
	}
	args, err := im.irs(in)
	return args, dt, err
}
