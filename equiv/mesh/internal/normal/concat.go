package normal

import (
	"slices"
	"strconv"

	"github.com/seed-ee968945/concert/equiv/mesh/internal/digits"
	"github.com/seed-ee968945/concert/internal/intmath"
)

// A tensor that does not divide is padded: concatenated with something unknown. An operation
// on a concatenation is the concatenation of operations on its parts, so that the padding can
// be left out again, and is nothing in a sum if it was masked.

// concatAxis is a concatenation and its dimension.
type concatAxis struct {
	e     *expr
	joint int64 // places of a loop that is minor to the parts
}

// concatAlong is the concatenation whose dimension a digit is, all of it.
func concatAlong(e *expr, d digits.Digit) (concatAxis, bool) {
	if !e.is(nameCat) || e.own[0].Dim == digits.None || d != (digits.Of(e.own[0].Dim, 1, e.shape[e.own[0].Dim])) {
		return concatAxis{}, false
	}
	s := concatAxis{e, 1}
	if k := e.joins[0]; k != digits.None {
		s.joint = e.loops[k].size
	}
	return s, true
}

// size is that of part k.
func (s concatAxis) size(k int) int64 { return digits.Places(s.e.args[k].inner) * s.joint }

// partDigits is a digit of the concatenation as digits of part k: of its dimension, all of the part.
func (s concatAxis) partDigits(k int, d digits.Digit) []digits.Digit {
	e := s.e
	if d.Dim == digits.None {
		return []digits.Digit{d}
	}
	if _, ok := concatAlong(e, d); ok {
		out := slices.Clone(e.args[k].inner)
		if j := e.joins[0]; j != digits.None {
			out = append(out, e.loops[j].at[k])
		}
		return out
	}
	of := e.loopOf(d)
	if of < 0 || of == e.joins[0] {
		panic(digits.Uneven{})
	}
	return []digits.Digit{e.loops[of].at[k].Part(d.Stride, d.Size)}
}

// viewOfPart is v with digits of operand k in place of those of the concatenation. It fails where one is
// several of k's.
func (s concatAxis) viewOfPart(k int, v view) (view, bool) {
	l := digits.Joined(s.partDigits(k, v.inner))
	if len(l) > 1 {
		return v, false
	}
	v.inner = append(l, digits.Repeated(1))[0]
	axes := v.axes
	v.axes = nil
	for _, x := range axes {
		l := digits.Joined(s.partDigits(k, x.at))
		if len(l) > 1 {
			return v, false
		}
		x.at = append(l, digits.Repeated(x.size))[0]
		v.axes = append(v.axes, x)
	}
	return v, true
}

