package lower

import (
	"github.com/seed-ee968945/concert/ir"
)

// lifetime is the span of order positions, both included, over which a storage
// must keep its bytes.
type lifetime struct {
	def, last int
}

// lifetimes computes the lifetime of every storage: from the node that makes it
// (the start, for inputs) to the last use of any alias, the wait for operands and
// results of a collective, and the end for outputs and for inputs that the caller
// keeps (parameters and data). O(nodes + uses).
func lifetimes(f *ir.Func, st *ir.Storages) []lifetime {
	order := f.Order()
	end := len(order) - 1
	lives := make([]lifetime, st.Len())
	use := func(v *ir.Value, at int) {
		for _, p := range st.Of(v) {
			lives[p.Storage].last = max(lives[p.Storage].last, at)
		}
	}
	for i, n := range order {
		for _, r := range n.Results() {
			for _, p := range st.Of(r) {
				if root, _ := st.Root(p.Storage); root == r {
					lives[p.Storage] = lifetime{i, i}
				}
			}
		}
		at := i
		switch n.Op().Class() {
		case ir.ClassInput:
			for _, p := range st.Of(n.Result(0)) {
				lives[p.Storage].def = 0
			}
			if r := n.Role(); r != ir.RoleSaved && r != ir.RoleTangent {
				use(n.Result(0), end)
			}
		case ir.ClassCollective:
			at = end
			if u := n.Result(0).Uses(); len(u) == 1 {
				at = u[0].Node.At()
			}
			use(n.Result(0), at)
		case ir.ClassOutput:
			at = end
		}
		for _, a := range n.Args() {
			use(a, at)
		}
	}
	return lives
}
