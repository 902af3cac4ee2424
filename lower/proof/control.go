package proof

import (
	"fmt"
	"slices"

	"github.com/seed-ee968945/concert/ir"
	"github.com/seed-ee968945/concert/program"
)

// Loops and branches. A body is a function that sees its inputs only, so it is run once, on terms
// of its own for what a loop carries: they stand for whatever an iteration begins with. Then by
// induction over the iterations all are proved at once. The loop begins with the operands in the
// places of what it carries; an iteration that begins with anything there asks the function's question,
// and ends with the function's answer there; and what goes out is what the last test found
// there. Of all else that is written inside, nothing is known in an iteration, since the one before it may
// have written it, and nothing behind the loop.
//
// A branch begins with what was there before the case, and ends with what the function's
// branch gives in the places of the results. Behind the case nothing is known of what any branch
// has written but them.

// block is what a while or a case of the function means.
type block struct {
	n       *ir.Node
	entry   []termID   // operands
	carried []termID   // what any iteration of a loop begins with
	outs    [][]termID // by body: what it returns
	results []termID
}

// control runs the bodies of a while or a case.
func (r *function) control(n *ir.Node) error {
	path := r.path + n.Name()
	k := &block{n: n}
	a := application{op: n.Op(), node: path, group: -1}
	for _, v := range n.Args() {
		a.args = append(a.args, r.read(v, 0, v.Type()))
	}
	for i, v := range n.Results() {
		t := v.Type()
		a.outs = append(a.outs, t)
		k.results = append(k.results, r.b.result(&a, i, path))
		if i >= n.Carried() {
			continue
		}
		x := k.results[i]
		if !r.b.empty(t) {
			x = r.b.number(term{kind: carried, group: -1, index: int32(i), self: path, typ: elements(t)})
		}
		k.carried = append(k.carried, x)
	}
	k.entry = a.args
	r.m.blocks[path] = k
	caller, in := r.frame, r.m.in
	for _, body := range n.Bodies() {
		outs, err := r.body(n, body, caller, k)
		r.frame, r.m.in = caller, in
		if err != nil {
			return err
		}
		k.outs = append(k.outs, outs)
	}
	for i, v := range n.Results() {
		r.begin(v)
		r.makes(n, v.Type(), k.results[i])
	}
	return nil
}

// body runs a body, whose inputs are where the operands are, but for what is carried.
func (r *function) body(n *ir.Node, body *ir.Func, caller *frame, k *block) ([]termID, error) {
	args := n.Args()
	if n.Op() == ir.OpCase {
		args = args[1:]
	}
	r.enter(body, caller.path+n.Name()+"/"+body.Name+"/")
	for i, in := range body.Inputs() {
		v := in.Result(0)
		r.begin(v)
		if i < len(k.carried) {
			r.own(v.Type(), k.carried[i])
			continue
		}
		r.places = append(r.places, r.places[caller.first[args[i].Base().ID()]])
	}
	if err := r.nodes(); err != nil {
		return nil, err
	}
	var outs []termID
	for _, v := range body.Return().Args() {
		outs = append(outs, r.read(v, 0, v.Type()))
	}
	return outs, nil
}

// open is a block of the program that is run.
type open struct {
	*program.Block
	means   *block
	path    string
	written []extent
	before  memory // a case
	part    int    // which of its parts comes next
}

// extent is bytes of the arena.
type extent struct{ lo, hi int64 }

// bracket runs what begins, divides or ends a loop or a case.
func (m *machine) bracket(i int, in *program.Instr) error {
	if in.Kind == program.Loop || in.Kind == program.Case {
		return m.begin(i, in)
	}
	o := m.open[len(m.open)-1]
	switch {
	case in.Kind == program.Test:
		m.holds(in.Ins, o.means.outs[0], "what decides whether the loop goes on")
		m.holds(o.results(m), o.means.carried, "what a loop carries, at its test")
		o.enter(m)
	case o.loop(): // its end
		m.holds(o.results(m), o.means.outs[1], "what a loop carries, at the end of an iteration")
		o.leave(m)
	default:
		if o.part > 0 {
			m.holds(o.results(m), o.means.outs[o.part-1], fmt.Sprintf("a result of branch %d", o.part-1))
		}
		if in.Kind == program.Branch {
			m.mem = o.before.clone()
			o.enter(m)
			return nil
		}
		m.mem = o.before
		o.leave(m)
	}
	return nil
}

