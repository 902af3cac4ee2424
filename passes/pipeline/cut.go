package pipeline

import (
	"fmt"
	"slices"

	"github.com/seed-ee968945/concert/ir"
	"github.com/seed-ee968945/concert/passes"
)

// class says when a node of the step runs.
type class uint8

const (
	asked    class = iota // views and constants: wherever somebody reads them
	once                  // what reads no data: on each stage that reads it, once in a step
	forward               // in each micro-batch's forward
	backward              // in its backward
	summed                // once, behind the sum over micro-batches
)

// metaForward is what package partition calls MetaForward.
const metaForward = "forward"

// cut says which chunk computes what. A place is one in the list of forward's nodes; backward's
// have places among them, so that a node never comes after what it reads.
type cut struct {
	ctx   *passes.Context
	f     *ir.Func
	shape Shape

	class   []class // by node
	place   []int   // by node of forward and backward
	last    []int   // by value: place of the last of forward that reads it, -1 for none
	forward []*ir.Node
	ends    []int // by chunk: place behind its last node
	late    []bool
	results []*ir.Value
	sums    map[*ir.Value]*ir.Value // by result: what is summed over micro-batches; look-up only

	up, down [][]*ir.Value // by chunk: what goes to the next one in forward, and comes back in backward

	transfers, moved int64
}

// decide cuts the step.
func (c *cut) decide() error {
	if err := c.check(); err != nil {
		return err
	}
	c.unbucket()
	c.results = c.f.Return().Args()
	c.classify()
	c.reductions()
	c.places()
	if len(c.forward) < c.shape.Chunks {
		return fmt.Errorf("@%s: forward has %d operations that are not views, fewer than the %d chunks", c.f.Name, len(c.forward), c.shape.Chunks)
	}
	if err := c.divide(); err != nil {
		return err
	}
	c.crossings()
	c.weights()
	return nil
}

// check refuses what stages cannot compute.
func (c *cut) check() error {
	f, m := c.f, c.f.Module()
	if len(f.Donations()) > 0 {
		return fmt.Errorf("@%s donates inputs: cut the step without its updates", f.Name)
	}
	bodies := map[*ir.Func]bool{} // look-up only
	var follow func(g *ir.Func)
	follow = func(g *ir.Func) {
		for _, n := range g.Order() {
			for _, b := range n.Bodies() {
				bodies[b] = true
				follow(b)
			}
		}
	}
	follow(f)
	for _, g := range m.Funcs() {
		if g != f && !bodies[g] {
			return fmt.Errorf("the module has @%s beside @%s: pipeline takes a step of one function", g.Name, f.Name)
		}
	}
	for _, n := range f.Order() {
		switch {
		case n.Effects()&(ir.EffectWrites|ir.EffectRandom) != 0:
			return fmt.Errorf("%%%s writes in place or draws random numbers: stages repeat it for each micro-batch", n.Name())
		case n.Op() == ir.OpCall && n.Effects() != 0 || n.Op() == ir.OpReadSize || n.Ordered():
			return fmt.Errorf("%%%s has effects or a place in an order that stages do not keep", n.Name())
		case n.Op() == ir.OpInput && n.Result(0).Type().IsAsync():
			return fmt.Errorf("input %%%s is in flight", n.Name())
		}
		if r := n.Role(); n.Op() == ir.OpInput && r != ir.RoleData && r != ir.RoleParameter && r != ir.RoleTangent {
			return fmt.Errorf("input %%%s has the role %q: want data, which has rows for each micro-batch, parameter, or tangent", n.Name(), r)
		}
		if t := n.Results(); n.Op() == ir.OpInput && isData(n) {
			shape := t[0].Type().Shape()
			if len(shape) == 0 {
				return fmt.Errorf("input %%%s is data without rows: what all micro-batches read is a parameter", n.Name())
			}
			if _, ok := shape[0].Const(); !ok || !t[0].Type().Contiguous() {
				return fmt.Errorf("input %%%s: %s has no rows in a row to cut it by", n.Name(), t[0].Type())
			}
		}
	}
	for k, v := range f.Return().Args() {
		if d := v.Type().DType(); v.Type().IsAsync() || !d.IsFloat() {
			return fmt.Errorf("result %d is %s: want floats to average over micro-batches", k, v.Type())
		}
		if d := v.Viewed().Def(); d.Op() == ir.OpInput && isData(d) {
			return fmt.Errorf("result %d is input %%%s, which each micro-batch has rows of", k, d.Name())
		}
	}
	if len(f.Return().Args()) == 0 {
		return fmt.Errorf("@%s has no result", f.Name)
	}
	return nil
}

