package equiv

import (
	"fmt"
	"slices"
	"strconv"

	"github.com/seed-ee968945/concert/equiv/internal/terms"
	"github.com/seed-ee968945/concert/internal/attr"
	"github.com/seed-ee968945/concert/ir"
)

// Meaning is what a function computes, as far as it can be seen from outside.
type Meaning struct {
	name    string
	names   []string // of the inputs
	inputs  []ir.Type
	outputs []output
	effects []effect
	left    []leftover // what in-place writes leave in inputs
	donated []donation // in the order of the inputs
	comms   []comm     // collectives in order
	sent    []effect   // collectives with other stages, in order; self is the group
	fences  int        // opaque calls that communicate, and what runs them
	values  int
	halves  bool // of a joint function, run one after the other
}

// donation says that a result takes the place of an input.
type donation struct{ input, result int }

// output is one result of the function.
type output struct {
	typ     ir.Type
	tensors []terms.ValueID // one, or as many as an async result carries
	homes   []home          // parallel to tensors
}

// home is the storage that a tensor lies in: of a node's result, and which of its
// tensors. Inputs have the same home in every function of the same signature.
type home struct {
	input int // number of the input, -1 for storages of the function's own
	own   ir.ValueID
	k     int
}

// effect is a node that does more than define its results.
type effect struct {
	node string
	kind ir.Effect
	what string // operation, attributes, group, layouts
	self string // what tells its results apart
	args []terms.ValueID

	round bool // of an iteration of a loop that is read one by one
}

// Kinds of effects that keep their order among each other. In-place writes need
// none beyond what reads of versions say.
var ordered = [...]ir.Effect{ir.EffectCommunicates, ir.EffectRandom}

// leftover is the content of an input's storage at the end.
type leftover struct {
	of    home
	value terms.ValueID
}

// comm is a collective, or a node whose bodies communicate by collectives alone; epoch counts the
// opaque calls that communicate before it.
type comm struct {
	node  string
	epoch int
	what  string // operation, group, attributes, bodies
	args  []terms.ValueID
}

// reader numbers the values of one function.
type reader struct {
	p        *Prover
	f        *ir.Func
	m        *Meaning
	mine     int               // home.input of the function's own storages
	repeated string            // the annotation of nodes that repeat what ran before, empty for none
	seed     []source          // numbers given to inputs, nil for numbers of their own
	num      [][]terms.ValueID // by ValueID: one for each tensor
	home     [][]home          // parallel to num
	made     [][]int           // parallel: how often the storage had been written when the number was given, nil for never
	// By storage: how often it was written, and what it holds since. Look-up only.
	written map[home]int
	holds   map[home]terms.ValueID
	root    map[home]*ir.Value  // of inputs
	vals    []*ir.Value         // by ValueID: those of storages of the function's own
	placed  [len(ordered)]int   // effects of a kind so far
	stages  *ir.Stages          // that the function is one of, nil if it is none
	stage   int                 // among them
	calls   map[*ir.Group]int   // how many collectives with other stages it has issued there, -1 where all stay within; look-up only
	joint   *joint              // that reads the stage beside others, nil if it is read alone
	groups  map[*ir.Group]int32 // of a joint, by group of the stages; look-up only
	nums    []terms.ValueID     // not yet given away, as are the following
	own     []home
}

// Read numbers the values of a verified function. Linear in its size.
func (p *Prover) Read(f *ir.Func) *Meaning { return p.read(f, nil, &Meaning{}, -1, "") }

// source is what an input is given: numbers and storages.
type source struct {
	nums  []terms.ValueID
	homes []home
}

// read is Read of what runs after before, with what is given to the inputs.
func (p *Prover) read(f *ir.Func, given []source, before *Meaning, mine int, repeated string) *Meaning {
	r := p.reader(f, given, before, mine, repeated)
	for _, n := range f.Order() {
		r.next(n)
	}
	return r.m
}

