package mesh

// folded is the largest of an operand over loops, or the like; of one that is such a fold
// itself, over all loops at once.
func (t *table) folded(name string, a arg, loops []loop) (float64, *expr, []digit) {
	if c, e, where, ok := t.split([]arg{a}, loops, func(args []arg, loops []loop) (float64, *expr, []digit) {
		return t.folded(name, args[0], loops)
	}, func(args []arg, loops []loop) (float64, *expr, []digit) {
		return t.fold(name, args, loops)
	}); ok {
		return c, e, where
	}
	if a.base.kind == fold && a.base.text == name && a.coef == 1 {
		var tile []digit
		var at []int
		for _, sum := range []bool{false, true} {
			for i, l := range loops {
				if d := l.at[0]; l.summed == sum && d.dim != none {
					tile, at = append(tile, d), append(at, i)
				}
			}
		}
		kept := 0
		for _, i := range at {
			if !loops[i].summed {
				kept++
			}
		}
		inner, _, ok := t.refine(a.base, tile, kept)
		if ok {
			c, e, w := t.folded(name, a.base.args[0], inner)
			where := make([]digit, len(loops))
			for i, l := range loops {
				where[i] = repeated(l.size)
			}
			for j, i := range at {
				where[i] = w[j]
			}
			return c, e, where
		}
	}
	left := false
	for _, l := range loops {
		if l.summed && l.at[0].dim == none && name == "prod" && l.size > 1 {
			refuse("a product of equals")
		}
		left = left || l.summed && l.at[0].dim != none
	}
	if !left { // the largest of equals
		where := make([]digit, len(loops))
		for i, l := range loops {
			where[i] = l.at[0]
		}
		return a.coef, a.base, where
	}
	if b, less, ok := t.trimmed(name, a, loops); ok && a.coef == 1 {
		return t.folded(name, b, less)
	}
	e, where := t.make(&spec{kind: fold, text: name, args: []arg{a}, loops: loops})
	return 1, e, where
}

// fold is the largest of operands in one place, or the like. What changes nothing is left out.
func (t *table) fold(name string, args []arg, loops []loop) (float64, *expr, []digit) {
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

// least and largest name numbers that change no largest and no least one.
const (
	least   = "number -Inf"
	largest = "number +Inf"
)
