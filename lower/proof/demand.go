package proof

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	"github.com/seed-ee968945/concert/ir"
	"github.com/seed-ee968945/concert/program"
)

// A kernel does not load an operand of which no element reaches a result: the rows of a
// cat that a slice leaves out, what a slice_scatter replaces. Its body has zeros there. So
// two terms are equal if they agree on the elements that are asked for, and operations
// that pick elements ask for fewer. What is asked for is a box, or more than has to be.

// box is a range of every dimension, up to the bound of sizes that symbols decide.
type box [][2]int64

func (b box) none() bool {
	return slices.ContainsFunc(b, func(r [2]int64) bool { return r[0] >= r[1] })
}

// whole is all elements of a tensor.
func (b *termStore) whole(t ir.Type) box {
	out := make(box, len(t.Shape()))
	for i, n := range t.Shape() {
		out[i] = [2]int64{0, b.m.Bound(n)}
	}
	return out
}

// cut is the part of b within lo..hi-1 of a dimension, counted from lo.
func (b box) cut(d int, lo, hi int64) box {
	out := slices.Clone(b)
	out[d] = [2]int64{max(b[d][0], lo) - lo, min(b[d][1], hi) - lo}
	return out
}

// resolved is the function's term for what a kernel has computed, x itself if none of its
// region's is.
func (c *comparison) resolved(in *program.Instr, x termID) termID {
	fr, n := c.lookUp(in.Node)
	if in.Op != program.OpFused || n == nil {
		return x
	}
	d := demands{b: c.b, said: map[demand]bool{}}
	for _, w := range fr.region(n) {
		if d.agree(x, w, c.b.whole(c.b.terms[w].typ)) {
			return w
		}
	}
	return x
}

// region lists the results of the nodes that a launch computes with n, the last of them.
func (fr *frame) region(n *ir.Node) (out []termID) {
	id := func(m *ir.Node) int64 { return m.Meta().Int("fusion", -1) }
	for m := n; m != nil && (m == n || id(n) >= 0 && id(m) == id(n)); m = m.Prev() {
		out = append(out, fr.made[m.ID()]...)
	}
	return out
}

// demands are those of one launch, each answered once.
type demands struct {
	b    *termStore
	said map[demand]bool
}

type demand struct {
	x, y termID
	ask  string
}

// agree reports whether x and y are the same in the elements asked for.
func (d *demands) agree(x, y termID, ask box) bool {
	if x == y || ask.none() {
		return true
	}
	key := demand{x, y, fmt.Sprint(ask)}
	if _, ok := d.said[key]; !ok {
		d.said[key] = d.alike(x, y, ask)
	}
	return d.said[key]
}

// alike is agree for operations on other terms.
func (d *demands) alike(x, y termID, ask box) bool {
	b := d.b
	s, t := &b.terms[x], &b.terms[y]
	if s.kind != t.kind || s.op != t.op || s.group != t.group || s.index != t.index || s.self != t.self || s.at != t.at ||
		!s.typ.Equal(t.typ) || len(s.args) != len(t.args) || !s.attrs.Equal(t.attrs) || s.kind != window && s.kind != applied {
		return false
	}
	if s.kind == window && !s.in.Equal(*t.in) {
		return false
	}
	for k := range s.args {
		for _, part := range b.parts(s, k, ask) {
			if !d.agree(s.args[k], t.args[k], part) {
				return false
			}
		}
	}
	return true
}

// parts are what t asks for of its operand k, if of t itself a box is asked for: a box, or what a
// slice_scatter leaves of one.
func (b *termStore) parts(t *term, k int, ask box) []box {
	if t.op == ir.OpSliceScatter && k == 0 && len(ask) == len(t.typ.Shape()) {
		return b.kept(t, ask)
	}
	return []box{b.asked(t, k, ask)}
}

