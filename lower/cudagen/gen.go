package cudagen

import (
	"crypto/sha256"
	_ "embed"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"

	"github.com/seed-ee968945/concert/ir"
)

//go:embed prelude.cuh
var prelude string

// Prelude is the source that every kernel stands behind.
func Prelude() string { return prelude }

// Kernel is the CUDA source of one region and how to launch it. Its parameters
// are a pointer to element (0, 0, ...) of each operand, then of each result.
type Kernel struct {
	Name  string      // of the function, with C linkage
	Body  string      // the function, without the prelude
	Ins   []*ir.Value // operands, in order of parameters
	Outs  []*ir.Value // results, in order of parameters
	Grid  int64       // blocks
	Block int         // threads of each
	Lanes int         // threads that share a row; 1 where no threads work together
}

// Source is the whole translation unit.
func (k *Kernel) Source() string { return prelude + "\n" + k.Body }

// Options are the compiler options that a kernel's numbers rely on. The caller
// adds those that choose the device.
func Options() []string {
	return []string{"--std=c++17", "--fmad=false", "--ftz=false", "--prec-div=true", "--prec-sqrt=true"}
}

// Key is the SHA-256 of the source and of all options in hexadecimal: compiled
// images of equal keys are interchangeable.
func (k *Kernel) Key(options []string) string {
	h := sha256.New()
	for _, s := range append([]string{k.Source()}, options...) {
		fmt.Fprintf(h, "%d:%s", len(s), s)
	}
	return hex.EncodeToString(h.Sum(nil))
}

// Generate writes the kernel of a region: nodes of one function in program order,
// pure and none of them compute-bound, whose storages are st. Equal regions give
// equal text up to the names of nodes. An error that wraps [ErrUnsupported] says
// that the region cannot be one kernel. The time is linear in the size of the text.
func Generate(name string, st *ir.Storages, nodes []*ir.Node) (*Kernel, error) {
	r, err := newRegion(st, nodes)
	if err != nil {
		return nil, err
	}
	f, err := newForm(r)
	if err != nil {
		return nil, err
	}
	for width := f.width(r); ; width = 1 {
		g := &generator{r: r, f: f, width: width, x: &indices{key: map[string]*atom{}}, inAt: map[*ir.Value]int{}, rowOf: map[reduction]string{}}
		body, err := g.kernel()
		if err != nil {
			return nil, err
		}
		if width > 1 && g.vectors == 0 {
			continue // nothing is read or written along rows
		}
		k := &Kernel{Name: name, Ins: g.ins, Outs: r.outs, Grid: g.grid, Block: g.block, Lanes: max(1, f.lanes)}
		k.Body = g.head(name) + body + "}\n"
		return k, nil
	}
}

// scope is a run of statements. Those of an inner scope see the variables of the
// outer ones.
type scope struct {
	depth  int
	parent *scope
	lines  []string
	after  []string // statements behind the inner loop
	memo   map[string]string
}

func newScope(parent *scope) *scope {
	s := &scope{parent: parent, memo: map[string]string{}}
	if parent != nil {
		s.depth = parent.depth + 1
	}
	return s
}

func (s *scope) emit(format string, args ...any) {
	s.lines = append(s.lines, fmt.Sprintf(format, args...))
}

// find looks a value up in s and the scopes around it.
func (s *scope) find(key string) (string, bool) {
	for ; s != nil; s = s.parent {
		if t, ok := s.memo[key]; ok {
			return t, true
		}
	}
	return "", false
}

// indent returns lines one level deeper.
func indent(lines []string) []string {
	out := make([]string, len(lines))
	for i, l := range lines {
		out[i] = "  " + l
	}
	return out
}

