package equiv

import (
	"encoding/binary"
	"slices"

	"github.com/seed-ee968945/concert/equiv/internal/layout"
	"github.com/seed-ee968945/concert/equiv/internal/scalar"
	"github.com/seed-ee968945/concert/ir"
)

// partitions are partitions of the ranks, by number: each gives every rank the least
// rank of its block. Number 0 is that of single ranks, number 1 that of all in one.
type partitions struct {
	numbered[string, []int32]
	both map[[2]int32]int32 // look-up only
}

const (
	partSingle = 0
	partAll    = 1
)

func newPartitions(world int) partitions {
	p := partitions{both: map[[2]int32]int32{}}
	single := make([]int32, world)
	for r := range single {
		single[r] = int32(r)
	}
	p.number(ranksKey(single), single)
	all := make([]int32, world)
	if p.number(ranksKey(all), all) == partSingle { // one rank: both are the same
		p.all = append(p.all, all)
	}
	return p
}

func ranksKey(l []int32) string {
	b := make([]byte, 0, 2*len(l))
	for _, r := range l {
		b = binary.AppendVarint(b, int64(r))
	}
	return string(b)
}

// meet is the partition whose blocks lie in blocks of both.
func (p *partitions) meet(a, b int32) int32 {
	switch {
	case a == b || b == partAll:
		return a
	case a == partAll:
		return b
	case a == partSingle || b == partSingle:
		return partSingle
	}
	return memoized(p.both, min(a, b), max(a, b), func() int32 {
		x, y := p.all[a], p.all[b]
		return p.by(len(x), func(r int) string { return ranksKey([]int32{x[r], y[r]}) })
	})
}

// by is the partition of the ranks with equal keys.
func (p *partitions) by(world int, key func(r int) string) int32 {
	block := make([]int32, world)
	first := map[string]int32{} // look-up only
	for r := range block {
		k := key(r)
		f, ok := first[k]
		if !ok {
			f = int32(r)
			first[k] = f
		}
		block[r] = f
	}
	return p.number(ranksKey(block), block)
}

// sameRanks is the partition on whose blocks t is known to be equal.
func (z *normalizer) sameRanks(t *term) int32 {
	world := z.p.world
	switch t.kind {
	case kindMove:
		if z.layouts.all[t.layout].Rank != nil {
			return z.sameAfterMove(t)
		}
	case kindShuffle:
		if !t.local {
			return z.sameAfterExchange(t)
		}
	case kindReduce:
		block, rows := z.parts.all[z.at(t.args[0]).same], z.rows.all[t.rows]
		if len(rows)*len(rows[0]) > layout.MaxTable {
			return partSingle
		}
		return z.parts.by(world, func(r int) string {
			row := make([]int32, len(rows[r]))
			for i, q := range rows[r] {
				row[i] = block[q]
			}
			if z.anyOrder(t.red, t.dt) {
				slices.Sort(row)
			}
			return ranksKey(row)
		})
	case kindOpaque:
		if t.op == ir.OpInput || t.op == ir.OpCall || t.op.Info().Bodies != nil || t.text != "" && t.text[0] == '%' {
			return partSingle // inputs, opaque calls and bodies may differ by rank, and so do random numbers
		}
	}
	part := int32(partAll)
	var given []ir.Dim // sizes that are equal where the operands are; those of constants are each rank's own
	names := t.n.Symbols(nil)
	for _, a := range t.args {
		x := z.at(a)
		if x.kind != kindFull && x.kind != kindIota {
			part, given = z.parts.meet(part, x.same), append(given, x.n)
		}
		names = x.n.Symbols(names)
	}
	sizes := []ir.Dim{t.n}
	if t.kind != kindPoint && t.kind != kindMove { // what it computes may depend on each dimension
		for _, s := range names {
			sizes = append(sizes, ir.Sym(s))
		}
	}
	if slices.ContainsFunc(sizes, func(n ir.Dim) bool { return !n.Determined(given) }) {
		return partSingle
	}
	return part
}

// sameAfterExchange knows that all ranks of a group see the same pieces, each of its own place
// unless it gathers them all.
func (z *normalizer) sameAfterExchange(t *term) int32 {
	block, g := z.parts.all[z.at(t.args[0]).same], z.p.groups[t.base]
	return z.parts.by(z.p.world, func(r int) string {
		var row []int32
		switch t.op {
		case ir.OpShard:
			row = append(row, g.at[r], block[r])
		case ir.OpAllGather, ir.OpBroadcast:
		default:
			row = append(row, g.at[r])
		}
		if t.op != ir.OpShard {
			for _, q := range g.list[r] {
				row = append(row, block[q])
			}
		}
		return ranksKey(row)
	})
}

func (z *normalizer) sameAfterMove(t *term) int32 {
	l, in := &z.layouts.all[t.layout], z.at(t.args[0]).same
	if l.Rank == nil {
		return in
	}
	return memoized(z.behind, t.layout, in, func() int32 {
		block, entries := z.parts.all[in], l.Entries()
		return z.parts.by(z.p.world, func(r int) string {
			b := make([]byte, 0, 8*entries)
			for k := r * entries; k < (r+1)*entries; k++ {
				b = binary.AppendVarint(binary.AppendVarint(b, int64(block[l.Rank[k]])), l.Add[k])
			}
			return string(b)
		})
	})
}

// lists numbers lists of ranks.
func (z *normalizer) lists(of [][]int32) int32 {
	var b []byte
	for _, row := range of {
		b = binary.AppendUvarint(b, uint64(len(row)))
		for _, r := range row {
			b = binary.AppendUvarint(b, uint64(r))
		}
	}
	return z.rows.number(string(b), of)
}

// anyOrder reports whether a reduction gives the same in any order and grouping, with what
// the options allow of floats.
func (z *normalizer) anyOrder(red ir.Reduction, dt ir.DType) bool {
	return scalar.AnyOrder(red, dt, z.p.opts.Reassociate)
}
