package device

import (
	"fmt"

	"github.com/seed-ee968945/concert/cuda/coll"
	"github.com/seed-ee968945/concert/cuda/device/internal/layout"
	"github.com/seed-ee968945/concert/cuda/device/internal/progress"
	"github.com/seed-ee968945/concert/cuda/driver"
	"github.com/seed-ee968945/concert/cuda/library"
	"github.com/seed-ee968945/concert/internal/dtype"
	"github.com/seed-ee968945/concert/kernels"
	rt "github.com/seed-ee968945/concert/runtime"
)

// Collective implements runtime.Device.
func (d *Device) Collective(s rt.Stream, c *rt.Collective) error {
	st, err := d.stream(s)
	if err != nil {
		return err
	}
	defer d.leave()
	g := d.groups[c.Group]
	if g == nil {
		return d.call(c.Name(), fmt.Errorf("no group %q", c.Group))
	}
	if c.Late != nil {
		return d.orHost(c.Name(), d.collectiveLate(st, g, c))
	}
	part := alone
	if d.rec != nil && len(d.rec.nested) > 0 {
		part = inBlock
	}
	if d.rec != nil && part == alone && !d.opts.NoOverlap && g.m != nil && c.Op != rt.Barrier {
		if _, err := d.checkCollective(g, c); err != nil {
			return d.call(c.Name(), err)
		}
		if err := d.takeTurn(g, st); err != nil {
			return d.call(c.Name(), err)
		}
		d.rec.says(g, c)
		d.rec.collect(st, g, c)
		return nil
	}
	p, err := d.planned(d.collectiveKey(c, part, nil), func() (*plan, error) { return d.planCollective(g, c, part, nil) }, c.Outs, c.Ins)
	if err != nil {
		return d.call(c.Name(), err)
	}
	if err := d.takeTurn(g, st); err != nil {
		return d.call(c.Name(), err)
	}
	if d.rec != nil {
		d.rec.says(g, c)
	}
	return d.emit(st, p)
}

// In the place of a part of staging: a collective with no compute beside it, and one in a
// loop or a branch, which is to go by kernels.
const (
	alone   = -1
	inBlock = -2
)

// planCollective checks a collective and turns it into commands. Everything it decides
// by is the same on all ranks of the group. part says that compute runs beside it, and
// which part of the group's staging it begins with, unless it is alone or inBlock; dsts is
// collective.dsts, nil if the ranks have not told each other.
func (d *Device) planCollective(g *group, c *rt.Collective, part int, dsts [][]int64) (*plan, error) {
	staged, err := d.checkCollective(g, c)
	if err != nil {
		return nil, err
	}
	b := &builder{d: d, g: g, c: c, p: &plan{name: c.Name(), group: g, said: []progress.Call{{Name: c.Name(), Group: g.name}}}, staged: staged, part: part, dsts: dsts}
	switch {
	case g.nc != nil && c.Apart && !g.nc.apart:
		b.fail(fmt.Errorf("stages meet on %q, which NCCL serves and another module has made: there its collectives take turns with those of other groups: %w", g.name, rt.ErrUnsupported))
	case g.nc != nil:
		b.overNCCL()
	case g.m == nil:
		b.alone()
	case c.Op == rt.Barrier:
		b.try(coll.Op{Kind: kernels.Barrier})
	default:
		b.build()
	}
	if b.err != nil {
		return nil, b.err
	}
	b.p.algo = b.how
	if b.p.ahead != nil {
		for i, list := range [][]rt.Tensor{c.Ins, c.Outs} {
			for _, t := range list {
				lo, hi, err := t.Span()
				if err != nil {
					return nil, err
				}
				b.p.touches[i] = append(b.p.touches[i], library.Memory{At: d.base + driver.Ptr(lo), Bytes: uint64(hi - lo)})
			}
		}
	}
	return b.p, nil
}

// checkCollective reports what is wrong with a collective whatever form it takes, and
// else whether results lie over operands, which then are moved away first.
func (d *Device) checkCollective(g *group, c *rt.Collective) (staged bool, err error) {
	if err := c.Check(len(g.ranks), g.pos); err != nil {
		return false, err
	}
	if err := d.inArena(c.Ins, c.Outs); err != nil {
		return false, err
	}
	if staged, err = layout.Overlaps(c); staged && c.Apart {
		err = fmt.Errorf("a result lies over an operand, which other stages cannot know: %w", rt.ErrUnsupported)
	}
	return staged, err
}

// builder makes the commands of one collective: copies into scratch, launches, and
// copies out of scratch, in that order.
type builder struct {
	d      *Device
	g      *group
	c      *rt.Collective
	p      *plan
	staged bool // results overlap operands: operands are moved away first
	part   int  // of staging, or alone
	dsts   [][]int64
	used   uint64 // bytes of scratch
	copies int    // between tensors and scratch
	how    string // algorithms, for traces
	err    error

	ops       []coll.Op  // launches of kernels that take segments
	exchanges []exchange // uneven ones, of groups that NCCL serves
	after     []moved    // copies from scratch to results
}