// reader is read before the first node.
func (p *Prover) reader(f *ir.Func, given []source, before *Meaning, mine int, repeated string) *reader {
	n := f.NumValueIDs()
	m := &Meaning{name: f.Name, effects: slices.Clone(before.effects), comms: slices.Clone(before.comms), fences: before.fences, values: before.values}
	r := &reader{p: p, f: f, m: m, mine: mine, repeated: repeated, seed: given, num: make([][]terms.ValueID, n), home: make([][]home, n), made: make([][]int, n), vals: make([]*ir.Value, n),
		written: map[home]int{}, holds: map[home]terms.ValueID{}, root: map[home]*ir.Value{}}
	r.stages, r.stage = f.Module().StagesOf(f)
	r.calls = map[*ir.Group]int{}
	for _, s := range f.Module().Symbols() {
		p.vals.Declare(s.Name, s.Max)
	}
	for _, e := range before.effects {
		r.note(e.kind)
	}
	return r
}

// next reads a node.
func (r *reader) next(n *ir.Node) {
	switch {
	case n.Op() == ir.OpInput:
		r.input(n)
	case n.Op() == ir.OpReturn:
		r.ret(n)
	case n.Op().IsCollective() && r.across(n.Group()):
		r.receive(n)
	case n.Op().IsCollective():
		r.collective(n)
	case n.Op() == ir.OpWaitTensor:
		r.wait(n)
	default:
		r.node(n)
	}
}

func (r *reader) set(v *ir.Value, nums []terms.ValueID, homes []home) {
	r.num[v.ID()], r.home[v.ID()] = nums, homes
	r.m.values += len(nums)
	if len(r.written) == 0 {
		return
	}
	made := make([]int, len(homes))
	for k, h := range homes {
		made[k] = r.written[h]
	}
	r.made[v.ID()] = made
}

// numbers is a slice of that length. Most have one entry and are cut from larger ones.
func (r *reader) numbers(n int) []terms.ValueID {
	if len(r.nums) < n {
		r.nums = make([]terms.ValueID, max(n, 1024))
	}
	out := r.nums[:n:n]
	r.nums = r.nums[n:]
	return out
}

// stored are the storages of v's own that its tensors lie in.
func (r *reader) stored(v *ir.Value) []home {
	n := len(v.Type().Tensors())
	if len(r.own) < n {
		r.own = make([]home, max(n, 1024))
	}
	out := r.own[:n:n]
	r.own = r.own[n:]
	for k := range out {
		out[k] = home{r.mine, v.ID(), k}
	}
	r.vals[v.ID()] = v
	return out
}

// rootOf is the value whose storage h is.
func (r *reader) rootOf(h home) *ir.Value {
	if v := r.root[h]; v != nil || h.input != r.mine {
		return v
	}
	return r.vals[h.own]
}

func (r *reader) input(n *ir.Node) {
	i := len(r.m.inputs)
	v := n.Result(0)
	r.m.names = append(r.m.names, n.Name())
	r.m.inputs = append(r.m.inputs, v.Type())
	var s source
	if r.seed != nil {
		s = r.seed[i]
	} else {
		s = r.p.input(i, n.Name(), v.Type())
	}
	for _, h := range s.homes {
		r.root[h] = v
	}
	r.set(v, s.nums, s.homes)
}

// input is what input i of a function is by itself.
func (p *Prover) input(i int, name string, t ir.Type) source {
	var s source
	for k, t := range t.Tensors() {
		s.nums = append(s.nums, p.vals.Number(terms.Value{Op: ir.OpInput, Group: -1, Result: int32(k), Tag: strconv.Itoa(i), Type: t, Node: name}))
		s.homes = append(s.homes, home{i, 0, k})
	}
	return s
}

// homes are the storages that the tensors of v lie in.
func (r *reader) homes(v *ir.Value) []home { return r.home[v.Base().ID()] }

// read returns the number of the only tensor of v as it is at this place of the order.
func (r *reader) read(v *ir.Value) terms.ValueID { return r.tensor(v, 0) }

