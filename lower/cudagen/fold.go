package cudagen

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/seed-ee968945/concert/internal/attr"
	"github.com/seed-ee968945/concert/internal/dtype"
	"github.com/seed-ee968945/concert/internal/fusion"
	"github.com/seed-ee968945/concert/ir"
	"github.com/seed-ee968945/concert/lower/cudagen/internal/index"
)

// level is how many folds have to be finished one after the other before the
// last of n itself, counted from 1; 0 for what needs none.
func (g *generator) level(n *ir.Node, seen map[*ir.Node]int) int {
	if !g.r.Has(n) {
		return 0
	}
	if l, ok := seen[n]; ok {
		return l
	}
	l := 0
	for _, a := range n.Args() {
		l = max(l, g.level(a.Def(), seen))
	}
	if _, ok := fusion.ReducedDims(n); ok {
		switch n.Op() {
		case ir.OpCumsum:
		case ir.OpSoftmax, ir.OpLogSoftmax:
			l += 2
		default:
			l++
		}
	}
	seen[n] = l
	return l
}

// inRow checks that an index of the result of a fold, or of what it folds, is in the row at hand.
func (g *generator) inRow(n *ir.Node, at []index.Expr) error {
	keep := len(at) == len(g.f.shape)
	k := 0
	for d := range g.f.shape {
		if g.f.isReduced[d] {
			continue
		}
		e := at[k]
		if keep {
			e = at[d]
		}
		if !e.Equal(g.rowIndex[k]) {
			return unsupported(n, "it is read at another row (%s) than the one at hand (%s)", e, g.rowIndex[k])
		}
		k++
	}
	return nil
}

// folded is the result of a reduction for the row at hand.
func (g *generator) folded(v *ir.Value, at []index.Expr) (string, error) {
	if err := g.inRow(v.Def(), at); err != nil {
		return "", err
	}
	return g.fold(reduction{v.Def(), 0})
}

func isSoftmax(n *ir.Node) bool { return n.Op() == ir.OpSoftmax || n.Op() == ir.OpLogSoftmax }

// first is the reduction in whose walk r is found: r itself, or the largest element
// where the sum of exponentials comes with it.
func (g *generator) first(r reduction) reduction {
	for _, n := range g.r.nodes {
		if g.pairs[n] == r.n && (n != r.n || r.part == 1) {
			return reduction{n, 0}
		}
	}
	return r
}

// fold returns the result of a fold. The first that is asked for on a level is
// computed together with all others of that level, in one loop.
func (g *generator) fold(r reduction) (string, error) {
	if a, ok := g.folds[r]; ok {
		return g.finish(r, a), nil
	}
	if ok, err := g.sumOneHot(r); err != nil {
		return "", err
	} else if ok {
		return g.finish(r, g.folds[r]), nil
	}
	seen := map[*ir.Node]int{}
	want := g.foldLevel(g.first(r), seen)
	var all []reduction
	for _, n := range g.r.nodes {
		if _, ok := fusion.ReducedDims(n); !ok || n.Op() == ir.OpCumsum || g.r.same(n.Result(0)) != n.Result(0) {
			continue
		}
		for part := range 2 {
			q := reduction{n, part}
			if part == 1 && !isSoftmax(n) || g.first(q) != q || g.foldLevel(q, seen) != want {
				continue
			}
			if _, ok := g.folds[q]; ok {
				continue
			}
			if ok, err := g.sumOneHot(q); err != nil {
				return "", err
			} else if !ok {
				all = append(all, q)
			}
		}
	}
	// What folds of this level need is computed before their loop begins.
	accs := make([]accumulator, len(all))
	err := g.loop("", false, func() error {
		for i, q := range all {
			var err error
			if accs[i], err = g.accumulate(q); err != nil {
				return err
			}
		}
		if g.onePass && !g.written {
			g.written = true
			return g.putFull()
		}
		return nil
	})
	if err != nil {
		return "", err
	}
	g.join(accs)
	for i, q := range all {
		a := accs[i]
		switch second := g.pairs[q.n]; {
		case second == nil:
			g.folds[q] = a
		default:
			g.folds[q] = accumulator{name: a.name + ".top", typ: "f32"}
			part := 0
			if second == q.n {
				part = 1
			}
			g.folds[reduction{second, part}] = accumulator{name: "online_sum(" + a.name + ")", typ: "f32"}
		}
	}
	return g.finish(r, g.folds[r]), nil
}

