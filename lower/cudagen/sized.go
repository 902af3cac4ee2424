package cudagen

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/seed-ee968945/concert/ir"
)

// Sizes that are known at run time only are parameters of the kernel, and its grid is
// that of their bounds: blocks walk over what there is, and those that find nothing
// end. Tensors of such sizes are row-major, so that strides are products of sizes. A
// region whose rows, of a number known at run time only, follow from rows of the
// operands each by itself is a kernel of form.go that stops at the last row; so is one
// of elementwise operations on tensors of one shape, as vectors. Of the other operations
// each has a kernel by itself, which computes its indices as it goes.

// symbolic reports whether a size of n's operands or results is known at run time only.
func symbolic(n *ir.Node) bool {
	has := func(v *ir.Value) bool {
		_, ok := v.Type().Shape().Static()
		return !ok && !v.Type().IsAsync()
	}
	return slices.ContainsFunc(n.Args(), has) || slices.ContainsFunc(n.Results(), has)
}

// generateSized is Generate of a region with sizes that are known at run time only.
func generateSized(name string, st *ir.Storages, nodes []*ir.Node) (*Kernel, error) {
	r := &region{nodes: nodes, member: map[*ir.Node]bool{}, st: st}
	for _, n := range nodes {
		r.member[n] = true
	}
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
	if len(nodes) > 1 || !errors.Is(err, ErrUnsupported) {
		return k, err
	}
	g := &sized{n: nodes[0], r: r, sizes: sizes, used: make([]bool, len(sizes)), width: 1, lanes: 1, typ: "int", inAt: map[*ir.Value]int{}}
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

// limits are what a kernel for bounds has to know to stop earlier.
type limits struct {
	rows   ir.Dim // size 0 of all results, over the parameters' names
	sizes  []ir.Dim
	vector bool // elements behind the last one may be computed, if they are not written
	single bool // tensors need not lie as loads of several elements want them
}

// rowwise makes the kernel of a region in which size 0 of every tensor, if it is no
// number, is one size that is known at run time only, and row i of the results follows
// from row i of such operands: it is that of known sizes for as many rows as there can
// be, and stops at the last one.
func rowwise(name string, r *region, sizes []ir.Dim) (*Kernel, error) {
	if len(sizes) != 1 {
		return nil, unsupported(r.nodes[0], "several sizes known at run time only")
	}
	rows := sizes[0]
	bound := ir.D(r.nodes[0].Func().Module().Bound(rows))
	typ := func(v *ir.Value) (ir.Type, bool) {
		shape := v.Type().Shape()
		if _, ok := shape.Static(); ok {
			return v.Type(), true
		}
		if _, ok := shape[1:].Static(); !ok || !shape[0].Equal(rows) {
			return ir.Type{}, false
		}
		shape = slices.Clone(shape)
		shape[0] = bound
		return ir.TensorOf(v.Type().DType(), shape), true
	}
	elementwise := true
	for _, n := range r.nodes {
		if !rowsApart(n) {
			return nil, unsupported(n, "rows of its result depend on other rows, or on how many there are")
		}
		elementwise = elementwise && (n.Op().Info().Elementwise || n.Op().IsView())
	}
	for _, v := range r.outs {
		if _, ok := v.Type().Shape().Static(); ok {
			return nil, unsupported(v.Def(), "its result has no rows of unknown number")
		}
	}
	return atBounds(name, r, typ, &limits{rows: ir.Sym(sizeName(0)), sizes: sizes, vector: elementwise})
}

// rowsApart reports whether row i of n's results follows from row i of operands of
// an unknown number of rows, whatever that number is.
func rowsApart(n *ir.Node) bool {
	fixed := func(v *ir.Value, d int) bool { // size d of v is a number
		if d < 0 {
			d += v.Type().Rank()
		}
		if d < 0 || d >= v.Type().Rank() {
			return false
		}
		_, ok := v.Type().Shape()[d].Const()
		return ok
	}
	d := int(n.Attrs().Int("dim", 0))
	switch n.Op() {
	case ir.OpView, ir.OpSqueeze, ir.OpUnsqueeze, ir.OpAlias, ir.OpClone, ir.OpFull, ir.OpIota:
		return true
	case ir.OpCat, ir.OpGather, ir.OpScatter, ir.OpSliceScatter:
		return fixed(n.Arg(0), d)
	case ir.OpEmbedding:
		return fixed(n.Arg(0), 0)
	case ir.OpIndex:
		dims := n.Attrs().Ints("dims")
		return len(dims) > 0 && !slices.ContainsFunc(dims, func(d int64) bool { return !fixed(n.Arg(0), int(d)) })
	case ir.OpCumsum:
		return false // one thread walks what is a row here
	}
	if gone, ok := reduces(n); ok {
		if _, ok := n.Arg(0).Type().Shape().Static(); ok {
			return false // rows of another number
		}
		for d, g := range gone {
			if g && !fixed(n.Arg(0), d) {
				return false
			}
		}
		return true
	}
	return n.Op().Info().Elementwise
}

// flat makes the kernel of a region of elementwise operations on tensors of one shape,
// scalars beside them: what is elementwise works on vectors.
func flat(name string, r *region, sizes []ir.Dim) (*Kernel, error) {
	shape := r.outs[0].Type().Shape()
	module := r.nodes[0].Func().Module()
	count := module.Bound(shape.NumElems())
	for _, n := range r.nodes {
		if t := n.Result(0).Type(); !n.Op().Info().Elementwise && !reshapes(n) || !t.Contiguous() || !t.Shape().NumElems().Equal(shape.NumElems()) {
			return nil, unsupported(n, "not elementwise on row-major tensors of one shape")
		}
		for _, a := range n.Args() {
			alike := a.Type().Contiguous() && (reshapes(n) || a.Type().Shape().Equal(n.Result(0).Type().Shape()))
			if !alike && !a.Type().Shape().NumElems().Equal(ir.D(1)) {
				return nil, unsupported(n, "%s is not of the shape of the result", a)
			}
		}
	}
	typ := func(v *ir.Value) (ir.Type, bool) {
		if v.Type().Shape().NumElems().Equal(ir.D(1)) {
			return ir.Tensor(v.Type().DType(), 1), true
		}
		return ir.Tensor(v.Type().DType(), count), true
	}
	return atBounds(name, r, typ, &limits{rows: named(shape, sizes), sizes: sizes, vector: true})
}

// reshapes reports whether n is a view of all of its operand in the same order.
func reshapes(n *ir.Node) bool {
	return n.Op() == ir.OpView || n.Op() == ir.OpSqueeze || n.Op() == ir.OpUnsqueeze || n.Op() == ir.OpAlias
}

// atBounds writes the kernel of a region whose tensors have the types that typ says,
// false for none that will do, and ends it at the limits.
func atBounds(name string, r *region, typ func(*ir.Value) (ir.Type, bool), lim *limits) (*Kernel, error) {
	f := ir.NewModule(1).AddFunc("f")
	at := map[*ir.Value]*ir.Value{} // of the region -> of f; look-up only
	of := map[*ir.Value]*ir.Value{} // back
	var nodes []*ir.Node
	for _, n := range r.nodes {
		s := ir.NodeSpec{Op: n.Op(), Name: n.Name(), Attrs: n.Attrs()}
		for _, a := range n.Args() {
			if at[a] == nil {
				t, ok := typ(a)
				if !ok {
					return nil, unsupported(n, "%s is %s", a, a.Type())
				}
				at[a] = f.Append(ir.NodeSpec{Op: ir.OpInput, Name: a.Def().Name(), Results: []ir.Type{t}}).Result(0)
				of[at[a]] = a
				lim.single = lim.single || !r.aligned(a, 16)
			}
			s.Args = append(s.Args, at[a])
		}
		for _, v := range n.Results() {
			t, ok := typ(v)
			if !ok || t.Shape().NumElems().Equal(ir.D(0)) {
				return nil, unsupported(n, "%s is %s", v, v.Type())
			}
			s.Results = append(s.Results, t)
		}
		m := f.Append(s)
		for i, v := range n.Results() {
			at[v], of[m.Result(i)] = m.Result(i), v
		}
		nodes = append(nodes, m)
	}
	back := ir.NodeSpec{Op: ir.OpReturn}
	for _, v := range r.outs {
		back.Args = append(back.Args, at[v])
	}
	f.Append(back)
	st, err := ir.ComputeStorages(f)
	if err != nil {
		return nil, err
	}
	k, err := generate(name, st, nodes, lim)
	if err != nil {
		return nil, err
	}
	k.Sizes = lim.sizes
	for _, list := range [2][]*ir.Value{k.Ins, k.Outs} {
		for i, v := range list {
			list[i] = of[v]
		}
	}
	return k, nil
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

	ins  []*ir.Value
	inAt map[*ir.Value]int
	vars int

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
}

// kernel writes all of it.
func (g *sized) kernel(name string) (*Kernel, error) {
	g.depth = 1
	for _, v := range slices.Concat(g.n.Args(), g.n.Results()) {
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
	if _, ok := reduces(n); ok {
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
