package training

import (
	"cmp"
	"math"
	"slices"

	"github.com/seed-ee968945/concert/internal/attr"
	"github.com/seed-ee968945/concert/ir"
	"github.com/seed-ee968945/concert/ir/fx/internal/traced"
)

// ctcOps are the loss of connectionist temporal classification and its gradient, by sums of
// probabilities over paths that go on from step to step (Graves et al., 2006).
var ctcOps = []row{
	{"aten._ctc_loss.default aten._ctc_loss.Tensor", "log_probs targets input_lengths target_lengths blank zero_infinity", ctcLoss},
	{"aten._ctc_loss_backward.default aten._ctc_loss_backward.Tensor",
		"grad log_probs targets input_lengths target_lengths neg_log_likelihood log_alpha blank zero_infinity", ctcBackward},
}

// paths are the places that paths may be in: a blank, a label, a blank, and so on.
type paths struct {
	*call
	steps, batch, classes, places int64
	dt                            ir.DType
	input, target                 *ir.Value // lengths, i64 [batch, 1]
	labels                        *ir.Value // of the places, i64 [batch, places]
	log                           *ir.Value // of their probabilities, [steps, batch, places]
	leaps                         *ir.Value // 0 for places that paths reach from two before, else -inf
}

func (c *call) paths(places int64) (paths, error) {
	x, y := c.Tensor("log_probs"), c.Tensor("targets")
	if c.Err != nil {
		return paths{}, c.Err
	}
	xs, ys := traced.Static(x), traced.Static(y)
	if len(xs) != 3 || slices.Contains(xs, 0) || places%2 == 0 || !x.Type().DType().IsFloat() {
		return paths{}, traced.ErrForm
	}
	p := paths{call: c, steps: xs[0], batch: xs[1], classes: xs[2], places: places, dt: traced.AccType(x.Type().DType())}
	p.input, p.target = c.lengths("input_lengths", p.batch), c.lengths("target_lengths", p.batch)
	blank := c.Int("blank", 0)
	if c.Err != nil {
		return p, c.Err
	}
	if p.input == nil || p.target == nil || blank < 0 || blank >= p.classes {
		return p, traced.ErrForm
	}
	p.labels = c.Filled(attr.Int(blank), ir.I64, p.batch, 1)
	if most := places / 2; most > 0 && !slices.Contains(ys, 0) {
		at := c.Counting(most)
		start := c.Make(ir.OpMul, traced.Scalar(attr.Int(ys[len(ys)-1])), c.Shaped(c.Counting(p.batch), p.batch, 1))
		if len(ys) == 1 { // one after another
			start = c.Sub(c.Make(ir.OpCumsum, traced.DimAttr(0), p.target), p.target)
		}
		at = c.within(c.Add(start, at), p.batch*ys[len(ys)-1])
		if len(ys) == 1 {
			at = c.within(at, ys[0])
		}
		labels := c.Make(ir.OpGather, traced.DimAttr(0), c.Flat(c.In(ir.I64, y)), c.Flat(at))
		labels = c.Shaped(c.within(labels, p.classes), p.batch, most, 1)
		blanks := c.Filled(attr.Int(blank), ir.I64, p.batch, most, 1)
		p.labels = c.Make(ir.OpCat, traced.DimAttr(1), c.Shaped(c.Make(ir.OpCat, traced.DimAttr(2), blanks, labels), p.batch, 2*most), p.labels)
	}
	if c.Err != nil || traced.SizeAt(p.labels, 1) != places {
		return p, cmp.Or(c.Err, traced.ErrForm)
	}
	index, _ := c.Broadcast(c.Shaped(p.labels, 1, p.batch, places), ir.Dims(p.steps, p.batch, places))
	p.log = c.Make(ir.OpGather, traced.DimAttr(2), c.In(p.dt, x), index)
	// A label that is the one before it again is not reached but through the blank between, nor is a blank.
	before := c.Make(ir.OpCat, traced.DimAttr(1), c.Filled(attr.Int(blank), ir.I64, p.batch, min(2, places)), c.Slice(p.labels, 1, 0, max(places-2, 0)))
	leaps := c.Make(ir.OpLogicalAnd, nil, c.With(ir.OpNe, p.labels, float64(blank)), c.Make(ir.OpNe, nil, p.labels, before))
	p.leaps = c.Make(ir.OpWhere, nil, leaps, c.Filled(attr.Int(0), p.dt), p.never())
	return p, c.Err
}

