package progen

import (
	"github.com/seed-ee968945/concert/internal/attr"
	"github.com/seed-ee968945/concert/ir"
)

func (g *gen) move() bool {
	x := g.pick(nil)
	if x == nil {
		return false
	}
	rank := x.typ.Rank()
	d := 0
	if rank > 0 {
		d = g.r.IntN(rank)
	}
	switch k := g.r.IntN(4); {
	case k == 0 || rank == 0:
		return g.emit(ir.OpClone, nil, nil, []*value{x}) != nil
	case k < 3:
		args := []*value{x}
		for range g.r.IntN(3) {
			y := g.pick(func(v *value) bool {
				_, err := ir.Infer(ir.OpCat, nil, list("dim", d), []ir.Type{x.typ, v.typ})
				return err == nil && v.typ.DType() == x.typ.DType()
			})
			if y != nil {
				args = append(args, y)
			}
		}
		return g.emit(ir.OpCat, nil, list("dim", d), args) != nil
	}
	n, static := x.typ.Shape()[d].Const()
	if !static {
		return false
	}
	start := g.r.Int64N(n + 1)
	end := start + g.r.Int64N(n-start+1)
	before := len(g.pool)
	if !(g.emit(ir.OpSlice, nil, list("dim", d, "start", start, "end", end), []*value{x}) != nil && len(g.pool) > before) {
		return false
	}
	part := g.pool[len(g.pool)-1]
	y := g.pick(func(v *value) bool { return v.typ.SameTensor(part.typ) })
	if y == nil {
		y = part
	}
	return g.emit(ir.OpSliceScatter, nil, list("dim", d, "start", start, "end", end), []*value{x, y}) != nil
}

// positions makes n indices below size: at random places of a tensor, or distinct.
func (g *gen) positions(n, size int64, distinct bool) *value {
	dt := []ir.DType{ir.I64, ir.I32}[g.r.IntN(2)]
	if !distinct {
		x := g.pick(func(v *value) bool {
			s, ok := v.typ.Shape().Static()
			return ok && len(s) == 1 && s[0] == n && v.typ.DType() == dt
		})
		if x != nil {
			if rs := g.emit(ir.OpClamp, nil, list("min", 0, "max", size-1), []*value{x}); rs != nil {
				return rs[0]
			}
		}
	}
	if n > size {
		return nil
	}
	l := attr.List(nil)
	if n < size {
		l = list("start", g.r.Int64N(size-n+1))
	}
	if rs := g.emit(ir.OpIota, nil, l, nil, ir.Tensor(dt, n)); rs != nil {
		return rs[0]
	}
	return nil
}

func (g *gen) indexed() bool {
	x := g.pick(func(v *value) bool {
		s, ok := v.typ.Shape().Static()
		return ok && len(s) > 0 && s[0] > 0
	})
	if x == nil {
		return false
	}
	sizes, _ := x.typ.Shape().Static()
	size, rest := sizes[0], sizes[1:]
	n := 1 + g.r.Int64N(min(size, 4))
	kind := g.r.IntN(7)
	// Values that replace others go to distinct places: the order of writes is open.
	replaces := kind == 2 || kind == 5
	idx := g.positions(n, size, replaces)
	if idx == nil {
		return false
	}
	vals := func(shape ...int64) *value { return g.some(ir.Tensor(x.typ.DType(), shape...)) }
	rows := append([]int64{n}, rest...)
	switch kind {
	case 0:
		return g.emit(ir.OpIndex, nil, list("dims", []int64{0}), []*value{x, idx}) != nil
	case 1:
		return len(sizes) == 2 && g.emit(ir.OpEmbedding, nil, nil, []*value{x, idx}) != nil
	case 2, 3:
		v := vals(rows...)
		l := list("dims", []int64{0})
		if kind == 3 {
			l = l.With("accumulate", attr.Bool(true))
		}
		return v != nil && g.emit(ir.OpIndexPut, nil, l, []*value{x, v, idx}) != nil
	case 4:
		v := vals(rows...)
		return v != nil && g.emit(ir.OpIndexAdd, nil, list("dim", 0), []*value{x, idx, v}) != nil
	}
	if len(sizes) != 1 {
		return false
	}
	if kind == 6 {
		return g.emit(ir.OpGather, nil, list("dim", 0), []*value{x, idx}) != nil
	}
	if g.r.IntN(2) == 0 {
		return g.emit(ir.OpScatter, nil, list("dim", 0, "value", float64(g.r.IntN(3))), []*value{x, idx}) != nil
	}
	v := vals(n)
	return v != nil && g.emit(ir.OpScatter, nil, list("dim", 0), []*value{x, idx, v}) != nil
}
