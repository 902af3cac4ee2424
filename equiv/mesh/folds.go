package mesh

import (
	"math"
	"strconv"
	"strings"

	"github.com/seed-ee968945/concert/equiv/mesh/internal/digits"
	"github.com/seed-ee968945/concert/ir"
)

// folded is the largest of an operand over loops, or the like; of one that is such a fold
// itself, over all loops at once.
func (t *table) folded(name string, a arg, loops []loop) (float64, *expr, []digits.Digit) {
	if c, e, where, ok := t.split([]arg{a}, loops, func(args []arg, loops []loop) (float64, *expr, []digits.Digit) {
		return t.folded(name, args[0], loops)
	}, func(args []arg, loops []loop) (float64, *expr, []digits.Digit) {
		return t.fold(name, args, loops)
	}); ok {
		return c, e, where
	}
	if a.base.kind == fold && a.base.text == name && a.coef == 1 {
		var tile []digits.Digit
		var at []int
		kept := 0
		for _, sum := range []bool{false, true} {
			for i, l := range loops {
				if d := l.at[0]; l.summed == sum && d.Dim != digits.None {
					if tile, at = append(tile, d), append(at, i); !sum {
						kept++
					}
				}
			}
		}
		inner, _, ok := t.refine(a.base, tile, kept)
		if ok {
			c, e, w := t.folded(name, a.base.args[0], inner)
			where := repeated(loops)
			for j, i := range at {
				where[i] = w[j]
			}
			return c, e, where
		}
	}
	left := false
	for _, l := range loops {
		if l.summed && l.at[0].Dim == digits.None && name == "prod" && l.size > 1 {
			refuse("a product of equals")
		}
		left = left || l.summed && l.at[0].Dim != digits.None
	}
	if !left { // the largest of equals
		return a.coef, a.base, firsts(loops)
	}
	if b, less, ok := t.trimmed(name, a, loops); ok && a.coef == 1 {
		return t.folded(name, b, less)
	}
	e, where := t.make(&spec{kind: fold, text: name, args: []arg{a}, loops: loops})
	return 1, e, where
}

// fold is the largest of operands in one place, or the like. What changes nothing is left out.
func (t *table) fold(name string, args []arg, loops []loop) (float64, *expr, []digits.Digit) {
	var left []int
	for k, a := range args {
		if !t.unseen(name, a) {
			left = append(left, k)
		}
	}
	if len(left) == 1 {
		return t.multiply([]arg{args[left[0]]}, picked(loops, left))
	}
	e, where := t.make(&spec{kind: block, text: "fold " + name, args: args, loops: loops})
	return 1, e, where
}

// unseen reports whether an operand changes nothing in a fold.
func (t *table) unseen(name string, a arg) bool {
	switch name {
	case "amax":
		return a.base.text == least && a.coef > 0
	case "amin":
		return a.base.text == largest && a.coef > 0
	case "prod":
		return a.base == t.one && a.coef == 1
	}
	return false
}

// named begins the names of numbers that are no multiples of one: what is not finite, and of
// integers what a factor would round or what the type does.
const named = "number "

// least and largest name floats that change no largest and no least one.
const (
	least   = named + "-Inf"
	largest = named + "+Inf"
)

// integer is a whole number. It is a factor if sums of many of it are exact.
func (t *table) integer(n int64) arg {
	if n < -mostPlaces || n > mostPlaces {
		return arg{base: t.leaf(named + strconv.FormatInt(n, 10)), coef: 1}
	}
	return arg{base: t.one, coef: float64(n)}
}

// isNumber reports whether an expression is a number.
func (t *table) isNumber(e *expr) bool {
	return e == t.one || e.kind == leaf && strings.HasPrefix(e.text, named)
}

// number64 is the number of an element type that an attribute says. What an integer type makes of
// a number that is not whole, or not its own, is its matter.
func (u *use) number64(key string, dt ir.DType) arg {
	v, _ := u.n.Attrs().Get(key)
	x, name := u.n.Attrs().Float(key, 0), named
	if n, ok := v.AsInt(); ok && !dt.IsFloat() {
		return u.t.integer(n)
	}
	if !dt.IsFloat() {
		name += dt.String() + " "
	}
	if x-x != 0 || !dt.IsFloat() && (x != math.Trunc(x) || math.Abs(x) > mostPlaces) {
		return arg{base: u.t.leaf(name + strconv.FormatFloat(x, 'g', -1, 64)), coef: 1}
	}
	return arg{base: u.t.one, coef: x}
}
