package cudagen

import (
	"slices"
	"strings"

	"github.com/seed-ee968945/concert/internal/fusion"
	"github.com/seed-ee968945/concert/internal/intmath"
	"github.com/seed-ee968945/concert/ir"
)

// form is the shape of a kernel: what its threads walk over.
type form struct {
	rows     bool  // the region reduces
	count    int64 // elements of the results, or rows
	big      bool  // 32-bit indices do not suffice
	width    int64 // consecutive elements that a thread handles at once, as one vector
	maxWidth int64 // upper bound of width
	block    int   // threads

	limits  *limits // of a kernel for bounds, which stops at the actual sizes; else nil
	dynamic bool    // count is an upper bound

	// Of a form without rows.
	trips int64   // runs of consecutive elements that a thread handles one after the other
	shape []int64 // what is reduced; without rows the finest shape that all results can be seen in
	order []int   // dimensions of shape, outermost first, as threads walk them; nil for row-major
	half  int64   // distance of the second element of a row that a thread has, of the other half; 0 if rows are not walked by halves

	// Of a form without rows that has an index_put whose positions a block lists in shared memory.
	list         *ir.Node
	listRows     int64       // rows of the result that a block has, or a part of one
	listRow      int64       // elements of a row
	listStride   int64       // if not 0, the stride between a block's rows: those with many indices may be neighbours
	listIndices  int64       // indices
	listCapacity int64       // how many of them a list holds; a block that has more reads all of them
	sorted       *sortedList // if lists are sorted by row, see sorted.go
	outer        []outerList // of an index_put by outer indexing, see outer.go

	// Of a form with rows.
	isReduced               []bool   // by dimension of shape
	length                  int64    // columns: elements of a row
	dynamicLength           bool     // length is an upper bound
	walked                  ir.Shape // shape, as the kernel has it, and what of it is kept and reduced
	keptSizes, reducedSizes ir.Shape
	lanes                   int   // threads of a block that share a row
	cluster                 int   // blocks that share a row, as a thread block cluster
	rowsPerBlock            int   // or with columns and a width, runs of rows
	columns                 bool  // neighbouring threads have neighbouring rows, and runs are of rows
	serial                  bool  // columns have to be walked in order, by one thread
	cached                  int64 // passes of a thread over a row's columns, if they are few and even; what it reads stays in registers
}

// newForm finds the one shape that all nodes and results of a region fit.
func newForm(r *region, lim *limits) (*form, error) {
	f := &form{maxWidth: 8, cluster: 1, limits: lim}
	for _, n := range r.nodes {
		gone, ok := fusion.ReducedDims(n)
		if !ok {
			continue
		}
		shape := sizes(n.Arg(0))
		switch {
		case !f.rows:
			f.rows, f.shape, f.isReduced, f.walked = true, shape, gone, n.Arg(0).Type().Shape()
		case !slices.Equal(f.shape, shape) || !slices.Equal(f.isReduced, gone):
			return nil, unsupported(n, "it reduces other dimensions than a reduction before it")
		}
		f.serial = f.serial || n.Op() == ir.OpCumsum
	}
	largest := int64(0)
	for _, n := range r.nodes {
		for _, v := range append(slices.Clone(n.Args()), n.Results()...) {
			span := intmath.Product(sizes(v))
			if elements(v).Equal(ir.D(0)) {
				if n.Op() == ir.OpCat && v != n.Result(0) {
					continue // passed over
				}
				return nil, unsupported(n, "%s is empty", v)
			}
			largest = max(largest, span, extentOf(v))
		}
	}
	f.big = largest > 1<<30
	count := elements(r.outs[0])
	f.count = intmath.Product(sizes(r.outs[0]))
	if f.rows {
		f.count, f.length = 1, 1
		for d, s := range f.walked {
			if f.isReduced[d] {
				f.reducedSizes, f.length = append(f.reducedSizes, s), f.length*f.shape[d]
			} else {
				f.keptSizes, f.count = append(f.keptSizes, s), f.count*f.shape[d]
			}
		}
		count = f.keptSizes.NumElems()
		_, known := f.reducedSizes.Static()
		f.dynamicLength = !known
	}
	_, known := count.Const()
	f.dynamic = lim != nil || !known
	for _, v := range r.outs {
		if n := elements(v); !n.Equal(count) && !f.full(v) {
			return nil, unsupported(v.Def(), "%s elements where other results have %s", n, count)
		}
	}
	f.plan(r)
	return f, nil
}

// full reports whether v has an element for each row and column. With one column
// every result counts as such, with rows of it.
func (f *form) full(v *ir.Value) bool {
	return f.rows && elements(v).Equal(f.walked.NumElems())
}

// The machine that kernels are cut for, an H200: blocks that fill it at least twice, and
// columns that make whole sectors of memory.
const (
	multiprocs    = 132
	manyBlocks    = 2 * multiprocs
	clusterBlocks = 8  // of a thread block cluster, on any device that has them
	sector        = 64 // bytes
	keepBytes     = 192
)

// numElems is the number of elements of a shape over the kernel's parameters.
func (g *generator) numElems(s ir.Shape) ir.Dim {
	if g.f.limits == nil {
		return g.r.named(s)
	}
	shape, _ := s.Static()
	return g.f.limits.of(shape)
}

// length spells the number of columns.
func (g *generator) length() string { return g.x.Count(g.r.extents(g.f.reducedSizes)).String() }

// of is how many elements there are of a shape whose size 0 is the bound of rows.
func (l *limits) of(shape []int64) ir.Dim { return l.rows.Mul(ir.D(intmath.Product(shape[1:]))) }

// cppProduct is a product of numbers and names in C++.
func cppProduct(n ir.Dim) string { return strings.ReplaceAll(n.String(), "*", " * ") }

