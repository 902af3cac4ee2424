package layers

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
	s := x.Type().Shape()
	if len(s) != 2 || traced.Constant(s[1])%k != 0 || !x.Type().DType().IsFloat() {
		if c.Err == nil {
			c.Err = traced.ErrForm
		}
		return nil
	}
	x = c.In(traced.AccType(x.Type().DType()), x)
	w := traced.Constant(s[1]) / k
	var out []*ir.Value
	for i := range k {
		out = append(out, c.Slice(x, 1, i*w, (i+1)*w))
	}
	return out
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
			x = c.Add(c.In(acc, x), c.In(acc, c.Tensor(p[1])))
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
		g[i] = c.Make(op, nil, c.Add(x[i], h[i]))
	}
	dt := cx.Type().DType()
	cy := c.Add(c.Mul(g[1], c.In(traced.AccType(dt), cx)), c.Mul(g[0], g[2]))
	hy := c.Mul(g[3], c.Make(ir.OpTanh, nil, cy))
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
	dc := c.Add(c.Mul(grad["grad_hy"], g[3], c.Rest(c.Mul(t, t))), grad["grad_cy"])
	gates := c.sideBySide(
		c.Mul(dc, g[2], c.Rest(g[0]), g[0]),
		c.Mul(dc, cx, c.Rest(g[1]), g[1]),
		c.Mul(dc, g[0], c.Rest(c.Mul(g[2], g[2]))),
		c.Mul(grad["grad_hy"], t, c.Rest(g[3]), g[3]))
	return c.withBiases(c.Bool("has_bias", false), []*ir.Value{gates, c.Mul(dc, g[1])}, gates)
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
	reset := c.Make(ir.OpSigmoid, nil, c.Add(x[0], h[0]))
	update := c.Make(ir.OpSigmoid, nil, c.Add(x[1], h[1]))
	fresh := c.Make(ir.OpTanh, nil, c.Add(x[2], c.Mul(reset, h[2])))
	hy := c.Add(fresh, c.Mul(update, c.Sub(hx, fresh)))
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
	dupdate := c.Mul(dy, c.Sub(hx, fresh), c.Rest(update), update)
	dfresh := c.Mul(dy, c.Rest(update), c.Rest(c.Mul(fresh, fresh)))
	dreset := c.Mul(dfresh, part, c.Rest(reset), reset)
	in := c.sideBySide(dreset, dupdate, dfresh)
	hidden := c.sideBySide(dreset, dupdate, c.Mul(dfresh, reset))
	return c.withBiases(c.Bool("has_bias", false), []*ir.Value{in, hidden, c.Mul(dy, update)}, in, hidden)
}
