package equiv

import (
	"fmt"
	"slices"

	"github.com/seed-ee968945/concert/equiv/internal/terms"
	"github.com/seed-ee968945/concert/ir"
)

// Loops that are too long to be read iteration by iteration, but whose length is known from what counts.
//
// The first such loop names what it carries after a few iterations before its last, as it is after any number of iterations;
// the last iterations are read from there. Of each other loop, of as many iterations or a few less, it is then
// proved by induction that what it carries after any number of iterations are values of the first
// loop's body, each of the iteration that follows or of the one behind that: what it carries itself, but also what it
// computes on the way. The base is that the operands are those values of its first iterations, the step that from
// such values of any iteration, of which nothing else is known, the other body makes those of the
// next one. So a loop that gathers in each iteration what the next needs carries a value of the first
// one's body an iteration early, and one that stores what the iteration before left carries values of the iteration before.

// Bounds of what is followed.
const (
	maxCounted     = 1 << 19 // operations on what counts
	lastIterations = 4       // that are read
)

// long is a loop that others are held against. The function may change after it has been read: nothing here
// refers to it.
type long struct {
	n          *ir.Node        // while the loop is being read
	entry      []terms.ValueID // operands
	iterations int64
	carried    int
	own        []computed
	states     [][]terms.ValueID // that the last iterations begin with, and the results
	// Numbers of own, of the last iterations, of the first, and of iterations that begin with anything.
	last, first, any [][]terms.ValueID
}

// computed is a value of a loop's body.
type computed struct {
	typ   ir.Type
	input int // number of the input that it is, -1 for none
}

// induct reads a while by induction, and reports whether that can be done.
func (r *reader) induct(n *ir.Node) bool {
	if n.Op() != ir.OpWhile || r.repeated != "" || n.Effects()&^ir.EffectCommunicates != 0 {
		return false
	}
	text, calls := r.bodies(n)
	l := &long{n: n, entry: r.args(n), carried: n.Carried()}
	carried, after := n.Carried(), [][]terms.ValueID(nil)
	if calls || !r.p.count(l, &after) || l.iterations < lastIterations {
		return false
	}
	r.m.comms = append(r.m.comms, comm{n.Name(), r.m.fences, fmt.Sprint(n.Op(), n.Attrs(), text), l.entry})
	out := r.p.held(l)
	if out == nil {
		state := slices.Clone(l.entry)
		for k, v := range n.DeclaredResults() {
			state[k] = r.p.vals.Number(terms.Value{Op: n.Op(), Group: -1, Result: int32(k), Tag: fmt.Sprint("after ", l.iterations-lastIterations, " iterations", text), Type: plain(v.Type()), Args: l.entry, Node: n.Name()})
		}
		for i := range lastIterations {
			counted(state, after[i])
			l.states = append(l.states, state)
			x := r.p.iteration(n, state)
			l.last, state = append(l.last, x.computes()), x.ends(state)
		}
		counted(state, after[lastIterations])
		l.states = append(l.states, state)
		l.begin(r.p)
		l.n = nil
		r.p.long = append(r.p.long, l)
		out = state[:carried]
	}
	for k, v := range n.DeclaredResults() {
		r.set(v, out[k:k+1:k+1], r.stored(v))
	}
	return true
}

func plain(t ir.Type) ir.Type { return ir.TensorOf(t.DType(), t.Shape()) }

// counted puts what is known of counters into a state.
func counted(state, known []terms.ValueID) {
	for k, v := range known {
		if v >= 0 {
			state[k] = v
		}
	}
}

// iteration reads the body of a while that begins with a state.
func (p *Prover) iteration(n *ir.Node, state []terms.ValueID) *reader {
	r := p.reader(n.Bodies()[1], sources(state), &Meaning{}, -1, "")
	for _, o := range r.f.Order() {
		r.next(o)
	}
	return r
}

