package ir

import (
	"slices"
)

// StorageOf is the tensor that the storage of x was made for.
func StorageOf(x *Value) *Value {
	for a := x.Aliases(); a != nil && !a.Type().IsAsync(); a = x.Aliases() {
		x = a
	}
	return x
}

// FromCaller reports whether the storage of x is an input's.
func FromCaller(x *Value) bool { return x.Root().Def().Op() == OpInput }

// Returned reports whether v or an alias of it is a result of the function.
func Returned(v *Value) bool {
	for stack := []*Value{v}; len(stack) > 0; {
		v, stack = stack[len(stack)-1], stack[:len(stack)-1]
		for _, u := range v.Uses() {
			if u.Node.Op() == OpReturn {
				return true
			}
			for _, r := range u.Node.Results() {
				if r.Aliases() == v {
					stack = append(stack, r)
				}
			}
		}
	}
	return false
}

// RemoveDead removes those of some nodes that are pure and that nothing reads, and what only they
// read.
func (f *Func) RemoveDead(todo ...*Node) {
	for len(todo) > 0 {
		n := todo[len(todo)-1]
		todo = todo[:len(todo)-1]
		if f.nodes[n.id] != n || n.op == OpInput || n.op == OpReturn || !n.Pure() || slices.ContainsFunc(n.results, func(v *Value) bool { return len(v.uses) > 0 }) {
			continue
		}
		args := slices.Clone(n.args)
		f.Remove(n)
		for _, a := range args {
			todo = append(todo, a.def)
		}
	}
}
