package cudagen

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/seed-ee968945/concert/internal/fusion"
	"github.com/seed-ee968945/concert/ir"
	"github.com/seed-ee968945/concert/lower/cudagen/internal/index"
)

// rows is the form with reductions: a row's threads walk its columns as often as
// one reduction needs the result of another, and once for the results.
func (g *generator) rows() error {
	f, t := g.f, g.intType()
	runs := f.count
	if f.columns {
		runs /= f.width
	}
	g.grid = (runs + int64(f.rowsPerBlock) - 1) / int64(f.rowsPerBlock) * int64(f.cluster)
	g.top.Emit("constexpr int lanes = LANES(%d), rows = %d;", f.lanes, f.rowsPerBlock)
	block := g.clusterBlock()
	row, lane, times := "threadIdx.x / lanes", "threadIdx.x % lanes", ""
	if f.columns {
		row, lane = "threadIdx.x % rows", "threadIdx.x / rows"
		if f.width > 1 {
			times = fmt.Sprintf(" * %d", f.width)
		}
	}
	if f.limits != nil && (f.columns || f.serial) {
		return unsupported(g.r.nodes[0], "a dynamic number of rows that are interleaved in memory")
	}
	if f.dynamic {
		there := g.numElems(f.keptSizes)
		g.need = divUp(there, int64(f.rowsPerBlock))
		g.top.Emit("const %s count = (%s)(%s);", t, t, cppProduct(there))
		g.top.Emit("if ((%s)blockIdx.x * rows >= count) return; // so for all of the block", t)
	}
	switch {
	case f.rowsPerBlock == 1 && !f.columns:
		lane = "threadIdx.x"
		g.top.Emit("const %s row = %s;", t, block)
	case f.dynamic:
		g.top.Emit("const %s at = (%s)blockIdx.x * rows + %s;", t, t, row)
		g.top.Emit("const bool live = at < count;")
		g.top.Emit("const %s row = live ? at : count - 1; // threads without a row help to fold", t)
	case runs%int64(f.rowsPerBlock) != 0:
		g.top.Emit("const %s at = (%s)%s * rows + %s;", t, t, block, row)
		g.top.Emit("const bool live = at < %d;", runs)
		g.top.Emit("const %s row = (live ? at : %d)%s; // threads without a row help to fold", t, runs-1, times)
	default:
		g.top.Emit("const %s row = ((%s)%s * rows + %s)%s;", t, t, block, row, times)
	}
	lanes := g.rowLanes()
	if f.cluster > 1 {
		lane = "rank * lanes + " + lane
	}
	g.top.Emit("const int lane = %s;", lane)
	if f.cached > 0 {
		g.top.Emit("constexpr int trips = %d / %s;", f.length/f.width, lanes)
	}
	most, mult := f.count-1, int64(1)
	if f.columns {
		most, mult = f.count-f.width, f.width
	}
	g.row = g.x.NewAtom("row", most, mult, g.top)
	most, mult = f.length-1, 1
	if !f.columns {
		most, mult = f.length-f.width, f.width
	}
	g.col = g.x.NewAtom("c", most, mult, g.top)
	if f.width > 1 {
		g.elem = g.x.NewAtom("v", f.width-1, 1, g.top)
		g.wide = g.elem
	}
	g.rowIndex = g.x.Unravel(g.rowPosition(), g.r.extents(f.keptSizes))
	if n := g.r.nodes[0]; f.dynamicLength && n.Op() == ir.OpArgmax {
		g.top.Emit("if (%s == 0) __trap(); // nothing is the largest of none", g.length())
	}
	g.onePass = g.oneWalk()
	if err := g.rowOutputs(); err != nil {
		return err
	}
	return g.fullOutputs()
}

// clusterBlock names the block, or where the blocks of a cluster share rows, the cluster.
func (g *generator) clusterBlock() string {
	if g.f.cluster == 1 {
		return "blockIdx.x"
	}
	g.top.Emit("constexpr int cluster = CLUSTER_SIZE(%d);", g.f.cluster)
	g.top.Emit("const int rank = blockIdx.x %% %d;", g.f.cluster)
	g.top.Emit("if (rank >= cluster) return; // a device without clusters")
	return fmt.Sprintf("(blockIdx.x / %d)", g.f.cluster)
}

// rowLanes is how many lanes a row has in all.
func (g *generator) rowLanes() string {
	if g.f.cluster > 1 {
		return "(lanes * cluster)"
	}
	return "lanes"
}

