package partition

import (
	"slices"
	"strings"

	"github.com/seed-ee968945/concert/internal/attr"
	"github.com/seed-ee968945/concert/ir"
)

// emitter writes one half of a joint function.
type emitter struct {
	j    *jointFunc
	p    *savePlan
	to   *ir.Func
	val  []*ir.Value // ValueID of the joint function -> value of the half
	done []bool      // NodeID of the joint function -> written

	newest []*ir.Node // what it wrote whose operands forward or backward may have written since

	before []int32 // unit -> the repeated collective of its region before it, -1 for none; backward only
	stack  []frame
}

// frame is a node whose operands are being written.
type frame struct {
	n    *ir.Node
	next int
}

// emitHalves adds forward and backward to a module: the joint function's own, or one that
// serves to judge them.
func emitHalves(m *ir.Module, j *jointFunc, p *savePlan) (fw, bw *ir.Func) {
	through := j.passedThrough(p)
	fw = emitForward(newEmitter(m, j, p, ".fw"), through)
	bw = emitBackward(newEmitter(m, j, p, ".bw"), through)
	donateHalves(j, fw, bw)
	return fw, bw
}

// donateHalves donates inputs of the half that returns what they are donated to.
func donateHalves(j *jointFunc, fw, bw *ir.Func) {
	for _, d := range j.f.Donations() {
		half, at := fw, slices.Index(j.fwOuts, d.Result)
		if at < 0 {
			half, at = bw, slices.Index(j.bwOuts, d.Result)
		}
		for _, f := range []*ir.Func{fw, bw} {
			n := f.Lookup(d.Input.Name())
			switch {
			case f == half:
				f.SetAttrs(n, n.Attrs().With(ir.DonateKey, attr.Int(int64(at))))
			case n != nil && n.Donated():
				f.SetAttrs(n, n.Attrs().Without(ir.DonateKey))
			}
		}
	}
}

// keptDonation returns a donation that halves cannot keep: forward's result would take
// the place of what backward reads by any name, or of a tangent.
func (j *jointFunc) keptDonation(p *savePlan) *ir.Donation {
	through := j.passedThrough(p)
	handed := map[*ir.Value]bool{} // whose storages backward gets; look-up only
	for r := range j.roots {
		v := j.roots[r].val.Root()
		handed[v] = handed[v] || through[r] || p.saved[r] || j.roots[r].tangent
	}
	for _, d := range j.f.Donations() {
		if handed[d.Input.Result(0)] && slices.Contains(j.fwOuts, d.Result) {
			return &d
		}
	}
	return nil
}

func newEmitter(m *ir.Module, j *jointFunc, p *savePlan, suffix string) *emitter {
	return &emitter{j: j, p: p, to: m.AddFunc(j.f.Name + suffix),
		val: make([]*ir.Value, j.f.NumValueIDs()), done: make([]bool, j.f.NumNodeIDs())}
}

// passedThrough marks the inputs that backward reads although they are not saved.
func (j *jointFunc) passedThrough(p *savePlan) []bool {
	out := make([]bool, len(j.roots))
	need := func(r int32) { out[r] = out[r] || j.roots[r].free }
	eachBackwardRoot(j, need)
	for _, d := range j.f.Donations() { // backward takes what one of its results is to lie in, as forward leaves it
		if r := j.rootOf[d.Input.Result(0).ID()]; r >= 0 && slices.Contains(j.bwOuts, d.Result) && !j.roots[r].tangent {
			out[r] = !p.saved[r]
		}
	}
	for i := range j.units {
		if p.again[i] {
			for _, r := range j.units[i].args {
				need(r)
			}
		}
	}
	return out
}

// emitForward writes the forward half in the joint order.
func emitForward(e *emitter, through []bool) *ir.Func {
	j, p := e.j, e.p
	ret := j.f.Return()
	var outs []*ir.Value
	for _, k := range j.fwOuts {
		outs = append(outs, ret.Arg(k))
	}
	for r := range j.roots {
		if through[r] && !j.roots[r].async {
			outs = append(outs, j.roots[r].val)
		}
	}
	for r := range j.roots {
		if p.saved[r] {
			outs = append(outs, j.roots[r].val)
		}
	}
	need := make([]bool, j.f.NumValueIDs())
	for _, v := range outs {
		need[v.ID()] = true
	}
	order := j.f.Order()
	runs := make([]bool, j.f.NumNodeIDs())
	for i := len(order) - 1; i >= 0; i-- {
		n := order[i]
		if u := j.unitOf[n.ID()]; u >= 0 {
			runs[n.ID()] = p.fw[u]
		} else if n.Op().IsView() {
			for _, v := range n.Results() {
				runs[n.ID()] = runs[n.ID()] || need[v.ID()]
			}
		}
		if runs[n.ID()] {
			for _, a := range n.Args() {
				need[a.ID()] = true
			}
		}
	}
	for _, n := range order {
		switch {
		case n.Op() == ir.OpInput:
			v := n.Result(0)
			if r := &j.roots[j.rootOf[v.ID()]]; r.tangent || r.async && !need[v.ID()] {
				continue
			}
			e.write(n)
		case runs[n.ID()]:
			e.write(n)
		}
	}
	e.finish(outs, j.fwOuts, "forward", 0)
	return e.to
}

