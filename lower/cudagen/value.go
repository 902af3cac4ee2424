package cudagen

import (
	"fmt"
	"slices"
	"strings"

	"github.com/seed-ee968945/concert/internal/attr"
	"github.com/seed-ee968945/concert/internal/dtype"
	"github.com/seed-ee968945/concert/ir"
	"github.com/seed-ee968945/concert/lower/cudagen/internal/index"
)

// reduction is one fold of a node: softmax takes two.
type reduction struct {
	n    *ir.Node
	part int // 1: the second fold of a softmax, the sum
}

// value returns the expression of v at an index, a variable or a literal.
func (g *generator) value(v *ir.Value, at []index.Expr) (string, error) {
	v = g.r.same(v)
	n := v.Def()
	if !g.r.Given(v) {
		if n.Op().IsView() {
			in, err := g.throughView(v, at)
			if err != nil {
				return "", err
			}
			return g.value(n.Arg(0), in)
		}
		if n.Op() == ir.OpClone {
			return g.value(n.Arg(0), at)
		}
	}
	key := valueKey(v, at)
	if t, ok := g.body.Find(key); ok {
		return t, nil
	}
	home := g.home(at)
	saved := g.body
	if home.Depth < g.body.Depth {
		g.body = home
		defer func() { g.body = saved }()
	}
	var t string
	var err error
	if g.r.Given(v) {
		t = g.load(v, g.offset(v, at))
	} else {
		t, err = g.compute(v, at)
	}
	if err != nil {
		return "", err
	}
	home.Memo[key] = t
	return t, nil
}

func valueKey(v *ir.Value, at []index.Expr) string {
	var b strings.Builder
	b.WriteString(v.Name())
	for _, e := range at {
		b.WriteString(" " + e.String())
	}
	return b.String()
}

// home is the scope in which an index is known.
func (g *generator) home(at []index.Expr) *index.Scope {
	s := g.top
	for _, e := range at {
		if t := e.Scope(); t != nil && t.Depth > s.Depth {
			s = t
		}
	}
	return s
}

// operand returns v at an index as an operand of an operation.
func (g *generator) operand(v *ir.Value, at []index.Expr) (operand, error) {
	t, err := g.value(v, at)
	return operand{t, storageDomain(v.Type().DType())}, err
}

// parameter is which operand of the kernel v is, from now on.
func (g *generator) parameter(v *ir.Value) int {
	k, ok := g.inIndex[v]
	if !ok {
		k = len(g.ins)
		g.inIndex[v], g.ins = k, append(g.ins, v)
	}
	return k
}

// load reads a tensor in memory. A thread's consecutive elements come by one load,
// and what is read in a walk over a row that others follow stays with the thread.
func (g *generator) load(v *ir.Value, off index.Expr) string {
	g.accessed(v, off)
	k := g.parameter(v)
	name := g.fresh("x")
	t := storageDomain(v.Type().DType())
	note := "  // " + v.String()
	base, ok := g.vector(v, off)
	if !ok {
		g.body.Emit("const %s %s = load(in%d + %s);%s", t, name, k, off, note)
		return name
	}
	g.vectors++
	pre, cond := g.before(), g.condition(off)
	run := "v" + name
	key := fmt.Sprintf("%d %s", k, base)
	held, kept := g.loopRegisters[key]
	if !kept {
		held, kept = g.registers[key]
	}
	bytes := g.f.cached * g.width * int64(v.Type().DType().Size())
	switch {
	case cond != "":
		pre.Emit("vec<%s, %d> %s;%s", ctype(v.Type().DType()), g.width, run, note)
		pre.Emit("if (%s) %s = load_vec<%d>(in%d + %s);", cond, run, g.width, k, base)
	case kept:
		run = held + "[k]"
	case g.f.cached > 0 && g.col.Scope == pre && g.kept+bytes <= keepBytes:
		g.kept += bytes
		g.loopRegisters[key] = run
		g.sums = append(g.sums, fmt.Sprintf("vec<%s, %d> %s[trips];%s", ctype(v.Type().DType()), g.width, run, note))
		run += "[k]"
		pre.Emit("%s = load_vec<%d>(in%d + %s);", run, g.width, k, base)
	default:
		pre.Emit("const auto %s = load_vec<%d>(in%d + %s);%s", run, g.width, k, base, note)
	}
	g.body.Emit("const %s %s = load(%s.at + v);", t, name, run)
	return name
}

