package fx

import (
	"cmp"
	"math"

	"github.com/seed-ee968945/concert/internal/attr"
	"github.com/seed-ee968945/concert/ir"
)

// drawOps make random numbers of a kind out of uniform ones. They are not those that
// PyTorch draws.
var drawOps = []row{
	{"aten.rand.default", "size", random},
	{"aten.rand_like.default", "self", random},
	{"aten.randn.default", "size", normal},
	{"aten.randn_like.default", "self", normal},
	{"aten.randint.default", "high size", integers},
	{"aten.randint.low", "low high size", integers},
	{"aten.randint_like.default", "self high", integers},
	{"aten.randint_like.low_dtype", "self low high", integers},
	{"aten.randperm.default", "n", permutation},
	{"aten.bernoulli.p aten.bernoulli.Tensor", "self p * generator", chances},
	{"aten.bernoulli.default", "p * generator", chances},
	{"aten.exponential.default", "self lambd * generator", exponential},
	{"aten.native_dropout.default", "input p train", dropout},
}

func random(c *call) error {
	c.sized()
	return c.emitErr(ir.OpRand, nil)
}

// uniform draws from 0 to 1, without 1.
func (c *call) uniform(shape []int64) *ir.Value {
	return c.helper(ir.OpRand, nil, ir.Tensor(ir.F32, shape...))
}

// untilFirst draws how long something takes that happens once in a unit of time.
func (c *call) untilFirst(shape []int64) *ir.Value {
	return c.make(ir.OpNeg, nil, c.make(ir.OpLog1p, nil, c.make(ir.OpNeg, nil, c.uniform(shape))))
}

// drawn is the shape of the result.
func (c *call) drawn() ([]int64, error) {
	c.sized()
	t, err := c.tensorType(0)
	if err != nil || c.err != nil {
		return nil, cmp.Or(err, c.err)
	}
	return sizesOf(t), nil
}

// integers draws from low to high, without high.
func integers(c *call) error {
	shape, err := c.drawn()
	if err != nil {
		return err
	}
	low, high := c.int("low", 0), c.need("high")
	if c.err != nil {
		return c.err
	}
	if low >= high || low < -maxElems || high > maxElems {
		c.stick("high", c.arg("high"), "no integer from %d to below %d", low, high)
		return c.err
	}
	if high-low > 1<<24 {
		return errForm // draws have 24 bits
	}
	x := c.in(ir.I64, c.make(ir.OpFloor, nil, c.with(ir.OpMul, c.uniform(shape), float64(high-low))))
	return c.settle(c.with(ir.OpAdd, c.with(ir.OpMinimum, x, float64(high-low-1)), float64(low)))
}

// chances are ones as often as probabilities say, else zeros.
func chances(c *call) error {
	shape, err := c.drawn()
	if err != nil {
		return err
	}
	if c.isTensor("p") {
		p := c.tensor("p")
		if c.err != nil {
			return c.err
		}
		return c.settle(c.make(ir.OpLt, nil, c.uniform(shape), c.in(ir.F32, p)))
	}
	p := 0.5
	if v, ok := c.num("p"); ok {
		p, _ = v.AsFloat()
	}
	if !(p >= 0 && p <= 1) {
		c.stick("p", c.arg("p"), "a probability of %v", p)
	}
	if c.err != nil {
		return c.err
	}
	return c.settle(c.with(ir.OpLt, c.uniform(shape), p))
}

// exponential is never 0: logarithms of it are common.
func exponential(c *call) error {
	shape, err := c.drawn()
	if err != nil {
		return err
	}
	rate := 1.0
	if v, ok := c.num("lambd"); ok {
		rate, _ = v.AsFloat()
	}
	if !(rate > 0) {
		c.stick("lambd", c.arg("lambd"), "a rate of %v", rate)
	}
	if c.err != nil {
		return c.err
	}
	return c.settle(c.with(ir.OpMul, c.with(ir.OpMaximum, c.untilFirst(shape), 0x1p-25), 1/rate))
}

// dropout keeps elements by chance and gives what it kept.
func dropout(c *call) error {
	x := c.tensor("input")
	p, ok := c.num("p")
	if !ok {
		c.want("p", "a number", c.arg("p"))
	}
	train := c.bool("train", true)
	if c.err != nil {
		return c.err
	}
	f, _ := p.AsFloat()
	shape, dt := static(x), x.Type().DType()
	switch {
	case !train || f == 0:
		return c.settle(x, c.filled(attr.Bool(true), ir.Bool, shape...))
	case !(f > 0 && f <= 1):
		c.stick("p", c.arg("p"), "a probability of %v", f)
		return c.err
	case f == 1:
		return c.settle(c.with(ir.OpMul, x, 0), c.filled(attr.Bool(false), ir.Bool, shape...))
	}
	kept := c.with(ir.OpGe, c.uniform(shape), f)
	y := c.make(ir.OpMul, nil, c.with(ir.OpMul, c.in(accType(dt), x), 1/(1-f)), c.in(accType(dt), kept))
	return c.settle(y, kept)
}

// normal draws by Box and Muller's formula.
func normal(c *call) error {
	shape, err := c.drawn()
	if err != nil {
		return err
	}
	far := c.make(ir.OpSqrt, nil, c.with(ir.OpMul, c.untilFirst(shape), 2))
	return c.settle(c.make(ir.OpMul, nil, far, c.make(ir.OpCos, nil, c.with(ir.OpMul, c.uniform(shape), 2*math.Pi))))
}

// permutation is the order of random numbers.
func permutation(c *call) error {
	n := c.need("n")
	if c.err != nil {
		return c.err
	}
	if n < 0 || n > maxElems {
		return errForm
	}
	x := c.helper(ir.OpRand, nil, ir.Tensor(ir.F32, n))
	l := dimAttr(0).With("k", attr.Int(n))
	top := c.im.fn.Append(ir.NodeSpec{Op: ir.OpTopk, Name: textName(c.n.Name, "node") + ".h", Args: []*ir.Value{x}, Attrs: l,
		Results: []ir.Type{ir.Tensor(ir.F32, n), ir.Tensor(ir.I64, n)}, Meta: attr.Make(attr.Attr{Key: MetaHelper, Val: attr.String(c.n.Name)}), HasCost: true})
	return c.settle(top.Result(1))
}