// lengths reads those of a batch, which are numbers or a tensor.
func (c *call) lengths(param string, batch int64) *ir.Value {
	var x *ir.Value
	if c.IsTensor(param) {
		x = c.In(ir.I64, c.Tensor(param))
	} else {
		for _, n := range c.Ints(param) {
			one := c.Filled(attr.Int(n), ir.I64, 1)
			if x != nil {
				one = c.Make(ir.OpCat, traced.DimAttr(0), x, one)
			}
			x = one
		}
	}
	if c.Err != nil || x == nil || !slices.Equal(traced.Static(x), []int64{batch}) {
		return nil
	}
	return c.Shaped(x, batch, 1)
}

// within is indices from 0 up to n.
func (c *call) within(x *ir.Value, n int64) *ir.Value {
	return c.With(ir.OpMinimum, c.With(ir.OpMaximum, x, 0), float64(n-1))
}

func (p paths) never() *ir.Value { return p.Filled(attr.Float(math.Inf(-1)), p.dt) }

// sum is the logarithm of the sum of the numbers whose logarithms xs are.
func (p paths) sum(xs ...*ir.Value) *ir.Value {
	most := xs[0]
	for _, x := range xs[1:] {
		most = p.Make(ir.OpMaximum, nil, most, x)
	}
	most = p.Make(ir.OpWhere, nil, p.With(ir.OpEq, most, math.Inf(-1)), p.Filled(attr.Int(0), p.dt), most)
	var sum *ir.Value
	for _, x := range xs {
		if x = p.Make(ir.OpExp, nil, p.Sub(x, most)); sum != nil {
			x = p.Add(sum, x)
		}
		sum = x
	}
	return p.Add(p.Make(ir.OpLog, nil, sum), most)
}

// walk gives for each step the logarithm of the probability of all paths that are in a place then,
// from the first step on, [steps, batch, places], or of what is left of them up to the last step.
func (p paths) walk(back bool) *ir.Value {
	n, steps := p.places, p.steps
	starts, leaps := p.With(ir.OpLt, p.Counting(n), 2), p.leaps
	if back {
		starts = p.last()
		if leaps = p.Filled(attr.Float(math.Inf(-1)), p.dt, p.batch, min(n, 2)); n > 2 {
			leaps = p.Make(ir.OpCat, traced.DimAttr(1), p.Slice(p.leaps, 1, 2, n), leaps)
		}
	}
	start, _ := p.Broadcast(p.Make(ir.OpWhere, nil, starts, p.Filled(attr.Int(0), p.dt), p.never()), ir.Dims(p.batch, n))
	lengths := p.Filled(attr.Int(1), ir.I64, p.batch, 1) // paths begin in the first step, or end in the last
	if back {
		lengths = p.input
	}
	// With two places that no path is in before the others, or behind them.
	state := []*ir.Value{p.Filled(attr.Float(math.Inf(-1)), p.dt, p.batch, n+2), p.Filled(attr.Int(0), p.dt, steps, p.batch, n)}
	return p.Loop(steps, state, []*ir.Value{p.log, leaps, start, lengths}, func(b *traced.Call, t *ir.Value, state, fixed []*ir.Value) []*ir.Value {
		p := p
		p.call = &call{b}
		log, leaps, start, lengths := fixed[0], fixed[1], fixed[2], fixed[3]
		from, one, two := p.Slice(state[0], 1, 2, n+2), p.Slice(state[0], 1, 1, n+1), p.Slice(state[0], 1, 0, n)
		if back {
			from, two = two, from
			t = p.With(ir.OpAdd, p.Make(ir.OpNeg, nil, t), float64(steps-1))
		}
		begins := p.Make(ir.OpEq, nil, lengths, p.With(ir.OpAdd, t, 1))
		from = p.Make(ir.OpWhere, nil, begins, start, p.sum(from, one, p.Add(two, leaps)))
		rows := attr.Make(attr.Attr{Key: "dims", Val: attr.Ints(0)})
		from = p.Add(from, p.Shaped(p.Make(ir.OpIndex, rows, log, t), p.batch, n))
		ahead := p.Filled(attr.Float(math.Inf(-1)), p.dt, p.batch, 2)
		next := p.Make(ir.OpCat, traced.DimAttr(1), ahead, from)
		if back {
			next = p.Make(ir.OpCat, traced.DimAttr(1), from, ahead)
		}
		return []*ir.Value{next, p.Make(ir.OpIndexPut, rows, state[1], p.Shaped(from, 1, p.batch, n), t)}
	})[1]
}