// asked is parts of what asks for a box.
func (b *termStore) asked(t *term, k int, ask box) box {
	from := b.terms[t.args[k]].typ
	all := b.whole(from)
	switch {
	case len(ask) != len(t.typ.Shape()):
		return all
	case t.kind == window:
		return b.behind(t, ask)
	case t.op.Info().Elementwise || t.op == ir.OpClone:
		return b.spread(all, from, ask)
	case t.op == ir.OpCat:
		d := int(t.attrs.Int("dim", 0))
		lo := int64(0)
		for _, a := range t.args[:k] {
			n, ok := b.terms[a].typ.Shape()[d].Const()
			if !ok {
				return all
			}
			lo += n
		}
		return ask.cut(d, lo, lo+all[d][1])
	case t.op == ir.OpSliceScatter && k == 1:
		if lo, hi, ok := b.replaced(t, ask); ok {
			d := int(t.attrs.Int("dim", 0))
			all = slices.Clone(ask)
			all[d] = [2]int64{lo, hi}
		}
		return all
	case t.op == ir.OpIndex || t.op == ir.OpEmbedding:
		return b.indexed(t, k, ask)
	case k == 0 && (t.op == ir.OpScatter || t.op == ir.OpIndexPut || t.op == ir.OpIndexAdd), k == 1 && t.op == ir.OpGather:
		return ask
	case t.op == ir.OpIndexPut && k == 1:
		return b.values(t, ask)
	case t.op == ir.OpIndexAdd && k == 2 || t.op == ir.OpScatter || t.op == ir.OpGather || t.op == ir.OpCumsum || t.op == ir.OpSoftmax || t.op == ir.OpLogSoftmax:
		return all.but(t.dim(len(all)), ask)
	}
	return all
}

// but is b cut to what is asked for in all dimensions but one.
func (b box) but(dim int, ask box) box {
	for i := range b {
		if i != dim {
			b[i][1] = min(b[i][1], ask[i][1])
			b[i][0] = min(ask[i][0], b[i][1])
		}
	}
	return b
}

// dim is the dimension of rank that an operation works along.
func (t *term) dim(rank int) int { return int(t.attrs.Int("dim", 0)+int64(rank)) % rank }

// picked tells what index and index_put move: which dimensions of the tensor the indices
// take the place of, and where those of the indices together, rank of them, stand instead.
// It is not ok if there are not as many indices.
func (b *termStore) picked(t *term, indices []termID) (dims []int64, front, rank int, ok bool) {
	dims = []int64{0} // as embedding has it
	if t.op != ir.OpEmbedding {
		dims = t.attrs.Ints("dims")
	}
	for _, a := range indices {
		rank = max(rank, b.terms[a].typ.Rank())
	}
	if n := len(dims); n > 0 && dims[n-1]-dims[0] == int64(n-1) {
		front = int(dims[0])
	}
	return dims, front, rank, len(dims) == len(indices)
}

// indexed is what index and embedding ask for: of the indices those whose elements are in
// the box, of operand 0 all in the dimensions that they take the place of.
func (b *termStore) indexed(t *term, k int, ask box) box {
	all := b.whole(b.terms[t.args[k]].typ)
	dims, front, rank, ok := b.picked(t, t.args[1:])
	if !ok || front < 0 || front+rank > len(ask) {
		return all
	}
	if k > 0 {
		return b.spread(all, b.terms[t.args[k]].typ, ask[front:front+rank])
	}
	rest := slices.Concat(ask[:front], ask[front+rank:])
	for d := range all {
		if !slices.Contains(dims, int64(d)) && len(rest) > 0 {
			all[d], rest = rest[0], rest[1:]
		}
	}
	return all
}

// values is what index_put asks for of what it writes: all in the dimensions of the indices.
func (b *termStore) values(t *term, ask box) box {
	from := b.terms[t.args[1]].typ
	dims, front, rank, ok := b.picked(t, t.args[2:])
	var to box
	for d, r := range ask {
		if !slices.Contains(dims, int64(d)) {
			to = append(to, r)
		}
	}
	if !ok || front < 0 || front > len(to) {
		return b.whole(from)
	}
	return b.spread(b.whole(from), from, slices.Insert(to, front, slices.Repeat(box{{0, math.MaxInt64}}, rank)...))
}

