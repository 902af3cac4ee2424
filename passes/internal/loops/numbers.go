// Package loops analyses loops for passes: trip counts, integer values per
// iteration, and cloning of iterations.
package loops

import (
	"slices"

	"github.com/seed-ee968945/concert/internal/dtype"
	"github.com/seed-ee968945/concert/internal/hostops"
	"github.com/seed-ee968945/concert/ir"
)

// Bounds of what is followed.
const (
	maxElements = 64      // of a tensor
	maxNumber   = 1 << 24 // which no arithmetic rounds
	maxDepth    = 1000    // of operations on constants
)

// Small reports whether a value is few integers, whose numbers are followed.
func Small(v *ir.Value) bool { return Integers(v) && v.Def().Op() != ir.OpInput && v.Def().Pure() }

// Integers reports whether a value is few integers.
func Integers(v *ir.Value) bool { return Few(v) && !v.Type().DType().IsFloat() }

// Few reports whether a value has few elements.
func Few(v *ir.Value) bool {
	if v.Type().IsAsync() {
		return false
	}
	n, ok := v.Type().Shape().NumElems().Const()
	_, static := v.Type().Shape().Static()
	return ok && static && n <= maxElements
}

// computed are the operations on numbers that are followed: what counters, conditions and
// positions are made of, and what package equiv computes, too.
var computed = []ir.Op{ir.OpAdd, ir.OpSub, ir.OpMul, ir.OpEq, ir.OpNe, ir.OpLt, ir.OpLe, ir.OpGt, ir.OpGe, ir.OpLogicalAnd, ir.OpLogicalOr, ir.OpMaximum, ir.OpMinimum, ir.OpClamp, ir.OpWhere, ir.OpConvert}

// one is the number that all elements of a tensor are; false if they are not, or it is large.
func one(t *hostops.Tensor) (int64, bool) {
	size := t.DType.Size()
	if len(t.Data) < size {
		return 0, false
	}
	for i := size; i < len(t.Data); i += size {
		if !slices.Equal(t.Data[:size], t.Data[i:i+size]) {
			return 0, false
		}
	}
	k := dtype.LoadInt(t.DType, t.Data)
	return k, k > -maxNumber && k < maxNumber
}

// compute is what an operation of one small result gives for operands that are known; nil where
// one is not, or the operation is not followed.
func compute(n *ir.Node, args []*hostops.Tensor) *hostops.Tensor {
	counts := slices.Contains(computed, n.Op())
	in := make([]hostops.Tensor, len(args))
	for i, a := range args {
		if a == nil {
			return nil
		}
		if _, ok := one(a); !ok && counts {
			return nil
		}
		in[i] = *a
	}
	view := n.Op().IsView() && len(in) == 1
	if len(n.Results()) != 1 || n.Group() != nil || !counts && !view && n.Op() != ir.OpFull && n.Op() != ir.OpCat {
		return nil
	}
	v := n.Result(0)
	shape, _ := v.Type().Shape().Static()
	out, err := hostops.New(v.Type().DType(), shape...)
	if err != nil {
		return nil
	}
	if view {
		off, err := n.ViewOffset(0)
		src := hostops.Tensor{DType: out.DType, Shape: shape, Strides: v.Type().Strides(), Offset: off, Data: in[0].Data}
		if err != nil || !n.Arg(0).Type().Contiguous() || hostops.Copy(out, src) != nil {
			return nil
		}
		return &out
	}
	if hostops.Run(n.Op().Name(), n.Attrs(), []hostops.Tensor{out}, in) != nil {
		return nil
	}
	if _, ok := one(&out); counts && !ok {
		return nil
	}
	return &out
}
