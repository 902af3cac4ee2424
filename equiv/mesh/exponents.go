package mesh

import (
	"math"
	"slices"

	"github.com/seed-ee968945/concert/equiv/mesh/internal/digits"
	"github.com/seed-ee968945/concert/ir"
)

// This file has exponentials and logarithms: of a sum the one is a product, of a product with
// exponentials the other a sum. So a softmax is one form, whatever is subtracted before and
// wherever its sum is taken: what was subtracted cancels, in sums whose terms are opened up and
// in quotients.

// of is the same node with other operands.
func (u *use) of(in ...*piece) *use {
	return &use{s: u.s, t: u.t, n: u.n, in: in, held: make([]int, u.s.atoms())}
}

// under is operand k of what a piece is, place by place.
func (p *piece) under(k int) *piece {
	base := p.base
	all := func(l []digits.Digit) []digits.Digit {
		out := make([]digits.Digit, len(l))
		for i, d := range l {
			out[i] = base.below(d, k)
		}
		return out
	}
	q := &piece{base: base.args[k].base, coef: base.args[k].coef, held: all(p.held)}
	for _, l := range p.dims {
		q.dims = append(q.dims, digits.Joined(all(l)))
	}
	return q
}

// number is the same number everywhere.
func (u *use) number(like *piece, x float64) *piece {
	q := &piece{base: u.t.one, coef: x, held: u.everywhere()}
	for _, l := range like.dims {
		q.dims = append(q.dims, digits.Add(nil, digits.Repeated(digits.Places(l))))
	}
	return q
}

// exponential is e to a power.
func (u *use) exponential(p *piece) *piece {
	x := math.Exp(p.coef)
	switch base := p.base; {
	case base == u.t.one && x > 0 && x < math.MaxFloat64:
		return u.number(p, x)
	case base.text == least && p.coef > 0:
		return u.number(p, 0)
	case base.kind == linear:
		var out *piece
		for k := range base.args {
			q := p.under(k)
			q.coef *= p.coef
			if q = u.exponential(q); out == nil {
				out = q
			} else {
				out = u.of(out, q).times()
			}
		}
		return out
	case base.is("log") && p.coef == 1:
		return p.under(0)
	case base.is("log") && p.coef == -1:
		return u.inverse(p.under(0))
	}
	return u.of(p).real("exp")
}

// logarithm is the power of e that a piece is.
func (u *use) logarithm(p *piece) *piece {
	base := p.base
	switch {
	case base == u.t.one && p.coef > 0:
		return u.number(p, math.Log(p.coef))
	case base.is("exp") && p.coef == 1:
		return p.under(0)
	case base.kind != product:
		return u.of(p).real("log")
	}
	for _, l := range base.loops {
		if l.summed {
			return u.of(p).real("log")
		}
	}
	var power *piece
	rest := u.number(p, p.coef)
	for k, a := range base.args {
		q := p.under(k)
		switch {
		case !a.base.is("exp"):
			rest = u.of(rest, q).times()
		case power == nil:
			power = q.under(0)
		default:
			power = u.of(power, q.under(0)).sum(1, 1)
		}
	}
	if power == nil {
		return u.of(p).real("log")
	}
	return u.of(power, u.logarithm(rest)).sum(1, 1)
}

// factors are what a piece is a product of, without its number.
func (u *use) factors(p *piece) []*piece {
	if p.base.kind != product || slices.ContainsFunc(p.base.loops, func(l loop) bool { return l.summed }) {
		q := *p
		q.coef = 1
		return []*piece{&q}
	}
	var out []*piece
	for k := range p.base.args {
		out = append(out, p.under(k))
	}
	return out
}

// quotient is one by another, without the exponentials that both have.
func (u *use) quotient(above, below *piece) *piece {
	l, m := u.factors(above), u.factors(below)
	less := 0
	for i := len(m) - 1; i >= 0; i-- {
		k := slices.IndexFunc(l, m[i].alike)
		if k >= 0 && m[i].base.is("exp") {
			l, m, less = slices.Delete(l, k, k+1), slices.Delete(m, i, i+1), less+1
		}
	}
	if less == 0 {
		return u.of(above, u.inverse(below)).times()
	}
	out, by := u.number(above, above.coef), u.number(below, below.coef)
	for _, p := range l {
		out = u.of(out, p).times()
	}
	for _, p := range m {
		by = u.of(by, p).times()
	}
	return u.of(out, u.inverse(by)).times()
}

// alike reports whether pieces are the same, but for how often each element is there.
func (p *piece) alike(q *piece) bool {
	repeats := func(l []digits.Digit) bool {
		return !slices.ContainsFunc(l, func(d digits.Digit) bool { return d.Dim != digits.None })
	}
	return p.base == q.base && p.coef == q.coef && slices.Equal(p.held, q.held) && slices.EqualFunc(p.dims, q.dims, func(a, b []digits.Digit) bool {
		return slices.Equal(a, b) || repeats(a) && repeats(b)
	})
}

// real is a function of real numbers, of whatever types.
func (u *use) real(name string) *piece { return u.block(name, u.broadcast(), nil) }

// softmax is e to each power by the sum of all, or the logarithm of that.
func (u *use) softmax() {
	e := u.exponential(u.in[0])
	x, d := u.of(e), int(u.int("dim", 0))
	var dims [][]int
	for k := range e.dims {
		if k == d {
			x.align([]int{k}, true)
			dims = append(dims, nil)
		} else {
			dims = append(dims, x.one(0, k))
		}
	}
	x.ranks()
	coef, base, where := x.t.multiply(x.operands(), x.loops)
	sum := x.finish(coef, base, where, dims)
	if u.n.Op() == ir.OpSoftmax {
		u.set(u.of(e, u.inverse(sum)).times())
	} else {
		u.set(u.of(u.in[0], u.logarithm(sum)).sum(1, -1))
	}
}

// opened are the operands of a sum with the terms of those that are sums themselves, if any term
// is in two of them: it may cancel.
func opened(args []arg, loops []loop) ([]arg, []loop) {
	in := map[*expr]int{} // look-up only
	twice := false
	count := func(k int, e *expr) {
		if old, ok := in[e]; ok && old != k {
			twice = true
		}
		in[e] = k
	}
	sum := false
	for k, a := range args {
		if count(k, a.base); a.base.kind == linear {
			sum = true
			for _, b := range a.base.args {
				count(k, b.base)
			}
		}
	}
	if !twice || !sum {
		return args, loops
	}
	var out []arg
	at := make([][]digits.Digit, len(loops))
	for k, a := range args {
		n := 1
		if a.base.kind != linear {
			out = append(out, a)
		} else {
			n = len(a.base.args)
			for _, b := range a.base.args {
				out = append(out, arg{base: b.base, coef: a.coef * b.coef})
			}
		}
		for j := range n {
			for i, l := range loops {
				d := l.at[k]
				if a.base.kind == linear {
					d = a.base.below(d, j)
				}
				at[i] = append(at[i], d)
			}
		}
	}
	loops = slices.Clone(loops)
	for i := range loops {
		loops[i].at = at[i]
	}
	return out, loops
}

// below is a digit of the result as one of operand k.
func (e *expr) below(d digits.Digit, k int) digits.Digit {
	if d.Dim == digits.None {
		return d
	}
	of := e.loopOf(d)
	if of < 0 || len(e.own) > 0 && e.win == nil {
		panic(digits.Uneven{})
	}
	x := e.loops[of].at[k]
	if x.Dim == digits.None {
		return digits.Repeated(d.Size)
	}
	return digits.Of(x.Dim, x.Stride*d.Stride, d.Size)
}
