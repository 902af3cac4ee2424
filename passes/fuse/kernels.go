package fuse

import (
	"slices"

	"github.com/seed-ee968945/concert/internal/fusion"
	"github.com/seed-ee968945/concert/ir"
	"github.com/seed-ee968945/concert/passes"
)

// bytesMoved is how many bytes the nodes of a region move each by itself, and as one
// kernel: each operand from outside once, and what others read.
func bytesMoved(nodes []*ir.Node) (apart, joined int64) {
	r := fusion.Of(nodes)
	seen := map[*ir.Value]bool{} // look-up only
	for _, n := range nodes {
		if n.Op().IsView() {
			continue
		}
		for _, v := range n.Args() {
			bytes := bytesTouched(n, v)
			apart += bytes
			if !seen[v] && r.Given(v) {
				seen[v] = true
				joined += bytes
			}
		}
		for _, v := range n.Results() {
			bytes := bytesTouched(n, v)
			apart += bytes
			if r.Escapes(v) {
				joined += bytes
			}
		}
	}
	return apart, joined
}

// few is how many bytes stay in a GPU's cache from one launch to the next.
const few = 48 << 20

// neighbours joins launches that follow each other and share nothing, where both
// together move so few bytes that the beginning and the end of one count beside it.
func (u *fuser) neighbours() {
	last := int32(-1)
	for _, b := range slices.Clone(u.order) {
		if u.unit[b] < 0 {
			continue
		}
		a := last
		last = b
		if a < 0 || u.unit[a] == u.unit[b] {
			continue
		}
		var nodes []*ir.Node
		for _, m := range u.withViews(slices.Concat(u.unitN[u.unit[a]], u.unitN[u.unit[b]])) {
			nodes = append(nodes, u.d.Nodes[m])
		}
		if _, joined := bytesMoved(nodes); joined > few {
			continue
		}
		u.try(a, b)
	}
}

// bytesTouched is how many bytes of v node n reads or writes: repeated elements once,
// and of a table only what is picked; dynamic sizes count at their hints.
func bytesTouched(n *ir.Node, v *ir.Value) int64 {
	size := int64(v.Type().DType().Size())
	bytes := size * elements(v)
	switch n.Op() {
	case ir.OpEmbedding, ir.OpIndex, ir.OpGather:
		if v == n.Arg(0) {
			return min(bytes, elements(n.Result(0))*size)
		}
	}
	return bytes
}

// elements is how many elements v has, repeated ones counted once.
func elements(v *ir.Value) int64 {
	return v.Def().Func().Module().Hint(v.Type().Distinct())
}

// copyCheap gives every reader of a constant, or of a conversion to a wider type,
// a copy of its own: to compute it again moves fewer bytes than to read it.
func copyCheap(ctx *passes.Context, f *ir.Func, writes *ir.Writes) {
	for _, n := range f.Order() {
		if !cheaperThanRead(n) || slices.ContainsFunc(n.Args(), writes.Written) {
			continue // computed again behind a write it would be something else
		}
		v := n.Result(0)
		var readers []*ir.Node
		for _, u := range v.Uses() {
			if len(readers) == 0 || readers[len(readers)-1] != u.Node {
				readers = append(readers, u.Node)
			}
		}
		for _, reader := range readers[min(1, len(readers)):] {
			if !fusion.Fusable(reader) || reader == readers[0] || !reads(reader, v) {
				continue
			}
			ms, known := n.Cost()
			c := f.InsertBefore(reader, ir.NodeSpec{Op: n.Op(), Name: n.Name(), Args: n.Args(), Attrs: n.Attrs(), Results: []ir.Type{v.Type()}, Meta: n.Meta().Without(passes.FusionKey), Cost: ms, HasCost: known, From: []*ir.Node{n}})
			for i, a := range reader.Args() {
				if a == v {
					f.SetArg(reader, i, c.Result(0))
				}
			}
			ctx.Count("copied", 1)
		}
	}
}

func reads(n *ir.Node, v *ir.Value) bool {
	for _, a := range n.Args() {
		if a == v {
			return true
		}
	}
	return false
}

// cheaperThanRead reports whether n costs less to compute than its result to read.
func cheaperThanRead(n *ir.Node) bool {
	switch n.Op() {
	case ir.OpFull:
		return fusion.Fusable(n)
	case ir.OpConvert:
		return fusion.Fusable(n) && n.Result(0).Type().DType().Size() > n.Arg(0).Type().DType().Size()
	}
	return false
}
