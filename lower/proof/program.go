package proof

import (
	"fmt"

	"github.com/seed-ee968945/concert/ir"
	"github.com/seed-ee968945/concert/program"
)

// machine runs a program over an arena of terms.
type machine struct {
	b      *termStore
	p      *program.Program
	m      *meaning
	mem    memory
	a      application // of the instruction at work
	groups []int32     // by group of the program: its number among terms
	kernel map[string]*program.Kernel
	known  func(in *program.Instr, k int, x termID) termID // asked for result k
	lost   map[termID]string                               // what is wrong with terms that are no tensor; look-up only

	want   *meaning // of the function
	blocks []*program.Block
	open   []*open
	wrong  func(what string, want, got termID) // told of what a loop or a branch should hold
}

// failure is an instruction that cannot be run.
type failure struct {
	instr int
	rule  string
}

func (f *failure) Error() string { return f.rule }

// run runs the program.
func (m *machine) run() error {
	for i := range m.p.Groups {
		m.groups = append(m.groups, m.b.group(m.p.Groups[i].Name, m.p.Groups[i].Ranks))
	}
	for i := range m.p.Kernels {
		m.kernel[m.p.Kernels[i].Name] = &m.p.Kernels[i]
	}
	for i := range m.p.Inputs {
		q := &m.p.Inputs[i]
		for k := range q.Tensors {
			t := m.typeOf(&q.Tensors[k])
			m.write(&q.Tensors[k], t, m.b.number(term{kind: given, group: -1, index: int32(i), self: fmt.Sprint(k), typ: t}))
		}
	}
	var err error
	if m.blocks, err = m.p.Blocks(); err != nil {
		return err
	}
	for i := range m.p.Instrs {
		in := &m.p.Instrs[i]
		if in.Kind == program.Record || in.Kind == program.Wait {
			continue
		}
		m.b.node, m.b.instr = in.Node, int32(i)
		if in.Joins() {
			err = m.bracket(i, in)
		} else {
			err = m.instr(in)
		}
		if err != nil {
			return &failure{i, err.Error()}
		}
	}
	m.b.node, m.b.instr = "", int32(len(m.p.Instrs))
	m.end()
	return nil
}

// typeOf is a tensor's type.
func (m *machine) typeOf(t *program.Tensor) ir.Type {
	typ := ir.TensorOf(t.DType, t.Shape)
	if t.Strides == nil {
		return typ
	}
	return typ.WithSymbolicStrides(t.Strides)
}

// bytes is where a tensor of a type is in the arena, with symbols at their bounds.
func (m *machine) bytes(t *program.Tensor, typ ir.Type) (lo, hi int64) {
	lo = m.p.Buffers[t.Buffer].Offset + t.Offset
	return lo, lo + m.b.m.Bound(typ.Extent())
}

func (m *machine) write(t *program.Tensor, typ ir.Type, holds termID) {
	lo, hi := m.bytes(t, typ)
	m.mem.write(lo, hi, tensor{lo, typ, holds})
}

// read is the term at bytes lo..hi-1, seen as type t.
func (m *machine) read(lo, hi int64, t ir.Type) termID {
	if m.b.empty(t) {
		return m.b.window(0, t, 0, t)
	}
	x, have := m.mem.read(lo, hi)
	if x == nil {
		id := m.b.number(term{kind: unknown, group: -1, index: int32(len(m.lost)), typ: t})
		m.lost[id] = m.mixture(lo, hi, have)
		return id
	}
	return m.b.window(x.holds, x.typ, lo-x.at, t)
}

// operands appends what tensors hold, and their types.
func (m *machine) operands(ts []program.Tensor, xs []termID, types []ir.Type) ([]termID, []ir.Type) {
	for i := range ts {
		t := m.typeOf(&ts[i])
		lo, hi := m.bytes(&ts[i], t)
		xs, types = append(xs, m.read(lo, hi, t)), append(types, t)
	}
	return xs, types
}

func (m *machine) types(ts []program.Tensor, types []ir.Type) []ir.Type {
	for i := range ts {
		types = append(types, m.typeOf(&ts[i]))
	}
	return types
}

