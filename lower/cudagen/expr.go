package cudagen

import (
	"cmp"
	"slices"
	"strconv"
	"strings"

	"github.com/seed-ee968945/concert/internal/intmath"
)

// lin is an index: a constant plus multiples of atoms. Terms ascend by atom and
// no factor is zero, so that equal indices have equal terms. A lin is immutable.
type lin struct {
	c     int64
	terms []term
}

type term struct {
	k int64
	a *atom
}

// atom is an integer that the kernel computes at run time: a loop variable, a
// quotient or remainder of an index by a constant, or a position that it loaded.
type atom struct {
	id    int
	text  string // C++ expression that stands alone in a product
	max   int64  // 0 <= atom <= max
	mult  int64  // the atom is a multiple of this
	scope *scope // where it is defined; of a quotient or remainder see lin.scope
	front *scope // where its variable is declared, if its value has a meaning in scope only

	// A quotient or a remainder of arg by the constant by. Else by is 0, and arg is
	// what the position depends on that the atom stands for, if it is loaded.
	arg lin
	by  int64
	mod bool
	// Of a quotient, a remainder or a product by a dynamic size,
	// its name; by is -1 then.
	name  string
	times bool
}

// extent is a size along one dimension.
type extent struct {
	n    int64  // the size, or an upper bound
	name string // of the variable that has it, if it is known at run time only
}

// lin is the size as an index.
func (s extent) lin(x *indices) lin {
	if s.name == "" {
		return constant(s.n)
	}
	return x.variable(s).lin()
}

// hasDynamicSize reports whether one of the sizes is dynamic.
func hasDynamicSize(shape []extent) bool {
	return slices.ContainsFunc(shape, func(s extent) bool { return s.name != "" })
}

// indices makes the atoms of one kernel and simplifies what is built of them.
// Every atom is nonnegative, so that quotients round down.
type indices struct {
	n   int
	key map[string]*atom // quotients, remainders and sizes; look-up only
	top *scope           // where sizes are defined
}

func newIndices(top *scope) *indices { return &indices{key: map[string]*atom{}, top: top} }

// variable is the atom of a dynamic size.
func (x *indices) variable(s extent) *atom {
	if x.key[s.name] == nil {
		x.key[s.name] = x.newAtom(s.name, s.n, 1, x.top)
	}
	return x.key[s.name]
}

func constant(c int64) lin { return lin{c: c} }

func (a *atom) lin() lin { return lin{terms: []term{{1, a}}} }

// newAtom makes a variable of the given largest value and divisor.
func (x *indices) newAtom(text string, most, mult int64, s *scope) *atom {
	x.n++
	return &atom{id: x.n, text: text, max: most, mult: mult, scope: s}
}

func (e lin) equal(f lin) bool { return e.c == f.c && slices.Equal(e.terms, f.terms) }

// add returns e + k*f.
func (e lin) add(k int64, f lin) lin {
	out := lin{c: e.c + k*f.c}
	i, j := 0, 0
	for i < len(e.terms) || j < len(f.terms) {
		switch {
		case j == len(f.terms) || i < len(e.terms) && e.terms[i].a.id < f.terms[j].a.id:
			out.terms = append(out.terms, e.terms[i])
			i++
		case i == len(e.terms) || e.terms[i].a.id > f.terms[j].a.id:
			out.terms = append(out.terms, term{k * f.terms[j].k, f.terms[j].a})
			j++
		default:
			out.terms = append(out.terms, term{e.terms[i].k + k*f.terms[j].k, e.terms[i].a})
			i, j = i+1, j+1
		}
	}
	out.terms = slices.DeleteFunc(out.terms, func(t term) bool { return t.k == 0 })
	return recombine(out)
}

// restores reports whether q is what makes the remainder r whole.
func (q term) restores(r term) bool {
	if r.a.name == "" {
		return q.a.by == r.a.by && !q.a.mod && q.k == r.k*r.a.by && q.a.arg.equal(r.a.arg)
	}
	if !q.a.times || q.a.name != r.a.name || q.k != r.k || q.a.arg.c != 0 || len(q.a.arg.terms) != 1 || q.a.arg.terms[0].k != 1 {
		return false
	}
	p := q.a.arg.terms[0].a
	return p.name == r.a.name && !p.mod && !p.times && p.arg.equal(r.a.arg)
}

// recombine replaces k*(a % n) + k*n*(a / n) by k*a, until nothing is left to replace.
func recombine(e lin) lin {
	for i, r := range e.terms {
		if !r.a.mod {
			continue
		}
		for j, q := range e.terms {
			if q.restores(r) {
				rest := lin{c: e.c}
				for k, t := range e.terms {
					if k != i && k != j {
						rest.terms = append(rest.terms, t)
					}
				}
				return rest.add(r.k, r.a.arg)
			}
		}
	}
	return e
}