// concat is operands one after the other, each by the digits of its dimension, and the digits of
// the others as loops. It returns a factor, and the digits of the result: of the loops, and of the dimension.
func (t *Table) concat(args []arg, lists [][]digits.Digit, loops []loop) (float64, *expr, []digits.Digit, []digits.Digit) {
	if len(args) == 1 {
		return args[0].coef, args[0].base, operandDigits(loops), digits.Joined(lists[0])
	}
	for k := range args {
		if slices.ContainsFunc(args, func(a arg) bool { return a.base.viewsFlatOf(args[k].base) }) {
			args, lists, loops = slices.Clone(args), slices.Clone(lists), slices.Clone(loops)
			t.flatten(args, lists, loops, k)
		}
	}
	if k := slices.IndexFunc(indices(len(args)-1), func(k int) bool { return t.isNumber(args[k].base) && args[k].equal(&args[k+1]) }); k >= 0 {
		n := digits.Add(nil, digits.Repeated(digits.Places(lists[k])+digits.Places(lists[k+1])))
		rest := make([]loop, len(loops))
		for i, l := range loops {
			rest[i] = loop{size: l.size, summed: l.summed, tail: l.tail, at: slices.Delete(slices.Clone(l.at), k, k+1)}
		}
		return t.concat(slices.Delete(slices.Clone(args), k, k+1), slices.Replace(slices.Clone(lists), k, k+2, n), rest)
	}
	for k := 0; k+1 < len(args); k++ {
		var c float64
		var e *expr
		var where, along []digits.Digit
		if digits.Attempt(func() (ok bool) {
			c, e, where, along, ok = t.mergeAdjacent(args, lists, loops, k)
			return ok
		}) {
			return c, e, where, along
		}
	}
	if c, e, where, along, ok := t.concatPartwise(args, lists, loops); ok {
		return c, e, where, along
	}
	whole := int64(0)
	for _, l := range lists {
		whole = intmath.GCD(whole, digits.Places(l))
	}
	majors, minors := make([][]digits.Digit, len(lists)), make([][]digits.Digit, len(lists))
	for k, l := range lists {
		var ok bool
		if majors[k], minors[k], ok = digits.Minor(l, whole); !ok {
			whole = 1
			break
		}
	}
	n := int64(0)
	s := &spec{kind: generic, text: nameCat, loops: slices.Clone(loops)}
	for k, l := range lists {
		if whole == 1 {
			majors[k], minors[k] = l, []digits.Digit{}
		}
		size := digits.Places(majors[k])
		n += size
		s.text += " " + strconv.FormatInt(size, 10)
		s.args = append(s.args, arg{base: args[k].base, coef: args[k].coef, inner: digits.Joined(majors[k])})
		if size > 1 && len(s.args[k].inner) == 0 {
			s.args[k].inner = []digits.Digit{digits.Repeated(size)}
		}
	}
	rows, ok := digits.Align(minors)
	if !ok {
		panic(digits.Uneven{})
	}
	for i := range s.loops {
		s.loops[i].tail = false
	}
	for _, row := range rows {
		s.loops = append(s.loops, loop{size: row[0].Size, at: row, tail: true})
	}
	s.own = []int64{n}
	coef, e, where := t.makeGeneric(*s)
	dim := append([]digits.Digit{where[len(s.loops)]}, where[len(loops):len(s.loops)]...)
	return coef, e, where[:len(loops)], digits.Joined(dim)
}

// builder makes an operation of operands and loops: a factor, a base, and a digit for each
// loop and then for each size of the result's own.
type builder func(args []arg, loops []loop) (float64, *expr, []digits.Digit)

// distributeConcat makes an operation part by part where a loop covers a seam, and combines the parts if
// the loop is summed: false where none does.
func (t *Table) distributeConcat(args []arg, loops []loop, mk, combine builder) (float64, *expr, []digits.Digit, bool) {
	if !slices.ContainsFunc(args, func(a arg) bool { return a.base.is(nameCat) }) {
		return 0, nil, nil, false
	}
	return t.distributeParts(args, loops, mk, combine, func(j int, d digits.Digit) (cuts []int64) {
		if s, ok := concatAlong(args[j].base, d); ok {
			at := int64(0)
			for p := range s.e.args {
				at += s.size(p)
				cuts = append(cuts, at)
			}
		}
		return cuts
	})
}

// distributeParts makes an operation part by part where a loop is a digit of an operand that is cut.
func (t *Table) distributeParts(args []arg, loops []loop, mk, combine builder, cut func(j int, d digits.Digit) []int64) (float64, *expr, []digits.Digit, bool) {
	merged, of, stride := mergeLoops(loops)
	for k, l := range slices.Backward(merged) {
		var cuts []int64
		for j := range args {
			cuts = append(cuts, cut(j, l.at[j])...)
		}
		tail := false // in the result, the parts lie in a dimension with a size of its own
		for j, l := range loops {
			tail = tail || of[j] == k && l.tail
		}
		if len(cuts) == 0 || tail {
			continue
		}
		slices.Sort(cuts)
		var sizes []int64
		at := int64(0)
		for _, c := range append(slices.Compact(cuts), l.size) {
			if c > at && c <= l.size {
				sizes, at = append(sizes, c-at), c
			}
		}
		if parts, ok := t.cutOperands(args, l, sizes); ok {
			c, e, where := t.buildByParts(parts, loops, k, of, stride, mk, combine)
			return c, e, where, true
		}
	}
	return 0, nil, nil, false
}

// operandPart is an operand in one part of a loop: its digits there, and what becomes of the
// others.
type operandPart struct {
	arg   arg
	along []digits.Digit // of the loop; nil where the operand does not have it
	move  func(d digits.Digit) digits.Digit
}

