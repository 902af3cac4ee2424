package cudagen

import (
	"fmt"
	"slices"

	"github.com/seed-ee968945/concert/ir"
)

// segment is a part of a dimension that comes from a tensor, from an index on.
type segment struct {
	v          *ir.Value
	from, size lin
}

// cat is its operands one after the other.
func (g *generator) cat(v *ir.Value, at []lin) (string, error) {
	n := v.Def()
	d := g.dim(n)
	var parts []segment
	for _, a := range n.Args() {
		if a.Type().Rank() == len(at) && !elements(a).Equal(ir.D(0)) {
			parts = append(parts, segment{a, lin{}, g.r.shape(a)[d].lin(g.x)})
		}
	}
	return g.choose(v, at, d, parts)
}

// choose takes a value from one of several tensors by the index along dimension d
// and computes none of the others. Where all of a thread's consecutive elements
// come from the same tensor, so do its loads.
func (g *generator) choose(v *ir.Value, at []lin, d int, parts []segment) (string, error) {
	if p, begin, ok := segmentOf(v, at[d], parts); ok {
		to := slices.Clone(at)
		to[d] = at[d].add(1, p.from).add(-1, constant(begin))
		return g.value(p.v, to)
	}
	outer := g.body
	parts = slices.DeleteFunc(parts, func(p segment) bool { return p.size.equal(lin{}) })
	c := g.choiceOf(at[d], parts)
	name := g.fresh("x")
	outer.emit("%s %s;  // %s", storageDomain(v.Type().DType()), name, v)
	defer func(n int) { g.guards = g.guards[:n] }(len(g.guards))
	start := lin{}
	var arms []arm
	for _, p := range parts {
		if p.v.Type().DType() != v.Type().DType() {
			return "", unsupported(v.Def(), "%s from %s", v.Type().DType(), p.v.Type().DType())
		}
		end := start.add(1, p.size)
		s := newScope(outer)
		test := fmt.Sprintf("%s >= %s && %s < %s", c.base.text(), start.text(), c.base.text(), end.text())
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
		s.emit("%s = %s;", name, t)
		arms = append(arms, arm{fmt.Sprintf("if (%s < %s) {", c.base.text(), end.text()), s.lines})
		start = end
	}
	outer.lines = branches(outer.lines, arms)
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
		to = append(append(to, arms[half-1].head), indent(branches(nil, arms[:half]))...)
		return append(append(append(to, "} else {"), indent(branches(nil, arms[half:]))...), "}")
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
		to = append(append(to, head), indent(a.lines)...)
	}
	return append(to, "}")
}

// segmentOf is the segment that has all elements which an index may mean, and where it begins.
func segmentOf(v *ir.Value, at lin, parts []segment) (p segment, begin int64, ok bool) {
	lo, hi := at.span()
	for _, p := range parts {
		if len(p.size.terms) > 0 {
			break
		}
		if lo >= begin && hi < begin+p.size.c && p.v.Type().DType() == v.Type().DType() {
			return p, begin, true
		}
		begin += p.size.c
	}
	return segment{}, 0, false
}

// choice is the index by which one of several segments is chosen.
type choice struct {
	base  lin
	early bool // known before the loop over a thread's consecutive elements
	runs  bool // a thread's consecutive elements are in one segment, in order
	many  bool // so many that a row of each is not read unless it is asked for
}

func (g *generator) choiceOf(at lin, parts []segment) choice {
	if g.elem == nil {
		return choice{base: at, many: len(parts) > maxArms}
	}
	base, runs := at, at.depends(g.elem)
	even, start := true, lin{}
	for _, p := range parts {
		even = even && start.divisor()%g.width == 0 && p.from.divisor()%g.width == 0
		start = start.add(1, p.size)
	}
	if b := at.add(-1, g.elem.lin()); runs && even && !b.depends(g.elem) && b.divisor()%g.width == 0 {
		base = b
	}
	early := !base.depends(g.elem) && base.early(g.elem.scope.depth)
	return choice{base, early, runs && early, len(parts) > maxArms}
}

