package fusecollectives

import (
	"slices"

	"github.com/seed-ee968945/concert/ir"
)

// region is nodes that are computed chunk by chunk of their rows. Everything is by id, so that
// it holds for copies of the function.
type region struct {
	seed   ir.NodeID // the collective that it was grown from
	nodes  []ir.NodeID
	flows  map[ir.NodeID]flow
	tracks map[ir.ValueID]track // of what the nodes define
	rows   int64                // of a run
	comms  int
}

// grower finds regions.
type grower struct {
	f      *ir.Func
	table  []rule
	writes *ir.Writes
	wide   bool // through matmuls and on to the next collective
}

// may reports whether a node may be part of a region.
func (g *grower) may(n *ir.Node) bool {
	switch n.Op().Class() {
	case ir.ClassInput, ir.ClassOutput:
		return false
	}
	if n.Ordered() || n.Op() == ir.OpCall {
		return false
	}
	if n.Op().IsCollective() {
		if len(n.Args()) != 1 || n.Group().Size() < 2 || n.Result(0).Uses()[0].Node.Op() != ir.OpWaitTensor {
			return false
		}
	} else if n.Op() != ir.OpWaitTensor && !n.Op().IsView() && !n.Pure() {
		return false
	}
	if n.Op() == ir.OpWaitTensor && (!n.Arg(0).Def().Op().IsCollective() || len(n.Results()) != 1) {
		return false
	}
	for _, v := range slices.Concat(n.Args(), n.Results()) {
		if g.writes.Written(v) {
			return false
		}
		for _, t := range v.Type().Tensors() {
			if _, ok := t.Shape().Static(); !ok {
				return false
			}
		}
	}
	return true
}

func heavy(n *ir.Node) bool { return n.Op().IsCollective() || multiplies(n) }

// multiplies reports whether a node multiplies matrices.
func multiplies(n *ir.Node) bool { return n.Op() == ir.OpMatmul || n.Op() == ir.OpAddmm }

// starts are the ways in which the operand of a collective may have rows: along its own
// dimension, else along the first of more than one.
func starts(n *ir.Node) (track, bool) {
	shape, ok := n.Arg(0).Type().Shape().Static()
	if !ok {
		return none, false
	}
	d, ranks := int(n.Attrs().Int("dim", 0)), int64(n.Group().Size())
	switch n.Op() {
	case ir.OpAllGather:
		return track{d, 1, 1}, true
	case ir.OpReduceScatter, ir.OpAllToAll:
		return track{d, ranks, 1}, true
	case ir.OpAllReduce:
		for d, n := range shape {
			if n > 1 {
				return track{d, 1, 1}, true
			}
		}
	}
	return none, false
}

// grow finds the region of a collective, nil if there is none. Nodes that another region has
// are left out.
func (g *grower) grow(seed *ir.Node, taken map[ir.NodeID]bool) *region {
	if !seed.Op().IsCollective() || !g.may(seed) || taken[seed.ID()] {
		return nil
	}
	t, ok := starts(seed)
	if !ok {
		return nil
	}
	shape, _ := seed.Arg(0).Type().Shape().Static()
	r := &region{seed: seed.ID(), flows: map[ir.NodeID]flow{}, tracks: map[ir.ValueID]track{}, rows: shape[t.dim] / t.runs}
	g.up(r, seed, t, taken)
	g.down(r, seed, t, taken)
	g.trim(r)
	matmuls := 0
	for _, id := range r.nodes {
		if n := g.f.NodeByID(id); n.Op().IsCollective() {
			r.comms++
		} else if multiplies(n) {
			matmuls++
		}
	}
	if r.comms == 0 || matmuls == 0 {
		return nil
	}
	return r
}

// up takes in what makes the rows of the seed's operand, as long as nothing else reads it.
func (g *grower) up(r *region, seed *ir.Node, t track, taken map[ir.NodeID]bool) {
	want := map[ir.ValueID]track{seed.Arg(0).ID(): t}
	for n := seed.Prev(); n != nil; n = n.Prev() {
		known := make([]track, len(n.Results()))
		any, open := false, false
		for i, v := range n.Results() {
			w, ok := want[v.ID()]
			if known[i] = w; !ok {
				known[i] = none
			}
			any = any || ok
			for _, u := range v.Uses() {
				open = open || u.Node != seed && len(r.flows[u.Node.ID()].outs) == 0
			}
		}
		if !any || taken[n.ID()] || !g.may(n) || open && !heavy(n) && n.Op() != ir.OpWaitTensor {
			continue
		}
		fl, ok := flowOf(g.table, n, known, false)
		if !ok || !g.fits(r, n, fl) {
			continue
		}
		r.flows[n.ID()] = fl
		if multiplies(n) && !g.wide || n.Op().IsCollective() && !g.wide {
			continue
		}
		for i, a := range n.Args() {
			if w, ok := want[a.ID()]; fl.args[i].dim < 0 || ok && w != fl.args[i] {
				continue
			}
			want[a.ID()] = fl.args[i]
		}
	}
}

