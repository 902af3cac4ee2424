package aten

import (
	"cmp"
	"math"
	"slices"

	"github.com/seed-ee968945/concert/internal/attr"
	"github.com/seed-ee968945/concert/internal/dtype"
	"github.com/seed-ee968945/concert/internal/intmath"
	"github.com/seed-ee968945/concert/ir"
	"github.com/seed-ee968945/concert/ir/fx/internal/traced"
)

// drawOps make random numbers of a kind out of uniform ones. They are not those that
// PyTorch draws.
var drawOps = []row{
	{"aten.rand.default", "size", random},
	{"aten.rand_like.default", "self", random},
	{"aten.randn.default", "size", normal},
	{"aten.randn_like.default", "self", normal},
	{"prims.normal.default", "shape mean std requires_grad generator", normal},
	{"aten.normal_functional.default", "self mean std * generator", normal},
	{"aten.randint.default", "high size", integers},
	{"aten.randint.low", "low high size", integers},
	{"aten.randint_like.default", "self high", integers},
	{"aten.randint_like.low_dtype", "self low high", integers},
	{"aten.randperm.default", "n", permutation},
	{"aten.bernoulli.p aten.bernoulli.Tensor", "self p * generator", bernoulli},
	{"aten.bernoulli.default", "p * generator", bernoulli},
	{"aten.exponential.default", "self lambd * generator", exponential},
	{"aten.log_normal.default", "self mean std * generator", func(c *call) error {
		return c.drawnBy(func(shape ir.Shape) *ir.Value {
			return c.Make(ir.OpExp, nil, c.gaussian(shape, c.numOr("mean", 1), c.numOr("std", 2)))
		})
	}},
	{"aten.cauchy.default", "self median sigma * generator", func(c *call) error {
		return c.drawnBy(func(shape ir.Shape) *ir.Value {
			turn := c.Make(ir.OpTan, nil, c.With(ir.OpMul, c.With(ir.OpSub, c.uniform(shape), 0.5), math.Pi))
			return c.With(ir.OpAdd, c.With(ir.OpMul, turn, c.numOr("sigma", 1)), c.numOr("median", 0))
		})
	}},
	{"aten.geometric.default", "self p * generator", geometric},
	{"aten.multinomial.default", "self num_samples replacement * generator", multinomial},
	{"aten.uniform.default", "self from to * generator", uniformIn},
	{"aten.native_dropout.default", "input p train", dropout},
}

func random(c *call) error {
	c.sized()
	return c.EmitErr(ir.OpRand, nil)
}

// uniform draws from 0 to 1, without 1.
func (c *call) uniform(shape ir.Shape) *ir.Value {
	return c.Helper(ir.OpRand, nil, ir.TensorOf(ir.F32, shape))
}

// untilFirst draws how long something takes that happens once in a unit of time.
func (c *call) untilFirst(shape ir.Shape) *ir.Value {
	return c.Make(ir.OpNeg, nil, c.Make(ir.OpLog1p, nil, c.Make(ir.OpNeg, nil, c.uniform(shape))))
}

// numOr is a number argument, or def if absent.
func (c *call) numOr(param string, def float64) float64 {
	if v, ok := c.Num(param); ok {
		def, _ = v.AsFloat()
	}
	return def
}

// drawn is the shape of the result.
func (c *call) drawn() (ir.Shape, error) {
	c.sized()
	t, err := c.Trace.TypeOf(0)
	if err != nil || c.Err != nil {
		return nil, cmp.Or(err, c.Err)
	}
	return t.Shape(), nil
}

