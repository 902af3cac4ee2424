package fuse

import (
	"slices"

	"github.com/seed-ee968945/concert/internal/attr"
	"github.com/seed-ee968945/concert/internal/fusion"
	"github.com/seed-ee968945/concert/ir"
	"github.com/seed-ee968945/concert/passes"
)

// recomputer lets regions compute once more what another region would have to write for them:
// what a layer norm's gradient needs of its forward pass follows from the input and two
// numbers a row. Results of a region go if everything that reads them is a region that one
// kernel can still compute, if that moves fewer bytes, and if no more memory is live at any
// time: a result was live up to its last reader, and what it is computed from now is.
type recomputer struct {
	f      *ir.Func
	writes *ir.Writes
	limit  int // most launches of a region, 0 for any number
	next   int64
	units  []*unit
	of     map[*ir.Node]*unit // look-up only
	at     map[*ir.Node]int   // positions at the beginning; what is put into a unit has its first node's
}

// unit is a region, or a launch that could be one.
type unit struct {
	id    int64 // -1: a launch by itself
	nodes []*ir.Node
}

// recompute does so for all regions of a function, in order.
func recompute(ctx *passes.Context, f *ir.Func, limit int) {
	a := &recomputer{f: f, writes: ir.FindWrites(f), limit: limit, of: map[*ir.Node]*unit{}, at: map[*ir.Node]int{}}
	for i, n := range f.Order() {
		a.at[n] = i
		id := n.Meta().Int(passes.FusionKey, -1)
		if id < 0 && !fusion.Fusable(n) {
			continue
		}
		if k := len(a.units) - 1; id < 0 || k < 0 || a.units[k].id != id {
			a.units = append(a.units, &unit{id: id})
		}
		p := a.units[len(a.units)-1]
		p.nodes, a.of[n], a.next = append(p.nodes, n), p, max(a.next, id+1)
	}
	for _, p := range a.units {
		ctx.Tick()
		all := a.results(ctx, p)
		if len(all) == 0 {
			continue
		}
		sets := [][]*ir.Value{all}
		if len(all) > 1 {
			for _, v := range all {
				sets = append(sets, []*ir.Value{v})
			}
		}
		for _, set := range sets {
			if a.try(p, set) {
				ctx.Count("again", float64(len(set)))
				if len(set) == len(all) {
					break
				}
			}
		}
	}
}

// results are the large ones of a unit that only units read, and that are cheap to compute again.
func (a *recomputer) results(ctx *passes.Context, p *unit) (out []*ir.Value) {
	r, largest := fusion.Of(p.nodes), int64(0)
	for _, n := range p.nodes {
		if r.Writes(n) {
			largest = max(largest, elements(n.Result(0)))
		}
	}
	for _, n := range p.nodes {
		if n.Op().IsView() || !cheapPerElement(n) || elements(n.Result(0)) < largest/2 {
			continue // such as a number for each row, which is read faster
		}
		if readers, ok := a.readers(p, n.Result(0), nil); ok && len(readers) > 0 && !a.writes.Written(n.Result(0)) && ctx.Enable(n.Name()) {
			out = append(out, n.Result(0))
		}
	}
	return out
}

// cheapPerElement reports whether each element of n's result follows from few others at little cost.
func cheapPerElement(n *ir.Node) bool {
	if len(n.Results()) != 1 || !n.Pure() || !fusion.Fusable(n) {
		return false
	}
	i := n.Op().Info()
	return i.Elementwise && !i.Costly || n.Op() == ir.OpFull || n.Op() == ir.OpIota || n.Op() == ir.OpClone
}

// readers lists the other units that read v, a result of p, if all that do are units.
func (a *recomputer) readers(p *unit, v *ir.Value, found []*unit) ([]*unit, bool) {
	for _, u := range v.Uses() {
		n, q := u.Node, a.of[u.Node]
		switch {
		case n.Op().IsView():
			if n.Op() == ir.OpAsStrided || len(n.Results()) != 1 || n.Ordered() {
				return nil, false
			}
			var ok bool
			if found, ok = a.readers(p, n.Result(0), found); !ok {
				return nil, false
			}
		case q == nil:
			return nil, false
		case q != p && !slices.Contains(found, q):
			found = append(found, q)
		}
	}
	return found, true
}

// attempt is results of p on their way into the units that read them.
type attempt struct {
	*recomputer
	p       *unit
	set     []*ir.Value
	written []*ir.Value // what p writes already
	moves   []move
}

// move is a unit that computes them for itself.
type move struct {
	q       *unit
	given   []*ir.Value        // what it reads already
	reads   []*ir.Value        // of the set
	leaves  []*ir.Value        // and what it reads in their place
	whether map[*ir.Value]bool // expands; look-up only
	made    map[*ir.Value]*ir.Value
	nodes   []*ir.Node
	args    []replaced
}

// replaced is an operand that was another value.
type replaced struct {
	n   *ir.Node
	i   int
	was *ir.Value
}

