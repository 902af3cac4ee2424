package normal

import (
	"math"
	"slices"

	"github.com/seed-ee968945/concert/equiv/mesh/internal/digits"
)

// This file has exponentials and logarithms: of a sum the one is a product, of a product with
// exponentials the other a sum. So a softmax is one form, whatever is subtracted before and
// wherever its sum is taken: what was subtracted cancels, in sums whose terms are opened up and
// in quotients.

// Exp is e to a power.
func (m *Mesh) Exp(p *Tensor) *Tensor {
	x := math.Exp(p.coef)
	switch base := p.base; {
	case base == m.t.one && x > 0 && x < math.MaxFloat64:
		return m.fullLike(p, x)
	case base.text == least && p.coef > 0:
		return m.fullLike(p, 0)
	case base.kind == linear:
		var out *Tensor
		for k := range base.args {
			q := p.operand(k)
			q.coef *= p.coef
			if q = m.Exp(q); out == nil {
				out = q
			} else {
				out = m.Mul(out, q)
			}
		}
		return out
	case base.is("log") && p.coef == 1:
		return p.operand(0)
	case base.is("log") && p.coef == -1:
		return m.Reciprocal(p.operand(0))
	}
	return m.Pointwise("exp", p)
}

// Log is the power of e that a piece is.
func (m *Mesh) Log(p *Tensor) *Tensor {
	base := p.base
	switch {
	case base == m.t.one && p.coef > 0:
		return m.fullLike(p, math.Log(p.coef))
	case base.is("exp") && p.coef == 1:
		return p.operand(0)
	case base.kind != product:
		return m.Pointwise("log", p)
	}
	for _, l := range base.loops {
		if l.summed {
			return m.Pointwise("log", p)
		}
	}
	var power *Tensor
	rest := m.fullLike(p, p.coef)
	for k, a := range base.args {
		q := p.operand(k)
		switch {
		case !a.base.is("exp"):
			rest = m.Mul(rest, q)
		case power == nil:
			power = q.operand(0)
		default:
			power = m.plus(power, q.operand(0))
		}
	}
	if power == nil {
		return m.Pointwise("log", p)
	}
	return m.plus(power, m.Log(rest))
}

// factors are what a piece is a product of, without its number.
func factors(p *Tensor) []*Tensor {
	if p.base.kind != product || slices.ContainsFunc(p.base.loops, func(l loop) bool { return l.summed }) {
		q := *p
		q.coef = 1
		return []*Tensor{&q}
	}
	var out []*Tensor
	for k := range p.base.args {
		out = append(out, p.operand(k))
	}
	return out
}

// Div is one by another, without the exponentials that both have.
func (m *Mesh) Div(above, below *Tensor) *Tensor {
	l, r := factors(above), factors(below)
	less := 0
	for i := len(r) - 1; i >= 0; i-- {
		k := slices.IndexFunc(l, r[i].equalUpToRepeats)
		if k >= 0 && r[i].base.is("exp") {
			l, r, less = slices.Delete(l, k, k+1), slices.Delete(r, i, i+1), less+1
		}
	}
	if less == 0 {
		return m.Mul(above, m.Reciprocal(below))
	}
	out, by := m.fullLike(above, above.coef), m.fullLike(below, below.coef)
	for _, p := range l {
		out = m.Mul(out, p)
	}
	for _, p := range r {
		by = m.Mul(by, p)
	}
	return m.Mul(out, m.Reciprocal(by))
}

// softmax is e to each power along a dimension, and the sum of all.
func (m *Mesh) softmax(p *Tensor, d int) (powers, sum *Tensor) {
	e := m.Exp(p)
	sum = m.Reduce(Sum, e, []int{d}, nil)
	sum.Dims = slices.Insert(sum.Dims, d, nil)
	return e, sum
}

// Softmax is e to each power by the sum of all along a dimension.
func (m *Mesh) Softmax(p *Tensor, d int) *Tensor {
	e, sum := m.softmax(p, d)
	return m.Mul(e, m.Reciprocal(sum))
}

// LogSoftmax is the logarithm of that.
func (m *Mesh) LogSoftmax(p *Tensor, d int) *Tensor {
	_, sum := m.softmax(p, d)
	return m.Add([]float64{1, -1}, p, m.Log(sum))
}

// Reciprocal is 1 by a tensor.
func (m *Mesh) Reciprocal(p *Tensor) *Tensor {
	if p.coef == 0 {
		Unsupported("it divides by zero")
	}
	if p.base == m.t.one {
		return m.fullLike(p, 1/p.coef)
	}
	to := &digitMap{from: digits.Complement(p.base.shape, nil)}
	to.coef, to.base, to.to = m.t.genericOf(&spec{kind: generic, text: "reciprocal", args: []arg{{base: p.base, coef: 1}}, loops: sumLoops(to.from, nil)})
	out := p.remapped(to, digits.None, nil)
	out.coef = to.coef / p.coef
	return out
}

// expandSums are the operands of a sum with the terms of those that are sums themselves, if any term
// is in two of them: it may cancel.
func expandSums(args []arg, loops []loop) ([]arg, []loop) {
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
					d = a.base.operandDigit(d, j)
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