// integers draws from low to high, without high.
func integers(c *call) error {
	shape, err := c.drawn()
	if err != nil {
		return err
	}
	low, high := c.Int("low", 0), c.Need("high")
	if c.Err != nil {
		return c.Err
	}
	if low >= high {
		c.Reject("high", c.Arg("high"), "no integer from %d to below %d", low, high)
		return c.Err
	}
	span := high - low
	if span < 0 {
		return traced.ErrForm // more than half of all integers
	}
	upTo := func(n int64) *ir.Value { // below n, which is 2^24 at most
		x := c.In(ir.I64, c.Make(ir.OpFloor, nil, c.With(ir.OpMul, c.uniform(shape), float64(n))))
		return c.With(ir.OpMinimum, x, float64(n-1))
	}
	whole := func(op ir.Op, x *ir.Value, n int64) *ir.Value { return c.Make(op, traced.Scalar(attr.Int(n)), x) }
	var x *ir.Value
	if span <= 1<<24 {
		x = upTo(span)
	} else { // the rest of 63 bits, of which a draw has 24, as PyTorch's
		x = whole(ir.OpShiftLeft, upTo(1<<15), 48)
		x = c.Add(x, c.Add(whole(ir.OpShiftLeft, upTo(1<<24), 24), upTo(1<<24)))
		x = whole(ir.OpRemainder, x, span)
	}
	return c.Settle(whole(ir.OpAdd, x, low))
}

// bernoulli are ones as often as probabilities say, else zeros.
func bernoulli(c *call) error {
	shape, err := c.drawn()
	if err != nil {
		return err
	}
	if c.IsTensor("p") {
		p := c.Tensor("p")
		if c.Err != nil {
			return c.Err
		}
		return c.Settle(c.Make(ir.OpLt, nil, c.uniform(shape), c.In(ir.F32, p)))
	}
	p := 0.5
	if v, ok := c.Num("p"); ok {
		p, _ = v.AsFloat()
	}
	if !(p >= 0 && p <= 1) {
		c.Reject("p", c.Arg("p"), "a probability of %v", p)
	}
	if c.Err != nil {
		return c.Err
	}
	return c.Settle(c.With(ir.OpLt, c.uniform(shape), p))
}

// uniformIn draws from one number to below another.
func uniformIn(c *call) error {
	shape, err := c.drawn()
	if err != nil {
		return err
	}
	from, to := c.numOr("from", 0), c.numOr("to", 1)
	if !(from <= to && to-from <= math.MaxFloat32) {
		c.Reject("to", c.Arg("to"), "no number from %v to below %v", from, to)
	}
	if c.Err != nil {
		return c.Err
	}
	return c.Settle(c.With(ir.OpAdd, c.With(ir.OpMul, c.uniform(shape), to-from), from))
}

// exponential is never 0: logarithms of it are common.
func exponential(c *call) error {
	shape, err := c.drawn()
	if err != nil {
		return err
	}
	rate := c.numOr("lambd", 1)
	if !(rate > 0) {
		c.Reject("lambd", c.Arg("lambd"), "a rate of %v", rate)
	}
	if c.Err != nil {
		return c.Err
	}
	return c.Settle(c.With(ir.OpMul, c.With(ir.OpMaximum, c.untilFirst(shape), 0x1p-25), 1/rate))
}

// dropout keeps elements by chance and gives what it kept.
func dropout(c *call) error {
	x := c.Tensor("input")
	p, ok := c.Num("p")
	if !ok {
		c.Want("p", "a number", c.Arg("p"))
	}
	train := c.Bool("train", true)
	if c.Err != nil {
		return c.Err
	}
	f, _ := p.AsFloat()
	shape, dt := x.Type().Shape(), x.Type().DType()
	switch {
	case !train || f == 0:
		return c.Settle(x, c.Full(attr.Int(1), ir.Bool, shape))
	case !(f > 0 && f <= 1):
		c.Reject("p", c.Arg("p"), "a probability of %v", f)
		return c.Err
	case f == 1:
		return c.Settle(c.Full(attr.Int(0), dt, shape), c.Full(attr.Int(0), ir.Bool, shape)) // whatever x holds
	}
	kept := c.With(ir.OpGe, c.uniform(shape), f)
	y := c.Make(ir.OpMul, nil, c.With(ir.OpMul, c.In(traced.AccType(dt), x), 1/(1-f)), c.In(traced.AccType(dt), kept))
	return c.Settle(y, kept)
}

