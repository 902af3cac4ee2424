package normal

import (
	"cmp"
	"math"
	"slices"
	"strconv"

	"github.com/seed-ee968945/concert/equiv/mesh/internal/digits"
)

// distribute makes an operation on what operands are concatenated of, part by part, or on the digits that they are
// flat of: false where they are neither.
func (t *Table) distribute(args []arg, loops []loop, mk, combine builder) (float64, *expr, []digits.Digit, bool) {
	if c, e, where, ok := t.distributeConcat(args, loops, mk, combine); ok {
		return c, e, where, true
	}
	return t.digitwise(args, loops, mk)
}

// multiply is a product of operands, summed over the loops that say so: a factor, a base, and
// the digit of each loop. A sum moves into the one operand that has its digit.
func (t *Table) multiply(args []arg, loops []loop) (float64, *expr, []digits.Digit) {
	if c, e, where, ok := t.distribute(args, loops, t.multiply, t.add); ok {
		return c, e, where
	}
	coef := 1.0
	var kept []arg
	var from []int
	for i, a := range args {
		coef *= a.coef
		if a.base != t.one {
			kept = append(kept, arg{base: a.base, coef: 1})
			from = append(from, i)
		}
	}
	if coef == 0 {
		kept, from = nil, nil
	}
	order, _ := ordered(args, loops)
	from = slices.DeleteFunc(order, func(i int) bool { return !slices.Contains(from, i) })
	for j, i := range from {
		kept[j] = arg{base: args[i].base, coef: 1}
	}
	loops = pickOperands(loops, from)
	inward, rest, times := movesInward(loops, len(kept))
	coef *= times
	where := repeatedDigits(loops)
	if len(kept) == 0 {
		return coef, t.one, where
	}
	again := false
	for k, ds := range inward {
		if len(ds) == 0 {
			continue
		}
		again = true
		s := t.sumOver(kept[k].base, ds)
		kept[k] = arg{base: s.base, coef: s.coef}
		for _, i := range rest {
			loops[i].at[k] = s.at(loops[i].at[k])
		}
	}
	if again { // what is summed may be a number, or have a factor
		sub := make([]loop, len(rest))
		for j, i := range rest {
			sub[j] = loops[i]
		}
		c, e, w := t.multiply(kept, sub)
		for j, i := range rest {
			where[i] = w[j]
		}
		return coef * c, e, where
	}
	if len(kept) == 1 {
		if !slices.ContainsFunc(loops, func(l loop) bool { return l.summed && l.at[0].Dim != digits.None }) {
			return coef, kept[0].base, operandDigits(loops)
		}
		if a, less, ok := t.trimWindow("sum", kept[0], loops); ok {
			c, e, w := t.multiply([]arg{a}, less)
			return coef * c, e, w
		}
		var ds []digits.Digit
		for _, l := range loops {
			if l.summed && l.at[0].Dim != digits.None {
				ds = append(ds, l.at[0])
			}
		}
		if c, e, w, ok := t.sumInside(kept[0].base, ds, loops); ok {
			return coef * c, e, w
		}
	}
	e, w := t.make(&spec{kind: product, args: kept, loops: loops})
	return coef, e, w
}

// movesInward are the digits, by operand, that it alone has and that are summed, the other loops,
// and how often what no operand has is summed.
func movesInward(loops []loop, operands int) (inward [][]digits.Digit, rest []int, times float64) {
	inward, times = make([][]digits.Digit, operands), 1
	for i, l := range loops {
		holders := 0
		for _, d := range l.at {
			if d.Dim != digits.None {
				holders++
			}
		}
		switch {
		case l.summed && holders == 0:
			times *= float64(l.size)
		case l.summed && holders == 1 && operands > 1:
			k := firstOperand(l)
			inward[k] = append(inward[k], l.at[k])
		default:
			rest = append(rest, i)
		}
	}
	return inward, rest, times
}

