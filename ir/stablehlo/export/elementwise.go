package export

import (
	"math"

	"github.com/seed-ee968945/concert/internal/attr"
	"github.com/seed-ee968945/concert/ir"
)

// This file writes elementwise operations. They are computed as package hostops does it:
// in the domain of the operands' and the result's types, and rounded to the result's once.
// Where all are of one type, an operation of StableHLO does the same in that type.

// domain is the type that operands are computed in.
func domain(ts ...ir.DType) ir.DType {
	d := ir.I64
	for _, t := range ts {
		switch {
		case t == ir.F64:
			return ir.F64
		case t.IsFloat():
			d = ir.F32
		case t == ir.U64 && d == ir.I64:
			d = ir.U64
		}
	}
	return d
}

func dtypes(vs []val) []ir.DType {
	out := make([]ir.DType, len(vs))
	for i, v := range vs {
		out[i] = v.dt
	}
	return out
}

// in is the type to compute operands in that give a result: theirs if they agree, else the domain.
func in(out ir.DType, vs ...val) ir.DType {
	for _, v := range vs {
		if v.dt != out {
			return domain(append(dtypes(vs), out)...)
		}
	}
	if out == ir.Bool {
		return ir.I64
	}
	return out
}

// float makes an operation of floats one of any type: others are float64 on the way.
func float(f func(e *emitter, x val) val) func(*emitter, []val) val {
	return func(e *emitter, vs []val) val {
		out, x := e.dtype(0), vs[0]
		dt := in(out, x)
		if !dt.IsFloat() {
			dt = ir.F64
		}
		return e.to(f(e, e.to(x, dt)), out)
	}
}

// wide makes an operation one of float32 or float64, whose result is rounded once more.
func wide(f func(e *emitter, x val) val) func(e *emitter, x val) val {
	return func(e *emitter, x val) val {
		dt := domain(x.dt)
		return e.to(f(e, e.to(x, dt)), x.dt)
	}
}

const ln2, ln10 = math.Ln2, math.Ln10

// gelu is x/2 times erfc of -x/sqrt(2), or by tanh x times the logistic function of what is
// twice tanh's argument: neither takes a number from one that is close to it.
func gelu(e *emitter, x val) val {
	times := func(a val, f float64) val { return e.simple("stablehlo.multiply", a, e.number(f, x.dt, x.shape)) }
	if e.node.Attrs().Str("approximate", "none") == "tanh" {
		cube := e.simple("stablehlo.multiply", e.simple("stablehlo.multiply", x, x), x)
		u := times(e.simple("stablehlo.add", x, times(cube, 0.044715)), 2*math.Sqrt2/math.SqrtPi)
		return e.simple("stablehlo.multiply", x, e.simple("stablehlo.logistic", u))
	}
	return e.simple("stablehlo.multiply", times(x, 0.5), e.simple("chlo.erfc", times(x, -1/math.Sqrt2)))
}

// rounded makes a function that gives whole numbers one of any type.
func rounded(f string) func(*emitter, []val) val {
	return func(e *emitter, vs []val) val {
		dt := in(e.dtype(0), vs[0])
		x := e.to(vs[0], dt)
		if dt.IsFloat() {
			x = e.simple(f, x)
		}
		return e.to(x, e.dtype(0))
	}
}

func negate(e *emitter, vs []val) val {
	x := e.to(vs[0], in(e.dtype(0), vs[0]))
	return e.to(e.simple("stablehlo.negate", x), e.dtype(0))
}

func abs(e *emitter, vs []val) val {
	x := e.to(vs[0], in(e.dtype(0), vs[0]))
	if !x.dt.IsUnsigned() {
		x = e.simple("stablehlo.abs", x)
	}
	return e.to(x, e.dtype(0))
}

// relu keeps NaN and the sign of zero, which maximum does not.
func relu(e *emitter, vs []val) val {
	x := e.to(vs[0], in(e.dtype(0), vs[0]))
	if !x.dt.IsUnsigned() {
		zero := e.whole(0, x.dt, x.shape)
		x = e.choose(e.compare("LT", x, zero), zero, x)
	}
	return e.to(x, e.dtype(0))
}

