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
	return t.folded(how, a, loops)
}

// folded is the largest of an operand over loops, or the like; of one that is such a fold
// itself, over all loops at once.
func (t *Table) folded(name string, a arg, loops []loop) (float64, *expr, []digits.Digit) {
	if c, e, where, ok := t.distributed([]arg{a}, loops, func(args []arg, loops []loop) (float64, *expr, []digits.Digit) {
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
		if l.summed && l.at[0].Dim == digits.None && name == Prod && l.size > 1 {
			Refuse("a product of equals")
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
func (t *Table) fold(name string, args []arg, loops []loop) (float64, *expr, []digits.Digit) {
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
func (t *Table) unseen(name string, a arg) bool {
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
