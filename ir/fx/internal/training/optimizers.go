package training

import (
	"cmp"
	"slices"

	"github.com/seed-ee968945/concert/internal/attr"
	"github.com/seed-ee968945/concert/ir"
	"github.com/seed-ee968945/concert/ir/fx/internal/traced"
)

// optimizerOps are steps of optimizers on lists of parameters. Their results are the lists that
// they would write, one after another.
var optimizerOps = []row{
	{"aten._fused_adam.default aten._fused_adam.tensor_lr", fusedAdam, adam(false)},
	{"aten._fused_adamw.default aten._fused_adamw.tensor_lr", fusedAdam, adam(true)},
	{"aten._fused_sgd.default aten._fused_sgd.tensor_lr", "self grads momentum_buffer_list * weight_decay momentum lr dampening nesterov maximize is_first_step grad_scale found_inf", sgd},
	{"aten._fused_adagrad.default aten._fused_adagrad.tensor_lr", "self grads state_sums state_steps * lr lr_decay weight_decay eps maximize grad_scale found_inf", adagrad},
}

const fusedAdam = "self grads exp_avgs exp_avg_sqs max_exp_avg_sqs state_steps * lr beta1 beta2 weight_decay eps amsgrad maximize grad_scale found_inf"

// fusedStep is what all parameters of a step share.
type fusedStep struct {
	*call
	maximize            bool
	decay               float64
	lr, one             *ir.Value // f64[]
	inverseScale, skips *ir.Value // of gradients; whether they overflowed; nil for none
}

// float is a number argument.
func (c *call) float(name string) float64 {
	v, ok := c.Num(name)
	if !ok {
		c.Want(name, "a number", c.Arg(name))
	}
	f, _ := v.AsFloat()
	return f
}

func (c *call) fusedStep() fusedStep {
	s := fusedStep{call: c, maximize: c.Bool("maximize", false), decay: c.float("weight_decay"), one: c.Filled(attr.Int(1), ir.F64)}
	if c.IsTensor("lr") {
		s.lr = c.Shaped(c.In(ir.F64, c.Tensor("lr")))
	} else {
		s.lr = c.Filled(attr.Float(c.float("lr")), ir.F64)
	}
	if c.IsTensor("grad_scale") {
		s.inverseScale = c.Make(ir.OpReciprocal, nil, c.Shaped(c.In(ir.F32, c.Tensor("grad_scale"))))
	}
	if c.IsTensor("found_inf") {
		s.skips = c.Shaped(c.With(ir.OpEq, c.Tensor("found_inf"), 1))
	}
	return s
}

// each ends a step: f makes the new state of a parameter of what it has in each list. Parameters and
// gradients are the first two; the optional list may be empty, which gives nil.
func (s fusedStep) each(f func(state []*ir.Value) []*ir.Value, optional string, names ...string) error {
	lists := make([][]*ir.Value, len(names))
	for k, name := range names {
		lists[k] = s.Tensors(name)
		if n := len(lists[k]); n != len(lists[0]) && (n > 0 || name != optional) {
			return cmp.Or(s.Err, traced.ErrForm)
		}
	}
	if s.Err != nil {
		return s.Err
	}
	out := make([][]*ir.Value, len(names))
	for k := range lists[0] {
		state := make([]*ir.Value, len(names))
		for j, l := range lists {
			if len(l) > 0 {
				state[j] = l[k]
			}
		}
		for j, x := range f(slices.Clone(state)) { // counts that stay as they are may not be results
			if state[j] == nil {
				continue
			}
			x = s.In(state[j].Type().DType(), x)
			if s.skips != nil {
				x = s.Make(ir.OpWhere, nil, s.skips, state[j], x)
			}
			out[j] = append(out[j], x)
		}
	}
	return s.Settle(slices.Concat(out...)...)
}

// wide gives the state of a parameter in the type that it is computed in, and its gradient times the
// inverse of the scale, and in the direction of the step.
func (s fusedStep) wide(state []*ir.Value) (scaled, g *ir.Value) {
	dt := traced.AccType(state[0].Type().DType())
	for k, x := range state {
		if x != nil {
			state[k] = s.In(dt, x)
		}
	}
	if s.inverseScale != nil {
		state[1] = s.Mul(state[1], s.In(dt, s.inverseScale))
	}
	if s.maximize {
		return state[1], s.Make(ir.OpNeg, nil, state[1])
	}
	return state[1], state[1]
}

