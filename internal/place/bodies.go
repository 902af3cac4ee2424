package place

import (
	"context"

	"github.com/seed-ee968945/concert/internal/pack"
	"github.com/seed-ee968945/concert/ir"
)

// Room is the memory that a node has for the functions that it runs, a buffer of the layout.
// Only one body runs at a time, so all of them are at the same place. Their inputs are not in
// it: those that a while carries are where its results are, all others where the operands are.
type Room struct {
	Buffer int
	Bodies []Body
	In     []int64 // by operand: where in the room its copy is, -1 if bodies read it where it is
	Out    []int64 // by result of a while: where its next value waits until all are read, -1 if nowhere
}

// Body is a function that is in a room.
type Body struct {
	*Layout
	Offsets []int64 // by buffer: bytes from the room's start, -1 of inputs
}

// Room is the room of a node that runs functions, nil of others.
func (l *Layout) Room(n *ir.Node) *Room { return l.rooms[n.ID()] }

// addRoom makes the room of a node that runs functions. Kernels expect the values that no view
// makes at certain places, so an operand that is elsewhere is copied.
func (l *Layout) addRoom(u *uses, names map[string]bool, n *ir.Node, home []Window) error {
	if n.Op().Info().Bodies == nil {
		return nil
	}
	r := &Room{Buffer: len(l.Buffers), In: make([]int64, len(n.Args())), Out: make([]int64, len(n.Results()))}
	height := int64(0)
	take := func(t ir.Type) int64 {
		at := height
		height += (l.Func.Module().Bound(t.Extent()) + Align - 1) / Align * Align
		return at
	}
	for i, a := range n.Args() {
		r.In[i] = -1
		p := u.st.Of(a)[0]
		if at := p.Offset*int64(a.Type().DType().Size()) + home[p.Storage].Offset; i >= n.Carried() && at%KernelAlign != 0 {
			r.In[i] = take(a.Type())
		}
	}
	bodies := n.Bodies()
	for k := range r.Out {
		r.Out[k] = -1
		if n.Op() != ir.OpWhile {
			continue
		}
		taken, err := overwritten(bodies[1], k, n.Carried())
		if err != nil {
			return err
		}
		if taken {
			r.Out[k] = take(n.Results()[k].Type())
		}
	}
	end := height
	for _, f := range bodies {
		b, top, err := layoutBody(f, height)
		if err != nil {
			return err
		}
		r.Bodies = append(r.Bodies, b)
		end = max(end, top)
	}
	l.rooms[n.ID()] = r
	l.add(names, Buffer{Name: n.Name() + ".room", Type: ir.Tensor(ir.U8, end), Def: n.At(), Last: n.At(), Node: n, Index: len(n.Results()), Room: true})
	return nil
}

// overwritten reports whether result k of the body of a while is where another carried input
// does, which gets its own next value.
func overwritten(f *ir.Func, k, carried int) (bool, error) {
	st, err := ir.ComputeStorages(f)
	if err != nil {
		return false, err
	}
	v := f.Return().Arg(k)
	p := st.Of(v)[0]
	root, _ := st.Root(p.Storage)
	in := root.Def()
	if in.Op() != ir.OpInput || in.At() >= carried {
		return false, nil
	}
	return in.At() != k || p.Offset != 0 || !v.Type().Equal(root.Type()), nil
}

// layoutBody lays a body out behind what is in its room already. What plan-memory has left in it
// is of a function that has its inputs in its own arena, and does not count.
func layoutBody(f *ir.Func, from int64) (Body, int64, error) {
	lay, err := Of(f)
	if err != nil {
		return Body{}, 0, err
	}
	b := Body{Layout: lay, Offsets: make([]int64, len(lay.Buffers))}
	all, err := lay.Problem()
	if err != nil {
		return b, 0, err
	}
	var own pack.Problem
	var at []int
	for i := range lay.Buffers {
		if b.Offsets[i] = -1; lay.Buffers[i].Node.Op() != ir.OpInput {
			q := all.Buffers[i]
			q.Pinned = false
			own.Buffers, at = append(own.Buffers, q), append(at, i)
		}
	}
	plan, err := solve(context.Background(), own, 0)
	if err != nil {
		return b, 0, err
	}
	for k, i := range at {
		b.Offsets[i] = from + plan.Offsets[k]
	}
	return b, from + plan.Height, nil
}
