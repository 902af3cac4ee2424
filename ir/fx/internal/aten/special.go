package aten

import (
	"cmp"
	"math"

	"github.com/seed-ee968945/concert/internal/attr"
	"github.com/seed-ee968945/concert/ir"
	"github.com/seed-ee968945/concert/ir/fx/internal/traced"
	"github.com/seed-ee968945/concert/ir/internal/decompose"
)

// specialOps are functions of mathematics that the op table does not have.
var specialOps = []row{
	{"aten.lgamma.default", "self", special(decompose.Lgamma)},
	{"aten.digamma.default aten.special_digamma.default", "self", special(decompose.Digamma)},
	{"aten.polygamma.default", "n self", polygamma},
	{"aten.special_zeta.default", "self other", specials(decompose.Zeta(math.Inf(1)))},
	{"aten.igamma.default aten.special_gammainc.default", "self other", specials(decompose.Igamma(false))},
	{"aten.igammac.default aten.special_gammaincc.default", "self other", specials(decompose.Igamma(true))},
	{"aten.erfinv.default", "self", special(decompose.ErfInv)},
	{"aten.i0.default", "self", special(decompose.BesselI(0, false))},
	{"aten.special_i0e.default", "self", special(decompose.BesselI(0, true))},
	{"aten.special_i1.default", "self", special(decompose.BesselI(1, false))},
	{"aten.special_i1e.default", "self", special(decompose.BesselI(1, true))},
	{"aten.special_modified_bessel_i0.default", "self", special(decompose.BesselI(0, false))},
	{"aten.special_modified_bessel_i1.default", "self", special(decompose.BesselI(1, false))},
	{"aten.special_modified_bessel_k0.default", "self", special(decompose.BesselK(0, false))},
	{"aten.special_modified_bessel_k1.default", "self", special(decompose.BesselK(1, false))},
	{"aten.special_scaled_modified_bessel_k0.default", "self", special(decompose.BesselK(0, true))},
	{"aten.special_scaled_modified_bessel_k1.default", "self", special(decompose.BesselK(1, true))},
	{"aten.special_bessel_j0.default", "self", special(decompose.BesselJ(0))},
	{"aten.special_bessel_j1.default", "self", special(decompose.BesselJ(1))},
	{"aten.special_bessel_y0.default", "self", special(decompose.BesselY(0))},
	{"aten.special_bessel_y1.default", "self", special(decompose.BesselY(1))},
	{"aten.special_spherical_bessel_j0.default", "self", special(decompose.SphericalBesselJ)},
	{"aten.special_airy_ai.default", "self", special(decompose.Airy)},
	{"aten.special_ndtri.default", "self", special(decompose.Ndtri)},
	{"aten.special_erfcx.default", "self", special(decompose.Erfcx)},
	{"aten.nextafter.default", "self other", specials(decompose.NextAfter)},
	{"aten.signbit.default", "self", func(c *call) error { return c.Settle(c.negative(c.Tensor("self"))) }},
	{"aten.copysign.Tensor aten.copysign.Scalar", "self other", copySign},
	{"aten.hypot.default", "self other", hypotenuse},
	{"aten.frexp.Tensor", "self", frexp},
	{"aten.ldexp.Tensor", "self other", ldexp},
}

// polynomialOps are polynomials whose degree is an operand.
var polynomialOps = func() (rows []row) {
	for _, name := range decompose.Polynomials() {
		t := "aten.special_" + name
		rows = append(rows, row{t + ".default " + t + ".x_scalar " + t + ".n_scalar", "x n", polynomial(decompose.Polynomial(name))})
	}
	return rows
}()

func polynomial(f func(to decompose.Looper, x, n *ir.Value) *ir.Value) func(c *call) error {
	return func(c *call) error {
		ts, err := c.Types()
		if err != nil {
			return err
		}
		if len(ts) != 1 || !ts[0].DType().IsFloat() {
			return traced.ErrForm
		}
		var args []*ir.Value
		for _, p := range []string{"x", "n"} {
			var a *ir.Value
			if c.IsTensor(p) {
				a = c.Tensor(p)
			} else if v, ok := c.Num(p); ok {
				a = c.Filled(v, ts[0].DType())
			}
			if c.Err != nil || a == nil {
				return cmp.Or(c.Err, traced.ErrForm)
			}
			a, ok := c.Broadcast(c.In(ts[0].DType(), a), ts[0].Shape())
			if !ok {
				return traced.ErrForm
			}
			args = append(args, a)
		}
		return c.Settle(f(traced.Emitter{Call: c.Call}, args[0], args[1]))
	}
}

// negative tells which elements have the sign bit, as zeros and what is no number may.
func (c *call) negative(x *ir.Value) *ir.Value {
	if c.Err != nil {
		return nil
	}
	dt := x.Type().DType()
	if dt.IsFloat() {
		bits := map[int64]ir.DType{1: ir.I8, 2: ir.I16, 4: ir.I32, 8: ir.I64}[int64(dt.Size())]
		x = c.Helper(ir.OpBitcast, nil, traced.Like(x, bits), c.LaidOut(x, traced.Like(x, dt)))
	}
	return c.With(ir.OpLt, x, 0)
}

// copySign gives the magnitude of one with the sign of the other.
func copySign(c *call) error {
	xs, err := c.floats("self")
	if err != nil {
		return err
	}
	size := c.Make(ir.OpAbs, nil, xs[0])
	var sign *ir.Value
	if c.IsTensor("other") {
		sign = c.negative(c.Tensor("other"))
	} else if v, ok := c.Num("other"); ok {
		minus := attr.Int(0)
		if f, _ := v.AsFloat(); math.Signbit(f) {
			minus = attr.Int(1)
		}
		sign = c.Filled(minus, ir.Bool)
	}
	if c.Err != nil || sign == nil {
		return cmp.Or(c.Err, traced.ErrForm)
	}
	return c.Settle(c.Make(ir.OpWhere, nil, sign, c.Make(ir.OpNeg, nil, size), size))
}

