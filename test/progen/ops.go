package progen

import (
	"encoding/base64"
	"encoding/binary"
	"math"
	"slices"

	"github.com/seed-ee968945/concert/internal/attr"
	"github.com/seed-ee968945/concert/ir"
)

// family makes one operation of a kind; it returns false if nothing fits.
type family struct {
	weight int
	make   func(g *gen) bool
}

var families = []family{
	{10, (*gen).collective},
	{4, (*gen).exchange},
	{3, (*gen).chain},
	{3, (*gen).idiom},
	{8, (*gen).waitAny},
	{4, (*gen).shard},
	{8, (*gen).unary},
	{8, (*gen).binary},
	{3, (*gen).convert},
	{2, (*gen).ternary},
	{4, (*gen).reduce},
	{4, (*gen).create},
	{9, (*gen).view},
	{3, (*gen).asStrided},
	{3, (*gen).matmul},
	{1, (*gen).groupedMatmul},
	{1, (*gen).attention},
	{2, (*gen).convolution},
	{2, (*gen).reduceWindow},
	{4, (*gen).move},
	{4, (*gen).indexed},
	{8, (*gen).inPlace},
	{2, (*gen).otherCall},
	{1, (*gen).input2},
}

// step adds an operation, or tries to.
func (g *gen) step() {
	total := 0
	for _, f := range g.kinds {
		total += f.weight
	}
	if g.spread && g.r.IntN(3) > 0 && g.idiom() {
		return
	}
	for range 6 {
		k := g.r.IntN(total)
		for _, f := range g.kinds {
			if k -= f.weight; k < 0 {
				if f.make(g) {
					return
				}
				break
			}
		}
	}
}

func (g *gen) input2() bool {
	if len(g.inputs) > 6 {
		return false
	}
	g.input()
	return true
}

var (
	floatFuncs = []ir.Op{ir.OpExp, ir.OpLog, ir.OpSqrt, ir.OpRsqrt, ir.OpReciprocal, ir.OpSigmoid, ir.OpTanh, ir.OpSilu, ir.OpGelu, ir.OpSin, ir.OpCos,
		ir.OpErf, ir.OpErfc, ir.OpExp2, ir.OpExpm1, ir.OpLog2, ir.OpLog10, ir.OpLog1p, ir.OpTan, ir.OpAsin, ir.OpAcos, ir.OpAtan, ir.OpSinh, ir.OpCosh,
		ir.OpAsinh, ir.OpAcosh, ir.OpAtanh, ir.OpCbrt}
	anyFuncs   = []ir.Op{ir.OpNeg, ir.OpAbs, ir.OpRelu, ir.OpFloor, ir.OpNeg, ir.OpLogicalNot, ir.OpCeil, ir.OpRound, ir.OpTrunc, ir.OpSign}
	arithmetic = []ir.Op{ir.OpAdd, ir.OpSub, ir.OpMul, ir.OpDiv, ir.OpPow, ir.OpMaximum, ir.OpMinimum, ir.OpAdd, ir.OpMul}
	divisions  = []ir.Op{ir.OpAtan2, ir.OpFmod, ir.OpRemainder, ir.OpFloorDivide, ir.OpTruncDivide}
	bitwise    = []ir.Op{ir.OpBitwiseAnd, ir.OpBitwiseOr, ir.OpBitwiseXor, ir.OpShiftLeft, ir.OpShiftRight}
	relations  = []ir.Op{ir.OpEq, ir.OpNe, ir.OpLt, ir.OpLe, ir.OpGt, ir.OpGe, ir.OpLogicalAnd, ir.OpLogicalOr}
)

func (g *gen) one(ops []ir.Op) ir.Op { return ops[g.r.IntN(len(ops))] }

func isFloat(v *value) bool { return v.typ.DType().IsFloat() }

func (g *gen) unary() bool {
	x := g.pick(nil)
	if x == nil {
		return false
	}
	switch g.r.IntN(5) {
	case 0:
		l := list("min", g.number(x), "max", g.number(x))
		if k := g.r.IntN(3); k < 2 {
			l = l.Without([]string{"min", "max"}[k])
		}
		return g.emit(ir.OpClamp, nil, l, []*value{x}) != nil
	case 1, 2, 3:
		if isFloat(x) {
			return g.emit(g.one(floatFuncs), nil, nil, []*value{x}) != nil
		}
	}
	if !isFloat(x) && g.r.IntN(4) == 0 {
		return g.emit(ir.OpBitwiseNot, nil, nil, []*value{x}) != nil
	}
	return g.emit(g.one(anyFuncs), nil, nil, []*value{x}) != nil
}

