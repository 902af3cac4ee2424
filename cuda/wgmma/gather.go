package wgmma

import (
	"encoding/binary"
	"fmt"

	"github.com/seed-ee968945/concert/cuda/driver"
	"github.com/seed-ee968945/concert/cuda/library"
	"github.com/seed-ee968945/concert/kernels"
)

// PlanGather plans a matmul that gathers its left operand. Of the call, the operands are this
// rank's rows and the right operand, the results the rows of all ranks, in symmetric memory, and
// their product; args are those of a call of the group, which the plan completes. What has no
// kernel is an error that wraps library.ErrNotServed: then it takes an all_gather and a matmul. The result of Plan has
// the same bits, unless Plan's step cuts sums over blocks. All ranks of the group have to be given as many
// multiprocessors, and c.SMs must leave some to every kernel on this device that a rank of the group may wait for.
func (l *Library) PlanGather(c *library.Call, args *kernels.Args) (library.Step, error) {
	if len(c.Ins) != 2 || len(c.Outs) != 2 {
		return nil, fmt.Errorf("%w: %d operands and %d results", library.ErrNotServed, len(c.Ins), len(c.Outs))
	}
	own, gathered, n := c.Ins[0], c.Outs[0], int64(args.N)
	all := library.Call{Op: "matmul", Ins: []library.Tensor{gathered, c.Ins[1]}, Outs: c.Outs[1:], SMs: c.SMs}
	p, err := problemOf(&all)
	if err != nil {
		return nil, err
	}
	rows := p.N / n
	if !p.Swapped || p.Y.Trans || p.Batch != 1 || rows*n != p.N || p.Y.LD != p.K || own.At%16 != 0 || own.DType != gathered.DType || !isRows(own, rows, p.K) {
		return nil, fmt.Errorf("%w: rows of %v, strides %v, gathered as %v, strides %v", library.ErrNotServed, own.Shape, own.Strides, gathered.Shape, gathered.Strides)
	}
	s := shapeOf(p)
	s.M = rows
	m, err := kernels.NewGatheringMatmul(s, int(n), l.upTo(c))
	if err != nil {
		return nil, fmt.Errorf("%w: %w", library.ErrNotServed, err)
	}
	// A batch is a rank's rows.
	p.Y.Stride, p.D.Stride = rows*p.Y.LD, rows*p.D.LD
	return l.encode(m, [][]*driver.TensorMap{
		{tensorMap(own.At, p.Y, p.K, rows, 1, m.A)}, {tensorMap(c.Ins[1].At, p.X, p.M, p.K, 1, m.B)}, {tensorMap(c.Outs[1].At, p.D, p.M, rows, n, m.D)},
		{tensorMap(gathered.At, p.Y, p.K, rows, n, m.A)},
	}, m.Gather(args, uint64(own.At), uint64(gathered.At), uint64(2*rows*p.K)))
}

// PlanScatter plans a matmul whose rows belong to the ranks of a group: each rank's go where to says
// for it, which no other kernel may use meanwhile. rank is this one, whose rows are the last to be computed.
// The results have the bits of Plan's.
func (l *Library) PlanScatter(c *library.Call, to []driver.Ptr, rank int) (library.Step, error) {
	if len(c.Ins) != 2 || len(c.Outs) != 1 {
		return nil, fmt.Errorf("%w: %d operands and %d results", library.ErrNotServed, len(c.Ins), len(c.Outs))
	}
	p, err := problemOf(c)
	if err != nil {
		return nil, err
	}
	n := int64(len(to))
	rows := p.N / n
	if !p.Swapped || p.Batch != 1 || rows*n != p.N || p.D.LD != p.M || p.Y.Trans && rows%8 != 0 {
		return nil, fmt.Errorf("%w: rows of %v, strides %v, for %d ranks", library.ErrNotServed, c.Outs[0].Shape, c.Outs[0].Strides, n)
	}
	s := shapeOf(p)
	s.M = rows
	m, err := kernels.NewScatteringMatmul(s, int(n), l.upTo(c))
	if err != nil {
		return nil, fmt.Errorf("%w: %w", library.ErrNotServed, err)
	}
	p.Y.Stride = rows * p.Y.LD
	if p.Y.Trans {
		p.Y.Stride = rows
	}
	first := (rank + 1) % len(to)
	maps := make([]*driver.TensorMap, kernels.MaxRanks)
	for i := range to {
		maps[i] = tensorMap(to[(first+i)%len(to)], p.D, p.M, rows, 1, m.D)
	}
	return l.encode(m, [][]*driver.TensorMap{
		{tensorMap(c.Ins[0].At, p.Y, p.K, rows, n, m.A)}, {tensorMap(c.Ins[1].At, p.X, p.M, p.K, 1, m.B)}, maps,
	}, binary.LittleEndian.AppendUint32(nil, uint32(first)))
}

// isRows reports whether t is so many rows, one after the other.
func isRows(t library.Tensor, rows, cols int64) bool {
	return len(t.Shape) == 2 && t.Shape[0] == rows && t.Shape[1] == cols && t.Strides[1] == 1 && (rows == 1 || t.Strides[0] == cols)
}
