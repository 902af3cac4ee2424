// Package place determines which memory each value of a function needs and for how long:
// its buffers. The passes reuse-buffers and plan-memory and the lowering all use it, so that they
// cannot disagree.
//
// # Annotations
//
// Decisions are annotations of nodes, so that they have a text form and need no
// program:
//
//	inplace=[i]          result k shares the memory of operand inplace[k]; -1: none
//	home=[w]             result k shares the memory of donated input number w; -1: none
//	offset=[b]           result k is b bytes from the start of the arena; -1: in place of something
//	operand_offset=[b]   offset of the contiguous copy of operand i; -1: no copy is needed
//	fusion=n             the node belongs to a region, see FusionKey
//	in_matmul=true       a collective to be fused into a matmul, see InMatmulKey
//	pin=[b]              required offset of result k; -1: anywhere. Written by the author, never by a pass
//
// The offsets of results are followed by that of the memory of a node's bodies.
// Results are counted by tensor: an async result of n tensors has n entries. Operands
// are the node's, or those of its region (see Region.Operands).
// reuse-buffers writes inplace and home, plan-memory the offsets.
//
// # Lifetimes
//
// Times are positions in the function's order. A buffer lives from the node that
// defines it (from the start, for an input) to its last use through any
// view; the operands and results of a collective live at least until its wait;
// outputs, parameters and data live to the end, and so do the operands of a collective that is
// still in flight there. The nodes of a region (see FusionKey) are one use: all of
// them begin with the first and end with the last.
package place

import (
	"fmt"

	"github.com/seed-ee968945/concert/ir"
)

// Align is the alignment of every buffer in bytes; sim and program have the same.
const Align = 512

// KernelAlign is the alignment in bytes that compiled kernels expect of the values
// that no view makes: what one access moves at most.
const KernelAlign = 16

// The keys of annotations.
const (
	InPlaceKey       = "inplace"
	OffsetKey        = "offset"
	OperandOffsetKey = "operand_offset"
	PinKey           = "pin"
)

// InMatmulKey is the annotation of an all_gather that a device should do within the matmul that
// takes its rows next, or of a reduce_scatter that it should do within the matmul of its operand (Sent), if it
// has a kernel for that. The results are the same. Pass collectives-in-matmuls writes it.
const InMatmulKey = "in_matmul"

// ScatteredMatmul is the matmul of whose product a reduce_scatter takes all, through views, if nobody else
// reads that; else nil.
func ScatteredMatmul(n *ir.Node) *ir.Node {
	if n.Op() != ir.OpReduceScatter || len(n.Args()) != 1 || n.Group().Size() < 2 {
		return nil
	}
	elems := n.Arg(0).Type().Shape().NumElems()
	for v := n.Arg(0); len(v.Uses()) == 1 && v.Type().Shape().NumElems().Equal(elems); v = v.Def().Arg(0) {
		switch d := v.Def(); {
		case d.Op() == ir.OpMatmul:
			return d
		case d.Op().Class() != ir.ClassView || len(d.Args()) != 1:
			return nil
		}
	}
	return nil
}

// Buffer is a range of the arena that holds one value after another in place.
type Buffer struct {
	Name  string   // of the value that it was made for, unique in the layout
	Type  ir.Type  // of that tensor
	Bytes int64    // with symbols at their bounds, before alignment
	Def   int      // position from which it lives
	Last  int      // position up to which it lives, included
	Node  *ir.Node // whose result it is, or whose operand's copy
	Index int      // number of the tensor among the node's results, or of the operand
	Copy  bool     // a contiguous copy of an operand of the collective Node
	Room  bool     // what the bodies of Node are in, counted behind its results
}

// Size is the number of bytes that the buffer takes up.
func (b *Buffer) Size() int64 { return (b.Bytes + Align - 1) / Align * Align }

// Window says where a tensor is: Offset bytes into a buffer, or into a donated one.
type Window struct {
	Buffer int
	Offset int64
}

// Layout is the buffers of a function and where every value is in them.
type Layout struct {
	Func    *ir.Func
	Buffers []Buffer
	Donated []DonatedBuffer // donated buffer i is buffer len(Buffers)+i in windows

	regions []Region
	windows [][]Window      // by ValueID: one per tensor
	copies  map[copyKey]int // buffers of contiguous copies; look-up only
	rooms   map[ir.NodeID]*Room
}

type copyKey struct {
	node    ir.NodeID
	operand int
}