// number is a constant beside x: an int or a float.
func (g *gen) number(x *value) any {
	if !isFloat(x) && g.r.IntN(5) > 0 {
		return []int64{0, 1, -1, 2, 3, 7, -100, 1 << 20, 1<<53 + 1, math.MaxInt64}[g.r.IntN(10)]
	}
	return []float64{0, math.Copysign(0, -1), 1, -1, 2, 0.5, 0.1, -3, 1e-60, 1e60, math.Inf(1), 1e-45}[g.r.IntN(12)]
}

// like chooses a tensor that broadcasts with x, most often of its shape.
func (g *gen) like(x *value) *value {
	return g.pick(func(v *value) bool {
		_, err := ir.Infer(ir.OpEq, nil, nil, []ir.Type{x.typ, v.typ})
		return err == nil
	})
}

func (g *gen) binary() bool {
	x := g.pick(nil)
	if x == nil {
		return false
	}
	ops := arithmetic
	switch k := g.r.IntN(8); {
	case k < 2:
		ops = relations
	case k == 2:
		ops = divisions
	case k == 3 && !isFloat(x):
		ops = bitwise
	}
	op := g.one(ops)
	var l attr.List
	args := []*value{x}
	if g.r.IntN(2) == 0 {
		y := g.like(x)
		if y == nil {
			return false
		}
		args = append(args, y)
	} else {
		l = list("scalar", g.number(x))
	}
	if (op == ir.OpAdd || op == ir.OpSub) && g.r.IntN(6) == 0 {
		l = l.With("alpha", attr.Int(int64(g.r.IntN(4))))
	}
	if reverses(op) && len(args) == 1 && g.r.IntN(4) == 0 {
		l = l.With("reverse", attr.Bool(true))
	}
	return g.emit(op, nil, l, args) != nil
}

// reverses reports whether a scalar may be op's first operand.
func reverses(op ir.Op) bool {
	return slices.ContainsFunc(op.Info().Attrs, func(s ir.AttrSpec) bool { return s.Key == "reverse" })
}

func (g *gen) convert() bool {
	x := g.pick(nil)
	if x != nil && x.typ.DType().IsInt() && x.typ.DType().Size() > 1 && g.r.IntN(3) == 0 {
		return g.bitcasts(x)
	}
	return x != nil && g.emit(ir.OpConvert, nil, nil, []*value{x}, ir.TensorOf(g.dtype(), x.typ.Shape())) != nil
}

// bitcasts takes integers through the bits of another type, of which nothing else is made:
// as floats they are of any size, and hide what is lost elsewhere.
func (g *gen) bitcasts(x *value) bool {
	dt := x.typ.DType()
	via := map[ir.DType]ir.DType{ir.I64: ir.F64, ir.U64: ir.I64, ir.I32: ir.F32, ir.U32: ir.F32, ir.I16: ir.BF16, ir.U16: ir.BF16}[dt]
	rs := g.emit(ir.OpBitcast, nil, nil, []*value{x}, ir.TensorOf(via, x.typ.Shape()))
	if rs == nil {
		return false
	}
	g.pool = slices.DeleteFunc(g.pool, func(v *value) bool { return v == rs[0] })
	return g.emit(ir.OpBitcast, nil, nil, rs, ir.TensorOf(dt, x.typ.Shape())) != nil
}

func (g *gen) ternary() bool {
	x := g.pick(nil)
	if x == nil {
		return false
	}
	y, z := g.like(x), g.like(x)
	if y == nil || z == nil {
		return false
	}
	if g.r.IntN(2) == 0 {
		return g.emit(ir.OpFma, nil, nil, []*value{x, y, z}) != nil
	}
	c := g.pick(func(v *value) bool {
		_, err := ir.Infer(ir.OpEq, nil, nil, []ir.Type{x.typ, v.typ})
		return err == nil && (v.typ.DType() == ir.Bool || v.typ.DType() == ir.U8)
	})
	if c == nil {
		if rs := g.emit(ir.OpGt, nil, list("scalar", 0), []*value{x}); rs != nil {
			c = rs[0]
		}
	}
	return c != nil && g.emit(ir.OpWhere, nil, nil, []*value{c, y, z}) != nil
}

