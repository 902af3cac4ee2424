package stablehlo

import (
	"github.com/seed-ee968945/concert/ir"
	"github.com/seed-ee968945/concert/ir/internal/decompose"
	"github.com/seed-ee968945/concert/ir/stablehlo/internal/dimensions"
	"github.com/seed-ee968945/concert/ir/stablehlo/mlir"
)

// This file imports the algorithm that a product asks for. Operands are rounded to the types that
// it names, and the sum to the type in which it is accumulated: both are part of what the program
// computes. Algorithms of several components and products come near to wider types, which products
// here have anyway; precision = [DEFAULT, HIGHEST] only says how much may be lost, which is nothing.

// algorithmic are the operands of a product as its algorithm has them, and the type of the sum.
func (im *importer) algorithmic(args []*ir.Value, dt ir.DType) ([]*ir.Value, ir.DType, error) {
	a, err := dimensions.AlgorithmOf(im.m.Module, im.op)
	if err != nil || a == nil || !dtypeOf(args[0]).IsFloat() || !dtypeOf(args[1]).IsFloat() {
		return args, dt, err
	}
	out := make([]*ir.Value, len(args))
	for i, v := range args {
		if v, err = im.roundedTo(v, a.Sides[i]); err == nil && a.Sum == ir.F64 {
			v, err = im.converted(v, ir.F64)
		}
		if out[i] = v; err != nil {
			return nil, dt, err
		}
	}
	if a.Sum == ir.F64 || a.Sum.Size() < dt.Size() {
		dt = a.Sum
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