// sumInside is the sum of a base over digits where it moves into what the base is made of.
func (t *Table) sumInside(base *expr, ds []digits.Digit, loops []loop) (float64, *expr, []digits.Digit, bool) {
	if base.kind == leaf || base.kind == reduction || base.kind == generic && !sumMovesInto(base) {
		return 0, nil, nil, false
	}
	s := t.sumOver(base, ds)
	where := make([]digits.Digit, len(loops))
	for i, l := range loops {
		if where[i] = digits.Repeated(l.size); !l.summed {
			where[i] = s.at(l.at[0])
		}
	}
	return s.coef, s.base, where, true
}

// repeatedDigits are digits of loops that a base does not have.
func repeatedDigits(loops []loop) []digits.Digit {
	out := make([]digits.Digit, len(loops))
	for i, l := range loops {
		out[i] = digits.Repeated(l.size)
	}
	return out
}

// operandDigits are the digits of operand 0.
func operandDigits(loops []loop) []digits.Digit {
	out := make([]digits.Digit, len(loops))
	for i, l := range loops {
		out[i] = l.at[0]
	}
	return out
}

// pickOperands is loops with some of the operands, in an order, in memory of their own.
func pickOperands(loops []loop, from []int) []loop {
	out := make([]loop, len(loops))
	for i, l := range loops {
		out[i] = loop{size: l.size, summed: l.summed, at: make([]digits.Digit, len(from)), tail: l.tail}
		for j, k := range from {
			out[i].at[j] = l.at[k]
		}
	}
	return out
}

// digitMap is a base without some of its digits: the sum over them.
type digitMap struct {
	coef float64
	base *expr
	from []digits.Digit // what is left of the base, in its dimensions
	to   []digits.Digit // in the sum's
}

// at is a digit of the base that is left, as one of the sum.
func (s *digitMap) at(d digits.Digit) digits.Digit {
	if d.Dim == digits.None {
		return d
	}
	for i, g := range s.from {
		if d.Dim == g.Dim && d.Stride >= g.Stride && d.Stride*d.Size <= g.Stride*g.Size {
			return s.to[i].Part(d.Stride/g.Stride, d.Size)
		}
	}
	panic(digits.Uneven{})
}

// cutAtOwn cuts digits of the result where a loop ends and what is the result's own begins.
func (e *expr) cutAtOwn(l []digits.Digit) []digits.Digit {
	var out []digits.Digit
	for _, d := range l {
		k := slices.IndexFunc(e.joins, func(k int) bool { return k != digits.None && e.place[k].Dim == d.Dim })
		if k < 0 {
			out = append(out, d)
			continue
		}
		n := e.place[e.joins[k]].Size
		switch end := d.Stride * d.Size; {
		case end <= n || d.Stride >= n:
			out = append(out, d)
		case n%d.Stride != 0 || end%n != 0:
			panic(digits.Uneven{})
		default:
			major, minor := d.Cut(n / d.Stride)
			out = append(out, major, minor)
		}
	}
	return out
}

// sumOver is a base summed over some of its digits.
func (t *Table) sumOver(base *expr, ds []digits.Digit) *digitMap {
	ds = slices.Clone(ds)
	slices.SortFunc(ds, func(a, b digits.Digit) int {
		if a.Dim != b.Dim {
			return a.Dim - b.Dim
		}
		return int(min(max(b.Stride-a.Stride, -1), 1))
	})
	ds = digits.Joined(ds)
	key := strconv.AppendInt(nil, int64(base.id), 10)
	for _, d := range ds {
		key = strconv.AppendInt(append(d.Text(append(key, ' ')), 'x'), d.Size, 10)
	}
	if s, ok := t.sums[string(key)]; ok {
		return s
	}
	s := &digitMap{from: base.cutAtOwn(digits.Complement(base.shape, ds))}
	t.sumInto(s, base, ds)
	t.sums[string(key)] = s
	return s
}