type adamStep struct {
	fusedStep
	decoupled, amsgrad bool
	beta1, beta2, eps  float64
}

// adam is the step of Adam, or of AdamW, whose weights decay apart from gradients.
func adam(decoupled bool) func(c *call) error {
	return func(c *call) error {
		s := adamStep{c.fusedStep(), decoupled, c.Bool("amsgrad", false), c.float("beta1"), c.float("beta2"), c.float("eps")}
		if s.amsgrad && len(c.ListOf("max_exp_avg_sqs")) == 0 {
			return cmp.Or(c.Err, traced.ErrForm)
		}
		return s.each(s.step, "max_exp_avg_sqs", "self", "grads", "exp_avgs", "exp_avg_sqs", "max_exp_avg_sqs", "state_steps")
	}
}

// step gives a parameter, its gradient, its averages and, for AMSGrad, the largest of the second so far.
func (s adamStep) step(state []*ir.Value) []*ir.Value {
	count := state[5]
	scaled, g := s.wide(state[:5])
	p, m, v, most := state[0], state[2], state[3], state[4]
	dt := p.Type().DType()
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
	if s.amsgrad {
		most = s.Make(ir.OpMaximum, nil, most, v)
		second = most
	}
	bias := func(beta float64) *ir.Value {
		at := s.Shaped(s.In(ir.F64, count))
		return s.Sub(s.one, s.Make(ir.OpPow, nil, s.Filled(attr.Float(beta), ir.F64), at))
	}
	size := s.In(dt, s.Make(ir.OpDiv, nil, s.lr, bias(s.beta1)))
	root := s.In(dt, s.Make(ir.OpSqrt, nil, bias(s.beta2)))
	below := s.With(ir.OpAdd, s.Make(ir.OpDiv, nil, s.Make(ir.OpSqrt, nil, second), root), s.eps)
	return []*ir.Value{s.Sub(p, s.Make(ir.OpDiv, nil, s.Mul(size, m), below)), scaled, m, v, most}
}

// sgd is a step of stochastic gradient descent, with momentum or without.
func sgd(c *call) error {
	s, momentum, damped := c.fusedStep(), c.float("momentum"), 1-c.float("dampening")
	nesterov, first := c.Bool("nesterov", false), c.Bool("is_first_step", false)
	return s.each(func(state []*ir.Value) []*ir.Value {
		scaled, g := s.wide(state)
		p, kept := state[0], state[2]
		if s.decay != 0 {
			g = s.Add(g, s.With(ir.OpMul, p, s.decay))
		}
		if momentum != 0 && kept != nil {
			if first {
				kept = g
			} else {
				kept = s.Add(s.With(ir.OpMul, kept, momentum), s.With(ir.OpMul, g, damped))
			}
			if nesterov {
				g = s.Add(g, s.With(ir.OpMul, kept, momentum))
			} else {
				g = kept
			}
		}
		return []*ir.Value{s.Sub(p, s.Mul(s.In(p.Type().DType(), s.lr), g)), scaled, kept}
	}, "momentum_buffer_list", "self", "grads", "momentum_buffer_list")
}

// adagrad is a step of Adagrad, whose counts of steps are left as they are.
func adagrad(c *call) error {
	s, slower, eps := c.fusedStep(), c.float("lr_decay"), c.float("eps")
	return s.each(func(state []*ir.Value) []*ir.Value {
		count := state[3]
		state[3] = nil
		scaled, g := s.wide(state)
		p, dt := state[0], state[0].Type().DType()
		if s.decay != 0 {
			g = s.Add(g, s.With(ir.OpMul, p, s.decay))
		}
		sum := s.Add(state[2], s.Mul(g, g))
		at := s.With(ir.OpAdd, s.Shaped(s.In(ir.F64, count)), -1)
		size := s.In(dt, s.Make(ir.OpDiv, nil, s.lr, s.Add(s.one, s.With(ir.OpMul, at, slower))))
		below := s.With(ir.OpAdd, s.Make(ir.OpSqrt, nil, sum), eps)
		return []*ir.Value{s.Sub(p, s.Make(ir.OpDiv, nil, s.Mul(size, g), below)), scaled, sum, count}
	}, "", "self", "grads", "state_sums", "state_steps")
}
