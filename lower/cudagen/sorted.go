package cudagen

import (
	"fmt"
	"math/bits"
	"slices"
	"strings"

	"github.com/seed-ee968945/concert/internal/fusion"
	"github.com/seed-ee968945/concert/internal/intmath"
	"github.com/seed-ee968945/concert/ir"
	"github.com/seed-ee968945/concert/lower/cudagen/internal/index"
)

// A block that has many rows, or parts of rows, sorts the positions of an update by row, so
// that each element finds its own without a look at the others'. What has few elements, and
// many updates of each, gets many threads for an element: each sums a share of its updates,
// and so do the blocks of a cluster where positions are very many. Else blocks are as many as
// run at a time, since each has to read all positions, and have many rows one after the other.

// sortedList is how a block lists positions sorted by row.
type sortedList struct {
	bits   int   // of an entry that are the offset in the index, below the row
	rows   int64 // that a block has at most
	stride int64 // a block has one of every stride runs of its threads; 1: neighbours

	// If threads share elements.
	units int64 // runs of a thread's consecutive elements, in all
	cols  int64 // units that a block has, neighbours
	lanes int64 // threads of a unit
	parts int64 // blocks of a cluster, which share the positions
	chunk int64 // positions that are listed at a time
}

// The most elements that threads share, in units, and the positions from which on blocks do.
const (
	mostShared    = 8192
	manyPositions = 16384
	sharedBytes   = 48 << 10 // of a block, without further ado
)

// shares reports whether several threads share elements.
func (f *form) shares() bool { return f.sorted != nil && f.sorted.lanes > 0 }

// digits is how many bits numbers below n have.
func digits(n int64) int { return bits.Len64(uint64(n - 1)) }

// blocks is how many there are where threads share elements.
func (s *sortedList) blocks() int64 { return (s.units + s.cols - 1) / s.cols * s.parts }

// unit spells which unit a thread has.
func (s *sortedList) unit() string {
	if s.units%s.cols == 0 {
		return "unit"
	}
	return fmt.Sprintf("(unit < %d ? unit : %d)", s.units, s.units-1) // all threads of a block help it
}

// planSorted lets blocks sort the positions of the region's one update of rows by row, if there
// is one, and it has so narrow or so few rows that it is worth it.
func (f *form) planSorted(r *region) bool {
	var n *ir.Node
	for _, m := range r.nodes {
		if _, ok := fusion.UpdatesRows(m); ok {
			if n != nil {
				return false
			}
			n = m
		}
	}
	if n == nil || len(r.sizes) > 0 || f.limits != nil || f.half > 0 {
		return false
	}
	positions, _ := fusion.UpdatesRows(n)
	shape := sizes(n.Arg(0))
	places, row := intmath.Product(sizes(positions)), intmath.Product(shape)/max(shape[0], 1)
	if intmath.Product(shape) != f.count || !r.Given(positions) || places < 64 || places > 1<<30 || f.big || row > 1<<24 {
		return false
	}
	f.list, f.listRow, f.listIndices, f.listStride = n, row, places, 0
	if f.planShares(r, n) || f.planSpread() {
		return true
	}
	f.list, f.sorted = nil, nil
	return false
}

// planShares gives each element of a small tensor many threads.
func (f *form) planShares(r *region, n *ir.Node) bool {
	if len(r.outs) != 1 || n.Op() == ir.OpIndexPut && !n.Attrs().Bool("accumulate", false) || !onlyElementwise(r, n) {
		return false
	}
	values := n.Arg(1)
	if n.Op() == ir.OpIndexAdd {
		values = n.Arg(2)
	}
	size := int64(values.Type().DType().Size())
	width := commonPowerOfTwo(min(16/size, 16/int64(r.outs[0].Type().DType().Size()), f.maxWidth), f.listRow, f.count)
	for _, d := range []ir.Shape{r.outs[0].Type().Shape(), n.Arg(0).Type().Shape()} {
		width = commonPowerOfTwo(width, innermostSize(d)) // a run must not cross rows
	}
	s := &sortedList{units: f.count / width, parts: 1, stride: 1, chunk: 4096}
	if s.units > mostShared {
		return false
	}
	f.block = 512
	if f.listIndices >= manyPositions && s.units <= multiprocs*4 {
		f.block, s.parts, s.chunk = 1024, clusterBlocks, 8192
	}
	// Blocks for all multiprocessors, and whole sectors of the values.
	together := min(sector/(width*size), f.listRow/width)
	for s.cols = 1; s.cols < 32 && (s.cols*2 <= together || s.units > s.cols*multiprocs/s.parts); {
		s.cols *= 2
	}
	held := int64(8) // bytes of a sum
	if domainOf(n.Result(0).Type().DType(), values.Type().DType()) == domF32 {
		held = 4
	}
	shares := int64(f.block/32)*(s.cols*width+1)*held + s.cols*width*held // in shared memory, see fold_columns and fold_cluster
	for s.chunk*4+int64(f.block)*5+shares > sharedBytes {
		s.chunk /= 2
	}
	s.lanes, s.chunk = int64(f.block)/s.cols, min(s.chunk, (f.listIndices+s.parts-1)/s.parts)
	span := s.cols * width
	switch {
	case span%f.listRow == 0:
		s.rows = span / f.listRow
	case f.listRow%span == 0:
		s.rows = 1
	default:
		s.rows = (span-1)/f.listRow + 2
	}
	s.bits = digits(s.chunk)
	f.sorted, f.width, f.trips, f.lanes = s, width, 1, int(s.lanes)
	f.listRows, f.listCapacity = s.rows, s.chunk
	return true
}

