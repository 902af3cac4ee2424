// Package scalar has expressions of single elements. Equal ones have one number, as far as
// arithmetic on known integers and the algebra of sums, products, minimum and maximum can tell.
package scalar

import (
	"math"
	"strings"

	"github.com/seed-ee968945/concert/internal/attr"
	"github.com/seed-ee968945/concert/ir"
)

// Operation is an elementwise operation and the type that it computes in. Text is its
// attributes', or stands for them.
type Operation struct {
	Op    ir.Op
	DType ir.DType
	Attrs attr.List
	Text  string
}

// AnyOrder reports whether a reduction gives the same in any order and grouping:
// minimum and maximum, sums and products of integers, which wrap around, and of floats where
// that may reassociate. Averages of integers truncate at each step.
func AnyOrder(red ir.Reduction, dt ir.DType, reassociate bool) bool {
	switch {
	case red == ir.Min || red == ir.Max:
		return true
	case dt.IsInt():
		return red != ir.Avg
	}
	return reassociate && dt.IsFloat()
}

// MaxExact bounds integers that arithmetic of every width does not round.
const MaxExact = 1 << 24

// Whole is a constant that is a small integer.
func Whole(c attr.Value) (int64, bool) {
	if i, ok := c.AsInt(); ok {
		return i, true
	}
	f, ok := c.AsFloat()
	return int64(f), ok && f == math.Trunc(f) && math.Abs(f) < MaxExact
}

// Arithmetic computes on integers.
func (p Operation) Arithmetic(a, b int64) (int64, bool) {
	truth := func(v bool) (int64, bool) {
		if v {
			return 1, true
		}
		return 0, true
	}
	switch p.Op {
	case ir.OpAdd:
		return a + b, true
	case ir.OpSub:
		return a - b, true
	case ir.OpMul:
		return a * b, true
	case ir.OpEq:
		return truth(a == b)
	case ir.OpNe:
		return truth(a != b)
	case ir.OpLt:
		return truth(a < b)
	case ir.OpLe:
		return truth(a <= b)
	case ir.OpGt:
		return truth(a > b)
	case ir.OpGe:
		return truth(a >= b)
	case ir.OpLogicalAnd:
		return truth(a != 0 && b != 0)
	case ir.OpLogicalOr:
		return truth(a != 0 || b != 0)
	case ir.OpMaximum:
		return max(a, b), true
	case ir.OpMinimum:
		return min(a, b), true
	case ir.OpClamp:
		for _, key := range []string{"min", "max"} {
			c, has := p.Attrs.Get(key)
			limit, ok := Whole(c)
			switch {
			case !has:
			case !ok:
				return 0, false
			case key == "min":
				a = max(a, limit)
			default:
				a = min(a, limit)
			}
		}
		return a, true
	}
	return 0, false
}

// Known is Arithmetic where no width rounds: a float among constants makes floats of all.
func (p Operation) Known(a, b int64) (int64, bool) {
	v, ok := p.Arithmetic(a, b)
	return v, ok && max(a, -a, b, -b, v, -v) < MaxExact
}

// Factor is what p multiplies with.
func (p Operation) Factor() float64 {
	c := p.Attrs.Float("scalar", 0)
	if p.Op == ir.OpDiv {
		return 1 / c
	}
	return c
}

// IntegerFactor reports whether p multiplies integers with an integer, wrapping around.
func (p Operation) IntegerFactor() bool {
	c, _ := p.Attrs.Get("scalar")
	return p.Op == ir.OpMul && p.DType.IsInt() && len(p.Attrs) == 1 && c.Kind() == attr.KindInt
}

// Monotone reports whether an operation of one operand, of type from, does not decrease
// and takes NaN, and nothing else, to NaN. Rounding does not decrease; arithmetic of
// integers wraps around, which does, and floats of a byte make NaN of what is too large.
func (p Operation) Monotone(from ir.DType, reassociate bool) bool {
	if p.DType.IsFloat8() {
		return false
	}
	if p.Op == ir.OpConvert {
		holds := p.DType.IsInt() && from.IsInt() && p.DType.Size() > from.Size() && (from.IsUnsigned() || !p.DType.IsUnsigned())
		return holds || from.IsFloat() && p.DType.IsFloat()
	}
	if from != p.DType || !from.IsFloat() && !from.IsInt() {
		return false
	}
	switch p.Op {
	case ir.OpFloor:
		return true
	case ir.OpRelu: // of floats: -1 becomes +0, but -0 stays
		return p.DType.IsInt() || reassociate
	case ir.OpClamp:
		low, high := p.Constant("min", 1), p.Constant("max", 1) // a zero takes the place of others, and the other zero stays
		swaps := low == 0 && !math.Signbit(low) || high == 0 && math.Signbit(high)
		return p.DType.IsInt() || reassociate || !swaps
	case ir.OpMul, ir.OpDiv:
		return p.PlainConstant() && p.Constant("scalar", 0) > 0
	case ir.OpAdd, ir.OpSub:
		return p.PlainConstant()
	}
	return false
}

// PlainConstant reports whether p computes op(x, c) of floats with a finite constant.
func (p Operation) PlainConstant() bool {
	c := p.Constant("scalar", 0)
	return p.DType.IsFloat() && p.Attrs.Has("scalar") && len(p.Attrs) == 1 && c-c == 0
}

// Constant is a constant as the arithmetic on floats of p's type holds it; a factor that
// equations made is the number that it stands for.
func (p Operation) Constant(key string, absent float64) float64 {
	c := p.Attrs.Float(key, absent)
	if p.DType != ir.F64 && strings.HasPrefix(p.Text, "{") {
		c = float64(float32(c))
	}
	return c
}
