package place

import "github.com/seed-ee968945/concert/ir"

// life is the span of positions, both included, over which a storage must keep its
// bytes.
type life struct{ def, last int }

// use is the last position up to which a launch, named by its first node, uses a storage.
type use struct {
	at int
	by ir.NodeID
}

// uses is who needs which storage of a function, and until when.
type uses struct {
	f      *ir.Func
	st     *ir.Storages
	lives  []life   // by storage
	latest [][2]use // by storage: the latest use, and the latest one by another launch
	opaque []bool   // by storage: a call may have given it another name

	donated map[ir.StorageID]*ir.Node // the donated input that a storage may take the place of; look-up only

	regions   []Region
	reads     [][]*ir.Value            // by region: its operands
	seat      []int32                  // by position: which region, -1 for none
	sorted    *ir.Node                 // the last node that operandsIn was asked about
	inStorage map[ir.StorageID][]int32 // its operands; look-up only

	outside []bool // by storage: somebody outside of the region that makes it uses it
}

// newUses follows the order once. O(nodes + uses).
func newUses(f *ir.Func) (*uses, error) {
	st, err := ir.ComputeStorages(f)
	if err != nil {
		return nil, err
	}
	order := f.Order()
	end := len(order) - 1
	u := &uses{f: f, st: st, lives: make([]life, st.Len()), latest: make([][2]use, st.Len()), opaque: make([]bool, st.Len()), outside: make([]bool, st.Len())}
	if err := u.seats(); err != nil {
		return nil, err
	}
	for i := range u.latest {
		u.latest[i] = [2]use{{-1, -1}, {-1, -1}}
	}
	u.findDonated()
	for i, n := range order {
		for _, r := range n.Results() {
			for _, p := range st.Of(r) {
				if root, _ := st.Root(p.Storage); root == r {
					u.lives[p.Storage] = life{u.begin(i), u.end(i)}
				}
			}
		}
		at := u.end(i)
		switch n.Op().Class() {
		case ir.ClassInput:
			for _, p := range st.Of(n.Result(0)) {
				u.lives[p.Storage].def = 0
				if n.Donated() { // the place is needed, what is there is not
					u.lives[p.Storage].last = end
				}
			}
			if !ownedByProgram(n) && !n.Donated() {
				u.use(n, n.Result(0), end)
			}
		case ir.ClassCollective:
			at = waitAt(n)
			u.use(n, n.Result(0), at)
		case ir.ClassOutput:
			at = end
		}
		if n.Op() == ir.OpReadSize { // whatever names its symbols reads them
			u.use(n, n.Result(0), end)
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

// seats finds the regions.
func (u *uses) seats() error {
	var err error
	if u.regions, err = Regions(u.f); err != nil {
		return err
	}
	u.seat = make([]int32, len(u.f.Order()))
	for i := range u.seat {
		u.seat[i] = -1
	}
	for r := range u.regions {
		u.reads = append(u.reads, u.regions[r].Operands(u.st))
		for i := u.regions[r].First; i <= u.regions[r].Last; i++ {
			u.seat[i] = int32(r)
		}
	}
	return nil
}

// launch is the node that stands for the launch of n: the first of its region, or n.
func (u *uses) launch(n *ir.Node) *ir.Node {
	if r := u.seat[n.At()]; r >= 0 {
		return u.regions[r].Nodes[0]
	}
	return n
}

// operands are what the launch of n reads; those of a region are counted together.
func (u *uses) operands(n *ir.Node) []*ir.Value {
	if r := u.seat[n.At()]; r >= 0 {
		return u.reads[r]
	}
	return n.Args()
}

// begin is the position at which the launch of the node at position i begins.
func (u *uses) begin(i int) int {
	if r := u.seat[i]; r >= 0 {
		return u.regions[r].First
	}
	return i
}

// end is the position at which the launch of the node at position i ends.
func (u *uses) end(i int) int {
	if r := u.seat[i]; r >= 0 {
		return u.regions[r].Last
	}
	return i
}

// inside reports whether a storage has no bytes: a region makes it and nobody else
// uses it.
func (u *uses) inside(s ir.StorageID) bool {
	root, _ := u.st.Root(s)
	return u.seat[root.Def().At()] >= 0 && !u.outside[s]
}

// ownedByProgram reports whether the caller leaves an input to the program: activations kept
// by the forward pass, and incoming gradients.
func ownedByProgram(n *ir.Node) bool {
	return (n.Role() == ir.RoleSaved || n.Role() == ir.RoleTangent) && !n.Donated()
}

// use notes that n needs v up to a position. A region uses it as one.
func (u *uses) use(n *ir.Node, v *ir.Value, at int) {
	id := u.launch(n).ID()
	for _, p := range u.st.Of(v) {
		u.lives[p.Storage].last = max(u.lives[p.Storage].last, at)
		if root, _ := u.st.Root(p.Storage); u.seat[n.At()] < 0 || u.seat[n.At()] != u.seat[root.Def().At()] {
			u.outside[p.Storage] = true
		}
		l := &u.latest[p.Storage]
		switch {
		case id == l[0].by:
			l[0].at = max(l[0].at, at)
		case at >= l[0].at:
			l[0], l[1] = use{at, id}, l[0]
		case id == l[1].by || at > l[1].at:
			l[1] = use{max(at, l[1].at), id}
		}
	}
}

// other is the latest use of a storage by a launch other than n's; at -1 if there is none.
func (u *uses) other(s ir.StorageID, n *ir.Node) use {
	l := u.latest[s]
	if l[0].by != u.launch(n).ID() {
		return l[0]
	}
	return l[1]
}
