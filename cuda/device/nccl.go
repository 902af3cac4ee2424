package device

import (
	"fmt"
	"slices"

	"github.com/seed-ee968945/concert/cuda/coll"
	"github.com/seed-ee968945/concert/cuda/device/internal/layout"
	"github.com/seed-ee968945/concert/cuda/driver"
	"github.com/seed-ee968945/concert/cuda/nccl"
	"github.com/seed-ee968945/concert/internal/dtype"
	"github.com/seed-ee968945/concert/kernels"
	rt "github.com/seed-ee968945/concert/runtime"
)

// Collectives of groups that NCCL serves. The builder brings operands and results into
// the form that kernels take, which is what NCCL takes as well; all tensors of a
// collective that have one type then travel in one call.

// exchange is an all_to_all with a size of its own for every pair of ranks.
type exchange struct{ send, recv []coll.Piece }

// barrierBytes are of every group's scratch, behind what layouts use: barriers reduce a
// word there.
const barrierBytes = 256

// overNCCL plans a collective of a group that NCCL serves.
func (b *builder) overNCCL() {
	if b.c.Op == rt.Barrier {
		b.ops = []coll.Op{{Kind: kernels.Barrier}}
		b.callNCCL()
		return
	}
	if b.staged && ncclInPlace(b.c, b.g.pos) {
		b.staged = false
	}
	b.build()
}

// ncclInPlace reports whether all that results share with operands is what NCCL allows:
// the operand of an all_gather in the place of this rank's part of the result, the result
// of a reduce_scatter in the place of this rank's part of the operand.
func ncclInPlace(c *rt.Collective, pos int) bool {
	if c.Op != rt.AllGather && c.Op != rt.ReduceScatter {
		return false
	}
	list := layout.Spans(c)
	for i, a := range list {
		for _, b := range list[i+1:] {
			if b.Lo >= a.Hi {
				break
			}
			if a.Out == b.Out {
				continue // two operands may overlap, and results do not
			}
			small, large := c.Ins[a.I], c.Outs[a.I]
			if c.Op == rt.ReduceScatter {
				small, large = large, small
			}
			count, bytes, ok := layout.Rows(small, large, c.Dim)
			lo, _, _ := small.Span()
			at, _, _ := large.Span()
			if a.I != b.I || !ok || count != 1 || lo != at+int64(pos)*bytes {
				return false
			}
		}
	}
	return true
}

// callNCCL makes the plan of what build has gathered.
func (b *builder) callNCCL() {
	before := b.p.cmds
	b.p.cmds = driver.Commands{}
	for _, m := range b.after {
		b.copy(m.dst, m.src)
	}
	after := b.p.cmds
	b.p.cmds = driver.Commands{}
	ops := b.ncclOps()
	for i := range ops {
		b.fail(ops[i].Check(b.g.pos, len(b.g.ranks)))
	}
	if b.err != nil {
		return
	}
	b.how = "NCCL"
	if b.copies > 0 {
		b.how += fmt.Sprintf("; %d copies to or from scratch", b.copies)
	}
	d, p := b.d, b.p
	b.p.ops = ops
	b.p.call = func(st *stream) error {
		if before.Len() > 0 {
			if err := d.drv.Run(d.rank.Ctx, before.On(st.h)); err != nil {
				return err
			}
		}
		if err := d.runNCCL(st, p); err != nil {
			return err
		}
		if after.Len() > 0 {
			return d.drv.Run(d.rank.Ctx, after.On(st.h))
		}
		return nil
	}
}

var (
	ncclKinds = map[kernels.Collective]nccl.Kind{kernels.AllReduce: nccl.AllReduce, kernels.AllGather: nccl.AllGather,
		kernels.ReduceScatter: nccl.ReduceScatter, kernels.AllToAll: nccl.AllToAll, kernels.Broadcast: nccl.Broadcast,
		kernels.Permute: nccl.Permute}
	ncclReductions = map[kernels.Reduction]nccl.Reduction{kernels.Sum: nccl.Sum, kernels.Avg: nccl.Avg,
		kernels.Prod: nccl.Product, kernels.Min: nccl.Min, kernels.Max: nccl.Max}
)

// ncclOps are the gathered launches as NCCL's.
func (b *builder) ncclOps() []nccl.Op {
	var ops []nccl.Op
	for _, op := range b.ops {
		if op.Kind == kernels.Barrier {
			word := uintptr(b.g.scratch) + uintptr(b.g.room)
			ops = append(ops, nccl.Op{Kind: nccl.AllReduce, DType: dtype.I32, Label: b.p.name,
				Tensors: []nccl.Tensor{{Src: word, Dst: word, Bytes: 4}}})
			continue
		}
		// Kernels take so many tensors in a launch, NCCL any number.
		at := slices.IndexFunc(ops, func(o nccl.Op) bool { return o.Kind == ncclKinds[op.Kind] && o.DType == op.DType })
		if at < 0 {
			at = len(ops)
			o := nccl.Op{Kind: ncclKinds[op.Kind], DType: op.DType, Reduce: ncclReductions[op.Red], Root: op.Root, Label: b.p.name}
			for _, p := range op.Pairs {
				o.Pairs = append(o.Pairs, p[0], p[1])
			}
			ops = append(ops, o)
		}
		for _, t := range op.Tensors {
			ops[at].Tensors = append(ops[at].Tensors, nccl.Tensor{Src: uintptr(t.Src), Dst: uintptr(t.Dst), Bytes: t.Bytes})
		}
	}
	for _, x := range b.exchanges {
		t := nccl.Tensor{SendBytes: []uint64{}, RecvBytes: []uint64{}}
		for _, p := range x.send {
			t.SendBytes = append(t.SendBytes, p.Bytes)
		}
		for _, p := range x.recv {
			t.RecvBytes = append(t.RecvBytes, p.Bytes)
		}
		t.Src, t.Dst = uintptr(x.send[0].At), uintptr(x.recv[0].At)
		ops = append(ops, nccl.Op{Kind: nccl.AllToAll, DType: dtype.U8, Tensors: []nccl.Tensor{t}, Label: b.p.name})
	}
	return ops
}
