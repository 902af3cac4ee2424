package cudagen

import (
	"fmt"
	"slices"

	"github.com/seed-ee968945/concert/internal/intmath"
	"github.com/seed-ee968945/concert/ir"
	"github.com/seed-ee968945/concert/lower/cudagen/internal/index"
)

// errWide says that a region cannot be computed several elements at once.
var errWide = fmt.Errorf("single elements only: %w", ErrUnsupported)

// generator writes one kernel. Values are computed where they are asked for, at
// the index at which they are asked for, in the outermost scope in which that
// index is known.
type generator struct {
	r     *region
	f     *form
	x     *index.Builder
	width int64 // consecutive elements that a thread handles at once

	top      *index.Scope // the kernel's own
	body     *index.Scope // statements for one element
	row      *index.Atom  // of a form with rows; the first of the rows that a thread handles at once
	col      *index.Atom  // first of the columns that a thread handles at once, or of the elements
	elem     *index.Atom  // index among them, nil if width is 1 or where a row is handled as a whole
	wide     *index.Atom  // elem in loops
	rowIndex []index.Expr // index of the row among the dimensions that are kept
	index    []index.Expr // without rows: index of the element at hand in form.shape, if its order is not row-major
	half     int64        // with form.half: which half of the innermost dimension is at hand
	onePass  bool         // with rows: what is written for each column needs no reduction, so that one loop reduces and writes
	written  bool         // by that loop
	vectors  int          // loads and stores of several elements

	ins     []*ir.Value
	inIndex map[*ir.Value]int
	folds   map[reduction]accumulator // finished reductions, by row; look-up only
	vars    int
	sums    []string              // what the loop under construction begins with
	pairs   map[*ir.Node]*ir.Node // reductions that one loop computes together, see onlinePairs; look-up only

	guards []guard // around the statement at hand, and maybe others
	kept   int64   // bytes of loads that stay in registers
	// Arrays of registers that hold loads, by address: of finished loops over a row, and of the loop at hand.
	registers, loopRegisters map[string]string
	probe                    *[]access     // collects what is read instead of writing a kernel
	walk                     []*index.Atom // then an atom for each dimension

	grid int64
	need ir.Dim // blocks that find something to do, of sizes known at run time only
}

func newGenerator(r *region, f *form) *generator {
	top, registers := index.NewScope(nil), map[string]string{}
	return &generator{r: r, f: f, width: f.width, x: index.NewBuilder(top), top: top, inIndex: map[*ir.Value]int{}, folds: map[reduction]accumulator{}, registers: registers, loopRegisters: registers}
}

// fresh names a new variable.
func (g *generator) fresh(prefix string) string {
	g.vars++
	return fmt.Sprintf("%s%d", prefix, g.vars)
}

// intType is the type of indices: 32 bits where they suffice.
func (g *generator) intType() string {
	if g.f.big {
		return "i64"
	}
	return "int"
}

// kernel writes the body.
func (g *generator) kernel() (string, error) {
	var err error
	if g.f.rows {
		err = g.rows()
	} else {
		err = g.elements()
	}
	if err != nil {
		return "", err
	}
	return g.text(), nil
}