// sumInto sums a base by what it is made of.
func (t *Table) sumInto(s *digitMap, base *expr, ds []digits.Digit) {
	if base.is(nameFlat) {
		loops := sumLoops(s.from, ds)
		if c, e, w, ok := t.digitwise([]arg{{base: base, coef: 1}}, loops, t.multiply); ok {
			s.coef, s.base, s.to = c, e, w[:len(s.from)]
			return
		}
	}
	loops, kept, ok := t.refineLoops(base, slices.Concat(s.from, ds), len(s.from))
	if ok {
		switch base.kind {
		case product:
			var w []digits.Digit
			s.coef, s.base, w = t.multiply(base.args, loops)
			s.to = w[:kept]
			return
		case linear, convert, choice:
			if t.sumArgs(s, base, loops, kept) || t.sumShardedLookup(s, base, loops, kept) || t.sumFirstRank(s, base, loops, kept) {
				return
			}
		case generic:
			if sumMovesInto(base) && t.sumGeneric(s, base, loops, kept) {
				return
			}
		}
	}
	s.coef = 1
	s.base, s.to = t.make(&spec{kind: product, args: []arg{{base: base, coef: 1}}, loops: sumLoops(s.from, ds)})
	s.to = s.to[:len(s.from)]
}

// sumLoops are loops of digits of one operand that are left, and of those that are summed.
func sumLoops(left, over []digits.Digit) (out []loop) {
	for _, d := range left {
		out = append(out, loop{size: d.Size, at: []digits.Digit{d}})
	}
	for _, d := range over {
		out = append(out, loop{size: d.Size, summed: true, at: []digits.Digit{d}})
	}
	return out
}

// refineLoops are the loops of a base, cut at digits that tile its shape: first those of the digits,
// of which all from the kept one on are summed, then those that it sums by itself. It fails
// where a digit is of the base's own sizes, as then no loop has it.
func (t *Table) refineLoops(base *expr, tile []digits.Digit, kept int) ([]loop, int, bool) {
	var loops []loop
	for i, d := range tile {
		l := loop{size: d.Size, summed: i >= kept, at: slices.Repeat([]digits.Digit{digits.Repeated(d.Size)}, len(base.args))}
		of := base.loopOf(d)
		if of < 0 {
			if i >= kept {
				return nil, 0, false
			}
			loops = append(loops, l) // the result's own
			continue
		}
		for k, x := range base.loops[of].at {
			l.at[k] = x.Part(d.Stride, d.Size)
		}
		loops = append(loops, l)
	}
	for _, l := range base.loops {
		if l.summed {
			loops = append(loops, l)
		}
	}
	return loops, kept, true
}

// sumArgs sums what is linear in its operands: each of them, by its own digits. A choice is
// linear in what it chooses from, if all of the sum have one choice.
func (t *Table) sumArgs(s *digitMap, base *expr, loops []loop, kept int) bool {
	var args []arg
	outer := pickOperands(loops[:kept], indices(len(base.args)))
	for k, a := range base.args {
		var ds []digits.Digit
		n := int64(1)
		for _, l := range loops[kept:] {
			if l.at[k].Dim == digits.None {
				n *= l.size
			} else {
				ds = append(ds, l.at[k])
			}
		}
		if base.kind == choice && k == 0 {
			if len(ds) > 0 {
				return false
			}
			args = append(args, a)
			continue
		}
		coef, e := a.coef*float64(n), a.base
		if len(ds) > 0 {
			x := t.sumOver(a.base, ds)
			coef, e = coef*x.coef, x.base
			for i := range outer {
				outer[i].at[k] = x.at(outer[i].at[k])
			}
		}
		args = append(args, arg{base: e, coef: coef})
	}
	switch base.kind {
	case linear:
		s.coef, s.base, s.to = t.add(args, outer)
	case convert:
		s.coef, s.base, s.to = t.convertTo(base.text, args[0], outer)
	default:
		s.coef, s.base, s.to = t.choose(base.text, args, outer)
	}
	return true
}

// indices are 0 to n-1.
func indices(n int) []int {
	out := make([]int, n)
	for i := range out {
		out[i] = i
	}
	return out
}

