package sim

import (
	"github.com/seed-ee968945/concert/ir"
)

// FuncOptions says what FromFunc cannot read from a function.
type FuncOptions struct {
	// Ms returns the milliseconds of a node: of launches on the compute stream, of
	// collectives on their group's. It is not asked about other nodes. Nil stands
	// for the cost attached to the node, 0 without.
	Ms func(*ir.Node) float64

	// Bucketable reports whether a collective may join a bucket with others of the
	// same operation, group and attributes. Nil stands for all.
	Bucketable func(*ir.Node) bool

	// Tag further restricts who may travel together: only collectives with equal
	// tags may. Nil stands for one tag for all.
	Tag func(*ir.Node) string
}

// FromFunc returns the model of a function: node i is f.Order()[i]. Symbols count
// at their upper bounds for memory and at their hints for the bytes that a
// collective carries.
//
// Besides data, effects order nodes: one that writes an operand in place keeps its
// place among all that touch the same storage, and among all that write; nodes
// that draw random numbers keep their order; an opaque call that communicates
// keeps its place among all communication. A wait follows its collective and
// nothing else: it is local to a rank, so that no fence holds it.
//
// The error is a *ModelError. It takes time linear in nodes, edges and uses.
func FromFunc(f *ir.Func, opts FuncOptions) (*Model, error) {
	order := f.Order()
	c := &converter{f: f, opts: opts, b: NewBuilder(len(order)), id: make([]int32, f.NumNodeIDs()), place: make([][]int32, f.NumValueIDs()),
		lastWrite: -1, lastRandom: -1, fence: -1}
	for i, n := range order {
		c.id[n.ID()] = int32(i)
		c.writes = c.writes || n.Effects()&ir.EffectWrites != 0
	}
	for _, n := range order {
		c.node(n)
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

	writes     bool // some node writes in place
	writer     []int32
	readers    [][]int32
	lastWrite  int32
	lastRandom int32
	fence      int32 // last opaque call that communicates
	comms      []int32
}

// node adds one node.
func (c *converter) node(n *ir.Node) {
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
		s.Kind, s.Ms = Compute, c.ms(n)
	}
	c.results(n, &s)
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
}

// results says which storages the results of n lie in.
func (c *converter) results(n *ir.Node, s *Spec) {
	shared := func(r *ir.Value, in []int32) {
		c.place[r.ID()] = in
		s.Shares = append(s.Shares, in...)
	}
	switch {
	case s.Kind == Wait && n.Arg(0).Type().IsAsync():
		from := c.place[n.Arg(0).ID()]
		for k, r := range n.Results() {
			shared(r, from[k:k+1])
		}
	case len(n.Args()) > 0 && n.Effects()&ir.EffectAlias != 0, s.Kind == Wait:
		for _, r := range n.Results() {
			shared(r, c.place[n.Arg(0).ID()])
		}
	default:
		for _, r := range n.Results() {
			for _, t := range r.Type().Tensors() {
				s.Alloc = append(s.Alloc, c.f.Module().Bound(t.Bytes()))
			}
		}
	}
}

// effects adds the order that effects ask for.
func (c *converter) effects(n *ir.Node, s *Spec) {
	at, eff := c.id[n.ID()], n.Effects()
	after := func(p int32) {
		if p >= 0 && p != at {
			s.Operands = append(s.Operands, p)
		}
	}
	if eff&ir.EffectRandom != 0 {
		after(c.lastRandom)
		c.lastRandom = at
	}
	switch {
	case s.Kind == Start:
		after(c.fence)
		c.comms = append(c.comms, at)
	case eff&ir.EffectCommunicates != 0:
		after(c.fence)
		for _, p := range c.comms {
			after(p)
		}
		c.comms, c.fence = c.comms[:0], at
	}
	if !c.writes || s.Kind == Input || s.Kind == View {
		return
	}
	touched := s.Reads
	if s.StartOf >= 0 { // in flight until now
		for _, a := range n.Arg(0).Def().Args() {
			touched = append(touched[:len(touched):len(touched)], c.place[a.ID()]...)
		}
	}
	for _, x := range touched {
		for int(x) >= len(c.writer) {
			c.writer, c.readers = append(c.writer, -1), append(c.readers, nil)
		}
		after(c.writer[x])
		if eff&ir.EffectWrites == 0 {
			c.readers[x] = append(c.readers[x], at)
			continue
		}
		for _, r := range c.readers[x] {
			after(r)
		}
		c.writer[x], c.readers[x] = at, c.readers[x][:0]
	}
	if eff&ir.EffectWrites != 0 {
		after(c.lastWrite)
		c.lastWrite = at
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

// bucketKey is what collectives must share to travel together: all attributes,
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
