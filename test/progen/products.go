package progen

import (
	"encoding/base64"
	"encoding/binary"

	"github.com/seed-ee968945/concert/ir"
)

func (g *gen) matmul() bool {
	a := g.pick(func(v *value) bool { return v.typ.Rank() == 2 || v.typ.Rank() == 3 })
	if a == nil {
		return false
	}
	b := g.pick(func(v *value) bool {
		_, err := ir.Infer(ir.OpMatmul, nil, nil, []ir.Type{a.typ, v.typ})
		return err == nil
	})
	if b == nil { // by its own transpose
		dims := []int64{1, 0}
		if a.typ.Rank() == 3 {
			dims = []int64{0, 2, 1}
		}
		rs := g.emit(ir.OpPermute, nil, list("dims", dims), []*value{a})
		if rs == nil {
			return false
		}
		b = rs[0]
	}
	if dt := a.typ.DType(); dt.IsFloat() && dt.Size() == 2 && dt == b.typ.DType() && g.r.IntN(2) == 0 {
		return g.widened(a, b)
	}
	if g.r.IntN(3) > 0 {
		return g.emit(ir.OpMatmul, nil, nil, []*value{a, b}) != nil
	}
	c := g.pick(func(v *value) bool {
		_, err := ir.Infer(ir.OpAddmm, nil, nil, []ir.Type{v.typ, a.typ, b.typ})
		return err == nil
	})
	return c != nil && g.emit(ir.OpAddmm, nil, list("alpha", []float64{1, 0.5}[g.r.IntN(2)], "beta", []float64{1, 2}[g.r.IntN(2)]), []*value{c, a, b}) != nil
}

// widened multiplies 16-bit floats in f32, and may round the result, or its transpose.
func (g *gen) widened(a, b *value) bool {
	args := []*value{a, b}
	for i, x := range args {
		wide := g.emit(ir.OpConvert, nil, nil, args[i:i+1], ir.TensorOf(ir.F32, x.typ.Shape()))
		if wide == nil {
			return false
		}
		args[i] = wide[0]
	}
	y := g.emit(ir.OpMatmul, nil, nil, args)
	if y != nil && y[0].typ.Rank() == 2 && g.r.IntN(2) == 0 {
		y = g.emit(ir.OpPermute, nil, list("dims", []int64{1, 0}), y)
	}
	if y != nil && g.r.IntN(3) > 0 {
		y = g.emit(ir.OpConvert, nil, nil, y, y[0].typ.WithDType(a.typ.DType()))
	}
	return y != nil
}

// groupedMatmul multiplies by groups that end where constants say.
func (g *gen) groupedMatmul() bool {
	a := g.pick(func(v *value) bool { return v.typ.Rank() == 2 || v.typ.Rank() == 3 })
	if a == nil {
		return false
	}
	groups := func(v *value) (int64, int64) { // how many, and what they divide
		s, ok := a.typ.Shape().Static()
		t, also := v.typ.Shape().Static()
		switch {
		case !ok || !also:
			return 0, 0
		case len(s) == len(t):
			return 2, s[1]
		case len(s) == 3:
			return s[0], t[1]
		}
		return t[0], s[0]
	}
	b := g.pick(func(v *value) bool {
		if r := v.typ.Rank(); r != 2 && r != 3 {
			return false
		}
		n, _ := groups(v)
		_, err := ir.Infer(ir.OpGroupedMatmul, nil, nil, []ir.Type{a.typ, v.typ, ir.Tensor(ir.I32, n)})
		return err == nil && n > 0
	})
	if b == nil {
		return false
	}
	n, size := groups(b)
	ends := make([]byte, 0, 4*n)
	low := int64(0)
	for range n {
		low += g.r.Int64N(size - low + 1)
		ends = binary.LittleEndian.AppendUint32(ends, uint32(low))
	}
	at := g.emit(ir.OpConstant, nil, list("data", base64.StdEncoding.EncodeToString(ends)), nil, ir.Tensor(ir.I32, n))
	return at != nil && g.emit(ir.OpGroupedMatmul, nil, nil, []*value{a, b, at[0]}) != nil
}

func (g *gen) attention() bool {
	q := g.pick(func(v *value) bool { return v.typ.Rank() == 4 && isFloat(v) && g.positive(v) })
	if q == nil {
		rs := g.emit(ir.OpFull, nil, list("value", 0.5), nil, ir.Tensor(ir.F32, 1, 2, int64(1+g.r.IntN(4)), int64(1+g.r.IntN(4))))
		if rs == nil {
			return false
		}
		q = rs[0]
	}
	if _, static := q.typ.Shape().Static(); !static {
		return false
	}
	l := list("causal", g.r.IntN(2) == 0)
	rs := g.emit(ir.OpAttention, nil, l, []*value{q, q, q})
	if rs == nil || g.r.IntN(2) == 0 {
		return rs != nil
	}
	return g.emit(ir.OpAttentionBackward, nil, l, []*value{rs[0], q, q, q, rs[0], rs[1], rs[2], rs[3]}) != nil
}
