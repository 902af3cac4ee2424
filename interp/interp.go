package interp

import (
	"context"
	"fmt"
	"slices"

	"github.com/seed-ee968945/concert/internal/hostops"
	"github.com/seed-ee968945/concert/ir"
	"github.com/seed-ee968945/concert/ir/types"
)

// Options steer a run. The zero Options runs a function without symbols and
// calls as its text says.
type Options struct {
	// Symbols gives, by rank, the run-time sizes. A symbol that a rank does not have here is
	// solved from the shapes of the rank's inputs, else it is the symbol's hint.
	Symbols []map[string]int64

	// Sizes, if not nil, receives by rank the sizes that the function reads from tensors, by
	// symbol: what goes on with its results may need them. It has a map for each rank.
	Sizes []map[string]int64

	// Calls implements opaque calls by target.
	Calls map[string]CallFunc

	// Poison makes asynchrony visible: until its wait the results of a collective
	// and async inputs hold NaN (0xAA in types without NaN), and a write to an
	// operand or result in flight is an error at the wait.
	Poison bool

	// Seed and Step select the random numbers: rank, node name, Seed and Step
	// give the stream of a rand. A loop of steps counts Step up.
	Seed, Step int64

	// Trace is called after each node, if set; its error ends the run.
	Trace func(Event) error

	// MemoryLimit bounds the bytes of storage that all ranks hold together; going
	// beyond it is an error. 0 means no limit.
	MemoryLimit int64

	// SkipVerify leaves out the verification of the module, for callers that have
	// just done it. Running a module that does not verify may give any error.
	SkipVerify bool
}

// Slot is one tensor of a function's signature: an input or output value, or one
// of the tensors that an async value carries.
type Slot struct {
	Name  string  // name of the value; of an async value with several tensors, with .0, .1, ... after it
	Type  ir.Type // a tensor type
	Async bool    // part of an async value
	Value *ir.Value
	Index int // which tensor of the async value
}

// InputSlots lists what Run takes per rank, in order: async inputs take as many
// tensors as they carry.
func InputSlots(f *ir.Func) []Slot {
	var out []Slot
	for _, n := range f.Inputs() {
		out = appendSlots(out, n.Result(0))
	}
	return out
}

// OutputSlots lists what Run returns per rank, in order; nil without a return.
func OutputSlots(f *ir.Func) []Slot {
	var out []Slot
	if r := f.Return(); r != nil {
		for _, v := range r.Args() {
			out = appendSlots(out, v)
		}
	}
	return out
}

// Next returns the inputs of the next step of a loop: those of the last one, with what they
// were donated to in place of donated inputs. It copies nothing. The error says which rank
// has another number of inputs or results than f.
func Next(f *ir.Func, inputs, results [][]Tensor) ([][]Tensor, error) {
	in, out := InputSlots(f), OutputSlots(f)
	if len(inputs) != len(results) {
		return nil, fmt.Errorf("interp: inputs of %d ranks, results of %d", len(inputs), len(results))
	}
	next := make([][]Tensor, len(inputs))
	for r := range inputs {
		if len(inputs[r]) != len(in) || len(results[r]) != len(out) {
			return nil, fmt.Errorf("interp: rank %d has %d inputs and %d results, want %d and %d", r, len(inputs[r]), len(results[r]), len(in), len(out))
		}
		next[r] = slices.Clone(inputs[r])
	}
	for _, d := range f.Donations() {
		i := slices.IndexFunc(in, func(s Slot) bool { return s.Value == d.Input.Result(0) })
		k := 0
		for _, v := range f.Return().Args()[:d.Result] {
			k += len(v.Type().Tensors())
		}
		for r := range next {
			next[r][i] = results[r][k]
		}
	}
	return next, nil
}

func appendSlots(out []Slot, v *ir.Value) []Slot {
	ts, async := tensorTypes(v)
	for i, t := range ts {
		name := v.Name()
		if len(ts) > 1 {
			name = fmt.Sprintf("%s.%d", name, i)
		}
		out = append(out, Slot{Name: name, Type: t, Async: async, Value: v, Index: i})
	}
	return out
}

// tensorTypes lists the tensors that a value is or carries.
func tensorTypes(v *ir.Value) ([]ir.Type, bool) {
	if t := v.Type(); t.IsAsync() {
		return t.Elems(), true
	}
	return []ir.Type{v.Type()}, false
}

// Event is what Options.Trace sees after a node. It is valid during the call.
type Event struct {
	Node  *ir.Node
	Index int     // index in program order
	Live  []int64 // bytes of storage held, by rank, before this node's last uses are dropped
	m     *machine
}

// Result copies tensor i of the node's results on a rank: the results one after
// the other, an async result as the tensors it carries (garbage while in flight
// under Options.Poison). It fails if there is no such tensor.
func (e Event) Result(rank, i int) (Tensor, error) {
	if rank >= 0 && rank < e.m.world && i >= 0 {
		for _, v := range e.Node.Results() {
			ts := e.m.env[v.ID()][rank].ts
			if i < len(ts) {
				return ts[i].tensor()
			}
			i -= len(ts)
		}
	}
	return Tensor{}, fmt.Errorf("interp: %%%s has no such result on rank %d", e.Node.Name(), rank)
}

