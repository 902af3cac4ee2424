package progen

import (
	"fmt"
	"slices"
	"strings"

	"github.com/seed-ee968945/concert/ir"
)

// Loops and branches. A body is made as programs are, of fewer kinds of operations: it draws no
// numbers and writes none of its inputs in place. It communicates only where all ranks go the same way:
// a constant says how long the loop is, or which branch runs, or a number that is reduced over all ranks.

// inBodies are the kinds of operations of a body.
func inBodies(communicates bool) []family {
	out := []family{
		{4, (*gen).unary}, {5, (*gen).binary}, {2, (*gen).convert}, {2, (*gen).ternary}, {2, (*gen).reduce}, {4, (*gen).view}, {2, (*gen).matmul}, {2, (*gen).move}, {2, (*gen).indexed},
		{3, (*gen).inPlace}, {1, (*gen).call}, {2, (*gen).nested},
	}
	if communicates {
		out = append(out, family{6, (*gen).collective}, family{6, (*gen).waitAny}, family{2, (*gen).shard}, family{4, (*gen).row})
	}
	return out
}

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
	plain := func(v *value) bool { return !v.varying && !v.overlap && !slices.Contains(carried, v) }
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
	at, p := g.start()
	if at == nil {
		return false
	}
	if g.r.IntN(3) == 0 {
		return g.choice(at, carried, more, results, p)
	}
	return g.loop(at, carried, more, results, p)
}

// nested is a loop or a choice in a body.
func (g *gen) nested() bool { return strings.Count(g.prefix, "_") < 2 && g.control() }

// path says what decides how long a loop is or which branch runs.
type path int

const (
	own   path = iota // each rank for itself
	known             // a constant
	equal             // what is reduced over all ranks
)

// start is a small number: a constant, or what an input says.
func (g *gen) start() (*value, path) {
	one := ir.Tensor(ir.I64)
	if g.r.IntN(2) == 0 {
		return first(g.emit(ir.OpFull, nil, list("value", int64(g.r.IntN(3))), nil, one)), known
	}
	x := first(g.emit(ir.OpClamp, nil, list("min", int64(-1), "max", int64(3)), []*value{g.given(one, "")}))
	all := slices.IndexFunc(g.groups, func(gr *group) bool { return gr.size() == g.world })
	if x == nil || all < 0 || !g.communicates || g.r.IntN(2) == 0 {
		return x, own
	}
	return g.through(ir.OpAllReduce, g.groups[all], 0, "max", x), equal
}

func first(l []*value) *value {
	if len(l) == 0 {
		return nil
	}
	return l[0]
}

// body makes a function of those inputs that gives results of those types.
func (g *gen) body(name string, in, results []ir.Type, communicates, counts bool) (extra []ir.Type, text string, ok bool) {
	b := &gen{r: g.r, edges: g.edges, world: g.world, groups: g.groups, grid: g.grid, assigns: 1, calls: g.calls, dirty: map[int]bool{}, prefix: name + "_", communicates: communicates && g.communicates}
	b.kinds = inBodies(b.communicates)
	for _, s := range g.syms {
		if !s.varying {
			b.syms = append(b.syms, s)
		}
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
	if counts {
		b.donateCarried(rets, types)
	}
	text = fmt.Sprintf("func @%s(%s) -> (%s) {\n  %s\n  return %s\n}\n", name, strings.Join(b.inputs, ", "), strings.Join(types, ", "), strings.Join(b.lines, "\n  "), strings.Join(rets, ", "))
	return extra, text + strings.Join(b.bodies, ""), !strings.Contains(text, "= rand")
}

// donateCarried lets results of an iteration lie where the operands lay that they replace: those that
// lie with no input and no other result, in place of inputs that no result lies with.
func (g *gen) donateCarried(rets, types []string) {
	held := map[int]int{} // by storage: inputs and results that lie in it; look-up only
	for _, p := range g.params {
		held[p.of.store]++
	}
	lies := func(ref string) int {
		return g.pool[slices.IndexFunc(g.pool, func(v *value) bool { return v.ref == ref })].store
	}
	for _, ref := range rets {
		held[lies(ref)]++
	}
	for k, p := range g.params[:len(rets)] {
		if held[p.of.store] == 1 && held[lies(rets[k])] == 1 && types[k] == p.of.typ.String() && g.r.IntN(3) == 0 {
			g.inputs[p.at] += fmt.Sprintf(" {donate=%d}", k)
		}
	}
}

func (g *gen) loop(at *value, carried, more []*value, results []ir.Type, p path) bool {
	carried, results = append([]*value{at}, carried...), append([]ir.Type{at.typ}, results...)
	in := slices.Clone(results)
	for _, v := range more {
		in = append(in, v.typ)
	}
	n := len(g.bodies)
	cond, body := fmt.Sprintf("%smore%d", g.prefix, n), fmt.Sprintf("%sround%d", g.prefix, n)
	extra, text, ok := g.body(body, in, results, p != own, true)
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
	if p == known {
		attrs = list("body", body, "cond", cond, "uniform", true)
	}
	g.results(g.write("while", nil, attrs, append(carried, more...), results), results)
	return true
}

func (g *gen) choice(at *value, carried, more []*value, results []ir.Type, p path) bool {
	args := append(slices.Clone(carried), more...)
	var in []ir.Type
	for _, v := range args {
		in = append(in, v.typ)
	}
	var names, texts []string
	for k := range 2 + g.r.IntN(2) {
		names = append(names, fmt.Sprintf("%sbranch%d.%d", g.prefix, len(g.bodies), k))
		extra, text, ok := g.body(names[k], in, results, p != own, false)
		if !ok || len(extra) > 0 {
			return false
		}
		texts = append(texts, text)
	}
	g.bodies = append(g.bodies, texts...)
	attrs := list("branches", names)
	if p == known {
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
