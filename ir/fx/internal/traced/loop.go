package traced

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/seed-ee968945/concert/internal/attr"
	"github.com/seed-ee968945/concert/ir"
)

// Loop runs a body so many times, or as long as more, if it is not nil, gives true of the state. The
// body makes the next state, of the same types, of its round, which counts from 0 as i64[1], of the state
// and of what stays as it is. All are in row-major order, and a body reads nothing else of the function.
func (c *Call) Loop(rounds int64, state, fixed []*ir.Value, more func(b *Call, state []*ir.Value) *ir.Value, body func(b *Call, round *ir.Value, state, fixed []*ir.Value) []*ir.Value) []*ir.Value {
	args := []*ir.Value{c.Filled(attr.Int(0), ir.I64, 1)}
	for _, x := range slices.Concat(state, fixed) {
		args = append(args, c.dense(x))
	}
	if c.Err != nil {
		return slices.Repeat([]*ir.Value{c.None()}, len(state))
	}
	carried := 1 + len(state)
	cond, round := c.body("cond", args), c.body("body", args)
	in := results(cond.Func)
	goes := cond.With(ir.OpLt, in[0], float64(rounds))
	if more != nil {
		goes = cond.Make(ir.OpLogicalAnd, nil, goes, more(cond, in[1:carried]))
	}
	cond.Func.Append(ir.NodeSpec{Op: ir.OpReturn, Args: []*ir.Value{cond.Shaped(goes)}})
	in = results(round.Func)
	next := body(round, in[0], in[1:carried], in[carried:])
	if c.Err = cmp.Or(cond.Err, round.Err); c.Err == nil && len(next) != len(state) {
		c.Err = fmt.Errorf("a loop of %d values has a body of %d", len(state), len(next))
	}
	if c.Err != nil {
		return slices.Repeat([]*ir.Value{c.None()}, len(state))
	}
	next = append([]*ir.Value{round.With(ir.OpAdd, in[0], 1)}, next...)
	types := make([]ir.Type, carried)
	for k := range next {
		types[k] = args[k].Type()
		next[k] = round.LaidOut(next[k], types[k])
		if !next[k].Def().Op().IsView() && next[k].Def().Op() != ir.OpInput {
			fn := in[k].Def()
			round.Func.SetAttrs(fn, fn.Attrs().With(ir.DonateKey, attr.Int(int64(k))))
		}
	}
	round.Func.Append(ir.NodeSpec{Op: ir.OpReturn, Args: next})
	attrs := attr.Make(attr.Attr{Key: ir.CondKey, Val: attr.String(cond.Func.Name)}, attr.Attr{Key: ir.BodyKey, Val: attr.String(round.Func.Name)})
	if more == nil {
		attrs = attrs.With("trips", attr.Int(rounds))
	}
	return c.Helpers(ir.OpWhile, attrs, types, args...)[1:]
}

// body is the call in a new function of the module, whose inputs have the types of args.
func (c *Call) body(what string, args []*ir.Value) *Call {
	m, b := c.Func.Module(), *c
	for k := 1; ; k++ {
		if name := fmt.Sprintf("%s.%s%d", c.Func.Name, what, k); m.Func(name) == nil {
			b.Func, b.Charged = m.AddFunc(name), true
			break
		}
	}
	for _, x := range args {
		b.Func.Append(ir.NodeSpec{Op: ir.OpInput, Name: "x", Results: []ir.Type{x.Type()}})
	}
	return &b
}

// results are what the nodes of a function give so far.
func results(f *ir.Func) []*ir.Value {
	var out []*ir.Value
	for _, n := range f.Order() {
		out = append(out, n.Results()...)
	}
	return out
}
