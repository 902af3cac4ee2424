package proof

import (
	"fmt"
	"slices"
	"strconv"

	"github.com/seed-ee968945/concert/internal/attr"
	"github.com/seed-ee968945/concert/ir"
)

// meaning is what a function or a program does, as far as it can be seen from outside.
type meaning struct {
	results []seen
	kept    []seen  // what inputs of the caller hold at the end
	effects []event // of opaque calls
	comms   []event // what communicates
	in      string  // the body that runs

	// Of the function, look-up only: by path what its nodes have made and, by the path of
	// their node, loops and branches.
	frames map[string]*frame
	blocks map[string]*block
}

// frame is a function while it runs, or a body, whose nodes have its path before their names.
type frame struct {
	f     *ir.Func
	path  string
	made  [][]termID // by node: its results
	first []int32    // by ValueID: the place of its first tensor, which the others follow
}

// seen is a tensor that the caller can read.
type seen struct {
	what  string
	typ   ir.Type
	holds termID
	root  int32 // the storage of a result in the function
	lo    int64 // bytes in the arena, of the program
	hi    int64
}

// event is one effect, of one member of a collective.
type event struct {
	node  string
	instr int32
	group int32
	what  string
	args  []termID
}

// effect notes a call with effects and returns what tells its results apart.
func (m *meaning) effect(b *termStore, a *application) string {
	self := fmt.Sprintf("effect %d", len(m.effects))
	what := fmt.Sprint(m.in, a.op.Name(), a.group, a.attrs.String(), a.layouts())
	if a.effects()&ir.EffectRandom != 0 {
		what += " %" + a.node
	}
	for _, t := range a.outs {
		what += " -> " + t.String()
	}
	e := event{a.node, b.instr, a.group, what, slices.Clone(a.args)}
	m.effects = append(m.effects, e)
	if a.effects()&ir.EffectCommunicates != 0 {
		m.comms = append(m.comms, e)
	}
	return self
}

// communicate notes the members of a collective, one by one. The
// dimension is left to the terms of the results.
func (m *meaning) communicate(b *termStore, a *application) {
	for k, x := range a.args {
		what := m.in + a.op.Name() + memberAttrs(a, k).Without("dim").String() + ", behind calls: " + strconv.Itoa(len(m.effects))
		m.comms = append(m.comms, event{a.node, b.instr, a.group, what, []termID{x}})
	}
}

// changed is what an in-place write leaves in a storage: what was there, with operand i of
// the call written through the window that it is.
func (b *termStore) changed(a *application, i int, self string, was termID, in ir.Type, at int64) termID {
	return b.number(term{kind: changed, op: a.op, group: a.group, index: int32(i), self: self + a.layouts(), attrs: a.attrs,
		args: append([]termID{was}, a.args...), typ: in, at: at})
}

// function runs a function over storages.
type function struct {
	*frame
	b        *termStore
	m        *meaning
	storages []storage
	groups   map[*ir.Group]int32 // look-up only
	places   []place
	a        application // of the node at work
}

// storage is memory of its own, with the layout of the tensor that it was made for.
type storage struct {
	typ   ir.Type
	holds termID
}

// place is where a tensor begins, in bytes.
type place struct {
	storage int32
	at      int64
}

// meaningOf runs a verified function. Linear in its size, and in that of its bodies for each node
// that runs them.
func (b *termStore) meaningOf(f *ir.Func) (*meaning, error) {
	r := &function{b: b, m: &meaning{frames: map[string]*frame{}, blocks: map[string]*block{}}, groups: map[*ir.Group]int32{}}
	for _, g := range f.Module().Groups() {
		r.groups[g] = b.group(g.Name, g.Ranks)
	}
	r.enter(f, "")
	for i, n := range f.Inputs() {
		r.begin(n.Result(0))
		for k, t := range n.Result(0).Type().Tensors() {
			b.node = n.Name()
			r.own(t, b.number(term{kind: given, group: -1, index: int32(i), self: fmt.Sprint(k), typ: t}))
		}
	}
	if err := r.nodes(); err != nil {
		return nil, err
	}
	r.end(f.Return())
	b.node = ""
	return r.m, nil
}

// enter begins a function.
func (r *function) enter(f *ir.Func, path string) {
	r.frame = &frame{f: f, path: path, made: make([][]termID, f.NumNodeIDs()), first: make([]int32, f.NumValueIDs())}
	r.m.frames[path], r.m.in = r.frame, path
}

