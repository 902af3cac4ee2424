package sim

import (
	"github.com/seed-ee968945/concert/ir"
)

// FuncOptions says what FromFunc cannot read from a function.
type FuncOptions struct {
	// Ms returns the milliseconds of a node: of launches on the compute stream, of
	// collectives on their group's. It is not asked about other nodes, nor about those that run
	// functions and have no cost attached. Nil stands for the cost attached to the node, 0 without.
	Ms func(*ir.Node) float64

	// Bucketable reports whether a collective may join a bucket with others of the
	// same operation, group and attributes. Nil stands for all.
	Bucketable func(*ir.Node) bool

	// Tag further restricts who may share a bucket: only collectives with equal
	// tags may. Nil stands for one tag for all.
	Tag func(*ir.Node) string
}

// FromFunc returns the model of a function: node i is f.Order()[i]. Symbols count
// at their upper bounds for memory and at their hints for the bytes that a
// collective carries.
//
// Besides data, effects order nodes: see [ir.EffectOrder]. A node that runs functions holds, while
// it runs, what the one of them that takes most makes in its own order, and without an attached cost
// it takes the time that they take in it, collectives beside what does not wait for them: cond and body of a while as often as
// it says, of a case the branch that takes longest.
//
// The error is a *ModelError. It takes time linear in nodes, edges and uses.
func FromFunc(f *ir.Func, opts FuncOptions) (*Model, error) {
	order := f.Order()
	c := &converter{f: f, opts: opts, b: NewBuilder(len(order)), id: make([]int32, f.NumNodeIDs()), place: make([][]int32, f.NumValueIDs()),
		order: ir.NewEffectOrder(f)}
	for i, n := range order {
		c.id[n.ID()] = int32(i)
	}
	for _, n := range order {
		if err := c.node(n); err != nil {
			return nil, err
		}
	}
	return c.b.Build()
}

// converter builds the model of one function.
type converter struct {
	f     *ir.Func
	opts  FuncOptions
	b     *Builder
	id    []int32   // NodeID -> node of the model
	place [][]int32 // ValueID -> storages, one per tensor

	order  *ir.EffectOrder
	before []*ir.Node // scratch
}

// node adds one node.
func (c *converter) node(n *ir.Node) error {
	s := Spec{StartOf: -1}
	for _, a := range n.Args() {
		s.Operands = append(s.Operands, c.id[a.Def().ID()])
		s.Reads = append(s.Reads, c.place[a.ID()]...)
	}
	mod := c.f.Module()
	switch n.Op().Class() {
	case ir.ClassInput:
		s.Kind = Input
		role := n.Role()
		s.Pinned = role != ir.RoleSaved && role != ir.RoleTangent
	case ir.ClassOutput:
		s.Kind = Output
		for _, a := range n.Args() { // an async output leaves in flight, its operands with it
			if a.Type().IsAsync() {
				for _, x := range a.Def().Args() {
					s.Reads = append(s.Reads, c.place[x.ID()]...)
				}
			}
		}
	case ir.ClassView:
		s.Kind = View
	case ir.ClassCollective:
		s.Kind, s.Ms = Start, c.ms(n)
		s.Key = bucketKey(n)
		if c.opts.Tag != nil {
			s.Key.Attrs += " " + c.opts.Tag(n)
		}
		s.Bucketable = c.opts.Bucketable == nil || c.opts.Bucketable(n)
		for i, t := range n.Result(0).Type().Tensors() {
			size := mod.Hint(t.Bytes())
			if i < len(n.Args()) {
				size = max(size, mod.Hint(n.Arg(i).Type().Bytes()))
			}
			s.Bytes += size
		}
	case ir.ClassWait:
		s.Kind = Wait
		if d := n.Arg(0).Def(); d.Op().IsCollective() {
			s.StartOf = c.id[d.ID()]
		}
	default:
		if s.Kind = Compute; n.Op().Info().Bodies == nil {
			s.Ms = c.ms(n)
		}
	}
	c.results(n, &s)
	if err := c.bodies(n, &s); err != nil {
		return err
	}
	c.effects(n, &s)
	at := c.b.Add(s)
	next := len(s.Shares)
	for _, r := range n.Results() {
		if c.place[r.ID()] == nil {
			k := len(r.Type().Tensors())
			c.place[r.ID()] = c.b.Results(at)[next : next+k : next+k]
			next += k
		}
	}
	return nil
}

// bodies reckons with the functions that a node runs: one runs at a time.
func (c *converter) bodies(n *ir.Node, s *Spec) error {
	if n.Op().Info().Bodies == nil {
		return nil
	}
	room, ms := int64(0), 0.0
	for _, f := range n.Bodies() {
		if f == nil {
			continue // the node was copied to a module without it
		}
		m, err := FromFunc(f, c.opts)
		if err != nil {
			return err
		}
		t, err := Evaluate(m, m.InputOrder(), nil)
		if err != nil {
			return err
		}
		own := t.Peak
		for s, by := range m.Owner {
			if m.Kind[by] == Input {
				own -= m.Size[s]
			}
		}
		room = max(room, own)
		if n.Op() == ir.OpWhile {
			ms += t.Makespan * float64(max(n.Attrs().Int("trips", 1), 1))
		} else {
			ms = max(ms, t.Makespan)
		}
	}
	if attached, ok := n.Cost(); ok {
		ms = attached
	}
	s.Ms = min(ms, ir.MaxCost)
	if room > 0 {
		s.Alloc = append(s.Alloc, room) // behind the results, which have places
	}
	return nil
}

// results says which storages the results of n are in.
func (c *converter) results(n *ir.Node, s *Spec) {
	for k, r := range n.Results() {
		of := r.Aliases()
		if of == nil {
			for _, t := range r.Type().Tensors() {
				s.Alloc = append(s.Alloc, c.f.Module().Bound(t.Extent()))
			}
			continue
		}
		in := c.place[of.ID()]
		if of.Type().IsAsync() {
			in = in[k : k+1]
		}
		c.place[r.ID()] = in
		s.Shares = append(s.Shares, in...)
	}
}

// effects adds the order that effects ask for.
func (c *converter) effects(n *ir.Node, s *Spec) {
	c.before = c.order.Next(n, c.before[:0])
	for _, p := range c.before {
		s.Operands = append(s.Operands, c.id[p.ID()])
	}
}

func (c *converter) ms(n *ir.Node) float64 {
	if c.opts.Ms != nil {
		return c.opts.Ms(n)
	}
	if ms, ok := n.Cost(); ok {
		return ms
	}
	return 0
}

// bucketKey is what collectives must have in common to share a bucket: all attributes,
// but for the sizes of an all_to_all with uneven parts. Those are listed by
// operand; it is enough that both have such lists.
func bucketKey(n *ir.Node) Key {
	k := Key{Op: n.Op().Name(), Reduce: string(n.Reduction())}
	if g := n.Group(); g != nil {
		k.Group, k.GroupSize = g.Name, g.Size()
	}
	a := n.Attrs()
	k.Attrs = a.Without("in_splits").Without("out_splits").String()
	if a.Has("in_splits") || a.Has("out_splits") {
		k.Attrs += " splits"
	}
	return k
}