// unbucket takes buckets apart: one that holds the loss and gradients belongs to no phase.
func (c *cut) unbucket() {
	f := c.f
	for _, n := range slices.Clone(f.Order()) {
		if op := n.Op(); len(n.Args()) < 2 || op != ir.OpAllReduce && op != ir.OpReduceScatter && op != ir.OpAllGather {
			continue
		}
		w := n.Result(0).Uses()[0].Node
		for i, t := range n.Result(0).Type().Elems() {
			s := n.Spec()
			s.Args, s.Results, s.Members = s.Args[i:i+1], []ir.Type{ir.Async(t)}, nil
			if s.HasCost {
				s.Cost /= float64(len(n.Args()))
			}
			start := f.InsertBefore(n, s)
			got := f.InsertBefore(w, ir.NodeSpec{Op: ir.OpWaitTensor, Name: w.Name(), Args: start.Results(), Results: []ir.Type{t}, From: []*ir.Node{w}})
			f.ReplaceUses(w.Result(i), got.Result(0))
		}
		f.Remove(w)
		f.Remove(n)
	}
}

func isData(n *ir.Node) bool { return n.Role() == ir.RoleData }

// classify says when each node runs.
func (c *cut) classify() {
	f := c.f
	c.class = make([]class, f.NumNodeIDs())
	data, tangent := make([]bool, f.NumNodeIDs()), make([]bool, f.NumNodeIDs())
	for _, n := range f.Order() {
		id := n.ID()
		data[id] = n.Op() == ir.OpInput && isData(n)
		tangent[id] = n.Role() == ir.RoleTangent && n.Op() == ir.OpInput
		for _, a := range n.Args() {
			data[id] = data[id] || data[a.Def().ID()]
			tangent[id] = tangent[id] || tangent[a.Def().ID()]
		}
		switch {
		case n.Op() == ir.OpInput || n.Op() == ir.OpReturn || n.Op().IsView() || len(n.Args()) == 0:
			c.class[id] = asked
		case data[id] || tangent[id]:
			c.class[id] = backward
		default:
			c.class[id] = once
		}
	}
	var first []*ir.Value
	if n := f.Return().Meta().Int(metaForward, -1); n >= 0 {
		first = c.results[:min(int(n), len(c.results))]
	} else if slices.Contains(tangent, true) {
		for _, v := range c.results {
			if !tangent[v.Def().ID()] {
				first = append(first, v)
			}
		}
	} else {
		first = c.results[:1]
	}
	seen := make([]bool, f.NumNodeIDs())
	var visit func(n *ir.Node)
	visit = func(n *ir.Node) {
		if seen[n.ID()] {
			return
		}
		seen[n.ID()] = true
		if c.class[n.ID()] == backward {
			c.class[n.ID()] = forward
		}
		for _, a := range n.Args() {
			visit(a.Def())
		}
	}
	for _, v := range first {
		visit(v.Def())
	}
}

// reductions finds the results that are reduced over ranks: the sum over micro-batches is reduced
// once, instead of each of them. Of a reduce_scatter that takes memory for the whole gradient.
func (c *cut) reductions() {
	c.sums = map[*ir.Value]*ir.Value{}
	for _, v := range c.results {
		c.sums[v] = v
	}
	for _, v := range c.results {
		w := v.Viewed().Def()
		if w.Op() != ir.OpWaitTensor || !c.runs(w.Result(0)) {
			continue
		}
		s := w.Arg(0).Def()
		linear := s.Reduction() == ir.Sum || s.Reduction() == ir.Avg
		if !(s.Op() == ir.OpAllReduce || s.Op() == ir.OpReduceScatter && c.ctx.Bool("scatter-once")) || !linear || len(s.Args()) != 1 || !c.returned(w.Result(0), v) || !c.runs(s.Arg(0).Viewed()) {
			continue
		}
		c.class[w.ID()], c.class[s.ID()] = summed, summed
		c.sums[v] = s.Arg(0)
		c.ctx.Count("reduced-once", 1)
	}
}

// returned reports whether nothing reads a value, and no view of it, but result v.
func (c *cut) returned(x, v *ir.Value) bool {
	for _, u := range x.Uses() {
		switch {
		case u.Node.Op() == ir.OpReturn:
			if x != v {
				return false
			}
		case !u.Node.Op().IsView():
			return false
		default:
			for _, r := range u.Node.Results() {
				if !c.returned(r, v) {
					return false
				}
			}
		}
	}
	return true
}

