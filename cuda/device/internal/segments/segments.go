// Package segments turns collectives on tensors of any layout into what kernels and NCCL accept:
// contiguous byte ranges, with copies into scratch before and out of it after. Its decisions are
// the same on all ranks of a group.
package segments

import (
	"fmt"

	"github.com/seed-ee968945/concert/cuda/coll"
	"github.com/seed-ee968945/concert/cuda/device/internal/layout"
	"github.com/seed-ee968945/concert/cuda/driver"
	"github.com/seed-ee968945/concert/internal/dtype"
	"github.com/seed-ee968945/concert/internal/intmath"
	"github.com/seed-ee968945/concert/kernels"
	rt "github.com/seed-ee968945/concert/runtime"
)

// Form is a collective in that form. Its lists are to be done in this order.
type Form struct {
	Before []Move      // from operands into scratch
	Clear  []rt.Tensor // results that no rank writes
	Ops    []coll.Op
	Uneven []Exchange
	After  []Move // from scratch to results
}

// Move is a copy between tensors of one type, of which one is in scratch.
type Move struct{ Dst, Src rt.Tensor }

// Exchange is an all_to_all with a size of its own for every pair of ranks.
type Exchange struct{ Send, Recv []coll.Piece }

// Place is where a rank does a collective.
type Place struct {
	Base       driver.Ptr // of the arena
	Scratch    int64      // as an offset of the arena
	Room       uint64     // bytes of scratch
	Ranks, Pos int        // of the group, and of this rank in it
	// Dsts are, by result and place in the group, where results begin on other ranks; nil where they begin as here.
	Dsts [][]int64
}

// maxRuns is into how many segments one tensor is cut at most, before it is brought
// together in scratch instead.
const maxRuns = 2 * kernels.MaxSegs

// Of gives a collective's form. staged says that results overlap operands, which are moved away first.
func Of(c *rt.Collective, p Place, staged bool) (*Form, error) {
	b := &builder{Place: p, c: c}
	if c.Op == rt.Barrier {
		b.Ops = []coll.Op{{Kind: kernels.Barrier}}
	}
	for i := range c.Ins {
		in, out := c.Ins[i], c.Outs[i]
		if staged {
			in = b.moveIn(in)
		}
		switch c.Op {
		case rt.AllReduce:
			b.allReduce(in, out)
		case rt.AllGather:
			b.allGather(in, out)
		case rt.ReduceScatter:
			b.reduceScatter(in, out)
		case rt.AllToAll:
			b.allToAll(i, in, out)
		case rt.Broadcast, rt.CollectivePermute:
			b.move(i, in, out)
		}
		if b.err != nil {
			return nil, b.err
		}
	}
	return &b.Form, nil
}

// Op is a launch of one segment of a collective.
func Op(c *rt.Collective, kind kernels.Collective, dt dtype.DType, seg coll.Tensor) (coll.Op, error) {
	op := coll.Op{Kind: kind, DType: dtype.U8, Symmetric: !c.CrossStage, Tensors: []coll.Tensor{seg}}
	switch kind {
	case kernels.AllReduce, kernels.ReduceScatter:
		red, ok := map[string]kernels.Reduction{"sum": kernels.Sum, "avg": kernels.Avg, "product": kernels.Prod, "min": kernels.Min, "max": kernels.Max}[c.Reduce]
		if !ok {
			return op, fmt.Errorf("unknown reduction %q", c.Reduce)
		}
		if op.DType, ok = kernels.ReduceAs(red, dt); !ok {
			return op, kernels.NewTypeError(kind, red, dt)
		}
		op.Red = red
	case kernels.Broadcast:
		op.Root = c.Root
	case kernels.Permute:
		for i := 0; i < len(c.Pairs); i += 2 {
			op.Pairs = append(op.Pairs, [2]int{int(c.Pairs[i]), int(c.Pairs[i+1])})
		}
	}
	return op, nil
}

type builder struct {
	Form
	Place
	c    *rt.Collective
	used uint64 // bytes of scratch
	err  error  // the first
}

func (b *builder) fail(err error) {
	if b.err == nil {
		b.err = err
	}
}

func (b *builder) at(t rt.Tensor) driver.Ptr { return b.Base + driver.Ptr(t.Off) }

// take gives scratch for a dense tensor of t's type and n times its elements.
func (b *builder) take(t rt.Tensor, n int64) rt.Tensor {
	bytes := uint64(t.Bytes()*n+255) &^ 255
	if b.used+bytes > b.Room {
		b.fail(fmt.Errorf("its layout takes %d bytes of scratch and there are %d: raise Options.Scratch", b.used+bytes, b.Room))
	}
	at := b.Scratch + int64(b.used)
	b.used += bytes
	return layout.Dense(t, at)
}

// moveIn copies a tensor to scratch, row-major.
func (b *builder) moveIn(t rt.Tensor) rt.Tensor {
	s := b.take(t, 1)
	b.Before = append(b.Before, Move{s, t})
	return s
}

// rowMajor is t, or a row-major copy in scratch.
func (b *builder) rowMajor(t rt.Tensor) rt.Tensor {
	if t.Dense() {
		return t
	}
	return b.moveIn(t)
}

// result is out, or scratch that is copied there in the end.
func (b *builder) result(out rt.Tensor) rt.Tensor {
	if out.Dense() {
		return out
	}
	s := b.take(out, 1)
	b.After = append(b.After, Move{out, s})
	return s
}