// Run executes f on every rank of its module's world. inputs[r] holds rank r's
// tensors as InputSlots lists them; the result holds each rank's as OutputSlots
// lists them, in memory of their own; async outputs are returned finished. Inputs
// are never changed. An error of a node or input is an *Error; a module that does
// not verify gives a *diag.Error. Time is that of the kernels; memory is what the
// ranks' live storages hold together.
func Run(ctx context.Context, f *ir.Func, inputs [][]Tensor, o Options) ([][]Tensor, error) {
	if !o.SkipVerify {
		if err := f.Module().Verify(); err != nil {
			return nil, err
		}
	}
	if s, _ := f.Module().StagesOf(f); s != nil {
		return nil, fmt.Errorf("interp: @%s is a stage of @%s, which run together: use RunStages", f.Name, s.Name)
	}
	m, err := newMachine(f, ranksOf(f), inputs, o)
	if err != nil {
		return nil, err
	}
	return m.advance(ctx, inputs)
}

// advance executes the nodes of a function, one after the other, until it has ended or, in
// stages, waits for others.
func (m *machine) advance(ctx context.Context, inputs [][]Tensor) ([][]Tensor, error) {
	var err error
	for order := m.f.Order(); m.at < len(order); m.at++ {
		i, n := m.at, order[m.at]
		if err := ctx.Err(); err != nil {
			return nil, nodeError(n, -1, err)
		}
		if m.blocked(n) {
			return nil, nil
		}
		switch n.Op() {
		case ir.OpInput:
			err = m.input(n, inputs)
		case ir.OpReturn:
			m.ended = true
			return m.outputs(n)
		default:
			err = m.exec(ctx, n)
		}
		if err != nil {
			return nil, nodeError(n, -1, err)
		}
		if m.opts.Trace != nil {
			if err := m.opts.Trace(Event{Node: n, Index: i, Live: slices.Clone(m.live), m: m}); err != nil {
				return nil, nodeError(n, -1, err)
			}
		}
		m.drop(n, i)
	}
	return nil, fmt.Errorf("interp: function @%s has no return", m.f.Name)
}

// machine is the state of one run.
type machine struct {
	f     *ir.Func
	world int
	ranks []int // those that run f, in ascending order; what is by rank has nothing for others
	opts  Options
	syms  []map[string]int64 // by rank: every symbol's value
	env   [][]binding        // by ValueID, then rank; nil where not yet or no longer defined
	last  []int32            // by ValueID: index in program order of the last use
	live  []int64            // by rank: bytes of storage held
	slot  []int              // by input's index in the signature: its first tensor

	stages *stages // that f is one of, nil if it is none
	stage  int     // the machine's, among them
	at     int     // index in program order of the next node
	ended  bool

	writes bool // some node changes an operand in place, so inputs must be copied
}

// binding is a value on one rank: a tensor, or the tensors of an async value.
type binding struct {
	ts []view
	fl *flight // set while in flight
}

// view is a layout on a storage.
type view struct {
	hostops.Tensor
	st *storage
}

// storage is memory of one rank; refs counts the bindings and flights that hold it.
type storage struct {
	rank  int
	bytes int64
	refs  int
}

func newMachine(f *ir.Func, ranks []int, inputs [][]Tensor, o Options) (*machine, error) {
	world := f.Module().World
	if len(inputs) != world {
		return nil, fmt.Errorf("interp: inputs for %d ranks, the world has %d", len(inputs), world)
	}
	m := &machine{f: f, world: world, ranks: ranks, opts: o, env: make([][]binding, f.NumValueIDs()),
		last: make([]int32, f.NumValueIDs()), live: make([]int64, world)}
	slots := InputSlots(f)
	for _, r := range ranks {
		if in := inputs[r]; len(in) != len(slots) {
			return nil, fmt.Errorf("interp: rank %d has %d input tensors, @%s takes %d", r, len(in), f.Name, len(slots))
		}
	}
	var err error
	if m.syms, err = resolveSymbols(f, ranks, slots, inputs, o.Symbols); err != nil {
		return nil, err
	}
	for i, n := range f.Order() {
		m.writes = m.writes || n.Effects()&ir.EffectWrites != 0
		for _, v := range n.Args() {
			m.last[v.ID()] = int32(i)
		}
		for _, v := range n.Results() {
			m.last[v.ID()] = int32(i)
		}
	}
	at := 0
	for _, n := range f.Inputs() {
		m.slot = append(m.slot, at)
		ts, _ := tensorTypes(n.Result(0))
		at += len(ts)
	}
	return m, m.check()
}

