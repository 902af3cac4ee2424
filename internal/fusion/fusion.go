// Package fusion has the legality rules of fusion: which
// of a region's values are read outside, which dimensions a node reduces, which rows depend
// on which, and what writes whole rows at computed indices. Pass fuse
// forms regions by these rules and lower/cudagen generates kernels by them, so that the two
// cannot disagree.
//
// Nodes belong to a verified function, so their attributes and types are consistent.
// A rule that refuses returns a *Refusal, which names the node and the reason.
package fusion

import (
	"fmt"
	"slices"

	"github.com/seed-ee968945/concert/ir"
)

// Refusal says which node keeps a region from being one kernel, and why.
type Refusal struct {
	Node   *ir.Node
	Reason string
}

// Error names the node and the reason.
func (e *Refusal) Error() string { return fmt.Sprintf("%%%s: %s", e.Node.Name(), e.Reason) }

func refuse(n *ir.Node, format string, args ...any) *Refusal {
	return &Refusal{n, fmt.Sprintf(format, args...)}
}

// Check refuses what belongs to no region of so many nodes: regions are of views and of operations on memory
// that have no effect and involve no other rank, and nothing in them is in flight. A read_size is one by
// itself, and so is what has order-only edges.
func Check(n *ir.Node, nodes int) *Refusal {
	if i := n.Op().Info(); i.Class != ir.ClassView && i.Class != ir.ClassMemory && !i.Generated || !Generates(n) {
		return refuse(n, "a region has views and pure operations on memory only")
	}
	if n.Ordered() && nodes > 1 {
		return refuse(n, "it has order-only edges, which a kernel of several operations does not keep")
	}
	for _, list := range [2][]*ir.Value{n.Args(), n.Results()} {
		for _, v := range list {
			if v.Type().IsAsync() {
				return refuse(n, "%s is %s, which is in flight", v, v.Type())
			}
		}
	}
	return nil
}

// Generates reports whether nothing but the operation of n is against a kernel of its own.
func Generates(n *ir.Node) bool {
	return (n.Effects()&^ir.EffectAlias == 0 || n.Op() == ir.OpReadSize) && n.Group() == nil
}

// Region is the nodes of one kernel, with the views between them. The zero value has none.
type Region struct {
	member map[*ir.Node]bool // look-up only
}

// Of returns the region of the given nodes. O(nodes).
func Of(nodes []*ir.Node) Region {
	r := Region{make(map[*ir.Node]bool, len(nodes))}
	for _, n := range nodes {
		r.member[n] = true
	}
	return r
}

// Has reports whether n belongs to the region.
func (r Region) Has(n *ir.Node) bool { return r.member[n] }

// Given reports whether v lies in memory before the region runs: no node of the region
// computes it, and it is no view, in the region, of what one does. O(views).
func (r Region) Given(v *ir.Value) bool {
	for {
		n := v.Def()
		switch {
		case !r.member[n]:
			return true
		case !n.Op().IsView():
			return false
		}
		v = n.Arg(0)
	}
}

// Escapes reports whether who does not belong to the region reads v, or a view of it
// that does. O(uses of both).
func (r Region) Escapes(v *ir.Value) bool {
	if v.Def().Op() == ir.OpReadSize { // whoever names its symbols reads it
		return true
	}
	for _, u := range v.Uses() {
		if !r.member[u.Node] || u.Node.Op().IsView() && slices.ContainsFunc(u.Node.Results(), r.Escapes) {
			return true
		}
	}
	return false
}

// Writes reports whether n has a result that the region's kernel writes: what a view
// shows has its bytes already.
func (r Region) Writes(n *ir.Node) bool {
	return !n.Op().IsView() && slices.ContainsFunc(n.Results(), r.Escapes)
}

// UsesDynamicSize reports whether a size or stride of n's operands or results is known at run time only.
func UsesDynamicSize(n *ir.Node) bool {
	return slices.ContainsFunc(n.Args(), HasDynamicSize) || slices.ContainsFunc(n.Results(), HasDynamicSize)
}

// HasDynamicSize reports whether a size or stride of v is known at run time only.
func HasDynamicSize(v *ir.Value) bool {
	return !v.Type().IsAsync() && !v.Type().Static()
}

// Reshapes reports whether n is a view of all of its operand in the same order.
func Reshapes(n *ir.Node) bool {
	switch n.Op() {
	case ir.OpView, ir.OpSqueeze, ir.OpUnsqueeze, ir.OpAlias:
		return true
	}
	return false
}

// ReducedDims reports which dimensions of its operand n walks for each element of its result,
// if that is what it does: those that a reduction folds (all of them if it names none),
// and that of a softmax or of a running sum.
func ReducedDims(n *ir.Node) (gone []bool, ok bool) {
	var dims []int64
	switch n.Op() {
	case ir.OpSum, ir.OpMean, ir.OpAmax, ir.OpAmin, ir.OpProd:
		dims = n.Attrs().Ints("dims")
	case ir.OpArgmax, ir.OpSoftmax, ir.OpLogSoftmax, ir.OpCumsum:
		dims = []int64{n.Attrs().Int("dim", 0)}
	default:
		return nil, false
	}
	gone = make([]bool, n.Arg(0).Type().Rank())
	for d := range gone {
		gone[d] = len(dims) == 0
	}
	for _, d := range dims {
		if d = fromFront(d, len(gone)); d >= 0 && d < int64(len(gone)) {
			gone[d] = true
		}
	}
	return gone, true
}

// fromFront is a dimension counted from the front.
func fromFront(d int64, rank int) int64 {
	if d < 0 {
		d += int64(rank)
	}
	return d
}

// RowDims is how many dimensions of v count its rows where sizes are dynamic: all up to the last
// whose size is, 0 if none is.
func RowDims(v *ir.Value) int {
	shape := v.Type().Shape()
	k := len(shape)
	for ; k > 0; k-- {
		if _, ok := shape[k-1].Const(); !ok {
			break
		}
	}
	return k
}

// withinRows reports whether dimension d of v is one of a row.
func withinRows(v *ir.Value, d int64) bool { return fromFront(d, v.Type().Rank()) >= int64(RowDims(v)) }

// RowsIndependent reports whether row i of n's result follows from row i of operands of a
// number of rows that is known at run time only, whatever that number is. What needs no
// operand, and views, count as such.
func RowsIndependent(n *ir.Node) bool {
	switch n.Op() {
	case ir.OpView, ir.OpSqueeze, ir.OpUnsqueeze, ir.OpAlias, ir.OpClone, ir.OpFull, ir.OpIota:
		return true
	case ir.OpCat, ir.OpGather, ir.OpScatter, ir.OpSliceScatter:
		return withinRows(n.Arg(0), n.Attrs().Int("dim", 0))
	case ir.OpEmbedding:
		return withinRows(n.Arg(0), 0)
	case ir.OpIndex:
		dims := n.Attrs().Ints("dims")
		return len(dims) > 0 && !slices.ContainsFunc(dims, func(d int64) bool { return !withinRows(n.Arg(0), d) })
	case ir.OpCumsum:
		return false // one thread walks what is a row here
	}
	gone, ok := ReducedDims(n)
	if !ok {
		return n.Op().Info().Elementwise
	}
	for d, g := range gone {
		if g && !withinRows(n.Arg(0), int64(d)) {
			return false
		}
	}
	return HasDynamicSize(n.Arg(0)) // else it has rows of another number
}
