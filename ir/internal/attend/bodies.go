package attend

import (
	"slices"

	"github.com/seed-ee968945/concert/internal/forwarding"
	"github.com/seed-ee968945/concert/ir"
)

// maxSunk bounds the operations that make a constant.
const maxSunk = 32

// Module makes attention of what is written out in the functions of a module. What is read of
// tensors that were put together is read where it was made first, and the bodies of loops make the
// constants that they are handed, masks above all, themselves: only then can it be seen what these
// are. A body without attention stays as it was. It returns how much attention there was.
func Module(m *ir.Module) int {
	found := 0
	for _, f := range m.Funcs() {
		f.RemoveDead(forwarding.Reads(f, nil)...)
	}
	for _, f := range m.Funcs() {
		for _, n := range slices.Clone(f.Order()) {
			if n.Op() == ir.OpWhile {
				found += inBody(n, n.Bodies()[1])
			}
		}
	}
	for _, f := range m.Funcs() {
		found += Recognize(f)
	}
	return found
}

// inBody finds attention in the body of a loop with the constants that it is handed.
func inBody(n *ir.Node, body *ir.Func) int {
	type sunk struct{ in, made *ir.Value }
	var all []sunk
	for i, in := range body.Inputs() {
		v := in.Result(0)
		kept := i >= n.Carried() || body.Return().Arg(i) == v // the same in every iteration
		if chain := constantChain(n.Arg(i)); kept && chain != nil && len(v.Uses()) > 0 {
			all = append(all, sunk{v, remake(body, chain, v.Type())})
		}
	}
	if len(all) == 0 {
		return 0
	}
	for _, s := range all {
		exchange(body, s.in, s.made)
	}
	found := Recognize(body)
	for _, s := range all {
		if found == 0 {
			exchange(body, s.made, s.in)
		}
		body.RemoveDead(s.made.Def())
	}
	return found
}

// exchange makes all who read a value but the return read another.
func exchange(f *ir.Func, old, v *ir.Value) {
	for _, u := range slices.Clone(old.Uses()) {
		if u.Node != f.Return() {
			f.SetArg(u.Node, u.Index, v)
		}
	}
}

// constantChain are the operations that a value follows from, the first one first; nil if it
// follows from more than constants, or from much.
func constantChain(v *ir.Value) []*ir.Node {
	var out []*ir.Node
	seen := map[*ir.Node]bool{}
	var visit func(n *ir.Node) bool
	visit = func(n *ir.Node) bool {
		if seen[n] {
			return true
		}
		seen[n] = true
		if len(seen) > maxSunk || len(n.Results()) != 1 || n.Group() != nil || n.Op() == ir.OpInput || n.Op() == ir.OpCall || !n.Pure() {
			return false
		}
		for _, a := range n.Args() {
			if !visit(a.Def()) {
				return false
			}
		}
		out = append(out, n)
		return true
	}
	if !visit(v.Def()) {
		return nil
	}
	return out
}

// remake computes what a chain does at the beginning of a function, in the layout of a type.
func remake(f *ir.Func, chain []*ir.Node, t ir.Type) *ir.Value {
	at := f.Order()[len(f.Inputs())]
	now := map[*ir.Value]*ir.Value{} // look-up only
	var last *ir.Value
	for _, n := range chain {
		s := n.Spec()
		for i, a := range s.Args {
			s.Args[i] = now[a]
		}
		s.From = nil
		last = f.InsertBefore(at, s).Result(0)
		now[n.Result(0)] = last
	}
	if !last.Type().Equal(t) {
		last = f.InsertBefore(at, ir.NodeSpec{Op: ir.OpClone, Name: last.Def().Name(), Args: []*ir.Value{last}, Results: []ir.Type{t}}).Result(0)
	}
	return last
}
