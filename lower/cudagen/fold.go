package cudagen

import (
	"fmt"

	"github.com/seed-ee968945/concert/ir"
)

// level is how many folds have to be finished one after the other before the
// last of n itself, counted from 1; 0 for what needs none.
func (g *generator) level(n *ir.Node, seen map[*ir.Node]int) int {
	if !g.r.member[n] {
		return 0
	}
	if l, ok := seen[n]; ok {
		return l
	}
	l := 0
	for _, a := range n.Args() {
		l = max(l, g.level(a.Def(), seen))
	}
	if _, ok := reduces(n); ok {
		switch n.Op() {
		case ir.OpCumsum:
		case ir.OpSoftmax, ir.OpLogSoftmax:
			l += 2
		default:
			l++
		}
	}
	seen[n] = l
	return l
}

// inRow checks that an index of the result of a fold is the row at hand.
func (g *generator) inRow(n *ir.Node, at []lin) error {
	keep := len(at) == len(g.f.shape)
	k := 0
	for d := range g.f.shape {
		if g.f.gone[d] {
			continue
		}
		e := at[k]
		if keep {
			e = at[d]
		}
		if !e.equal(g.rowAt[k]) {
			return unsupported(n, "it is read at another row (%s) than the one at hand (%s)", e.text(), g.rowAt[k].text())
		}
		k++
	}
	return nil
}

// folded is the result of a reduction for the row at hand.
func (g *generator) folded(v *ir.Value, at []lin) (string, error) {
	if err := g.inRow(v.Def(), at); err != nil {
		return "", err
	}
	return g.fold(reduction{v.Def(), 0})
}