// onlyElementwise reports whether all that follows from n in a region is elementwise, so that
// each element is asked for once.
func onlyElementwise(r *region, n *ir.Node) bool {
	follows := map[*ir.Node]bool{n: true} // look-up only
	for _, m := range r.nodes {
		if m == n || !slices.ContainsFunc(m.Args(), func(a *ir.Value) bool { return follows[a.Def()] }) {
			continue
		}
		follows[m] = true
		if !m.Op().Info().Elementwise || !slices.Equal(sizes(m.Result(0)), sizes(n.Result(0))) {
			return false
		}
	}
	return true
}

// planSpread gives narrow rows to no more blocks than run at a time.
func (f *form) planSpread() bool {
	const block, threads = 512, 1024 // of a block, and of a multiprocessor
	width := commonPowerOfTwo(f.width, f.listRow)
	run := block * width
	if f.listRow >= run/2 && f.listRow%(run/2) == 0 || f.listIndices >= 1<<18 {
		return false // whole rows, or even parts: planList
	}
	runs := (f.count + run - 1) / run
	trips := (runs + multiprocs*threads/block - 1) / (multiprocs * threads / block)
	s := &sortedList{bits: digits(f.listIndices), stride: 1}
	switch {
	case run%f.listRow == 0 && trips > 1:
		s.stride, s.rows = (runs+trips-1)/trips, trips*run/f.listRow // neighbours may all have many updates
	case run%f.listRow == 0:
		s.rows = run / f.listRow
	default:
		s.rows = (run*trips-1)/f.listRow + 2
	}
	if s.bits+digits(s.rows) > 30 {
		return false
	}
	f.sorted, f.block, f.width, f.trips = s, block, width, trips
	f.listRows, f.listCapacity = s.rows, fusion.MostPlaces
	if digits(s.rows) > 5 {
		f.listCapacity /= 2 // a second list, for what is sorted by more than one digit
	}
	f.listCapacity = min(f.listCapacity, f.listIndices)
	return true
}

// sortRows is a call that sorts n positions from one on.
func (g *generator) sortRows(from, n string) string {
	f, s := g.f, g.f.sorted
	positions, _ := fusion.UpdatesRows(f.list)
	group, spare := int64(1), "list"
	if s.stride > 1 {
		group = int64(f.block) * f.width / f.listRow
	}
	if digits(s.rows) > 5 {
		spare = "spare"
	}
	return fmt.Sprintf("sort_rows<%d, %d, %d, %d, %d>(list, %s, in%d%s, %s, %d, %v, low, %d, %d);  // %s", f.block, s.bits, digits(s.rows), group, s.stride,
		spare, g.inIndex[positions], from, n, sizes(f.list.Arg(0))[0], f.list.Op() != ir.OpIndexAdd, s.rows, f.listCapacity, positions)
}

// sortedLists writes what a block does first.
func (g *generator) sortedLists() {
	f, s := g.f, g.f.sorted
	g.top.Emit("__shared__ int list[%d];", f.listCapacity)
	if digits(s.rows) > 5 {
		g.top.Emit("__shared__ int spare[%d];", f.listCapacity)
	}
	span := int64(f.block) * f.width
	if !f.shares() {
		if s.stride == 1 {
			span *= f.trips
		}
		g.top.Emit("const i64 low = (i64)blockIdx.x * %d / %d;", span, f.listRow)
		g.top.Emit("const int listed = %s", g.sortRows("", fmt.Sprint(f.listIndices)))
		return
	}
	block := "(int)blockIdx.x"
	if s.parts > 1 {
		g.top.Emit("constexpr int parts = PARTS(%d);", s.parts)
		g.top.Emit("const int part = blockIdx.x %% %d;", s.parts)
		g.top.Emit("if (part >= parts) return;")
		block = fmt.Sprintf("(int)(blockIdx.x / %d)", s.parts)
	}
	g.top.Emit("constexpr int lanes = LANES(%d), shares = SHARES(%d);", s.lanes, s.lanes)
	g.top.Emit("const int unit = %s * %d + threadIdx.x %% %d, lane = threadIdx.x / %d;", block, s.cols, s.cols, s.cols)
	g.top.Emit("const i64 low = %s * %d / %d;", block, s.cols*f.width, f.listRow)
}

