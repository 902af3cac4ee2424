package stablehlo

import (
	"strings"

	"github.com/seed-ee968945/concert/ir"
	"github.com/seed-ee968945/concert/ir/internal/decompose"
	"github.com/seed-ee968945/concert/ir/stablehlo/mlir"
)

// This file imports the algorithm that a product asks for. Operands are rounded to the types that
// it names, and the sum to the type in which it is accumulated: both are part of what the program
// computes. Algorithms of several components and products come near to wider types, which products
// here have anyway; precision = [DEFAULT, HIGHEST] only says how much may be lost, which is nothing.

// algorithm is what a product computes with.
type algorithm struct {
	sides [2]string // types to which operands are rounded; empty: as they are
	sum   ir.DType  // of the sum; Invalid: that of the result
}

// algorithms reads the attribute, a structure or a name of HLO's; nil where there is none.
func (im *importer) algorithms() (*algorithm, error) {
	a, ok := im.op.Attr("algorithm")
	if !ok {
		return nil, nil
	}
	var types [3]string
	single := true
	if a.Kind == mlir.KindString {
		if a.Text == "unset" {
			return nil, nil
		}
		if types, single, ok = named(a.Text); !ok {
			return nil, im.errorf("op not supported: algorithm %s", a.Text)
		}
	} else {
		fields, err := im.m.Fields(a)
		if err != nil {
			return nil, err
		}
		for i, name := range []string{"lhs_precision_type", "rhs_precision_type", "accumulation_type"} {
			if types[i], ok = im.typeName(fields, name); !ok {
				return nil, im.errorf("algorithm without %s", name)
			}
		}
		for _, name := range []string{"lhs_component_count", "rhs_component_count", "num_primitive_operations"} {
			if n, ok := fields.Get(name); ok && n.Text != "1" {
				single = false
			}
		}
	}
	out := &algorithm{}
	if single {
		out.sides = [2]string(types[:2])
	}
	var err error
	if out.sum, err = mlir.ElementType(types[2]); err != nil {
		return nil, im.errorf("op not supported: algorithm that accumulates in %s", types[2])
	}
	return out, nil
}

// typeName is the name of a type in a structure.
func (im *importer) typeName(fields mlir.Attrs, name string) (string, bool) {
	v, ok := fields.Get(name)
	if ok && v.Kind == mlir.KindTyped {
		return v.Type.String(), true
	}
	return v.Text, ok
}

// named are the types of dot_bf16_bf16_f32 and its like: of both operands and of the sum. single
// is false of _x3 and more, which approximate a wider type.
func named(name string) (types [3]string, single, ok bool) {
	name, ok = strings.CutPrefix(name, "dot_")
	name, _ = strings.CutSuffix(name, "_fast_accum")
	parts := strings.Split(strings.ReplaceAll(name, "any_f8", "any"), "_")
	single = len(parts) == 3
	if !ok || len(parts) < 3 || len(parts) > 4 || len(parts) == 4 && parts[3][0] != 'x' {
		return types, false, false
	}
	for i := range types {
		if types[i] = parts[i]; i < 2 && parts[i] == "any" {
			types[i] = ""
		}
	}
	return types, single, true
}

// algorithmic are the operands of a product as its algorithm has them, and the type of the sum.
func (im *importer) algorithmic(args []*ir.Value, dt ir.DType) ([]*ir.Value, ir.DType, error) {
	a, err := im.algorithms()
	if err != nil || a == nil || !dtypeOf(args[0]).IsFloat() || !dtypeOf(args[1]).IsFloat() {
		return args, dt, err
	}
	out := make([]*ir.Value, len(args))
	for i, v := range args {
		if v, err = im.roundedTo(v, a.sides[i]); err == nil && a.sum == ir.F64 {
			v, err = im.converted(v, ir.F64)
		}
		if out[i] = v; err != nil {
			return nil, dt, err
		}
	}
	if a.sum == ir.F64 || a.sum.Size() < dt.Size() {
		dt = a.sum
	}
	return out, dt, nil
}

// roundedTo is a value in the precision of a type, if that is less than its own.
func (im *importer) roundedTo(v *ir.Value, to string) (*ir.Value, error) {
	switch {
	case to == "":
		return v, nil
	case to == "tf32":
		if dtypeOf(v).Size() < 4 {
			return v, nil
		}
		v, err := im.converted(v, ir.F32)
		if err != nil {
			return nil, err
		}
		return decompose.ReducePrecision(im.cur, v, 8, 10)
	}
	dt, err := mlir.ElementType(to)
	if err != nil || !dt.IsFloat() {
		return nil, im.errorf("op not supported: algorithm whose operands are of type %s", to)
	}
	if dt.Size() > dtypeOf(v).Size() {
		return v, nil
	}
	return im.converted(v, dt)
}