// places gives nodes their places.
func (c *cut) places() {
	f := c.f
	c.place, c.last = make([]int, f.NumNodeIDs()), make([]int, f.NumValueIDs())
	for i := range c.last {
		c.last[i] = -1
	}
	for _, n := range f.Order() {
		if c.class[n.ID()] == forward {
			c.place[n.ID()] = len(c.forward)
			for _, v := range n.Results() {
				c.last[v.ID()] = len(c.forward)
			}
			for _, a := range n.Args() {
				r := a.Viewed()
				c.last[r.ID()] = max(c.last[r.ID()], len(c.forward))
			}
			c.forward = append(c.forward, n)
		}
	}
	for _, n := range slices.Backward(f.Order()) { // what is computed once is read where its results are
		if c.class[n.ID()] == once {
			for _, v := range n.Results() {
				for _, a := range n.Args() {
					r := a.Viewed()
					c.last[r.ID()] = max(c.last[r.ID()], c.last[v.ID()])
				}
			}
		}
	}
	for _, n := range f.Order() {
		if c.class[n.ID()] != backward {
			continue
		}
		at := len(c.forward) - 1
		for _, a := range n.Args() {
			r := a.Viewed()
			if d := r.Def(); c.class[d.ID()] == backward {
				at = min(at, c.place[d.ID()])
			} else if c.last[r.ID()] >= 0 {
				at = min(at, c.last[r.ID()])
			}
		}
		c.place[n.ID()] = at
	}
}

// chunk is the chunk of a node of forward or backward.
func (c *cut) chunk(n *ir.Node) int {
	at := c.place[n.ID()]
	i, _ := slices.BinarySearch(c.ends, at+1)
	return i
}

// runs reports whether the value is computed by a chunk for each micro-batch.
func (c *cut) runs(v *ir.Value) bool {
	k := c.class[v.Def().ID()]
	return k == forward || k == backward
}

// crossings lists what each chunk sends: in forward what later ones read, in any phase, and in
// backward what earlier ones do.
func (c *cut) crossings() {
	c.up, c.down = make([][]*ir.Value, c.shape.Chunks), make([][]*ir.Value, c.shape.Chunks)
	lo, hi := map[*ir.Value]int{}, map[*ir.Value]int{} // by root: the chunks that read it; look-up only
	read := func(v *ir.Value, chunk int) {
		v = v.Viewed()
		if !c.runs(v) {
			return
		}
		if _, ok := lo[v]; !ok {
			lo[v], hi[v] = c.chunk(v.Def()), c.chunk(v.Def())
		}
		lo[v], hi[v] = min(lo[v], chunk), max(hi[v], chunk)
	}
	for _, n := range c.f.Order() {
		if k := c.class[n.ID()]; k == forward || k == backward {
			for _, a := range n.Args() {
				read(a, c.chunk(n))
			}
		}
	}
	for _, n := range c.f.Order() {
		for _, v := range n.Results() {
			if _, ok := lo[v]; !ok {
				continue
			}
			own := c.chunk(n)
			for k := own; k < hi[v]; k++ {
				c.up[k] = append(c.up[k], v)
			}
			for k := own; k > lo[v]; k-- {
				c.down[k-1] = append(c.down[k-1], v)
			}
		}
	}
}

// weights finds what of backward no other chunk waits for.
func (c *cut) weights() {
	c.late = make([]bool, c.f.NumNodeIDs())
	waited := make([]bool, c.f.NumNodeIDs())
	for _, l := range c.down {
		for _, v := range l {
			waited[v.Def().ID()] = true
		}
	}
	for _, n := range slices.Backward(c.f.Order()) {
		if waited[n.ID()] {
			for _, a := range n.Args() {
				waited[a.Def().ID()] = true
			}
		}
		c.late[n.ID()] = c.class[n.ID()] == backward && !waited[n.ID()]
	}
}

// phase is when a node of a micro-batch runs.
func (c *cut) phase(n *ir.Node) Phase {
	switch {
	case c.class[n.ID()] == forward:
		return Forward
	case c.late[n.ID()]:
		return Weights
	}
	return Backward
}

// times are what the chunks take by the costs.
func (c *cut) times() *Times {
	k := c.shape.Chunks
	t := &Times{Forward: make([]float64, k), Backward: make([]float64, k), Weights: make([]float64, k), Up: make([]float64, k), Down: make([]float64, k)}
	for _, n := range c.f.Order() {
		if l := c.class[n.ID()]; l == forward || l == backward {
			[][]float64{t.Forward, t.Backward, t.Weights}[c.phase(n)][c.chunk(n)] += c.ctx.Cost(n)
		}
	}
	for i := range k {
		for _, l := range []struct {
			of []*ir.Value
			to *float64
		}{{c.up[i], &t.Up[i]}, {c.down[i], &t.Down[i]}} {
			bytes := int64(0)
			for _, v := range l.of {
				bytes += c.bytes(v)
			}
			*l.to, _ = c.transfer(bytes)
		}
	}
	return t
}
