package aten

import (
	"slices"

	"github.com/seed-ee968945/concert/internal/attr"
	"github.com/seed-ee968945/concert/ir"
	"github.com/seed-ee968945/concert/ir/fx/internal/pytext"
	"github.com/seed-ee968945/concert/ir/fx/internal/traced"
)

// creationOps make tensors of constants or positions. An
// uninitialised tensor is one of zeros: its content may be anything.
var creationOps = []row{
	{"aten.full.default", "size fill_value", full},
	{"aten.full_like.default", "self fill_value", full},
	{"aten.new_full.default", "self size fill_value", full},
	{"aten.scalar_tensor.default", "fill_value", full},
	{"aten.zeros.default aten.empty.memory_format", "size", fill(0)},
	{"aten.empty_strided.default", "size stride", fill(0)},
	{"aten.zeros_like.default aten.empty_like.default", "self", fill(0)},
	{"aten.new_zeros.default aten.new_empty.default", "self size", fill(0)},
	{"aten.new_empty_strided.default", "self size stride", fill(0)},
	{"aten.ones.default", "size", fill(1)},
	{"aten.ones_like.default", "self", fill(1)},
	{"aten.new_ones.default", "self size", fill(1)},
	{"aten.arange.default", "end", arange},
	{"aten.arange.start", "start end", arange},
	{"aten.arange.start_step", "start end step", arange},
}

// sized checks the size argument, if the signature has one.
func (c *call) sized() {
	if slices.Contains(c.Params, "size") {
		c.checkSize("size")
	}
}

func full(c *call) error {
	c.sized()
	if d := c.Trace.SizeOf(c.Arg("fill_value")); d != nil && c.Err == nil && c.NumResults == 1 && len(c.Shape(0)) == 0 {
		return c.EmitErr(ir.OpConvert, nil, c.Counted(*d))
	}
	v, ok := c.Num("fill_value")
	if !ok {
		c.Want("fill_value", "a number", c.Arg("fill_value"))
	}
	return c.EmitErr(ir.OpFull, attr.List(nil).With("value", v))
}

func fill(n int64) func(c *call) error {
	return func(c *call) error {
		c.sized()
		return c.EmitErr(ir.OpFull, attr.List(nil).With("value", attr.Int(n)))
	}
}

func arange(c *call) error {
	for _, p := range c.Params {
		if v := c.Arg(p); v != nil && v.Kind == pytext.Float {
			return traced.ErrForm
		}
	}
	start, end, step := int64(0), c.Need("end"), int64(1)
	if slices.Contains(c.Params, "start") {
		start = c.Int("start", 0)
	}
	if slices.Contains(c.Params, "step") {
		step = c.Int("step", 1)
	}
	if c.Err != nil {
		return c.Err
	}
	if max(start, end, step) > traced.MaxElems || min(start, end, step) < -traced.MaxElems {
		return traced.ErrForm
	}
	count := int64(0)
	switch {
	case step > 0:
		count = max(0, (end-start+step-1)/step)
	case step < 0:
		count = max(0, (start-end-step-1)/-step)
	default:
		c.Reject("step", c.Arg("step"), "step 0")
		return c.Err
	}
	if c.NumResults == 1 && !c.Shape(0).Equal(ir.Dims(count)) {
		return c.Fail("out", "type", "result 0 has shape %s, the arguments give [%d]", c.Shape(0), count)
	}
	var l attr.List
	if start != 0 {
		l = l.With("start", attr.Int(start))
	}
	if step != 1 {
		l = l.With("step", attr.Int(step))
	}
	return c.EmitErr(ir.OpIota, l)
}