// positive reports whether no size of x can be 0.
func (g *gen) positive(x *value) bool {
	for _, d := range x.typ.Shape() {
		if lo, _ := g.bounds(d); lo < 1 {
			return false
		}
	}
	return true
}

func (g *gen) reduce() bool {
	x := g.pick(nil)
	if x == nil {
		return false
	}
	rank := x.typ.Rank()
	var dims []int64
	for d := range rank {
		if g.r.IntN(2) == 0 {
			dims = append(dims, int64(d))
		}
	}
	var l attr.List
	if len(dims) > 0 {
		l = list("dims", dims)
	}
	if g.r.IntN(2) == 0 {
		l = l.With("keepdim", attr.Bool(true))
	}
	switch k := g.r.IntN(9); {
	case k < 2:
		return g.emit(ir.OpSum, nil, l, []*value{x}) != nil
	case k < 3:
		return isFloat(x) && g.emit(ir.OpMean, nil, l, []*value{x}) != nil
	case k < 4:
		return g.emit(ir.OpProd, nil, l, []*value{x}) != nil
	case k < 5:
		return g.positive(x) && g.emit(g.one([]ir.Op{ir.OpAmax, ir.OpAmin}), nil, l, []*value{x}) != nil
	}
	if rank == 0 {
		return false
	}
	d := g.r.IntN(rank)
	switch g.r.IntN(4) {
	case 0:
		return g.positive(x) && g.emit(ir.OpArgmax, nil, list("dim", d), []*value{x}) != nil
	case 1:
		return g.emit(ir.OpCumsum, nil, list("dim", d), []*value{x}) != nil
	case 2:
		return isFloat(x) && g.emit(g.one([]ir.Op{ir.OpSoftmax, ir.OpLogSoftmax}), nil, list("dim", d), []*value{x}) != nil
	}
	n, ok := x.typ.Shape()[d].Const()
	if !ok {
		return false
	}
	l = list("dim", d, "k", g.r.Int64N(n+1))
	if g.r.IntN(2) == 0 {
		l = l.With("largest", attr.Bool(false))
	}
	return g.emit(ir.OpTopk, nil, l, []*value{x}) != nil
}

func (g *gen) create() bool {
	switch g.r.IntN(5) {
	case 0:
		return g.iota(g.one64([]int64{1, 2, 4, 8, 12}), ir.I64) != nil
	case 1:
		t := ir.Tensor([]ir.DType{ir.F32, ir.BF16, ir.F64}[g.r.IntN(3)], g.dims()...)
		return g.emit(ir.OpRand, nil, list("seed", g.r.IntN(3)), nil, t) != nil
	case 2:
		return g.constant()
	}
	t := ir.TensorOf(g.dtype(), g.shape())
	v := any(float64([]int{0, 0, 0, 1, -1, 3}[g.r.IntN(6)]))
	if !t.DType().IsFloat() && g.r.IntN(2) == 0 {
		v = int64(g.r.IntN(9) - 4)
	}
	return g.emit(ir.OpFull, nil, list("value", v), nil, t) != nil
}

// constant makes small numbers.
func (g *gen) constant() bool {
	t := ir.Tensor([]ir.DType{ir.F32, ir.I64, ir.I16, ir.U8, ir.Bool}[g.r.IntN(5)], g.dims()...)
	n, _ := t.Shape().NumElems().Const()
	data := make([]byte, n*int64(t.DType().Size()))
	for i := 0; i < len(data); i += t.DType().Size() {
		v := g.r.IntN(2)
		switch t.DType() {
		case ir.Bool:
		case ir.F32:
			binary.LittleEndian.PutUint32(data[i:], math.Float32bits(float32(v)-0.5))
			continue
		default:
			v += g.r.IntN(3)
		}
		data[i] = byte(v)
	}
	return g.emit(ir.OpConstant, nil, list("data", base64.StdEncoding.EncodeToString(data)), nil, t) != nil
}

func (g *gen) one64(of []int64) int64 { return of[g.r.IntN(len(of))] }

func (g *gen) iota(n int64, dt ir.DType) *value {
	l := attr.List(nil)
	if g.r.IntN(3) == 0 {
		l = list("start", g.r.IntN(3), "step", 1+g.r.IntN(2))
	}
	if rs := g.emit(ir.OpIota, nil, l, nil, ir.Tensor(dt, n)); rs != nil {
		return rs[0]
	}
	return nil
}

