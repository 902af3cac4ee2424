package decompose

import (
	"slices"

	"github.com/seed-ee968945/concert/ir"
)

// separated is a computation of pairs that joins what is there with functions of the updates alone,
// such as a-b and a+b*c: these functions are computed first, of all updates, so that what is left is an
// operation of the table. Any other computation stays as it is.
func separated(e emit, p *probed, updates []*ir.Value, body Body) (*probed, []*ir.Value, error) {
	joins := make([]joined, len(p.results))
	known := true
	for i := range p.results {
		known = known && p.known(i)
		var ok bool
		if joins[i], ok = p.joined(i); !ok {
			return p, updates, nil
		}
	}
	if known {
		return p, updates, nil
	}
	got, err := apply(e, body, updates, updates) // what is there does not matter for the functions
	if err != nil {
		return nil, nil, err
	}
	for i, j := range joins {
		if j.op == ir.OpInvalid {
			continue
		}
		n := got[i].Def()
		if n.Op() != j.op || len(n.Args()) != 2 {
			return p, updates, nil
		}
		if got[i] = e.expand(n.Arg(j.arg), sizes(updates[0])); j.op == ir.OpSub {
			joins[i].op, got[i] = ir.OpAdd, e.one(ir.OpNeg, nil, []*ir.Value{got[i]})
		}
	}
	q, err := probe(func(to Emitter, args []*ir.Value) ([]*ir.Value, error) {
		out := slices.Clone(args[p.n:])
		for i, j := range joins {
			if j.op != ir.OpInvalid {
				out[i] = to.Op(j.op, nil, nil, []*ir.Value{args[i], args[p.n+i]})[0]
			}
		}
		return out, nil
	}, got, got)
	return q, got, err
}

// joined says how a result is made of what is there and of a function of the updates, which is an
// argument of the operation; OpInvalid: of the function alone.
type joined struct {
	op  ir.Op
	arg int
}

// joined finds that of result i; false if it is made otherwise.
func (p *probed) joined(i int) (joined, bool) {
	v, a := p.results[i], p.inputs[i]
	first := map[*ir.Value]bool{} // what depends on what is there
	for _, in := range p.inputs[:p.n] {
		first[in] = true
	}
	for _, n := range a.Def().Func().Order() {
		if slices.ContainsFunc(n.Args(), func(v *ir.Value) bool { return first[v] }) {
			for _, r := range n.Results() {
				first[r] = true
			}
		}
	}
	if !first[v] {
		return joined{}, true
	}
	n := v.Def()
	if len(n.Args()) != 2 || len(n.Attrs()) != 0 || v.Type().DType() != a.Type().DType() || a.Type().DType() == ir.Bool {
		return joined{}, false
	}
	switch x, y := n.Arg(0), n.Arg(1); n.Op() {
	case ir.OpAdd, ir.OpMul, ir.OpMaximum, ir.OpMinimum:
		if y == a && !first[x] {
			return joined{n.Op(), 0}, true
		}
		return joined{n.Op(), 1}, x == a && !first[y]
	case ir.OpSub:
		return joined{n.Op(), 1}, x == a && !first[y] && !a.Type().DType().IsUnsigned()
	}
	return joined{}, false
}
