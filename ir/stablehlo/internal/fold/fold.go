// Package fold computes operations of StableHLO on constants that are single integers or truth
// values: how long loops are and where slices begin follows from them.
package fold

import (
	"github.com/seed-ee968945/concert/internal/dtype"
	"github.com/seed-ee968945/concert/ir"
	"github.com/seed-ee968945/concert/ir/stablehlo/mlir"
)

// Known is the number of a constant that is a single integer or truth value.
func Known(l *mlir.Literal) (int64, bool) {
	if l == nil || !l.Splat || len(l.Shape) > 0 || l.DType.IsFloat() {
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

// Operation is the result of an operation, nil if not all operands are known or it is none that is
// folded. direction reads that of a comparison. A select gives the operand that it selects.
func Operation(o *mlir.Operation, in []*mlir.Literal, direction func() string) *mlir.Literal {
	n := make([]int64, len(in))
	for i, l := range in {
		var ok bool
		if n[i], ok = Known(l); !ok {
			return nil
		}
	}
	if len(in) == 0 || len(o.Results) != 1 {
		return nil
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
