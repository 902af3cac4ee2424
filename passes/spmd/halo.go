package spmd

import (
	"slices"

	"github.com/seed-ee968945/concert/ir"
)

// This file has halo exchange: a rank's piece of a result may take rows of an operand that its
// neighbours have. What it takes begins at a place that is affine in the number of its piece, so
// that every rank takes as many rows, and those of the piece so many further on come from there
// by one collective_permute. Rows that lie in front of the first piece or after the last one
// come from nobody, and are zeros. Where ranks take pieces from the last one on, they come from as
// many further on of the rank at the other end.

// reach is what each rank takes of a dimension: count places from first + step*its number on.
type reach struct {
	first, step, count int64
	fill               any // what stands for places outside of the tensor; nil if they do not matter
}

// halo is how a reach is made of pieces.
type halo struct {
	size        int64 // of a piece
	turn        int64 // 1, or -1 if ranks take pieces from the last one on
	from, to    int64 // whose they are: of the rank so many further on than its number, or than 0 less that
	lo, hi      int64 // the first row of piece from, and what is after the last one of piece to
	front, back int64 // rows of zeros, so that no rank takes what is not there
	start, move int64 // where a rank begins: start + move*its number
	low, high   bool  // what lies in front of the tensor or behind its end is not what it should be
}

// halo finds out for a dimension of n elements whose pieces a reach takes.
func (g *grid) halo(l layout, d int, n int64, w reach) halo {
	k := g.size(l.dims[d])
	h := halo{size: l.pad[d] / k, turn: 1, from: 2 * k, to: -k}
	if w.step == -h.size {
		h.turn = -1
	}
	span := func(r int64) (lo, hi int64) { return max(w.first+w.step*r, 0), min(w.first+w.step*r+w.count, n) }
	for r := range k {
		if lo, hi := span(r); lo < hi {
			h.from, h.to = min(h.from, lo/h.size-h.turn*r), max(h.to, (hi-1)/h.size-h.turn*r)
		}
	}
	if h.from > h.to { // no rank takes anything
		h.from, h.to = 0, 0
	}
	h.lo = h.size
	for r := range k {
		if lo, hi := span(r); lo < hi {
			at := h.turn * r
			h.lo, h.hi = min(h.lo, lo-h.size*(at+h.from)), max(h.hi, hi-h.size*(at+h.to))
		}
	}
	if h.hi <= 0 || h.lo == h.size {
		h.lo, h.hi = 0, h.size
	}
	h.start, h.move = w.first-h.size*h.from-h.lo, w.step-h.turn*h.size
	for _, r := range []int64{0, k - 1} {
		begin := h.start + h.move*r
		h.front = max(h.front, -begin)
		h.back = max(h.back, begin+w.count-(h.size*(h.to-h.from)-h.lo+h.hi))
		if w.fill != nil {
			h.low = h.low || w.first+w.step*r < 0 && w.fill != 0.0
			h.high = h.high || w.first+w.step*r+w.count > n && (l.pad[d] != n || w.fill != 0.0)
		}
	}
	h.start += h.front
	return h
}

// rows are those of the piece so many ranks further on.
func (h halo) rows(by int64) (lo, hi int64) {
	if hi = h.size; by == h.to {
		hi = h.hi
	}
	if by == h.from {
		lo = h.lo
	}
	return lo, hi
}

// cost is what a reach costs, and what arrives by it.
func (h halo) cost(g *grid, t tensor, l layout, count int64) (cost, moved int64) {
	row := g.bytes(t, l) / max(h.size, 1)
	for by := h.from; by <= h.to; by++ {
		if lo, hi := h.rows(by); by != 0 || h.turn < 0 {
			cost, moved = cost+latency, moved+(hi-lo)*row
		}
	}
	if rows := h.size*(h.to-h.from) - h.lo + h.hi + h.front + h.back; h.from < h.to || h.front+h.back > 0 {
		cost += launch + 2*rows*row/perMemory
	}
	if h.move != 0 || h.low || h.high {
		cost += launch + 2*count*row/perMemory
	}
	return cost + moved*perByte, moved
}

