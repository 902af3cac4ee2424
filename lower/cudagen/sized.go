package cudagen

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/seed-ee968945/concert/internal/fusion"
	"github.com/seed-ee968945/concert/ir"
)

// Sizes that are known at run time only are parameters of the kernel. Its grid is that
// of their bounds, and Kernel.Blocks says how many of the blocks are needed: they walk
// over what there is, and those that find nothing end. Tensors of such sizes are row-
// major, so that strides are products of sizes. A region whose rows, of a number known
// at run time only, follow from rows of the operands each by itself is a kernel of
// form.go that stops at the last row; so is one of elementwise operations on tensors
// of one shape, as vectors. Of the other operations each has a kernel by itself, which
// computes its indices as it goes.

// generateSized is Generate of a region with sizes that are known at run time only.
func generateSized(name string, st *ir.Storages, nodes []*ir.Node) (*Kernel, error) {
	r := &region{Region: fusion.Of(nodes), nodes: nodes, st: st}
	for _, n := range nodes {
		if err := r.check(n, func(ir.Type) bool { return true }); err != nil {
			return nil, err
		}
	}
	if err := r.findOuts(); err != nil {
		return nil, err
	}
	sizes := sizesOf(nodes)
	k, err := rowwise(name, r, sizes)
	if errors.Is(err, ErrUnsupported) {
		other := error(nil)
		if k, other = flat(name, r, sizes); !errors.Is(other, ErrUnsupported) {
			err = other
		}
	}
	if !errors.Is(err, ErrUnsupported) {
		return k, err
	}
	root := nodes[0]
	if len(nodes) > 1 {
		var no *fusion.Refusal
		if root, no = fusion.OneUpdate(nodes); no != nil {
			return nil, err
		}
	}
	g := &sized{n: root, r: r, known: map[*ir.Value]operand{}, sizes: sizes, used: make([]bool, len(sizes)), width: 1, lanes: 1, typ: "int", inAt: map[*ir.Value]int{}}
	return g.kernel(name)
}

// sizesOf lists the sizes that are known at run time only, in order of appearance.
func sizesOf(nodes []*ir.Node) []ir.Dim {
	var out []ir.Dim
	for _, n := range nodes {
		for _, v := range slices.Concat(n.Args(), n.Results()) {
			for _, d := range v.Type().Shape() {
				if _, ok := d.Const(); !ok && !slices.ContainsFunc(out, d.Equal) {
					out = append(out, d)
				}
			}
		}
	}
	return out
}

// sizeName is the parameter that has a size.
func sizeName(i int) string { return "n" + strconv.Itoa(i) }

// named is the number of elements of a shape over the names of the parameters that have
// its sizes.
func named(s ir.Shape, sizes []ir.Dim) ir.Dim {
	n := ir.D(1)
	for _, d := range s {
		if _, ok := d.Const(); !ok {
			d = ir.Sym(sizeName(slices.IndexFunc(sizes, d.Equal)))
		}
		n = n.Mul(d)
	}
	return n
}

// over is how many pieces of a size a number of elements makes.
func over(n ir.Dim, size int64) ir.Dim { return n.Add(ir.D(size - 1)).Div(size) }

// product spells a product of numbers and names; 1 for none.
func product(factors ...string) string {
	c := int64(1)
	var names []string
	for _, f := range factors {
		if n, err := strconv.ParseInt(f, 10, 64); err == nil {
			c *= n
		} else {
			names = append(names, factor(f))
		}
	}
	switch {
	case c == 0:
		return "0"
	case c != 1 || len(names) == 0:
		names = append(names, strconv.FormatInt(c, 10))
	}
	return strings.Join(names, " * ")
}

// factor puts parentheses around what is no factor of a product.
func factor(e string) string {
	if strings.ContainsAny(e, "+-/%?<>=") && !(strings.HasPrefix(e, "(") && strings.HasSuffix(e, ")") && !strings.Contains(e[1:], "(")) {
		return "(" + e + ")"
	}
	return e
}

