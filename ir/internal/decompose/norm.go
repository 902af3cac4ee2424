package decompose

import (
	"fmt"
	"math"

	"github.com/seed-ee968945/concert/ir"
)

// BatchNorm is a normalisation of each index of one dimension over all others.
type BatchNorm struct {
	Epsilon float64
	Feature int64
}

// normer works on tensors of one shape and on those of the features.
type normer struct {
	special
	shape   []int64 // of the tensors
	feature []int64 // ones but for the features
	others  []int64 // dimensions
	count   float64 // elements of each feature
	epsilon float64
}

// over checks operands: the first is a tensor, others of them have its shape, the rest that
// of the features.
func (n BatchNorm) over(to Emitter, what string, x *ir.Value, like, features []*ir.Value) (*normer, error) {
	for _, vs := range [][]*ir.Value{{x}, like, features} {
		if err := check(what, vs...); err != nil {
			return nil, err
		}
	}
	m := &normer{special: special{emit{to}}, shape: sizes(x), epsilon: n.Epsilon, count: 1}
	if n.Feature < 0 || n.Feature >= int64(len(m.shape)) || !x.Type().DType().IsFloat() {
		return nil, fmt.Errorf("%s: feature_index=%d of %s", what, n.Feature, x.Type())
	}
	m.feature = ones(len(m.shape))
	for d, size := range m.shape {
		if int64(d) == n.Feature {
			m.feature[d] = size
			continue
		}
		m.others = append(m.others, int64(d))
		m.count *= float64(size)
	}
	for _, v := range like {
		if !v.Type().Shape().Equal(x.Type().Shape()) {
			return nil, fmt.Errorf("%s: %s beside %s", what, v.Type(), x.Type())
		}
	}
	for _, v := range features {
		if s := sizes(v); len(s) != 1 || s[0] != m.shape[n.Feature] {
			return nil, fmt.Errorf("%s: %s for the %d features of %s", what, v.Type(), m.shape[n.Feature], x.Type())
		}
	}
	return m, nil
}

// wide is a tensor of the features that broadcasts.
func (m *normer) wide(v *ir.Value) *ir.Value { return m.view(v, m.feature) }

// sum is the sum of each feature.
func (m *normer) sum(x *ir.Value) *ir.Value {
	if len(m.others) == 0 {
		return x
	}
	return m.one(ir.OpSum, ir.A("dims", m.others), []*ir.Value{x})
}

func (m *normer) deviation(variance *ir.Value) *ir.Value {
	return m.unary(ir.OpSqrt, m.plus(m.wide(variance), m.epsilon))
}

func (m *normer) infer(x, scale, offset, mean, variance *ir.Value) *ir.Value {
	normal := m.div(m.sub(x, m.wide(mean)), m.deviation(variance))
	return m.add(m.mul(normal, m.wide(scale)), m.wide(offset))
}

// Inference normalises by a mean and a variance that are given.
func (n BatchNorm) Inference(to Emitter, x, scale, offset, mean, variance *ir.Value) (*ir.Value, error) {
	m, err := n.over(to, "batch_norm_inference", x, nil, []*ir.Value{scale, offset, mean, variance})
	if err != nil {
		return nil, err
	}
	return m.infer(x, scale, offset, mean, variance), nil
}

// Training normalises by the mean and the variance of x, which it returns, too.
func (n BatchNorm) Training(to Emitter, x, scale, offset *ir.Value) ([]*ir.Value, error) {
	m, err := n.over(to, "batch_norm_training", x, nil, []*ir.Value{scale, offset})
	if err != nil {
		return nil, err
	}
	mean := m.by(ir.OpDiv, m.sum(x), m.count)
	apart := m.sub(x, m.wide(mean))
	variance := m.by(ir.OpDiv, m.sum(m.mul(apart, apart)), m.count)
	return []*ir.Value{m.infer(x, scale, offset, mean, variance), mean, variance}, nil
}

// Gradients are those of x, scale and offset.
func (n BatchNorm) Gradients(to Emitter, x, scale, mean, variance, grad *ir.Value) ([]*ir.Value, error) {
	m, err := n.over(to, "batch_norm_grad", x, []*ir.Value{grad}, []*ir.Value{scale, mean, variance})
	if err != nil {
		return nil, err
	}
	apart, deviation := m.sub(x, m.wide(mean)), m.deviation(variance)
	offset := m.sum(grad)
	along := m.mul(m.wide(m.sum(m.mul(grad, apart))), apart)
	rest := m.sub(m.times(grad, m.count), m.wide(offset))
	rest = m.sub(rest, m.div(along, m.plus(m.wide(variance), m.epsilon)))
	dx := m.mul(m.by(ir.OpDiv, m.div(m.wide(scale), deviation), m.count), rest)
	return []*ir.Value{dx, m.sum(m.mul(grad, m.div(apart, deviation))), offset}, nil
}

// Uniform draws numbers from a up to b, other ones in every run: floats, or whole numbers
// below b.
func Uniform(to Emitter, a, b *ir.Value, shape []int64) (*ir.Value, error) {
	if err := check("rng", a, b); err != nil {
		return nil, err
	}
	dt := a.Type().DType()
	if a.Type().Rank() != 0 || !a.Type().Equal(b.Type()) {
		return nil, fmt.Errorf("rng: from %s to %s, want scalars of one type", a.Type(), b.Type())
	}
	s := special{emit{to}}
	if dt.IsFloat() {
		return s.add(s.mul(s.draws(dt, shape), s.sub(b, a)), a), nil
	}
	low := s.convert(a, ir.F64)
	return s.convert(s.floor(s.add(s.mul(s.draws(ir.F64, shape), s.sub(s.convert(b, ir.F64), low)), low)), dt), nil
}

// draws is numbers from 0 up to 1. A draw has 24 bits: doubles are two of them.
func (s special) draws(dt ir.DType, shape []int64) *ir.Value {
	draw := func() *ir.Value { return s.one(ir.OpRand, ir.A("seed", 0), nil, ir.Tensor(dt, shape...)) }
	if dt != ir.F64 {
		return draw()
	}
	return s.add(draw(), s.times(draw(), 0x1p-24))
}

// Normal draws floats around a mean with a standard deviation, other ones in every run.
func Normal(to Emitter, mean, deviation *ir.Value, shape []int64) (*ir.Value, error) {
	if err := check("rng", mean, deviation); err != nil {
		return nil, err
	}
	if t := mean.Type(); t.Rank() != 0 || !t.Equal(deviation.Type()) || !t.DType().IsFloat() {
		return nil, fmt.Errorf("rng: a mean of type %s and a deviation of type %s, want floats", t, deviation.Type())
	}
	s := special{emit{to}}
	dt := mean.Type().DType()
	// Of u and 1-u, which lie in (0, 1), the error function's inverse is finite.
	u := s.plus(s.times(s.draws(ir.F64, shape), 1-0x1p-52), 0x1p-53)
	z := s.convert(s.times(ErfInv(to, s.plus(s.times(u, 2), -1)), math.Sqrt2), dt)
	return s.add(s.mul(z, deviation), mean), nil
}
