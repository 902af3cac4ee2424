package ir

import "fmt"

// StorageID names a storage within one Storages table, dense from 0.
type StorageID int32

// Placement says where the elements of a tensor lie: element (0, 0, ...) is
// Offset elements into the storage.
type Placement struct {
	Storage StorageID
	Offset  int64
}

// Storages tells which values share memory. A tensor that no view defines is a
// storage of its own; a view lies in its operand's, as do the results of a call
// that declares alias, from the operand's first element on; a wait's results lie
// where the collective put them. An async value places one tensor per operand.
type Storages struct {
	place [][]Placement // by ValueID; one entry per tensor of the value
	roots []*Value      // by StorageID: the value that the storage was made for
	index []int32       // by StorageID: which tensor of an async root
}

// ComputeStorages analyses f. It fails where a view's offset depends on a symbol,
// which fixed layouts cannot express, or where a node is not well typed. O(nodes).
func ComputeStorages(f *Func) (*Storages, error) {
	s := &Storages{place: make([][]Placement, f.NumValueIDs())}
	for _, n := range f.Order() {
		for i, r := range n.results {
			at, err := s.placeOf(r, i)
			if err != nil {
				return nil, fmt.Errorf("%%%s: %w", n.name, err)
			}
			s.place[r.id] = at
		}
	}
	return s, nil
}

// placeOf says where result i of a node lies; what it aliases has been placed.
func (s *Storages) placeOf(r *Value, i int) ([]Placement, error) {
	of := r.Aliases()
	switch {
	case of == nil:
		var own []Placement
		for k := range r.typ.Tensors() {
			own = append(own, Placement{Storage: StorageID(len(s.roots))})
			s.roots = append(s.roots, r)
			s.index = append(s.index, int32(k))
		}
		return own, nil
	case of.typ.IsAsync():
		return s.place[of.id][i : i+1], nil
	case r.IsVersion() || !r.def.op.IsView():
		return s.place[of.id][:1], nil
	}
	off, err := r.def.ViewOffset(i)
	if err != nil {
		return nil, err
	}
	base := s.place[of.id][0]
	return []Placement{{base.Storage, base.Offset + off}}, nil
}

// Len is the number of storages.
func (s *Storages) Len() int { return len(s.roots) }

// Of lists where the tensors of v lie. The caller must not change the list.
func (s *Storages) Of(v *Value) []Placement { return s.place[v.id] }

// Root returns the value that a storage was made for, and which of its tensors
// if it is async.
func (s *Storages) Root(id StorageID) (*Value, int) { return s.roots[id], int(s.index[id]) }

// Type is the type of the tensor that a storage was made for.
func (s *Storages) Type(id StorageID) Type {
	v, k := s.Root(id)
	return v.typ.Tensors()[k]
}

// alwaysEmpty reports whether a tensor has no elements, whatever the symbols are.
func (n *Node) alwaysEmpty(t Type) bool {
	elems := t.Shape().NumElems()
	if n.fn == nil {
		return elems.Equal(D(0))
	}
	r, ok := n.fn.mod.Bounds(elems)
	return ok && r.Max == 0
}

// ViewOffset is the distance in elements from element (0, 0, ...) of a view's
// operand to that of result i, 0 if the result is always empty. It fails if the distance
// depends on a symbol or n is not a view.
func (n *Node) ViewOffset(i int) (int64, error) {
	if !n.op.IsView() {
		return 0, fmt.Errorf("%s is not a view", n.op.Name())
	}
	if i < len(n.results) && n.alwaysEmpty(n.results[i].typ) {
		return 0, nil
	}
	var at int64 // index along dim
	switch n.op {
	case OpSlice:
		at = n.attrs.Int("start", 0)
	case OpSelect:
		at = n.attrs.Int("index", 0)
	case OpSplit:
		for _, size := range n.attrs.Ints("sizes")[:i] {
			at += size
		}
	case OpAsStrided:
		return n.attrs.Int("offset", 0), nil
	default:
		return 0, nil
	}
	if at == 0 {
		return 0, nil
	}
	stride := n.args[0].typ.SymbolicStrides()[n.attrs.Int("dim", 0)]
	c, ok := stride.Const()
	if !ok {
		return 0, fmt.Errorf("the view starts at %d*(%s) elements, which is known at run time only", at, stride)
	}
	return at * c, nil
}