func (g *gen) view() bool {
	x := g.pick(nil)
	if x == nil {
		return false
	}
	rank := x.typ.Rank()
	args := []*value{x}
	sizes, static := x.typ.Shape().Static()
	d := 0
	if rank > 0 {
		d = g.r.IntN(rank)
	}
	switch k := g.r.IntN(9); {
	case k == 0:
		return g.emit(ir.OpAlias, nil, nil, args) != nil
	case k == 1:
		return g.emit(ir.OpUnsqueeze, nil, list("dim", g.r.IntN(rank+1)), args) != nil
	case k == 2 && static:
		return g.emit(ir.OpView, nil, nil, args, ir.Tensor(x.typ.DType(), g.regroup(sizes)...)) != nil
	case k == 3 && static:
		return g.expand(x, sizes)
	case rank == 0:
		return false
	case k == 4:
		var dims []int64
		for _, p := range g.r.Perm(rank) {
			dims = append(dims, int64(p))
		}
		return g.emit(ir.OpPermute, nil, list("dims", dims), args) != nil
	case k == 5:
		return g.emit(ir.OpSqueeze, nil, list("dims", []int64{int64(d)}), args) != nil
	case k == 6:
		lo, _ := g.bounds(x.typ.Shape()[d])
		if !static && g.r.IntN(2) == 0 {
			d, lo = 0, 0
			lo, _ = g.bounds(x.typ.Shape()[0])
		}
		return lo > 0 && g.emit(ir.OpSelect, nil, list("dim", d, "index", g.r.Int64N(lo)), args) != nil
	case k == 7 && static:
		var parts []int64
		for left := sizes[d]; left > 0 || len(parts) == 0; {
			p := g.r.Int64N(left + 1)
			if len(parts) == 3 {
				p = left
			}
			parts, left = append(parts, p), left-p
			if left == 0 {
				break
			}
		}
		return g.emit(ir.OpSplit, nil, list("dim", d, "sizes", parts), args) != nil
	}
	return g.slice(x, d)
}

func (g *gen) slice(x *value, d int) bool {
	lo, _ := g.bounds(x.typ.Shape()[d])
	start := g.r.Int64N(lo + 1)
	l := list("dim", d, "start", start)
	if g.r.IntN(3) > 0 {
		l = l.With("end", attr.Int(start+g.r.Int64N(lo-start+1)))
	}
	if g.r.IntN(4) == 0 {
		l = l.With("step", attr.Int(int64(1+g.r.IntN(3))))
	}
	return g.emit(ir.OpSlice, nil, l, []*value{x}) != nil
}

// regroup draws another shape of as many elements.
func (g *gen) regroup(sizes []int64) []int64 {
	n := int64(1)
	for _, s := range sizes {
		n *= s
	}
	if n == 0 {
		return []int64{0, 3}[:1+g.r.IntN(2)]
	}
	var out []int64
	for n > 1 && len(out) < 3 {
		f := int64(1 + g.r.IntN(6))
		if n%f == 0 {
			out, n = append(out, f), n/f
		}
		if g.r.IntN(8) == 0 {
			break
		}
	}
	return append(out, n)
}

func (g *gen) expand(x *value, sizes []int64) bool {
	to := slices.Clone(sizes)
	for d := range to {
		if to[d] == 1 && g.r.IntN(2) == 0 {
			to[d] = int64(g.r.IntN(4))
		}
	}
	if g.r.IntN(2) == 0 {
		to = append([]int64{int64(1 + g.r.IntN(3))}, to...)
	}
	return g.emit(ir.OpExpand, nil, nil, []*value{x}, ir.Tensor(x.typ.DType(), to...)) != nil
}

func (g *gen) asStrided() bool {
	x := g.pick(func(v *value) bool { return v.typ.Rank() > 0 && g.positive(v) })
	if x == nil {
		return false
	}
	sizes, ok := x.typ.Shape().Static()
	if !ok {
		return false
	}
	reach := int64(1)
	for d, n := range sizes {
		if st := x.typ.Strides(); st != nil {
			reach += (n - 1) * st[d]
		} else {
			reach *= n
		}
	}
	n := 1 + g.r.Int64N(min(reach, 4))
	stride := 1 + g.r.Int64N(3)
	t := ir.Tensor(x.typ.DType(), n).WithStrides([]int64{stride})
	if g.r.IntN(3) == 0 {
		t = ir.Tensor(x.typ.DType(), 2, n).WithStrides([]int64{g.r.Int64N(4), stride})
	}
	return g.emit(ir.OpAsStrided, nil, list("offset", g.r.IntN(3)), []*value{x}, t) != nil
}