type moved struct{ dst, src rt.Tensor }

// alone serves a subgroup of one: every collective is a copy.
func (b *builder) alone() {
	b.how = "copy"
	c := b.c
	if c.Op == rt.CollectivePermute && len(c.Pairs) == 0 {
		for i := range c.Outs {
			b.fail(b.d.zero(&b.p.cmds, c.Outs[i]))
		}
		return
	}
	ins := c.Ins
	if b.staged {
		// There is no symmetric scratch without peers, and no program has this.
		b.fail(fmt.Errorf("a result overlaps an operand: %w", rt.ErrUnsupported))
		return
	}
	for i := range c.Outs {
		b.fail(b.d.copyInto(&b.p.cmds, c.Outs[i], ins[i]))
	}
}

func (b *builder) fail(err error) {
	if b.err == nil {
		b.err = err
	}
}

// build brings operands and results into a form that kernels take.
func (b *builder) build() {
	for i := range b.c.Ins {
		if b.err != nil {
			return
		}
		in, out := b.c.Ins[i], b.c.Outs[i]
		if b.staged {
			in = b.moveIn(in)
		}
		switch b.c.Op {
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
	}
	if b.g.nc != nil {
		b.callNCCL()
		return
	}
	for _, op := range b.ops {
		b.try(op)
	}
	for _, m := range b.after {
		b.copy(m.dst, m.src)
	}
	if b.copies > 0 {
		b.how += fmt.Sprintf("; %d copies to or from scratch", b.copies)
	}
}

// copy adds a copy of which one side is scratch.
func (b *builder) copy(dst, src rt.Tensor) {
	b.copies++
	b.p.ahead = nil
	b.fail(b.d.copyInto(&b.p.cmds, dst, src))
}

// take gives scratch for a dense tensor of t's type and n times its elements.
func (b *builder) take(t rt.Tensor, n int64) rt.Tensor {
	bytes := uint64(t.Bytes()*n+255) &^ 255
	if b.err == nil && b.used+bytes > b.g.room {
		b.fail(fmt.Errorf("its layout takes %d bytes of scratch and there are %d: raise Options.Scratch", b.used+bytes, b.g.room))
	}
	at := int64(b.g.scratch-b.d.base) + int64(b.used)
	b.used += bytes
	return layout.Dense(t, at)
}

// moveIn copies a tensor to scratch, row-major.
func (b *builder) moveIn(t rt.Tensor) rt.Tensor {
	s := b.take(t, 1)
	if b.err == nil {
		b.copy(s, t)
	}
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
	b.after = append(b.after, moved{out, s})
	return s
}

func (b *builder) at(t rt.Tensor) driver.Ptr { return b.d.at(t) }

// maxRuns is into how many segments one tensor is cut at most, before it is brought
// together in scratch instead.
const maxRuns = 2 * kernels.MaxSegs

// add puts a segment into the launch of its kind and type. dsts is where other ranks have its
// result, if that is not where this one has it.
func (b *builder) add(kind kernels.Collective, dt dtype.DType, seg coll.Tensor, dsts ...driver.Ptr) {
	if seg.Bytes == 0 {
		return
	}
	op := coll.Op{Kind: kind, DType: dtype.U8, Symmetric: !b.c.Apart}
	if kind == kernels.AllReduce || kind == kernels.ReduceScatter {
		red, ok := map[string]kernels.Reduction{"sum": kernels.Sum, "avg": kernels.Avg, "product": kernels.Prod, "min": kernels.Min, "max": kernels.Max}[b.c.Reduce]
		if !ok {
			b.fail(fmt.Errorf("unknown reduction %q", b.c.Reduce))
			return
		}
		if op.DType, ok = kernels.ReduceAs(red, dt); !ok {
			b.fail(kernels.NewTypeError(kind, red, dt))
			return
		}
		op.Red = red
	}
	switch kind {
	case kernels.Broadcast:
		op.Root = b.c.Root
	case kernels.Permute:
		for i := 0; i < len(b.c.Pairs); i += 2 {
			op.Pairs = append(op.Pairs, [2]int{int(b.c.Pairs[i]), int(b.c.Pairs[i+1])})
		}
	}
	for i := range b.ops {
		if o := &b.ops[i]; o.Kind == op.Kind && o.DType == op.DType && len(o.Tensors) < kernels.MaxSegs {
			o.Tensors = append(o.Tensors, seg)
			if dsts != nil {
				o.Dsts = append(o.Dsts, dsts)
			}
			return
		}
	}
	op.Tensors = []coll.Tensor{seg}
	if dsts != nil {
		op.Dsts = [][]driver.Ptr{dsts}
	}
	b.ops = append(b.ops, op)
}

func (b *builder) allReduce(in, out rt.Tensor) {
	if !layout.Alike(in, out) {
		in, out = b.rowMajor(in), b.result(out)
	}
	lo, hi, _ := in.Span()
	to, _, _ := out.Span()
	b.add(kernels.AllReduce, in.DType, coll.Tensor{Src: b.d.base + driver.Ptr(lo), Dst: b.d.base + driver.Ptr(to), Bytes: uint64(hi - lo)})
}

func (b *builder) allGather(in, out rt.Tensor) {
	n := int64(len(b.g.ranks))
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
		b.after = append(b.after, moved{layout.Piece(out, b.c.Dim, i*part, (i+1)*part), layout.Dense(in, s.Off+i*in.Bytes())})
	}
}