// try makes the readers of a set of p's results compute them, if that gains something.
func (a *recomputer) try(p *unit, set []*ir.Value) bool {
	if slices.ContainsFunc(set, func(v *ir.Value) bool { return a.f.NodeByID(v.Def().ID()) != v.Def() }) {
		return false
	}
	t := &attempt{recomputer: a, p: p, set: set}
	r := fusion.Of(p.nodes)
	for _, n := range p.nodes {
		if r.Writes(n) {
			t.written = append(t.written, n.Results()...)
		}
	}
	var into []*unit
	for _, v := range set {
		readers, ok := a.readers(p, v, nil)
		if !ok || len(readers) == 0 {
			return false
		}
		for _, q := range readers {
			if !slices.Contains(into, q) {
				into = append(into, q)
			}
		}
	}
	for _, q := range into {
		t.moves = append(t.moves, t.plan(q))
	}
	for _, m := range t.moves {
		if slices.ContainsFunc(m.leaves, a.writes.Written) {
			return false // it may be something else by then
		}
	}
	if !t.gains() || !t.fits() {
		return false
	}
	for i := range t.moves {
		t.apply(&t.moves[i])
	}
	if !t.kernels() {
		t.undo()
		return false
	}
	t.keep()
	return true
}

// plan finds what q would read.
func (t *attempt) plan(q *unit) move {
	m := move{q: q, whether: map[*ir.Value]bool{}, made: map[*ir.Value]*ir.Value{}}
	for _, n := range q.nodes {
		if n.Op().IsView() {
			continue
		}
		for _, v := range n.Args() {
			b := v.Viewed()
			if t.of[b.Def()] == q {
				continue
			}
			list := &m.given
			if slices.Contains(t.set, b) {
				list = &m.reads
			}
			if !slices.Contains(*list, b) {
				*list = append(*list, b)
			}
		}
	}
	m.leaves = t.leaves(&m, m.reads)
	return m
}

// leaves are what values, no views, are computed from, as far as m has to read it.
func (t *attempt) leaves(m *move, of []*ir.Value) (found []*ir.Value) {
	seen := map[*ir.Value]bool{} // look-up only
	var walk func(v *ir.Value)
	walk = func(v *ir.Value) {
		if v = v.Viewed(); seen[v] || slices.Contains(m.given, v) {
			return
		}
		if seen[v] = true; !t.expands(m, v) {
			found = append(found, v)
			return
		}
		for _, x := range v.Def().Args() {
			walk(x)
		}
	}
	for _, v := range of {
		walk(v)
	}
	return found
}

// expands reports whether m computes v, no view, and does not read it.
func (t *attempt) expands(m *move, v *ir.Value) bool {
	yes, known := m.whether[v]
	if known {
		return yes
	}
	switch n := v.Def(); {
	case slices.Contains(t.set, v):
		yes = true
	case t.of[n] != t.p || !cheapPerElement(n) || t.writes.Written(v) || slices.Contains(m.given, v):
	case !slices.Contains(t.written, v):
		yes = true
	default:
		yes = t.bytes(t.leaves(m, n.Args())) < size(v)
	}
	m.whether[v] = yes
	return yes
}

// bytes is what it takes to read values, and to write those that p does not yet.
func (t *attempt) bytes(vs []*ir.Value) (sum int64) {
	for _, v := range vs {
		sum += size(v)
		if t.of[v.Def()] == t.p && !slices.Contains(t.written, v) {
			sum += size(v)
		}
	}
	return sum
}

func size(v *ir.Value) int64 { return elements(v) * int64(v.Type().DType().Size()) }

// gains reports whether fewer bytes move.
func (t *attempt) gains() bool {
	saved, spent := int64(0), int64(0)
	for _, v := range t.set {
		saved += size(v)
	}
	var fresh []*ir.Value
	for _, m := range t.moves {
		for _, v := range m.reads {
			saved += size(v)
		}
		for _, v := range m.leaves {
			spent += size(v)
			if t.of[v.Def()] == t.p && !slices.Contains(t.written, v) && !slices.Contains(fresh, v) {
				fresh = append(fresh, v)
				spent += size(v)
			}
			if d := v.Def(); d.Donated() && t.lastRead(v) < t.at[m.q.nodes[0]] {
				const launch = 8 << 20      // bytes that move while one begins and ends
				spent += launch + 2*size(v) // who takes its place might have to be copied
			}
		}
	}
	return spent < saved
}

// lastRead is the position of the last node that reads v or a view of it.
func (a *recomputer) lastRead(v *ir.Value) int {
	last := a.at[v.Def()]
	for _, u := range v.Uses() {
		last = max(last, a.at[u.Node])
		if u.Node.Op().IsView() {
			for _, r := range u.Node.Results() {
				last = max(last, a.lastRead(r))
			}
		}
	}
	return last
}

