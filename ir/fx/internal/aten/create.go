package aten

import (
	"cmp"
	"math"
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
	{"aten.zeros.default aten.empty.memory_format aten._efficientzerotensor.default", "size", fill(0)},
	{"aten.empty_strided.default", "size stride", fill(0)},
	{"aten.zeros_like.default aten.empty_like.default aten.zero.default", "self", fill(0)},
	{"aten.new_zeros.default aten.new_empty.default", "self size", fill(0)},
	{"aten.new_empty_strided.default", "self size stride", fill(0)},
	{"aten.ones.default", "size", fill(1)},
	{"aten.ones_like.default", "self", fill(1)},
	{"aten.new_ones.default", "self size", fill(1)},
	{"aten.hann_window.default", "window_length", hann},
	{"aten.hann_window.periodic", "window_length periodic", hann},
	{"aten.hamming_window.default", "window_length", hamming},
	{"aten.hamming_window.periodic", "window_length periodic", hamming},
	{"aten.hamming_window.periodic_alpha", "window_length periodic alpha", hamming},
	{"aten.hamming_window.periodic_alpha_beta", "window_length periodic alpha beta", hamming},
	{"aten.blackman_window.default", "window_length", blackman},
	{"aten.blackman_window.periodic", "window_length periodic", blackman},
	{"aten.arange.default", "end", arange},
	{"aten.arange.start", "start end", arange},
	{"aten.arange.start_step", "start end step", arange},
}

// sized checks the size argument, if the signature has one.
func (c *call) sized() {
	if slices.Contains(c.Params, "size") {
		c.checkSize()
	}
}

func full(c *call) error {
	c.sized()
	if v := c.Arg("fill_value"); v != nil && c.Err == nil && c.NumResults == 1 && c.Trace.Open(v) {
		if len(c.Shape(0)) == 0 {
			return c.EmitErr(ir.OpConvert, nil, c.Tensor("fill_value"))
		}
		x, _ := c.Broadcast(c.Tensor("fill_value"), c.Shape(0))
		return c.Settle(x)
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
			return c.arangeFloat()
		}
	}
	for _, p := range []string{"start", "end"} {
		if c.Trace.SizeOf(c.Arg(p)) != nil {
			return c.arangeOpen()
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

// arangeFloat counts in steps that are no integers, in double precision; how many there are the trace says.
func (c *call) arangeFloat() error {
	start, step := 0.0, 1.0
	if slices.Contains(c.Params, "start") {
		start = c.numOr("start", start)
	}
	if slices.Contains(c.Params, "step") {
		step = c.numOr("step", step)
	}
	end := c.numOr("end", 0)
	if c.Err != nil || c.NumResults != 1 || len(c.Shape(0)) != 1 {
		return cmp.Or(c.Err, traced.ErrForm)
	}
	n := c.Shape(0)[0]
	if want := math.Ceil((end - start) / step); !(want >= 0) || !n.Equal(ir.D(int64(want))) {
		c.Reject("end", c.Arg("end"), "%v elements from %v to %v in steps of %v, out has %s", want, start, end, step, n)
		return c.Err
	}
	at := c.With(ir.OpMul, c.In(ir.F64, c.Places(n)), step)
	return c.Settle(c.With(ir.OpAdd, at, start))
}

// arangeOpen counts from or to a size.
func (c *call) arangeOpen() error {
	start, step := ir.Dims(0), int64(1)
	if slices.Contains(c.Params, "start") && c.Arg("start") != nil {
		start = c.Sizes("start")
	}
	if slices.Contains(c.Params, "step") {
		step = c.Int("step", 1)
	}
	end := c.Sizes("end")
	if c.Err != nil || step == 0 || len(start) != 1 || len(end) != 1 || c.NumResults != 1 || len(c.Shape(0)) != 1 {
		return cmp.Or(c.Err, traced.ErrForm)
	}
	n, way := c.Shape(0)[0], end[0].Sub(start[0])
	if step > 0 {
		c.same(n, way.Add(ir.D(step-1)).Div(step)) // the trace says how many there are
	} else {
		c.same(n, ir.D(0).Sub(way).Sub(ir.D(step+1)).Div(-step))
	}
	at := c.Places(n)
	if step != 1 {
		at = c.With(ir.OpMul, at, float64(step))
	}
	if !start[0].Equal(ir.D(0)) {
		at = c.By(ir.OpAdd, at, start[0])
	}
	return c.Settle(at)
}

func hann(c *call) error { return c.cosines(0.5, 0.5) }

func hamming(c *call) error {
	alpha, beta := 0.54, 0.46
	if slices.Contains(c.Params, "alpha") {
		alpha = c.numOr("alpha", alpha)
	}
	if slices.Contains(c.Params, "beta") {
		beta = c.numOr("beta", beta)
	}
	return c.cosines(alpha, beta)
}

func blackman(c *call) error { return c.cosines(0.42, 0.5, 0.08) }

// cosines is a window: a sum of cosines over one turn, the signs in turns, k of them in turn k.
// A periodic window is one of an element more, without the last.
func (c *call) cosines(factors ...float64) error {
	n := c.Need("window_length")
	turn := n
	if slices.Contains(c.Params, "periodic") && !c.Bool("periodic", true) {
		turn--
	}
	t, err := c.Trace.TypeOf(0)
	if err = cmp.Or(c.Err, err); err != nil {
		return err
	}
	if n < 0 || n > traced.MaxElems || !t.DType().IsFloat() {
		return traced.ErrForm
	}
	if n == 1 {
		return c.EmitErr(ir.OpFull, attr.List(nil).With("value", attr.Int(1)))
	}
	var sum *ir.Value
	at := c.In(ir.F64, c.Counting(n))
	for k, f := range slices.Backward(factors) {
		term := c.Make(ir.OpCos, nil, c.With(ir.OpMul, at, 2*math.Pi*float64(k)/float64(turn)))
		sum = c.plus(sum, c.With(ir.OpMul, term, f*float64(1-2*(k%2))))
	}
	return c.Settle(sum)
}
