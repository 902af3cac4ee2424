package deps

import "github.com/seed-ee968945/concert/ir"

// StorageOf is the tensor that the storage of x was made for.
func StorageOf(x *ir.Value) *ir.Value {
	for a := x.Aliases(); a != nil && !a.Type().IsAsync(); a = x.Aliases() {
		x = a
	}
	return x
}

// FromCaller reports whether the storage of x is an input's.
func FromCaller(x *ir.Value) bool {
	for x.Aliases() != nil {
		x = x.Aliases()
	}
	return x.Def().Op() == ir.OpInput
}

// Returned reports whether v or an alias of it is a result of the function.
func Returned(v *ir.Value) bool {
	for stack := []*ir.Value{v}; len(stack) > 0; {
		v, stack = stack[len(stack)-1], stack[:len(stack)-1]
		for _, u := range v.Uses() {
			if u.Node.Op() == ir.OpReturn {
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

// Used reports whether anything reads a result of n.
func Used(n *ir.Node) bool {
	for _, r := range n.Results() {
		if len(r.Uses()) > 0 {
			return true
		}
	}
	return false
}