// check holds the sizes of every rank to what the module needs, as far as they are known.
func (m *machine) check() error {
	for _, c := range m.f.Module().Checks() {
		for _, r := range m.ranks {
			unknown := func(s string) bool { _, ok := m.syms[r][s]; return !ok }
			if slices.ContainsFunc(c.Size.Symbols(nil), unknown) {
				continue
			}
			if _, err := m.dim(c.Size, r); err != nil {
				return fmt.Errorf("interp: rank %d: the program needs %s not to be negative: %w", r, c.Size, err)
			}
		}
	}
	return nil
}

// shape evaluates a shape with the rank's symbols.
func (m *machine) shape(s ir.Shape, rank int) ([]int64, error) {
	if out, ok := s.Static(); ok {
		return out, nil
	}
	out := make([]int64, len(s))
	for i, d := range s {
		n, err := m.dim(d, rank)
		if err != nil {
			return nil, err
		}
		out[i] = n
	}
	return out, nil
}

func (m *machine) dim(d ir.Dim, rank int) (int64, error) {
	n, ok := d.Eval(func(s string) (int64, bool) { v, ok := m.syms[rank][s]; return v, ok })
	if !ok || n < 0 {
		return 0, onRank(rank, "size %s is %d with the rank's symbols %v", d, n, m.syms[rank])
	}
	return n, nil
}

// layout evaluates a tensor type: sizes, strides and the elements its storage needs.
func (m *machine) layout(t ir.Type, rank int) (hostops.Tensor, int64, error) {
	shape, err := m.shape(t.Shape(), rank)
	if err != nil {
		return hostops.Tensor{}, 0, err
	}
	h := hostops.Tensor{DType: t.DType(), Shape: shape}
	if t.Contiguous() {
		h.Strides = hostops.RowMajor(shape)
	} else if h.Strides, err = m.shape(t.SymbolicStrides(), rank); err != nil {
		return hostops.Tensor{}, 0, err
	}
	n, ok := types.Reach(shape, h.Strides)
	if !ok || n > maxElems {
		return h, 0, onRank(rank, "a tensor %v with strides %v has no storage; strides must not be negative, nor the whole larger than 2^40 elements", shape, h.Strides)
	}
	return h, n, nil
}

// maxElems bounds what one storage may hold.
const maxElems = 1 << 40

// alloc makes a fresh storage of zeros in the layout of t and counts it.
func (m *machine) alloc(t ir.Type, rank int) (view, error) {
	h, n, err := m.layout(t, rank)
	if err != nil {
		return view{}, err
	}
	bytes := n * int64(h.DType.Size())
	held := bytes
	for _, l := range m.live {
		held += l
	}
	if limit := m.opts.MemoryLimit; limit > 0 && held > limit {
		return view{}, onRank(rank, "%d more bytes would make %d, beyond the memory limit of %d", bytes, held, limit)
	}
	h.Data = make([]byte, bytes)
	return m.own(h, rank), nil
}

// own makes a counted storage of the tensor's bytes.
func (m *machine) own(h hostops.Tensor, rank int) view {
	return view{h, &storage{rank: rank, bytes: int64(len(h.Data))}}
}

func (m *machine) hold(v view) {
	if v.st.refs == 0 {
		m.live[v.st.rank] += v.st.bytes
	}
	v.st.refs++
}

func (m *machine) release(v view) {
	if v.st.refs--; v.st.refs == 0 {
		m.live[v.st.rank] -= v.st.bytes
	}
}

// bind defines a value on all ranks.
func (m *machine) bind(v *ir.Value, bs []binding) {
	for _, b := range bs {
		for _, t := range b.ts {
			m.hold(t)
		}
	}
	m.env[v.ID()] = bs
}

// drop forgets the values whose last use was node n at place i.
func (m *machine) drop(n *ir.Node, i int) {
	for _, v := range slices.Concat(n.Args(), n.Results()) {
		if int(m.last[v.ID()]) != i || m.env[v.ID()] == nil {
			continue
		}
		for _, b := range m.env[v.ID()] {
			for _, t := range b.ts {
				m.release(t)
			}
		}
		m.env[v.ID()] = nil
	}
}

// tensor copies a view to a dense tensor of its own.
func (v view) tensor() (Tensor, error) {
	t, err := NewTensor(v.DType, v.Shape...)
	if err != nil {
		return t, err
	}
	return t, hostops.Copy(t.host(), v.Tensor)
}

// outputs collects the return's operands; a collective that is still in flight
// finishes here.
func (m *machine) outputs(n *ir.Node) ([][]Tensor, error) {
	out := make([][]Tensor, m.world)
	for _, v := range n.Args() {
		for _, r := range m.ranks {
			b := m.env[v.ID()][r]
			if err := m.land(b.fl); err != nil {
				return nil, nodeError(n, r, err)
			}
			m.env[v.ID()][r].fl = nil
			for _, t := range b.ts {
				c, err := t.tensor()
				if err != nil {
					return nil, nodeError(n, r, err)
				}
				out[r] = append(out[r], c)
			}
		}
	}
	return out, nil
}