// within is the index in p, which begins at start, of what is chosen.
func (g *generator) within(c choice, p segment, start lin, s *scope) lin {
	if p.size.equal(constant(1)) && !c.many {
		return p.from
	}
	j := g.fresh("j")
	front := s
	_, most := p.from.add(1, p.size).span()
	most, mult := most-1, int64(1)
	if c.runs {
		most, mult = most-g.width+1, g.width
	}
	a := g.x.newAtom(j, most, mult, s)
	if c.early {
		front = g.before()
		a.front = front
	}
	front.emit("const %s %s = %s;", g.intType(), j, c.base.add(1, p.from).add(-1, start).text())
	if c.runs {
		return a.lin().add(1, g.elem.lin())
	}
	return a.lin()
}

// sliceScatter is operand 0 with a slice of one dimension taken from operand 1.
func (g *generator) sliceScatter(v *ir.Value, at []lin) (string, error) {
	n := v.Def()
	d := g.dim(n)
	if parts, ok := g.overwritten(v, d); ok {
		return g.choose(v, at, d, parts)
	}
	size, count := g.r.shape(v)[d], g.r.shape(n.Arg(1))[d]
	start, step := n.Attrs().Int("start", 0), n.Attrs().Int("step", 1)
	from := constant(max(0, min(start, size.n)))
	switch {
	case size.name != "":
		p := g.fresh("p")
		g.top.emit("const %s %s = (%s)inside(%d, %s);", g.intType(), p, g.intType(), start, size.name)
		from = g.x.newAtom(p, size.n, 1, g.top).lin()
	case start < 0:
		from = constant(max(0, start+size.n))
	}
	if step == 1 || count.name == "" && count.n <= 1 {
		length := count.lin(g.x)
		end := from.add(1, length)
		return g.choose(v, at, d, []segment{{n.Arg(0), lin{}, from}, {n.Arg(1), lin{}, length}, {n.Arg(0), end, size.lin(g.x).add(-1, end)}})
	}
	if j := at[d].add(-1, from); len(j.terms) == 0 && count.name == "" { // known here
		x, to := n.Arg(0), slices.Clone(at)
		if j.c >= 0 && j.c%step == 0 && j.c/step < count.n {
			x, to[d] = n.Arg(1), constant(j.c/step)
		}
		return g.renamed(v, x, to)
	}
	j, name := g.fresh("j"), g.fresh("x")
	outer := g.body
	outer.emit("%s %s;  // %s", storageDomain(v.Type().DType()), name, v)
	outer.emit("const %s %s = %s;", g.intType(), j, at[d].add(-1, from).text())
	test := fmt.Sprintf("%s >= 0 && %s %% %d == 0 && %s / %d < %s", j, j, step, j, step, count.lin(g.x).text())
	chain := []string{"if (" + test + ") {"}
	for i, x := range []*ir.Value{n.Arg(1), n.Arg(0)} {
		if x.Type().DType() != v.Type().DType() {
			return "", unsupported(n, "%s from %s", v.Type().DType(), x.Type().DType())
		}
		s, to := newScope(outer), slices.Clone(at)
		if i == 0 {
			to[d] = g.x.newAtom(fmt.Sprintf("(%s / %d)", j, step), count.n-1, 1, s).lin()
		}
		g.body = s
		t, err := g.value(x, to)
		g.body = outer
		if err != nil {
			return "", err
		}
		s.emit("%s = %s;", name, t)
		chain = append(append(chain, indent(s.lines)...), [...]string{"} else {", "}"}[i])
	}
	outer.lines = append(outer.lines, chain...)
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
	pieces := []piece{{v, 0, size.n}}
	for base := v; ; {
		n := base.Def()
		if base != v && (g.r.Given(base) || n.Op() != ir.OpSliceScatter || g.dim(n) != d) {
			break
		}
		count := g.r.shape(n.Arg(1))[d]
		if size.name != "" || count.name != "" || n.Attrs().Int("step", 1) != 1 && count.n > 1 {
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
			hi := min(max(lo, start+count.n), p.from+p.size)
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
		parts = append(parts, segment{p.v, constant(p.from), constant(p.size)})
	}
	return parts, true
}
