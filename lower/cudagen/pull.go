package cudagen

import (
	"fmt"
	"slices"

	"github.com/seed-ee968945/concert/internal/attr"
	"github.com/seed-ee968945/concert/ir"
	"github.com/seed-ee968945/concert/lower/cudagen/internal/index"
)

// What is written at positions that a tensor holds is pulled: every element of the
// result looks for the indices that point at it, in order, so that no two threads
// write one element and equal inputs give equal bits.

// single is what a statement computes if the index at hand is the same for all of
// a thread's consecutive elements: it leaves their loop alone.
func (g *generator) single(at []index.Expr) func() {
	if g.elem == nil || slices.ContainsFunc(at, func(e index.Expr) bool { return e.DependsOn(g.elem) }) {
		return func() {}
	}
	saved := g.elem
	g.elem = nil
	return func() { g.elem = saved }
}

// running declares a variable for each of a thread's elements that starts as an
// element of x, and returns what names the one at hand.
func (g *generator) running(v, x *ir.Value, at []index.Expr, dom domain) (string, error) {
	name, k, n := g.fresh("s"), "[0]", int64(1)
	if g.elem != nil {
		k, n = "[v]", g.width
	}
	g.before().Emit("%s %s[%d];  // %s", dom, name, n, v)
	err := g.nested(at, "", func(*index.Scope) error {
		o, err := g.operand(x, at)
		if err != nil {
			return err
		}
		g.body.Emit("%s%s = %s;", name, k, o.in(dom))
		return nil
	})
	return name + k, err
}

// indexPut is index_put and index_add: operand 0 with values written, or added, at
// positions of some dimensions.
func (g *generator) indexPut(v *ir.Value, at []index.Expr) (string, error) {
	n := v.Def()
	defer g.single(at)()
	p, put, err := g.startPuts(v, at)
	if err != nil {
		return "", err
	}
	switch listed := g.listed(n, at); {
	case g.f.outer != nil && g.probe == nil:
		err = g.fromOuter(p, make([]index.Expr, len(p.indexShape)), 0, put)
	case !listed:
		err = g.fromIndex(p, "", put)
	case g.f.sorted != nil:
		err = g.fromSorted(p, put)
	case g.f.overflows():
		if err = g.fromList(p, put); err == nil {
			err = g.fromIndex(p, "if (listed < 0) ", put)
		}
	default:
		err = g.fromList(p, put)
	}
	if err != nil {
		return "", err
	}
	return g.define(v, rounded(p.sum, p.dom, v.Type().DType())), nil
}

// startPuts declares what an element of an index_put or index_add begins as; put lets the
// value of a place join it.
func (g *generator) startPuts(v *ir.Value, at []index.Expr) (p *puts, put func(s *index.Scope, k index.Expr) error, err error) {
	n := v.Def()
	x := n.Arg(0)
	p = &puts{n: n, values: n.Arg(1), index: n.Args()[2:], dims: n.Attrs().Ints("dims"), wrap: true, at: at, shape: g.r.shape(x)}
	add, alpha := n.Attrs().Bool("accumulate", false), attr.Number{}.Or(1)
	if n.Op() == ir.OpIndexAdd {
		p.values, p.index = n.Arg(2), n.Args()[1:2]
		p.dims, p.wrap, add = []int64{int64(dimOf(n))}, false, true
		alpha = n.Attrs().Number("alpha").Or(1)
	}
	if len(p.dims) != len(p.index) || len(p.index) == 0 {
		return nil, nil, unsupported(n, "%d index tensors for dimensions %v", len(p.index), p.dims)
	}
	p.dom = storageDomain(v.Type().DType())
	if add {
		p.dom = domainOf(v.Type().DType(), p.values.Type().DType())
	} else if p.values.Type().DType() != v.Type().DType() {
		return nil, nil, unsupported(n, "%s from %s", v.Type().DType(), p.values.Type().DType())
	}
	p.broadcastIndices(g.r)
	p.sum, err = g.running(v, x, at, p.dom)
	return p, func(s *index.Scope, k index.Expr) error {
		o, err := g.operand(p.values, p.valueAt(g, k))
		if err != nil {
			return err
		}
		e := o.in(p.dom)
		if alpha.F != 1 {
			e = "mul_of(" + literal(alpha, p.dom) + ", " + e + ")"
		}
		if add {
			e = fmt.Sprintf("add_of(%s, %s)", p.sum, e)
		}
		g.body.Emit("%s%s = %s;", p.test, p.sum, e)
		return nil
	}, err
}

// puts is an index_put or index_add at one element of its result.
type puts struct {
	n          *ir.Node
	values     *ir.Value
	index      []*ir.Value
	dims       []int64 // that index gives positions of
	wrap       bool
	at         []index.Expr   // the element
	shape      []index.Extent // of the result
	indexShape []index.Extent // what the indices broadcast to
	test       string         // condition that is known for single elements only
	sum        string         // what the element is so far
	dom        domain         // in which it is held
}

// broadcastIndices finds the shape that the indices broadcast to.
func (p *puts) broadcastIndices(r *region) {
	for _, v := range p.index {
		s := r.shape(v)
		if more := len(s) - len(p.indexShape); more > 0 {
			p.indexShape = append(slices.Clone(s[:more]), p.indexShape...)
		}
		for d := range s {
			if at := len(p.indexShape) - len(s) + d; p.indexShape[at] == (index.Extent{N: 1}) {
				p.indexShape[at] = s[d]
			}
		}
	}
}

// count is how many indices there are, or an upper bound.
func (p *puts) count() int64 {
	n := int64(1)
	for _, s := range p.indexShape {
		n *= s.N
	}
	return n
}