// Of lays out a verified function with the reuse that its annotations ask for. The
// error is an *InPlaceError where that is not legal, or what ir.ComputeStorages
// has to say. O(nodes + uses).
func Of(f *ir.Func) (*Layout, error) {
	u, err := newUses(f)
	if err != nil {
		return nil, err
	}
	l := &Layout{Func: f, regions: u.regions, windows: make([][]Window, f.NumValueIDs()), copies: map[copyKey]int{}, rooms: map[ir.NodeID]*Room{}}
	names := map[string]bool{}
	home := make([]Window, u.st.Len()) // by storage
	for id := range home {
		s := ir.StorageID(id)
		root, k := u.st.Root(s)
		operand, err := u.taken(root, k)
		if err != nil {
			return nil, err
		}
		if u.inside(s) {
			home[id] = Window{Buffer: -1}
			continue
		}
		if operand >= 0 {
			p := u.st.Of(u.operands(root.Def())[operand])[0]
			w := home[p.Storage]
			w.Offset += p.Offset * int64(u.st.Type(p.Storage).DType().Size())
			home[id] = w
			b := &l.Buffers[w.Buffer]
			b.Last = max(b.Last, u.lives[id].last)
			continue
		}
		in, err := u.homed(root, k)
		if err != nil {
			return nil, err
		}
		if in != nil {
			home[id] = home[u.st.Of(in.Result(0))[0].Storage]
			continue
		}
		home[id] = Window{Buffer: len(l.Buffers)}
		l.add(names, Buffer{Name: storageName(root, k), Type: u.st.Type(s), Def: u.lives[id].def, Last: u.lives[id].last,
			Node: root.Def(), Index: tensorIndex(root, k)})
	}
	for _, n := range f.Order() {
		l.addCopies(names, n)
		if err := l.addRoom(u, names, n, home); err != nil {
			return nil, err
		}
	}
	l.placeDonated(u, names, home)
	for _, n := range f.Order() {
		for _, r := range n.Results() {
			ts := r.Type().Tensors()
			for k, p := range u.st.Of(r) {
				w := home[p.Storage]
				w.Offset += p.Offset * int64(ts[k].DType().Size())
				l.windows[r.ID()] = append(l.windows[r.ID()], w)
			}
		}
	}
	return l, nil
}

// addCopies makes the buffers of contiguous copies: collectives read row-major
// operands only.
func (l *Layout) addCopies(names map[string]bool, n *ir.Node) {
	if !n.Op().IsCollective() {
		return
	}
	for i, a := range n.Args() {
		if a.Type().Contiguous() {
			continue
		}
		l.copies[copyKey{n.ID(), i}] = len(l.Buffers)
		l.add(names, Buffer{Name: fmt.Sprintf("%s.operand%d", n.Name(), i), Type: ir.TensorOf(a.Type().DType(), a.Type().Shape()),
			Def: n.At(), Last: waitAt(n), Node: n, Index: i, Copy: true})
	}
}

func (l *Layout) add(names map[string]bool, b Buffer) {
	for names[b.Name] {
		b.Name += "_"
	}
	names[b.Name] = true
	b.Bytes = l.Func.Module().Bound(b.Type.Extent())
	l.Buffers = append(l.Buffers, b)
}

// Windows says where the tensors of v are; in Buffer -1 if v is inside a region,
// see Inside. The caller must not change the list.
func (l *Layout) Windows(v *ir.Value) []Window { return l.windows[v.ID()] }

// Copy is the buffer of the contiguous copy of an operand of a collective; false
// if the collective reads the operand where it is.
func (l *Layout) Copy(n *ir.Node, operand int) (int, bool) {
	b, ok := l.copies[copyKey{n.ID(), operand}]
	return b, ok
}

// storageName names a storage after its value, with a character that names may
// hold between node and index.
func storageName(v *ir.Value, tensor int) string {
	name := ValueName(v)
	if v.Type().IsAsync() && len(v.Type().Elems()) > 1 {
		name = fmt.Sprintf("%s.%d", name, tensor)
	}
	return name
}

// ValueName is the name of a value as buffers and outputs spell it; of a version the
// name that it had before any write.
func ValueName(v *ir.Value) string {
	v = v.Base()
	if len(v.Def().DeclaredResults()) == 1 {
		return v.Def().Name()
	}
	return fmt.Sprintf("%s.%d", v.Def().Name(), v.Index())
}

// tensorIndex counts a tensor of a value among all tensors that its node defines.
func tensorIndex(v *ir.Value, tensor int) int {
	for _, r := range v.Def().Results()[:v.Index()] {
		tensor += len(r.Type().Tensors())
	}
	return tensor
}

// waitAt is the position at which a collective is known to have finished: its
// wait's, or the end.
func waitAt(n *ir.Node) int {
	if u := n.Result(0).Uses(); len(u) == 1 {
		return u[0].Node.At()
	}
	return len(n.Func().Order()) - 1
}
