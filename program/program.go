// Package program is the lowered form of a function: a flat list of launches,
// collectives, copies and event operations on named streams, over fixed offsets
// in one arena per device. It is data. The runtime executes it, the Go emitter
// prints it as source, the checker proves it free of races, and traces draw it,
// so that none of them can disagree about what runs.
//
// # Meaning
//
// Every rank runs the same program. Instructions are issued in list order, each
// on its stream; a stream runs its instructions one after the other; nothing
// orders two streams but events. Record makes an event stand for everything
// issued on the stream so far, and Wait holds what follows on its stream until
// that has finished, with the meaning that CUDA events have. A buffer is a range
// of the arena, at the same offset on every rank; two buffers may share bytes
// when their uses are ordered. A launch of shard copies the piece of its operand
// at the rank's place in the group. A call of a registered function reads its operands
// and writes its results; it also writes the operands that its effects name, and results
// that alias operand 0 are bytes of that, which it leaves as they are. A collective reads its operands on every rank of
// the subgroup and has finished only when no peer reads this rank's operands any
// more.
package program

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"

	"github.com/seed-ee968945/concert/internal/attr"
	"github.com/seed-ee968945/concert/internal/dim"
	"github.com/seed-ee968945/concert/internal/dtype"
)

// Align is the alignment of every buffer in bytes: what a GPU's allocator gives
// and what the widest vector accesses need.
const Align = 512

// Program is one lowered function.
type Program struct {
	Name    string
	World   int
	Groups  []Group
	Symbols []Symbol
	Streams []Stream // Streams[0] is the compute stream
	Events  int      // events are 0..Events-1
	Arena   int64    // bytes of the arena on each device, a multiple of Align
	Buffers []Buffer
	Inputs  []Param
	Outputs []Param

	Donations []Donation // by input

	Needs   []Need   // what values of symbols it runs for
	Unit    Unit     // source that all kernels share
	Kernels []Kernel // what launches of op "fused" run, by their attribute "kernel"
	Instrs  []Instr
}

// Group is a partition of the world into subgroups of equal size; a rank finds
// its own subgroup at run time.
type Group struct {
	Name  string
	Ranks [][]int
}

// Size is the number of ranks in each subgroup.
func (g *Group) Size() int {
	if len(g.Ranks) == 0 {
		return 0
	}
	return len(g.Ranks[0])
}

// Symbol is a run-time size in 0..Max; its value may differ by rank. Memory is
// laid out so that it suffices for every value.
type Symbol struct {
	Name      string
	Hint, Max int64
}

// Need is a size that a node of the IR needs not to be negative, and that may be for
// some values of the symbols: the rows of an operand beyond those that a slice takes. Each
// rank checks it before it runs.
type Need struct {
	Size dim.Dim
	Node string
}

// Stream is an in-order queue.
type Stream struct {
	Name  string
	Group int // the group whose collectives it runs, -1 for the compute stream
}

// Buffer is a range of the arena, named after the IR value that it was made for.
type Buffer struct {
	Name   string
	Offset int64 // bytes from the start of the arena, a multiple of Align
	Size   int64 // bytes
}

// Tensor is a typed window on a buffer. It lies within the buffer for every value of
// the symbols, and no size is negative for any.
type Tensor struct {
	Buffer  int   // index into Program.Buffers
	Offset  int64 // bytes from the start of the buffer to element (0, 0, ...)
	DType   dtype.DType
	Shape   []dim.Dim
	Strides []int64 // elements; nil means row-major without gaps
}

// Param binds tensors of the caller to the program. A plain input is one tensor
// that the caller fills in before the program starts; an async input is the
// results of a collective that the caller started: the runtime fires Event when
// it has finished. A plain output is one tensor that is complete when the
// program has finished; an async output is the results of a collective that may
// still be in flight, which the caller awaits through Event.
type Param struct {
	Name    string
	Role    string // of an input: parameter, data, saved, tangent or empty
	Async   bool
	Event   int // of an async parameter, else -1
	Tensors []Tensor
}