// last tells in which places paths may end, bool [batch, places].
func (p paths) last() *ir.Value {
	behind := p.Sub(p.With(ir.OpMul, p.target, 2), p.Counting(p.places))
	return p.Make(ir.OpLogicalOr, nil, p.With(ir.OpEq, behind, 0), p.With(ir.OpEq, behind, 1))
}

func ctcLoss(c *call) error {
	ts, err := c.Types()
	if err != nil {
		return err
	}
	if len(ts) != 2 || ts[1].Rank() != 3 {
		return traced.ErrForm
	}
	p, err := c.paths(traced.SizesOf(ts[1])[2])
	if err != nil {
		return err
	}
	alpha := c.Permuted(p.walk(false), 1, 0, 2)
	end := c.Shaped(c.within(c.With(ir.OpAdd, p.input, -1), p.steps), p.batch, 1, 1)
	index, _ := c.Broadcast(end, ir.Dims(p.batch, 1, p.places))
	ends := c.Shaped(c.Make(ir.OpGather, traced.DimAttr(1), alpha, index), p.batch, p.places)
	ends = c.Make(ir.OpWhere, nil, p.last(), ends, p.never())
	most := c.Over(ir.OpAmax, ends, true, 1)
	most = c.Make(ir.OpWhere, nil, c.With(ir.OpEq, most, math.Inf(-1)), c.Filled(attr.Int(0), p.dt), most)
	sum := c.Over(ir.OpSum, c.Make(ir.OpExp, nil, c.Sub(ends, most)), true, 1)
	loss := c.Make(ir.OpNeg, nil, c.Add(c.Make(ir.OpLog, nil, sum), most))
	// No steps are a path for no labels only.
	none := c.Make(ir.OpWhere, nil, c.With(ir.OpEq, p.target, 0), c.Filled(attr.Int(0), p.dt), c.Filled(attr.Float(math.Inf(1)), p.dt))
	loss = c.Make(ir.OpWhere, nil, c.With(ir.OpEq, p.input, 0), none, loss)
	return c.Settle(c.Shaped(loss, p.batch), alpha)
}

func ctcBackward(c *call) error {
	g, x, loss, alpha := c.Tensor("grad"), c.Tensor("log_probs"), c.Tensor("neg_log_likelihood"), c.Tensor("log_alpha")
	if c.Err != nil {
		return c.Err
	}
	s := traced.Static(alpha)
	if len(s) != 3 {
		return traced.ErrForm
	}
	p, err := c.paths(s[2])
	if err != nil {
		return err
	}
	if !slices.Equal(s, []int64{p.batch, p.steps, p.places}) || !slices.Equal(traced.Static(g), s[:1]) || !slices.Equal(traced.Static(loss), s[:1]) {
		return traced.ErrForm
	}
	beta, zero := p.walk(true), c.Filled(attr.Int(0), p.dt)
	loss = c.Shaped(c.In(p.dt, loss), p.batch, 1)
	// How probable each place is at each step; both walks have the probability of the step.
	part := c.Sub(c.Add(c.Add(c.Permuted(c.In(p.dt, alpha), 1, 0, 2), beta), loss), p.log)
	part = c.Make(ir.OpWhere, nil, c.With(ir.OpEq, beta, math.Inf(-1)), zero, c.Make(ir.OpExp, nil, part))
	index, _ := c.Broadcast(c.Shaped(p.labels, 1, p.batch, p.places), ir.Dims(p.steps, p.batch, p.places))
	sums := c.Make(ir.OpScatter, traced.DimAttr(2).With("reduce", attr.String("add")), c.Filled(attr.Int(0), p.dt, p.steps, p.batch, p.classes), index, part)
	y := c.Mul(c.Sub(c.Make(ir.OpExp, nil, c.In(p.dt, x)), sums), c.Shaped(c.In(p.dt, g), p.batch, 1))
	without := c.Filled(attr.Float(math.NaN()), p.dt)
	if c.Bool("zero_infinity", false) {
		without = zero
	}
	y = c.Make(ir.OpWhere, nil, c.With(ir.OpEq, loss, math.Inf(1)), without, y)
	here := c.Make(ir.OpLt, nil, c.Shaped(c.Counting(p.steps), p.steps, 1, 1), p.input)
	return cmp.Or(c.Err, c.Settle(c.Make(ir.OpWhere, nil, here, y, zero)))
}