// elements is the form without reductions: each thread computes some runs of
// consecutive elements of every result.
func (g *generator) elements() error {
	f, t := g.f, g.intType()
	run := int64(f.block) * f.width
	count := f.count
	if f.half > 0 {
		count /= 2 // a thread has an element of each half
	}
	g.grid = (count + run*f.trips - 1) / (run * f.trips)
	if f.shares() {
		g.grid = f.sorted.blocks()
	}
	if err := g.lists(); err != nil {
		return err
	}
	g.outerLists()
	s := index.NewScope(g.top)
	times := ""
	if f.width > 1 {
		times = fmt.Sprintf(" * %d", f.width)
	}
	switch m := f.listRow / run; {
	case f.shares():
		s.Emit("const %s i = %s%s;", t, f.sorted.unit(), times)
	case f.sorted != nil && f.sorted.stride > 1:
		s.Emit("const %s i = ((%s)blockIdx.x + k * %d) * %d + threadIdx.x%s;", t, t, f.sorted.stride, run, times)
	case f.list != nil && f.listStride > 0 && m > 1:
		s.Emit("const %s i = ((%s)blockIdx.x + k / %d * %d) * %d + k %% %d * %d + threadIdx.x%s;", t, t, m, f.listStride, f.listRow, m, run, times)
	case f.list != nil && f.listStride > 0:
		s.Emit("const %s i = ((%s)blockIdx.x + k * %d) * %d + threadIdx.x%s;", t, t, f.listStride, f.listRow, times)
	case f.trips > 1:
		s.Emit("const %s i = (%s)blockIdx.x * %d + k * %d + threadIdx.x%s;", t, t, run*f.trips, run, times)
	default:
		s.Emit("const %s i = ((%s)blockIdx.x * %d + threadIdx.x)%s;", t, t, f.block, times)
	}
	switch {
	case f.dynamic:
		there := g.numElems(g.r.outs[0].Type().Shape())
		g.need = divUp(there, run*f.trips)
		g.top.Emit("const i64 count = %s;", cppProduct(there))
		s.Emit("if (i >= count) return;")
	case count%(run*f.trips) != 0 && !f.shares():
		s.Emit("if (i >= %d) return;", count)
	}
	g.col = g.x.NewAtom("i", count-f.width, f.width, s)
	if f.width > 1 {
		g.elem = g.x.NewAtom("v", f.width-1, 1, s)
	}
	if f.order != nil || f.half > 0 {
		g.reorder()
	}
	done, err := g.perElement(s, g.everyResult)
	s.Lines = append(s.Lines, done...)
	if f.trips > 1 {
		unroll := min(f.trips, 4)
		if f.list != nil && (f.listStride > 0 || f.sorted != nil) {
			unroll = 1 // most rows are not listed
		}
		g.top.Emit("#pragma unroll %d", unroll)
		g.top.Emit("for (int k = 0; k < %d; ++k) {", f.trips)
		g.top.Braced(s.Lines)
	} else {
		g.top.Lines = append(g.top.Lines, s.Lines...)
	}
	return err
}

// everyResult computes and stores the element at hand of every result, or that of
// each half.
func (g *generator) everyResult() error {
	if g.f.half == 0 {
		at := g.position()
		if g.index != nil {
			at = g.x.Ravel(g.index, index.Fixed(g.f.shape))
		}
		return g.everyResultAt(at)
	}
	first := g.index
	defer func() { g.index, g.half = first, 0 }()
	for g.half = range int64(2) {
		d := len(first) - 1
		g.index = slices.Clone(first)
		g.index[d] = g.index[d].Add(1, index.Constant(g.half*g.f.half))
		if err := g.everyResultAt(g.x.Ravel(g.index, index.Fixed(g.f.shape))); err != nil {
			return err
		}
	}
	return nil
}

func (g *generator) everyResultAt(at index.Expr) error {
	for k, v := range g.r.outs {
		if err := g.put(k, v, g.x.Unravel(at, g.r.shape(v))); err != nil {
			return err
		}
	}
	return nil
}

// reorder finds the index of the element at hand where threads do not walk the
// results in row-major order, or walk the first halves of rows.
func (g *generator) reorder() {
	order := g.f.order
	if order == nil {
		for d := range g.f.shape {
			order = append(order, d)
		}
	}
	shape := make([]int64, len(order))
	for i, d := range order {
		shape[i] = g.f.shape[d]
		if g.f.half > 0 && d == len(order)-1 {
			shape[i] = g.f.half
		}
	}
	walk := g.x.Unravel(g.position(), index.Fixed(shape))
	g.index = make([]index.Expr, len(shape))
	for i, d := range order {
		g.index[d] = walk[i]
	}
}

// position is the element at hand in row-major order, or its column.
func (g *generator) position() index.Expr {
	if g.elem == nil || g.f.columns {
		return g.col.Expr()
	}
	return g.col.Expr().Add(1, g.elem.Expr())
}

// rowPosition is the row at hand.
func (g *generator) rowPosition() index.Expr {
	if g.elem == nil || !g.f.columns {
		return g.row.Expr()
	}
	return g.row.Expr().Add(1, g.elem.Expr())
}

