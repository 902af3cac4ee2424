package place

import (
	"fmt"
	"slices"

	"github.com/seed-ee968945/concert/internal/fusion"
	"github.com/seed-ee968945/concert/ir"
)

// FusionKey is the annotation of nodes that one launch computes: neighbours in the
// order with the same number are a region. Pass fuse writes it.
//
// To memory a region is one instruction. Its operands live until its last node has
// run and its results from its first node on, so that none shares bytes with
// another, unless an annotation puts a result in place of an operand; what nobody
// outside reads has no buffer.
const FusionKey = "fusion"

// Region is the nodes of one launch, neighbours in the order.
type Region struct {
	Nodes       []*ir.Node
	First, Last int // positions of the first node and the last
}

// Regions returns the regions of a function in order. An error says that a node
// cannot belong to one: regions are of views and of pure operations on tensors that
// involve no other rank.
func Regions(f *ir.Func) ([]Region, error) {
	var out []Region
	order := f.Order()
	for i := 0; i < len(order); {
		id, ok := number(order[i])
		if !ok {
			i++
			continue
		}
		r := Region{First: i, Last: i}
		for r.Last+1 < len(order) {
			next, ok := number(order[r.Last+1])
			if !ok || next != id {
				break
			}
			r.Last++
		}
		r.Nodes = order[r.First : r.Last+1]
		for _, n := range r.Nodes {
			no := fusion.Check(n, len(r.Nodes))
			if no == nil && n.Op() == ir.OpReadSize {
				no = &fusion.Refusal{Node: n, Reason: "it reads sizes by itself"}
			}
			if no != nil {
				return nil, fmt.Errorf("%%%s: %s=%d: %s", n.Name(), FusionKey, id, no.Reason)
			}
		}
		out = append(out, r)
		i = r.Last + 1
	}
	return out, nil
}

// Operands are what the region reads that none of its nodes computes, in order of
// first reading; a view of such a value that belongs to the region is an operand,
// the value itself only where it is read as well. The annotation inplace of a node in
// a region counts these.
func (r *Region) Operands(st *ir.Storages) []*ir.Value {
	var out []*ir.Value
	seen := map[*ir.Value]bool{}
	for _, n := range r.Nodes {
		if n.Op().IsView() {
			continue
		}
		for _, a := range n.Args() {
			if !seen[a] && !r.makes(st, a) {
				seen[a] = true
				out = append(out, a)
			}
		}
	}
	return out
}

// makes reports whether a node of the region computes what v shows.
func (r *Region) makes(st *ir.Storages, v *ir.Value) bool {
	root, _ := st.Root(st.Of(v)[0].Storage)
	at := root.Def().At()
	return at >= r.First && at <= r.Last
}

// pointwise reports whether result n of a region may be on operand v, which has the
// same type, as far as the region's own reading goes: what depends on v, n among it, is
// elementwise and has v's shape throughout, so that element i of it follows from element i
// of v; and nothing behind n reads v. Then a thread that computes some elements has read
// these elements of v for the last time when it writes them. Where threads fold rows
// together, all may read v at their row, but only the one that writes it uses what it has
// read. Running the nodes one by one is right, too.
func (u *uses) pointwise(r *Region, n *ir.Node, v *ir.Value) bool {
	shape := v.Type().Shape()
	follows := map[*ir.Value]bool{v: true}
	for _, m := range r.Nodes {
		if !slices.ContainsFunc(m.Args(), func(a *ir.Value) bool { return follows[a] }) {
			continue
		}
		if !m.Op().Info().Elementwise || len(m.Results()) != 1 || !m.Result(0).Type().Shape().Equal(shape) || m.At() > n.At() && slices.Contains(m.Args(), v) {
			return false
		}
		follows[m.Result(0)] = true
	}
	return follows[n.Result(0)]
}

// claimed reports whether another node of n's region is in place of an operand in
// the same storage.
func (u *uses) claimed(r *Region, n *ir.Node, s ir.StorageID) bool {
	ops := u.operands(n)
	for _, m := range r.Nodes {
		if m == n {
			continue
		}
		for _, i := range m.Meta().Ints(InPlaceKey) {
			if i >= 0 && i < int64(len(ops)) && u.st.Of(ops[i])[0].Storage == s {
				return true
			}
		}
	}
	return false
}

// number is that of the region that n belongs to, false if it belongs to none.
func number(n *ir.Node) (int64, bool) {
	if !n.Meta().Has(FusionKey) {
		return 0, false
	}
	return n.Meta().Int(FusionKey, -1), true
}

// Regions are the function's regions in order.
func (l *Layout) Regions() []Region { return l.regions }

// Inside reports whether v has no bytes of its own because only the region that
// computes it reads it.
func (l *Layout) Inside(v *ir.Value) bool {
	w := l.windows[v.ID()]
	return len(w) == 1 && w[0].Buffer < 0
}