// throughView turns an index of a view into one of what it is a view of.
func (g *generator) throughView(v *ir.Value, at []index.Expr) ([]index.Expr, error) {
	n := v.Def()
	x := n.Arg(0)
	shape := sizes(x)
	in := make([]index.Expr, len(shape))
	switch n.Op() {
	case ir.OpAlias:
		in = at
	case ir.OpView, ir.OpSqueeze, ir.OpUnsqueeze:
		in = g.x.Unravel(g.x.Ravel(at, g.r.shape(v)), g.r.shape(x))
	case ir.OpPermute:
		for i, d := range n.Attrs().Ints("dims") {
			if d < 0 {
				d += int64(len(shape))
			}
			in[d] = at[i]
		}
	case ir.OpExpand:
		in = broadcast(at, shape)
	case ir.OpSlice:
		copy(in, at)
		d := dimOf(n)
		in[d] = index.Constant(n.Attrs().Int("start", 0)).Add(n.Attrs().Int("step", 1), at[d])
	case ir.OpSplit:
		copy(in, at)
		before := int64(0)
		for _, s := range n.Attrs().Ints("sizes")[:v.Index()] {
			before += s
		}
		in[dimOf(n)] = at[dimOf(n)].Add(1, index.Constant(before))
	case ir.OpSelect:
		in = slices.Insert(slices.Clone(at), dimOf(n), index.Constant(n.Attrs().Int("index", 0)))
	default:
		return nil, unsupported(n, "a view by strides of a computed tensor")
	}
	return in, nil
}

// broadcast is the index of an operand of the given shape for an index of the result.
func broadcast(at []index.Expr, shape []int64) []index.Expr {
	in := make([]index.Expr, len(shape))
	pad := len(at) - len(shape)
	for d, n := range shape {
		if n != 1 {
			in[d] = at[pad+d]
		}
	}
	return in
}

// compute emits the statements of one operation of the region.
func (g *generator) compute(v *ir.Value, at []index.Expr) (string, error) {
	n := v.Def()
	switch n.Op() {
	case ir.OpFull:
		e, dom := fullText(n)
		return g.define(v, rounded(e, dom, v.Type().DType())), nil
	case ir.OpIota:
		return g.iota(v, at)
	case ir.OpCat:
		return g.cat(v, at)
	case ir.OpSliceScatter:
		return g.sliceScatter(v, at)
	case ir.OpScatter:
		return g.scatter(v, at)
	case ir.OpIndexPut, ir.OpIndexAdd:
		return g.indexPut(v, at)
	case ir.OpGather:
		in, err := g.pos(n, 1, at, g.r.shape(n.Arg(0))[dimOf(n)], false)
		if err != nil {
			return "", err
		}
		to := slices.Clone(at)
		to[dimOf(n)] = in
		return g.renamed(v, n.Arg(0), to)
	case ir.OpIndex, ir.OpEmbedding:
		return g.indexed(v, at)
	case ir.OpSum, ir.OpMean, ir.OpAmax, ir.OpAmin, ir.OpProd, ir.OpArgmax:
		return g.folded(v, at)
	case ir.OpSoftmax, ir.OpLogSoftmax:
		return g.softmax(v, at)
	case ir.OpCumsum:
		return g.cumsum(v, at)
	case ir.OpBitcast:
		return g.bitcast(v, at)
	}
	if !n.Op().Info().Elementwise {
		return "", unsupported(n, "no form of it computes single elements")
	}
	var in []operand
	for _, a := range n.Args() {
		o, err := g.operand(a, broadcast(at, sizes(a)))
		if err != nil {
			return "", err
		}
		in = append(in, o)
	}
	e, dom, err := pointwise(n, in)
	if err != nil {
		return "", err
	}
	if e, ok := inBF16(n, in); ok {
		return g.define(v, e), nil
	}
	return g.define(v, rounded(e, dom, v.Type().DType())), nil
}

// define emits the variable of a value.
func (g *generator) define(v *ir.Value, e string) string {
	name := g.fresh("x")
	g.body.Emit("const %s %s = %s;  // %s", storageDomain(v.Type().DType()), name, e, v)
	return name
}

// renamed gives v the expression of what it is a copy of.
func (g *generator) renamed(v, of *ir.Value, at []index.Expr) (string, error) {
	if v.Type().DType() != of.Type().DType() {
		return "", unsupported(v.Def(), "%s from %s", v.Type().DType(), of.Type().DType())
	}
	t, err := g.value(of, at)
	if err != nil {
		return "", err
	}
	return g.define(v, t), nil
}

// bitcast gives bits another type.
func (g *generator) bitcast(v *ir.Value, at []index.Expr) (string, error) {
	bits, err := g.bits(v.Def().Arg(0), at)
	if err != nil {
		return "", err
	}
	return g.define(v, "from_bits_"+ctype(v.Type().DType())+"("+bits+")"), nil
}