// taken is what a rank takes of a dimension of n elements of a value in a layout.
func (p *partitioner) taken(v *ir.Value, t tensor, l layout, d int, w reach) *ir.Value {
	h := p.g.halo(l, d, t.shape[d], w)
	slice := func(v *ir.Value, lo, hi int64) *ir.Value {
		if p.err != nil || lo == 0 && hi == shapeOf(v)[d] {
			return v
		}
		return p.one(ir.OpSlice, ir.A("dim", int64(d), "start", lo, "end", hi), []*ir.Value{v})
	}
	zeros := func(n int64) []*ir.Value {
		if n == 0 || p.err != nil {
			return nil
		}
		shape := slices.Clone(shapeOf(v))
		shape[d] = n
		return []*ir.Value{p.full(v.Type().DType(), 0.0, shape...)}
	}
	parts := zeros(h.front)
	for by := h.from; by <= h.to; by++ {
		lo, hi := h.rows(by)
		piece := slice(v, lo, hi)
		if by != 0 || h.turn < 0 {
			piece = p.waited(ir.OpCollectivePermute, p.group(p.g, l.dims[d]), ir.A("pairs", p.g.further(l.dims[d], h.turn, by)), p.contiguous(piece))
			p.moves++
		}
		parts = append(parts, piece)
	}
	if parts = append(parts, zeros(h.back)...); len(parts) > 1 {
		v = p.one(ir.OpCat, ir.A("dim", int64(d)), parts)
	} else {
		v = parts[0]
	}
	if h.move == 0 {
		v = slice(v, h.start, h.start+w.count)
	} else {
		v = p.one(ir.OpIndex, ir.A("dims", []int64{int64(d)}), []*ir.Value{v, p.along(l.dims[d], h.start, h.move, w.count)})
	}
	_, moved := h.cost(p.g, t, l, w.count)
	p.moved += moved
	if h.low || h.high {
		v = p.inside(v, h, t.shape[d], l, d, w)
	}
	return v
}

// inside has what stands for places outside of the tensor in those in front of its beginning,
// or behind its end.
func (p *partitioner) inside(v *ir.Value, h halo, end int64, l layout, d int, w reach) *ir.Value {
	at := p.along(l.dims[d], w.first, w.step, w.count)
	var in *ir.Value
	if h.low {
		in = p.one(ir.OpGe, ir.A("scalar", 0.0), []*ir.Value{at})
	}
	if h.high {
		before := p.one(ir.OpLt, ir.A("scalar", float64(end)), []*ir.Value{at})
		if in == nil {
			in = before
		} else {
			in = p.one(ir.OpLogicalAnd, nil, []*ir.Value{in, before})
		}
	}
	if p.err != nil {
		return v
	}
	shape := slices.Repeat([]int64{1}, len(l.dims)-d)
	shape[0] = w.count
	return p.one(ir.OpWhere, nil, []*ir.Value{p.view(in, shape...), v, p.full(v.Type().DType(), w.fill)})
}

// along are count numbers from first + step*a rank's number along atoms on.
func (p *partitioner) along(atoms []int8, first, step, count int64) *ir.Value {
	at := p.one(ir.OpIota, ir.A("start", first), nil, ir.Tensor(ir.I64, count))
	mine := p.one(ir.OpIota, ir.A("start", int64(0), "step", step), nil, ir.Tensor(ir.I64, p.g.size(atoms)))
	mine = p.op(ir.OpShard, p.group(p.g, atoms), ir.A("dim", int64(0)), []*ir.Value{mine})[0]
	return p.one(ir.OpAdd, nil, []*ir.Value{at, mine})
}

// further are the pairs by which each rank along atoms has what the one so many further on had, or
// so many further on than 0 less its number.
func (g *grid) further(atoms []int8, turn, by int64) []int64 {
	var out []int64
	for to := range g.size(atoms) {
		if from := turn*to + by; from >= 0 && from < g.size(atoms) {
			out = append(out, from, to)
		}
	}
	return out
}