// tensor is read for tensor k of v. Behind a write the views that lead from the
// storage to v are taken again, of what the storage holds since.
func (r *reader) tensor(v *ir.Value, k int) terms.ValueID {
	v = v.Base() // the verifier has seen to it that the version is the newest
	h := r.homes(v)[k]
	made := r.made[v.ID()]
	if made == nil && r.written[h] == 0 || made != nil && r.written[h] == made[k] {
		return r.num[v.ID()][k]
	}
	if made == nil {
		made = make([]int, len(r.homes(v)))
		r.made[v.ID()] = made
	}
	n := v.Def()
	num := r.holds[h]
	switch {
	case n.Op() == ir.OpWaitTensor:
		num = r.tensor(n.Arg(0), v.Index())
	case n.Op().IsView() || n.Op() == ir.OpCall && n.Effects()&ir.EffectAlias != 0:
		num = r.apply(n, v, []terms.ValueID{r.read(n.Arg(0))}, "")
	}
	r.num[v.ID()][k], made[k] = num, r.written[h]
	return num
}

// apply numbers result v of n for operands of these numbers.
func (r *reader) apply(n *ir.Node, v *ir.Value, args []terms.ValueID, self string) terms.ValueID {
	if n.Op() == ir.OpAlias {
		return args[0]
	}
	typ := v.Type()
	if terms.LayoutMatters(n.Op()) {
		for _, a := range n.DeclaredArgs() {
			self += " " + a.Type().String()
		}
	} else {
		typ = ir.TensorOf(typ.DType(), typ.Shape())
	}
	return r.p.vals.Number(terms.Value{Op: n.Op(), Group: r.group(n.Group()), Result: int32(v.Index()), Tag: self, Attrs: n.Attrs(), Type: typ, Args: args, Node: n.Name()})
}

func (r *reader) args(n *ir.Node) []terms.ValueID {
	args := make([]terms.ValueID, len(n.DeclaredArgs()))
	for i, a := range n.DeclaredArgs() {
		args[i] = r.read(a)
	}
	return args
}

// collective numbers each operand's result by itself: a bucket is its members.
func (r *reader) collective(n *ir.Node) {
	v := n.Result(0)
	args := r.args(n)
	tensors := v.Type().Tensors()
	nums, group := r.numbers(len(tensors)), r.group(n.Group())
	for k, t := range tensors {
		attrs := memberAttrs(n.Attrs(), k)
		nums[k] = r.p.vals.Number(terms.Value{Op: n.Op(), Group: group, Attrs: attrs, Type: ir.TensorOf(t.DType(), t.Shape()), Args: args[k : k+1], Node: n.Name()})
		// What brings nothing, or brings it to its own rank, is on no side of anything.
		if n.Group().Size() > 1 && !r.p.vals.At(args[k]).Type.Shape().NumElems().Equal(ir.D(0)) {
			r.m.comms = append(r.m.comms, comm{n.Name(), r.m.fences, fmt.Sprint(n.Op(), group, attrs), args[k : k+1]})
		}
	}
	r.set(v, nums, r.stored(v))
}

// memberAttrs are the attributes of a collective for its operand k alone.
func memberAttrs(l attr.List, k int) attr.List {
	for _, key := range []string{"in_splits", "out_splits"} {
		if s := l.Strs(key); k < len(s) {
			l = l.With(key, attr.Strings(s[k]))
		}
	}
	return l
}

func (r *reader) wait(n *ir.Node) {
	a := n.Arg(0)
	for i, v := range n.DeclaredResults() {
		nums := r.numbers(1)
		nums[0] = r.tensor(a, i)
		r.set(v, nums, r.homes(a)[i:i+1])
	}
}

func (r *reader) node(n *ir.Node) {
	if r.iterations(n) || r.induct(n) {
		return
	}
	args, eff, self := r.args(n), n.Effects(), ""
	bodies, calls := r.bodies(n)
	if bodies != "" && eff&ir.EffectCommunicates != 0 && !calls { // what collectives are is seen in what it computes
		eff &^= ir.EffectCommunicates
		r.m.comms = append(r.m.comms, comm{n.Name(), r.m.fences, fmt.Sprint(n.Op(), n.Attrs(), bodies), args})
	}
	if eff&ir.EffectRandom != 0 {
		self = "%" + n.Name() // the interpreter and the devices draw by name
	}
	if eff&(ir.EffectWrites|ir.EffectCommunicates|ir.EffectSizes) != 0 || n.Op() == ir.OpCall && eff&ir.EffectRandom != 0 {
		self = r.effect(n, args)
	}
	self += bodies
	aliases := eff&ir.EffectAlias != 0 && len(n.DeclaredArgs()) > 0
	for _, v := range n.DeclaredResults() {
		var homes []home
		if aliases {
			homes = r.homes(n.Arg(0))[:1]
		} else {
			homes = r.stored(v)
		}
		nums := r.numbers(1)
		nums[0] = r.apply(n, v, args, self)
		r.set(v, nums, homes)
	}
}

