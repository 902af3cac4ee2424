package aten

import (
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
	{"aten.special_zeta.default", "self other", zeta},
	{"aten.erfinv.default", "self", special(decompose.ErfInv)},
	{"aten.i0.default", "self", special(decompose.BesselI(0, false))},
	{"aten.special_i0e.default", "self", special(decompose.BesselI(0, true))},
	{"aten.special_i1.default", "self", special(decompose.BesselI(1, false))},
	{"aten.special_i1e.default", "self", special(decompose.BesselI(1, true))},
	{"aten.nextafter.default", "self other", nextAfter},
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
		return c.Settle(f(emitter{c}, xs[0]))
	}
}

func polygamma(c *call) error {
	n := c.Need("n")
	xs, err := c.floats("self")
	if err != nil {
		return err
	}
	y := decompose.Polygamma(math.Inf(1))(emitter{c}, c.Filled(attr.Int(n), ir.F64), xs[0])
	return c.Settle(c.In(xs[0].Type().DType(), y))
}

func zeta(c *call) error {
	xs, err := c.floats("self", "other")
	if err != nil {
		return err
	}
	return c.Settle(decompose.Zeta(math.Inf(1))(emitter{c}, xs[0], xs[1]))
}

func nextAfter(c *call) error {
	xs, err := c.floats("self", "other")
	if err != nil {
		return err
	}
	return c.Settle(decompose.NextAfter(emitter{c}, xs[0], xs[1]))
}
