package stablehlo

import (
	"slices"

	"github.com/seed-ee968945/concert/ir"
	"github.com/seed-ee968945/concert/ir/stablehlo/internal/fold"
	"github.com/seed-ee968945/concert/ir/stablehlo/mlir"
)

// A program that XLA has partitioned says which piece is a rank's by its number: it looks up
// where the piece begins in a table, or computes it. This file follows such integers, so that
// a slice which begins there is the rank's shard, as the IR calls it.

// maxRanked bounds the worlds in which that is followed.
const maxRanked = 1 << 12

// followed notes what an integer is on each rank, if it depends on nothing but the rank.
func (im *importer) followed(o *mlir.Operation, in []*value, out []*value) {
	if len(out) != 1 || out[0].v == nil || !out[0].typ.Tensor || im.cur.root().world > maxRanked || slices.Contains(in, out[0]) {
		return
	}
	if n, _ := mlir.NumElements(out[0].typ.Shape); n != 1 {
		return
	}
	world := im.cur.root().world
	list := make([]int64, world)
	switch {
	case o.Name == "stablehlo.partition_id":
		for r := range list {
			list[r] = int64(r % im.procs.Partitions)
		}
	case o.Name == "stablehlo.replica_id":
		for r := range list {
			list[r] = int64(r / im.procs.Partitions)
		}
	case o.Name == "stablehlo.reshape" && in[0].ranks != nil:
		list = in[0].ranks
	case o.Name == "stablehlo.dynamic_slice" && len(in) == 2 && in[0].lit != nil && in[1].ranks != nil && !in[0].lit.DType.IsFloat():
		if n, _ := mlir.NumElements(in[0].lit.Shape); n == 0 || n > maxRanked {
			return
		}
		table := in[0].lit.Ints()
		for r := range list {
			list[r] = table[min(max(in[1].ranks[r], 0), int64(len(table)-1))]
		}
	default:
		if !im.foldedByRank(o, in, list) {
			return
		}
	}
	out[0].ranks = list
}

// foldedByRank computes the operation on each rank's integers; false if it is none on integers.
func (im *importer) foldedByRank(o *mlir.Operation, in []*value, list []int64) bool {
	if !slices.ContainsFunc(in, func(v *value) bool { return v.ranks != nil }) {
		return false
	}
	for r := range list {
		own := make([]*value, len(in))
		for i, v := range in {
			own[i] = v
			if v.ranks == nil {
				continue
			}
			dt, err := mlir.ElementType(v.typ.Elem)
			if err != nil || dt.IsFloat() {
				return false
			}
			own[i] = literalValue(fold.Integer(dt, v.ranks[r]))
		}
		v := im.fold(o, own)
		if v == nil {
			return false
		}
		list[r], _ = v.known()
	}
	return true
}

// shard is the piece of a tensor that begins at places which differ by rank, if each of the
// ranks of a group has one and together they are the whole; nil if they are not.
func (im *importer) shard(x *value, at []*value, shape []int64) ([]*value, error) {
	if len(at) != len(shape) || len(shape) != len(x.typ.Shape) {
		return nil, nil
	}
	d := -1
	for i, v := range at {
		if shape[i] == x.typ.Shape[i] { // the whole dimension
			continue
		}
		if d >= 0 || v.ranks == nil {
			return nil, nil
		}
		d = i
	}
	if d < 0 || shape[d] == 0 || x.typ.Shape[d]%shape[d] != 0 || im.cur.fb == nil || im.branch {
		return nil, nil
	}
	g, err := im.grouped(at[d].ranks, shape[d], x.typ.Shape[d]/shape[d])
	if g == nil || err != nil {
		return nil, err
	}
	v, err := im.ir(x)
	if err != nil {
		return nil, err
	}
	return im.decomposed(im.emitAll(ir.OpShard, g, ir.A("dim", int64(d)), []*ir.Value{v}))
}

// grouped is a group in which the place of a rank is its number divided by a step: one that
// the function has, or a new one; nil if there is none.
func (im *importer) grouped(starts []int64, step, places int64) (*ir.Group, error) {
	if places > int64(len(starts)) {
		return nil, nil
	}
	rows := make([][]int, places)
	for r, n := range starts {
		n = min(max(n, 0), step*(places-1))
		if n%step != 0 {
			return nil, nil
		}
		rows[n/step] = append(rows[n/step], r)
	}
	for _, row := range rows {
		if len(row) != len(rows[0]) || len(row) == 0 {
			return nil, nil
		}
	}
	for _, g := range im.cur.root().groups {
		if int64(g.Size()) == places && !slices.ContainsFunc(g.Ranks, func(l []int) bool {
			for i, r := range l {
				if !slices.Contains(rows[i], r) {
					return true
				}
			}
			return false
		}) {
			return g, nil
		}
	}
	groups := make([][]int, len(rows[0]))
	for k := range groups {
		for _, row := range rows {
			groups[k] = append(groups[k], row[k])
		}
	}
	return im.declared(groups)
}