// finish writes the return; the first operands are the joint function's results
// at the given places, which follow first others.
func (e *emitter) finish(outs []*ir.Value, places []int, half string, first int) {
	args := make([]*ir.Value, len(outs))
	for i, v := range outs {
		args[i] = e.get(v)
	}
	e.copySaved(args, places)
	ret := e.j.f.Return()
	meta := ret.Meta().Without(MetaForward).Without("outputs").With(metaHalf, attr.String(half))
	list, plain := make([]int64, len(places)), true
	for i, k := range places {
		list[i] = int64(k)
		plain = plain && k == first+i
	}
	if !plain {
		meta = meta.With(MetaPlaces, attr.Ints(list...))
	}
	made := e.to.Append(ir.NodeSpec{Op: ret.Op(), Name: ret.Name(), Args: args, Meta: meta, Pos: ret.Pos()})
	e.to.ReadNewest(append(e.newest, made)...) // a saved tensor goes to backward as forward has left it
}

// copySaved copies results that are to lie in place of a donated input, but came into
// the half as inputs themselves.
func (e *emitter) copySaved(args []*ir.Value, places []int) {
	for _, d := range e.j.f.Donations() {
		i := slices.Index(places, d.Result)
		if i < 0 || !ir.FromCaller(args[i]) || ir.StorageOf(args[i]).Def() == e.to.Lookup(d.Input.Name()) {
			continue
		}
		n := e.to.Append(ir.NodeSpec{Op: ir.OpClone, Name: args[i].Def().Name() + "_clone", Args: args[i : i+1 : i+1], Results: []ir.Type{args[i].Type()}})
		e.newest = append(e.newest, n)
		args[i] = n.Result(0)
	}
}

// emitBackward writes the backward half: its own nodes in the joint order, each
// preceded by what it needs and backward does not have yet.
func emitBackward(e *emitter, through []bool) *ir.Func {
	j := e.j
	e.inputs(through)
	last, trail := e.regionEnds()
	for _, n := range j.f.Order() {
		i := j.unitOf[n.ID()]
		if i < 0 {
			continue
		}
		u := &j.units[i]
		if u.side != sideBackward || !u.wanted {
			continue
		}
		e.demand(n)
		if n == u.nodes[len(u.nodes)-1] {
			for _, k := range last[i] {
				e.demandUnits(trail[k])
			}
		}
	}
	for _, t := range trail {
		e.demandUnits(t)
	}
	ret := j.f.Return()
	var outs []*ir.Value
	for _, k := range j.bwOuts {
		outs = append(outs, ret.Arg(k))
		e.demandValue(ret.Arg(k))
	}
	e.finish(outs, j.bwOuts, "backward", len(j.fwOuts))
	return e.to
}

// inputs writes backward's signature.
func (e *emitter) inputs(through []bool) {
	j := e.j
	input := func(r int32, name string, meta attr.List) {
		v := j.roots[r].val
		n := e.to.Append(ir.NodeSpec{Op: ir.OpInput, Name: name, Results: []ir.Type{v.Type()}, Meta: meta, Pos: v.Def().Pos(), From: []*ir.Node{v.Def()}})
		e.val[v.ID()] = n.Result(0)
		e.done[v.Def().ID()] = e.done[v.Def().ID()] || v.Def().Op() == ir.OpInput
	}
	for r := range j.roots {
		if d := j.roots[r].val.Def(); through[r] && !j.roots[r].async {
			input(int32(r), d.Name(), d.Meta().With(metaFrom, attr.String(d.Name())))
		}
	}
	for r := range j.roots {
		if !e.p.saved[r] {
			continue
		}
		v := j.roots[r].val
		name := strings.ReplaceAll(v.Name(), "#", ".")
		if u := j.roots[r].unit; u >= 0 && e.p.again[u] {
			name += ".saved"
		}
		input(int32(r), name, attr.Make(attr.Attr{Key: "role", Val: attr.String(string(ir.RoleSaved))}, attr.Attr{Key: metaFrom, Val: attr.String(v.Name())}))
	}
	for r := range j.roots {
		if root := &j.roots[r]; root.tangent || through[r] && root.async {
			input(int32(r), root.val.Def().Name(), root.val.Def().Meta())
		}
	}
}