// begin runs what comes before a loop or a case.
func (m *machine) begin(i int, in *program.Instr) error {
	k := m.want.blocks[in.Node]
	op := ir.OpWhile
	if in.Kind == program.Case {
		op = ir.OpCase
	}
	if k == nil || k.n.Op() != op {
		return fmt.Errorf("the function has no such %s", in.Kind)
	}
	o := &open{Block: m.blocks[i], means: k, path: in.Node, written: m.written(m.blocks[i])}
	same := len(in.Outs) == len(k.results) && (o.loop() || len(o.Parts) == len(k.outs))
	for j := range in.Outs {
		same = same && m.typeOf(&in.Outs[j]).Equal(k.n.Results()[j].Type())
	}
	if !same {
		return fmt.Errorf("it has other results than the function's, or other branches: %s", k.n)
	}
	m.open = append(m.open, o)
	if in.Kind == program.Case {
		m.holds(in.Ins, k.entry[:1], "what decides which branch runs")
		o.before = m.mem
		return nil
	}
	m.holds(in.Outs, k.entry[:len(k.carried)], "what a loop carries, in front of it")
	o.settle(m, k.carried)
	o.enter(m)
	return nil
}

func (o *open) loop() bool { return o.means.n.Op() == ir.OpWhile }

// results are the places of the results.
func (o *open) results(m *machine) []program.Tensor { return m.p.Instrs[o.At].Outs }

// enter begins the next part.
func (o *open) enter(m *machine) {
	m.m.in = o.path + "/" + o.means.n.Bodies()[o.part].Name + "/"
	o.part++
}

// leave ends the block.
func (o *open) leave(m *machine) {
	o.settle(m, o.means.results)
	m.open = m.open[:len(m.open)-1]
	m.m.in = ""
	if n := len(m.open); n > 0 {
		up := m.open[n-1]
		up.part--
		up.enter(m)
	}
}

// settle forgets what is written inside, and gives the places of the results to terms.
func (o *open) settle(m *machine, xs []termID) {
	lost := m.b.number(term{kind: unknown, group: -1, index: int32(len(m.lost)), typ: ir.TensorOf(ir.U8, nil)})
	m.lost[lost] = "what has been written in %" + o.path + " by then"
	for _, e := range o.written {
		m.mem.write(e.lo, e.hi, tensor{e.lo, ir.TensorOf(ir.U8, ir.Shape{ir.D(e.hi - e.lo)}), lost})
	}
	ts := o.results(m)
	for k := range ts {
		m.write(&ts[k], m.typeOf(&ts[k]), xs[k])
	}
}

// written is what the instructions of a block write.
func (m *machine) written(b *program.Block) (out []extent) {
	for i := b.At; i <= b.End; i++ {
		for _, t := range m.p.Instrs[i].Written() {
			if lo, hi := m.bytes(&t, m.typeOf(&t)); lo < hi {
				out = append(out, extent{lo, hi})
			}
		}
	}
	slices.SortFunc(out, func(a, b extent) int { return int(min(max(a.lo-b.lo, -1), 1)) })
	var joined []extent
	for _, e := range out {
		if n := len(joined); n > 0 && e.lo <= joined[n-1].hi {
			joined[n-1].hi = max(joined[n-1].hi, e.hi)
			continue
		}
		joined = append(joined, e)
	}
	return joined
}

// holds demands that tensors of the program hold terms of the function.
func (m *machine) holds(ts []program.Tensor, want []termID, what string) {
	got, _ := m.operands(ts, nil, nil)
	for k, x := range got {
		if x != want[k] {
			m.wrong(what, want[k], x)
		}
	}
}