// fits reports whether a flow keeps the rows of a run, in tensors that are as long.
func (g *grower) fits(r *region, n *ir.Node, fl flow) bool {
	long := func(v *ir.Value, t track) bool {
		if t.dim < 0 {
			return true
		}
		for _, typ := range v.Type().Tensors() {
			if shape, ok := typ.Shape().Static(); !ok || t.dim >= len(shape) || shape[t.dim] != t.runs*r.rows*t.each {
				return false
			}
		}
		return true
	}
	for i, v := range n.Args() {
		if !long(v, fl.args[i]) {
			return false
		}
	}
	for i, v := range n.Results() {
		if !long(v, fl.outs[i]) {
			return false
		}
	}
	return true
}

// down follows the rows of what the region has so far.
func (g *grower) down(r *region, seed *ir.Node, t track, taken map[ir.NodeID]bool) {
	stop := map[ir.NodeID]bool{} // their results are not followed
	for _, n := range g.f.Order() {
		fl, in := r.flows[n.ID()]
		if n == seed {
			if fl, in = flowOf(g.table, n, []track{t}, true); !in || !g.fits(r, n, fl) {
				return
			}
		}
		if !in {
			known := make([]track, len(n.Args()))
			any := false
			for i, a := range n.Args() {
				w, ok := r.tracks[a.ID()]
				if known[i] = w; !ok || stop[a.Def().ID()] {
					known[i] = none
				}
				any = any || known[i].dim >= 0
			}
			if !any || taken[n.ID()] || !g.may(n) || n.Op().IsCollective() && !g.wide {
				continue
			}
			if fl, in = flowOf(g.table, n, known, true); !in || !g.fits(r, n, fl) || !g.agrees(r, n, fl) {
				continue
			}
		} else if !g.agrees(r, n, fl) {
			delete(r.flows, n.ID())
			continue
		}
		r.flows[n.ID()] = fl
		for i, v := range n.Results() {
			r.tracks[v.ID()] = fl.outs[i]
		}
		r.nodes = append(r.nodes, n.ID())
		stop[n.ID()] = multiplies(n) && !g.wide && n.At() > seed.At()
	}
}

// agrees reports whether a node asks of what the region computes for the rows that it has.
func (g *grower) agrees(r *region, n *ir.Node, fl flow) bool {
	for i, a := range n.Args() {
		if t, ok := r.tracks[a.ID()]; ok && t != fl.args[i] {
			return false
		}
	}
	return true
}

// trim keeps what lies between collectives and matmuls: what else is done to rows before the
// first and after the last one is done to all of them at once.
func (g *grower) trim(r *region) {
	above, below := map[ir.NodeID]bool{}, map[ir.NodeID]bool{}
	for _, id := range r.nodes {
		n := g.f.NodeByID(id)
		above[id] = heavy(n) || slices.ContainsFunc(n.Args(), func(a *ir.Value) bool { return above[a.Def().ID()] })
	}
	for _, id := range slices.Backward(r.nodes) {
		n := g.f.NodeByID(id)
		below[id] = heavy(n) || n.Op() == ir.OpWaitTensor
		for _, v := range n.Results() {
			below[id] = below[id] || slices.ContainsFunc(v.Uses(), func(u ir.Use) bool { return below[u.Node.ID()] })
		}
	}
	kept := r.nodes[:0]
	for _, id := range r.nodes {
		if above[id] && below[id] {
			kept = append(kept, id)
			continue
		}
		delete(r.flows, id)
		for _, v := range g.f.NodeByID(id).Results() {
			delete(r.tracks, v.ID())
		}
	}
	r.nodes = kept
	g.close(r)
}

// close drops waits without their collectives and the other way around, and what then asks
// for other rows than there are.
func (g *grower) close(r *region) {
	for again := true; again; {
		again = false
		in := func(n *ir.Node) bool { _, ok := r.flows[n.ID()]; return ok }
		for _, id := range slices.Clone(r.nodes) {
			n := g.f.NodeByID(id)
			ok := g.agrees(r, n, r.flows[id])
			switch {
			case n.Op().IsCollective():
				ok = ok && in(n.Result(0).Uses()[0].Node)
			case n.Op() == ir.OpWaitTensor:
				ok = ok && in(n.Arg(0).Def())
			}
			if ok {
				continue
			}
			again = true
			delete(r.flows, id)
			for _, v := range n.Results() {
				delete(r.tracks, v.ID())
			}
			r.nodes = slices.DeleteFunc(r.nodes, func(x ir.NodeID) bool { return x == id })
		}
	}
}