// Donation says that an output lies where an input lay, whose contents are gone when the
// program has finished. What reads them does so through the input's buffer, and what
// writes the output through another one on the same bytes.
type Donation struct {
	Input, Output int // indices into Program.Inputs and Outputs
}

// Kind says what an instruction does.
type Kind uint8

// The kinds of instructions.
const (
	Launch     Kind = iota // runs a kernel on operands and results
	Collective             // this rank's part of a collective on a group
	Copy                   // copies Ins[0] to Outs[0], elementwise, of one type and shape
	Record                 // makes Event stand for what the stream was given so far
	Wait                   // holds the stream until what Event stands for has finished
)

// String returns the name of the kind.
func (k Kind) String() string {
	return [...]string{"launch", "collective", "copy", "record", "wait"}[k]
}

// Instr is one instruction. Fields that its kind does not use are zero, Group
// and Event -1.
type Instr struct {
	Kind   Kind
	Stream int
	Event  int
	Op     string // kernel or collective, an op of the IR: matmul, all_gather, ...
	Group  int
	Attrs  attr.List // of the op, as in the IR: reduce, dim, root, ...
	Ins    []Tensor
	Outs   []Tensor
	Node   string // name of the IR node behind it, for messages; may be empty
}

// IsCall reports whether in is a call of a function that is registered by name.
func (in *Instr) IsCall() bool { return in.Kind == Launch && in.Op == "call" }

// has reports whether a call declares an effect.
func (in *Instr) has(effect string) bool {
	return in.IsCall() && slices.Contains(in.Attrs.Strs("effects"), effect)
}

// Writes reports whether a call writes its operand i in place: one that declares the
// effect "writes" does so to the operands that its attribute "writes" lists, or to all.
func (in *Instr) Writes(i int) bool {
	return in.has("writes") && (!in.Attrs.Has("writes") || slices.Contains(in.Attrs.Ints("writes"), int64(i)))
}

// Aliases reports whether the results of a call are bytes of its operand 0, which it
// does not write unless it writes the operand.
func (in *Instr) Aliases() bool { return in.has("alias") }

// Written lists the tensors that an instruction writes: the operands that it writes in
// place, and its results unless they alias an operand.
func (in *Instr) Written() []Tensor {
	var out []Tensor
	for i := range in.Ins {
		if in.Writes(i) {
			out = append(out, in.Ins[i])
		}
	}
	if !in.Aliases() {
		out = append(out, in.Outs...)
	}
	return out
}

// Splits returns the rows along dimension 0 that each operand of an all_to_all
// sends to each rank and receives from each rank; nil when the parts are equal.
func (in *Instr) Splits() (send, receive [][]dim.Dim, err error) {
	if send, err = splits(in.Attrs, "in_splits"); err != nil {
		return nil, nil, err
	}
	receive, err = splits(in.Attrs, "out_splits")
	return send, receive, err
}

func splits(attrs attr.List, key string) ([][]dim.Dim, error) {
	if !attrs.Has(key) {
		return nil, nil
	}
	var out [][]dim.Dim
	for _, s := range attrs.Strs(key) {
		var row []dim.Dim
		for _, part := range strings.Split(s, ",") {
			d, err := dim.Parse(strings.TrimSpace(part))
			if err != nil {
				return nil, fmt.Errorf("%s: %w", key, err)
			}
			row = append(row, d)
		}
		out = append(out, row)
	}
	return out, nil
}

// Bounds returns a range that holds every value of d, whatever the values of the
// symbols; see dim.Dim.Bounds. False if a symbol is not declared or a value may not fit
// 64 bits.
func (p *Program) Bounds(d dim.Dim) (dim.Range, bool) {
	find := func(name string) int {
		return slices.IndexFunc(p.Symbols, func(s Symbol) bool { return s.Name == name })
	}
	if d.NumTerms() > 32 {
		index := make(map[string]int, len(p.Symbols)) // plus 1, since it is looked up only
		for i, s := range p.Symbols {
			index[s.Name] = i + 1
		}
		find = func(name string) int { return index[name] - 1 }
	}
	return d.Bounds(func(name string) (dim.Range, bool) {
		i := find(name)
		if i < 0 || p.Symbols[i].Max < 0 {
			return dim.Range{}, false
		}
		return dim.Range{Max: p.Symbols[i].Max}, true
	})
}

