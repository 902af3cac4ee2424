package mesh

import (
	"github.com/seed-ee968945/concert/equiv/mesh/internal/digits"
	"github.com/seed-ee968945/concert/ir"
)

// pointwise is an elementwise operation. Of floats what is a sum or a product is one.
func (u *use) pointwise() *piece {
	op, attrs, dt := u.n.Op(), u.n.Attrs(), u.n.Result(0).Type().DType()
	float := dt.IsFloat()
	for _, v := range u.n.Args() {
		float = float && v.Type().DType().IsFloat()
	}
	if op == ir.OpConvert && u.n.Arg(0).Type().DType() == dt {
		return u.in[0]
	}
	chooses := op == ir.OpWhere && dt != ir.Bool
	if attrs.Has("scalar") {
		x := arg{base: u.t.one, coef: attrs.Float("scalar", 0)}
		if of := u.n.Arg(0).Type().DType(); !of.IsFloat() {
			x = u.number64("scalar", of)
		}
		u.in = append(u.in, &piece{base: x.base, coef: x.coef, held: nil})
		if attrs.Bool("reverse", false) {
			u.in[0], u.in[1] = u.in[1], u.in[0]
		}
	}
	if p := u.accumulated(); p != nil {
		return p
	}
	if !float && !chooses {
		name := op.Name() + " " + attrs.Without("scalar").Without("reverse").String() + " " + dt.String()
		if v, ok := attrs.Get("scalar"); ok && dt.IsInt() {
			if _, whole := v.AsInt(); !whole { // integers are floats for it, which rounds
				name += " real"
			}
		}
		return u.each(name)
	}
	alpha := attrs.Float("alpha", 1)
	switch op {
	case ir.OpAdd:
		return u.sum(1, alpha)
	case ir.OpSub:
		return u.sum(1, -alpha)
	case ir.OpNeg:
		return u.sum(-1)
	case ir.OpMul:
		return u.times()
	case ir.OpDiv:
		return u.quotient(u.in[0], u.in[1])
	case ir.OpReciprocal:
		return u.inverse(u.in[0])
	case ir.OpExp:
		return u.exponential(u.in[0])
	case ir.OpLog:
		return u.logarithm(u.in[0])
	case ir.OpFma:
		c := u.in[2]
		u.in = u.in[:2]
		p := u.times()
		x := &use{s: u.s, t: u.t, n: u.n, in: []*piece{p, c}, held: make([]int, u.s.atoms())}
		return x.sum(1, 1)
	case ir.OpConvert:
		dims := u.broadcast()
		u.ranks()
		coef, base, where := u.t.converted(dt.String(), u.operands()[0], u.loops)
		return u.finish(coef, base, where, dims)
	case ir.OpWhere:
		return u.chosen(dt)
	}
	name := op.Name() + " " + attrs.Without("scalar").Without("reverse").Without("alpha").String() + " " + dt.String()
	return u.each(name)
}

// chosen is operand 1 where operand 0 holds, else operand 2.
func (u *use) chosen(dt ir.DType) *piece {
	dims := u.broadcast()
	u.ranks()
	coef, base, where := u.t.choose(dt.String(), u.operands(), u.loops)
	return u.finish(coef, base, where, dims)
}

// each is an operation of which nothing is known but that it is one of each element.
func (u *use) each(name string) *piece {
	for _, v := range u.n.Args() { // numbers have no type of their own
		name += " " + v.Type().DType().String()
	}
	dims := u.broadcast()
	return u.block(name, dims, nil)
}

// times is a product of all operands.
func (u *use) times() *piece {
	dims := u.broadcast()
	u.ranks()
	coef, base, where := u.t.multiply(u.operands(), u.loops)
	return u.finish(coef, base, where, dims)
}

// inverse is 1 by an operand.
func (u *use) inverse(p *piece) *piece {
	if p.coef == 0 {
		refuse("it divides by zero")
	}
	out := *p
	out.coef = 1 / p.coef
	if p.base == u.t.one {
		return &out
	}
	loops, m := make([]loop, len(p.base.shape)), &summed{}
	for d, n := range p.base.shape {
		m.segs = append(m.segs, digits.Of(d, 1, n))
		loops[d] = loop{size: n, at: m.segs[d : d+1]}
	}
	out.coef, out.base, m.where = u.t.blockOf(&spec{kind: block, text: "reciprocal", args: []arg{{base: p.base, coef: 1}}, loops: loops})
	out.coef /= p.coef
	move := func(l []digits.Digit) []digits.Digit {
		moved := make([]digits.Digit, len(l))
		for i, d := range l {
			moved[i] = m.move(d)
		}
		return moved
	}
	out.dims, out.held = nil, move(p.held)
	for _, l := range p.dims {
		out.dims = append(out.dims, digits.Joined(move(l)))
	}
	out.check()
	return &out
}