// nodes runs what is neither an input nor the return.
func (r *function) nodes() error {
	for _, n := range r.f.Order() {
		r.b.node = r.path + n.Name()
		var err error
		switch {
		case n.Op() == ir.OpInput || n.Op() == ir.OpReturn:
		case n.Op() == ir.OpWaitTensor:
			for i, v := range n.DeclaredResults() {
				r.first[v.ID()] = r.first[n.Arg(0).Base().ID()] + int32(i)
			}
		case n.Op().IsView():
			err = r.view(n)
		case n.Op().Info().Bodies != nil:
			err = r.control(n)
		default:
			r.apply(n)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// begin says that the places of v come next.
func (r *function) begin(v *ir.Value) { r.first[v.ID()] = int32(len(r.places)) }

// own makes a storage for a tensor.
func (r *function) own(t ir.Type, holds termID) {
	r.places = append(r.places, place{int32(len(r.storages)), 0})
	r.storages = append(r.storages, storage{t, holds})
}

// makes is own for what n has computed.
func (r *function) makes(n *ir.Node, t ir.Type, x termID) {
	r.own(t, x)
	r.made[n.ID()] = append(r.made[n.ID()], x)
}

// of is the place of tensor k of v.
func (r *function) of(v *ir.Value, k int) place { return r.places[r.first[v.Base().ID()]+int32(k)] }

// read is tensor k of v, of type t, as it is at this place of the order.
func (r *function) read(v *ir.Value, k int, t ir.Type) termID {
	p := r.of(v, k)
	s := &r.storages[p.storage]
	return r.b.window(s.holds, s.typ, p.at, t)
}

// view places the results of a view.
func (r *function) view(n *ir.Node) error {
	a := n.Arg(0).Type()
	base := r.of(n.Arg(0), 0)
	at := int64(0) // along the dimension, or in elements
	for i, v := range n.DeclaredResults() {
		skip := int64(0)
		d := int(n.Attrs().Int("dim", 0))
		switch n.Op() {
		case ir.OpSlice:
			at = n.Attrs().Int("start", 0)
		case ir.OpSelect:
			at = n.Attrs().Int("index", 0)
		case ir.OpAsStrided:
			skip = n.Attrs().Int("offset", 0)
		}
		if at != 0 && !r.b.empty(v.Type()) {
			step, ok := strideOf(a, d)
			if !ok {
				return fmt.Errorf("%%%s begins at a place that is known at run time only", n.Name())
			}
			skip = at * step
		}
		if n.Op() == ir.OpSplit {
			at += n.Attrs().Ints("sizes")[i]
		}
		r.begin(v)
		r.places = append(r.places, place{base.storage, base.at + skip*int64(a.DType().Size())})
	}
	return nil
}

// strideOf is how many elements are between two indices of dimension d; false if symbols
// have to say.
func strideOf(t ir.Type, d int) (int64, bool) {
	return t.SymbolicStrides()[d].Const()
}

// apply runs a node that computes, calls or communicates.
func (r *function) apply(n *ir.Node) {
	a := &r.a
	*a = application{op: n.Op(), attrs: n.Attrs(), node: r.path + n.Name(), group: -1, args: a.args[:0], argTypes: a.argTypes[:0], outs: a.outs[:0]}
	if n.Group() != nil {
		a.group = r.groups[n.Group()]
	}
	if a.op == ir.OpAsyncCall { // a program has calls, each on a stream
		a.op, a.attrs = ir.OpCall, a.attrs.With("effects", attr.Strings("communicates"))
	}
	for _, v := range n.DeclaredArgs() {
		t := v.Type()
		if n.Op() == ir.OpAsyncCall { // reads row-major operands, as collectives do
			t = elements(t)
		}
		a.args, a.argTypes = append(a.args, r.read(v, 0, v.Type())), append(a.argTypes, t)
	}
	for _, v := range n.DeclaredResults() {
		a.outs = append(a.outs, v.Type().Tensors()...)
	}
	if a.op.IsCollective() {
		r.m.communicate(r.b, a)
		r.begin(n.Result(0))
		for k, t := range a.outs {
			r.makes(n, t, r.b.member(a, k))
		}
		return
	}
	self := ""
	if a.op == ir.OpCall && a.effects()&^ir.EffectAlias != 0 {
		self = r.m.effect(r.b, a)
	}
	for i, v := range n.DeclaredArgs() {
		if p := r.of(v, 0); a.writes(i) && !r.b.empty(v.Type()) {
			s := &r.storages[p.storage]
			s.holds = r.b.changed(a, i, self, s.holds, s.typ, p.at)
		}
	}
	for k, v := range n.DeclaredResults() {
		if a.effects()&ir.EffectAlias != 0 && len(a.args) > 0 {
			r.first[v.ID()] = r.first[n.Arg(0).Base().ID()]
			continue
		}
		r.begin(v)
		r.makes(n, v.Type().Tensors()[0], r.b.result(a, k, self))
	}
}

// end lists what the caller sees.
func (r *function) end(n *ir.Node) {
	for i, v := range n.DeclaredArgs() {
		for k, t := range v.Type().Tensors() {
			r.m.results = append(r.m.results, seen{what: fmt.Sprintf("result %d, %%%s", i, v.Base().Name()), typ: t, holds: r.read(v, k, t), root: r.of(v, k).storage})
		}
	}
	for i, n := range r.f.Inputs() {
		if v := n.Result(0); !n.Donated() && keeps(v.Type().IsAsync(), string(n.Role())) {
			r.m.kept = append(r.m.kept, seen{what: fmt.Sprintf("input %d, %%%s, at the end", i, n.Name()), typ: v.Type(), holds: r.read(v, 0, v.Type()), root: r.of(v, 0).storage})
		}
	}
}

// keeps reports whether the caller has an input after the run that it has not donated: it
// gives away what is in flight, saved activations and tangents.
func keeps(async bool, role string) bool {
	return !async && ir.Role(role) != ir.RoleSaved && ir.Role(role) != ir.RoleTangent
}
