// Package fold computes operations of StableHLO on constants that are integers or truth values: how
// long loops are, where slices begin and what shapes are follows from them.
package fold

import (
	"slices"

	"github.com/seed-ee968945/concert/internal/dtype"
	"github.com/seed-ee968945/concert/ir"
	"github.com/seed-ee968945/concert/ir/stablehlo/mlir"
)

// Known is the number of a constant that is a single integer or truth value.
func Known(l *mlir.Literal) (int64, bool) {
	if l == nil || len(l.Shape) > 0 || l.DType.IsFloat() {
		return 0, false
	}
	return dtype.LoadInt(l.DType, l.Data), true
}

// Integer is a constant that is a single integer, cut to its type.
func Integer(dt ir.DType, n int64) *mlir.Literal {
	if dt == ir.Bool && n != 0 {
		n = 1
	}
	b := make([]byte, dt.Size())
	dtype.StoreInt(dt, b, n)
	return &mlir.Literal{DType: dt, Splat: true, Data: b}
}

// maxElements bounds the tensors that are computed: those are shapes.
const maxElements = mlir.MaxRank

// Operation is the result of an operation, nil if not all operands are known or it is none that is
// folded. direction reads that of a comparison. A select gives the operand that it selects.
func Operation(o *mlir.Operation, in []*mlir.Literal, direction func() string) *mlir.Literal {
	if len(in) == 0 || len(o.Results) != 1 || slices.Contains(in, nil) {
		return nil
	}
	if len(in[0].Shape) == 0 {
		return single(o, in, direction)
	}
	shape, dt := in[0].Shape, in[0].DType
	total := int64(0)
	for _, l := range in {
		n, _ := mlir.NumElements(l.Shape)
		if total += n; l.DType.IsFloat() || n == 0 || total > maxElements*int64(len(in)) {
			return nil
		}
	}
	if o.Name == "stablehlo.concatenate" {
		return joined(in, total)
	}
	var all [][]int64
	for _, l := range in {
		if !slices.Equal(l.Shape, shape) {
			return nil
		}
		all = append(all, l.Ints())
	}
	out := &mlir.Literal{Shape: shape}
	for k := range all[0] {
		elements := make([]*mlir.Literal, len(in))
		for i, l := range in {
			elements[i] = Integer(l.DType, all[i][k])
		}
		e := single(o, elements, direction)
		if e == nil {
			return nil
		}
		dt = e.DType
		out.Data = append(out.Data, e.Data...)
	}
	out.DType = dt
	return out
}

// joined puts rows behind each other.
func joined(in []*mlir.Literal, total int64) *mlir.Literal {
	out := &mlir.Literal{DType: in[0].DType, Shape: []int64{total}}
	for _, l := range in {
		if len(l.Shape) != 1 || l.DType != out.DType || total > maxElements {
			return nil
		}
		out.Data = append(out.Data, l.Expand()...)
	}
	return out
}

// single is the result of an operation on single integers.
func single(o *mlir.Operation, in []*mlir.Literal, direction func() string) *mlir.Literal {
	n := make([]int64, len(in))
	for i, l := range in {
		var ok bool
		if n[i], ok = Known(l); !ok {
			return nil
		}
	}
	dt := in[0].DType
	if len(in) == 2 && dt.IsInt() && dt == in[1].DType {
		switch o.Name { // results are cut to the type
		case "stablehlo.add":
			return Integer(dt, n[0]+n[1])
		case "stablehlo.subtract":
			return Integer(dt, n[0]-n[1])
		case "stablehlo.multiply":
			return Integer(dt, n[0]*n[1])
		case "stablehlo.divide", "stablehlo.remainder":
			return quotient(o.Name, dt, n[0], n[1])
		}
	}
	truth := dt == ir.Bool
	switch {
	case o.Name == "stablehlo.convert" && len(o.Outs) == 1:
		to, err := mlir.ElementType(o.Outs[0].Elem)
		if err != nil || to.IsFloat() {
			return nil
		}
		return Integer(to, n[0])
	case o.Name == "stablehlo.negate" && dt.IsInt():
		return Integer(dt, -n[0])
	case o.Name == "stablehlo.select" && len(in) == 3 && truth:
		if n[0] != 0 {
			return in[1]
		}
		return in[2]
	case o.Name == "stablehlo.compare" && len(in) == 2 && dt == in[1].DType:
		return compare(direction(), dt, n[0], n[1])
	case o.Name == "stablehlo.and" && truth && len(in) == 2:
		return Integer(dt, n[0]&n[1])
	case o.Name == "stablehlo.or" && truth && len(in) == 2:
		return Integer(dt, n[0]|n[1])
	case o.Name == "stablehlo.not" && truth:
		return Integer(dt, 1-n[0])
	}
	return nil
}

// quotient divides positive integers, as the sizes of shapes are; others are nil.
func quotient(name string, dt ir.DType, a, b int64) *mlir.Literal {
	switch {
	case a < 0 || b <= 0:
		return nil
	case name == "stablehlo.divide":
		return Integer(dt, a/b)
	}
	return Integer(dt, a%b)
}

// compare compares two integers of a type; nil by a direction that there is not.
func compare(direction string, dt ir.DType, a, b int64) *mlir.Literal {
	less := a < b
	if dt == ir.U64 {
		less = uint64(a) < uint64(b)
	}
	holds, ok := map[string]bool{"EQ": a == b, "NE": a != b, "LT": less, "LE": less || a == b, "GT": !less && a != b, "GE": !less}[direction]
	switch {
	case !ok:
		return nil
	case holds:
		return Integer(ir.Bool, 1)
	}
	return Integer(ir.Bool, 0)
}
