package equiv

import (
	"math"
	"strconv"

	"github.com/seed-ee968945/concert/equiv/internal/scalar"
	"github.com/seed-ee968945/concert/internal/attr"
	"github.com/seed-ee968945/concert/ir"
)

// Loops whose length follows from constants are read round by round, so that it does not matter
// which of them are unrolled, and how far.

// maxRounds bounds the operations of the rounds of a loop, and of the loops in it.
const maxRounds = 1 << 15

// rounds reads a while round by round, and reports whether that can be done: each round's condition
// has to be known.
func (r *reader) rounds(n *ir.Node) bool {
	if n.Op() != ir.OpWhile || r.repeated != "" {
		return false
	}
	cond, body := n.Bodies()[0], n.Bodies()[1]
	state := make([]source, len(n.DeclaredArgs()))
	for i, a := range n.DeclaredArgs() {
		state[i] = source{[]valueID{r.read(a)}, []home{{i, 0, 0}}}
	}
	m := *r.m
	if r.p.loops == 0 {
		r.p.rounds = 0
	}
	r.p.loops++
	defer func() { r.p.loops-- }()
	for {
		c := r.p.read(cond, state, &Meaning{}, -1, "")
		more, ok := r.p.integer(c.outputs[0].tensors[0])
		if !ok || len(c.effects)+len(c.comms) > 0 {
			return false
		}
		if r.p.rounds += len(cond.Order()) + len(body.Order()); r.p.rounds > maxRounds {
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
	for i := range m.effects[len(r.m.effects):] {
		r.note(m.effects[len(r.m.effects)+i].kind)
	}
	*r.m = m
	for k, v := range n.DeclaredResults() {
		r.set(v, state[k].nums, r.stored(v))
	}
	return true
}

// integer is the integer or truth value that every element of a value is; false if that is not
// known.
func (p *Prover) integer(v valueID) (int64, bool) {
	z := p.normal()
	return z.constant(z.norm(v))
}

// constant is the integer that a term is everywhere; false if that is not known, or it is so large
// that arithmetic may round it.
func (z *normalizer) constant(id termID) (int64, bool) {
	t := z.at(id)
	if t.kind != kindFull || t.dt.IsFloat() {
		return 0, false
	}
	f, err := strconv.ParseFloat(t.text, 64)
	return int64(f), err == nil && f == math.Trunc(f) && math.Abs(f) < scalar.MaxExact && fits(t.dt, int64(f))
}

// arithmeticOfConstants computes on integers that are known, and takes what a condition chooses
// that is.
func arithmeticOfConstants(z *normalizer, t *term) (termID, bool) {
	var args [2]int64
	for i, a := range t.args {
		v, ok := z.constant(a)
		switch {
		case t.op == ir.OpWhere && i == 0 && ok && len(t.args) == 3:
			if x := t.args[2-min(v*v, 1)]; z.at(x).dt == t.dt {
				return x, true
			}
			return 0, false
		case !ok || i >= len(args):
			return 0, false
		}
		args[i] = v
	}
	if s, has := t.attrs.Get("scalar"); has {
		v, ok := scalar.Whole(s)
		if !ok || len(t.args) != 1 || len(t.attrs) != 1 || max(v, -v) >= scalar.MaxExact {
			return 0, false
		}
		args[1] = v
	} else if len(t.attrs) > 0 && t.op != ir.OpClamp || len(t.args) == 0 {
		return 0, false
	}
	v, ok := t.scalar().Arithmetic(args[0], args[1])
	if t.op == ir.OpConvert {
		v, ok = args[0], true
	}
	if !ok || t.dt.IsFloat() || !fits(t.dt, v) {
		return 0, false
	}
	return z.make(term{kind: kindFull, op: ir.OpFull, dt: t.dt, n: t.n, text: strconv.FormatFloat(float64(v), 'g', -1, 64)}), true
}

// fits reports whether a type has an integer.
func fits(dt ir.DType, v int64) bool {
	bits := 8 * dt.Size()
	switch {
	case dt == ir.Bool:
		return v == 0 || v == 1
	case dt.IsUnsigned():
		return v >= 0 && (bits > 32 || v < 1<<bits)
	}
	return bits > 32 || v >= -1<<(bits-1) && v < 1<<(bits-1)
}

// rowPut is one row put at a position that is known: it takes the place of that row.
func (z *normalizer) rowPut(v *value) (termID, bool) {
	dims := v.attrs.Ints("dims")
	if v.attrs.Bool("accumulate", false) || len(v.args) != 3 || len(dims) != 1 || dims[0] != 0 {
		return 0, false
	}
	table, ok := v.typ.Shape().Static()
	at, known := z.constant(z.memo[v.args[2]])
	vals := z.p.values[v.args[1]].typ.Shape()
	if one, static := z.p.values[v.args[2]].typ.Shape().NumElems().Const(); !ok || !known || !static || one != 1 || at < 0 || at >= table[0] ||
		!vals.Equal(append(ir.Dims(1), v.typ.Shape()[1:]...)) || !z.p.values[v.args[0]].typ.Shape().Equal(v.typ.Shape()) {
		return 0, false
	}
	put := *v
	put.op, put.args = ir.OpSliceScatter, v.args[:2]
	put.attrs = attr.Make(attr.Attr{Key: "dim", Val: attr.Int(0)}, attr.Attr{Key: "end", Val: attr.Int(at + 1)}, attr.Attr{Key: "start", Val: attr.Int(at)})
	return z.opaque(&put), true
}
