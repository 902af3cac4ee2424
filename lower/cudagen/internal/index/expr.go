// Package index has the element indices of generated kernels: sums of multiples of variables, each
// defined in a scope of statements, and of quotients and remainders of such sums. They are kept in a
// form in which inverse reshapes cancel, and which tells what is contiguous and aligned.
package index

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/seed-ee968945/concert/internal/intmath"
)

// Expr is an integer that a kernel computes: a constant plus multiples of atoms. Terms ascend
// by atom and no coefficient is zero, so that equal indices have equal terms. It is immutable;
// the zero value is 0.
type Expr struct {
	c     int64
	terms []term
}

type term struct {
	k int64
	a *Atom
}

// Atom is an integer that is not negative: a variable of the kernel, or a quotient, a remainder
// or a product of an index and a size.
type Atom struct {
	id    int
	text  string // C++ expression that stands alone in a product
	max   int64  // 0 <= atom <= max
	mult  int64  // the atom is a multiple of this
	Scope *Scope // of a variable: where it is defined; loops set it for the statements at hand
	Front *Scope // where it is declared, if its value has a meaning in Scope only

	op  byte   // '/', '%' or '*' of arg and by; 0 of a variable
	arg Expr   // of a variable that was loaded, the sum of what its position depends on
	by  Extent // of '*' a dynamic size
}

// Builder makes the atoms of one kernel and simplifies what is built of them.
type Builder struct {
	n   int
	key map[string]*Atom // all but those of NewAtom, by text; look-up only
	top *Scope           // where sizes are defined
}

// NewBuilder returns a builder without atoms. Dynamic sizes are variables of scope top.
func NewBuilder(top *Scope) *Builder { return &Builder{key: map[string]*Atom{}, top: top} }

// Constant is c as an index.
func Constant(c int64) Expr { return Expr{c: c} }

// Expr is a as an index.
func (a *Atom) Expr() Expr { return Expr{terms: []term{{1, a}}} }

// NewAtom makes the variable text of scope s, a multiple of mult from 0 to most.
func (x *Builder) NewAtom(text string, most, mult int64, s *Scope) *Atom {
	x.n++
	return &Atom{id: x.n, text: text, max: most, mult: mult, Scope: s}
}

// Loaded is the variable of scope s that holds a position from 0 to most, which was loaded from
// a tensor at an index. Of the same name it is the same.
func (x *Builder) Loaded(name string, most int64, s *Scope, at []Expr) *Atom {
	a := x.key[name]
	if a == nil {
		a = x.NewAtom(name, most, 1, s)
		for _, e := range at {
			a.arg = a.arg.Add(1, e)
		}
		x.key[name] = a
	}
	a.Scope = s
	return a
}

// Const is the value of e, if e has no atoms.
func (e Expr) Const() (n int64, ok bool) { return e.c, len(e.terms) == 0 }

// Coefficient is the factor of a in e, 0 if a is not a term.
func (e Expr) Coefficient(a *Atom) int64 {
	for _, t := range e.terms {
		if t.a == a {
			return t.k
		}
	}
	return 0
}

// Equal reports whether e and f are the same sum. It errs to false.
func (e Expr) Equal(f Expr) bool { return e.c == f.c && slices.Equal(e.terms, f.terms) }

// Add returns e + k*f.
func (e Expr) Add(k int64, f Expr) Expr {
	out := Expr{c: e.c + k*f.c}
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
	if r.a.by.Name == "" {
		return q.a.op == '/' && q.a.by == r.a.by && q.k == r.k*r.a.by.N && q.a.arg.Equal(r.a.arg)
	}
	if q.a.op != '*' || q.a.by != r.a.by || q.k != r.k || q.a.arg.c != 0 || len(q.a.arg.terms) != 1 || q.a.arg.terms[0].k != 1 {
		return false
	}
	p := q.a.arg.terms[0].a
	return p.op == '/' && p.by == r.a.by && p.arg.Equal(r.a.arg)
}

// recombine replaces k*(a % n) + k*n*(a / n) by k*a, until nothing is left to replace.
func recombine(e Expr) Expr {
	for i, r := range e.terms {
		if r.a.op != '%' {
			continue
		}
		for j, q := range e.terms {
			if q.restores(r) {
				rest := Expr{c: e.c}
				for k, t := range e.terms {
					if k != i && k != j {
						rest.terms = append(rest.terms, t)
					}
				}
				return rest.Add(r.k, r.a.arg)
			}
		}
	}
	return e
}