// drawnBy ends an operator that draws by f.
func (c *call) drawnBy(f func(shape ir.Shape) *ir.Value) error {
	shape, err := c.drawn()
	if err != nil {
		return err
	}
	return c.Settle(f(shape))
}

// geometric draws how often something is tried that succeeds with a probability.
func geometric(c *call) error {
	p := c.numOr("p", 0)
	if !(p > 0 && p < 1) {
		c.Reject("p", c.Arg("p"), "a probability of %v", p)
		return c.Err
	}
	return c.drawnBy(func(shape ir.Shape) *ir.Value {
		tries := c.Make(ir.OpCeil, nil, c.With(ir.OpMul, c.untilFirst(shape), -1/math.Log1p(-p)))
		return c.With(ir.OpMaximum, tries, 1)
	})
}

func normal(c *call) error {
	mean, deviation := c.numOr("mean", 0), c.numOr("std", 1)
	return c.drawnBy(func(shape ir.Shape) *ir.Value { return c.gaussian(shape, mean, deviation) })
}

// gaussian draws by Box and Muller's formula.
func (c *call) gaussian(shape ir.Shape, mean, deviation float64) *ir.Value {
	far := c.Make(ir.OpSqrt, nil, c.With(ir.OpMul, c.untilFirst(shape), 2))
	x := c.Make(ir.OpMul, nil, far, c.Make(ir.OpCos, nil, c.With(ir.OpMul, c.uniform(shape), 2*math.Pi)))
	if deviation != 1 {
		x = c.With(ir.OpMul, x, deviation)
	}
	if mean != 0 {
		x = c.With(ir.OpAdd, x, mean)
	}
	return x
}

// multinomial draws places as often as their weights say: the first to happen of what happens
// at these rates. What does not come back is among the first ones; else each draw is a race of
// its own.
func multinomial(c *call) error {
	p, n, back := c.Tensor("self"), c.Need("num_samples"), c.Bool("replacement", false)
	if c.Err != nil {
		return c.Err
	}
	s, dt := traced.Static(p), p.Type().DType()
	r := len(s)
	if r < 1 || r > 2 || !dt.IsFloat() || n < 1 || s[r-1] < 1 || !back && n > s[r-1] || n > traced.MaxElems/max(intmath.Product(s), 1) {
		return traced.ErrForm
	}
	race := func(p *ir.Value) *ir.Value {
		return c.Make(ir.OpDiv, nil, p, c.With(ir.OpMaximum, c.untilFirst(p.Type().Shape()), 0x1p-25))
	}
	p = c.In(dtype.F32, p)
	if !back || n == 1 {
		top := append(slices.Clone(s[:r-1]), n)
		l := traced.DimAttr(int64(r-1)).With("k", attr.Int(n))
		return c.Settle(c.Helpers(ir.OpTopk, l, []ir.Type{ir.Tensor(ir.F32, top...), ir.Tensor(ir.I64, top...)}, race(p))[1])
	}
	p, fits := c.Broadcast(c.Unsqueezed(p, int64(r-1)), ir.Dims(slices.Concat(s[:r-1], []int64{n, s[r-1]})...))
	if !fits {
		return traced.ErrForm
	}
	return c.Settle(c.Make(ir.OpArgmax, traced.DimAttr(int64(r)), race(p)))
}

// permutation is the order of random numbers.
func permutation(c *call) error {
	open := c.Sizes("n")
	if c.Err != nil || len(open) != 1 {
		return cmp.Or(c.Err, traced.ErrForm)
	}
	n, ok := open[0].Const()
	if !ok {
		return c.Settle(c.firstSorted(c.uniform(open), 0, open[0], true)[1])
	}
	if n < 0 || n > traced.MaxElems {
		return traced.ErrForm
	}
	x := c.Helper(ir.OpRand, nil, ir.Tensor(ir.F32, n))
	l := traced.DimAttr(0).With("k", attr.Int(n))
	top := c.Helpers(ir.OpTopk, l, []ir.Type{ir.Tensor(ir.F32, n), ir.Tensor(ir.I64, n)}, x)
	return c.Settle(top[1])
}