// perElement builds the statements for each of a thread's consecutive elements
// and returns what comes after the loads of outer.
func (g *generator) perElement(outer *index.Scope, fill func() error) ([]string, error) {
	saved := g.body
	defer func() { g.body = saved }()
	if g.elem == nil {
		g.body = outer
		if err := fill(); err != nil {
			return nil, err
		}
		return outer.After, nil
	}
	g.body = index.NewScope(outer)
	was := g.elem.Scope // of a loop that waits for this one
	g.elem.Scope = g.body
	defer func() { g.elem.Scope = was }()
	if err := fill(); err != nil {
		return nil, err
	}
	return append(g.eachElement(g.body.Lines), outer.After...), nil
}

// eachElement is the loop over a thread's consecutive elements.
func (g *generator) eachElement(lines []string) []string {
	if len(lines) == 0 {
		return nil
	}
	out := []string{"#pragma unroll", fmt.Sprintf("for (int v = 0; v < %d; ++v) {", g.width)}
	return append(append(out, index.Indent(lines)...), "}")
}

// before is the scope in which the loop over a thread's consecutive elements stands, or that of
// the statements at hand where these are not in that loop.
func (g *generator) before() *index.Scope {
	if g.elem != nil {
		for s := g.body; s != nil; s = s.Parent {
			if s == g.elem.Scope.Parent {
				return s
			}
		}
	}
	return g.body
}

// nested writes a loop, or a block, that computes what is at an index before the statements
// for the element at hand. Within it fill computes single elements again. An index that is read
// for each element is not known there.
func (g *generator) nested(at []index.Expr, head string, fill func(s *index.Scope) error) error {
	if g.elem != nil && slices.ContainsFunc(at, func(e index.Expr) bool { return !e.KnownAround(g.elem) }) {
		return errWide
	}
	outer := g.before()
	s := index.NewScope(outer)
	savedBody := g.body
	done, err := g.perElement(s, func() error { return fill(s) })
	g.body = savedBody
	if err != nil {
		return err
	}
	if c := g.condition(at...); c != "" && g.elem != nil {
		head = "if (" + c + ") " + head
	}
	outer.Emit("%s {", head)
	outer.Braced(append(s.Lines, done...))
	return nil
}

// put computes result k at an index and stores it.
func (g *generator) put(k int, v *ir.Value, at []index.Expr) error {
	text, err := g.value(v, at)
	if err != nil {
		return err
	}
	off := g.offset(v, at)
	g.accessed(v, off)
	if base, ok := g.vector(v, off); ok {
		pre := g.elem.Scope.Parent
		name := fmt.Sprintf("w%d", k)
		if g.half > 0 {
			name += "b"
		}
		t := ctype(v.Type().DType())
		pre.Emit("vec<%s, %d> %s;", t, g.width, name)
		g.body.Emit("store(%s.at + v, %s);", name, text)
		store := fmt.Sprintf("store_vec(out%d + %s, %s);", k, base, name)
		if g.f.limits != nil && intmath.Product(sizes(v)[1:])%g.width != 0 {
			store = fmt.Sprintf("store_upto(out%d + %s, %s, count - i);", k, base, name)
		}
		pre.After = append(pre.After, store)
		g.vectors++
		return nil
	}
	g.body.Emit("store(out%d + %s, %s);", k, off, text)
	return nil
}

// vector reports whether a thread's elements at off are contiguous in
// memory, aligned, and where the first of them is.
func (g *generator) vector(v *ir.Value, off index.Expr) (base index.Expr, ok bool) {
	if g.elem == nil {
		return index.Expr{}, false
	}
	base = off.Add(-1, g.elem.Expr())
	if off.Coefficient(g.elem) != 1 || base.Divisor()%g.width != 0 {
		return index.Expr{}, false
	}
	if !base.KnownBefore(g.elem.Scope.Depth) {
		return index.Expr{}, false
	}
	size := int64(v.Type().DType().Size())
	return base, g.r.aligned(v, min(16, g.width*size))
}