// ordered is the order of operands that may change places, and the digits of each as text.
func ordered(args []arg, loops []loop) (order []int, texts []string) {
	texts = make([]string, len(args))
	for k := range args {
		var b []byte
		for _, l := range loops {
			b = l.at[k].Text(append(b, ' '))
		}
		texts[k] = string(b)
	}
	order = indices(len(args))
	slices.SortStableFunc(order, func(a, b int) int {
		return cmp.Or(args[a].base.id-args[b].base.id, cmp.Compare(texts[a], texts[b]))
	})
	return order, texts
}

// add is a sum of operands. Equal ones count together, and the first has factor 1.
func (t *Table) add(args []arg, loops []loop) (float64, *expr, []digits.Digit) {
	if c, e, where, ok := t.distribute(args, loops, t.add, t.add); ok {
		return c, e, where
	}
	args, loops = expandSums(args, loops)
	order, texts := ordered(args, loops)
	var kept []arg
	var from []int
	for _, k := range order {
		n := len(kept)
		if n > 0 && kept[n-1].base == args[k].base && texts[from[n-1]] == texts[k] {
			kept[n-1].coef += args[k].coef
			continue
		}
		kept, from = append(kept, args[k]), append(from, k)
	}
	for i := len(kept) - 1; i >= 0; i-- {
		if kept[i].coef == 0 {
			kept, from = slices.Delete(kept, i, i+1), slices.Delete(from, i, i+1)
		}
	}
	loops = pickOperands(loops, from)
	switch len(kept) {
	case 0:
		return 0, t.one, repeatedDigits(loops)
	case 1:
		return kept[0].coef, kept[0].base, operandDigits(loops)
	}
	coef := kept[0].coef
	for i := range kept {
		kept[i].coef /= coef
	}
	e, where := t.make(&spec{kind: linear, args: kept, loops: loops})
	return coef, e, where
}

// choose is operand 1 where operand 0 holds, else operand 2.
func (t *Table) choose(dt string, args []arg, loops []loop) (float64, *expr, []digits.Digit) {
	if c, e, where, ok := t.distribute(args, loops, func(args []arg, loops []loop) (float64, *expr, []digits.Digit) {
		return t.choose(dt, args, loops)
	}, t.add); ok {
		return c, e, where
	}
	if args[0].base == t.one && args[0].coef == 0 || args[0].coef == 1 && args[0].base == t.one {
		k := 2 - int(args[0].coef)
		return t.multiply(args[k:k+1], pickOperands(loops, []int{k}))
	}
	differ := func(l loop) bool { return l.at[1] != l.at[2] }
	if args[1].base == args[2].base && args[1].coef == args[2].coef && !slices.ContainsFunc(loops, differ) { // no choice
		return t.multiply(args[1:2], pickOperands(loops, []int{1}))
	}
	if c, e, where, ok := t.selectByIndex(dt, args, loops); ok {
		return c, e, where
	}
	coef := 1.0
	args = slices.Clone(args)
	for k := 1; k <= 2; k++ { // of a number or zero: the number is a factor
		if c := &args[k].coef; args[3-k].coef == 0 && *c != 0 && !math.IsInf(*c, 0) && !math.IsNaN(*c) {
			coef, *c = *c, 1
		}
	}
	e, where := t.make(&spec{kind: choice, text: dt, args: args, loops: loops})
	return coef, e, where
}

// convertTo is an operand in another float type.
func (t *Table) convertTo(to string, a arg, loops []loop) (float64, *expr, []digits.Digit) {
	if c, e, where, ok := t.distribute([]arg{a}, loops, func(args []arg, loops []loop) (float64, *expr, []digits.Digit) {
		return t.convertTo(to, args[0], loops)
	}, t.add); ok {
		return c, e, where
	}
	e, where := t.make(&spec{kind: convert, text: to, args: []arg{{base: a.base, coef: 1}}, loops: loops})
	return a.coef, e, where
}
