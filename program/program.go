// Package program is the lowered form of a function: a flat list of launches,
// collectives, copies and event operations on named streams, over fixed offsets
// in one arena per device. It is data. The runtime executes it, the Go emitter
// prints it as source, the checker proves it free of races, and traces draw it,
// so they cannot disagree about what runs.
//
// # Meaning
//
// Every rank runs the same program, or, with Stages, the one whose Ranks include it. Instructions
// are issued in list order, each on its stream. A stream runs its instructions one after the other;
// only events order two streams. Record makes an event stand for everything
// issued on the stream so far, and Wait blocks later instructions of its stream until
// that has finished, as with CUDA events. A buffer is a range
// of the arena, at the same offset on every rank; two buffers may share bytes
// when their uses are ordered. A launch of shard copies this rank's shard of its operand.
// A call of a registered function reads its operands
// and writes its results; it also writes the operands that its effects name, while results
// that alias operand 0 are bytes of that operand, which it leaves unchanged. A collective reads its
// operands on every rank of the subgroup, and has finished only when no peer reads this rank's
// operands any more.
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
	Ranks   []int // who runs it, in ascending order; nil: every rank
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
// its own subgroup at run time. A program with Ranks may have groups without some.
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

// Symbol is a run-time size in Min..Max; its value may differ by rank. Memory is
// laid out so that it suffices for every value.
type Symbol struct {
	Name           string
	Hint, Min, Max int64
}

// Need is a size that a node of the IR needs not to be negative, and that may be for
// some values of the symbols: the rows of an operand beyond those that a slice takes. Each
// rank checks it before it runs.
type Need struct {
	Size dim.Dim
	Node string // empty for a check of the module's own
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

// Tensor is a typed window on a buffer. It is within the buffer for every value of
// the symbols, and no size is negative for any.
type Tensor struct {
	Buffer  int   // index into Program.Buffers
	Offset  int64 // bytes from the start of the buffer to element (0, 0, ...)
	DType   dtype.DType
	Shape   []dim.Dim
	Strides []dim.Dim // elements; nil means row-major without gaps
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

// Donation says that an output is where an input lay, whose contents are gone when the
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
	Loop                   // begins a loop, whose iterations change Outs; see block.go for this and what follows
	Test                   // leaves the loop if Ins[0] is 0
	Case                   // begins branches, of which the one of number Ins[0] runs and writes Outs
	Branch                 // begins a branch
	End                    // ends a loop or a case
)

// String returns the name of the kind.
func (k Kind) String() string {
	return [...]string{"launch", "collective", "copy", "record", "wait", "loop", "test", "case", "branch", "end"}[k]
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

// Calls are the targets of the program's calls, each once, in ascending order.
func (p *Program) Calls() []string {
	var out []string
	for i := range p.Instrs {
		if in := &p.Instrs[i]; in.IsCall() {
			out = append(out, in.Attrs.Str("target", ""))
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

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

// Splits returns the rows along dimension 0 that each operand of an all_to_all sends to each
// rank and receives from each rank; nil when the parts are equal. The error says which
// attribute is malformed.
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
		return dim.Range{Min: p.Symbols[i].Min, Max: p.Symbols[i].Max}, true
	})
}

// Bound is the greatest value of a size; false if it cannot be told, or if the size is
// negative for some values of the symbols.
func (p *Program) Bound(d dim.Dim) (int64, bool) {
	r, ok := p.Bounds(d)
	return r.Max, ok && r.Min >= 0
}

// SymbolicStrides returns the strides, computing those of a tensor without gaps.
func (t *Tensor) SymbolicStrides() []dim.Dim {
	if t.Strides != nil {
		return t.Strides
	}
	return dim.RowMajor(t.Shape)
}

// Extent is the number of bytes from element (0, 0, ...) to one past the last byte that
// t reaches; with strides it may be negative for sizes that leave no elements. False if a size or
// a stride has no bound, or may be negative.
func (p *Program) Extent(t *Tensor) (dim.Dim, bool) {
	if t.Strides != nil && len(t.Strides) != len(t.Shape) {
		return dim.Dim{}, false
	}
	for _, list := range [][]dim.Dim{t.Shape, t.Strides} {
		for _, d := range list {
			if _, ok := p.Bound(d); !ok {
				return dim.Dim{}, false
			}
		}
	}
	n, one := dim.New(1), dim.New(1)
	for i, d := range t.Shape {
		switch {
		case d.Equal(dim.New(0)):
			return dim.New(0), true
		case t.Strides == nil:
			n = n.Mul(d)
		default:
			n = n.Add(d.Sub(one).Mul(t.Strides[i]))
		}
	}
	return n.Mul(dim.New(int64(t.DType.Size()))), true
}

// Span is the greatest extent of t, for all values of the symbols; false if it cannot
// be told, or is more than 2^56 bytes.
func (p *Program) Span(t *Tensor) (int64, bool) {
	if n, ok := p.Extent(t); ok {
		r, ok := p.Bounds(n)
		return max(r.Max, 0), ok && r.Max <= 1<<56
	}
	return 0, false
}

// Digest is the SHA-256 of the text form in hexadecimal. Ranks compare it before
// they run: a different digest is a different program.
func (p *Program) Digest() string {
	h := sha256.Sum256(p.AppendText(nil))
	return hex.EncodeToString(h[:])
}
