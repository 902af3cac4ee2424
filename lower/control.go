package lower

import (
	"slices"

	"github.com/seed-ee968945/concert/internal/place"
	"github.com/seed-ee968945/concert/ir"
	"github.com/seed-ee968945/concert/program"
)

// Bodies stand in the list where the node that runs them stands, between brackets
// (program.Block). What a while carries is where its results are: it is copied there before
// the first iteration, and at the end of each. Bodies read it there, and all other operands where
// they are. Their own buffers are in the node's room.

// frame is the function that is being lowered.
type frame struct {
	f        *ir.Func
	lay      *place.Layout
	st       *ir.Storages // of f, computed when first needed
	finished []int        // by NodeID: event recorded after a collective, or an async input's

	// Of a body.
	where []place.Window   // by buffer of the layout: where it is in the program; nil if they are the same
	path  string           // before names of its nodes
	outs  []program.Tensor // what it returns
}

// tensor is the window of a value that is one tensor.
func (l *lowering) tensor(v *ir.Value) program.Tensor { return l.tensors(v)[0] }

// copy emits a copy, unless the two are the same bytes.
func (l *lowering) copy(n *ir.Node, from, to program.Tensor) {
	if from.Buffer != to.Buffer || from.Offset != to.Offset || !slices.EqualFunc(from.Strides, to.Strides, ir.Dim.Equal) {
		l.emit(program.Instr{Kind: program.Copy, Event: -1, Group: -1, Ins: []program.Tensor{from}, Outs: []program.Tensor{to}, Node: n.Name()})
	}
}

func (l *lowering) bracket(n *ir.Node, k program.Kind, ins, outs []program.Tensor) {
	l.emit(program.Instr{Kind: k, Event: -1, Group: -1, Ins: ins, Outs: outs, Node: n.Name()})
}

// control lowers a while or a case.
func (l *lowering) control(n *ir.Node) error {
	room := l.lay.Room(n)
	var results, operands []program.Tensor
	for k, r := range n.Results() {
		results = append(results, l.tensor(r))
		if n.Op() == ir.OpWhile {
			l.copy(n, l.tensor(n.Arg(k)), results[k])
		}
	}
	for i, a := range n.Args() {
		t := l.tensor(a)
		if i < n.Carried() {
			t = results[i]
		} else if at := room.In[i]; at >= 0 {
			to := l.inRoom(room, n, at, a.Type())
			l.copy(n, t, to)
			t = to
		}
		operands = append(operands, t)
	}
	if n.Op() == ir.OpCase {
		return l.branches(n, room, operands, results)
	}
	return l.loop(n, room, operands, results)
}

// inRoom is a new buffer in the room of a node.
func (l *lowering) inRoom(room *place.Room, n *ir.Node, at int64, t ir.Type) program.Tensor {
	b := l.buffer(n.Name()+".copy", l.p.Buffers[l.at(room.Buffer).Buffer].Offset+at, l.m.Bound(t.Extent()))
	to := program.Tensor{Buffer: b, DType: t.DType(), Shape: t.Shape()}
	if !t.Contiguous() {
		to.Strides = t.SymbolicStrides()
	}
	return to
}

func (l *lowering) loop(n *ir.Node, room *place.Room, operands, results []program.Tensor) error {
	l.bracket(n, program.Loop, nil, results)
	more, err := l.inside(n, room, 0, operands)
	if err != nil {
		return err
	}
	l.bracket(n, program.Test, more, nil)
	next, err := l.inside(n, room, 1, operands)
	if err != nil {
		return err
	}
	for k := range next {
		if at := room.Out[k]; at >= 0 {
			to := l.inRoom(room, n, at, n.Results()[k].Type())
			l.copy(n, next[k], to)
			next[k] = to
		}
	}
	for k := range next {
		l.copy(n, next[k], results[k])
	}
	l.bracket(n, program.End, nil, nil)
	return nil
}

func (l *lowering) branches(n *ir.Node, room *place.Room, operands, results []program.Tensor) error {
	l.bracket(n, program.Case, operands[:1], results)
	for k := range room.Bodies {
		l.bracket(n, program.Branch, nil, nil)
		outs, err := l.inside(n, room, k, operands[1:])
		if err != nil {
			return err
		}
		for i := range outs {
			l.copy(n, outs[i], results[i])
		}
	}
	l.bracket(n, program.End, nil, nil)
	return nil
}

// inside lowers a body whose inputs are where the operands are, and returns where its results
// are.
func (l *lowering) inside(n *ir.Node, room *place.Room, k int, operands []program.Tensor) ([]program.Tensor, error) {
	b, base := &room.Bodies[k], l.p.Buffers[l.at(room.Buffer).Buffer].Offset
	caller := l.frame
	in := frame{f: b.Func, lay: b.Layout, finished: make([]int, b.Func.NumNodeIDs()), path: caller.path + n.Name() + "/" + b.Func.Name + "/"}
	for i := range b.Buffers {
		q := &b.Buffers[i]
		if q.Node.Op() == ir.OpInput {
			t := operands[q.Node.At()]
			in.where = append(in.where, place.Window{Buffer: t.Buffer, Offset: t.Offset})
			continue
		}
		in.where = append(in.where, place.Window{Buffer: l.buffer(in.path+q.Name, base+b.Offsets[i], q.Bytes)})
	}
	for _, h := range b.Donated {
		in.where = append(in.where, in.where[h.Buffer])
	}
	l.frame = in
	err := l.body()
	outs := l.outs
	l.frame = caller
	return outs, err
}

// at is where a buffer of the layout is in the program.
func (l *lowering) at(buffer int) place.Window {
	if l.where == nil {
		return place.Window{Buffer: buffer}
	}
	return l.where[buffer]
}

// buffer adds a buffer of a body to the program.
func (l *lowering) buffer(name string, offset, size int64) int {
	for l.named[name] {
		name += "_"
	}
	l.named[name] = true
	l.p.Buffers = append(l.p.Buffers, program.Buffer{Name: name, Offset: offset, Size: size})
	return len(l.p.Buffers) - 1
}
