package cudagen

import (
	"fmt"
	"slices"

	"github.com/seed-ee968945/concert/internal/intmath"
	"github.com/seed-ee968945/concert/ir"
	"github.com/seed-ee968945/concert/lower/cudagen/internal/index"
)

// Outer indexing: indices of rows and of columns, each with a dimension of its own, name all pairs, as in
// the gradient of an upsampling. A block sorts each index by position, so that an element finds its rows and its
// columns without a look at the pairs.

// outerList is one index as a block sorts it.
type outerList struct {
	index *ir.Value
	d     int   // its dimension among those that the indices broadcast to
	count int64 // of its positions
	size  int64 // of the dimension that they are positions in
	bits  int   // of an entry that are the offset in the index
}

// planOuter finds the indices of a region that is an index_put by several, if that is outer indexing.
func (f *form) planOuter(r *region) {
	f.outer = nil
	n := r.nodes[0]
	if len(r.nodes) > 1 || n.Op() != ir.OpIndexPut || len(n.Args()) < 4 || len(r.sizes) > 0 || f.limits != nil || f.half > 0 {
		return
	}
	var lists []outerList
	dims, words := n.Attrs().Ints("dims"), int64(0)
	p := &puts{index: n.Args()[2:]}
	p.broadcastIndices(r)
	for i, v := range p.index {
		l := outerList{index: v, d: -1, count: intmath.Product(sizes(v)), size: sizes(n.Arg(0))[dims[i]]}
		for d, s := range sizes(v) {
			if s == l.count {
				l.d = len(p.indexShape) - len(sizes(v)) + d
			}
		}
		l.bits = digits(l.count)
		if l.d < 0 || l.count < 2 || !v.Type().Contiguous() || l.bits+digits(l.size) > 30 || slices.ContainsFunc(lists, func(o outerList) bool { return o.d == l.d || o.index == v }) {
			return
		}
		words += l.count
		lists = append(lists, l)
	}
	if words*8 > 40<<10 || p.count() < 64 {
		return
	}
	slices.SortFunc(lists, func(a, b outerList) int { return a.d - b.d }) // in the order of places
	f.outer, f.width = lists, 1
}

// outerLists writes what a block does first.
func (g *generator) outerLists() {
	if g.probe != nil {
		return
	}
	for i, l := range g.f.outer {
		k, spare := g.parameter(l.index), fmt.Sprintf("list%d", i)
		g.top.Emit("__shared__ int list%d[%d];", i, l.count)
		if digits(l.size) > 5 {
			spare = fmt.Sprintf("spare%d", i)
			g.top.Emit("__shared__ int %s[%d];", spare, l.count)
		}
		g.top.Emit("sort_rows<%d, %d, %d, 1, 1>(list%d, %s, in%d, %d, %d, true, 0, %d, %d);  // %s", g.f.block, l.bits, digits(l.size), i, spare, k, l.count, l.size, l.size, l.count, l.index)
	}
}

// fromOuter looks at the places of the element at hand, of which coords are known before list i.
func (g *generator) fromOuter(p *puts, coords []index.Expr, i int, put func(s *index.Scope, k index.Expr) error) error {
	if i == len(g.f.outer) {
		return put(g.before(), g.x.Ravel(coords, p.indexShape))
	}
	l, e, k := g.f.outer[i], g.fresh("e"), g.fresh("k")
	at := p.at[p.dims[slices.Index(p.index, l.index)]].String()
	head := fmt.Sprintf("for (int %s = first_listed<%d>(list%d, %d, %s); %s < %d && list%d[%s] >> %d == %s; ++%s)", e, l.bits, i, l.count, at, e, l.count, i, e, l.bits, at, e)
	return g.nested(p.at, head, func(s *index.Scope) error {
		s.Emit("const %s %s = list%d[%s] & %d;", g.intType(), k, i, e, int64(1)<<l.bits-1)
		coords[l.d] = g.x.NewAtom(k, l.count-1, 1, s).Expr()
		return g.fromOuter(p, coords, i+1, put)
	})
}