// join folds the lanes' shares, and those of a cluster's blocks.
func (g *generator) join(accs []accumulator) {
	var all []string
	for _, a := range accs {
		all = append(all, a.name, a.functor+"()")
		switch {
		case g.f.lanes == 1:
		case g.f.columns:
			g.top.Emit("fold_columns<lanes, rows>(%s, %s());", a.name, a.functor)
		default:
			g.top.Emit("%s = fold_lanes<lanes, rows>(%s, %s());", a.name, a.name, a.functor)
		}
	}
	if g.f.cluster > 1 && len(all) > 0 {
		g.top.Emit("fold_cluster<cluster, %d>(%s);", g.f.rowsPerBlock, strings.Join(all, ", "))
	}
}

func (g *generator) foldLevel(r reduction, seen map[*ir.Node]int) int {
	l := g.level(r.n, seen)
	if isSoftmax(r.n) && r.part == 0 {
		l--
	}
	return l
}

// accumulator is a running fold.
type accumulator struct {
	name, typ, functor string
}

// softType is the domain in which a softmax is computed.
func softType(n *ir.Node) string {
	if n.Arg(0).Type().DType() == ir.F64 || n.Result(0).Type().DType() == ir.F64 {
		return "f64"
	}
	return "soft32"
}

// sumType is the domain in which a sum is made: that of the values, or double
// precision for those of single precision where bits have to agree.
func sumType(dom domain) string {
	if dom == domF32 {
		return "sum32"
	}
	return string(dom)
}

// accumulatorOf is what a fold runs in, without a name, and what it begins with.
func accumulatorOf(r reduction) (a accumulator, init string) {
	n := r.n
	in := n.Arg(0).Type().DType()
	dom := domainOf(in, n.Result(0).Type().DType())
	a.typ = string(dom)
	switch n.Op() {
	case ir.OpSum, ir.OpMean:
		if a.typ = sumType(dom); dom.isInt() && n.Op() == ir.OpMean {
			a.typ = string(domF64)
		}
		a.functor, init = "Sum", "0"
	case ir.OpProd:
		a.typ = sumType(dom)
		a.functor, init = "Product", "1"
	case ir.OpAmax:
		a.functor, init = "Largest", emptyExtreme("least_of", dom, in)
	case ir.OpAmin:
		a.functor, init = "Smallest", emptyExtreme("most_of", dom, in)
	case ir.OpArgmax:
		a.typ = "best<" + string(storageDomain(in)) + ">"
		a.functor, init = "First", a.typ+"{0, -1}"
	default: // softmax
		a.typ = softType(n)
		a.functor, init = "Sum", "0"
		if r.part == 0 {
			a.functor, init = "Largest", "least_of<"+a.typ+">()"
		}
	}
	return a, init
}

// emptyExtreme is the largest, by least_of, or the least, by most_of, of no elements of a type:
// narrow ones are computed in a wider type, of which only numbers of theirs may remain.
func emptyExtreme(limit string, dom domain, in dtype.DType) string {
	pick := 1
	if limit == "least_of" {
		pick = 0
	}
	if dom.isInt() && in.Size() < 8 {
		least, largest := in.Range()
		return fmt.Sprint([]int64{least, largest}[pick])
	}
	if least, largest := in.Ends(); in.IsFloat() && !math.IsInf(largest, 1) {
		return literal(attr.Number{F: []float64{least, largest}[pick]}, dom)
	}
	return limit + "<" + string(dom) + ">()"
}

