package sdy

import (
	"fmt"
	"slices"
	"strings"

	"github.com/seed-ee968945/concert/ir/stablehlo/mlir"
)

// This file reads shardings as programs had them before the sdy dialect: texts such as
// {devices=[2,1,2]<=[4] last_tile_dim_replicate} in the attribute mhlo.sharding of arguments,
// results and calls of @Sharding, and calls that go from whole tensors to pieces and back. They
// become shardings on one mesh, whose axes are as fine as the texts need it.

// oldMesh is the name of that mesh.
const oldMesh = "gspmd"

// older says what old shardings say in the words of the sdy dialect, if a module of several
// partitions has any, and has no meshes.
func older(m *mlir.Module) error {
	if meshed(m) {
		return nil
	}
	r := &rewriter{m: m, world: 1}
	if a, ok := m.Attrs.Get("mhlo.num_partitions"); ok {
		n, err := m.Integer(a)
		if err != nil {
			return err
		}
		r.world = n
	}
	if err := r.places(); err != nil || len(r.all) == 0 {
		return err
	}
	if a, ok := m.Attrs.Get("mhlo.num_replicas"); ok {
		if n, err := m.Integer(a); err != nil || n != 1 {
			return m.ErrorAt(nil, a.At, "op not supported: mhlo.sharding in a program of several replicas")
		}
	}
	if err := r.axes(); err != nil {
		return err
	}
	text, end := &strings.Builder{}, len(m.Source.Text)
	text.WriteString("\n")
	span := func(s string) mlir.Attr {
		start := end + text.Len()
		text.WriteString(s + "\n")
		return mlir.Attr{Kind: mlir.KindOpaque, Text: "sdy.sharding", At: start, Start: start, End: start + len(s)}
	}
	var axes []string
	for _, a := range r.mesh {
		axes = append(axes, fmt.Sprintf("%q=%d", a.name, a.size))
	}
	for _, p := range r.all {
		at := p.at
		a := span(r.said(p))
		a.At = at
		p.set(a)
	}
	for _, o := range r.marks {
		o.Name = "stablehlo.optimization_barrier"
	}
	mesh := span("[" + strings.Join(axes, ", ") + "]")
	m.Others = append(m.Others, &mlir.Operation{Name: "sdy.mesh", At: m.At, Flags: []mlir.Attr{mlir.Symbol(m.At, oldMesh), mesh}})
	m.Source.Extend(text.String())
	return nil
}

// rewriter collects old shardings and the places that have them.
type rewriter struct {
	m     *mlir.Module
	world int64
	all   []*stated
	marks []*mlir.Operation // of results, whose attributes say the same
	mesh  []axis            // from the outermost
}

// axis is an axis of the mesh: so many devices, so far apart.
type axis struct {
	name         string
	size, stride int64
}

// stated are the shardings that a place has.
type stated struct {
	at   int
	list []*tiling
	many bool // it is a list by its place
	set  func(a mlir.Attr)
}

// places finds what states old shardings.
func (r *rewriter) places() error {
	for _, f := range r.m.Funcs {
		for i := range f.Args {
			a := &f.Args[i]
			if err := r.place(&a.Attrs, []mlir.Type{a.Type}, false); err != nil {
				return err
			}
		}
		for i := range min(len(f.ResultAttrs), len(f.Results)) {
			if err := r.place(&f.ResultAttrs[i], f.Results[i:i+1], false); err != nil {
				return err
			}
		}
		if f.Body != nil {
			if err := r.block(f.Body); err != nil {
				return err
			}
		}
	}
	return nil
}

// place notes the attribute of a place; what it says is added under the dialect's name.
func (r *rewriter) place(to *mlir.Attrs, types []mlir.Type, many bool) error {
	a, ok := to.Get("mhlo.sharding")
	if !ok {
		return r.carried(to)
	}
	l, err := r.tilings(a, types)
	if err != nil || l == nil {
		return err
	}
	r.all = append(r.all, &stated{a.At, l, many, func(a mlir.Attr) {
		*to = append(slices.Clone(*to), mlir.Named{Name: "sdy.sharding", Val: a})
	}})
	return nil
}

// carried refuses shardings of the dialect that are carried through another form of the program, and
// say something of several devices.
func (r *rewriter) carried(to *mlir.Attrs) error {
	a, _ := to.Get("mhlo.frontend_attributes")
	if s, ok := a.Dict.Get("xla.sdy.sharding"); ok && r.world > 1 && strings.Contains(s.Text, `{"`) {
		return r.m.ErrorAt(nil, s.At, "op not supported: xla.sdy.sharding without mhlo.sharding beside it: print the program before it was serialized")
	}
	return nil
}

