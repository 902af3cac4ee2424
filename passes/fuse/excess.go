package fuse

import (
	"slices"

	"github.com/seed-ee968945/concert/internal/attr"
	"github.com/seed-ee968945/concert/internal/fusion"
	"github.com/seed-ee968945/concert/ir"
	"github.com/seed-ee968945/concert/passes"
)

// widenIntermediates makes 16-bit floats that a region computes and reads again float32 on that way:
// they are rounded where they are stored, and not between two operations of one kernel. What
// jumps, such as a comparison, reads rounded numbers: it may ask whether they are equal to others
// that were stored. Conversions that the program asks for go like others.
func widenIntermediates(ctx *passes.Context, f *ir.Func) {
	writes := ir.FindWrites(f)
	var regions [][]*ir.Node
	last := int64(-1)
	for _, n := range f.Order() {
		id := n.Meta().Int(passes.FusionKey, -1)
		if id >= 0 && id != last {
			regions = append(regions, nil)
		}
		if last = id; id >= 0 {
			regions[len(regions)-1] = append(regions[len(regions)-1], n)
		}
	}
	for _, nodes := range regions {
		ctx.Tick()
		w := &widening{ctx: ctx, f: f, writes: writes, region: fusion.Of(nodes), id: nodes[0].Meta().Int(passes.FusionKey, -1)}
		for _, n := range nodes {
			w.widen(n)
		}
	}
}

// widening is one region.
type widening struct {
	ctx    *passes.Context
	f      *ir.Func
	writes *ir.Writes
	region fusion.Region
	id     int64
}

// widen keeps n's result in float32 for those in the region that can read it so.
func (w *widening) widen(n *ir.Node) {
	if !toleratesPrecision(n) || n.Ordered() || w.writes.Written(n.Result(0)) {
		return
	}
	v := n.Result(0)
	if dt := v.Type().DType(); dt == ir.BF16 || dt == ir.F16 {
		leave := 0
		for _, u := range v.Uses() {
			if !w.keepsPrecision(u.Node) {
				leave++
			}
		}
		if leave == len(v.Uses()) || !w.ctx.Enable(n.Name()) {
			return
		}
		w.ctx.Count("kept", 1)
		if leave > 0 {
			w.store(v)
		}
		w.retype(v)
	}
	if x := n.Arg(0); n.Op() == ir.OpConvert && x.Type().SameTensor(v.Type()) && !w.region.Escapes(v) {
		w.f.ReplaceUses(v, x)
		w.f.Remove(n)
	}
}

// keepsPrecision reports whether n reads numbers of more precision as well, all readers of a view among them.
func (w *widening) keepsPrecision(n *ir.Node) bool {
	if !w.region.Has(n) || n.Ordered() {
		return false
	}
	if !n.Op().IsView() {
		return toleratesPrecision(n)
	}
	if n.Op() == ir.OpAsStrided || len(n.Results()) != 1 || len(n.Result(0).Uses()) == 0 {
		return false
	}
	for _, u := range n.Result(0).Uses() {
		if !w.keepsPrecision(u.Node) {
			return false
		}
	}
	return true
}

// store rounds v for everybody else.
func (w *widening) store(v *ir.Value) {
	n := v.Def()
	s := ir.NodeSpec{Op: ir.OpConvert, Name: n.Name(), Args: []*ir.Value{v}, Results: []ir.Type{v.Type()}, HasCost: true, Pos: n.Pos(), From: []*ir.Node{n},
		Meta: attr.Make(attr.Attr{Key: passes.FusionKey, Val: attr.Int(w.id)})}
	rounded := w.f.InsertAfter(n, s)
	for _, u := range slices.Clone(v.Uses()) {
		if u.Node != rounded && !w.keepsPrecision(u.Node) {
			w.f.SetArg(u.Node, u.Index, rounded.Result(0))
		}
	}
}

// retype makes v, and views of it, float32.
func (w *widening) retype(v *ir.Value) {
	w.f.SetType(v, v.Type().WithDType(ir.F32))
	for _, u := range v.Uses() {
		if u.Node.Op().IsView() {
			w.retype(u.Node.Result(0))
		}
	}
}

// toleratesPrecision reports whether a little more precision of n's operands is a little more precision of its result,
// and not another result.
func toleratesPrecision(n *ir.Node) bool {
	switch n.Op() {
	case ir.OpSum, ir.OpMean, ir.OpAmax, ir.OpAmin, ir.OpProd:
		return true
	case ir.OpFloor, ir.OpCeil, ir.OpRound, ir.OpTrunc, ir.OpSign, ir.OpFmod, ir.OpRemainder, ir.OpFloorDivide, ir.OpTruncDivide, ir.OpBitcast:
		return false
	}
	return n.Op().Info().Elementwise && n.Result(0).Type().DType().IsFloat() && n.Result(0).Type().DType().Size() > 1
}