// instr runs a launch, collective or copy: all operands are read before a result is
// written.
func (m *machine) instr(in *program.Instr) error {
	a := &m.a
	*a = application{node: in.Node, attrs: in.Attrs.Without(program.InMatmulKey), group: -1, args: a.args[:0], argTypes: a.argTypes[:0], outs: a.outs[:0]}
	if in.Group >= 0 {
		a.group = m.groups[in.Group]
	}
	a.args, a.argTypes = m.operands(in.Ins, a.args, a.argTypes)
	a.outs = m.types(in.Outs, a.outs)
	for k, t := range a.outs {
		if in.Kind == program.Collective && !t.Contiguous() || !t.NonOverlapping() && !in.Aliases() {
			return fmt.Errorf("result %d is %s: its elements do not lie as results may", k, t)
		}
	}
	if in.Kind == program.Copy {
		if !a.argTypes[0].SameTensor(a.outs[0]) {
			return fmt.Errorf("a copy of %s to %s", a.argTypes[0], a.outs[0])
		}
		m.write(&in.Outs[0], a.outs[0], a.args[0])
		return nil
	}
	if in.Kind == program.Launch && in.Op == program.OpFused {
		return m.fused(in)
	}
	var ok bool
	if a.op, ok = ir.OpByName(in.Op); !ok || a.op.IsCollective() != (in.Kind == program.Collective) || a.op.IsView() {
		return fmt.Errorf("%s is not an operation that a program %ss", in.Op, in.Kind)
	}
	if in.Kind == program.Collective {
		m.m.communicate(m.b, a)
		if in.Op == ir.OpReduceScatter.Name() && in.Attrs.Bool(program.InMatmulKey, false) {
			m.lose(&in.Ins[0], "what a reduce_scatter within a matmul leaves of its operand")
		}
		var xs []termID
		for k := range a.outs {
			xs = append(xs, m.b.member(a, k))
		}
		m.results(in, a.outs, xs)
		return nil
	}
	return m.launch(in, a)
}

// lose leaves something undefined where a tensor is.
func (m *machine) lose(t *program.Tensor, what string) {
	typ := m.typeOf(t)
	id := m.b.number(term{kind: unknown, group: -1, index: int32(len(m.lost)), typ: typ})
	m.lost[id] = what
	m.write(t, typ, id)
}

// results writes what an instruction has computed.
func (m *machine) results(in *program.Instr, types []ir.Type, xs []termID) {
	for k, x := range xs {
		m.write(&in.Outs[k], types[k], m.known(in, k, x))
	}
}

// launch runs an operation or a call.
func (m *machine) launch(in *program.Instr, a *application) error {
	self := ""
	if a.op == ir.OpCall && a.effects()&^ir.EffectAlias != 0 {
		self = m.m.effect(m.b, a)
	}
	for i := range in.Ins {
		if !a.writes(i) || m.b.empty(a.argTypes[i]) {
			continue
		}
		lo, hi := m.bytes(&in.Ins[i], a.argTypes[i])
		x, have := m.mem.read(lo, hi)
		if x == nil {
			return fmt.Errorf("writes operand %d in place, whose bytes hold %s", i, m.mixture(lo, hi, have))
		}
		x.holds = m.b.changed(a, i, self, x.holds, x.typ, lo-x.at)
	}
	if a.effects()&ir.EffectAlias != 0 && len(in.Ins) > 0 {
		return nil // its results are bytes of operand 0
	}
	var xs []termID
	for k := range a.outs {
		xs = append(xs, m.b.result(a, k, self))
	}
	m.results(in, a.outs, xs)
	return nil
}

// end lists what the caller sees.
func (m *machine) end() {
	see := func(what string, ts []program.Tensor) []seen {
		xs, types := m.operands(ts, nil, nil)
		var out []seen
		for k := range xs {
			s := seen{what: what, typ: types[k], holds: xs[k]}
			s.lo, s.hi = m.bytes(&ts[k], types[k])
			out = append(out, s)
		}
		return out
	}
	for i := range m.p.Outputs {
		m.m.results = append(m.m.results, see("output "+m.p.Outputs[i].Name, m.p.Outputs[i].Tensors)...)
	}
	for i := range m.p.Inputs {
		q := &m.p.Inputs[i]
		if m.p.Donated(i) < 0 && keeps(q.Async, q.Role) {
			m.m.kept = append(m.m.kept, see("input "+q.Name, q.Tensors)...)
		}
	}
}
