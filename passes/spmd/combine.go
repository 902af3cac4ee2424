package spmd

import (
	"fmt"
	"slices"

	"github.com/seed-ee968945/concert/ir"
)

// This file joins small reductions: what takes no longer for its bytes than for being
// launched travels with others of its kind, where the first of them is read, if all are there.

const (
	smallOperand = 128 << 10
	mostJoined   = 800 << 10 // bytes that take as long as a launch
)

// bundle are collectives of one kind that become one.
type bundle struct {
	kind  string
	nodes []*ir.Node
	bytes int64
	at    int // where the first of their results is read
}

// combine joins small reductions of the function that was made.
func (p *partitioner) combine() error {
	order := p.to.Order()
	at := make([]int, p.to.NumNodeIDs())
	for i, n := range order {
		at[n.ID()] = i
	}
	var all []*bundle
	for _, n := range order {
		if bytes, ok := small(n); ok {
			kind := fmt.Sprint(n.Op(), n.Group().Name, n.Attrs(), n.Arg(0).Type().DType())
			all = append(all, &bundle{kind, []*ir.Node{n}, bytes, firstRead(waitOf(n).Result(0), at, len(order)-1)})
		}
	}
	slices.SortStableFunc(all, func(a, b *bundle) int { return a.at - b.at })
	open := map[string]*bundle{} // look-up only
	for _, b := range all {
		o := open[b.kind]
		if o == nil || at[b.nodes[0].Arg(0).Def().ID()] >= o.at || o.bytes+b.bytes > mostJoined {
			open[b.kind] = b
			continue
		}
		o.nodes, o.bytes, b.nodes = append(o.nodes, b.nodes[0]), o.bytes+b.bytes, nil
	}
	for _, b := range all {
		if len(b.nodes) > 1 {
			if err := p.join(b.nodes, order[b.at]); err != nil {
				return err
			}
		}
	}
	return nil
}

func waitOf(n *ir.Node) *ir.Node { return n.Result(0).Uses()[0].Node }

// firstRead is where a value or a view of it is read first.
func firstRead(v *ir.Value, at []int, last int) int {
	for _, u := range v.Uses() {
		k := u.Node
		if !k.Op().IsView() {
			last = min(last, at[k.ID()])
			continue
		}
		for _, r := range k.Results() {
			last = min(last, firstRead(r, at, last))
		}
	}
	return last
}

// small reports whether a node is a reduction of one small tensor that is waited for, and
// its bytes.
func small(n *ir.Node) (int64, bool) {
	if n.Op() != ir.OpAllReduce && n.Op() != ir.OpReduceScatter || len(n.Args()) != 1 || len(n.Result(0).Uses()) != 1 || n.Result(0).Uses()[0].Node.Op() != ir.OpWaitTensor {
		return 0, false
	}
	if n.Arg(0).Viewed().Def().Op() == ir.OpWaitTensor { // which may move itself
		return 0, false
	}
	bytes := int64(n.Arg(0).Type().DType().Size())
	for _, k := range shapeOf(n.Arg(0)) {
		bytes *= k
	}
	return bytes, bytes <= smallOperand
}

// join makes one collective of several in front of a node, and moves views of its results
// there, too.
func (p *partitioner) join(nodes []*ir.Node, before *ir.Node) error {
	first := nodes[0]
	var args []*ir.Value
	var types []ir.Type
	for _, n := range nodes {
		args, types = append(args, n.Arg(0)), append(types, n.Arg(0).Type())
	}
	async, err := ir.Infer(first.Op(), first.Group(), first.Attrs(), types)
	if err != nil {
		return fmt.Errorf("spmd: %%%s with others of its kind: %w", first.Name(), err)
	}
	c := p.to.InsertBefore(before, ir.NodeSpec{Op: first.Op(), Args: args, Results: async, Group: first.Group(), Attrs: first.Attrs(), From: nodes, Pos: first.Pos()})
	w := p.to.InsertBefore(before, ir.NodeSpec{Op: ir.OpWaitTensor, Args: c.Results(), Results: async[0].Tensors(), From: nodes, Pos: first.Pos()})
	for i, n := range nodes {
		wait := waitOf(n)
		p.to.ReplaceUses(wait.Result(0), w.Result(i))
		p.to.Remove(wait)
		p.to.Remove(n)
		p.views(w.Result(i), before)
	}
	return nil
}

// views moves the views of a value in front of a node.
func (p *partitioner) views(v *ir.Value, before *ir.Node) {
	for _, u := range slices.Clone(v.Uses()) {
		if u.Node.Op().IsView() {
			p.to.MoveBefore(u.Node, before)
			for _, r := range u.Node.Results() {
				p.views(r, before)
			}
		}
	}
}
