package place

import (
	"fmt"

	"github.com/seed-ee968945/concert/ir"
)

// A Hazard is a reason why a result must not be in place of an operand.
type Hazard string

// The hazards.
const (
	NotThere  Hazard = "there is no such operand"
	NotAble   Hazard = "the operation does not work in place on it"
	OtherType Hazard = "it has another type or layout than the result"
	Needed    Hazard = "its storage is read again later"
	InFlight  Hazard = "a collective has its storage in flight"
	Callers   Hazard = "it belongs to the caller"
	Shared    Hazard = "another operand overlaps it"
	Opaque    Hazard = "a call may have given its storage another name"
	Fused     Hazard = "the launch that computes both may read the operand after it has written the result"
)

// InPlaceError reports an annotation that asks for illegal reuse.
type InPlaceError struct {
	Node    *ir.Node
	Result  int // number of the tensor among the results
	Operand int
	Value   *ir.Value // the operand, nil if there is none of that number
	Hazard  Hazard
	By      *ir.Node // who needs the storage, or has it in flight; may be nil
}

// Error implements error.
func (e *InPlaceError) Error() string {
	s := fmt.Sprintf("%%%s: result %d cannot lie in place of operand %d", e.Node.Name(), e.Result, e.Operand)
	if e.Value != nil {
		s += fmt.Sprintf(" (%s)", e.Value)
	}
	s += ": " + string(e.Hazard)
	if e.By != nil {
		s += fmt.Sprintf(" (%%%s)", e.By.Name())
	}
	return s
}

// WorksInPlace reports whether an operation other than a collective may write its
// result over an operand that is the same elements: elementwise operations may;
// softmax and cumsum read a row before they write it; updates copy operand 0 and
// change a part of it, and are spared the copy in place.
func WorksInPlace(op ir.Op, operand int) bool {
	switch op {
	case ir.OpSoftmax, ir.OpLogSoftmax, ir.OpCumsum:
		return true
	case ir.OpIndexPut, ir.OpIndexAdd, ir.OpScatter, ir.OpSliceScatter:
		return operand == 0
	}
	return op.Info().Elementwise
}

// KernelInPlace reports whether a compiled kernel of an operation alone may write
// its result over an operand for which WorksInPlace holds: those whose threads read
// and write the same elements and no others. A kernel for a row, an update or a running
// sum wants them apart.
func KernelInPlace(op ir.Op) bool {
	return op.Info().Elementwise
}

// Analysis answers which results may be in place of which operands.
type Analysis struct{ u *uses }

// Analyse prepares the answers for a verified function in its present order.
// O(nodes + uses).
func Analyse(f *ir.Func) (*Analysis, error) {
	u, err := newUses(f)
	if err != nil {
		return nil, err
	}
	return &Analysis{u}, nil
}

// InPlace returns nil if tensor k of the results of n may be in place of one of
// Operands(n), else why not. Whether inputs that die may be overwritten is the
// caller's to say. O(operands).
func (a *Analysis) InPlace(n *ir.Node, k, operand int) *InPlaceError {
	return a.u.inPlace(n, k, operand)
}

// Input returns the input whose storage an operand is in, or nil.
func (a *Analysis) Input(v *ir.Value) *ir.Node {
	root, _ := a.u.st.Root(a.u.st.Of(v)[0].Storage)
	if d := root.Def(); d.Op() == ir.OpInput {
		return d
	}
	return nil
}

// Operands are what the launch of n reads: the arguments of n, or what its region
// reads, see Region.Operands. The caller must not change the list.
func (a *Analysis) Operands(n *ir.Node) []*ir.Value { return a.u.operands(n) }

// Inside reports whether the results of n have no bytes, since only its region reads
// them.
func (a *Analysis) Inside(n *ir.Node) bool {
	for _, r := range n.Results() {
		for _, p := range a.u.st.Of(r) {
			if !a.u.inside(p.Storage) {
				return false
			}
		}
	}
	return true
}

// Whole reports whether v has all the bytes of its storage, up to alignment at its
// end: if not, a result in its place would keep the rest alive, or not be aligned.
func (a *Analysis) Whole(v *ir.Value) bool {
	if a.u.st.Of(v)[0].Offset*int64(v.Type().DType().Size())%KernelAlign != 0 {
		return false
	}
	m := a.u.f.Module()
	size := func(t ir.Type) int64 { return (m.Bound(t.Extent()) + Align - 1) / Align }
	return size(v.Type()) == size(a.u.st.Type(a.u.st.Of(v)[0].Storage))
}

// Size is what a tensor takes up in bytes.
func (a *Analysis) Size(t ir.Type) int64 {
	return (a.u.f.Module().Bound(t.Extent()) + Align - 1) / Align * Align
}

