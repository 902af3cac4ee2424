package fx

import (
	"slices"

	"github.com/seed-ee968945/concert/internal/attr"
	"github.com/seed-ee968945/concert/ir"
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
	if slices.Contains(c.params, "size") {
		c.checkSize("size")
	}
}

func full(c *call) error {
	c.sized()
	if d := c.im.sizeOf(c.arg("fill_value")); d != nil && c.err == nil && len(c.n.Out) == 1 && c.n.Out[0].rank() == 0 {
		return c.emitErr(ir.OpConvert, nil, c.counted(*d))
	}
	v, ok := c.num("fill_value")
	if !ok {
		c.want("fill_value", "a number", c.arg("fill_value"))
	}
	return c.emitErr(ir.OpFull, attr.List(nil).With("value", v))
}

func fill(n int64) func(c *call) error {
	return func(c *call) error {
		c.sized()
		return c.emitErr(ir.OpFull, attr.List(nil).With("value", attr.Int(n)))
	}
}

func arange(c *call) error {
	for _, p := range c.params {
		if v := c.arg(p); v != nil && v.kind == pyFloat {
			return errForm
		}
	}
	start, end, step := int64(0), c.need("end"), int64(1)
	if slices.Contains(c.params, "start") {
		start = c.int("start", 0)
	}
	if slices.Contains(c.params, "step") {
		step = c.int("step", 1)
	}
	if c.err != nil {
		return c.err
	}
	if max(start, end, step) > maxElems || min(start, end, step) < -maxElems {
		return errForm
	}
	count := int64(0)
	switch {
	case step > 0:
		count = max(0, (end-start+step-1)/step)
	case step < 0:
		count = max(0, (start-end-step-1)/-step)
	default:
		c.stick("step", c.arg("step"), "step 0")
		return c.err
	}
	if len(c.n.Out) == 1 && !slices.Equal(c.n.Out[0].Shape, []int64{count}) {
		return c.fail("out", "type", "result 0 has shape %v, the arguments give [%d]", c.n.Out[0].Shape, count)
	}
	var l attr.List
	if start != 0 {
		l = l.With("start", attr.Int(start))
	}
	if step != 1 {
		l = l.With("step", attr.Int(step))
	}
	return c.emitErr(ir.OpIota, l)
}