// Bounds returns bounds of e, both included.
func (e Expr) Bounds() (lo, hi int64) {
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

// Divisor is a number that divides e, 0 if e is 0.
func (e Expr) Divisor() int64 {
	g := max(e.c, -e.c)
	for _, t := range e.terms {
		g = intmath.GCD(g, t.k*t.a.mult)
	}
	return g
}

// split separates what is a multiple of n whatever the atoms are from the rest,
// which has a remainder between 0 and n-1 added to a multiple of n.
func (e Expr) split(n int64) (whole, rest Expr) {
	rest.c = intmath.Mod(e.c, n)
	whole.c = e.c - rest.c
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
func (e Expr) low(n int64) (high, small Expr) {
	terms := slices.DeleteFunc(slices.Clone(e.terms), func(t term) bool { return t.k != 1 })
	slices.SortStableFunc(terms, func(a, b term) int { return cmp.Compare(a.a.max, b.a.max) })
	high = e
	sum, rest := Expr{}, e
	for _, t := range terms {
		sum, rest = sum.Add(1, t.a.Expr()), rest.Add(-1, t.a.Expr())
		if _, most := sum.Bounds(); intmath.GCD(rest.Divisor(), n) > most {
			high, small = rest, sum
		}
	}
	return high, small
}

// DivMod returns e / n and e % n for n > 0 and e >= 0.
func (x *Builder) DivMod(e Expr, n int64) (q, r Expr) {
	if n == 1 {
		return e, Constant(0)
	}
	whole, rest := e.split(n)
	for _, t := range whole.terms {
		q.terms = append(q.terms, term{t.k / n, t.a})
	}
	q.c = whole.c / n
	if lo, hi := rest.Bounds(); lo >= 0 && hi < n {
		return q, rest
	}
	rest, small := rest.low(n)
	if lo, hi := rest.Bounds(); lo >= 0 && hi < n {
		return q, rest.Add(1, small)
	}
	d := intmath.GCD(rest.factor(), n)
	if d == 1 {
		return q.Add(1, x.derived('/', rest, Extent{N: n})), small.Add(1, x.derived('%', rest, Extent{N: n}))
	}
	// d*x / (d*m) is x / m, and the remainder is d times that of x.
	qx, rx := x.DivMod(rest.over(d), n/d)
	return q.Add(1, qx), small.Add(d, rx)
}

// factor is a number that divides all of e's constants, 0 if e is 0.
func (e Expr) factor() int64 {
	g := max(e.c, -e.c)
	for _, t := range e.terms {
		g = intmath.GCD(g, t.k)
	}
	return g
}

// over is e / d where d divides all of e's constants.
func (e Expr) over(d int64) Expr {
	out := Expr{c: e.c / d, terms: slices.Clone(e.terms)}
	for i := range out.terms {
		out.terms[i].k /= d
	}
	return out
}

// Times returns e * s for e >= 0.
func (x *Builder) Times(e Expr, s Extent) Expr {
	switch {
	case s.Name == "":
		return Expr{}.Add(s.N, e)
	case len(e.terms) == 0:
		return Expr{}.Add(e.c, x.Size(s))
	}
	return x.derived('*', e, s)
}

// divided returns e / s and e % s for e >= 0.
func (x *Builder) divided(e Expr, s Extent) (q, r Expr) {
	switch {
	case s.Name == "":
		return x.DivMod(e, s.N)
	case e.Equal(Expr{}):
		return e, e
	}
	return x.derived('/', e, s), x.derived('%', e, s)
}

// derived is the atom e / s, e % s or e * s, where s of a product is dynamic.
func (x *Builder) derived(op byte, e Expr, s Extent) Expr {
	by := s.Name
	if by == "" {
		by = strconv.FormatInt(s.N, 10)
	}
	text := fmt.Sprintf("(%s %c %s)", e.Paren(), op, by)
	if a := x.key[text]; a != nil {
		return a.Expr()
	}
	_, most := e.Bounds()
	mult := int64(1)
	switch {
	case op == '*':
		most, mult = most*s.N, e.Divisor()
	case op == '%' && s.Name == "":
		mult = intmath.GCD(e.Divisor(), s.N)
		most = min(most, s.N-mult)
	case op == '%':
		most = s.N - 1
	case s.Name == "":
		most /= s.N
	}
	a := x.NewAtom(text, most, mult, nil)
	a.op, a.arg, a.by = op, e, s
	x.key[text] = a
	return a.Expr()
}

// Scope is the innermost of the scopes in which the variables of e are defined, nil if there are none.
func (e Expr) Scope() *Scope {
	var s *Scope
	for _, t := range e.terms {
		in := t.a.Scope
		if t.a.op != 0 {
			in = t.a.arg.Scope()
		}
		if s == nil || in != nil && in.Depth > s.Depth {
			s = in
		}
	}
	return s
}

// DependsOn reports whether a is among the atoms of e or of what they are made of.
func (e Expr) DependsOn(a *Atom) bool {
	for _, t := range e.terms {
		if t.a == a || t.a.arg.DependsOn(a) {
			return true
		}
	}
	return false
}

// KnownBefore reports whether the variables of e are declared in scopes less deep than
// depth. What they stand for may have a meaning further inside only.
func (e Expr) KnownBefore(depth int) bool { return e.known(depth, nil) }

// KnownAround reports whether the variables of e, but for a, are declared around a's scope.
func (e Expr) KnownAround(a *Atom) bool { return e.known(a.Scope.Depth, a) }

func (e Expr) known(depth int, but *Atom) bool {
	for _, t := range e.terms {
		switch {
		case t.a == but:
		case t.a.op != 0:
			if !t.a.arg.known(depth, but) {
				return false
			}
		case t.a.Front != nil:
			if t.a.Front.Depth >= depth {
				return false
			}
		case t.a.Scope.Depth >= depth:
			return false
		}
	}
	return true
}

// String is the C++ expression of e, at the precedence of a sum.
func (e Expr) String() string {
	ts := slices.Clone(e.terms) // outer dimensions first
	slices.SortStableFunc(ts, func(a, b term) int { return cmp.Compare(max(b.k, -b.k), max(a.k, -a.k)) })
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

// Paren is the C++ expression of e as a factor.
func (e Expr) Paren() string {
	if len(e.terms) == 1 && e.c == 0 && e.terms[0].k == 1 || len(e.terms) == 0 {
		return e.String()
	}
	return "(" + e.String() + ")"
}