// term is what element x of a row joins the fold as; column says which it is, top is
// the largest element where the fold is the sum of a softmax.
func (a accumulator) term(r reduction, x operand, column, top string) string {
	switch r.n.Op() {
	case ir.OpSum, ir.OpMean, ir.OpProd:
		return "(" + a.typ + ")" + x.text
	case ir.OpAmax, ir.OpAmin:
		return x.in(domain(a.typ))
	case ir.OpArgmax:
		return fmt.Sprintf("%s{%s, %s}", a.typ, x.text, column)
	}
	if r.part == 0 {
		return fmt.Sprintf("(%s)%s", a.typ, x.text)
	}
	return fmt.Sprintf("soft_exp(sub_of((%s)%s, %s))", a.typ, x.text, top)
}

// accumulate emits one step of a fold: the element at hand joins.
func (g *generator) accumulate(r reduction) (accumulator, error) {
	n := r.n
	x, err := g.operand(n.Arg(0), g.full())
	if err != nil {
		return accumulator{}, err
	}
	if g.pairs[n] != nil {
		return g.accumulateOnline(n, x), nil
	}
	a, init := accumulatorOf(r)
	a.name = g.fresh("s")
	top := ""
	if isSoftmax(n) && r.part == 1 {
		if top, err = g.fold(reduction{n, 0}); err != nil {
			return a, err
		}
	}
	e := a.term(r, x, g.position().String(), top)
	at := ""
	if g.f.columns {
		at = "[v]"
		if g.elem == nil {
			at = "[0]"
		}
		g.sums = append(g.sums, fmt.Sprintf("%s %s[%d];  // %s", a.typ, a.name, g.width, statement(n)),
			fmt.Sprintf("for (int v = 0; v < %d; ++v) %s[v] = %s;", g.width, a.name, init))
	} else {
		g.sums = append(g.sums, fmt.Sprintf("%s %s = %s;  // %s", a.typ, a.name, init, statement(n)))
	}
	g.body.Emit("%s%s = %s()(%s%s, %s);", a.name, at, a.functor, a.name, at, e)
	return a, nil
}

// accumulateOnline hands a thread's elements over together, so that the sum so far
// shrinks once for all of them.
func (g *generator) accumulateOnline(n *ir.Node, x operand) accumulator {
	a := accumulator{name: g.fresh("s"), typ: "online", functor: "Online"}
	g.sums = append(g.sums, fmt.Sprintf("online %s = {-inf_of<f32>(), 0};  // %s", a.name, statement(n)))
	run, at := g.fresh("q"), "0"
	if g.elem != nil {
		at = "v"
	}
	pre := g.before()
	pre.Emit("f32 %s[%d];", run, g.width)
	g.body.Emit("%s[%s] = %s;", run, at, x.text)
	pre.After = append(pre.After, fmt.Sprintf("online_step(%s, %s);", a.name, run))
	return a
}

// onlinePairs finds the reductions that one walk over long rows can find together:
// the largest element, and the sum of the exponentials of what is left when it is
// subtracted. For a softmax the pair is the node with itself. It returns nil if
// there are none.
func onlinePairs(r *region, f *form) map[*ir.Node]*ir.Node {
	if !f.rows || f.columns || f.serial || f.cached > 0 {
		return nil
	}
	var pairs map[*ir.Node]*ir.Node
	add := func(a, b *ir.Node) {
		if pairs == nil {
			pairs = map[*ir.Node]*ir.Node{}
		}
		if pairs[a] == nil {
			pairs[a] = b
		}
	}
	single := func(vs ...*ir.Value) bool {
		return !slices.ContainsFunc(vs, func(v *ir.Value) bool { return v.Type().DType() != ir.F32 })
	}
	for _, n := range r.nodes {
		if r.same(n.Result(0)) != n.Result(0) {
			continue
		}
		if isSoftmax(n) && softType(n) == "soft32" {
			add(n, n)
		}
		if n.Op() != ir.OpSum || n.Arg(0).Def().Op() != ir.OpExp {
			continue
		}
		exp := r.same(n.Arg(0)).Def()
		sub := r.same(exp.Arg(0)).Def()
		if !r.Has(exp) || !r.Has(sub) || sub.Op() != ir.OpSub || len(sub.Args()) != 2 || sub.Attrs().Number("alpha").Set {
			continue
		}
		top := r.same(sub.Arg(1)).Def()
		for r.Has(top) && top.Op().IsView() {
			top = r.same(top.Arg(0)).Def()
		}
		if r.Has(top) && top.Op() == ir.OpAmax && r.same(top.Arg(0)) == r.same(sub.Arg(0)) && single(n.Result(0), n.Arg(0), exp.Arg(0), sub.Arg(0), sub.Arg(1), top.Result(0)) {
			add(top, n)
		}
	}
	return pairs
}

