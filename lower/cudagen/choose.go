package cudagen

import (
	"fmt"
	"slices"

	"github.com/seed-ee968945/concert/ir"
	"github.com/seed-ee968945/concert/lower/cudagen/internal/index"
)

// segment is a part of a dimension that comes from a tensor, from an index on.
type segment struct {
	v          *ir.Value
	from, size index.Expr
}

// cat is its operands one after the other.
func (g *generator) cat(v *ir.Value, at []index.Expr) (string, error) {
	n := v.Def()
	d := dimOf(n)
	var parts []segment
	for _, a := range n.Args() {
		if a.Type().Rank() == len(at) && !elements(a).Equal(ir.D(0)) {
			parts = append(parts, segment{a, index.Expr{}, g.x.Size(g.r.shape(a)[d])})
		}
	}
	return g.choose(v, at, d, parts)
}

// choose takes a value from one of several tensors by the index along dimension d
// and computes none of the others. Where all of a thread's consecutive elements
// come from the same tensor, so do its loads.
func (g *generator) choose(v *ir.Value, at []index.Expr, d int, parts []segment) (string, error) {
	if p, begin, ok := segmentOf(v, at[d], parts); ok {
		to := slices.Clone(at)
		to[d] = at[d].Add(1, p.from).Add(-1, index.Constant(begin))
		return g.value(p.v, to)
	}
	outer := g.body
	parts = slices.DeleteFunc(parts, func(p segment) bool { return p.size.Equal(index.Expr{}) })
	c := g.choiceOf(at[d], parts)
	name := g.fresh("x")
	outer.Emit("%s %s;  // %s", storageDomain(v.Type().DType()), name, v)
	defer func(n int) { g.guards = g.guards[:n] }(len(g.guards))
	start := index.Expr{}
	var arms []arm
	for _, p := range parts {
		if p.v.Type().DType() != v.Type().DType() {
			return "", unsupported(v.Def(), "%s from %s", v.Type().DType(), p.v.Type().DType())
		}
		end := start.Add(1, p.size)
		s := index.NewScope(outer)
		test := fmt.Sprintf("%s >= %s && %s < %s", c.base, start, c.base, end)
		to := slices.Clone(at)
		to[d] = g.within(c, p, start, s)
		n := len(g.guards)
		if c.early {
			g.guards = append(g.guards, guard{in: s, test: test})
		}
		g.body = s
		t, err := g.value(p.v, to)
		g.body = outer
		g.guards = g.guards[:n]
		if err != nil {
			return "", err
		}
		s.Emit("%s = %s;", name, t)
		arms = append(arms, arm{fmt.Sprintf("if (%s < %s) {", c.base, end), s.Lines})
		start = end
	}
	outer.Lines = branches(outer.Lines, arms)
	return name, nil
}

// arm is what is done below the end of a segment.
type arm struct {
	head  string
	lines []string
}

// maxArms is how many ends are compared one after the other. More are found by halves: a compiler
// nests an if in every else, as deep as there are segments, and threads would try half of them.
const maxArms = 8

// branches appends the first of the arms whose end an index is below; the last has no test.
func branches(to []string, arms []arm) []string {
	if len(arms) > maxArms {
		half := len(arms) / 2
		to = append(append(to, arms[half-1].head), index.Indent(branches(nil, arms[:half]))...)
		return append(append(append(to, "} else {"), index.Indent(branches(nil, arms[half:]))...), "}")
	}
	for i, a := range arms {
		head := a.head
		switch {
		case len(arms) == 1:
			head = "{"
		case i == len(arms)-1:
			head = "} else {"
		case i > 0:
			head = "} else " + head
		}
		to = append(append(to, head), index.Indent(a.lines)...)
	}
	return append(to, "}")
}

// segmentOf is the segment that has all elements which an index may mean, and where it begins.
func segmentOf(v *ir.Value, at index.Expr, parts []segment) (p segment, begin int64, ok bool) {
	lo, hi := at.Bounds()
	for _, p := range parts {
		size, known := p.size.Const()
		if !known {
			break
		}
		if lo >= begin && hi < begin+size && p.v.Type().DType() == v.Type().DType() {
			return p, begin, true
		}
		begin += size
	}
	return segment{}, 0, false
}

// choice is the index by which one of several segments is chosen.
type choice struct {
	base  index.Expr
	early bool // known before the loop over a thread's consecutive elements
	runs  bool // a thread's consecutive elements are in one segment, in order
	many  bool // so many that a row of each is not read unless it is asked for
}

func (g *generator) choiceOf(at index.Expr, parts []segment) choice {
	if g.elem == nil {
		return choice{base: at, many: len(parts) > maxArms}
	}
	base, runs := at, at.DependsOn(g.elem)
	even, start := true, index.Expr{}
	for _, p := range parts {
		even = even && start.Divisor()%g.width == 0 && p.from.Divisor()%g.width == 0
		start = start.Add(1, p.size)
	}
	if b := at.Add(-1, g.elem.Expr()); runs && even && !b.DependsOn(g.elem) && b.Divisor()%g.width == 0 {
		base = b
	}
	early := !base.DependsOn(g.elem) && base.KnownBefore(g.elem.Scope.Depth)
	return choice{base, early, runs && early, len(parts) > maxArms}
}