func truncate(e *emitter, vs []val) val {
	x := e.to(vs[0], in(e.dtype(0), vs[0]))
	return e.to(e.truncated(x), e.dtype(0))
}

// truncated is a float without its fraction.
func (e *emitter) truncated(x val) val {
	if !x.dt.IsFloat() {
		return x
	}
	return e.choose(e.compare("LT", x, e.whole(0, x.dt, x.shape)), e.simple("stablehlo.ceil", x), e.simple("stablehlo.floor", x))
}

// sign of NaN is 0, and so is that of -0.
func sign(e *emitter, vs []val) val {
	x := e.to(vs[0], in(e.dtype(0), vs[0]))
	zero := e.whole(0, x.dt, x.shape)
	s := zero
	if !x.dt.IsUnsigned() {
		s = e.choose(e.compare("LT", x, zero), e.whole(-1, x.dt, x.shape), zero)
	}
	return e.to(e.choose(e.compare("GT", x, zero), e.whole(1, x.dt, x.shape), s), e.dtype(0))
}

// holds is where a tensor is not 0.
func (e *emitter) holds(x val) val {
	if x.dt == ir.Bool {
		return x
	}
	return e.compare("NE", x, e.whole(0, x.dt, x.shape))
}

func logicalNot(e *emitter, vs []val) val {
	return e.to(e.simple("stablehlo.not", e.holds(vs[0])), e.dtype(0))
}

func bitwiseNot(e *emitter, vs []val) val {
	if e.dtype(0) == ir.Bool {
		return logicalNot(e, vs)
	}
	x := e.to(vs[0], in(e.dtype(0), vs[0]))
	return e.to(e.simple("stablehlo.not", x), e.dtype(0))
}

func convert(e *emitter, vs []val) val { return e.to(vs[0], e.dtype(0)) }

func bitcast(e *emitter, vs []val) val {
	return e.typed("stablehlo.bitcast_convert", e.dtype(0), vs[0].shape, "", vs[0])
}

// scalar is a number among the attributes as a tensor of a type and the result's shape.
func (e *emitter) scalar(key string, dt ir.DType) val {
	v, _ := e.node.Attrs().Get(key)
	return e.scalarOf(v, dt, e.shape(0))
}

func (e *emitter) scalarOf(v attr.Value, dt ir.DType, shape []int64) val {
	if b, ok := v.AsBool(); ok && b {
		return e.whole(1, dt, shape)
	}
	if n, ok := v.AsInt(); ok {
		return e.whole(n, dt, shape)
	}
	f, _ := v.AsFloat()
	return e.number(f, dt, shape)
}

// scalarType is the type to compute in beside numbers among the attributes: one that has
// them, and floats make floats of whole numbers.
func (e *emitter) scalarType(dt ir.DType, keys ...string) ir.DType {
	for _, key := range keys {
		v, ok := e.node.Attrs().Get(key)
		if !ok {
			continue
		}
		f, _ := v.AsFloat()
		n, whole := v.AsInt()
		switch {
		case !dt.IsFloat() && whole && !fits(n, dt):
			dt = ir.I64
		case !dt.IsFloat() && !whole && v.Kind() == attr.KindFloat:
			dt = ir.F32
		case dt.IsFloat() && dt.Size() < 4 && !exact(f, dt):
			dt = ir.F32
		}
	}
	return dt
}

// steps are operations of several steps.
var steps = map[ir.Op]bool{ir.OpRemainder: true, ir.OpFloorDivide: true, ir.OpTruncDivide: true}

