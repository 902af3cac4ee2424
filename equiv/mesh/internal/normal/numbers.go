package normal

import (
	"math"
	"strconv"
	"strings"

	"github.com/seed-ee968945/concert/internal/dtype"
)

// Operand is an operand by itself, such as a number.
type Operand = arg

// named begins the names of numbers that are no multiples of one: what is not finite, and of
// integers what a factor would round or what the type does.
const named = "number "

// least and largest name floats that change no largest and no least one.
const (
	least   = named + "-Inf"
	largest = named + "+Inf"
)

// mostPlaces bounds numbers, so that sums and products of a few of them fit 64 bits.
const mostPlaces = 1 << 30

// Real is a number that is a factor.
func (t *Table) Real(x float64) Operand { return arg{base: t.one, coef: x} }

// Integer is a whole number. It is a factor if sums of many of it are exact.
func (t *Table) Integer(n int64) Operand {
	if n < -mostPlaces || n > mostPlaces {
		return arg{base: t.leaf(named + strconv.FormatInt(n, 10)), coef: 1}
	}
	return t.Real(float64(n))
}

// Float is a number of an element type. What an integer type makes of a number that is not whole, or
// not its own, is its matter.
func (t *Table) Float(x float64, dt dtype.DType) Operand {
	name := named
	if !dt.IsFloat() {
		name += dt.String() + " "
	}
	if x-x != 0 || !dt.IsFloat() && (x != math.Trunc(x) || math.Abs(x) > mostPlaces) {
		return arg{base: t.leaf(name + strconv.FormatFloat(x, 'g', -1, 64)), coef: 1}
	}
	return t.Real(x)
}

// Limits are the numbers of a type that no maximum and no minimum sees.
func (t *Table) Limits(dt dtype.DType) (low, high Operand) {
	if dt.IsFloat() {
		if lo, hi := dt.Ends(); !math.IsInf(hi, 1) {
			return t.Real(lo), t.Real(hi)
		}
		return arg{base: t.leaf(least), coef: 1}, arg{base: t.leaf(largest), coef: 1}
	}
	lo, hi := dt.Range()
	return t.Integer(lo), t.Integer(hi)
}

// isNumber reports whether an expression is a number.
func (t *Table) isNumber(e *expr) bool {
	return e == t.one || e.kind == leaf && strings.HasPrefix(e.text, named)
}

// is reports whether an operand is a number.
func (t *Table) is(a arg, x float64) bool { return a.base == t.one && a.coef == x }

// whole64 is an operand that is a whole number.
func (t *Table) whole64(a arg) (int64, bool) {
	return int64(a.coef), a.base == t.one && a.coef == math.Trunc(a.coef) && math.Abs(a.coef) <= mostPlaces
}

// text is a number as a word.
func (a *arg) text() string { return strconv.Itoa(a.base.id) + "*" + string(number(nil, a.coef)) }

// number appends a factor, rounded: products of the same factors in another order are equal. Whole
// ones are exact, as sums of integers are.
func number(b []byte, x float64) []byte {
	if n := int64(x); x > -1<<53 && x < 1<<53 && float64(n) == x {
		return strconv.AppendInt(b, n, 10)
	}
	return strconv.AppendFloat(b, x, 'g', 11, 64)
}

// sameNumber reports whether two factors are equal but for their rounding.
func sameNumber(x, y float64) bool {
	return string(number(nil, x)) == string(number(nil, y))
}