// generator writes one kernel. Values are computed where they are asked for, at
// the index at which they are asked for, in the outermost scope in which that
// index is known.
type generator struct {
	r     *region
	f     *form
	x     *indices
	width int64 // consecutive elements that a thread handles at once

	top     *scope // the kernel's own
	body    *scope // statements for one element
	row     *atom  // of a form with rows
	col     *atom  // first of the columns that a thread handles at once, or of the elements
	elem    *atom  // place among them, nil if width is 1
	rowAt   []lin  // index of the row among the dimensions that are kept
	vectors int    // loads and stores of several elements

	ins   []*ir.Value
	inAt  map[*ir.Value]int
	rowOf map[reduction]string // results of finished reductions, by row; look-up only
	vars  int
	sums  []string // running sums that the loop under construction begins with

	grid  int64
	block int
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

// head is the function's first line.
func (g *generator) head(name string) string {
	var b strings.Builder
	for _, n := range g.r.nodes {
		fmt.Fprintf(&b, "// %s\n", statement(n))
	}
	fmt.Fprintf(&b, "extern \"C\" __global__ void __launch_bounds__(%d) %s(", g.block, name)
	var params []string
	for i, v := range g.ins {
		params = append(params, fmt.Sprintf("const %s* in%d /* %s */", ctype(v.Type().DType()), i, v))
	}
	for i, v := range g.r.outs {
		params = append(params, fmt.Sprintf("%s* out%d /* %s */", ctype(v.Type().DType()), i, v))
	}
	fmt.Fprintf(&b, "\n    %s) {\n", strings.Join(params, ",\n    "))
	return b.String()
}

// statement is the text of a node for a comment.
func statement(n *ir.Node) string {
	var b strings.Builder
	var args, types []string
	for _, a := range n.Args() {
		args = append(args, a.String())
	}
	for _, v := range n.Results() {
		types = append(types, v.Type().String())
	}
	fmt.Fprintf(&b, "%%%s = %s %s", n.Name(), n.Op().Name(), strings.Join(args, ", "))
	if len(n.Attrs()) > 0 {
		b.WriteString(" " + n.Attrs().String())
	}
	b.WriteString(" : " + strings.Join(types, ", "))
	return strings.TrimSpace(strings.NewReplacer("\n", " ", "\\", "/").Replace(b.String()))
}

// kernel writes the body.
func (g *generator) kernel() (string, error) {
	g.top = newScope(nil)
	var err error
	if g.f.rows {
		err = g.rows()
	} else {
		err = g.elements()
	}
	if err != nil {
		return "", err
	}
	return strings.Join(indent(g.top.lines), "\n") + "\n", nil
}

// elements is the form without reductions: each thread computes some consecutive
// elements, in row-major order, of every result.
func (g *generator) elements() error {
	t, n := g.intType(), g.f.count
	g.block = 256
	g.grid = (n + int64(g.block)*g.width - 1) / (int64(g.block) * g.width)
	times := ""
	if g.width > 1 {
		times = fmt.Sprintf(" * %d", g.width)
	}
	g.top.emit("const %s i = ((%s)blockIdx.x * %d + threadIdx.x)%s;", t, t, g.block, times)
	if n%(int64(g.block)*g.width) != 0 {
		g.top.emit("if (i >= %d) return;", n)
	}
	g.col = g.x.newAtom("i", n-g.width, g.width, g.top)
	if g.width > 1 {
		g.elem = g.x.newAtom("v", g.width-1, 1, g.top)
	}
	done, err := g.perElement(g.top, func() error {
		for k, v := range g.r.outs {
			if err := g.put(k, v, g.x.unravel(g.position(), sizes(v))); err != nil {
				return err
			}
		}
		return nil
	})
	g.top.lines = append(g.top.lines, done...)
	return err
}

// position is the element at hand in row-major order, or its column.
func (g *generator) position() lin {
	if g.elem == nil {
		return g.col.lin()
	}
	return g.col.lin().add(1, g.elem.lin())
}

// perElement builds the statements for each of a thread's consecutive elements
// and returns what stands behind the loads of outer.
func (g *generator) perElement(outer *scope, fill func() error) ([]string, error) {
	saved := g.body
	defer func() { g.body = saved }()
	if g.width == 1 {
		g.body = outer
		return nil, fill()
	}
	g.body = newScope(outer)
	was := g.elem.scope // of a loop that waits for this one
	g.elem.scope = g.body
	defer func() { g.elem.scope = was }()
	if err := fill(); err != nil {
		return nil, err
	}
	lines := []string{"#pragma unroll", fmt.Sprintf("for (int v = 0; v < %d; ++v) {", g.width)}
	lines = append(append(lines, indent(g.body.lines)...), "}")
	return append(lines, outer.after...), nil
}

// rows is the form with reductions: a row's threads walk its columns as often as
// one reduction needs the result of another, and once for the results.
func (g *generator) rows() error {
	f, t := g.f, g.intType()
	g.block, g.grid = f.lanes*f.together, (f.count+int64(f.together)-1)/int64(f.together)
	g.top.emit("constexpr int lanes = LANES(%d), rows = %d;", f.lanes, f.together)
	row, lane := "threadIdx.x / lanes", "threadIdx.x % lanes"
	if f.columns {
		row, lane = "threadIdx.x % rows", "threadIdx.x / rows"
	}
	switch {
	case f.together == 1:
		row, lane = "", "threadIdx.x"
		g.top.emit("const %s row = blockIdx.x;", t)
	default:
		g.top.emit("const %s at = (%s)blockIdx.x * rows + %s;", t, t, row)
		if f.count%int64(f.together) != 0 {
			g.top.emit("const bool live = at < %d;", f.count)
			g.top.emit("const %s row = live ? at : %d; // threads without a row help to fold", t, f.count-1)
		} else {
			g.top.emit("const %s row = at;", t)
		}
	}
	g.top.emit("const int lane = %s;", lane)
	g.row = g.x.newAtom("row", f.count-1, 1, g.top)
	g.col = g.x.newAtom("c", f.length-g.width, g.width, g.top)
	if g.width > 1 {
		g.elem = g.x.newAtom("v", g.width-1, 1, g.top)
	}
	g.rowAt = g.x.unravel(g.row.lin(), f.kept())
	if err := g.rowOutputs(); err != nil {
		return err
	}
	return g.fullOutputs()
}

// rowOutputs stores the results that have one element for each row.
func (g *generator) rowOutputs() error {
	s := newScope(g.top)
	for k, v := range g.r.outs {
		if numel(sizes(v)) != g.f.count || g.f.full(v) {
			continue
		}
		saved := g.body
		g.body = g.top
		at := g.x.unravel(g.row.lin(), sizes(v))
		text, err := g.value(v, at)
		g.body = saved
		if err != nil {
			return err
		}
		s.emit("store(out%d + %s, %s);", k, dot(at, v.Type().Strides()).text(), text)
	}
	if len(s.lines) > 0 {
		g.top.emit("if (lane == 0%s) {", g.live())
		g.top.lines = append(append(g.top.lines, indent(s.lines)...), "}")
	}
	return nil
}

// live is the condition under which a thread has a row, to be appended to another.
func (g *generator) live() string {
	if g.f.count%int64(g.f.together) != 0 {
		return " && live"
	}
	return ""
}

// fullOutputs stores the results that have an element for each row and column.
func (g *generator) fullOutputs() error {
	if !slices.ContainsFunc(g.r.outs, g.f.full) {
		return nil
	}
	return g.loop(g.live(), func() error {
		for k, v := range g.r.outs {
			if !g.f.full(v) {
				continue
			}
			if err := g.put(k, v, g.x.unravel(ravel(g.full(), g.f.shape), sizes(v))); err != nil {
				return err
			}
		}
		return nil
	})
}

// full is the index of the element at hand in the shape that is reduced.
func (g *generator) full() []lin {
	col := g.x.unravel(g.position(), g.f.reduced())
	at := make([]lin, len(g.f.shape))
	k, r := 0, 0
	for d := range at {
		if g.f.gone[d] {
			at[d] = col[r]
			r++
		} else {
			at[d] = g.rowAt[k]
			k++
		}
	}
	return at
}

// loop appends a walk over the columns to the kernel.
func (g *generator) loop(more string, fill func() error) error {
	savedScope, savedSums := g.col.scope, g.sums
	defer func() { g.col.scope, g.sums = savedScope, savedSums }()
	s := newScope(g.top)
	g.col.scope, g.sums = s, nil
	done, err := g.perElement(s, fill)
	if err != nil {
		return err
	}
	t := g.intType()
	begin, step := "lane", "lanes"
	if g.width > 1 {
		begin, step = fmt.Sprintf("lane * %d", g.width), fmt.Sprintf("lanes * %d", g.width)
	}
	g.top.lines = append(g.top.lines, g.sums...)
	g.top.emit("for (%s c = %s; c < %d%s; c += %s) {", t, begin, g.f.length, more, step)
	g.top.lines = append(append(g.top.lines, indent(append(s.lines, done...))...), "}")
	return nil
}

// put computes result k at an index and stores it.
func (g *generator) put(k int, v *ir.Value, at []lin) error {
	text, err := g.value(v, at)
	if err != nil {
		return err
	}
	off := dot(at, v.Type().Strides())
	if base, ok := g.vector(v, off); ok {
		pre := g.elem.scope.parent
		name := fmt.Sprintf("w%d", k)
		t := ctype(v.Type().DType())
		pre.emit("vec<%s, %d> %s;", t, g.width, name)
		g.body.emit("store(%s.at + v, %s);", name, text)
		pre.after = append(pre.after, fmt.Sprintf("store_vec(out%d + %s, %s);", k, base.text(), name))
		g.vectors++
		return nil
	}
	g.body.emit("store(out%d + %s, %s);", k, off.text(), text)
	return nil
}

// vector reports whether a thread's elements at off lie one after the other in
// memory, aligned, and where the first of them lies.
func (g *generator) vector(v *ir.Value, off lin) (base lin, ok bool) {
	if g.width == 1 || g.elem == nil {
		return lin{}, false
	}
	base = off.add(-1, g.elem.lin())
	if len(base.terms) != len(off.terms)-1 || base.divisor()%g.width != 0 {
		return lin{}, false
	}
	if s := base.scope(); s != nil && s.depth >= g.elem.scope.depth {
		return lin{}, false
	}
	size := int64(v.Type().DType().Size())
	return base, g.r.aligned(v, min(16, g.width*size))
}
