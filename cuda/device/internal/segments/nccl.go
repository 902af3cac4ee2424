package segments

import (
	"slices"

	"github.com/seed-ee968945/concert/cuda/device/internal/layout"
	"github.com/seed-ee968945/concert/cuda/nccl"
	"github.com/seed-ee968945/concert/internal/dtype"
	"github.com/seed-ee968945/concert/kernels"
	rt "github.com/seed-ee968945/concert/runtime"
)

// NCCLInPlace reports whether all that results share with operands is what NCCL allows:
// the operand of an all_gather in the place of this rank's part of the result, the result
// of a reduce_scatter in the place of this rank's part of the operand.
func NCCLInPlace(c *rt.Collective, pos int) bool {
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

var (
	ncclKinds = map[kernels.Collective]nccl.Kind{kernels.AllReduce: nccl.AllReduce, kernels.AllGather: nccl.AllGather,
		kernels.ReduceScatter: nccl.ReduceScatter, kernels.AllToAll: nccl.AllToAll, kernels.Broadcast: nccl.Broadcast,
		kernels.Permute: nccl.Permute}
	ncclReductions = map[kernels.Reduction]nccl.Reduction{kernels.Sum: nccl.Sum, kernels.Avg: nccl.Avg,
		kernels.Prod: nccl.Product, kernels.Min: nccl.Min, kernels.Max: nccl.Max}
)

// NCCL is what ranks exchange as NCCL's operations: all tensors of one type travel in one. A barrier reduces a word of
// scratch. Errors call the operations by the label.
func (f *Form) NCCL(label string, word uintptr) []nccl.Op {
	var ops []nccl.Op
	for _, op := range f.Ops {
		if op.Kind == kernels.Barrier {
			ops = append(ops, nccl.Op{Kind: nccl.AllReduce, DType: dtype.I32, Label: label,
				Tensors: []nccl.Tensor{{Src: word, Dst: word, Bytes: 4}}})
			continue
		}
		// Kernels take so many tensors in a launch, NCCL any number.
		at := slices.IndexFunc(ops, func(o nccl.Op) bool { return o.Kind == ncclKinds[op.Kind] && o.DType == op.DType })
		if at < 0 {
			at = len(ops)
			o := nccl.Op{Kind: ncclKinds[op.Kind], DType: op.DType, Reduce: ncclReductions[op.Red], Root: op.Root, Label: label}
			for _, p := range op.Pairs {
				o.Pairs = append(o.Pairs, p[0], p[1])
			}
			ops = append(ops, o)
		}
		for _, t := range op.Tensors {
			ops[at].Tensors = append(ops[at].Tensors, nccl.Tensor{Src: uintptr(t.Src), Dst: uintptr(t.Dst), Bytes: t.Bytes})
		}
	}
	for _, x := range f.Uneven {
		t := nccl.Tensor{SendBytes: []uint64{}, RecvBytes: []uint64{}}
		for _, p := range x.Send {
			t.SendBytes = append(t.SendBytes, p.Bytes)
		}
		for _, p := range x.Recv {
			t.RecvBytes = append(t.RecvBytes, p.Bytes)
		}
		t.Src, t.Dst = uintptr(x.Send[0].At), uintptr(x.Recv[0].At)
		ops = append(ops, nccl.Op{Kind: nccl.AllToAll, DType: dtype.U8, Tensors: []nccl.Tensor{t}, Label: label})
	}
	return ops
}