// bodies says what the functions that a node runs mean, and whether any of them runs an opaque
// call that communicates.
func (r *reader) bodies(n *ir.Node) (text string, calls bool) {
	for _, b := range n.Bodies() {
		m := r.p.Read(b)
		text += " " + r.p.body(m)
		calls = calls || m.fences > 0
	}
	return text, calls
}

// body is the same for functions of one name that are proved to be equal, so that a node that
// runs one is equal to another with the same operands. Nothing else is known of what it computes.
func (p *Prover) body(m *Meaning) string {
	for k, other := range p.bodies[m.name] {
		if _, err := p.Compare(other, m); err == nil {
			return fmt.Sprint("@", m.name, "#", k)
		}
	}
	p.bodies[m.name] = append(p.bodies[m.name], m)
	return fmt.Sprint("@", m.name, "#", len(p.bodies[m.name])-1)
}

// effect notes an effect and returns what tells its results apart: its place among
// those of its kind, or that it writes. A write makes a new version of the storages of
// its operands, of which nothing is known but who wrote them and from what.
func (r *reader) effect(n *ir.Node, args []terms.ValueID) string {
	eff := n.Effects()
	what := fmt.Sprint(n.Op().Name(), "@", r.group(n.Group()), n.Attrs().String())
	for _, a := range n.DeclaredArgs() {
		what += " " + a.Type().String()
	}
	if eff&ir.EffectRandom != 0 {
		what += " %" + n.Name()
	}
	if r.repeated != "" && n.Meta().Bool(r.repeated, false) && eff&ir.EffectWrites == 0 { // as forward did
		for i, e := range r.m.effects {
			if e.what == what && slices.Equal(e.args, args) {
				return r.m.effects[i].self
			}
		}
	}
	self := "writes"
	for i, kind := range ordered {
		if eff&kind != 0 {
			self += fmt.Sprintf(", effect %d of kind %d", r.placed[i], kind)
		}
	}
	r.note(eff)
	r.m.effects = append(r.m.effects, effect{node: n.Name(), kind: eff, what: what, self: self, args: args})
	if eff&ir.EffectCommunicates != 0 {
		r.m.fences++
	}
	if eff&ir.EffectWrites == 0 {
		return self
	}
	seen := map[home]bool{} // look-up only
	for i, a := range n.DeclaredArgs() {
		h := r.homes(a)[0]
		if seen[h] || !n.Writes(i) {
			continue
		}
		seen[h] = true
		root := r.rootOf(h)
		k := slices.Index(r.homes(root), h) // backward may be given one tensor of several
		was := r.tensor(root, k)
		r.holds[h] = r.p.vals.Number(terms.Value{Op: n.Op(), Group: r.group(n.Group()), Result: int32(-1 - i), Tag: self + what, Attrs: n.Attrs(),
			Type: root.Type().Tensors()[k], Args: append([]terms.ValueID{was}, args...), Node: n.Name()})
	}
	for h := range seen {
		r.written[h]++
	}
	return self
}

// note counts an effect among those of its kinds.
func (r *reader) note(kinds ir.Effect) {
	for i, kind := range ordered {
		if kinds&kind != 0 {
			r.placed[i]++
		}
	}
}

func (r *reader) ret(n *ir.Node) {
	for _, a := range n.DeclaredArgs() {
		o := output{typ: a.Type(), homes: r.homes(a)}
		for k := range a.Type().Tensors() {
			o.tensors = append(o.tensors, r.tensor(a, k))
		}
		r.m.outputs = append(r.m.outputs, o)
	}
	for _, d := range r.f.Donations() {
		r.m.donated = append(r.m.donated, donation{d.Input.At(), d.Result})
	}
	for _, n := range r.f.Inputs() {
		v := n.Result(0)
		for k, h := range r.homes(v) {
			if r.written[h] > 0 && h.input >= 0 {
				r.m.left = append(r.m.left, leftover{h, r.tensor(v, k)})
			}
		}
	}
}
