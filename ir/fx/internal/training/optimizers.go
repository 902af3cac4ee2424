package training

import (
	"cmp"

	"github.com/seed-ee968945/concert/internal/attr"
	"github.com/seed-ee968945/concert/ir"
	"github.com/seed-ee968945/concert/ir/fx/internal/traced"
)

// optimizerOps are steps of optimizers on lists of parameters. Their results are the lists that
// they would write, one after another.
var optimizerOps = []row{
	{"aten._fused_adam.default aten._fused_adam.tensor_lr", fusedAdam, adam(false)},
	{"aten._fused_adamw.default aten._fused_adamw.tensor_lr", fusedAdam, adam(true)},
}

const fusedAdam = "self grads exp_avgs exp_avg_sqs max_exp_avg_sqs state_steps * lr beta1 beta2 weight_decay eps amsgrad maximize grad_scale found_inf"

// adamStep is what all parameters of a step share.
type adamStep struct {
	*call
	decoupled, amsgrad, maximize bool
	beta1, beta2, decay, eps     float64
	lr, one                      *ir.Value // f64[]
	inverseScale, skips          *ir.Value // of gradients; whether they overflowed; nil for none
}

// adam is the step of Adam, or of AdamW, whose weights decay apart from gradients.
func adam(decoupled bool) func(c *call) error {
	return func(c *call) error {
		s := adamStep{call: c, decoupled: decoupled, amsgrad: c.Bool("amsgrad", false), maximize: c.Bool("maximize", false)}
		number := func(name string) float64 {
			v, ok := c.Num(name)
			if !ok {
				c.Want(name, "a number", c.Arg(name))
			}
			f, _ := v.AsFloat()
			return f
		}
		s.beta1, s.beta2, s.decay, s.eps = number("beta1"), number("beta2"), number("weight_decay"), number("eps")
		s.one = c.Filled(attr.Int(1), ir.F64)
		if c.IsTensor("lr") {
			s.lr = c.Shaped(c.In(ir.F64, c.Tensor("lr")))
		} else {
			s.lr = c.Filled(attr.Float(number("lr")), ir.F64)
		}
		if c.IsTensor("grad_scale") {
			s.inverseScale = c.Make(ir.OpReciprocal, nil, c.Shaped(c.In(ir.F32, c.Tensor("grad_scale"))))
		}
		if c.IsTensor("found_inf") {
			s.skips = c.Shaped(c.With(ir.OpEq, c.Tensor("found_inf"), 1))
		}
		lists := make([][]*ir.Value, 6)
		for k, name := range []string{"self", "grads", "exp_avgs", "exp_avg_sqs", "max_exp_avg_sqs", "state_steps"} {
			lists[k] = c.Tensors(name)
			if len(lists[k]) != len(lists[0]) && (k != 4 || s.amsgrad) {
				return cmp.Or(c.Err, traced.ErrForm)
			}
		}
		if c.Err != nil {
			return c.Err
		}
		n := len(lists[0])
		out := make([]*ir.Value, n*4+len(lists[4]))
		for k := range lists[0] {
			var most *ir.Value
			if s.amsgrad {
				most = lists[4][k]
			}
			for j, v := range s.step(lists[0][k], lists[1][k], lists[2][k], lists[3][k], most, lists[5][k]) {
				out[j*n+k] = v
			}
		}
		return c.Settle(out...)
	}
}

// step gives a parameter, its gradient, its averages and, for AMSGrad, the largest of the second so far.
func (s adamStep) step(p, g, m, v, most, count *ir.Value) []*ir.Value {
	given := []*ir.Value{p, g, m, v, most}
	if most == nil {
		given = given[:4]
	}
	dt := traced.AccType(p.Type().DType())
	p, g, m, v = s.In(dt, p), s.In(dt, g), s.In(dt, m), s.In(dt, v)
	if s.inverseScale != nil {
		g = s.Mul(g, s.In(dt, s.inverseScale))
	}
	scaled := g
	if s.maximize {
		g = s.Make(ir.OpNeg, nil, g)
	}
	switch {
	case s.decay == 0:
	case s.decoupled:
		p = s.Mul(p, s.In(dt, s.Sub(s.one, s.With(ir.OpMul, s.lr, s.decay))))
	default:
		g = s.Add(g, s.With(ir.OpMul, p, s.decay))
	}
	m = s.Add(m, s.With(ir.OpMul, s.Sub(g, m), 1-s.beta1))
	v = s.Add(s.With(ir.OpMul, v, s.beta2), s.With(ir.OpMul, s.Mul(g, g), 1-s.beta2))
	second := v
	if most != nil {
		most = s.Make(ir.OpMaximum, nil, s.In(dt, most), v)
		second = most
	}
	bias := func(beta float64) *ir.Value {
		at := s.Shaped(s.In(ir.F64, count))
		return s.Sub(s.one, s.Make(ir.OpPow, nil, s.Filled(attr.Float(beta), ir.F64), at))
	}
	size := s.In(dt, s.Make(ir.OpDiv, nil, s.lr, bias(s.beta1)))
	root := s.In(dt, s.Make(ir.OpSqrt, nil, bias(s.beta2)))
	below := s.With(ir.OpAdd, s.Make(ir.OpDiv, nil, s.Make(ir.OpSqrt, nil, second), root), s.eps)
	p = s.Sub(p, s.Make(ir.OpDiv, nil, s.Mul(size, m), below))
	out := []*ir.Value{p, scaled, m, v, most}[:len(given)]
	for k, x := range out {
		x = s.In(given[k].Type().DType(), x)
		if s.skips != nil {
			x = s.Make(ir.OpWhere, nil, s.skips, given[k], x)
		}
		out[k] = x
	}
	return out
}