// valueAt is the index of the value for the element at hand that index k names.
func (p *puts) valueAt(g *generator, k index.Expr) []index.Expr {
	front := 0
	if last := len(p.dims) - 1; p.dims[last]-p.dims[0] == int64(last) {
		front = int(p.dims[0])
	}
	var rest []index.Expr
	for d, e := range p.at {
		if !slices.Contains(p.dims, int64(d)) {
			rest = append(rest, e)
		}
	}
	all := slices.Concat(rest[:front], g.x.Unravel(k, p.indexShape), rest[front:])
	return broadcast(all, sizes(p.values))
}

// counter is the type of what counts to the number of elements of a shape.
func (g *generator) counter(shape []index.Extent) string {
	n := int64(1)
	for _, s := range shape {
		n *= s.N
	}
	if g.f.big || n > 1<<30 {
		return "i64"
	}
	return "int"
}

// fromIndex looks at every place, on a condition.
func (g *generator) fromIndex(p *puts, cond string, put func(s *index.Scope, k index.Expr) error) error {
	name := g.fresh("k")
	return g.nested(p.at, fmt.Sprintf("%sfor (%s %s = 0; %s < %s; ++%s)", cond, g.counter(p.indexShape), name, name, g.x.Count(p.indexShape), name), func(s *index.Scope) error {
		k := g.x.NewAtom(name, p.count()-1, 1, s).Expr()
		coords := g.x.Unravel(k, p.indexShape)
		for i, v := range p.index {
			q, err := g.pos(p.n, slices.Index(p.n.Args(), v), broadcast(coords, sizes(v)), p.shape[p.dims[i]], p.wrap)
			if err != nil {
				return err
			}
			e := p.at[p.dims[i]]
			if g.elem != nil && e.DependsOn(g.elem) {
				p.test += fmt.Sprintf("if (%s == %s) ", q, e)
			} else {
				s.Emit("if (%s != %s) continue;", q, e)
			}
		}
		return put(s, k)
	})
}

// scatterFunction is how a scatter lets a value join what is there, empty if it takes
// the place of that.
func scatterFunction(n *ir.Node) (name string, ok bool) {
	switch n.Attrs().Str("reduce", "") {
	case "":
		return "", true
	case "add", "sum":
		return "add_of", true
	case "multiply", "prod":
		return "mul_of", true
	case "amax":
		return "maximum_of", true
	case "amin":
		return "minimum_of", true
	}
	return "", false
}

// scatter writes values along one dimension.
func (g *generator) scatter(v *ir.Value, at []index.Expr) (string, error) {
	n := v.Def()
	x := n.Arg(0)
	d := dimOf(n)
	shape, places := g.r.shape(x), g.r.shape(n.Arg(1))
	dt := v.Type().DType()
	dom := storageDomain(dt)
	if len(shape) == 0 {
		return "", unsupported(n, "a tensor of rank 0")
	}
	join, err := g.scattered(n, dom)
	if err != nil {
		return "", err
	}
	var tests []string // that the element has indices at all
	for i, e := range at {
		if i != d && places[i] != shape[i] {
			tests = append(tests, fmt.Sprintf("%s < %s", e, g.x.Size(places[i])))
		}
	}
	to := slices.Clone(at)
	if places[d] == (index.Extent{N: 1}) && tests == nil {
		old, err := g.operand(x, at)
		if err != nil {
			return "", err
		}
		to[d] = index.Constant(0)
		p, err := g.pos(n, 1, to, shape[d], false)
		if err != nil {
			return "", err
		}
		e, err := join(old.in(dom), to)
		if err != nil {
			return "", err
		}
		return g.define(v, rounded(fmt.Sprintf("%s == %s ? %s : %s", p, at[d], e, old.in(dom)), dom, dt)), nil
	}
	if tests != nil && g.elem != nil { // what is beyond the indices must not be looked for
		return "", errWide
	}
	defer g.single(at)()
	sum, err := g.running(v, x, at, dom)
	if err != nil {
		return "", err
	}
	name := g.fresh("k")
	head := fmt.Sprintf("for (%s %s = 0; %s < %s; ++%s)", g.counter(places[d:d+1]), name, name, g.x.Size(places[d]), name)
	for _, t := range tests {
		head = "if (" + t + ") " + head
	}
	err = g.nested(at, head, func(s *index.Scope) error {
		to[d] = g.x.NewAtom(name, places[d].N-1, 1, s).Expr()
		p, err := g.pos(n, 1, to, shape[d], false)
		if err != nil {
			return err
		}
		test := fmt.Sprintf("if (%s == %s) ", p, at[d])
		e, err := join(sum, to)
		if err != nil {
			return err
		}
		g.body.Emit("%s%s = %s;", test, sum, e)
		return nil
	})
	if err != nil {
		return "", err
	}
	return g.define(v, rounded(sum, dom, dt)), nil
}

// scattered returns what gives the element that was old once the value of the place at
// index `to` has joined it.
func (g *generator) scattered(n *ir.Node, dom domain) (join func(old string, to []index.Expr) (string, error), err error) {
	function, ok := scatterFunction(n)
	if !ok {
		return nil, unsupported(n, "reduce=%s", n.Attrs().Str("reduce", ""))
	}
	value := n.Attrs().Number("value")
	if len(n.Args()) < 3 && !value.Set {
		return nil, unsupported(n, "neither a value nor a tensor of them")
	}
	return func(old string, to []index.Expr) (string, error) {
		e := literal(value, dom)
		if len(n.Args()) == 3 {
			o, err := g.operand(n.Arg(2), to)
			if err != nil {
				return "", err
			}
			e = o.in(dom)
		}
		if function != "" {
			e = fmt.Sprintf("%s(%s, %s)", function, old, e)
		}
		return e, nil
	}, nil
}