// fits reports whether no more memory is live behind p than before, at the end of every unit
// that reads the set: until then its results were.
func (t *attempt) fits() bool {
	type span struct {
		bytes int64
		end   int
	}
	var gone, longer []span
	m := t.f.Module()
	for _, v := range t.set {
		gone = append(gone, span{m.Bound(v.Type().Extent()), t.lastRead(v)})
	}
	ends := map[*ir.Value]int{} // look-up only
	var order []*ir.Value
	for _, mv := range t.moves {
		end := t.at[mv.q.nodes[len(mv.q.nodes)-1]]
		for _, v := range mv.leaves {
			if _, ok := ends[v]; !ok {
				order = append(order, v)
			}
			ends[v] = max(ends[v], end)
		}
	}
	for _, v := range order {
		if fresh := t.of[v.Def()] == t.p && !slices.Contains(t.written, v); fresh || t.lastRead(v) < ends[v] {
			longer = append(longer, span{m.Bound(v.Type().Extent()), ends[v]})
		}
	}
	for _, at := range longer {
		was, now := int64(0), int64(0)
		for _, s := range gone {
			if s.end >= at.end-t.width(at.end) {
				was += s.bytes
			}
		}
		for _, s := range longer {
			if s.end >= at.end {
				now += s.bytes
			}
		}
		if now > was {
			return false
		}
	}
	return true
}

// width is how many nodes come before the last one of the unit that ends at a position.
func (t *attempt) width(end int) int {
	for _, m := range t.moves {
		if nodes := m.q.nodes; t.at[nodes[len(nodes)-1]] == end {
			return end - t.at[nodes[0]]
		}
	}
	return 0
}

// apply puts what computes the set into a unit.
func (t *attempt) apply(m *move) {
	if m.q.id < 0 {
		m.q.id = t.next
		t.next++
	}
	for _, n := range m.q.nodes {
		for i, v := range n.Args() {
			if b := v.Viewed(); slices.Contains(t.set, b) && t.of[v.Def()] != m.q {
				m.args = append(m.args, replaced{n, i, v})
				t.f.SetArg(n, i, t.materialize(m, v))
			}
		}
	}
}

// materialize returns v as m has it.
func (t *attempt) materialize(m *move, v *ir.Value) *ir.Value {
	if w := m.made[v]; w != nil {
		return w
	}
	b := v.Viewed()
	if slices.Contains(m.leaves, b) || slices.Contains(m.given, b) {
		return v
	}
	n := v.Def()
	s := ir.NodeSpec{Op: n.Op(), Name: n.Name(), Attrs: n.Attrs(), HasCost: !n.Op().IsView(), Pos: n.Pos(), From: []*ir.Node{n},
		Meta: n.Meta().With(passes.FusionKey, attr.Int(m.q.id))}
	for _, x := range n.Args() {
		s.Args = append(s.Args, t.materialize(m, x))
	}
	for _, r := range n.Results() {
		s.Results = append(s.Results, r.Type())
	}
	c := t.f.InsertBefore(m.q.nodes[0], s)
	t.at[c] = t.at[m.q.nodes[0]]
	m.nodes = append(m.nodes, c)
	for i, r := range n.Results() {
		m.made[r] = c.Result(i)
	}
	return m.made[v]
}

// kernels reports whether each unit is one kernel still.
func (t *attempt) kernels() bool {
	for _, m := range t.moves {
		nodes := slices.Concat(m.nodes, m.q.nodes)
		if t.limit > 0 && launches(nodes) > t.limit || !fusion.SingleKernel(nodes) {
			return false
		}
	}
	r := fusion.Of(t.p.nodes)
	return !slices.ContainsFunc(t.p.nodes, r.Writes) || fusion.SingleKernel(t.p.nodes)
}

// launches is how many of the nodes are no views.
func launches(nodes []*ir.Node) (count int) {
	for _, n := range nodes {
		if !n.Op().IsView() {
			count++
		}
	}
	return count
}

// undo takes out what make has put in.
func (t *attempt) undo() {
	for _, m := range slices.Backward(t.moves) {
		for _, r := range slices.Backward(m.args) {
			t.f.SetArg(r.n, r.i, r.was)
		}
		for _, n := range slices.Backward(m.nodes) {
			t.f.Remove(n)
		}
		if !m.q.nodes[0].Meta().Has(passes.FusionKey) {
			m.q.id = -1
		}
	}
}

// keep notes what has changed, and removes what nobody reads any more.
func (t *attempt) keep() {
	for _, m := range t.moves {
		for _, n := range m.q.nodes {
			t.f.SetMeta(n, n.Meta().With(passes.FusionKey, attr.Int(m.q.id)))
		}
		m.q.nodes = slices.Concat(m.nodes, m.q.nodes)
		for _, n := range m.nodes {
			t.of[n] = m.q
		}
	}
	for _, v := range t.set {
		t.f.RemoveDead(readersOf(v)...)
		t.f.RemoveDead(v.Def())
	}
	for _, u := range t.units {
		u.nodes = slices.DeleteFunc(u.nodes, func(n *ir.Node) bool { return t.f.NodeByID(n.ID()) != n })
	}
}

// readersOf are the nodes that read v, and views of it, first.
func readersOf(v *ir.Value) (out []*ir.Node) {
	for _, u := range v.Uses() {
		if u.Node.Op().IsView() {
			for _, r := range u.Node.Results() {
				out = append(out, readersOf(r)...)
			}
			out = append(out, u.Node)
		}
	}
	return out
}