// span returns bounds of e, both included.
func (e lin) span() (lo, hi int64) {
	lo, hi = e.c, e.c
	for _, t := range e.terms {
		if t.k > 0 {
			hi += t.k * t.a.max
		} else {
			lo += t.k * t.a.max
		}
	}
	return lo, hi
}

// divisor is a number that divides e, 0 if e is 0.
func (e lin) divisor() int64 {
	g := abs(e.c)
	for _, t := range e.terms {
		g = intmath.GCD(g, abs(t.k)*t.a.mult)
	}
	return g
}

// split separates what is a multiple of n whatever the atoms are from the rest,
// which has a remainder between 0 and n-1 added to a multiple of n.
func (e lin) split(n int64) (whole, rest lin) {
	whole.c, rest.c = e.c-mod(e.c, n), mod(e.c, n)
	for _, t := range e.terms {
		if t.k%n == 0 {
			whole.terms = append(whole.terms, t)
		} else {
			rest.terms = append(rest.terms, t)
		}
	}
	return whole, rest
}

// low separates a small addend from what is a multiple of d, a divisor of n:
// (d*x + y) / n is d*x / n if 0 <= y < d, and the remainders differ by y.
func (e lin) low(n int64) (high, small lin) {
	terms := slices.DeleteFunc(slices.Clone(e.terms), func(t term) bool { return t.k != 1 })
	slices.SortStableFunc(terms, func(a, b term) int { return cmp.Compare(a.a.max, b.a.max) })
	high = e
	sum, rest := lin{}, e
	for _, t := range terms {
		sum, rest = sum.add(1, t.a.lin()), rest.add(-1, t.a.lin())
		if _, most := sum.span(); intmath.GCD(rest.divisor(), n) > most {
			high, small = rest, sum
		}
	}
	return high, small
}

// divmod returns e / n and e % n for n > 0 and e >= 0.
func (x *indices) divmod(e lin, n int64) (q, r lin) {
	if n == 1 {
		return e, constant(0)
	}
	whole, rest := e.split(n)
	for _, t := range whole.terms {
		q.terms = append(q.terms, term{t.k / n, t.a})
	}
	q.c = whole.c / n
	if lo, hi := rest.span(); lo >= 0 && hi < n {
		return q, rest
	}
	rest, small := rest.low(n)
	if lo, hi := rest.span(); lo >= 0 && hi < n {
		return q, rest.add(1, small)
	}
	d := intmath.GCD(rest.factor(), n)
	if d == 1 {
		return q.add(1, x.quotient(rest, n, false).lin()), small.add(1, x.quotient(rest, n, true).lin())
	}
	// d*x / (d*m) is x / m, and the remainder is d times that of x.
	qx, rx := x.divmod(rest.over(d), n/d)
	return q.add(1, qx), small.add(d, rx)
}

// factor is a number that divides all of e's constants, 0 if e is 0.
func (e lin) factor() int64 {
	g := abs(e.c)
	for _, t := range e.terms {
		g = intmath.GCD(g, abs(t.k))
	}
	return g
}

// over is e / d where d divides all of e's constants.
func (e lin) over(d int64) lin {
	out := lin{c: e.c / d, terms: slices.Clone(e.terms)}
	for i := range out.terms {
		out.terms[i].k /= d
	}
	return out
}

// times returns e * s for e >= 0.
func (x *indices) times(e lin, s extent) lin {
	switch {
	case s.name == "":
		return lin{}.add(s.n, e)
	case len(e.terms) == 0:
		return lin{}.add(e.c, x.variable(s).lin())
	}
	_, hi := e.span()
	return x.derived("("+e.paren()+" * "+s.name+")", hi*s.n, e.divisor(), e, s, func(a *atom) { a.times = true })
}

// divided returns e / s and e % s for e >= 0.
func (x *indices) divided(e lin, s extent) (q, r lin) {
	switch {
	case s.name == "":
		return x.divmod(e, s.n)
	case e.equal(lin{}):
		return e, e
	}
	_, hi := e.span()
	q = x.derived("("+e.paren()+" / "+s.name+")", hi, 1, e, s, func(*atom) {})
	return q, x.derived("("+e.paren()+" % "+s.name+")", s.n-1, 1, e, s, func(a *atom) { a.mod = true })
}

// derived makes the atom of a text that depends on e and s.
func (x *indices) derived(text string, most, mult int64, e lin, s extent, set func(*atom)) lin {
	a := x.key[text]
	if a == nil {
		a = x.newAtom(text, most, mult, nil)
		a.arg, a.by, a.name = e, -1, s.name
		set(a)
		x.key[text] = a
	}
	return a.lin()
}

