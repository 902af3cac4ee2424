package cudagen

import (
	"fmt"
	"math"

	"github.com/seed-ee968945/concert/internal/fusion"
	"github.com/seed-ee968945/concert/internal/intmath"
	"github.com/seed-ee968945/concert/ir"
	"github.com/seed-ee968945/concert/lower/cudagen/internal/index"
)

// planList lets blocks have whole rows of an index_put along the first dimension,
// or parts of one row, so that a block can list the indices of its rows once. The
// last block may have fewer, if nothing else divides the rows.
func (f *form) planList(r *region) {
	f.list, f.sorted, f.lanes = nil, nil, 0
	if f.planSorted(r) {
		return
	}
	for _, n := range r.nodes {
		positions, ok := fusion.UpdatesRows(n)
		if !ok || len(r.sizes) > 0 {
			continue
		}
		shape := sizes(n.Arg(0))
		places := intmath.Product(sizes(positions))
		row := intmath.Product(shape) / max(shape[0], 1)
		const most = math.MaxInt32 / 8192 // a list has a place times the rows of a block, which are 8192 at most
		if f.list != nil || intmath.Product(shape) != f.count || !r.Given(positions) || places > most || places < 64 || f.big && row > 1<<30 {
			continue
		}
		width := commonPowerOfTwo(f.width, row) // a thread's consecutive elements are of one row
		block, trips := int64(256), f.spanTrips(width, row, false)
		if trips == 0 {
			trips = f.spanTrips(width, row, true)
		}
		if trips == 0 {
			continue
		}
		span := block * width * trips
		if trips == 2 { // parts of a row, or a few rows: all of a block's loads at once
			block, trips = 512, 1
		}
		f.block, f.width, f.trips = int(block), width, trips
		f.list, f.listRows, f.listRow, f.listIndices, f.listCapacity = n, max(1, span/row), row, places, min(places, fusion.MostPlaces)
		f.listStride = 0
		if run := block * width; f.trips > 1 && row%run == 0 && trips > row/run && shape[0] <= math.MaxInt32 {
			f.listStride = (f.count + span - 1) / span
		}
	}
}

// spanTrips is how many runs each of a block's 256 threads handles for the block to have
// whole rows or an even part of one; 0 if there is none. With rest the last block may
// have fewer.
func (f *form) spanTrips(width, row int64, rest bool) int64 {
	for trips := int64(32); trips >= 1; trips /= 2 {
		span := 256 * width * trips
		if (span%row == 0 || row%span == 0) && (rest || f.count%span == 0) && (trips == 1 || f.count/span >= 7*manyBlocks) {
			return trips
		}
	}
	return 0
}

// rowOfTrip is which of its rows a block handles in trip k.
func (f *form) rowOfTrip() string {
	if m := f.listRow / (int64(f.block) * f.width); m > 1 {
		return fmt.Sprintf("(k / %d)", m)
	}
	return "k"
}

// lists writes what a block does first: the list of the indices of its rows.
func (g *generator) lists() error {
	n := g.f.list
	if n == nil || g.probe != nil {
		return nil
	}
	positions, _ := fusion.UpdatesRows(n)
	wrap := n.Op() != ir.OpIndexAdd
	k := g.parameter(positions)
	if g.f.sorted != nil {
		g.sortedLists()
		return nil
	}
	span := int64(g.f.block) * g.f.width * g.f.trips
	g.top.Emit("__shared__ int list[%d];", g.f.listCapacity)
	low, stride := fmt.Sprintf("(i64)blockIdx.x * %d", g.f.listRows), ""
	if g.f.listRow > span {
		low = fmt.Sprintf("(i64)blockIdx.x / %d", g.f.listRow/span)
	} else if g.f.listStride > 0 {
		low, stride = "blockIdx.x", fmt.Sprintf(", %d", g.f.listStride)
	}
	g.top.Emit("const i64 low = %s;", low)
	capacity := ""
	if g.f.overflows() {
		capacity = fmt.Sprintf(", %d", g.f.listCapacity)
	}
	g.top.Emit("const int listed = list_rows<%d%s>(list, in%d, %d, %d, %v, low, %d%s);  // %s", g.f.block, stride, k, g.f.listIndices, sizes(n.Arg(0))[0], wrap, g.f.listRows, capacity, positions)
	if g.f.listStride > 0 {
		g.top.Emit("const unsigned some = rows_listed<%d>(list, listed, %d);", g.f.block, g.f.listRows)
	}
	return nil
}

// overflows reports whether a block may have more indices than it can list.
func (f *form) overflows() bool { return f.listCapacity < f.listIndices }

// listed reports whether the block's list holds the indices of an element.
func (g *generator) listed(n *ir.Node, at []index.Expr) bool {
	if g.f.list != n || g.probe != nil {
		return false
	}
	row, _ := g.x.DivMod(g.position(), g.f.listRow)
	return at[0].Equal(row)
}

// fromList looks at the indices that the block has listed, several at a time so that
// their values are on their way together.
func (g *generator) fromList(p *puts, put func(s *index.Scope, k index.Expr) error) error {
	batch, first := 4, "0"
	if g.f.listStride > 0 { // one row at a time: its values alone are on their way
		batch, first = 8, fmt.Sprintf("some >> %s & 1 ? 0 : listed", g.f.rowOfTrip())
	}
	if g.width*int64(p.values.Type().DType().Size()) > 16 {
		batch /= 2 // of a register file's worth
	}
	e := g.fresh("e")
	return g.nested(p.at, fmt.Sprintf("for (int %s = %s; %s < listed; %s += %d)", e, first, e, e, batch), func(s *index.Scope) error {
		for u := range batch {
			at := e
			if u > 0 {
				at = fmt.Sprintf("%s + %d", e, u)
			}
			if err := g.listedPlace(s, p, fmt.Sprintf("%s < listed%s", at, g.ofRow(p, at)), fmt.Sprintf("list[%s] / %d", at, g.f.listRows), put); err != nil {
				return err
			}
		}
		return nil
	})
}

// ofRow is the condition, to be appended to another, that a listed place is one of
// the row at hand.
func (g *generator) ofRow(p *puts, at string) string {
	switch {
	case g.f.listRows <= 1:
		return ""
	case g.f.listStride > 0:
		return fmt.Sprintf(" && list[%s] %% %d == %s", at, g.f.listRows, g.f.rowOfTrip())
	}
	return fmt.Sprintf(" && list[%s] %% %d == %s - low", at, g.f.listRows, p.at[0])
}
