package spmd

import (
	"fmt"
	"slices"

	"github.com/seed-ee968945/concert/ir"
)

// This file has what random programs say themselves of their ranks, as manual computations do.

// manual takes each rank's piece of a value along some axes, computes with it, perhaps along others
// inside, and makes a value of all ranks of the result.
func (r *random) manual(x *ir.Value, d int64, used []string, depth int) (out []*ir.Value) {
	s := shapeOf(x)
	g, names, k := r.ranks(used)
	if k < 2 {
		return nil
	}
	cut := s[d]%k == 0 && s[d] > 0 && r.IntN(4) > 0
	y := x
	if cut {
		y = r.fb.Shard(g, d, x)
		r.annotate(y)
	}
	for range r.IntN(3) {
		y = r.within(y, d, g, k, slices.Concat(used, names), depth)
		r.annotate(y)
	}
	switch n := r.IntN(6); {
	case cut && n < 3:
		y = r.fb.Wait1(r.fb.AllGather(g, int64(r.IntN(y.Type().Rank())), y))
	case n == 5 && shapeOf(y)[d]%k == 0:
		y = r.fb.Wait1(r.fb.ReduceScatter(ir.Sum, g, d, y))
		r.annotate(y)
		y = r.fb.Wait1(r.fb.AllGather(g, d, y))
	default:
		how := []ir.Reduction{ir.Sum, ir.Avg, ir.Max, ir.Min}[r.IntN(4)]
		y = r.fb.Wait1(r.fb.AllReduce(how, g, y))
	}
	return []*ir.Value{y}
}

// within is something done with the pieces that k ranks have.
func (r *random) within(y *ir.Value, d int64, g *ir.Group, k int64, used []string, depth int) *ir.Value {
	s := shapeOf(y)
	switch r.IntN(8) {
	case 0:
		return r.fb.Unary(ir.OpNeg, y)
	case 1:
		return r.fb.Scalar(ir.OpMul, y, 0.5)
	case 2:
		return r.fb.Reduce([]ir.Op{ir.OpSum, ir.OpAmax, ir.OpMean}[r.IntN(3)], y, true, d)
	case 3:
		if z := r.pick(func(t []int64, dt ir.DType) bool { return slices.Equal(s, t) && dt == ir.F32 }); z != nil {
			return r.fb.Binary(ir.OpAdd, y, z)
		}
	case 4:
		if s[0]%k == 0 {
			return r.fb.Wait1(r.fb.AllToAll(g, r.fb.Clone(y)))
		}
	case 5:
		var pairs []int64
		for from, to := range r.Perm(int(k)) {
			pairs = append(pairs, int64(from), int64(to))
		}
		return r.fb.Wait1(r.fb.CollectivePermute(g, pairs, y))
	case 6:
		return r.fb.Wait1(r.fb.Broadcast(g, r.Int64N(k), y))
	case 7:
		if depth < 2 {
			if l := r.manual(y, int64(r.IntN(len(s))), used, depth+1); l != nil {
				return l[0]
			}
		}
	}
	return y
}

// ranks are those along some axes that are not used, and how many.
func (r *random) ranks(used []string) (*ir.Group, []string, int64) {
	g, err := newGrid(r.mesh, nil)
	if err != nil {
		return nil, nil, 0
	}
	var atoms []int8
	var names []string
	for _, a := range r.Perm(len(g.atoms)) {
		if name := g.atoms[a].axis; !slices.Contains(used, name) && (atoms == nil || r.IntN(2) == 0) {
			atoms, names = append(atoms, int8(a)), append(names, name)
		}
	}
	if atoms == nil {
		return nil, nil, 0
	}
	ranks := g.groups(atoms)
	key := fmt.Sprint(ranks)
	if r.groups[key] == nil {
		r.groups[key] = r.b.Group(fmt.Sprintf("g%d", len(r.groups)), ranks)
	}
	return r.groups[key], names, g.size(atoms)
}