// sized writes the kernel of one operation whose sizes are parameters.
type sized struct {
	n     *ir.Node
	r     *region
	sizes []ir.Dim
	used  []bool

	typ   string // of indices
	width int64  // consecutive elements that a thread handles at once
	block int
	lanes int
	grid  int64
	need  ir.Dim // blocks that find something to do; 0 for the grid

	ins   []*ir.Value
	inAt  map[*ir.Value]int
	known map[*ir.Value]operand // values at the index at hand; look-up only
	vars  int

	lines []string // of the kernel, finished
	pre   []string // of the loop at hand: what a thread does once
	body  []string // for each of its consecutive elements
	post  []string
	depth int
}

// coord is an index along one dimension.
type coord struct {
	text string
	run  bool // text is the first of width consecutive ones
	late bool // known for single elements only
}

var origin = coord{text: "0"}

// machine is how many blocks are launched at most; each then walks on.
const machine = 2112

func (g *sized) fresh(prefix string) string {
	g.vars++
	return prefix + strconv.Itoa(g.vars)
}

func (g *sized) emit(format string, args ...any) {
	g.lines = append(g.lines, strings.Repeat("  ", g.depth)+fmt.Sprintf(format, args...))
}

// size spells a dimension.
func (g *sized) size(d ir.Dim) string {
	if n, ok := d.Const(); ok {
		return strconv.FormatInt(n, 10)
	}
	i := slices.IndexFunc(g.sizes, d.Equal)
	g.used[i] = true
	return "m" + strconv.Itoa(i)
}

// shape spells the sizes of a tensor.
func (g *sized) shape(s ir.Shape) []string {
	out := make([]string, len(s))
	for i, d := range s {
		out[i] = g.size(d)
	}
	return out
}

// numel spells a product of sizes.
func (g *sized) numel(s ir.Shape) string { return product(g.shape(s)...) }

func (g *sized) bound(s ir.Shape) int64 {
	return g.n.Func().Module().Bound(s.NumElems())
}

// strides spells how far elements lie apart along each dimension.
func (g *sized) strides(v *ir.Value) []string {
	out := make([]string, v.Type().Rank())
	if st := v.Type().Strides(); st != nil {
		for d, s := range st {
			out[d] = strconv.FormatInt(s, 10)
		}
		return out
	}
	shape := g.shape(v.Type().Shape())
	for d := range out {
		out[d] = product(shape[d+1:]...)
	}
	return out
}

// offset spells where an element of v lies.
func (g *sized) offset(v *ir.Value, at []coord) string {
	var terms []string
	for d, s := range g.strides(v) {
		if n, ok := v.Type().Shape()[d].Const(); ok && n == 1 || at[d].text == "0" {
			continue
		}
		if t := product(at[d].text, s); t != "0" {
			terms = append(terms, t)
		}
	}
	if len(terms) == 0 {
		return "0"
	}
	return strings.Join(terms, " + ")
}

// unravel declares the index of row-major position e in a shape; a size of 1 has no
// variable. The innermost size counts in runs if they are longer than 1.
func (g *sized) unravel(to *[]string, e string, s ir.Shape, prefix string, run bool) []coord {
	at := make([]coord, len(s))
	first := 0
	for first < len(s) && s[first].Equal(ir.D(1)) {
		first++
	}
	rest := e
	for d := len(s) - 1; d >= 0; d-- {
		at[d] = origin
		if s[d].Equal(ir.D(1)) {
			continue
		}
		size, times := g.size(s[d]), ""
		runs := run && d == len(s)-1 && g.width > 1
		if runs {
			n, _ := s[d].Const()
			size, times = strconv.FormatInt(n/g.width, 10), fmt.Sprintf(" * %d", g.width)
		}
		name := fmt.Sprintf("%s%d", prefix, d)
		if d == first {
			*to = append(*to, fmt.Sprintf("const %s %s = %s%s;", g.typ, name, factor(rest), times))
		} else {
			*to = append(*to, fmt.Sprintf("const %s %s = %s %% %s%s;", g.typ, name, factor(rest), factor(size), times))
			next := fmt.Sprintf("%s_%d", prefix, d)
			*to = append(*to, fmt.Sprintf("const %s %s = %s / %s;", g.typ, next, factor(rest), factor(size)))
			rest = next
		}
		at[d] = coord{text: name, run: runs}
	}
	return at
}