// taken returns the operand in whose place the annotations put tensor k of a root
// value, -1 for none.
func (u *uses) taken(root *ir.Value, k int) (int, error) {
	n := root.Def()
	list := n.Meta().Ints(InPlaceKey)
	if list == nil {
		return -1, nil
	}
	last := n.DeclaredResults()[len(n.DeclaredResults())-1]
	total := tensorIndex(last, len(last.Type().Tensors()))
	if len(list) != total {
		return -1, fmt.Errorf("%%%s: %s has %d entries for %d result tensors", n.Name(), InPlaceKey, len(list), total)
	}
	k = tensorIndex(root, k)
	if list[k] == -1 {
		return -1, nil
	}
	if err := u.inPlace(n, k, int(max(min(list[k], 1<<30), -2))); err != nil {
		return -1, err
	}
	return int(list[k]), nil
}

// inPlace examines one pair of result tensor and operand.
//
// Why what it allows is right: the operand's storage is in no other use at n or
// later. Uses by launches are on the compute stream in list order; a use by a
// collective lasts until its wait, which comes before n. So everything that
// reads or writes these bytes has finished when n may start, except n's own
// reads, and n is of those that read an element before they overwrite it. What a
// collective in place has in flight nobody else uses before its wait, since the
// operand's uses are over and the results have none before it. Chains of reuse
// need no more: each link ends the life of the storage before it.
func (u *uses) inPlace(n *ir.Node, k, operand int) *InPlaceError {
	fail := func(h Hazard, by ir.NodeID) *InPlaceError {
		e := &InPlaceError{Node: n, Result: k, Operand: operand, Hazard: h}
		if ops := u.operands(n); operand >= 0 && operand < len(ops) {
			e.Value = ops[operand]
		}
		if by >= 0 {
			e.By = u.f.NodeByID(by)
		}
		return e
	}
	ops := u.operands(n)
	if operand < 0 || operand >= len(ops) {
		return fail(NotThere, -1)
	}
	v := ops[operand]
	seat := u.seat[n.At()]
	if seat < 0 && !worksAtAll(n, k, operand) {
		return fail(NotAble, -1)
	}
	if v.Type().IsAsync() || !v.Type().Equal(resultType(n, k)) {
		return fail(OtherType, -1)
	}
	p := u.st.Of(v)[0]
	root, _ := u.st.Root(p.Storage)
	if d := root.Def(); d.Op() == ir.OpInput && (!ownedByProgram(d) || root.Type().IsAsync()) && u.donated[u.storage(n, k)] != d {
		return fail(Callers, -1)
	}
	if u.opaque[p.Storage] {
		return fail(Opaque, -1)
	}
	if o := u.other(p.Storage, n); o.at > n.At() {
		if by := u.f.NodeByID(o.by); by.Op().IsCollective() && by.At() < n.At() {
			return fail(InFlight, o.by)
		}
		return fail(Needed, o.by)
	}
	if seat >= 0 && (!u.pointwise(&u.regions[seat], n, v) || u.claimed(&u.regions[seat], n, p.Storage)) {
		return fail(Fused, -1)
	}
	for _, i := range u.operandsIn(n, p.Storage) {
		w := ops[i]
		same := seat < 0 && n.Op().Info().Elementwise && u.st.Of(w)[0].Offset == p.Offset && w.Type().Equal(v.Type())
		if int(i) != operand && !same {
			return fail(Shared, -1)
		}
	}
	return nil
}

// operandsIn lists the operands of n's launch that are tensors in a storage. The operands
// of one node are asked about one after the other: they are sorted once for all.
func (u *uses) operandsIn(n *ir.Node, s ir.StorageID) []int32 {
	if u.sorted != n {
		u.sorted, u.inStorage = n, map[ir.StorageID][]int32{}
		for i, w := range u.operands(n) {
			if !w.Type().IsAsync() {
				q := u.st.Of(w)[0].Storage
				u.inStorage[q] = append(u.inStorage[q], int32(i))
			}
		}
	}
	return u.inStorage[s]
}

// worksAtAll reports whether n works in place at all. reduce_scatter, all_gather and
// all_to_all do not: their result is a piece of an operand, or holds the operand
// as a piece, at a place that depends on the rank, and offsets must not.
// collective_permute does not either: while a rank's operand is on its way out,
// the result comes in from another rank, and only a copy could keep the two apart.
func worksAtAll(n *ir.Node, k, operand int) bool {
	switch {
	case n.Op() == ir.OpAllReduce, n.Op() == ir.OpBroadcast:
		return k == operand // peers work on both, element by element
	case n.Op() == ir.OpWhile:
		return k == operand // the first iteration begins with it
	case n.Op().IsCollective():
		return false
	}
	return len(n.Results()) == 1 && WorksInPlace(n.Op(), operand)
}

// resultType is the type of tensor k of the results.
func resultType(n *ir.Node, k int) ir.Type {
	for _, r := range n.Results() {
		ts := r.Type().Tensors()
		if k < len(ts) {
			return ts[k]
		}
		k -= len(ts)
	}
	return ir.Type{}
}