// Bound is the greatest value of a size; false if it cannot be told, or if the size is
// negative for some values of the symbols.
func (p *Program) Bound(d dim.Dim) (int64, bool) {
	r, ok := p.Bounds(d)
	return r.Max, ok && r.Min >= 0
}

// Extent is the number of bytes from element (0, 0, ...) to one past the last byte that
// t reaches. With strides, symbolic sizes count at their bounds. False if it cannot be
// told.
func (p *Program) Extent(t *Tensor) (dim.Dim, bool) {
	if t.Strides == nil {
		n := dim.New(int64(t.DType.Size()))
		for _, d := range t.Shape {
			if _, ok := p.Bound(d); !ok {
				return n, false
			}
			n = n.Mul(d)
		}
		return n, true
	}
	sizes := make([]int64, len(t.Shape))
	for i, d := range t.Shape {
		var ok bool
		if sizes[i], ok = p.Bound(d); !ok {
			return dim.Dim{}, false
		}
	}
	n, ok := Span(t.DType, sizes, t.Strides)
	return dim.New(n), ok
}

// Span is the greatest extent of t, for all values of the symbols; false if it cannot
// be told.
func (p *Program) Span(t *Tensor) (int64, bool) {
	n, ok := p.Extent(t)
	if !ok {
		return 0, false
	}
	return p.Bound(n)
}

// Digest is the SHA-256 of the text form in hexadecimal. Ranks compare it before
// they run: a different digest is a different program.
func (p *Program) Digest() string {
	h := sha256.Sum256(p.AppendText(nil))
	return hex.EncodeToString(h[:])
}

// Validate checks what every reader of a program relies on: indices within their
// lists, tensors within their buffers and buffers within the arena, events
// recorded before they are waited for, operand counts. It does not prove the
// absence of races. Linear time; the first finding is returned.
func (p *Program) Validate() error {
	if p.World < 1 || len(p.Streams) == 0 {
		return fmt.Errorf("program %s: a world of %d ranks, %d streams; want at least one of each", p.Name, p.World, len(p.Streams))
	}
	for _, s := range p.Symbols {
		if s.Hint < 0 || s.Hint > s.Max {
			return fmt.Errorf("program %s: symbol %s has hint %d outside 0..%d", p.Name, s.Name, s.Hint, s.Max)
		}
	}
	for _, n := range p.Needs {
		if r, ok := p.Bounds(n.Size); !ok || r.Max < 0 {
			return fmt.Errorf("program %s: %%%s needs %v not to be negative, which no values of the symbols make so", p.Name, n.Node, n.Size)
		}
	}
	for i, s := range p.Streams {
		if s.Group < -1 || s.Group >= len(p.Groups) || (i == 0) != (s.Group < 0) {
			return fmt.Errorf("program %s: stream @%s: the first stream computes and every other one serves a group", p.Name, s.Name)
		}
	}
	for _, b := range p.Buffers {
		if b.Offset < 0 || b.Offset%Align != 0 || b.Size < 0 || b.Offset > p.Arena-b.Size {
			return fmt.Errorf("program %s: buffer %%%s at %d of %d bytes does not lie aligned in the arena of %d", p.Name, b.Name, b.Offset, b.Size, p.Arena)
		}
	}
	if err := p.checkKernels(); err != nil {
		return fmt.Errorf("program %s: %w", p.Name, err)
	}
	fired := make([]bool, p.Events)
	for _, in := range p.Inputs {
		if err := p.checkParam(&in, fired); err != nil {
			return fmt.Errorf("program %s: input %s: %w", p.Name, in.Name, err)
		}
	}
	for i := range p.Instrs {
		if err := p.checkInstr(&p.Instrs[i], fired); err != nil {
			return fmt.Errorf("program %s: instruction %d (%s): %w", p.Name, i, p.Instrs[i].Node, err)
		}
	}
	for _, out := range p.Outputs {
		if err := p.checkParam(&out, nil); err != nil {
			return fmt.Errorf("program %s: output %s: %w", p.Name, out.Name, err)
		}
		if out.Async && !fired[out.Event] {
			return fmt.Errorf("program %s: output %s: event %d is never recorded", p.Name, out.Name, out.Event)
		}
	}
	return p.checkDonations()
}