// quotient makes the atom e / n, or e % n.
func (x *indices) quotient(e lin, n int64, mod bool) *atom {
	_, hi := e.span()
	op, most, mult := " / ", hi/n, int64(1)
	if mod {
		op, mult = " % ", intmath.GCD(e.divisor(), n)
		most = min(hi, n-mult)
	}
	text := "(" + e.paren() + op + strconv.FormatInt(n, 10) + ")"
	if a := x.key[text]; a != nil {
		return a
	}
	a := x.newAtom(text, most, mult, nil)
	a.arg, a.by, a.mod = e, n, mod
	x.key[text] = a
	return a
}

// scope is the innermost of the scopes in which the atoms of e are defined.
func (e lin) scope() *scope {
	var s *scope
	for _, t := range e.terms {
		in := t.a.scope
		if t.a.by != 0 { // the scopes of loop variables change from loop to loop
			in = t.a.arg.scope()
		}
		if s == nil || in.depth > s.depth {
			s = in
		}
	}
	return s
}

// depends reports whether a is among the atoms of e or of what they are made of.
func (e lin) depends(a *atom) bool {
	for _, t := range e.terms {
		if t.a == a || t.a.arg.depends(a) {
			return true
		}
	}
	return false
}

// early reports whether the variables of e are declared in scopes less deep than
// depth. What they stand for may have a meaning further inside only.
func (e lin) early(depth int) bool {
	for _, t := range e.terms {
		switch {
		case t.a.by != 0:
			if !t.a.arg.early(depth) {
				return false
			}
		case t.a.front != nil:
			if t.a.front.depth >= depth {
				return false
			}
		case t.a.scope.depth >= depth:
			return false
		}
	}
	return true
}

// text is the C++ expression of e, at the precedence of a sum.
func (e lin) text() string {
	ts := slices.Clone(e.terms) // outer dimensions first
	slices.SortStableFunc(ts, func(a, b term) int { return cmp.Compare(abs(b.k), abs(a.k)) })
	var b strings.Builder
	for i, t := range ts {
		k := t.k
		switch {
		case i > 0 && k < 0:
			b.WriteString(" - ")
			k = -k
		case i > 0:
			b.WriteString(" + ")
		case k < 0:
			b.WriteString("-")
			k = -k
		}
		b.WriteString(t.a.text)
		if k != 1 {
			b.WriteString(" * " + strconv.FormatInt(k, 10))
		}
	}
	switch {
	case len(ts) == 0:
		return strconv.FormatInt(e.c, 10)
	case e.c > 0:
		b.WriteString(" + " + strconv.FormatInt(e.c, 10))
	case e.c < 0:
		b.WriteString(" - " + strconv.FormatInt(-e.c, 10))
	}
	return b.String()
}

// paren is text as a factor.
func (e lin) paren() string {
	if len(e.terms) == 1 && e.c == 0 && e.terms[0].k == 1 || len(e.terms) == 0 {
		return e.text()
	}
	return "(" + e.text() + ")"
}

// ravel is the row-major position of the index at in a tensor of this shape.
func (x *indices) ravel(at []lin, shape []extent) lin {
	e, n := lin{}, int64(1)
	if hasDynamicSize(shape) {
		for d, s := range shape {
			e = x.times(e, s).add(1, at[d])
		}
		return e
	}
	for d := len(shape) - 1; d >= 0; d-- {
		e = e.add(n, at[d])
		n *= shape[d].n
	}
	return e
}

// count is the number of elements of a shape.
func (x *indices) count(shape []extent) lin {
	e := constant(1)
	for _, s := range shape {
		e = x.times(e, s)
	}
	return e
}

// unravel is the index of row-major position e in a tensor of this shape.
func (x *indices) unravel(e lin, shape []extent) []lin {
	at := make([]lin, len(shape))
	first := slices.IndexFunc(shape, func(s extent) bool { return s.n > 1 })
	for d := len(shape) - 1; d >= 0; d-- {
		switch {
		case shape[d].n <= 1:
		case d == first: // all dimensions before it have one element
			at[d] = e
			e = lin{}
		default:
			e, at[d] = x.divided(e, shape[d])
		}
	}
	return at
}

// unravelOuterFirst is unravel of a position that is divided by the sizes of the outer dimensions
// first: of dimensions that are neighbours in memory the remainders are then one remainder again.
func (x *indices) unravelOuterFirst(e lin, shape []extent) []lin {
	if hasDynamicSize(shape) {
		return x.unravel(e, shape)
	}
	at, n := make([]lin, len(shape)), int64(1)
	for _, s := range shape {
		n *= s.n
	}
	for d, s := range shape {
		if s.n > 1 {
			n /= s.n
			at[d], e = x.divmod(e, n)
		}
	}
	return at
}

// dot is the offset of the index at under the given strides.
func dot(at []lin, strides []int64) lin {
	e := lin{}
	for d, s := range strides {
		if s != 0 {
			e = e.add(s, at[d])
		}
	}
	return e
}

func abs(v int64) int64 {
	if v < 0 {
		return -v
	}
	return v
}

// mod is the remainder of least size that is not negative.
func mod(a, n int64) int64 { return (a%n + n) % n }