// cutOperands cuts each operand that has a loop at places; false where one cannot be cut. By part.
func (t *Table) cutOperands(args []arg, l loop, sizes []int64) ([][]operandPart, bool) {
	out := make([][]operandPart, len(sizes))
	same := func(d digits.Digit) digits.Digit { return d }
	for j, a := range args {
		d := l.at[j]
		start := int64(0)
		for p, n := range sizes {
			x := operandPart{arg: a, move: same}
			s, ok := concatAlong(a.base, d)
			switch {
			case d.Dim == digits.None:
			case ok && s.hasSizes(sizes):
				y := s.e.args[p]
				x.arg = arg{base: y.base, coef: a.coef * y.coef}
				x.along = s.partDigits(p, d)
				x.move = func(d digits.Digit) digits.Digit {
					l := s.partDigits(p, d)
					if len(l) != 1 {
						panic(digits.Uneven{})
					}
					return l[0]
				}
				for _, d := range a.inner {
					x.arg.inner = append(x.arg.inner, s.partDigits(p, d)...)
				}
			case d.Stride != 1 || d.Size != a.base.shape[d.Dim]:
				return nil, false
			default:
				x = t.cutOperand(a, d, start, n)
			}
			out[p] = append(out[p], x)
			start += n
		}
	}
	return out, true
}

// hasSizes reports whether parts have sizes.
func (s concatAxis) hasSizes(sizes []int64) bool {
	ok := len(s.e.args) == len(sizes)
	for p := range s.e.args {
		ok = ok && s.size(p) == sizes[p]
	}
	return ok
}

// cutOperand is a piece of an operand that is no concatenation. Of a mask it is a number where all of
// the piece is before its end, or after.
func (t *Table) cutOperand(a arg, d digits.Digit, start, n int64) operandPart {
	if from, to, ok := t.maskRange(a.base, d); ok && (to <= start || from >= start+n || from <= start && to >= start+n) {
		x := arg{base: t.one, coef: 0}
		if from <= start && to >= start+n {
			x.coef = a.coef
		}
		return a.withPart(operandPart{x, digits.Add(nil, digits.Repeated(n)), func(d digits.Digit) digits.Digit { return digits.Repeated(d.Size) }})
	}
	var loops []loop
	for dim, size := range a.base.shape {
		if dim != d.Dim {
			loops = append(loops, loop{size: size, at: []digits.Digit{digits.Of(dim, 1, size)}})
		}
	}
	c, e, where, along := t.slice(a, []digits.Digit{d}, span{start, n, 1}, loops)
	m := &digitMap{to: where}
	for _, l := range loops {
		m.from = append(m.from, l.at[0])
	}
	return a.withPart(operandPart{arg{base: e, coef: c}, along, m.at})
}

// withPart gives a part of an operand what is seen of it at each place.
func (a *arg) withPart(x operandPart) operandPart {
	for _, d := range a.inner {
		x.arg.inner = append(x.arg.inner, x.move(d))
	}
	return x
}

// buildByParts makes an operation once for each part of loop k of those that loops are merged to,
// and combines or concatenates what comes out.
func (t *Table) buildByParts(parts [][]operandPart, loops []loop, k int, of []int, stride []int64, mk, combine builder) (float64, *expr, []digits.Digit) {
	var others []int // raw loops
	sum := false
	for i, l := range loops {
		if of[i] != k {
			others = append(others, i)
		} else {
			sum = l.summed
		}
	}
	args, wheres, along := make([]arg, len(parts)), make([][]digits.Digit, len(parts)), make([][]digits.Digit, len(parts))
	for p, ops := range parts {
		var part []loop
		for _, i := range others {
			l := loop{size: loops[i].size, summed: loops[i].summed, at: make([]digits.Digit, len(ops)), tail: loops[i].tail}
			for j, o := range ops {
				l.at[j] = o.move(loops[i].at[j])
			}
			part = append(part, l)
		}
		lists, in := make([][]digits.Digit, len(ops)), make([]arg, len(ops))
		for j, o := range ops {
			in[j], lists[j] = o.arg, o.along
		}
		rows, ok := digits.Align(lists)
		if !ok {
			panic(digits.Uneven{})
		}
		for _, row := range rows {
			part = append(part, loop{size: row[0].Size, summed: sum, at: row})
		}
		c, e, where := mk(in, part)
		args[p] = arg{base: e, coef: c}
		wheres[p] = slices.Concat(where[:len(others)], where[len(part):])
		along[p] = where[len(others):len(part)]
	}
	rest := make([]loop, 0, len(wheres[0])) // others, then the result's own
	for i, d := range wheres[0] {
		l := loop{size: d.Size, summed: i < len(others) && loops[others[i]].summed}
		for p := range parts {
			l.at = append(l.at, wheres[p][i])
		}
		if l.summed {
			l.size, l.at = 1, slices.Repeat([]digits.Digit{digits.Repeated(1)}, len(parts))
		}
		l.summed = false
		rest = append(rest, l)
	}
	where := make([]digits.Digit, len(loops))
	var coef float64
	var e *expr
	var w, dim []digits.Digit
	if sum {
		coef, e, w = combine(args, rest)
	} else {
		coef, e, w, dim = t.concat(args, along, rest)
		if len(dim) != 1 || dim[0].Stride != 1 {
			panic(digits.Uneven{})
		}
	}
	for i, l := range loops {
		if where[i] = digits.Repeated(l.size); of[i] == k && !sum {
			where[i] = digits.Of(dim[0].Dim, stride[i], l.size)
		}
	}
	for j, i := range others {
		if !loops[i].summed {
			where[i] = w[j]
		}
	}
	return coef, e, append(where, w[len(others):]...)
}

