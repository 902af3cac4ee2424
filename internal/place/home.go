package place

import (
	"slices"

	"github.com/seed-ee968945/concert/ir"
)

// HomeKey is the annotation of a node whose result is in place of a donated input
// that the node does not read: home=[w] says that result k is in that of input number
// home[k], -1: it does not. Where the node reads the input, inplace says it.
const HomeKey = "home"

// DonatedBuffer is a donated input and the result that takes its place.
type DonatedBuffer struct {
	Input  *ir.Node
	Result int    // of the return's operands
	Name   string // of the result as a buffer, unique in the layout
	Buffer int    // the input's
	Copied bool   // the result is elsewhere and is copied at the end, behind

	Flights []*ir.Node // collectives that read the input and leave in flight
}

// findDonated notes which storages donated inputs may be taken over by: those that hold
// nothing but the result. O(inputs).
func (u *uses) findDonated() {
	u.donated = map[ir.StorageID]*ir.Node{}
	for _, d := range u.f.Donations() {
		p := u.st.Of(u.f.Return().Arg(d.Result))[0]
		root, _ := u.st.Root(p.Storage)
		if root.Def().Op() != ir.OpInput && u.st.Type(p.Storage).Equal(d.Input.Result(0).Type()) && u.donated[p.Storage] == nil {
			u.donated[p.Storage] = d.Input
		}
	}
}

// storage is that of tensor k of the results of n.
func (u *uses) storage(n *ir.Node, k int) ir.StorageID {
	for _, r := range n.Results() {
		at := u.st.Of(r)
		if k < len(at) {
			return at[k].Storage
		}
		k -= len(at)
	}
	return -1
}

// home returns the hazard of putting tensor k of the results of n in place of a
// donated input, "" if there is none. Everything that uses the input has ended when n
// begins, for the reasons that inPlace has, and n's launch does not read it. Behind n
// nobody writes the place but who changes the result in place.
func (u *uses) home(n *ir.Node, k int, in *ir.Node) (Hazard, ir.NodeID) {
	s := u.storage(n, k)
	if s < 0 || u.donated[s] != in {
		return NotThere, -1
	}
	own := u.st.Of(in.Result(0))[0].Storage
	o := u.latest[own][0]
	switch {
	case u.opaque[s] || u.opaque[own]:
		return Opaque, -1
	case o.at >= u.begin(n.At()):
		return Needed, o.by
	}
	return "", -1
}

// Home returns the number of the donated input in whose place tensor k of the results of n
// may be though n does not read it, -1 if there is none.
func (a *Analysis) Home(n *ir.Node, k int) int {
	in := a.u.donated[a.u.storage(n, k)]
	if in == nil {
		return -1
	}
	if h, _ := a.u.home(n, k, in); h != "" {
		return -1
	}
	return in.At()
}

// Donated reports whether tensor k of the results of n takes the place of the donated input
// that v is in.
func (a *Analysis) Donated(n *ir.Node, k int, v *ir.Value) bool {
	in := a.u.donated[a.u.storage(n, k)]
	return in != nil && a.Input(v) == in
}

// homed returns the input in whose place the annotations put tensor k of a root value
// that does not read it, nil for none.
func (u *uses) homed(root *ir.Value, k int) (*ir.Node, error) {
	n := root.Def()
	list := n.Meta().Ints(HomeKey)
	k = tensorIndex(root, k)
	if k >= len(list) || list[k] == -1 {
		return nil, nil
	}
	fail := func(h Hazard, by ir.NodeID) error {
		e := &InPlaceError{Node: n, Result: k, Operand: -1, Hazard: h}
		if by >= 0 {
			e.By = u.f.NodeByID(by)
		}
		return e
	}
	inputs := u.f.Inputs()
	if list[k] < 0 || list[k] >= int64(len(inputs)) {
		return nil, fail(NotThere, -1)
	}
	in := inputs[list[k]]
	if h, by := u.home(n, k, in); h != "" {
		e := fail(h, by).(*InPlaceError)
		e.Value = in.Result(0)
		return nil, e
	}
	return in, nil
}

// flights are the collectives that read a storage and are not awaited.
func (u *uses) flights(s ir.StorageID) []*ir.Node {
	var out []*ir.Node
	for _, v := range u.f.Return().Args() {
		start := v.Def()
		if v.Type().IsAsync() && slices.ContainsFunc(start.Args(), func(a *ir.Value) bool { return u.st.Of(a)[0].Storage == s }) {
			out = append(out, start)
		}
	}
	return out
}

// placeDonated lists the donated buffers and gives results in place of donated inputs windows of
// their own name: what is read under the input's name behind them is wrong, and the
// checker of programs tells by the name. home is by storage.
func (l *Layout) placeDonated(u *uses, names map[string]bool, home []Window) {
	for _, d := range u.f.Donations() {
		own := u.st.Of(d.Input.Result(0))[0].Storage
		p := u.st.Of(u.f.Return().Arg(d.Result))[0]
		if p.Storage == own {
			continue // written in place by calls
		}
		h := DonatedBuffer{Input: d.Input, Result: d.Result, Buffer: home[own].Buffer}
		h.Copied = u.donated[p.Storage] != d.Input || home[p.Storage] != home[own]
		root, k := u.st.Root(p.Storage)
		h.Name = storageName(root, k)
		if h.Copied {
			h.Name = d.Input.Name() + ".donated"
			h.Flights = u.flights(own)
		} else {
			home[p.Storage].Buffer = len(l.Buffers) + len(l.Donated)
		}
		for names[h.Name] {
			h.Name += "_"
		}
		names[h.Name] = true
		l.Donated = append(l.Donated, h)
	}
}