// regionEnds says when the collectives of repeated regions that backward itself
// does not ask for are due: after the last unit that reads a value of the region.
// trail lists them by region, last the regions that end with a unit.
func (e *emitter) regionEnds() (last map[int32][]int, trail [][]int32) {
	j := e.j
	e.before = minusOnes(len(j.units))
	index := map[int64]int{} // look-up only
	var end []int32
	for i := range j.units {
		u := &j.units[i]
		if u.rerun {
			k, ok := index[u.region]
			if !ok {
				k = len(trail)
				index[u.region] = k
				trail, end = append(trail, nil), append(end, -1)
			}
			if t := trail[k]; len(t) > 0 {
				e.before[i] = t[len(t)-1]
			}
			trail[k] = append(trail[k], int32(i))
		}
	}
	for i := range j.units {
		u := &j.units[i]
		if u.side != sideBackward || !u.wanted {
			continue
		}
		for _, r := range u.args {
			if def := j.roots[r].unit; def >= 0 && j.roots[r].inside {
				if k, ok := index[j.units[def].region]; ok {
					end[k] = int32(i)
				}
			}
		}
	}
	last = map[int32][]int{} // look-up only
	for k, i := range end {
		if i >= 0 {
			last[i] = append(last[i], k)
		}
	}
	return last, trail
}

func (e *emitter) demandUnits(units []int32) {
	for _, i := range units {
		for _, n := range e.j.units[i].nodes {
			e.demand(n)
		}
	}
}

// demandValue writes what defines v, if it is not there yet.
func (e *emitter) demandValue(v *ir.Value) {
	if n := e.source(v); n != nil {
		e.demand(n)
	}
}

// source is the node that has to be written so that v is available; nil if it is.
func (e *emitter) source(v *ir.Value) *ir.Node {
	if e.get(v) != nil || e.done[e.substitute(v).Def().ID()] {
		return nil
	}
	return e.substitute(v).Def()
}

// substitute is the value that is read in place of v: of a version that forward wrote,
// the name before, since what backward gets has these contents; of a duplicate, the one
// that backward has in any case.
func (e *emitter) substitute(v *ir.Value) *ir.Value {
	for e.before != nil && v.IsVersion() && !e.runs(v.Def()) {
		v = v.Before()
	}
	if r := e.j.rootOf[v.ID()]; e.before != nil && r >= 0 {
		if root := &e.j.roots[r]; root.duplicate >= 0 && root.val == v {
			return e.j.roots[root.duplicate].val
		}
	}
	return v
}

// runs reports whether backward runs n, for the first time or again.
func (e *emitter) runs(n *ir.Node) bool {
	u := e.j.unitOf[n.ID()]
	return e.j.units[u].side == sideBackward || e.p.again[u]
}

// get is the value of the half for a value of the joint function.
func (e *emitter) get(v *ir.Value) *ir.Value {
	if w := e.val[v.ID()]; w != nil {
		return w
	}
	return e.val[e.substitute(v).ID()]
}

// demand writes n and, before it, what it needs and is not there: depth first, so
// that each stands directly before its first use. Iterative, since chains of
// repeated operations are as long as the program.
func (e *emitter) demand(n *ir.Node) {
	if e.done[n.ID()] {
		return
	}
	e.stack = append(e.stack[:0], frame{n, -1})
	for len(e.stack) > 0 {
		f := &e.stack[len(e.stack)-1]
		if e.done[f.n.ID()] {
			e.stack = e.stack[:len(e.stack)-1]
			continue
		}
		var need *ir.Node
		if f.next < 0 {
			f.next = 0
			if i := e.j.unitOf[f.n.ID()]; i >= 0 && e.before[i] >= 0 { // collectives of a region keep their order
				nodes := e.j.units[e.before[i]].nodes
				need = nodes[len(nodes)-1]
			}
		}
		for need == nil && f.next < len(f.n.Args()) {
			need = e.source(f.n.Arg(f.next))
			f.next++
		}
		if need != nil {
			if !e.done[need.ID()] {
				e.stack = append(e.stack, frame{need, -1})
			}
			continue
		}
		e.write(f.n)
		e.stack = e.stack[:len(e.stack)-1]
	}
}

// write copies a node whose operands are there.
func (e *emitter) write(n *ir.Node) {
	s := n.Spec()
	for i, a := range s.Args {
		s.Args[i] = e.get(a)
	}
	if i := e.j.unitOf[n.ID()]; e.before != nil && i >= 0 && e.p.again[i] && e.p.fw[i] {
		s.Meta = s.Meta.With(MetaRecompute, attr.Bool(true))
	}
	made := e.to.Append(s)
	if n.Op().IsView() { // a name that stands at its first use, behind writes by other names
		e.newest = append(e.newest, made)
	}
	for k, v := range n.Results() {
		if e.val[v.ID()] == nil {
			e.val[v.ID()] = made.Result(k)
		}
	}
	e.done[n.ID()] = true
}