// span are places of a dimension: count from a start, in steps.
type span struct{ start, count, step int64 }

// slice is a span of a dimension of an operand, which is given by its digits; the others are
// loops. It returns the digits of the loops, and of the dimension.
func (t *Table) slice(a arg, along []digits.Digit, at span, loops []loop) (float64, *expr, []digits.Digit, []digits.Digit) {
	along = digits.Joined(along)
	n := digits.Places(along)
	if at.start == 0 && at.count == n {
		return a.coef, a.base, operandDigits(loops), along
	}
	if a.base == t.one || len(along) == 1 && along[0].Dim == digits.None {
		return a.coef, a.base, operandDigits(loops), digits.Add(nil, digits.Repeated(at.count))
	}
	if args, lists, flat := []arg{a}, [][]digits.Digit{along}, slices.Clone(loops); t.flatten(args, lists, flat, 0) {
		a, along, loops = args[0], lists[0], flat
	}
	if len(along) != 1 {
		panic(digits.Uneven{})
	}
	v := view{arg: a, inner: along[0], off: at.start, dil: 1, axes: []axis{{at.count, digits.Repeated(at.count), at.step}}}
	for _, l := range loops {
		v.axes = append(v.axes, axis{l.size, l.at[0], 0})
	}
	c, e, where := t.view(v)
	return c, e, digits.Singles(where[1:]), digits.Joined(where[0])
}

// padding begins the name of what comes after the end of a tensor, of which nothing is known.
const padding = "padding "

// pad is a tensor with more places in one dimension. Ranks that have the same piece have the
// same after its end.
func (t *Table) pad(p *Tensor, d int, n int64) *Tensor {
	q := &Tensor{base: p.base, coef: 1, Atoms: slices.Clone(p.Atoms)}
	var shape []int64
	var loops []loop
	other := func(x digits.Digit) {
		y := digits.Repeated(x.Size)
		if x.Dim != digits.None && x.Size > 1 {
			y = digits.Of(len(shape), 1, x.Size)
			shape = append(shape, x.Size)
		}
		loops = append(loops, loop{size: x.Size, at: []digits.Digit{x, y}})
	}
	for e, l := range p.Dims {
		if e != d {
			for _, x := range l {
				other(x)
			}
		}
	}
	for _, x := range p.Atoms {
		other(x)
	}
	more := n - digits.Places(p.Dims[d])
	tail := digits.Add(nil, digits.Of(len(shape), 1, more))
	if more > 1 {
		shape = append(shape, more)
	}
	junk := t.leaf(padding+strconv.Itoa(len(t.exprs)), shape...)
	_, base, where, along := t.concat([]arg{{base: p.base, coef: p.coef}, {base: junk, coef: 1}}, [][]digits.Digit{p.Dims[d], tail}, loops)
	q.base = base
	i := 0
	for e, l := range p.Dims {
		if e == d {
			q.Dims = append(q.Dims, along)
			continue
		}
		q.Dims = append(q.Dims, digits.Joined(where[i:i+len(l)]))
		i += len(l)
	}
	copy(q.Atoms, where[i:])
	return q
}
