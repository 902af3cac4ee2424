package ir

import (
	"slices"

	"github.com/seed-ee968945/concert/internal/attr"
)

// Which values are equal on all ranks. Ranks that go different ways in a while or a case must
// not run collectives there, so the verifier asks what decides. Everything counts as equal
// until something says otherwise, and what differs is followed to whatever is computed from
// it, through bodies and from iteration to iteration, until nothing changes: what is left is equal on
// all ranks, given that the inputs of the module that say uniform=true are. A body that
// several nodes run is taken with what differs for any of them.

// uniformity is by function: what differs of its values.
type uniformity struct {
	m       *Module
	differs map[*Func][]bool // by ValueID
	changed bool
}

// newUniformity follows a module. O(nodes) for each level of values that turn out to differ.
func newUniformity(m *Module) *uniformity {
	u := &uniformity{m: m, differs: map[*Func][]bool{}}
	for _, f := range m.funcs {
		u.differs[f] = make([]bool, len(f.values))
	}
	if m.World == 1 {
		return u
	}
	for _, f := range m.Entries() {
		for _, n := range f.Inputs() {
			if !n.attrs.Bool(UniformKey, false) {
				u.mark(n.results[0])
			}
		}
	}
	for u.changed = true; u.changed; {
		u.changed = false
		for _, f := range m.funcs {
			for _, n := range f.Order() {
				u.follow(n)
			}
		}
	}
	return u
}

func (u *uniformity) of(v *Value) bool { return !u.differs[v.def.fn][v.id] }

func (u *uniformity) mark(v *Value) {
	if d := u.differs[v.def.fn]; !d[v.id] {
		d[v.id], u.changed = true, true
	}
}

// follow marks what differs of a node, and of its bodies' inputs.
func (u *uniformity) follow(n *Node) {
	if n.op.info().Bodies == nil {
		if !u.same(n) {
			for _, r := range n.results {
				u.mark(r)
			}
		}
		return
	}
	bodies := n.Bodies()
	if slices.Contains(bodies, nil) {
		return
	}
	for _, b := range bodies {
		in := b.Inputs()
		for i, a := range n.bodyArgs() {
			if i < len(in) && (!u.of(a) || i < n.Carried() && !u.of(n.results[i])) {
				u.mark(in[i].results[0])
			}
		}
	}
	way := u.decides(n)
	if n.op == OpWhile {
		for i, r := range n.results {
			if i < len(n.args) && !u.of(n.args[i]) {
				u.mark(r)
			}
		}
		bodies = bodies[1:]
	}
	for _, b := range bodies {
		ret := b.Return()
		for i, r := range n.results {
			if !way || ret == nil || i < len(ret.args) && !u.of(ret.args[i]) {
				u.mark(r)
			}
		}
	}
}

// decides reports whether what decides which way n goes is equal on all ranks.
func (u *uniformity) decides(n *Node) bool {
	if n.attrs.Bool(UniformKey, false) {
		return true
	}
	if n.op == OpCase {
		return u.of(n.args[0])
	}
	ret := n.Bodies()[0].Return()
	return ret != nil && len(ret.args) > 0 && u.of(ret.args[0])
}

// same reports whether an operation gives on all ranks what it gives on one. Symbols may
// differ by rank, and so does what has their sizes.
func (u *uniformity) same(n *Node) bool {
	if n.op == OpInput {
		return true // entries' are marked, bodies' by whoever runs them
	}
	for _, r := range n.results {
		for _, t := range r.typ.Tensors() {
			if _, ok := t.Shape().Static(); !ok {
				return false
			}
		}
	}
	switch n.op {
	case OpCall, OpAsyncCall, OpRand:
		return false
	case OpAllReduce, OpAllGather, OpBroadcast:
		if n.group != nil && len(n.group.Ranks) == 1 {
			return true
		}
	}
	if n.op.IsCollective() || n.op.info().Grouped || n.Effects()&EffectRandom != 0 {
		return false
	}
	return !slices.ContainsFunc(n.args, func(a *Value) bool { return !u.of(a) })
}

// AssertUniform writes uniform=true to what communicates in a loop or a branch where all ranks are known
// to go the same way. A rewrite that keeps the numbers keeps this, but what shows it may go: an
// all_reduce over all ranks becomes several over some of them.
func (m *Module) AssertUniform() {
	var u *uniformity
	for _, f := range m.funcs {
		for _, n := range f.Order() {
			if n.op.info().Bodies == nil || n.Effects()&EffectCommunicates == 0 || n.attrs.Bool(UniformKey, false) {
				continue
			}
			if u == nil {
				u = newUniformity(m)
			}
			if u.decides(n) {
				f.SetAttrs(n, n.attrs.With(UniformKey, attr.Bool(true)))
			}
		}
	}
}

// sameWay reports whether all ranks go the same way in a node.
func (v *verifier) sameWay(n *Node) bool {
	if v.uniform == nil {
		v.uniform = newUniformity(v.m)
	}
	return v.uniform.decides(n)
}