// plan divides the work among threads.
func (f *form) plan(r *region) {
	narrow, wide, full := f.traffic(r)
	switch {
	case !f.rows:
		f.planElements(r, narrow, wide, full)
	case f.serial:
		f.lanes, f.rowsPerBlock, f.columns, f.width = 1, 128, true, 1
		f.block = 128
	case f.walksRows(r):
		f.planRows(r, narrow)
	default:
		f.planColumns(r, narrow)
	}
}

// planScalar plans again, for single elements.
func (f *form) planScalar(r *region) {
	f.maxWidth, f.cached = 1, 0
	f.plan(r)
}

// traffic is the size of the narrowest and widest elements that are in memory and
// are as many as what the kernel walks over, and how many such tensors there are.
func (f *form) traffic(r *region) (narrow, wide int64, full int) {
	all := f.count
	if f.rows {
		all *= f.length
	}
	seen := map[*ir.Value]bool{} // look-up only
	add := func(v *ir.Value) {
		if seen[v] || intmath.Product(sizes(v))*2 < all {
			return
		}
		seen[v] = true
		size := int64(v.Type().DType().Size())
		if full == 0 {
			narrow, wide = size, size
		}
		narrow, wide, full = min(narrow, size), max(wide, size), full+1
	}
	for _, n := range r.nodes {
		for _, v := range n.Args() {
			if r.Given(v) {
				add(v)
			}
		}
	}
	for _, v := range r.outs {
		add(v)
	}
	if full == 0 {
		return 4, 4, 0
	}
	return narrow, wide, full
}

// commonPowerOfTwo is the largest power of two up to most that divides all of the sizes.
func commonPowerOfTwo(most int64, sizes ...int64) int64 {
	w := most
	for _, n := range sizes {
		for w > 1 && n%w != 0 {
			w /= 2
		}
	}
	return w
}

func (f *form) planElements(r *region, narrow, wide int64, full int) {
	var inner []int64
	for _, v := range r.outs {
		if v.Type().Rank() > 0 {
			inner = append(inner, innermostSize(v.Type().Shape())) // a run must not cross rows
		}
	}
	if f.limits != nil && !f.limits.vector {
		inner = append(inner, intmath.Product(sizes(r.outs[0])[1:])) // nor the last one
	}
	f.width = commonPowerOfTwo(min(max(16/wide, 2), 16/narrow, f.maxWidth), append(inner, f.count)...)
	f.planTrips(narrow, full)
	if f.shape = nil; len(r.sizes) == 0 {
		f.shape = refine(r.outs)
	}
	f.planHalves(r)
	f.planList(r)
	f.planOuter(r)
}

// planTrips is how many runs a thread handles, and of which width, for the kernel to fill the device.
func (f *form) planTrips(narrow int64, full int) {
	f.block, f.trips = 256, 1
	switch {
	case full <= 1:
		f.trips = 4
	case full <= 3 || narrow*f.width < 16 && full <= 4:
		f.trips = 2
	}
	blocks := func() int64 { return f.count / (int64(f.block) * f.width * f.trips) }
	for f.trips > 1 && blocks() < 2*manyBlocks {
		f.trips /= 2
	}
	for f.width*narrow > 4 && f.width > 1 && blocks() < manyBlocks/2 {
		f.width /= 2
	}
	if blocks() < manyBlocks/2 {
		f.block = 128
	}
}

// planHalves gives a thread the same element of forward and backward of a row where the
// halves are put together by cat: as in a rotation of pairs, each half is computed
// from both, which are then read once, and no thread has to ask which half it has.
func (f *form) planHalves(r *region) {
	f.half = 0
	if len(f.shape) == 0 || f.limits != nil {
		return
	}
	row := f.shape[len(f.shape)-1]
	for _, v := range r.outs {
		if innermostSize(v.Type().Shape()) != row {
			return
		}
	}
	if row%2 != 0 || row/2%f.width != 0 || !slices.ContainsFunc(r.nodes, func(n *ir.Node) bool { return joinsHalves(n, row) }) {
		return
	}
	f.half, f.trips = row/2, 1
}

// joinsHalves reports whether n puts rows of this size together from two halves.
func joinsHalves(n *ir.Node, row int64) bool {
	rank := n.Result(0).Type().Rank()
	if n.Op() != ir.OpCat || len(n.Args()) != 2 || dimOf(n) != rank-1 {
		return false
	}
	for _, a := range n.Args() {
		if a.Type().Rank() != rank || innermostSize(a.Type().Shape()) != row/2 || sizes(a)[rank-1] != row/2 {
			return false
		}
	}
	return true
}

// refine is the coarsest shape of which the shapes of all values are products of
// neighbouring dimensions, nil if there is none. The values have equally many elements.
func refine(vs []*ir.Value) []int64 {
	var cuts []int64 // elements after a cut, ascending
	for _, v := range vs {
		n := int64(1)
		s := sizes(v)
		for d := len(s) - 1; d >= 0; d-- {
			if n *= s[d]; !slices.Contains(cuts, n) {
				cuts = append(cuts, n)
			}
		}
	}
	slices.Sort(cuts)
	var shape []int64
	before := int64(1)
	for _, c := range cuts {
		if c%before != 0 {
			return nil
		}
		if c != before {
			shape = append(shape, c/before)
		}
		before = c
	}
	slices.Reverse(shape)
	return shape
}

// innermostSize is the innermost size that is not 1; a dynamic one counts as 1.
func innermostSize(s ir.Shape) int64 {
	for i := len(s) - 1; i >= 0; i-- {
		n, ok := s[i].Const()
		if !ok || n != 1 {
			return max(n, 1)
		}
	}
	return 1
}