// checkDonations checks that an output lies exactly where the input that is donated to it
// lay, and that inputs and outputs take part once.
func (p *Program) checkDonations() error {
	to := make([]bool, len(p.Outputs))
	for k, d := range p.Donations {
		if d.Input < 0 || d.Input >= len(p.Inputs) || d.Output < 0 || d.Output >= len(p.Outputs) {
			return fmt.Errorf("program %s: input %d of %d is donated to output %d of %d", p.Name, d.Input, len(p.Inputs), d.Output, len(p.Outputs))
		}
		in, out := &p.Inputs[d.Input], &p.Outputs[d.Output]
		if k > 0 && p.Donations[k-1].Input >= d.Input || to[d.Output] {
			return fmt.Errorf("program %s: input %s is donated to output %s: each takes part once, in the order of inputs", p.Name, in.Name, out.Name)
		}
		to[d.Output] = true
		if in.Async || out.Async || !p.sameTensor(&in.Tensors[0], &out.Tensors[0]) {
			return fmt.Errorf("program %s: input %s is donated to output %s, which is not a tensor of its type in its place", p.Name, in.Name, out.Name)
		}
	}
	return nil
}

// sameTensor reports whether two tensors are the same elements of one type.
func (p *Program) sameTensor(t, u *Tensor) bool {
	return t.DType == u.DType && slices.EqualFunc(t.Shape, u.Shape, dim.Dim.Equal) && p.sameElements(t, u)
}

// Donated returns the output that input i is donated to, -1 if there is none.
func (p *Program) Donated(i int) int {
	k, ok := slices.BinarySearchFunc(p.Donations, i, func(d Donation, i int) int { return d.Input - i })
	if !ok {
		return -1
	}
	return p.Donations[k].Output
}

// checkParam checks an input or output; fired collects the events of async inputs.
func (p *Program) checkParam(q *Param, fired []bool) error {
	if !q.Async && (len(q.Tensors) != 1 || q.Event != -1) || len(q.Tensors) == 0 {
		return fmt.Errorf("%d tensors and event %d; a plain parameter has one tensor and no event", len(q.Tensors), q.Event)
	}
	if q.Async {
		if q.Event < 0 || q.Event >= p.Events {
			return fmt.Errorf("event %d of %d", q.Event, p.Events)
		}
		if fired != nil {
			fired[q.Event] = true
		}
	}
	return p.checkTensors(q.Tensors)
}