func (b *builder) reduceScatter(in, out rt.Tensor) {
	n := int64(len(b.g.ranks))
	if count, bytes, ok := layout.Rows(out, in, b.c.Dim); ok && count <= maxRuns {
		for i := range count {
			b.add(kernels.ReduceScatter, in.DType, coll.Tensor{Src: b.at(in) + driver.Ptr(i*bytes*n), Dst: b.at(out) + driver.Ptr(i*bytes), Bytes: uint64(bytes)})
		}
		return
	}
	s := b.take(out, n)
	if b.err != nil {
		return
	}
	part := out.Shape[b.c.Dim]
	for i := range n {
		b.copy(layout.Dense(out, s.Off+i*out.Bytes()), layout.Piece(in, b.c.Dim, i*part, (i+1)*part))
	}
	to := b.result(out)
	b.add(kernels.ReduceScatter, in.DType, coll.Tensor{Src: b.at(s), Dst: b.at(to), Bytes: uint64(out.Bytes())})
}

func (b *builder) allToAll(k int, in, out rt.Tensor) {
	if !layout.RowsOutermost(in) || !layout.Alike(in, out) {
		in, out = b.rowMajor(in), b.result(out)
	}
	n := len(b.g.ranks)
	if b.c.InSplits == nil {
		b.add(kernels.AllToAll, in.DType, coll.Tensor{Src: b.at(in), Dst: b.at(out), Bytes: uint64(in.Bytes()) / uint64(n)})
		return
	}
	row := int64(in.DType.Size())
	for _, x := range in.Shape[1:] {
		row *= x
	}
	send, recv := make([]coll.Piece, n), make([]coll.Piece, n)
	cut := func(list []coll.Piece, at driver.Ptr, splits []int64) {
		for i, rows := range splits {
			list[i] = coll.Piece{At: at, Bytes: uint64(rows * row)}
			at += driver.Ptr(rows * row)
		}
	}
	cut(send, b.at(in), b.c.InSplits[k])
	cut(recv, b.at(out), b.c.OutSplits[k])
	b.uneven(send, recv)
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
			receives = receives || b.c.Pairs[i] == int64(b.g.pos)
		}
		if !receives {
			b.fail(b.d.zero(&b.p.cmds, out))
		}
	}
	lo, hi, _ := in.Span()
	to, _, _ := out.Span()
	var dsts []driver.Ptr
	if b.dsts != nil {
		for _, at := range b.dsts[k] {
			dsts = append(dsts, b.d.base+driver.Ptr(at))
		}
	}
	b.add(kind, in.DType, coll.Tensor{Src: b.d.base + driver.Ptr(lo), Dst: b.d.base + driver.Ptr(to), Bytes: uint64(hi - lo)}, dsts...)
}

// uneven adds an exchange with a size of its own for every pair of ranks.
func (b *builder) uneven(send, recv []coll.Piece) {
	if b.err != nil {
		return
	}
	if b.g.nc != nil {
		b.exchanges = append(b.exchanges, exchange{send, recv})
		return
	}
	p, err := b.g.m.PrepareUneven(send, recv)
	b.keep(p, err, "packets and chunks of each pair")
}

// try plans a launch of segments.
func (b *builder) try(op coll.Op) {
	if b.err != nil {
		return
	}
	op.Kernels = b.part == inBlock
	if b.part >= 0 && op.Kind != kernels.Barrier {
		op.Overlapped, op.Part = true, (b.part+b.p.parts)%coll.StagingParts
	}
	p, err := b.g.m.Prepare(op)
	how := "copy engines"
	if op.Overlapped {
		how = "copies beside compute"
	}
	switch {
	case op.Kind == kernels.Barrier:
		how = "barrier"
	case p != nil && p.Number() == 0 && (op.Kind == kernels.Broadcast || op.Kind == kernels.Permute):
		how = "packets and chunks"
	case p != nil && p.Launch() != nil:
		l := p.Launch()
		how = fmt.Sprintf("%s, %d blocks of %d", l.Kernel, l.Grid, l.Block)
		b.g.named(l.Args.Seq, b.p.name)
	}
	b.keep(p, err, how)
}

// keep adds a prepared launch.
func (b *builder) keep(p *coll.Prepared, err error, how string) {
	if err != nil {
		b.fail(err)
		return
	}
	ahead := &driver.Commands{}
	ahead.Append(&b.p.cmds)
	if b.p.ahead = nil; p.AddAhead(ahead) {
		b.p.ahead = ahead
	}
	b.p.parts += p.Parts()
	p.AddTo(&b.p.cmds)
	if b.how != "" {
		b.how += "; "
	}
	b.how += how
}