// bits are those of v at an index. Types that they had in between are passed over: held as a number of
// another width, a NaN keeps that it is one and no more.
func (g *generator) bits(v *ir.Value, at []index.Expr) (string, error) {
	v = g.r.same(v)
	if n := v.Def(); !g.r.Given(v) {
		switch {
		case n.Op().IsView():
			in, err := g.throughView(v, at)
			if err != nil {
				return "", err
			}
			return g.bits(n.Arg(0), in)
		case n.Op() == ir.OpClone, n.Op() == ir.OpBitcast:
			return g.bits(n.Arg(0), at)
		}
	}
	t, err := g.value(v, at)
	return "bits_" + ctype(v.Type().DType()) + "(" + t + ")", err
}

// dimOf is the dimension along which n works, from 0.
func dimOf(n *ir.Node) int {
	d := n.Attrs().Int("dim", 0)
	if d < 0 {
		d += int64(n.Arg(0).Type().Rank())
	}
	return int(d)
}

func (g *generator) iota(v *ir.Value, at []index.Expr) (string, error) {
	n := v.Def()
	start, step := n.Attrs().Number("start"), n.Attrs().Number("step").Or(1)
	return g.define(v, iotaText(start, step, at[0].String(), v.Type().DType())), nil
}

// iotaText is element i of evenly spaced numbers.
func iotaText(start, step attr.Number, i string, dt dtype.DType) string {
	if start.IsFloat || step.IsFloat {
		e := fmt.Sprintf("add_of(%s, mul_of((f64)(%s), %s))", literal(start, domF64), i, literal(step, domF64))
		return rounded(e, domF64, dt)
	}
	e := fmt.Sprintf("%s + (i64)(%s) * %s", literal(start, domI64), i, literal(step, domI64))
	return rounded(e, domI64, dt)
}

// guard is a condition under which a scope is entered that a thread knows before
// it handles single elements.
type guard struct {
	in   *index.Scope
	test string
	of   *index.Atom // what the condition is about; nil: all that is in the scope
}

// condition is the conjunction of the guards around the computation of what is at an index.
// What does not depend on that which a guard is about is computed once for all of the scope,
// also where the guard does not hold.
func (g *generator) condition(at ...index.Expr) string {
	var tests []string
	for _, c := range g.guards {
		if c.of != nil && !slices.ContainsFunc(at, func(e index.Expr) bool { return e.DependsOn(c.of) }) {
			continue
		}
		for s := g.body; s != nil; s = s.Parent {
			if s == c.in {
				tests = append(tests, c.test)
				break
			}
		}
	}
	return strings.Join(tests, " && ")
}

// pos loads a position from operand k at an index and bounds it.
func (g *generator) pos(n *ir.Node, k int, at []index.Expr, size index.Extent, wrap bool) (index.Expr, error) {
	t, err := g.value(n.Arg(k), at)
	if err != nil {
		return index.Expr{}, err
	}
	home := g.home(at)
	key := fmt.Sprintf("position %s %v %v", t, size, wrap)
	name, ok := home.Find(key)
	if !ok {
		name = g.fresh("p")
		home.Emit("const %s %s = position(%s, %s, %v);", g.intType(), name, t, g.x.Size(size), wrap)
		home.Memo[key] = name
	}
	return g.x.Loaded(name, size.N-1, home, at).Expr(), nil
}

// indexed is index and embedding: index tensors take the place of dimensions,
// together where these are adjacent, in front where they are not.
func (g *generator) indexed(v *ir.Value, at []index.Expr) (string, error) {
	n := v.Def()
	x := n.Arg(0)
	dims, wrap := []int64{0}, false
	if n.Op() == ir.OpIndex {
		dims, wrap = n.Attrs().Ints("dims"), true
	}
	if len(dims) != len(n.Args())-1 {
		return "", unsupported(n, "%d index tensors for dimensions %v", len(n.Args())-1, dims)
	}
	rank := 0 // of the indices together
	for _, a := range n.Args()[1:] {
		rank = max(rank, a.Type().Rank())
	}
	front := 0
	if dims[len(dims)-1]-dims[0] == int64(len(dims)-1) {
		front = int(dims[0])
	}
	idx := at[front : front+rank]
	rest := slices.Concat(at[:front], at[front+rank:])
	to := make([]index.Expr, x.Type().Rank())
	for d := range to {
		k := slices.Index(dims, int64(d))
		if k < 0 {
			to[d], rest = rest[0], rest[1:]
			continue
		}
		p, err := g.pos(n, k+1, broadcast(idx, sizes(n.Arg(k+1))), g.r.shape(x)[d], wrap)
		if err != nil {
			return "", err
		}
		to[d] = p
	}
	return g.renamed(v, x, to)
}

// fullText is the value of a constant tensor before it is rounded.
func fullText(n *ir.Node) (string, domain) {
	e := n.Attrs().Number("value")
	if e.IsFloat {
		return literal(e, domF64), domF64
	}
	return literal(e, domI64), domI64
}
