package terms

import (
	"encoding/binary"
	"slices"

	"github.com/seed-ee968945/concert/equiv/internal/layout"
	"github.com/seed-ee968945/concert/equiv/internal/ranks"
	"github.com/seed-ee968945/concert/equiv/internal/scalar"
	"github.com/seed-ee968945/concert/ir"
)

// sameRanks is the partition on whose blocks t is known to be equal.
func (z *Normalizer) sameRanks(t *term) int32 {
	world := z.vals.world
	switch t.kind {
	case kindMove:
		if z.layouts.All[t.layout].Rank != nil {
			return z.sameAfterMove(t)
		}
	case kindShuffle:
		if !t.local {
			return z.sameAfterExchange(t)
		}
	case kindReduce:
		block, rows := z.parts.All[z.at(t.args[0]).same], z.rows.All[t.rows]
		if len(rows)*len(rows[0]) > layout.MaxTable {
			return ranks.Single
		}
		return z.parts.By(world, func(r int) string {
			row := make([]int32, len(rows[r]))
			for i, q := range rows[r] {
				row[i] = block[q]
			}
			if z.anyOrder(t.red, t.dt) {
				slices.Sort(row)
			}
			return ranks.Key(row)
		})
	case kindOpaque:
		if t.op == ir.OpInput || t.op == ir.OpCall || t.op.Info().Bodies != nil || t.text != "" && t.text[0] == '%' {
			return ranks.Single // inputs, opaque calls and bodies may differ by rank, and so do random numbers
		}
	}
	part := int32(ranks.All)
	var given []ir.Dim // sizes that are equal where the operands are; those of constants are each rank's own
	names := t.n.Symbols(nil)
	for _, a := range t.args {
		x := z.at(a)
		if x.kind != kindFull && x.kind != kindIota {
			part, given = z.parts.Meet(part, x.same), append(given, x.n)
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
		return ranks.Single
	}
	return part
}

// sameAfterExchange knows that all ranks of a group see the same pieces, each of its own place
// unless it gathers them all.
func (z *Normalizer) sameAfterExchange(t *term) int32 {
	block, g := z.parts.All[z.at(t.args[0]).same], z.vals.groups[t.base]
	return z.parts.By(z.vals.world, func(r int) string {
		var row []int32
		switch t.op {
		case ir.OpShard:
			row = append(row, g.At[r], block[r])
		case ir.OpAllGather, ir.OpBroadcast:
		default:
			row = append(row, g.At[r])
		}
		if t.op != ir.OpShard {
			for _, q := range g.List[r] {
				row = append(row, block[q])
			}
		}
		return ranks.Key(row)
	})
}

func (z *Normalizer) sameAfterMove(t *term) int32 {
	l, in := &z.layouts.All[t.layout], z.at(t.args[0]).same
	if l.Rank == nil {
		return in
	}
	return z.behind.Of(t.layout, in, func() int32 {
		block, entries := z.parts.All[in], l.Entries()
		return z.parts.By(z.vals.world, func(r int) string {
			b := make([]byte, 0, 8*entries)
			for k := r * entries; k < (r+1)*entries; k++ {
				b = binary.AppendVarint(binary.AppendVarint(b, int64(block[l.Rank[k]])), l.Add[k])
			}
			return string(b)
		})
	})
}

// lists numbers lists of ranks.
func (z *Normalizer) lists(of [][]int32) int32 {
	var b []byte
	for _, row := range of {
		b = binary.AppendUvarint(b, uint64(len(row)))
		for _, r := range row {
			b = binary.AppendUvarint(b, uint64(r))
		}
	}
	return z.rows.Number(string(b), of)
}

// anyOrder reports whether a reduction gives the same in any order and grouping, with what
// the options allow of floats.
func (z *Normalizer) anyOrder(red ir.Reduction, dt ir.DType) bool {
	return scalar.AnyOrder(red, dt, z.reassociate)
}