// add puts a segment into the launch of its kind and type. dsts is where other ranks have its
// result, if that is not where this one has it.
func (b *builder) add(kind kernels.Collective, dt dtype.DType, seg coll.Tensor, dsts ...driver.Ptr) {
	if seg.Bytes == 0 {
		return
	}
	op, err := Op(b.c, kind, dt, seg)
	if err != nil {
		b.fail(err)
		return
	}
	if dsts != nil {
		op.Dsts = [][]driver.Ptr{dsts}
	}
	for i := range b.Ops {
		if o := &b.Ops[i]; o.Kind == op.Kind && o.DType == op.DType && len(o.Tensors) < kernels.MaxSegs {
			o.Tensors, o.Dsts = append(o.Tensors, seg), append(o.Dsts, op.Dsts...)
			return
		}
	}
	b.Ops = append(b.Ops, op)
}

// whole adds a segment of all of a tensor's memory.
func (b *builder) whole(kind kernels.Collective, in, out rt.Tensor, dsts ...driver.Ptr) {
	lo, hi, _ := in.Span()
	to, _, _ := out.Span()
	b.add(kind, in.DType, coll.Tensor{Src: b.Base + driver.Ptr(lo), Dst: b.Base + driver.Ptr(to), Bytes: uint64(hi - lo)}, dsts...)
}

func (b *builder) allReduce(in, out rt.Tensor) {
	if !layout.Alike(in, out) {
		in, out = b.rowMajor(in), b.result(out)
	}
	b.whole(kernels.AllReduce, in, out)
}

func (b *builder) allGather(in, out rt.Tensor) {
	n := int64(b.Ranks)
	if count, bytes, ok := layout.Rows(in, out, b.c.Dim); ok && count <= maxRuns {
		for i := range count {
			b.add(kernels.AllGather, in.DType, coll.Tensor{Src: b.at(in) + driver.Ptr(i*bytes), Dst: b.at(out) + driver.Ptr(i*bytes*n), Bytes: uint64(bytes)})
		}
		return
	}
	in = b.rowMajor(in)
	s := b.take(in, n)
	b.add(kernels.AllGather, in.DType, coll.Tensor{Src: b.at(in), Dst: b.at(s), Bytes: uint64(in.Bytes())})
	part := in.Shape[b.c.Dim]
	for i := range n {
		b.After = append(b.After, Move{layout.Piece(out, b.c.Dim, i*part, (i+1)*part), layout.Dense(in, s.Off+i*in.Bytes())})
	}
}

func (b *builder) reduceScatter(in, out rt.Tensor) {
	n := int64(b.Ranks)
	if count, bytes, ok := layout.Rows(out, in, b.c.Dim); ok && count <= maxRuns {
		for i := range count {
			b.add(kernels.ReduceScatter, in.DType, coll.Tensor{Src: b.at(in) + driver.Ptr(i*bytes*n), Dst: b.at(out) + driver.Ptr(i*bytes), Bytes: uint64(bytes)})
		}
		return
	}
	s := b.take(out, n)
	part := out.Shape[b.c.Dim]
	for i := range n {
		b.Before = append(b.Before, Move{layout.Dense(out, s.Off+i*out.Bytes()), layout.Piece(in, b.c.Dim, i*part, (i+1)*part)})
	}
	to := b.result(out)
	b.add(kernels.ReduceScatter, in.DType, coll.Tensor{Src: b.at(s), Dst: b.at(to), Bytes: uint64(out.Bytes())})
}

func (b *builder) allToAll(k int, in, out rt.Tensor) {
	// Where each rank has rows of its own number, none knows what order the others see in theirs.
	if b.c.InSplits != nil || !layout.RowsOutermost(in) || !layout.Alike(in, out) {
		in, out = b.rowMajor(in), b.result(out)
	}
	if b.c.InSplits == nil {
		b.add(kernels.AllToAll, in.DType, coll.Tensor{Src: b.at(in), Dst: b.at(out), Bytes: uint64(in.Bytes()) / uint64(b.Ranks)})
		return
	}
	row := int64(in.DType.Size()) * intmath.Product(in.Shape[1:])
	cut := func(at driver.Ptr, splits []int64) []coll.Piece {
		list := make([]coll.Piece, len(splits))
		for i, rows := range splits {
			list[i] = coll.Piece{At: at, Bytes: uint64(rows * row)}
			at += driver.Ptr(rows * row)
		}
		return list
	}
	b.Uneven = append(b.Uneven, Exchange{cut(b.at(in), b.c.InSplits[k]), cut(b.at(out), b.c.OutSplits[k])})
}

// move serves broadcast and collective_permute; k is the number of the operand.
func (b *builder) move(k int, in, out rt.Tensor) {
	if !layout.Alike(in, out) {
		in, out = b.rowMajor(in), b.result(out)
	}
	kind := kernels.Broadcast
	if b.c.Op == rt.CollectivePermute {
		kind = kernels.Permute
		receives := false
		for i := 1; i < len(b.c.Pairs); i += 2 {
			receives = receives || b.c.Pairs[i] == int64(b.Pos)
		}
		if !receives {
			b.Clear = append(b.Clear, out)
		}
	}
	var dsts []driver.Ptr
	if b.Dsts != nil {
		for _, at := range b.Dsts[k] {
			dsts = append(dsts, b.Base+driver.Ptr(at))
		}
	}
	b.whole(kind, in, out, dsts...)
}