// within is the index in p, which begins at start, of what is chosen.
func (g *generator) within(c choice, p segment, start index.Expr, s *index.Scope) index.Expr {
	if p.size.Equal(index.Constant(1)) && !c.many {
		return p.from
	}
	j := g.fresh("j")
	front := s
	_, most := p.from.Add(1, p.size).Bounds()
	most, mult := most-1, int64(1)
	if c.runs {
		most, mult = most-g.width+1, g.width
	}
	a := g.x.NewAtom(j, most, mult, s)
	if c.early {
		front = g.before()
		a.Front = front
	}
	front.Emit("const %s %s = %s;", g.intType(), j, c.base.Add(1, p.from).Add(-1, start))
	if c.runs {
		return a.Expr().Add(1, g.elem.Expr())
	}
	return a.Expr()
}

// sliceScatter is operand 0 with a slice of one dimension taken from operand 1.
func (g *generator) sliceScatter(v *ir.Value, at []index.Expr) (string, error) {
	n := v.Def()
	d := dimOf(n)
	if parts, ok := g.overwritten(v, d); ok {
		return g.choose(v, at, d, parts)
	}
	size, count := g.r.shape(v)[d], g.r.shape(n.Arg(1))[d]
	start, step := n.Attrs().Int("start", 0), n.Attrs().Int("step", 1)
	from := index.Constant(max(0, min(start, size.N)))
	switch {
	case size.Name != "":
		p := g.fresh("p")
		g.top.Emit("const %s %s = (%s)inside(%d, %s);", g.intType(), p, g.intType(), start, size.Name)
		from = g.x.NewAtom(p, size.N, 1, g.top).Expr()
	case start < 0:
		from = index.Constant(max(0, start+size.N))
	}
	if step == 1 || count.Name == "" && count.N <= 1 {
		length := g.x.Size(count)
		end := from.Add(1, length)
		return g.choose(v, at, d, []segment{{n.Arg(0), index.Expr{}, from}, {n.Arg(1), index.Expr{}, length}, {n.Arg(0), end, g.x.Size(size).Add(-1, end)}})
	}
	if j, known := at[d].Add(-1, from).Const(); known && count.Name == "" {
		x, to := n.Arg(0), slices.Clone(at)
		if j >= 0 && j%step == 0 && j/step < count.N {
			x, to[d] = n.Arg(1), index.Constant(j/step)
		}
		return g.renamed(v, x, to)
	}
	j, name := g.fresh("j"), g.fresh("x")
	outer := g.body
	outer.Emit("%s %s;  // %s", storageDomain(v.Type().DType()), name, v)
	outer.Emit("const %s %s = %s;", g.intType(), j, at[d].Add(-1, from))
	test := fmt.Sprintf("%s >= 0 && %s %% %d == 0 && %s / %d < %s", j, j, step, j, step, g.x.Size(count))
	chain := []string{"if (" + test + ") {"}
	for i, x := range []*ir.Value{n.Arg(1), n.Arg(0)} {
		if x.Type().DType() != v.Type().DType() {
			return "", unsupported(n, "%s from %s", v.Type().DType(), x.Type().DType())
		}
		s, to := index.NewScope(outer), slices.Clone(at)
		if i == 0 {
			to[d] = g.x.NewAtom(fmt.Sprintf("(%s / %d)", j, step), count.N-1, 1, s).Expr()
		}
		g.body = s
		t, err := g.value(x, to)
		g.body = outer
		if err != nil {
			return "", err
		}
		s.Emit("%s = %s;", name, t)
		chain = append(append(chain, index.Indent(s.Lines)...), [...]string{"} else {", "}"}[i])
	}
	outer.Lines = append(outer.Lines, chain...)
	return name, nil
}

// overwritten is what a slice_scatter along d was put together of, the slice_scatters before it
// included, as far as they are in the region: loops that were unrolled write one row after the
// other, and choices inside each other would be as deep as there are rows. False where a size is not
// known here. Quadratic in the length of the chain at worst.
func (g *generator) overwritten(v *ir.Value, d int) ([]segment, bool) {
	type piece struct {
		v          *ir.Value
		from, size int64
	}
	size := g.r.shape(v)[d]
	pieces := []piece{{v, 0, size.N}}
	for base := v; ; {
		n := base.Def()
		if base != v && (g.r.Given(base) || n.Op() != ir.OpSliceScatter || dimOf(n) != d) {
			break
		}
		count := g.r.shape(n.Arg(1))[d]
		if size.Name != "" || count.Name != "" || n.Attrs().Int("step", 1) != 1 && count.N > 1 {
			if base == v {
				return nil, false
			}
			break
		}
		start := n.Attrs().Int("start", 0)
		rest := g.r.same(n.Arg(0))
		for !g.r.Given(rest) && rest.Def().Op() == ir.OpClone {
			rest = g.r.same(rest.Def().Arg(0))
		}
		var next []piece
		for _, p := range pieces {
			if p.v != base {
				next = append(next, p)
				continue
			}
			lo := min(max(p.from, start), p.from+p.size)
			hi := min(max(lo, start+count.N), p.from+p.size)
			for _, q := range []piece{{rest, p.from, lo - p.from}, {n.Arg(1), lo - start, hi - lo}, {rest, hi, p.from + p.size - hi}} {
				if q.size > 0 {
					next = append(next, q)
				}
			}
		}
		pieces, base = next, rest
	}
	var parts []segment
	for _, p := range pieces {
		parts = append(parts, segment{p.v, index.Constant(p.from), index.Constant(p.size)})
	}
	return parts, true
}
