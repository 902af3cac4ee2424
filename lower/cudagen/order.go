package cudagen

import (
	"cmp"
	"slices"

	"github.com/seed-ee968945/concert/ir"
	"github.com/seed-ee968945/concert/lower/cudagen/internal/index"
)

// access is an element of a tensor in memory that a kernel reads or writes.
type access struct {
	size, span int64 // bytes of an element, and of all elements
	off        index.Expr
}

// arrange finds the order in which threads walk the results. The innermost dimension is the one along
// which the most bytes are contiguous in memory. What several results
// read again, cosines of all heads or keys of a group of them, is to be read by
// neighbouring threads: of the other dimensions, those that the most bytes do not depend on go
// inside.
func (f *form) arrange(r *region) error {
	f.order = nil
	if f.rows || len(f.shape) < 3 || f.list != nil || f.limits != nil {
		return nil
	}
	probe := *f
	probe.width, probe.half = 1, 0
	g := newGenerator(r, &probe)
	accesses, err := g.accesses()
	if err != nil {
		return err
	}
	const small = 64 << 10 // bytes that stay in L1 anyhow
	shared, contiguous := make([]int64, len(f.shape)), make([]int64, len(f.shape))
	for _, a := range accesses {
		for d := range f.shape {
			switch {
			case f.shape[d] == 1:
			case a.off.Coefficient(g.walk[d]) == 1:
				contiguous[d] += a.span
			case a.span >= small && !a.off.DependsOn(g.walk[d]):
				shared[d] += a.size
			}
		}
	}
	inner := len(f.shape) - 1
	for d, bytes := range contiguous {
		if bytes > contiguous[inner] {
			inner = d
		}
	}
	order := make([]int, 0, len(f.shape))
	for d := range f.shape {
		if d != inner {
			order = append(order, d)
		}
	}
	slices.SortStableFunc(order, func(a, b int) int { return int(shared[a] - shared[b]) })
	if order = append(order, inner); slices.IsSorted(order) {
		return nil
	}
	f.order = order
	if inner != len(f.shape)-1 { // runs are of other elements than planElements thought
		narrow, wide, full := f.traffic(r)
		f.half = 0
		f.width = commonPowerOfTwo(min(max(16/wide, 2), 16/narrow, f.maxWidth), f.shape[inner])
		f.planTrips(narrow, full)
	}
	return nil
}

// accesses lists what the kernel reads and writes, as functions of one atom for each dimension.
func (g *generator) accesses() ([]access, error) {
	g.body = g.top
	g.probe = &[]access{}
	g.index = make([]index.Expr, len(g.f.shape))
	g.walk = make([]*index.Atom, len(g.f.shape))
	for d, n := range g.f.shape {
		g.walk[d] = g.x.NewAtom(string(rune('a'+d%26)), n-1, 1, g.top)
		g.index[d] = g.walk[d].Expr()
	}
	g.col = g.x.NewAtom("i", g.f.count-1, 1, g.top)
	if err := g.everyResult(); err != nil {
		return nil, err
	}
	return *g.probe, nil
}

// accessed notes what is read or written while accesses are collected.
func (g *generator) accessed(v *ir.Value, off index.Expr) {
	if g.probe == nil {
		return
	}
	size, span := int64(v.Type().DType().Size()), int64(1)
	shape := sizes(v)
	for d, st := range v.Type().SymbolicStrides() {
		if !st.Equal(ir.D(0)) {
			span *= shape[d]
		}
	}
	*g.probe = append(*g.probe, access{size, size * span, off})
}

// inMemoryOrder is the index of the element of v that comes after pos others in memory, where v's
// elements are dense there, else the one at row-major position pos.
func (g *generator) inMemoryOrder(v *ir.Value, pos index.Expr) []index.Expr {
	strides, shape := v.Type().Strides(), g.r.shape(v)
	if strides == nil { // of sizes known at run time only
		return g.x.Unravel(pos, shape)
	}
	order := make([]int, len(shape))
	for d := range order {
		order[d] = d
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(strides[b], strides[a]) })
	dense, walk := int64(1), make([]index.Extent, len(shape))
	for i := len(order) - 1; i >= 0; i-- {
		d := order[i]
		if shape[d].N > 1 && strides[d] != dense {
			return g.x.Unravel(pos, shape)
		}
		dense *= shape[d].N
		walk[i] = shape[d]
	}
	at := make([]index.Expr, len(shape))
	for i, e := range g.x.UnravelOuterFirst(pos, walk) {
		at[order[i]] = e
	}
	return at
}
