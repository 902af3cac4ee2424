package progen

import (
	"fmt"
	"slices"
	"strings"

	"github.com/seed-ee968945/concert/ir"
)

// Loops and branches. A body is made as programs are, of fewer kinds of operations: it draws no
// numbers and writes nothing in place. It communicates only where a constant says how long the
// loop is, or which branch runs.

var inBodies = []family{
	{4, (*gen).unary}, {5, (*gen).binary}, {2, (*gen).convert}, {2, (*gen).ternary}, {2, (*gen).reduce}, {4, (*gen).view}, {2, (*gen).matmul}, {2, (*gen).move}, {2, (*gen).indexed},
}

var acrossBodies = append(slices.Clone(inBodies), family{6, (*gen).collective}, family{6, (*gen).waitAny}, family{2, (*gen).shard}, family{4, (*gen).row})

// row reads a row of a table at the loop's counter.
func (g *gen) row() bool {
	at := g.pool[0]
	if !at.typ.Equal(ir.Tensor(ir.I64)) {
		return false
	}
	at = first(g.emit(ir.OpClamp, nil, list("min", int64(0), "max", int64(2)), []*value{at}))
	if at != nil {
		at = first(g.emit(ir.OpView, nil, nil, []*value{at}, ir.Tensor(ir.I64, 1)))
	}
	return at != nil && g.emit(ir.OpIndex, nil, list("dims", []int64{0}), []*value{g.given(ir.Tensor(ir.F32, 3, 4), ""), at}) != nil
}

// control adds a loop or a choice, with its bodies.
func (g *gen) control() bool {
	var carried, more []*value
	plain := func(v *value) bool {
		_, static := v.typ.Shape().Static()
		return static && !v.varying && !v.overlap && !slices.Contains(carried, v)
	}
	for range 1 + g.r.IntN(3) {
		if v := g.pick(plain); v != nil {
			carried = append(carried, v)
		}
	}
	if len(carried) == 0 {
		carried = append(carried, g.given(ir.Tensor(ir.F32, 2, 3), ""))
	}
	for range g.r.IntN(3) {
		if v := g.pick(plain); v != nil {
			more = append(more, v)
		}
	}
	var results []ir.Type
	for _, v := range carried {
		results = append(results, ir.TensorOf(v.typ.DType(), v.typ.Shape()))
	}
	known := g.r.IntN(2) == 0
	at := g.start(known)
	if at == nil {
		return false
	}
	if g.r.IntN(3) == 0 {
		return g.choice(at, carried, more, results, known)
	}
	return g.loop(at, carried, more, results, known)
}

// start is a small number: a constant, or what an input says.
func (g *gen) start(known bool) *value {
	one := ir.Tensor(ir.I64)
	if known {
		return first(g.emit(ir.OpFull, nil, list("value", int64(g.r.IntN(3))), nil, one))
	}
	x := g.given(one, "")
	return first(g.emit(ir.OpClamp, nil, list("min", int64(-1), "max", int64(3)), []*value{x}))
}

func first(l []*value) *value {
	if len(l) == 0 {
		return nil
	}
	return l[0]
}

// body makes a function of those inputs that gives results of those types.
func (g *gen) body(name string, in, results []ir.Type, communicates, counts bool) (extra []ir.Type, text string, ok bool) {
	b := &gen{r: g.r, world: g.world, groups: g.groups, grid: g.grid, assigns: 1, dirty: map[int]bool{}, kinds: inBodies}
	if communicates {
		b.kinds = acrossBodies
	}
	for _, t := range in {
		b.given(t, "")
	}
	for range 1 + g.r.IntN(6) {
		b.step()
	}
	for len(b.flights) > 0 {
		if !b.wait() {
			return nil, "", false
		}
	}
	var rets, types []string
	for k, t := range results {
		v := b.pool[k]
		switch {
		case counts && k == 0:
			v = first(b.emit(ir.OpAdd, nil, list("scalar", int64(1)), []*value{v}))
		default:
			if w := b.pick(func(v *value) bool { return v.typ.SameTensor(t) && !v.overlap }); w != nil {
				v = w
			} else if !v.typ.SameTensor(t) {
				v = b.some(t)
			}
		}
		if v == nil || !v.typ.SameTensor(t) {
			return nil, "", false
		}
		rets, types = append(rets, v.ref), append(types, v.typ.String())
	}
	for _, p := range b.params[len(in):] {
		extra = append(extra, p.of.typ)
	}
	text = fmt.Sprintf("func @%s(%s) -> (%s) {\n  %s\n  return %s\n}\n", name, strings.Join(b.inputs, ", "), strings.Join(types, ", "), strings.Join(b.lines, "\n  "), strings.Join(rets, ", "))
	return extra, text, !strings.Contains(text, "= rand")
}

func (g *gen) loop(at *value, carried, more []*value, results []ir.Type, known bool) bool {
	carried, results = append([]*value{at}, carried...), append([]ir.Type{at.typ}, results...)
	in := slices.Clone(results)
	for _, v := range more {
		in = append(in, v.typ)
	}
	n := len(g.bodies)
	cond, body := fmt.Sprintf("more%d", n), fmt.Sprintf("round%d", n)
	extra, text, ok := g.body(body, in, results, known, true)
	if !ok {
		return false
	}
	for _, t := range extra {
		more = append(more, g.given(t, ""))
	}
	var inputs []string
	for i, t := range append(in, extra...) {
		inputs = append(inputs, fmt.Sprintf("%%x%d: %s", i, t))
	}
	g.bodies = append(g.bodies, text, fmt.Sprintf("func @%s(%s) -> (bool[]) {\n  %%c = lt %%x0 {scalar=%d} : bool[]\n  return %%c\n}\n", cond, strings.Join(inputs, ", "), 1+g.r.IntN(4)))
	attrs := list("body", body, "cond", cond)
	if known {
		attrs = list("body", body, "cond", cond, "uniform", true)
	}
	g.results(g.write("while", nil, attrs, append(carried, more...), results), results)
	return true
}

func (g *gen) choice(at *value, carried, more []*value, results []ir.Type, known bool) bool {
	args := append(slices.Clone(carried), more...)
	var in []ir.Type
	for _, v := range args {
		in = append(in, v.typ)
	}
	var names, texts []string
	for k := range 2 + g.r.IntN(2) {
		names = append(names, fmt.Sprintf("branch%d_%d", len(g.bodies), k))
		extra, text, ok := g.body(names[k], in, results, known, false)
		if !ok || len(extra) > 0 {
			return false
		}
		texts = append(texts, text)
	}
	g.bodies = append(g.bodies, texts...)
	attrs := list("branches", names)
	if known {
		attrs = list("branches", names, "uniform", true)
	}
	g.results(g.write("case", nil, attrs, append([]*value{at}, args...), results), results)
	return true
}

// results lets other operations read what an operation gives.
func (g *gen) results(refs []string, types []ir.Type) {
	for i, t := range types {
		g.pool = append(g.pool, &value{ref: refs[i], typ: t, store: g.storage()})
	}
}