func sources(state []terms.ValueID) []source {
	out := make([]source, len(state))
	for i, v := range state {
		out[i] = source{[]terms.ValueID{v}, []home{{i, 0, 0}}}
	}
	return out
}

// ends is the state that the next iteration begins with.
func (r *reader) ends(state []terms.ValueID) []terms.ValueID {
	state = slices.Clone(state)
	for k, o := range r.m.outputs {
		state[k] = o.tensors[0]
	}
	return state
}

// values are those of a body that a loop can carry, in order.
func values(f *ir.Func) (out []*ir.Value) {
	for _, n := range f.Order() {
		for _, v := range n.DeclaredResults() {
			if !v.Type().IsAsync() {
				out = append(out, v)
			}
		}
	}
	return out
}

// computes are the numbers of values of an iteration that has been read.
func (r *reader) computes() (out []terms.ValueID) {
	for _, v := range values(r.f) {
		out = append(out, r.read(v))
	}
	return out
}

// needed are the operations that values are computed by, in order, and the inputs that they read.
func needed(f *ir.Func, vals []*ir.Value) (nodes []*ir.Node, in []int) {
	need := map[*ir.Node]bool{} // look-up only
	for _, v := range vals {
		need[v.Def()] = true
	}
	for _, n := range slices.Backward(f.Order()) {
		if !need[n] {
			continue
		}
		if n.Op() == ir.OpInput {
			in = append(in, n.At())
			continue
		}
		nodes = append(nodes, n)
		for _, a := range n.Args() {
			need[a.Def()] = true
		}
	}
	slices.Reverse(nodes)
	return nodes, in
}

// count counts the iterations of a loop, and lists what is known of what counts after each of the last; false if that does
// not say how many there are.
func (p *Prover) count(l *long, after *[][]terms.ValueID) bool {
	cond, body := l.n.Bodies()[0], l.n.Bodies()[1]
	counts := make([]bool, l.n.Carried())
	for k := range counts {
		_, counts[k] = p.z.Integer(l.entry[k])
	}
	decide, asked := needed(cond, cond.Return().Args())
	operations := 0
	for again := true; again; { // with fewer counters
		again = false
		var vals []*ir.Value
		for k, v := range body.Return().Args() {
			if counts[k] {
				vals = append(vals, v)
			}
		}
		step, read := needed(body, vals)
		for _, in := range asked {
			if in < len(counts) && !counts[in] {
				return false
			}
		}
		if i := slices.IndexFunc(read, func(in int) bool { return in < len(counts) && !counts[in] }); i >= 0 || slices.ContainsFunc(step, func(n *ir.Node) bool { return !n.Pure() }) {
			again = p.drop(body, counts)
			continue
		}
		state := slices.Clone(l.entry)
		l.iterations, *after = 0, nil
		for !again {
			now := make([]terms.ValueID, len(counts))
			for k := range counts {
				if now[k] = -1; counts[k] {
					now[k] = state[k]
				}
			}
			if *after = append(*after, now); len(*after) > lastIterations+1 {
				*after = (*after)[1:]
			}
			more, ok := p.z.Integer(p.some(cond, decide, state, cond.Return().Args())[0])
			if operations += len(decide) + len(step); !ok || operations > maxCounted {
				return false
			}
			if more == 0 {
				return true
			}
			out := p.some(body, step, state, vals)
			for k, i := 0, 0; k < len(counts); k++ {
				if !counts[k] {
					continue
				}
				if _, ok := p.z.Integer(out[i]); !ok {
					counts[k], again = false, true
				}
				state[k] = out[i]
				i++
			}
			l.iterations++
		}
	}
	return false
}

// drop takes the first of the counters for none that does not follow from counters alone.
func (p *Prover) drop(body *ir.Func, counts []bool) bool {
	for k, v := range body.Return().Args() {
		if !counts[k] {
			continue
		}
		nodes, in := needed(body, []*ir.Value{v})
		if slices.ContainsFunc(in, func(i int) bool { return i < len(counts) && !counts[i] }) || slices.ContainsFunc(nodes, func(n *ir.Node) bool { return !n.Pure() }) {
			counts[k] = false
			return true
		}
	}
	return false
}