func (p *Program) checkInstr(in *Instr, fired []bool) error {
	if in.Stream < 0 || in.Stream >= len(p.Streams) {
		return fmt.Errorf("stream %d of %d", in.Stream, len(p.Streams))
	}
	switch in.Kind {
	case Record, Wait:
		if in.Event < 0 || in.Event >= p.Events {
			return fmt.Errorf("event %d of %d", in.Event, p.Events)
		}
		if in.Kind == Wait && !fired[in.Event] {
			return fmt.Errorf("waits for event %d, which nothing before it records", in.Event)
		}
		fired[in.Event] = true
	case Collective:
		if in.Group < 0 || in.Group >= len(p.Groups) || len(in.Ins) == 0 || len(in.Ins) != len(in.Outs) {
			return fmt.Errorf("group %d of %d, %d operands, %d results; want a group and as many results as operands", in.Group, len(p.Groups), len(in.Ins), len(in.Outs))
		}
	case Copy:
		if len(in.Ins) != 1 || len(in.Outs) != 1 {
			return fmt.Errorf("copies %d tensors to %d, want one to one", len(in.Ins), len(in.Outs))
		}
	case Launch:
		switch {
		case in.Op == "":
			return fmt.Errorf("launches nothing")
		case in.Group < -1 || in.Group >= len(p.Groups):
			return fmt.Errorf("group %d of %d", in.Group, len(p.Groups))
		case in.IsCall():
			return p.checkCall(in)
		case in.Op == "shard" && (in.Group < 0 || len(in.Ins) != 1 || len(in.Outs) != 1):
			return fmt.Errorf("a shard takes a group, one operand and one result")
		}
	default:
		return fmt.Errorf("kind %d", in.Kind)
	}
	if err := p.checkTensors(in.Ins); err != nil {
		return err
	}
	if err := p.checkTensors(in.Outs); err != nil {
		return err
	}
	switch {
	case in.Kind == Launch && in.Op == OpFused:
		return p.checkFused(in)
	case in.Kind == Collective && in.Op == "all_to_all":
		return p.checkSplits(in)
	}
	return nil
}

// checkCall checks a call's effects, and its tensors.
func (p *Program) checkCall(in *Instr) error {
	for _, i := range in.Attrs.Ints("writes") {
		if i < 0 || i >= int64(len(in.Ins)) || !in.has("writes") {
			return fmt.Errorf("writes=[%d] names no operand of a call with the effect writes", i)
		}
	}
	if err := p.checkTensors(in.Ins); err != nil {
		return err
	}
	if err := p.checkTensors(in.Outs); err != nil || !in.Aliases() {
		return err
	}
	for i := range in.Outs {
		if len(in.Ins) == 0 || in.Outs[i].Buffer != in.Ins[0].Buffer {
			return fmt.Errorf("result %d aliases operand 0 and does not lie in its buffer", i)
		}
	}
	return nil
}

// checkSplits checks that the pieces of an all_to_all are never negative and make up
// dimension 0.
func (p *Program) checkSplits(in *Instr) error {
	send, receive, err := in.Splits()
	if err != nil || send == nil && receive == nil {
		return err
	}
	for k, lists := range [2][][]dim.Dim{send, receive} {
		key, ts := [2]string{"in_splits", "out_splits"}[k], [2][]Tensor{in.Ins, in.Outs}[k]
		if len(lists) != len(ts) {
			return fmt.Errorf("%s has %d entries for %d operands", key, len(lists), len(ts))
		}
		for i, list := range lists {
			sum := dim.New(0)
			for _, d := range list {
				if _, ok := p.Bound(d); !ok {
					return fmt.Errorf("%s: size %v may be negative or too large", key, d)
				}
				sum = sum.Add(d)
			}
			if len(list) != p.Groups[in.Group].Size() || len(ts[i].Shape) == 0 || !sum.Equal(ts[i].Shape[0]) {
				return fmt.Errorf("%s: %d sizes that add up to %v do not make up dimension 0 of tensor %d", key, len(list), sum, i)
			}
		}
	}
	return nil
}

func (p *Program) checkTensors(ts []Tensor) error {
	for i := range ts {
		t := &ts[i]
		if t.Buffer < 0 || t.Buffer >= len(p.Buffers) {
			return fmt.Errorf("tensor %d: buffer %d of %d", i, t.Buffer, len(p.Buffers))
		}
		b := &p.Buffers[t.Buffer]
		if t.Strides != nil && len(t.Strides) != len(t.Shape) {
			return fmt.Errorf("tensor %d has %d dimensions and %d strides", i, len(t.Shape), len(t.Strides))
		}
		n, ok := p.Span(t)
		if !t.DType.Valid() || !ok || t.Offset < 0 || n > b.Size-t.Offset {
			return fmt.Errorf("tensor %d reaches %d bytes from %d in buffer %%%s of %d", i, n, t.Offset, b.Name, b.Size)
		}
	}
	return nil
}