// rowOutputs stores the results that have one element for each row.
func (g *generator) rowOutputs() error {
	s := index.NewScope(g.top)
	if !g.f.columns {
		g.elem = nil // a row at a time
		defer func() { g.elem = g.wide }()
	}
	none := true
	done, err := g.perElement(s, func() error {
		for k, v := range g.r.outs {
			if g.f.full(v) {
				continue
			}
			none = false
			if err := g.put(k, v, g.x.Unravel(g.rowPosition(), g.r.shape(v))); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil || none {
		return err
	}
	g.top.Emit("if (lane == 0%s) {", g.live())
	g.top.Braced(append(s.Lines, done...))
	return nil
}

// live is the condition under which a thread has a row, to be appended to another.
func (g *generator) live() string {
	runs := g.f.count
	if g.f.columns {
		runs /= g.f.width
	}
	if g.f.dynamic && g.f.rowsPerBlock > 1 || !g.f.dynamic && runs%int64(g.f.rowsPerBlock) != 0 {
		return " && live"
	}
	return ""
}

// fullOutputs stores the results that have an element for each row and column,
// unless the walk that folds has done so.
func (g *generator) fullOutputs() error {
	if g.written || !slices.ContainsFunc(g.r.outs, g.f.full) {
		return nil
	}
	return g.loop(g.live(), true, g.putFull)
}

// putFull stores the element at hand of the results that have one for each row and column.
func (g *generator) putFull() error {
	for k, v := range g.r.outs {
		if !g.f.full(v) {
			continue
		}
		at := g.full()
		switch {
		case v.Type().Shape().Equal(g.f.walked):
		case g.f.length == 1 && !g.f.dynamicLength: // folds are read by the index of the row at hand
			at = g.x.Unravel(g.rowPosition(), g.r.shape(v))
		default:
			// All of one shape at one index, so that a result may be in place of an operand of others.
			alike := slices.IndexFunc(g.r.outs, func(u *ir.Value) bool { return u.Type().Shape().Equal(v.Type().Shape()) })
			at = g.inMemoryOrder(g.r.outs[alike], g.x.Ravel(at, g.r.extents(g.f.walked)))
		}
		if err := g.put(k, v, at); err != nil {
			return err
		}
	}
	return nil
}

// oneWalk reports whether the kernel folds in one walk, and what it writes for each
// column needs none of the folds: it can write on the same walk.
func (g *generator) oneWalk() bool {
	f := g.f
	if f.serial || g.live() != "" || f.cached > 0 || !slices.ContainsFunc(g.r.outs, f.full) || slices.ContainsFunc(g.r.outs, func(v *ir.Value) bool { return f.full(v) && elements(v).Equal(f.keptSizes.NumElems()) }) {
		return false
	}
	seen := map[*ir.Node]int{}
	walks := false
	for _, n := range g.r.nodes {
		l := g.level(n, seen)
		if l > 1 || l == 1 && slices.ContainsFunc(g.r.outs, func(v *ir.Value) bool { return v.Def() == n && f.full(v) }) {
			return false
		}
		if _, ok := fusion.ReducedDims(n); ok {
			walks = walks || g.oneHot(n.Arg(0)) == nil
		}
	}
	return walks
}

// full is the index of the element at hand in the shape that is reduced.
func (g *generator) full() []index.Expr {
	return g.inShape(g.x.UnravelOuterFirst(g.position(), g.r.extents(g.f.reducedSizes)))
}

// inShape is the index in the shape that is reduced of a column of the row at hand; without a
// column it is 0 in the dimensions that are reduced.
func (g *generator) inShape(column []index.Expr) []index.Expr {
	at, row := make([]index.Expr, len(g.f.shape)), g.rowIndex
	for d, gone := range g.f.isReduced {
		switch {
		case !gone:
			at[d], row = row[0], row[1:]
		case len(column) > 0:
			at[d], column = column[0], column[1:]
		}
	}
	return at
}

// loop appends a walk over the columns to the kernel; in the last one nothing is
// kept for another.
func (g *generator) loop(more string, last bool, fill func() error) error {
	savedScope, savedSums, savedBody, savedKept, savedElem, savedRegisters := g.col.Scope, g.sums, g.body, g.kept, g.elem, g.loopRegisters
	defer func() {
		maps.Copy(g.registers, g.loopRegisters) // not before: a fold that this loop reads is computed before it
		g.col.Scope, g.sums, g.body, g.elem, g.loopRegisters = savedScope, savedSums, savedBody, savedElem, savedRegisters
	}()
	g.elem = g.wide
	s := index.NewScope(g.top)
	g.col.Scope, g.sums, g.loopRegisters = s, nil, map[string]string{}
	if last {
		g.kept = keepBytes // full
	}
	done, err := g.perElement(s, fill)
	if last {
		g.kept = savedKept
	}
	if err != nil {
		return err
	}
	f, t := g.f, g.intType()
	g.top.Lines = append(g.top.Lines, g.sums...)
	if f.cached > 0 {
		times := ""
		if f.width > 1 {
			times = fmt.Sprintf(" * %d", f.width)
		}
		if more != "" {
			g.top.Emit("if (live) {")
		}
		g.top.Emit("#pragma unroll")
		g.top.Emit("for (int k = 0; k < trips; ++k) {")
		g.top.Emit("  const %s c = (k * %s + lane)%s;", t, g.rowLanes(), times)
	} else {
		begin, step := "lane", g.rowLanes()
		if f.width > 1 && !f.columns {
			begin, step = fmt.Sprintf("lane * %d", f.width), fmt.Sprintf("%s * %d", step, f.width)
		}
		if !f.serial {
			g.top.Emit("#pragma unroll %d", unrolled(append(s.Lines[:len(s.Lines):len(s.Lines)], done...)))
		}
		g.top.Emit("for (%s c = %s; c < %s%s; c += %s) {", t, begin, g.length(), more, step)
	}
	g.top.Braced(append(s.Lines, done...))
	if f.cached > 0 && more != "" {
		g.top.Emit("}")
	}
	return nil
}

// unrolled is by how much a loop is unrolled: enough loads to keep memory
// busy, and no more registers than threads have.
func unrolled(lines []string) int {
	loads := 0
	for _, l := range lines {
		loads += strings.Count(l, "load_vec<")
	}
	return max(1, min(4, 120/len(lines), 8/max(loads, 1)))
}