// fold returns the variable of a fold's result. The first that is asked for on a
// level is computed together with all others of that level, in one loop.
func (g *generator) fold(r reduction) (string, error) {
	if t, ok := g.rowOf[r]; ok {
		return t, nil
	}
	seen := map[*ir.Node]int{}
	want := g.foldLevel(r, seen)
	var all []reduction
	for _, n := range g.r.nodes {
		if _, ok := reduces(n); !ok || n.Op() == ir.OpCumsum {
			continue
		}
		for part := range 2 {
			soft := n.Op() == ir.OpSoftmax || n.Op() == ir.OpLogSoftmax
			if q := (reduction{n, part}); (part == 0 || soft) && g.foldLevel(q, seen) == want {
				all = append(all, q)
			}
		}
	}
	// What folds of this level need is computed before their loop begins.
	accs := make([]accumulator, len(all))
	err := g.loop("", func() error {
		for i, q := range all {
			var err error
			if accs[i], err = g.accumulate(q); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return "", err
	}
	saved := g.body
	g.body = g.top
	for i, q := range all {
		g.finish(q, accs[i])
	}
	g.body = saved
	return g.rowOf[r], nil
}

func (g *generator) foldLevel(r reduction, seen map[*ir.Node]int) int {
	l := g.level(r.n, seen)
	if soft := r.n.Op() == ir.OpSoftmax || r.n.Op() == ir.OpLogSoftmax; soft && r.part == 0 {
		l--
	}
	return l
}

// accumulator is a running fold.
type accumulator struct {
	name, typ, functor string
}

// softType is the domain in which a softmax is computed.
func softType(n *ir.Node) string {
	if n.Arg(0).Type().DType() == ir.F64 || n.Result(0).Type().DType() == ir.F64 {
		return "f64"
	}
	return "soft32"
}

// accumulate emits one step of a fold: the element at hand joins.
func (g *generator) accumulate(r reduction) (accumulator, error) {
	n := r.n
	x, err := g.operand(n.Arg(0), g.full())
	if err != nil {
		return accumulator{}, err
	}
	in := n.Arg(0).Type().DType()
	dom := domainOf(in, n.Result(0).Type().DType())
	a := accumulator{name: g.fresh("s"), typ: string(dom)}
	var init, e string
	switch n.Op() {
	case ir.OpSum, ir.OpMean:
		if dom == domF32 || n.Op() == ir.OpMean { // sums of floats are made in double precision
			a.typ = "f64"
		}
		a.functor, init, e = "Sum", "0", x.in(domain(a.typ))
	case ir.OpProd:
		if dom == domF32 {
			a.typ = "f64"
		}
		a.functor, init, e = "Product", "1", x.in(domain(a.typ))
	case ir.OpAmax:
		a.functor, init, e = "Largest", "least_of<"+a.typ+">()", x.in(dom)
	case ir.OpAmin:
		a.functor, init, e = "Smallest", "most_of<"+a.typ+">()", x.in(dom)
	case ir.OpArgmax:
		a.typ = "best<" + string(held(in)) + ">"
		a.functor, init, e = "First", a.typ+"{0, -1}", fmt.Sprintf("%s{%s, %s}", a.typ, x.text, g.position().text())
	default: // softmax
		t := softType(n)
		if r.part == 0 {
			a.typ = t
			a.functor, init, e = "Largest", "least_of<"+t+">()", fmt.Sprintf("(%s)%s", t, x.text)
			break
		}
		top, err := g.fold(reduction{n, 0})
		if err != nil {
			return a, err
		}
		a.typ, a.functor, init = "f64", "Sum", "0"
		e = fmt.Sprintf("(f64)soft_exp(sub_of((%s)%s, %s))", t, x.text, top)
	}
	g.sums = append(g.sums, fmt.Sprintf("%s %s = %s;  // %s", a.typ, a.name, init, statement(n)))
	g.body.emit("%s = %s()(%s, %s);", a.name, a.functor, a.name, e)
	return a, nil
}

// finish joins the lanes' shares and rounds.
func (g *generator) finish(r reduction, a accumulator) {
	n := r.n
	t := n.Result(0).Type().DType()
	if g.f.lanes > 1 {
		g.top.emit("%s = fold_lanes<lanes, rows, %v>(%s, %s());", a.name, g.f.columns, a.name, a.functor)
	}
	switch n.Op() {
	case ir.OpMean:
		g.rowOf[r] = g.define(n.Result(0), rounded(fmt.Sprintf("div_of(%s, (f64)%d)", a.name, g.f.length), domF64, t))
	case ir.OpArgmax:
		g.rowOf[r] = g.define(n.Result(0), rounded(a.name+".at", domI64, t))
	case ir.OpSoftmax, ir.OpLogSoftmax:
		g.rowOf[r] = a.name
		if r.part == 1 {
			g.rowOf[r] = g.fresh("x")
			e := a.name
			if n.Op() == ir.OpLogSoftmax {
				e = "soft_log((" + softType(n) + ")" + e + ")"
			}
			g.top.emit("const %s %s = (%s)%s;", softType(n), g.rowOf[r], softType(n), e)
		}
	default:
		g.rowOf[r] = g.define(n.Result(0), rounded(a.name, domain(a.typ), t))
	}
}

// inFull checks that an index is the element at hand of what is reduced.
func (g *generator) inFull(n *ir.Node, at []lin) error {
	for d, e := range g.full() {
		if !at[d].equal(e) {
			return unsupported(n, "it is read at another element (%s) than the one at hand (%s)", at[d].text(), e.text())
		}
	}
	return nil
}

// softmax is exp(x - largest) / sum, or its logarithm x - largest - log(sum).
func (g *generator) softmax(v *ir.Value, at []lin) (string, error) {
	n := v.Def()
	for d, e := range at { // any element of the row at hand will do
		if !g.f.gone[d] && !e.equal(g.rowAt[g.keptBefore(d)]) {
			return "", unsupported(n, "it is read at another row than the one at hand")
		}
	}
	top, err := g.fold(reduction{n, 0})
	if err != nil {
		return "", err
	}
	sum, err := g.fold(reduction{n, 1})
	if err != nil {
		return "", err
	}
	x, err := g.value(n.Arg(0), at)
	if err != nil {
		return "", err
	}
	t := softType(n)
	e := fmt.Sprintf("div_of(soft_exp(sub_of((%s)%s, %s)), %s)", t, x, top, sum)
	if n.Op() == ir.OpLogSoftmax {
		e = fmt.Sprintf("sub_of(sub_of((%s)%s, %s), %s)", t, x, top, sum)
	}
	return g.define(v, "to_"+ctype(v.Type().DType())+"("+e+")"), nil
}

func (g *generator) keptBefore(d int) int {
	k := 0
	for _, gone := range g.f.gone[:d] {
		if !gone {
			k++
		}
	}
	return k
}

// cumsum adds the element at hand to a running sum. Its one lane walks the
// columns in order.
func (g *generator) cumsum(v *ir.Value, at []lin) (string, error) {
	n := v.Def()
	if err := g.inFull(n, at); err != nil {
		return "", err
	}
	x, err := g.operand(n.Arg(0), at)
	if err != nil {
		return "", err
	}
	dom := domainOf(n.Arg(0).Type().DType(), v.Type().DType())
	if dom == domF32 {
		dom = domF64
	}
	s := g.fresh("s")
	g.sums = append(g.sums, fmt.Sprintf("%s %s = 0;  // %s", dom, s, statement(n)))
	g.body.emit("%s = add_of(%s, %s);", s, s, x.in(dom))
	return g.define(v, rounded(s, dom, v.Type().DType())), nil
}