// fromSorted looks at the positions of the row at hand.
func (g *generator) fromSorted(p *puts, put func(s *index.Scope, k index.Expr) error) error {
	f, s := g.f, g.f.sorted
	if !f.shares() {
		if err := g.walkSorted(p, "", "", 1, put); err != nil || !f.overflows() {
			return err
		}
		return g.fromIndex(p, "if (listed < 0) ", put)
	}
	sums, _, _ := strings.Cut(p.sum, "[")
	first, all, others := "0", fmt.Sprint(f.listIndices), "lane > 0"
	step := fmt.Sprint(s.chunk)
	if s.parts > 1 {
		first, step, others = fmt.Sprintf("part * %d", s.chunk), fmt.Sprintf("parts * %d", s.chunk), "lane > 0 || part > 0"
	}
	count := fmt.Sprintf("%s - first < %d ? %s - first : %d", all, s.chunk, all, s.chunk)
	if f.listIndices%s.chunk == 0 {
		count = fmt.Sprint(s.chunk)
	}
	g.before().Emit("if (%s) for (%s& s : %s) s = 0; // one share has what is there", others, p.dom, sums)
	err := g.nested(p.at, fmt.Sprintf("for (int first = %s; first < %s; first += %s)", first, all, step), func(in *index.Scope) error {
		in.Emit("const int listed = %s", g.sortRows(" + first", count))
		return g.walkSorted(p, "lane", "first + ", s.lanes, put)
	})
	if err != nil {
		return err
	}
	g.before().Emit("fold_columns<lanes, %d>(%s, Sum());", s.cols, sums)
	mine := "lane > 0"
	if s.parts > 1 {
		g.before().Emit("fold_cluster<parts, %d>(%s, Sum());", s.cols, sums)
		mine += " || part > 0"
	}
	if s.units%s.cols != 0 {
		mine += fmt.Sprintf(" || unit >= %d", s.units)
	}
	g.before().Emit("if (%s) return;", mine)
	return nil
}

// walkSorted looks at those listed positions of the row at hand that are a lane's, several at a
// time so that their values are on their way together.
func (g *generator) walkSorted(p *puts, lane, first string, lanes int64, put func(s *index.Scope, k index.Expr) error) error {
	f, s := g.f, g.f.sorted
	e, ofRow, begin, step, batch := g.fresh("e"), "", "0", "", 4
	if s.rows > 1 {
		row := g.fresh("r")
		if s.stride > 1 {
			g.before().Emit("const int %s = k * %d + (int)threadIdx.x * %d / %d;", row, int64(f.block)*f.width/f.listRow, f.width, f.listRow)
		} else {
			g.before().Emit("const int %s = (int)(%s - low);", row, p.at[0])
		}
		begin, ofRow = fmt.Sprintf("first_listed<%d>(list, listed, %s)", s.bits, row), fmt.Sprintf(" && list[%%s] >> %d == %s", s.bits, row)
	}
	if lane != "" {
		begin, step = fmt.Sprintf("lane < shares ? %s + lane : listed", begin), " * shares"
	}
	there := func(at string) string { return at + " < listed" + strings.ReplaceAll(ofRow, "%s", at) }
	if g.width*int64(p.values.Type().DType().Size()) > 16 {
		batch /= 2 // of a register file's worth
	}
	return g.nested(p.at, fmt.Sprintf("for (int %s = %s; %s; %s += %d%s)", e, begin, there(e), e, batch, step), func(in *index.Scope) error {
		for u := range batch {
			at := e
			if u > 0 {
				at = fmt.Sprintf("%s + %d%s", e, u, step)
			}
			if err := g.listedPlace(in, p, there(at), fmt.Sprintf("%s(list[%s] & %d)", first, at, int64(1)<<s.bits-1), put); err != nil {
				return err
			}
		}
		return nil
	})
}

// listedPlace lets the value of a place join an element, on a condition.
func (g *generator) listedPlace(s *index.Scope, p *puts, cond, place string, put func(s *index.Scope, k index.Expr) error) error {
	defer func(n int, test string) { g.guards, p.test = g.guards[:n], test }(len(g.guards), p.test)
	name, here := g.fresh("k"), g.fresh("h")
	s.Emit("const bool %s = %s;", here, cond)
	s.Emit("const %s %s = %s ? %s : 0;", g.intType(), name, here, place)
	k := g.x.NewAtom(name, p.count()-1, 1, s)
	g.guards = append(g.guards[:len(g.guards):len(g.guards)], guard{s, here, k})
	p.test = "if (" + here + ") "
	return put(s, k.Expr())
}