// some reads a few operations of a function.
func (p *Prover) some(f *ir.Func, nodes []*ir.Node, state []terms.ValueID, vals []*ir.Value) []terms.ValueID {
	r := p.reader(f, sources(state), &Meaning{}, -1, "")
	for _, n := range f.Inputs() {
		r.next(n)
	}
	for _, n := range nodes {
		r.next(n)
	}
	out := make([]terms.ValueID, len(vals))
	for i, v := range vals {
		out[i] = r.read(v)
	}
	return out
}

// claim is that a loop carries a value of another's body, by its place in own, of the iteration that
// follows or of the one behind it.
type claim struct{ v, later int }

// held are the results of a loop in terms of another that has been read before, nil if none is
// known to compute them.
func (p *Prover) held(l *long) []terms.ValueID {
	for _, to := range p.long {
		gap := int(to.iterations - l.iterations)
		if gap < 0 || gap >= lastIterations {
			continue
		}
		claims := p.relate(to, l)
		if claims == nil {
			continue
		}
		var out []terms.ValueID
		for _, c := range claims {
			at := lastIterations - gap + c.later
			if in := to.own[c.v].input; in >= 0 && at <= lastIterations {
				out = append(out, to.states[at][in])
			} else if at < lastIterations {
				out = append(out, to.last[at][c.v])
			} else {
				return nil // of an iteration that there is not
			}
		}
		return out
	}
	return nil
}

// begin reads what an iteration computes, the first iterations of a loop, and iterations that begin with anything.
func (l *long) begin(p *Prover) {
	for _, v := range values(l.n.Bodies()[1]) {
		c := computed{v.Type(), -1}
		if v.Def().Op() == ir.OpInput {
			c.input = v.Def().At()
		}
		l.own = append(l.own, c)
	}
	state, free := l.entry, slices.Clone(l.entry)
	for k, v := range l.n.DeclaredResults() {
		free[k] = p.vals.Number(terms.Value{Op: ir.OpInput, Group: -1, Result: int32(k), Tag: fmt.Sprintf("what any iteration of %s %d begins with", l.n.Name(), len(p.long)), Type: plain(v.Type())})
	}
	for range 2 {
		x := p.iteration(l.n, state)
		l.first, state = append(l.first, x.computes()), x.ends(state)
	}
	for range 3 {
		x := p.iteration(l.n, free)
		l.any, free = append(l.any, x.computes()), x.ends(free)
	}
}

// relate finds for each value that a loop carries one of another's body that it is, after any
// number of iterations; nil if there are none.
func (p *Prover) relate(to, l *long) []claim {
	var choice [][]claim // what may be, by value that is carried
	for k, v := range l.n.DeclaredResults() {
		var list []claim
		for later := range 2 {
			for i, w := range to.own {
				if !w.typ.SameTensor(v.Type()) || later > 0 && w.input >= to.carried {
					continue
				}
				if p.z.Norm(to.first[later][i]) == p.z.Norm(l.entry[k]) {
					list = append(list, claim{i, later})
				}
			}
		}
		choice = append(choice, list)
	}
	for {
		state := slices.Clone(l.entry)
		for k, list := range choice {
			if len(list) == 0 {
				return nil
			}
			state[k] = to.any[list[0].later][list[0].v]
		}
		next, wrong := p.iteration(l.n, state).ends(state), false
		for k, list := range choice {
			if p.z.Norm(next[k]) != p.z.Norm(to.any[list[0].later+1][list[0].v]) {
				choice[k], wrong = list[1:], true
			}
		}
		if wrong {
			continue
		}
		var out []claim
		for _, list := range choice {
			out = append(out, list[0])
		}
		return out
	}
}