// param is the parameter that an operand is read from.
func (g *sized) param(v *ir.Value) string {
	k, ok := g.inAt[v]
	if !ok {
		k = len(g.ins)
		g.inAt[v], g.ins = k, append(g.ins, v)
	}
	return "in" + strconv.Itoa(k)
}

// runs reports whether a thread's consecutive elements lie one after the other in v,
// aligned, for any index whose last coordinate is a run.
func (g *sized) runs(v *ir.Value, width int64) bool {
	s := v.Type().Shape()
	if len(s) == 0 || width < 2 {
		return false
	}
	inner, ok := s[len(s)-1].Const()
	if !ok || inner%width != 0 || !g.r.aligned(v, min(16, width*int64(v.Type().DType().Size()))) {
		return false
	}
	for d, st := range v.Type().Strides() { // of symbolic sizes: multiples of the innermost one
		if d == len(s)-1 && st != 1 || d < len(s)-1 && st%width != 0 {
			return false
		}
	}
	return true
}

// widest is how many consecutive elements of the result a thread can handle at once if
// every tensor that has as many elements in a row is read in runs.
func (g *sized) widest(out *ir.Value) int64 {
	most := int64(16 / out.Type().DType().Size())
	for _, a := range g.n.Args() {
		most = min(most, int64(16/a.Type().DType().Size()))
	}
	for w := most; w > 1; w /= 2 {
		if g.runs(out, w) {
			return w
		}
	}
	return 1
}

// single spells the coordinates of one of a thread's consecutive elements.
func single(at []coord) []coord {
	out := slices.Clone(at)
	for d := range out {
		if out[d].run {
			out[d] = coord{text: "(" + out[d].text + " + v)", late: true}
		}
	}
	return out
}

// load reads v at an index: all of a run at once, or what the thread needs once.
func (g *sized) load(v *ir.Value, at []coord) operand {
	p, t := g.param(v), held(v.Type().DType())
	name := g.fresh("x")
	late := slices.ContainsFunc(at, func(c coord) bool { return c.late })
	run := slices.ContainsFunc(at, func(c coord) bool { return c.run })
	switch {
	case run && !late && at[len(at)-1].run && g.runs(v, g.width) && !slices.ContainsFunc(at[:len(at)-1], func(c coord) bool { return c.run }):
		g.pre = append(g.pre, fmt.Sprintf("const auto v%s = load_vec<%d>(%s + %s);  // %s", name, g.width, p, g.offset(v, at), v))
		g.body = append(g.body, fmt.Sprintf("const %s %s = load(v%s.at + v);", t, name, name))
	case run || late:
		g.body = append(g.body, fmt.Sprintf("const %s %s = load(%s + %s);  // %s", t, name, p, g.offset(v, single(at)), v))
	default:
		g.pre = append(g.pre, fmt.Sprintf("const %s %s = load(%s + %s);  // %s", t, name, p, g.offset(v, at), v))
	}
	return operand{name, t}
}

// position reads a position from operand k and bounds it by a dimension.
func (g *sized) position(k int, at []coord, size ir.Dim, wrap bool) coord {
	v := g.n.Arg(k)
	late := slices.ContainsFunc(at, func(c coord) bool { return c.late || c.run })
	x := g.load(v, at)
	name := g.fresh("p")
	line := fmt.Sprintf("const %s %s = (%s)position(%s, %s, %v);", g.typ, name, g.typ, x.text, g.size(size), wrap)
	if late {
		g.body = append(g.body, line)
	} else {
		g.pre = append(g.pre, line)
	}
	return coord{text: name, late: late}
}

