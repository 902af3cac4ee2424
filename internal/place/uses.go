package place

import "github.com/seed-ee968945/concert/ir"

// life is the span of positions, both included, over which a storage must keep its
// bytes.
type life struct{ def, last int }

// use is the last position up to which a node uses a storage.
type use struct {
	at int
	by ir.NodeID
}

// uses is who needs which storage of a function, and until when.
type uses struct {
	f      *ir.Func
	st     *ir.Storages
	lives  []life   // by storage
	latest [][2]use // by storage: the latest use, and the latest one by another node
	opaque []bool   // by storage: a call may have given it another name
}

// newUses follows the order once. O(nodes + uses).
func newUses(f *ir.Func) (*uses, error) {
	st, err := ir.ComputeStorages(f)
	if err != nil {
		return nil, err
	}
	order := f.Order()
	end := len(order) - 1
	u := &uses{f: f, st: st, lives: make([]life, st.Len()), latest: make([][2]use, st.Len()), opaque: make([]bool, st.Len())}
	for i := range u.latest {
		u.latest[i] = [2]use{{-1, -1}, {-1, -1}}
	}
	for i, n := range order {
		for _, r := range n.Results() {
			for _, p := range st.Of(r) {
				if root, _ := st.Root(p.Storage); root == r {
					u.lives[p.Storage] = life{i, i}
				}
			}
		}
		at := i
		switch n.Op().Class() {
		case ir.ClassInput:
			for _, p := range st.Of(n.Result(0)) {
				u.lives[p.Storage].def = 0
			}
			if !dies(n) {
				u.use(n, n.Result(0), end)
			}
		case ir.ClassCollective:
			at = waitAt(n)
			u.use(n, n.Result(0), at)
		case ir.ClassOutput:
			at = end
		}
		for _, a := range n.Args() {
			u.use(n, a, at)
		}
		if n.Op() == ir.OpCall && n.Effects()&ir.EffectAlias != 0 {
			for _, v := range append(append([]*ir.Value(nil), n.Args()...), n.Results()...) {
				for _, p := range st.Of(v) {
					u.opaque[p.Storage] = true
				}
			}
		}
	}
	return u, nil
}

// dies reports whether the caller leaves an input to the program: activations kept
// by the forward pass, and incoming gradients.
func dies(n *ir.Node) bool { return n.Role() == ir.RoleSaved || n.Role() == ir.RoleTangent }

// use notes that n needs v up to a position.
func (u *uses) use(n *ir.Node, v *ir.Value, at int) {
	for _, p := range u.st.Of(v) {
		u.lives[p.Storage].last = max(u.lives[p.Storage].last, at)
		l := &u.latest[p.Storage]
		switch {
		case n.ID() == l[0].by:
			l[0].at = max(l[0].at, at)
		case at >= l[0].at:
			l[0], l[1] = use{at, n.ID()}, l[0]
		case n.ID() == l[1].by || at > l[1].at:
			l[1] = use{max(at, l[1].at), n.ID()}
		}
	}
}

// other is the latest use of a storage by a node other than n; at -1 if there is none.
func (u *uses) other(s ir.StorageID, n *ir.Node) use {
	l := u.latest[s]
	if l[0].by != n.ID() {
		return l[0]
	}
	return l[1]
}
