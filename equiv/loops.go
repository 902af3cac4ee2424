package equiv

import (
	"github.com/seed-ee968945/concert/equiv/internal/terms"
	"github.com/seed-ee968945/concert/ir"
)

// Loops whose length follows from constants are read iteration by iteration, so that it does not matter
// which of them are unrolled, and how far.

// maxIterations bounds the operations of the iterations of a loop, and of the loops in it.
const maxIterations = 1 << 15

// iterations reads a while iteration by iteration, and reports whether that can be done: each iteration's condition
// has to be known.
func (r *reader) iterations(n *ir.Node) bool {
	if n.Op() != ir.OpWhile || r.repeated != "" {
		return false
	}
	cond, body := n.Bodies()[0], n.Bodies()[1]
	state := make([]source, len(n.DeclaredArgs()))
	for i, a := range n.DeclaredArgs() {
		state[i] = source{[]terms.ValueID{r.read(a)}, []home{{i, 0, 0}}}
	}
	m := *r.m
	if r.p.loops == 0 {
		r.p.iterations = 0
	}
	r.p.loops++
	defer func() { r.p.loops-- }()
	for {
		c := r.p.read(cond, state, &Meaning{}, -1, "")
		more, ok := r.p.z.Integer(c.outputs[0].tensors[0])
		if !ok || len(c.effects)+len(c.comms) > 0 {
			return false
		}
		if r.p.iterations += len(cond.Order()) + len(body.Order()); r.p.iterations > maxIterations {
			return false
		}
		if more == 0 {
			break
		}
		b := r.p.read(body, state, &m, -1, "")
		m.effects, m.comms, m.fences, m.values = b.effects, b.comms, b.fences, b.values
		for k, o := range b.outputs {
			state[k].nums = o.tensors
		}
	}
	rounds := m.effects[len(r.m.effects):]
	for i := range rounds {
		rounds[i].round = true
		r.note(rounds[i].kind)
	}
	*r.m = m
	for k, v := range n.DeclaredResults() {
		r.set(v, state[k].nums, r.stored(v))
	}
	return true
}