// block finds them among operations.
func (r *rewriter) block(b *mlir.Block) error {
	for _, o := range b.Ops {
		for _, inner := range o.Regions {
			if err := r.block(inner); err != nil {
				return err
			}
		}
		var err error
		switch t := (&subject{op: o}).target(); {
		case o.Name == "stablehlo.custom_call" && len(o.Operands) == 1 && t == "xla.sdy.FuncResultSharding":
			r.marks = append(r.marks, o)
		case o.Name != "stablehlo.custom_call" || len(o.Operands) != 1 || t != "Sharding" && t != "SPMDFullToShardShape" && t != "SPMDShardToFullShape":
			err = r.place((*mlir.Attrs)(&o.Attrs), o.ResultTypes(), true)
		case t == "Sharding":
			err = r.constraint(o)
		default:
			err = r.pieces(b, o, t == "SPMDFullToShardShape")
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// constraint makes a call of @Sharding a constraint.
func (r *rewriter) constraint(o *mlir.Operation) error {
	a, ok := o.Attr("mhlo.sharding")
	if !ok {
		return nil
	}
	if strings.Contains(strings.ReplaceAll(a.Text, " ", ""), "{manual}") { // of a piece
		o.Name = "stablehlo.optimization_barrier"
		return nil
	}
	l, err := r.tilings(a, o.ResultTypes())
	if err != nil || l == nil {
		if err == nil && r.world > 1 {
			o.Name = "stablehlo.optimization_barrier"
		}
		return err
	}
	if c, ok := o.Attr("backend_config"); ok {
		if err := l[0].open(r.m, c); err != nil {
			return err
		}
	}
	r.all = append(r.all, &stated{a.At, l, false, func(a mlir.Attr) {
		o.Name, o.Attrs = "sdy.sharding_constraint", append(slices.Clone(o.Attrs), mlir.Named{Name: "sharding", Val: a})
	}})
	return nil
}

// pieces notes of a call what its whole tensor is cut into.
func (r *rewriter) pieces(b *mlir.Block, o *mlir.Operation, cut bool) error {
	from, types := o, o.ResultTypes()
	if cut { // what the call of @Sharding that makes its operand says
		i := slices.IndexFunc(b.Ops, func(d *mlir.Operation) bool { return slices.Contains(d.Defines(), o.Operands[0].Use) })
		if i < 0 || r.target(b.Ops[i]) != "Sharding" {
			return r.m.ErrorAt(o, 0, "op not supported: a call of @SPMDFullToShardShape of what is no result of @Sharding")
		}
		from, types = b.Ops[i], b.Ops[i].ResultTypes()
	}
	a, _ := from.Attr("mhlo.sharding")
	l, err := r.tilings(a, types)
	if err == nil && l == nil {
		err = r.m.ErrorAt(o, 0, "the call has no sharding: want mhlo.sharding = {devices=...}")
	}
	if err != nil {
		return err
	}
	r.all = append(r.all, &stated{a.At, l, false, func(a mlir.Attr) {
		o.Attrs = append(slices.Clone(o.Attrs), mlir.Named{Name: piecesOf, Val: a})
	}})
	return nil
}

// piecesOf is the attribute of a call that goes from a tensor to pieces, or back.
const piecesOf = "concert.pieces"

func (r *rewriter) target(o *mlir.Operation) string { return (&subject{op: o}).target() }

// said is what a place states, in the words of the dialect.
func (r *rewriter) said(p *stated) string {
	var l []string
	for _, t := range p.list {
		l = append(l, t.sharding(r.mesh))
	}
	if !p.many {
		return l[0]
	}
	return "[<" + strings.Join(l, ">, <") + ">]"
}

// axes cuts the devices so finely that every tiling is along axes.
func (r *rewriter) axes() error {
	cuts := []int64{1, r.world}
	for _, p := range r.all {
		for _, t := range p.list {
			for _, d := range t.dims {
				for _, f := range d.digits {
					cuts = append(cuts, f.stride, f.stride*f.size)
				}
			}
		}
	}
	slices.Sort(cuts)
	cuts = slices.Compact(cuts)
	for i := len(cuts) - 1; i > 0; i-- {
		if cuts[i]%cuts[i-1] != 0 {
			return r.m.ErrorAt(nil, r.all[0].at, "op not supported: shardings that cut %d devices into %d and into %d: they are on no common mesh", r.world, cuts[i], cuts[i-1])
		}
		r.mesh = append(r.mesh, axis{fmt.Sprintf("d%d", len(r.mesh)), cuts[i] / cuts[i-1], cuts[i-1]})
	}
	return nil
}