// operands are both operands of a binary operation in the type that it is computed in, and
// in the result's shape.
func (e *emitter) operands(vs []val, out ir.DType) (a, b val) {
	attrs := e.node.Attrs()
	keys := []string{"scalar"}
	if attrs.Float("alpha", 1) != 1 {
		keys = append(keys, "alpha")
	}
	dt := e.scalarType(in(out, vs...), keys...)
	if !dt.IsFloat() && (e.node.Op() == ir.OpDiv || e.node.Op() == ir.OpAtan2) {
		dt = ir.F64
	}
	if dt.IsFloat() && (len(keys) > 1 || steps[e.node.Op()]) {
		dt = domain(dt) // what is between is rounded in the domain
	}
	a = e.broadcast(e.to(vs[0], dt), e.shape(0))
	if len(vs) == 1 {
		b = e.scalar("scalar", dt)
	} else {
		b = e.broadcast(e.to(vs[1], dt), e.shape(0))
	}
	if attrs.Bool("reverse", false) {
		a, b = b, a
	}
	if len(keys) > 1 {
		b = e.simple("stablehlo.multiply", e.scalar("alpha", dt), b)
	}
	return a, b
}

// pairwise makes an operation of two operands of one type one of any.
func pairwise(f func(e *emitter, a, b val) val) func(*emitter, []val) val {
	return func(e *emitter, vs []val) val {
		out := e.dtype(0)
		if e.node.Op() == ir.OpPow && len(vs) == 1 && !e.node.Attrs().Bool("reverse", false) {
			if r, ok := powScalar[e.node.Attrs().Float("scalar", 0)]; ok && e.scalarType(in(out, vs...), "scalar").IsFloat() {
				x := e.to(vs[0], domain(append(dtypes(vs), out, ir.F32)...))
				return e.to(r(e, x), out)
			}
		}
		a, b := e.operands(vs, out)
		return e.to(f(e, a, b), out)
	}
}

// powScalar are the exponents that are no call of pow.
var powScalar = map[float64]func(e *emitter, x val) val{
	1: func(_ *emitter, x val) val { return x },
	2: func(e *emitter, x val) val { return e.simple("stablehlo.multiply", x, x) },
	3: func(e *emitter, x val) val {
		return e.simple("stablehlo.multiply", e.simple("stablehlo.multiply", x, x), x)
	},
	-1:   composed[ir.OpReciprocal],
	0.5:  func(e *emitter, x val) val { return e.simple("stablehlo.sqrt", x) },
	-0.5: func(e *emitter, x val) val { return e.simple("stablehlo.rsqrt", x) },
}

// unlike is where r is not 0 and of another sign than b.
func (e *emitter) unlike(r, b val) val {
	zero := e.whole(0, r.dt, r.shape)
	differ := e.simple("stablehlo.xor", e.compare("LT", r, zero), e.compare("LT", b, zero))
	return e.simple("stablehlo.and", e.compare("NE", r, zero), differ)
}

// remainder has the sign of the divisor.
func remainder(e *emitter, a, b val) val {
	r := e.simple("stablehlo.remainder", a, b)
	if a.dt.IsUnsigned() {
		return r
	}
	return e.choose(e.unlike(r, b), e.simple("stablehlo.add", r, b), r)
}

// floorDivide takes the remainder away first, as PyTorch does: the quotient is then whole but
// for rounding, by less than a half.
func floorDivide(e *emitter, a, b val) val {
	if a.dt.IsUnsigned() {
		return e.simple("stablehlo.divide", a, b)
	}
	r := e.simple("stablehlo.remainder", a, b)
	one := e.whole(1, a.dt, a.shape)
	zero := e.whole(0, a.dt, a.shape)
	plain := e.simple("stablehlo.divide", a, b)
	if !a.dt.IsFloat() {
		lower := e.simple("stablehlo.and", e.unlike(r, b), e.compare("NE", b, zero))
		return e.choose(lower, e.simple("stablehlo.subtract", plain, one), plain)
	}
	q := e.simple("stablehlo.divide", e.simple("stablehlo.subtract", a, r), b)
	q = e.choose(e.unlike(r, b), e.simple("stablehlo.subtract", q, one), q)
	whole := e.simple("stablehlo.floor", q)
	up := e.compare("GT", e.simple("stablehlo.subtract", q, whole), e.number(0.5, a.dt, a.shape))
	whole = e.choose(up, e.simple("stablehlo.add", whole, one), whole)
	// A quotient of 0 has the sign of a/b.
	signed := e.choose(e.compare("LT", plain, zero), e.simple("stablehlo.negate", zero), zero)
	whole = e.choose(e.compare("EQ", q, zero), signed, whole)
	return e.choose(e.compare("EQ", b, zero), plain, whole)
}