// store writes element at of result k, whose expression is rounded already.
func (g *sized) store(k int, at []coord, e string) {
	v := g.r.outs[k]
	if n := len(at); n > 0 && at[n-1].run && g.runs(v, g.width) {
		g.pre = append(g.pre, fmt.Sprintf("vec<%s, %d> w%d;", ctype(v.Type().DType()), g.width, k))
		g.body = append(g.body, fmt.Sprintf("store(w%d.at + v, %s);", k, e))
		g.post = append(g.post, fmt.Sprintf("store_vec(out%d + %s, w%d);", k, g.offset(v, at), k))
		return
	}
	g.body = append(g.body, fmt.Sprintf("store(out%d + %s, %s);", k, g.offset(v, single(at)), e))
}

// flush writes the statements collected for a thread's elements.
func (g *sized) flush() {
	for _, l := range g.pre {
		g.emit("%s", l)
	}
	if g.width > 1 && len(g.body) > 0 {
		g.emit("#pragma unroll")
		g.emit("for (int v = 0; v < %d; ++v) {", g.width)
		g.depth++
	}
	for _, l := range g.body {
		g.emit("%s", l)
	}
	if g.width > 1 && len(g.body) > 0 {
		g.depth--
		g.emit("}")
	}
	for _, l := range g.post {
		g.emit("%s", l)
	}
	g.pre, g.body, g.post = nil, nil, nil
	clear(g.known)
}

// kernel writes all of it.
func (g *sized) kernel(name string) (*Kernel, error) {
	g.depth = 1
	var all []*ir.Value
	for _, n := range g.r.nodes {
		all = slices.Concat(all, n.Args(), n.Results())
	}
	for _, v := range all {
		if g.bound(v.Type().Shape()) > 1<<30 {
			g.typ = "i64"
		}
		last := int64(0)
		for d, s := range v.Type().Strides() {
			n, _ := v.Type().Shape()[d].Const()
			last += max(n-1, 0) * abs(s)
		}
		if last > 1<<30 {
			g.typ = "i64"
		}
	}
	if err := g.write(); err != nil {
		return nil, err
	}
	k := &Kernel{Name: name, Ins: g.ins, Outs: g.r.outs, Sizes: g.sizes, Grid: max(g.grid, 1), Blocks: g.need, Block: g.block, Lanes: g.lanes}
	var b strings.Builder
	b.WriteString(headOf(name, g.r, g.ins, g.sizes, g.block))
	for i, used := range g.used {
		if used {
			fmt.Fprintf(&b, "  const %s m%d = (%s)%s;\n", g.typ, i, g.typ, sizeName(i))
		}
	}
	b.WriteString(strings.Join(g.lines, "\n") + "\n}\n")
	k.Body = b.String()
	return k, nil
}

// write chooses the form of the operation.
func (g *sized) write() error {
	n := g.n
	if _, ok := fusion.Folds(n); ok {
		return g.fold()
	}
	switch n.Op() {
	case ir.OpTopk:
		return g.topk()
	case ir.OpPack:
		return g.pack(n.Args(), n.Result(0), true)
	case ir.OpUnpack:
		return g.pack(n.Results(), n.Arg(0), false)
	case ir.OpIndexPut, ir.OpIndexAdd:
		return g.update()
	case ir.OpScatter:
		return g.each(g.scatter)
	case ir.OpCat:
		return g.each(g.cat)
	case ir.OpSliceScatter:
		return g.each(g.sliceScatter)
	case ir.OpGather:
		return g.each(g.gather)
	case ir.OpIndex, ir.OpEmbedding:
		return g.each(g.index)
	case ir.OpFull, ir.OpIota, ir.OpClone:
		return g.each(g.create)
	}
	if !n.Op().Info().Elementwise {
		return unsupported(n, "no form of it takes sizes that are known at run time only")
	}
	return g.each(g.pointwise)
}
