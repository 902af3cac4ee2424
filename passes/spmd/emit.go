package spmd

import (
	"fmt"
	"slices"
	"strings"

	"github.com/seed-ee968945/concert/ir"
)

// This file appends nodes to the function that is made.

// emitter appends nodes. The first error stays, and what follows it is nothing.
type emitter struct {
	to     *ir.Func
	from   *ir.Node // that is partitioned
	groups map[string]*ir.Group
	err    error
}

// op appends a node whose result types follow from its operands and what is declared.
func (e *emitter) op(o ir.Op, g *ir.Group, attrs ir.Attrs, args []*ir.Value, want ...ir.Type) []*ir.Value {
	if e.err != nil {
		return make([]*ir.Value, max(1, len(want)))
	}
	types := make([]ir.Type, len(args))
	for i, v := range args {
		types[i] = v.Type()
	}
	out, err := ir.Infer(o, g, attrs, types, want...)
	if err != nil {
		e.err = fmt.Errorf("spmd: %%%s: %s of a piece: %w", e.from.Name(), o, err)
		return make([]*ir.Value, max(1, len(want)))
	}
	return e.put(o, g, attrs, args, out)
}

// put emits an operation whose result types are known.
func (e *emitter) put(o ir.Op, g *ir.Group, attrs ir.Attrs, args []*ir.Value, results []ir.Type) []*ir.Value {
	s := ir.NodeSpec{Op: o, Args: slices.Clone(args), Results: results, Group: g, Attrs: attrs}
	if e.from != nil {
		s.From, s.Pos = []*ir.Node{e.from}, e.from.Pos()
		if o == e.from.Op() {
			s.Name = e.from.Name()
		}
	}
	return e.to.Append(s).Results()
}

func (e *emitter) one(o ir.Op, attrs ir.Attrs, args []*ir.Value, want ...ir.Type) *ir.Value {
	return e.op(o, nil, attrs, args, want...)[0]
}

// group is the group of the ranks along atoms.
func (e *emitter) group(g *grid, atoms []int8) *ir.Group {
	return e.ranks(g.groups(atoms), g, atoms)
}

// ranks declares a group, named after its atoms.
func (e *emitter) ranks(ranks [][]int, g *grid, atoms []int8) *ir.Group {
	key := fmt.Sprint(canonical(ranks))
	if out := e.groups[key]; out != nil {
		return out
	}
	m := e.to.Module()
	for _, old := range m.Groups() {
		if fmt.Sprint(canonical(old.Ranks)) == key {
			e.groups[key] = old
			return old
		}
	}
	var parts []string
	for _, r := range g.refs(atoms) {
		name := r.Name
		if !r.Whole {
			name += fmt.Sprintf("_%d_%d", r.Pre, r.Size)
		}
		parts = append(parts, name)
	}
	base := strings.Join(parts, ".")
	if base == "" {
		base = "ranks"
	}
	name := base
	for i := 1; m.Group(name) != nil; i++ {
		name = fmt.Sprintf("%s_%d", base, i)
	}
	e.groups[key] = m.AddGroup(name, ranks)
	return e.groups[key]
}

func shapeOf(v *ir.Value) []int64 {
	s, _ := v.Type().Shape().Static()
	return s
}

// contiguous is the value in row-major order.
func (e *emitter) contiguous(v *ir.Value) *ir.Value {
	if e.err != nil || v.Type().Contiguous() {
		return v
	}
	return e.one(ir.OpClone, nil, []*ir.Value{v}, ir.Tensor(v.Type().DType(), shapeOf(v)...))
}

// view is the value under another shape.
func (e *emitter) view(v *ir.Value, shape ...int64) *ir.Value {
	if e.err != nil || slices.Equal(shapeOf(v), shape) {
		return v
	}
	t := ir.Tensor(v.Type().DType(), shape...)
	if _, err := ir.Infer(ir.OpView, nil, nil, []ir.Type{v.Type()}, t); err != nil {
		v = e.contiguous(v)
	}
	return e.one(ir.OpView, nil, []*ir.Value{v}, t)
}

func (e *emitter) permute(v *ir.Value, dims []int64) *ir.Value {
	if e.err != nil || slices.IsSorted(dims) {
		return v
	}
	return e.one(ir.OpPermute, ir.A("dims", dims), []*ir.Value{v})
}

// full is a tensor of one number.
func (e *emitter) full(dt ir.DType, value any, shape ...int64) *ir.Value {
	return e.one(ir.OpFull, ir.A("value", value), nil, ir.Tensor(dt, shape...))
}

