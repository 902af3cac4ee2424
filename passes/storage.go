package passes

import (
	"github.com/seed-ee968945/concert/ir"
	"github.com/seed-ee968945/concert/sim"
)

// storages says which memory a function's values lie in. Every result of every
// operation is a storage of its own, rounded up to sim.Align bytes, except that
// results of views and of calls that alias share operand 0's, and that result k
// of a wait is tensor k of its collective. Symbols count at their upper bounds.
type storages struct {
	of     []int32 // ValueID -> storage; of an async value that of its first tensor, the others follow
	size   []int64 // bytes, rounded
	pinned []bool  // lives to the end once it exists
	owner  []int32 // node that allocates it, by position
	alloc  lists   // node -> storages it allocates; inputs have theirs
	inputs int32   // how many nodes are inputs; they come first
	use    lists   // node -> storages it keeps live, each once: operands', results' and, of a wait, those of its collective's operands
}

// newStorages analyzes f, whose nodes are numbered by pos (NodeID -> position).
func newStorages(f *ir.Func, pos []int32) *storages {
	order := f.Order()
	s := &storages{of: make([]int32, f.NumValueIDs())}
	s.inputs = int32(len(f.Inputs()))
	s.alloc.off = make([]int32, 1, len(order)+1)
	for i, n := range order {
		s.define(f.Module(), int32(i), n)
		s.alloc.off = append(s.alloc.off, int32(len(s.size)))
	}
	s.alloc.val = make([]int32, len(s.size))
	for i := range s.alloc.val {
		s.alloc.val[i] = int32(i)
	}
	s.uses(order)
	return s
}

// define gives n's results their storages.
func (s *storages) define(m *ir.Module, at int32, n *ir.Node) {
	switch {
	case n.Op() == ir.OpWaitTensor && n.Arg(0).Type().IsAsync():
		for k, r := range n.Results() {
			s.of[r.ID()] = s.of[n.Arg(0).ID()] + int32(k)
		}
		return
	case n.Effects()&ir.EffectAlias != 0 && len(n.Args()) > 0:
		for _, r := range n.Results() {
			s.of[r.ID()] = s.of[n.Arg(0).ID()]
		}
		return
	}
	pinned := false
	if n.Op() == ir.OpInput {
		role := n.Role()
		pinned = role != ir.RoleSaved && role != ir.RoleTangent
	}
	for _, r := range n.Results() {
		s.of[r.ID()] = int32(len(s.size))
		ts := r.Type().Elems()
		if !r.Type().IsAsync() {
			ts = []ir.Type{r.Type()}
		}
		for _, t := range ts {
			s.size = append(s.size, sim.Round(m.Bound(t.Bytes())))
			s.pinned = append(s.pinned, pinned)
			s.owner = append(s.owner, at)
		}
	}
}

// uses lists what every node keeps live and pins what the return gives out.
func (s *storages) uses(order []*ir.Node) {
	stamp := make([]int32, len(s.size))
	for i := range stamp {
		stamp[i] = -1
	}
	s.use.off = make([]int32, 1, len(order)+1)
	for i, n := range order {
		add := func(v *ir.Value) {
			count := int32(max(1, len(v.Type().Elems())))
			for k := s.of[v.ID()]; count > 0; k, count = k+1, count-1 {
				if stamp[k] != int32(i) {
					stamp[k] = int32(i)
					s.use.val = append(s.use.val, k)
				}
			}
		}
		for _, a := range n.Args() {
			add(a)
		}
		for _, r := range n.Results() {
			add(r)
		}
		if n.Op() == ir.OpWaitTensor {
			for _, a := range n.Arg(0).Def().Args() {
				add(a)
			}
		}
		if n.Op() == ir.OpReturn {
			for _, k := range s.use.val[s.use.off[i]:] {
				s.pinned[k] = true
			}
			// An async output is handed out in flight: its operands live on with it.
			for _, a := range n.Args() {
				if a.Type().IsAsync() {
					for _, b := range a.Def().Args() {
						add(b)
						s.pinned[s.of[b.ID()]] = true
					}
				}
			}
		}
		s.use.off = append(s.use.off, int32(len(s.use.val)))
	}
}
