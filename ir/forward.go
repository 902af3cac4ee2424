package ir

import (
	"slices"

	"github.com/seed-ee968945/concert/internal/attr"
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

// maxForward bounds how many steps back a read is followed.
const maxForward = 4096

// ForwardReads makes slices and selections of what cat and slice_scatter put together along an
// outermost dimension read what was put there. Loops that stack a tensor of every round and read
// them one by one, once they are unrolled, thus hand them over. Where the layout is another one that
// takes a copy, which is made where nobody reads the whole. may is asked before each change, with the
// read; nil allows all. It returns the reads that nobody uses any more. Storages that are written in
// place stay as they are.
func (f *Func) ForwardReads(may func(*Node) bool) []*Node {
	fw := forwarder{writes: FindWrites(f), whole: map[*Value]bool{}}
	var left []*Node
	for _, n := range slices.Clone(f.Order()) {
		r, ok := fw.read(n)
		if !ok || len(n.results[0].uses) == 0 {
			continue
		}
		if Returned(n.results[0]) && (FromCaller(r.of) || Returned(StorageOf(r.of))) {
			continue // the caller would hold one storage twice
		}
		if may != nil && !may(n) {
			continue
		}
		if v := fw.value(r); v != nil {
			f.ReplaceUses(n.results[0], v)
			left = append(left, n)
		}
	}
	return left
}

// forwarder follows reads of parts.
type forwarder struct {
	writes *Writes
	whole  map[*Value]bool // who has readers of more than parts that can be followed; look-up only
}

// part is what a read takes of a tensor: some indices of a dimension.
type part struct {
	n           *Node
	of          *Value
	dim         int
	start, size int64
}

// outermost is the size of a dimension of a tensor in front of which all are 1; false of others.
func outermost(t Type, dim int) (int64, bool) {
	s, ok := t.Shape().Static()
	if !ok || t.IsAsync() || dim < 0 || dim >= len(s) || slices.ContainsFunc(s[:dim], func(n int64) bool { return n != 1 }) {
		return 0, false
	}
	return s[dim], true
}

// read says what n reads, as a part of the tensor in which that was made; false where n does not
// read one run of rows, or reads them where they were made.
func (fw *forwarder) read(n *Node) (part, bool) {
	if n.op != OpSlice && n.op != OpSelect {
		return part{}, false
	}
	p := part{n: n, of: n.args[0], dim: int(n.attrs.Int("dim", 0)), start: n.attrs.Int("index", 0), size: 1}
	rows, ok := outermost(p.of.typ, p.dim)
	if n.op == OpSlice {
		p.start = n.attrs.Int("start", 0)
		p.size = n.attrs.Int("end", rows) - p.start
	}
	if !ok || n.attrs.Int("step", 1) != 1 || p.size < 1 {
		return part{}, false
	}
	for range maxForward {
		n := p.of.def
		if n.op != OpCat && n.op != OpSliceScatter || int(n.attrs.Int("dim", 0)) != p.dim || !p.step(n) {
			break
		}
	}
	return p, p.of != n.args[0] && !fw.writes.Written(p.of) && !fw.writes.Written(n.results[0])
}

// inParts reports whether nobody reads a tensor but in parts that can be followed.
func (fw *forwarder) inParts(v *Value) bool {
	whole, ok := fw.whole[v]
	if !ok {
		whole = slices.ContainsFunc(v.uses, func(u Use) bool {
			_, ok := fw.read(u.Node)
			return !ok
		})
		fw.whole[v] = whole
	}
	return !whole
}

// step goes to the operand of n in which all lies that is read.
func (p *part) step(n *Node) bool {
	if n.op == OpSliceScatter {
		size, ok := outermost(n.args[1].typ, p.dim)
		at := n.attrs.Int("start", 0)
		switch {
		case !ok || n.attrs.Int("step", 1) != 1 || !n.args[0].typ.Shape().Equal(n.results[0].typ.Shape()):
			return false
		case p.start >= at && p.start+p.size <= at+size:
			p.of, p.start = n.args[1], p.start-at
			return true
		case p.start >= at+size || p.start+p.size <= at:
			p.of = n.args[0]
			return true
		}
		return false
	}
	at := int64(0)
	for _, a := range n.args {
		size, ok := outermost(a.typ, p.dim)
		if !ok {
			return false
		}
		if p.start >= at && p.start+p.size <= at+size {
			p.of, p.start = a, p.start-at
			return true
		}
		at += size
	}
	return false
}

// value is the part as a value of the read's type; nil where that is not worth a copy.
func (fw *forwarder) value(p part) *Value {
	want, v := p.n.results[0].typ, p.of
	copied := want.Contiguous() && fw.inParts(p.n.args[0])
	rows, _ := outermost(v.typ, p.dim)
	if p.n.op == OpSelect && rows == 1 && v.typ.Contiguous() && want.Contiguous() {
		return p.insert(OpView, Attrs{}, v, want)
	}
	if p.n.op == OpSelect || rows != p.size {
		attrs := p.n.attrs.With("start", attr.Int(p.start)).With("end", attr.Int(p.start+p.size))
		if p.n.op == OpSelect {
			attrs = p.n.attrs.With("index", attr.Int(p.start))
		}
		t, err := Infer(p.n.op, nil, attrs, []Type{v.typ}, want)
		if err != nil || !t[0].Equal(want) && !copied {
			return nil
		}
		v = p.insert(p.n.op, attrs, v, t[0])
	}
	switch {
	case v.typ.Equal(want):
		return v
	case copied:
		return p.insert(OpClone, nil, v, want)
	}
	return nil
}

func (p *part) insert(o Op, attrs Attrs, v *Value, t Type) *Value {
	return p.n.fn.InsertBefore(p.n, NodeSpec{Op: o, Name: p.n.name, Args: []*Value{v}, Results: []Type{t}, Attrs: attrs, Pos: p.n.pos, From: []*Node{p.n}}).results[0]
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