// finish rounds a fold's result, once for every row at hand.
func (g *generator) finish(r reduction, a accumulator) string {
	home := g.top
	if g.f.columns && g.elem != nil {
		home = g.elem.Scope
	}
	key := fmt.Sprintf("fold %s %d", r.n.Name(), r.part)
	if t, ok := home.Memo[key]; ok {
		return t
	}
	saved := g.body
	g.body = home
	defer func() { g.body = saved }()
	n, s := r.n, a.name
	switch {
	case g.f.columns && g.elem != nil:
		s += "[v]"
	case g.f.columns:
		s += "[0]"
	}
	t := n.Result(0).Type().DType()
	var text string
	switch {
	case n.Op() == ir.OpMean:
		dom := domain(a.typ)
		text = g.define(n.Result(0), rounded(fmt.Sprintf("mean_of(%s, %s)", s, g.length()), dom, t))
	case n.Op() == ir.OpArgmax:
		text = g.define(n.Result(0), rounded(s+".at", domI64, t))
	case isSoftmax(n):
		text = g.fresh("x")
		e := s
		if r.part == 1 && n.Op() == ir.OpLogSoftmax {
			e = "soft_log(" + e + ")"
		}
		home.Emit("const %s %s = %s;", softType(n), text, e)
	default:
		text = g.define(n.Result(0), rounded(s, domain(a.typ), t))
	}
	home.Memo[key] = text
	return text
}

// inFull checks that an index is the element at hand of what is reduced.
func (g *generator) inFull(n *ir.Node, at []index.Expr) error {
	for d, e := range g.full() {
		if !at[d].Equal(e) {
			return unsupported(n, "it is read at another element (%s) than the one at hand (%s)", at[d], e)
		}
	}
	return nil
}

// softmax is exp(x - largest) / sum, or its logarithm x - largest - log(sum).
func (g *generator) softmax(v *ir.Value, at []index.Expr) (string, error) {
	n := v.Def()
	if err := g.inRow(n, at); err != nil { // any element of it will do
		return "", err
	}
	top, err := g.fold(reduction{n, 0})
	if err != nil {
		return "", err
	}
	sum, err := g.fold(reduction{n, 1})
	if err != nil {
		return "", err
	}
	x, err := g.value(n.Arg(0), at)
	if err != nil {
		return "", err
	}
	t := softType(n)
	e := fmt.Sprintf("div_of(soft_exp(sub_of((%s)%s, %s)), %s)", t, x, top, sum)
	if n.Op() == ir.OpLogSoftmax {
		e = fmt.Sprintf("sub_of(sub_of((%s)%s, %s), %s)", t, x, top, sum)
	}
	return g.define(v, "to_"+ctype(v.Type().DType())+"("+e+")"), nil
}

// cumsum adds the element at hand to a running sum. Its one lane walks the
// columns in order.
func (g *generator) cumsum(v *ir.Value, at []index.Expr) (string, error) {
	n := v.Def()
	if err := g.inFull(n, at); err != nil {
		return "", err
	}
	x, err := g.operand(n.Arg(0), at)
	if err != nil {
		return "", err
	}
	dom := domainOf(n.Arg(0).Type().DType(), v.Type().DType())
	if dom == domF32 {
		dom = domF64
	}
	if g.f.length == 1 { // known before the walk, or nothing is stored
		return g.define(v, rounded(fmt.Sprintf("add_of((%s)0, %s)", dom, x.in(dom)), dom, v.Type().DType())), nil
	}
	s := g.fresh("s")
	g.sums = append(g.sums, fmt.Sprintf("%s %s = 0;  // %s", dom, s, statement(n)))
	g.body.Emit("%s = add_of(%s, %s);", s, s, x.in(dom))
	return g.define(v, rounded(s, dom, v.Type().DType())), nil
}
