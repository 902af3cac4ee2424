package normal

import (
	"github.com/seed-ee968945/concert/equiv/mesh/internal/digits"
)

// The reductions, by name: a sum, and folds.
const (
	Sum  = "sum"
	Max  = "amax"
	Min  = "amin"
	Prod = "prod"
)

// reduce is a sum, or a fold.
func (t *Table) reduce(how string, a arg, loops []loop) (float64, *expr, []digits.Digit) {
	if how == Sum {
		return t.multiply([]arg{a}, loops)
	}
	return t.reduceWith(how, a, loops)
}

// reduceWith is the largest of an operand over loops, or the like; of one that is such a fold
// itself, over all loops at once.
func (t *Table) reduceWith(name string, a arg, loops []loop) (float64, *expr, []digits.Digit) {
	if c, e, where, ok := t.distribute([]arg{a}, loops, func(args []arg, loops []loop) (float64, *expr, []digits.Digit) {
		return t.reduceWith(name, args[0], loops)
	}, func(args []arg, loops []loop) (float64, *expr, []digits.Digit) {
		return t.combine(name, args, loops)
	}); ok {
		return c, e, where
	}
	if a.base.kind == reduction && a.base.text == name && a.coef == 1 {
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
		inner, _, ok := t.refineLoops(a.base, tile, kept)
		if ok {
			c, e, w := t.reduceWith(name, a.base.args[0], inner)
			where := repeatedDigits(loops)
			for j, i := range at {
				where[i] = w[j]
			}
			return c, e, where
		}
	}
	left := false
	for _, l := range loops {
		if l.summed && l.at[0].Dim == digits.None && name == Prod && l.size > 1 {
			Unsupported("a product of equals")
		}
		left = left || l.summed && l.at[0].Dim != digits.None
	}
	if !left { // the largest of equals
		return a.coef, a.base, operandDigits(loops)
	}
	if b, less, ok := t.trimWindow(name, a, loops); ok && a.coef == 1 {
		return t.reduceWith(name, b, less)
	}
	e, where := t.make(&spec{kind: reduction, text: name, args: []arg{a}, loops: loops})
	return 1, e, where
}

// combine is the largest of operands in one place, or the like. What changes nothing is left out.
func (t *Table) combine(name string, args []arg, loops []loop) (float64, *expr, []digits.Digit) {
	var left []int
	for k, a := range args {
		if !t.isIdentity(name, a) {
			left = append(left, k)
		}
	}
	if len(left) == 1 {
		return t.multiply([]arg{args[left[0]]}, pickOperands(loops, left))
	}
	e, where := t.make(&spec{kind: generic, text: "fold " + name, args: args, loops: loops})
	return 1, e, where
}

// isIdentity reports whether an operand changes nothing in a fold.
func (t *Table) isIdentity(name string, a arg) bool {
	switch name {
	case Max:
		return a.base.text == least && a.coef > 0
	case Min:
		return a.base.text == largest && a.coef > 0
	case Prod:
		return a.base == t.one && a.coef == 1
	}
	return false
}