func truncDivide(e *emitter, a, b val) val {
	return e.truncated(e.simple("stablehlo.divide", a, b))
}

func shiftRight(e *emitter, a, b val) val {
	if a.dt.IsUnsigned() {
		return e.simple("stablehlo.shift_right_logical", a, b)
	}
	return e.simple("stablehlo.shift_right_arithmetic", a, b)
}

// relation compares in the domain: what operands of one type are is compared as such.
func relation(r string) func(*emitter, []val) val {
	return func(e *emitter, vs []val) val {
		dt := vs[0].dt
		if len(vs) == 2 && vs[1].dt != dt || dt == ir.Bool && len(vs) == 1 {
			dt = domain(dtypes(vs)...)
		}
		a, b := e.operandsIn(vs, e.scalarType(dt, "scalar"))
		return e.to(e.compare(r, a, b), e.dtype(0))
	}
}

// fits reports whether a type of whole numbers has n.
func fits(n int64, dt ir.DType) bool {
	low, high := dt.Range()
	return dt == ir.U64 && n >= 0 || n >= low && n <= high
}

// operandsIn are both operands in a type and in the result's shape.
func (e *emitter) operandsIn(vs []val, dt ir.DType) (a, b val) {
	a = e.broadcast(e.to(vs[0], dt), e.shape(0))
	if len(vs) == 2 {
		return a, e.broadcast(e.to(vs[1], dt), e.shape(0))
	}
	return a, e.scalar("scalar", dt)
}

func logical(op string) func(*emitter, []val) val {
	return func(e *emitter, vs []val) val {
		a := e.broadcast(e.holds(vs[0]), e.shape(0))
		if len(vs) == 1 {
			return e.to(e.simple(op, a, e.to(e.holds(e.scalar("scalar", e.scalarType(domain(vs[0].dt), "scalar"))), ir.Bool)), e.dtype(0))
		}
		return e.to(e.simple(op, a, e.broadcast(e.holds(vs[1]), e.shape(0))), e.dtype(0))
	}
}

// clamp keeps NaN and the sign of zero; where the bounds cross, the upper one wins.
func clamp(e *emitter, vs []val) val {
	dt := e.scalarType(in(e.dtype(0), vs[0]), "min", "max")
	x := e.to(vs[0], dt)
	for _, b := range [][2]string{{"min", "LT"}, {"max", "GT"}} {
		if e.node.Attrs().Has(b[0]) {
			bound := e.scalar(b[0], dt)
			x = e.choose(e.compare(b[1], x, bound), bound, x)
		}
	}
	return e.to(x, e.dtype(0))
}

func where(e *emitter, vs []val) val {
	dt := in(e.dtype(0), vs[1:]...)
	if e.dtype(0) == ir.Bool && vs[1].dt == ir.Bool && vs[2].dt == ir.Bool {
		dt = ir.Bool
	}
	cond := e.broadcast(e.holds(vs[0]), e.shape(0))
	a, b := e.broadcast(e.to(vs[1], dt), e.shape(0)), e.broadcast(e.to(vs[2], dt), e.shape(0))
	return e.to(e.choose(cond, a, b), e.dtype(0))
}

// fma rounds once: the product of two float32 is exact in float64.
func fma(e *emitter, vs []val) val {
	dt := domain(append(dtypes(vs), e.dtype(0))...)
	to := dt
	if dt == ir.F32 {
		to = ir.F64
	}
	var x [3]val
	for i, v := range vs {
		x[i] = e.broadcast(e.to(e.to(v, dt), to), e.shape(0))
	}
	sum := e.simple("stablehlo.add", e.simple("stablehlo.multiply", x[0], x[1]), x[2])
	return e.to(e.to(sum, dt), e.dtype(0))
}