// hypotenuse is hypot of two operands.
func hypotenuse(c *call) error {
	xs, err := c.floats("self", "other")
	if err != nil {
		return err
	}
	return c.Settle(c.hypot(xs[0], xs[1]))
}

// hypot is the root of the sum of squares, of which none overflows: infinite where one of them
// is, though the other be no number.
func (c *call) hypot(a, b *ir.Value) *ir.Value {
	a, b = c.Make(ir.OpAbs, nil, a), c.Make(ir.OpAbs, nil, b)
	acc := traced.AccType(a.Type().DType())
	large, small := c.In(acc, c.Make(ir.OpMaximum, nil, a, b)), c.In(acc, c.Make(ir.OpMinimum, nil, a, b))
	infinite := c.Make(ir.OpLogicalOr, nil, c.With(ir.OpEq, a, math.Inf(1)), c.With(ir.OpEq, b, math.Inf(1)))
	part := c.Make(ir.OpDiv, nil, small, large)
	root := c.Make(ir.OpSqrt, nil, c.With(ir.OpAdd, c.Make(ir.OpMul, nil, part, part), 1))
	root = c.Make(ir.OpWhere, nil, c.With(ir.OpEq, large, 0), large, c.Make(ir.OpMul, nil, large, root))
	return c.Make(ir.OpWhere, nil, infinite, c.Filled(attr.Float(math.Inf(1)), acc), root)
}

// floats are operands in the type of the result.
func (c *call) floats(params ...string) ([]*ir.Value, error) {
	ts, err := c.Types()
	if err != nil {
		return nil, err
	}
	var xs []*ir.Value
	for _, p := range params {
		x := c.Tensor(p)
		if c.Err != nil {
			return nil, c.Err
		}
		if len(ts) != 1 || !ts[0].DType().IsFloat() {
			return nil, traced.ErrForm
		}
		xs = append(xs, c.In(ts[0].DType(), x))
	}
	return xs, c.Err
}

func special(f func(to decompose.Emitter, x *ir.Value) *ir.Value) func(c *call) error {
	return func(c *call) error {
		xs, err := c.floats("self")
		if err != nil {
			return err
		}
		return c.Settle(f(traced.Emitter{Call: c.Call}, xs[0]))
	}
}

func polygamma(c *call) error {
	n := c.Need("n")
	xs, err := c.floats("self")
	if err != nil {
		return err
	}
	y := decompose.Polygamma(math.Inf(1))(traced.Emitter{Call: c.Call}, c.Filled(attr.Int(n), ir.F64), xs[0])
	return c.Settle(c.In(xs[0].Type().DType(), y))
}

// specials is special of two operands.
func specials(f func(to decompose.Emitter, x, y *ir.Value) *ir.Value) func(c *call) error {
	return func(c *call) error {
		xs, err := c.floats("self", "other")
		if err != nil {
			return err
		}
		return c.Settle(f(traced.Emitter{Call: c.Call}, xs[0], xs[1]))
	}
}

// ldexp is a number times a power of two that, as PyTorch's, may be too large for its type.
func ldexp(c *call) error {
	xs, err := c.floats("self")
	n := c.Tensor("other")
	if err = cmp.Or(err, c.Err); err != nil {
		return err
	}
	typ := n.Type().DType()
	if !typ.IsFloat() {
		typ = ir.F32
	}
	acc := traced.AccType(xs[0].Type().DType())
	power := c.In(typ, c.Make(ir.OpExp2, nil, c.In(traced.AccType(typ), n)))
	return c.Settle(c.Mul(c.In(acc, xs[0]), c.In(acc, power)))
}

// frexp takes numbers apart into magnitudes from 1/2 to 1, with a sign, and powers of two, by the
// bits of double precision; those near its smallest ones are scaled first.
func frexp(c *call) error {
	x := c.Tensor("self")
	if c.Err != nil {
		return c.Err
	}
	if !x.Type().DType().IsFloat() {
		return traced.ErrForm
	}
	wide := c.In(ir.F64, x)
	special := c.Make(ir.OpLogicalOr, nil, c.With(ir.OpEq, wide, 0), c.Make(ir.OpNe, nil, c.Sub(wide, wide), c.Filled(attr.Int(0), ir.F64)))
	tiny := c.With(ir.OpLt, c.Make(ir.OpAbs, nil, wide), 0x1p-1022)
	wide = c.Make(ir.OpWhere, nil, tiny, c.With(ir.OpMul, wide, 0x1p54), wide)
	bits := c.Helper(ir.OpBitcast, nil, traced.Like(wide, ir.I64), c.LaidOut(wide, traced.Like(wide, ir.F64)))
	of := func(op ir.Op, x *ir.Value, n int64) *ir.Value { return c.Make(op, traced.Scalar(attr.Int(n)), x) }
	const field, half = int64(0x7ff) << 52, int64(1022) << 52
	power := of(ir.OpSub, of(ir.OpShiftRight, of(ir.OpBitwiseAnd, bits, field), 52), 1022)
	power = c.Make(ir.OpWhere, nil, tiny, of(ir.OpSub, power, 54), power)
	part := of(ir.OpBitwiseOr, of(ir.OpBitwiseAnd, bits, ^field), half)
	part = c.Helper(ir.OpBitcast, nil, traced.Like(part, ir.F64), part)
	part = c.Make(ir.OpWhere, nil, special, x, c.In(x.Type().DType(), part))
	return c.Settle(part, c.Make(ir.OpWhere, nil, special, c.Filled(attr.Int(0), ir.I64), power))
}
