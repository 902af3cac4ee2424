// Package forwarding does store-to-load forwarding on tensors: a read of a slice becomes the value
// that was written there.
package forwarding

import (
	"slices"

	"github.com/seed-ee968945/concert/internal/attr"
	"github.com/seed-ee968945/concert/ir"
)

// maxForward bounds how many steps back a read is followed.
const maxForward = 4096

// Reads makes slices and selections of what cat and slice_scatter put together along an
// outermost dimension read what was put there. Loops that stack a tensor of every iteration and read
// them one by one, once they are unrolled, thus hand them over. Where the layout is another one that
// takes a copy, which is made where nobody reads the whole. may is asked before each change, with the
// read; nil allows all. It returns the reads that nobody uses any more. Storages that are written in
// place stay as they are.
func Reads(f *ir.Func, may func(*ir.Node) bool) []*ir.Node {
	fw := forwarder{writes: ir.FindWrites(f), whole: map[*ir.Value]bool{}}
	var left []*ir.Node
	for _, n := range slices.Clone(f.Order()) {
		r, ok := fw.read(n)
		if !ok || len(n.Result(0).Uses()) == 0 {
			continue
		}
		if ir.Returned(n.Result(0)) && (ir.FromCaller(r.of) || ir.Returned(ir.StorageOf(r.of))) {
			continue // the caller would hold one storage twice
		}
		if may != nil && !may(n) {
			continue
		}
		if v := fw.value(r); v != nil {
			f.ReplaceUses(n.Result(0), v)
			left = append(left, n)
		}
	}
	return left
}

// forwarder follows reads of parts.
type forwarder struct {
	writes *ir.Writes
	whole  map[*ir.Value]bool // who has readers of more than parts that can be followed; look-up only
}

// part is what a read takes of a tensor: some indices of a dimension.
type part struct {
	n           *ir.Node
	of          *ir.Value
	dim         int
	start, size int64
}

// outermost is the size of a dimension of a tensor before which all are 1; false of others.
func outermost(t ir.Type, dim int) (int64, bool) {
	s, ok := t.Shape().Static()
	if !ok || t.IsAsync() || dim < 0 || dim >= len(s) || slices.ContainsFunc(s[:dim], func(n int64) bool { return n != 1 }) {
		return 0, false
	}
	return s[dim], true
}

// read says what n reads, as a part of the tensor in which that was made; false where n does not
// read one run of rows, or reads them where they were made.
func (fw *forwarder) read(n *ir.Node) (part, bool) {
	if n.Op() != ir.OpSlice && n.Op() != ir.OpSelect {
		return part{}, false
	}
	p := part{n: n, of: n.Arg(0), dim: int(n.Attrs().Int("dim", 0)), start: n.Attrs().Int("index", 0), size: 1}
	rows, ok := outermost(p.of.Type(), p.dim)
	if n.Op() == ir.OpSlice {
		p.start = n.Attrs().Int("start", 0)
		p.size = n.Attrs().Int("end", rows) - p.start
	}
	if !ok || n.Attrs().Int("step", 1) != 1 || p.size < 1 {
		return part{}, false
	}
	for range maxForward {
		n := p.of.Def()
		if n.Op() != ir.OpCat && n.Op() != ir.OpSliceScatter || int(n.Attrs().Int("dim", 0)) != p.dim || !p.step(n) {
			break
		}
	}
	return p, p.of != n.Arg(0) && !fw.writes.Written(p.of) && !fw.writes.Written(n.Result(0))
}

// inParts reports whether nobody reads a tensor but in parts that can be followed.
func (fw *forwarder) inParts(v *ir.Value) bool {
	whole, ok := fw.whole[v]
	if !ok {
		whole = slices.ContainsFunc(v.Uses(), func(u ir.Use) bool {
			_, ok := fw.read(u.Node)
			return !ok
		})
		fw.whole[v] = whole
	}
	return !whole
}

// step goes to the operand of n in which all lies that is read.
func (p *part) step(n *ir.Node) bool {
	if n.Op() == ir.OpSliceScatter {
		size, ok := outermost(n.Arg(1).Type(), p.dim)
		at := n.Attrs().Int("start", 0)
		switch {
		case !ok || n.Attrs().Int("step", 1) != 1 || !n.Arg(0).Type().Shape().Equal(n.Result(0).Type().Shape()):
			return false
		case p.start >= at && p.start+p.size <= at+size:
			p.of, p.start = n.Arg(1), p.start-at
			return true
		case p.start >= at+size || p.start+p.size <= at:
			p.of = n.Arg(0)
			return true
		}
		return false
	}
	at := int64(0)
	for _, a := range n.Args() {
		size, ok := outermost(a.Type(), p.dim)
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
func (fw *forwarder) value(p part) *ir.Value {
	want, v := p.n.Result(0).Type(), p.of
	copied := want.Contiguous() && fw.inParts(p.n.Arg(0))
	rows, _ := outermost(v.Type(), p.dim)
	if p.n.Op() == ir.OpSelect && rows == 1 && v.Type().Contiguous() && want.Contiguous() {
		return p.insert(ir.OpView, ir.Attrs{}, v, want)
	}
	if p.n.Op() == ir.OpSelect || rows != p.size {
		attrs := p.n.Attrs().With("start", attr.Int(p.start)).With("end", attr.Int(p.start+p.size))
		if p.n.Op() == ir.OpSelect {
			attrs = p.n.Attrs().With("index", attr.Int(p.start))
		}
		t, err := ir.Infer(p.n.Op(), nil, attrs, []ir.Type{v.Type()}, want)
		if err != nil || !t[0].Equal(want) && !copied {
			return nil
		}
		v = p.insert(p.n.Op(), attrs, v, t[0])
	}
	switch {
	case v.Type().Equal(want):
		return v
	case copied:
		return p.insert(ir.OpClone, nil, v, want)
	}
	return nil
}

func (p *part) insert(o ir.Op, attrs ir.Attrs, v *ir.Value, t ir.Type) *ir.Value {
	return p.n.Func().InsertBefore(p.n, ir.NodeSpec{Op: o, Name: p.n.Name(), Args: []*ir.Value{v}, Results: []ir.Type{t}, Attrs: attrs, Pos: p.n.Pos(), From: []*ir.Node{p.n}}).Result(0)
}