// resized cuts a dimension to n elements, or adds zeros behind its end.
func (e *emitter) resized(v *ir.Value, d int, n int64) *ir.Value {
	if e.err != nil {
		return v
	}
	shape := slices.Clone(shapeOf(v))
	switch have := shape[d]; {
	case have > n:
		return e.one(ir.OpSlice, ir.A("dim", int64(d), "start", int64(0), "end", n), []*ir.Value{v})
	case have < n:
		shape[d] = n - have
		return e.one(ir.OpCat, ir.A("dim", int64(d)), []*ir.Value{v, e.full(v.Type().DType(), 0.0, shape...)})
	}
	return v
}

// waited appends a collective of one operand and its wait.
func (e *emitter) waited(o ir.Op, g *ir.Group, attrs ir.Attrs, v *ir.Value) *ir.Value {
	a := e.op(o, g, attrs, []*ir.Value{v})
	return e.op(ir.OpWaitTensor, nil, nil, a)[0]
}

// moved is the value behind a move from a layout.
func (e *emitter) moved(g *grid, t tensor, v *ir.Value, l layout, m move) *ir.Value {
	if e.err != nil {
		return v
	}
	dim := ir.A("dim", int64(m.d))
	switch m.kind {
	case gathers:
		v = e.waited(ir.OpAllGather, e.group(g, m.atoms), dim, v)
		if len(m.to.dims[m.d]) == 0 {
			v = e.resized(v, m.d, t.shape[m.d])
		}
	case cuts:
		v = e.resized(v, m.d, m.to.pad[m.d]/g.size(l.dims[m.d]))
		v = e.op(ir.OpShard, e.group(g, m.atoms), dim, []*ir.Value{v})[0]
	case reduces:
		v = e.waited(ir.OpAllReduce, e.group(g, m.atoms), ir.A("reduce", l.reduce), v)
	case scatters:
		v = e.resized(v, m.d, m.to.pad[m.d]/g.size(l.dims[m.d]))
		v = e.waited(ir.OpReduceScatter, e.group(g, m.atoms), ir.A("dim", int64(m.d), "reduce", l.reduce), v)
	case permutes:
		v = e.waited(ir.OpCollectivePermute, e.group(g, g.rest(nil)), ir.A("pairs", g.pairs(l, g, m.to)), v)
	case exchanges:
		v = e.exchange(g, t, v, l, m)
	}
	return v
}

// exchange cuts the second dimension into a piece for each rank, and puts those that come one
// after the other along the first: pieces are a dimension of their own on the way.
func (e *emitter) exchange(g *grid, t tensor, v *ir.Value, l layout, m move) *ir.Value {
	i, j, k := m.d, m.other, g.size(m.atoms)
	v = e.resized(v, j, m.to.pad[j]/g.size(l.dims[j]))
	shape := slices.Clone(shapeOf(v))
	v = e.view(v, slices.Concat(shape[:j], []int64{k, shape[j] / k}, shape[j+1:])...)
	rank := int64(len(shape)) + 1
	v = e.contiguous(e.permute(v, transposition(rank, int64(j), 0)))
	v = e.waited(ir.OpAllToAll, e.group(g, m.atoms), nil, v)
	v = e.permute(v, transposition(rank, 0, int64(i)))
	shape[j] /= k
	shape[i] *= k
	v = e.view(v, shape...)
	if len(m.to.dims[i]) == 0 {
		v = e.resized(v, i, t.shape[i])
	}
	return v
}

// transposition are rank dimensions of which one has gone from one place to another.
func transposition(rank, from, to int64) []int64 {
	var l []int64
	for d := range rank {
		if d != from {
			l = append(l, d)
		}
	}
	return slices.Insert(l, int(to), from)
}

// pairs says from where to where pieces go, so that each rank has its piece of layout m on
// grid h, which has as many of each dimension: from itself where it can be.
func (g *grid) pairs(l layout, h *grid, m layout) []int64 {
	world := g.rest(nil)
	number := func(g *grid, l layout, rank int) string {
		at := make([]int, len(l.dims))
		for d := range l.dims {
			at[d] = g.place(rank, l.dims[d])
		}
		return fmt.Sprint(at)
	}
	at := map[int]int{} // rank -> its place in the group
	for i, r := range g.groups(world)[0] {
		at[r] = i
	}
	owners := map[string][]int{}
	for _, r := range g.devices {
		k := number(g, l, r)
		owners[k] = append(owners[k], r)
	}
	var waiting []int
	sent := map[int]bool{}
	from := make([]int, len(g.devices))
	for r := range from {
		from[r] = -1
		if slices.Contains(owners[number(h, m, r)], r) {
			from[r], sent[r] = r, true
		} else {
			waiting = append(waiting, r)
		}
	}
	for _, r := range waiting {
		l := owners[number(h, m, r)]
		k := slices.IndexFunc(l, func(o int) bool { return !sent[o] })
		from[r] = l[max(k, 0)]
		sent[from[r]] = true
	}
	var out []int64
	for r, f := range from {
		out = append(out, int64(at[f]), int64(at[r]))
	}
	return out
}