// spread is what is asked for of an operand, of which all has everything, that is broadcast
// to what ask is of.
func (b *termStore) spread(all box, from ir.Type, ask box) box {
	skip := len(ask) - len(all)
	for i := range all {
		if n, ok := from.Shape()[i].Const(); skip+i >= 0 && (!ok || n != 1) {
			all[i][0], all[i][1] = min(ask[skip+i][0], all[i][1]), min(ask[skip+i][1], all[i][1])
		}
	}
	return all
}

// replaced are the rows of operand 1 of a slice_scatter that are in the box; false if that is not
// told.
func (b *termStore) replaced(t *term, ask box) (lo, hi int64, ok bool) {
	d := int(t.attrs.Int("dim", 0))
	n, ok := b.terms[t.args[1]].typ.Shape()[d].Const()
	start, step := t.attrs.Int("start", 0), t.attrs.Int("step", 1)
	if r, known := b.m.Bounds(t.typ.Shape()[d]); !ok || !known || step < 1 || start+(n-1)*step >= r.Min {
		return 0, 0, false
	}
	nth := func(at int64) int64 { return min(max((at-start+step-1)/step, 0), n) } // the first at or behind an element
	lo, hi = nth(ask[d][0]), nth(ask[d][1])
	return lo, max(lo, hi), true
}

// kept is what a slice_scatter asks for of operand 0: what of the box is before what is
// replaced, and behind it.
func (b *termStore) kept(t *term, ask box) []box {
	d, step := int(t.attrs.Int("dim", 0)), t.attrs.Int("step", 1)
	if t.typ.Shape()[d].Equal(b.terms[t.args[1]].typ.Shape()[d]) {
		return nil
	}
	lo, hi, ok := b.replaced(t, ask)
	switch n := ask[d][1] - ask[d][0]; {
	case !ok || lo == hi || step > 1 && hi-lo > 1 && hi-lo < n:
		return []box{ask}
	case hi-lo == n:
		return nil
	}
	front, behind := slices.Clone(ask), slices.Clone(ask)
	front[d][1] = t.attrs.Int("start", 0) + lo*step
	behind[d][0] = front[d][1] + hi - lo
	return []box{front, behind}
}

// behind is what a window asks for of the tensor that it is a window on: exact where its
// dimensions move single dimensions of that, else the rows from the first element
// to the last.
func (b *termStore) behind(t *term, ask box) box {
	sizes, ok := t.in.Shape().Static()
	strides, weights := t.typ.Strides(), t.in.Strides()
	if !ok || strides == nil || weights == nil || !t.in.NonOverlapping() {
		return b.whole(*t.in)
	}
	out := make(box, len(sizes))
	var axes []int // the furthest apart first
	for j, n := range sizes {
		if out[j] = [2]int64{0, 1}; n != 1 {
			axes = append(axes, j)
		}
	}
	slices.SortFunc(axes, func(i, j int) int { return cmp.Compare(weights[j], weights[i]) })
	first := t.at / int64(t.in.DType().Size())
	low, high := first, first // elements
	for _, j := range axes {
		at := first / weights[j]
		out[j] = [2]int64{at, at + 1}
		first -= at * weights[j]
	}
	exact := first == 0
	for d, r := range ask {
		low, high = low+r[0]*strides[d], high+(r[1]-1)*strides[d]
		k := slices.IndexFunc(axes, func(j int) bool { return weights[j] <= strides[d] && strides[d]%weights[j] == 0 })
		if k < 0 {
			exact = exact && (strides[d] == 0 || r[1]-r[0] == 1 && r[0] == 0)
			continue
		}
		j := axes[k]
		c := strides[d] / weights[j]
		out[j] = [2]int64{out[j][0] + r[0]*c, out[j][1] + (r[1]-1)*c}
	}
	for _, j := range axes {
		exact = exact && out[j][1] <= sizes[j]
	}
	if exact {
		return out
	}
	out = b.whole(*t.in)
	if !t.in.Contiguous() {
		return out
	}
	for j, w := range weights {
		a, z := low/w, high/w
		out[j] = [2]int64{a, z + 1}
		if a != z {
			break
		}
		low, high = low-a*w, high-z*w
	}
	return out
}
