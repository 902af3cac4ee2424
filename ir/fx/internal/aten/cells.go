package aten

import (
	"github.com/seed-ee968945/concert/ir"
	"github.com/seed-ee968945/concert/ir/fx/internal/traced"
)

// cellOps are the fused recurrent cells of GPUs. What forward leaves for backward, the
// workspace, has the gates side by side: those of an LSTM are input, forget, cell and
// output; those of a GRU reset, update and new, then the old state and its part of new.
var cellOps = []row{
	{"aten._thnn_fused_lstm_cell.default", "input_gates hidden_gates cx input_bias hidden_bias", lstmCell},
	{"aten._thnn_fused_lstm_cell_backward_impl.default", "grad_hy grad_cy cx cy workspace has_bias", lstmCellBackward},
	{"aten._thnn_fused_gru_cell.default", "input_gates hidden_gates hx input_bias hidden_bias", gruCell},
	{"aten._thnn_fused_gru_cell_backward.default", "grad_hy workspace has_bias", gruCellBackward},
}

// columns cuts [n, k*w] into k pieces [n, w] in single precision at least; nil if it is no such tensor.
func (c *call) columns(x *ir.Value, k int64) []*ir.Value {
	s := traced.Static(x)
	if len(s) != 2 || s[1]%k != 0 || !x.Type().DType().IsFloat() {
		if c.Err == nil {
			c.Err = traced.ErrForm
		}
		return nil
	}
	x = c.In(traced.AccType(x.Type().DType()), x)
	w := s[1] / k
	var out []*ir.Value
	for i := range k {
		out = append(out, c.Slice(x, 1, i*w, (i+1)*w))
	}
	return out
}

func (c *call) add(a, b *ir.Value) *ir.Value { return c.Make(ir.OpAdd, nil, a, b) }
func (c *call) sub(a, b *ir.Value) *ir.Value { return c.Make(ir.OpSub, nil, a, b) }

func (c *call) mul(a *ir.Value, bs ...*ir.Value) *ir.Value {
	for _, b := range bs {
		a = c.Make(ir.OpMul, nil, a, b)
	}
	return a
}

// rest is 1 - x.
func (c *call) rest(x *ir.Value) *ir.Value {
	return c.With(ir.OpAdd, c.Make(ir.OpNeg, nil, x), 1)
}

func (c *call) sideBySide(xs ...*ir.Value) *ir.Value {
	return c.Make(ir.OpCat, traced.DimAttr(1), xs...)
}

// gates are the pieces of what input and state give, each with its bias.
func (c *call) gates(k int64) (in, hidden []*ir.Value) {
	var both [2][]*ir.Value
	for i, p := range [][2]string{{"input_gates", "input_bias"}, {"hidden_gates", "hidden_bias"}} {
		x := c.Tensor(p[0])
		if c.Err != nil {
			return nil, nil
		}
		if c.IsTensor(p[1]) {
			acc := traced.AccType(x.Type().DType())
			x = c.add(c.In(acc, x), c.In(acc, c.Tensor(p[1])))
		}
		if both[i] = c.columns(x, k); c.Err != nil {
			return nil, nil
		}
	}
	return both[0], both[1]
}

func lstmCell(c *call) error {
	x, h := c.gates(4)
	cx := c.Tensor("cx")
	if c.Err != nil {
		return c.Err
	}
	var g [4]*ir.Value
	for i := range g {
		op := ir.OpSigmoid
		if i == 2 {
			op = ir.OpTanh
		}
		g[i] = c.Make(op, nil, c.add(x[i], h[i]))
	}
	dt := cx.Type().DType()
	cy := c.add(c.mul(g[1], c.In(traced.AccType(dt), cx)), c.mul(g[0], g[2]))
	hy := c.mul(g[3], c.Make(ir.OpTanh, nil, cy))
	return c.Settle(hy, cy, c.sideBySide(g[:]...))
}

func lstmCellBackward(c *call) error {
	cx, cy, space := c.Tensor("cx"), c.Tensor("cy"), c.Tensor("workspace")
	if c.Err != nil {
		return c.Err
	}
	g := c.columns(space, 4)
	if c.Err != nil {
		return c.Err
	}
	acc := traced.AccType(cx.Type().DType())
	grad := map[string]*ir.Value{}
	for _, p := range []string{"grad_hy", "grad_cy"} {
		if c.IsTensor(p) {
			grad[p] = c.In(acc, c.Tensor(p))
		} else {
			grad[p] = c.With(ir.OpMul, g[0], 0)
		}
	}
	if c.Err != nil {
		return c.Err
	}
	cx = c.In(acc, cx)
	t := c.Make(ir.OpTanh, nil, c.In(acc, cy))
	dc := c.add(c.mul(grad["grad_hy"], g[3], c.rest(c.mul(t, t))), grad["grad_cy"])
	gates := c.sideBySide(
		c.mul(dc, g[2], c.rest(g[0]), g[0]),
		c.mul(dc, cx, c.rest(g[1]), g[1]),
		c.mul(dc, g[0], c.rest(c.mul(g[2], g[2]))),
		c.mul(grad["grad_hy"], t, c.rest(g[3]), g[3]))
	return c.withBiases(c.Bool("has_bias", false), []*ir.Value{gates, c.mul(dc, g[1])}, gates)
}

// withBiases are results, and the sums over the batch of gates if there are biases.
func (c *call) withBiases(has bool, out []*ir.Value, gates ...*ir.Value) error {
	if c.Err != nil {
		return c.Err
	}
	for _, g := range gates {
		if has {
			out = append(out, c.Over(ir.OpSum, g, false, 0))
		}
	}
	return c.Settle(out...)
}

func gruCell(c *call) error {
	x, h := c.gates(3)
	hx := c.Tensor("hx")
	if c.Err != nil {
		return c.Err
	}
	hx = c.In(traced.AccType(hx.Type().DType()), hx)
	reset := c.Make(ir.OpSigmoid, nil, c.add(x[0], h[0]))
	update := c.Make(ir.OpSigmoid, nil, c.add(x[1], h[1]))
	fresh := c.Make(ir.OpTanh, nil, c.add(x[2], c.mul(reset, h[2])))
	hy := c.add(fresh, c.mul(update, c.sub(hx, fresh)))
	return c.Settle(hy, c.sideBySide(reset, update, fresh, hx, h[2]))
}

func gruCellBackward(c *call) error {
	dy, space := c.Tensor("grad_hy"), c.Tensor("workspace")
	if c.Err != nil {
		return c.Err
	}
	g := c.columns(space, 5)
	if c.Err != nil {
		return c.Err
	}
	dy = c.In(traced.AccType(dy.Type().DType()), dy)
	reset, update, fresh, hx, part := g[0], g[1], g[2], g[3], g[4]
	dupdate := c.mul(dy, c.sub(hx, fresh), c.rest(update), update)
	dfresh := c.mul(dy, c.rest(update), c.rest(c.mul(fresh, fresh)))
	dreset := c.mul(dfresh, part, c.rest(reset), reset)
	in := c.sideBySide(dreset, dupdate, dfresh)
	hidden := c.sideBySide(dreset, dupdate, c.mul(dfresh, reset))
	return c.withBiases(c.Bool("has_bias", false), []*ir.Value{in, hidden, c.mul(dy, update)}, in, hidden)
}
