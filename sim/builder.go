package sim

import (
	"fmt"
	"math"
	"slices"
)

// ModelError reports a node that cannot be part of a model.
type ModelError struct {
	Node   int32 // number of the offending node
	Reason string
}

// Error implements error.
func (e *ModelError) Error() string { return fmt.Sprintf("sim: node %d: %s", e.Node, e.Reason) }

// Builder fills a Model node by node in program order. Each method that adds a
// node returns its number, which later nodes name as operand. The first error is
// kept and returned by Build; the numbers returned after it are still consecutive.
//
// The methods named after kinds see a node as a whole: who reads a node keeps all
// of its results live. Add says exactly which storages a node touches.
type Builder struct {
	m        Model
	predVal  []int32
	predOff  []int32
	allocOff []int32
	resVal   []int32
	resOff   []int32
	useVal   []int32
	useOff   []int32
	held     []int32 // wait, or view of one -> the start whose storages it keeps live, -1 for others
	keys     map[Key]int32
	streams  map[string]int32
	err      error
}

// NewBuilder returns a builder with room for n nodes.
func NewBuilder(n int) *Builder {
	b := &Builder{keys: map[Key]int32{}, streams: map[string]int32{}}
	b.m.Kind = make([]Kind, 0, n)
	b.m.Dur = make([]float64, 0, n)
	b.m.Stream = make([]int32, 0, n)
	b.m.StartOf = make([]int32, 0, n)
	b.m.Key = make([]int32, 0, n)
	b.m.Bytes = make([]int64, 0, n)
	b.predOff = append(make([]int32, 0, n+1), 0)
	b.allocOff = append(make([]int32, 0, n+1), 0)
	b.resOff = append(make([]int32, 0, n+1), 0)
	b.useOff = append(make([]int32, 0, n+1), 0)
	b.held = make([]int32, 0, n)
	return b
}

// Stream returns the number of the communication stream of a group, a new one at
// the first call with that name.
func (b *Builder) Stream(group string) int32 {
	s, ok := b.streams[group]
	if !ok {
		s = int32(len(b.streams))
		b.streams[group] = s
	}
	return s
}

// Spec describes one node for Add.
type Spec struct {
	Kind     Kind
	Ms       float64 // duration of a compute node or a start
	Operands []int32 // nodes that must come before it; repetitions count once
	Reads    []int32 // storages it reads: they live at least until it has run
	Alloc    []int64 // bytes of the storages that it creates
	Pinned   bool    // its storages live to the end
	Shares   []int32 // storages that its results are in besides those it creates

	// Of starts.
	Key        Key   // Key.Group names the stream
	Bucketable bool  // may join a bucket with others of the same key
	Bytes      int64 // what its cost depends on

	// StartOf is, for a wait, the start that it waits for, -1 for an input in
	// flight. It must be one of Operands. Ignored for other kinds.
	StartOf int32
}

// Add adds a node described by s.
func (b *Builder) Add(s Spec) int32 {
	n := int32(len(b.m.Kind))
	if math.IsNaN(s.Ms) || math.IsInf(s.Ms, 0) || s.Ms < 0 {
		b.fail(n, fmt.Sprintf("duration %v ms", s.Ms))
		s.Ms = 0
	}
	b.m.Kind = append(b.m.Kind, s.Kind)
	b.m.Dur = append(b.m.Dur, s.Ms)
	b.m.Stream = append(b.m.Stream, -1)
	b.m.StartOf = append(b.m.StartOf, -1)
	b.m.Key = append(b.m.Key, -1)
	b.m.Bytes = append(b.m.Bytes, 0)
	b.held = append(b.held, -1)
	b.operands(n, s.Operands)
	known := int32(len(b.m.Size))
	for _, list := range [][]int32{s.Reads, s.Shares} {
		for _, x := range list {
			if x < 0 || x >= known {
				b.fail(n, fmt.Sprintf("storage %d does not exist yet", x))
				continue
			}
			b.useVal = append(b.useVal, x)
		}
	}
	if b.err == nil {
		b.resVal = append(b.resVal, s.Shares...)
	}
	for _, size := range s.Alloc {
		if size < 0 || size > math.MaxInt64/4 {
			b.fail(n, fmt.Sprintf("a result of %d bytes", size))
			size = 0
		}
		x := int32(len(b.m.Size))
		b.resVal = append(b.resVal, x)
		b.useVal = append(b.useVal, x)
		b.m.Size = append(b.m.Size, Round(size))
		b.m.Pinned = append(b.m.Pinned, s.Pinned)
		b.m.Owner = append(b.m.Owner, n)
	}
	b.allocOff = append(b.allocOff, int32(len(b.m.Size)))
	b.resOff = append(b.resOff, int32(len(b.resVal)))
	switch s.Kind {
	case Start:
		b.comm(n, s)
	case Wait:
		if s.StartOf >= 0 {
			if s.StartOf >= n || b.m.Kind[s.StartOf] != Start {
				b.fail(n, fmt.Sprintf("waits for node %d, which is not a collective", s.StartOf))
				break
			}
			b.m.StartOf[n] = s.StartOf
			b.hold(n, s.StartOf)
		}
	}
	b.useOff = append(b.useOff, int32(len(b.useVal)))
	return n
}

// operands records the predecessors of node n, each once.
func (b *Builder) operands(n int32, operands []int32) {
	first := len(b.predVal)
	for _, p := range operands {
		if p < 0 || p >= n {
			b.fail(n, fmt.Sprintf("operand %d does not come before it", p))
			continue
		}
		if b.m.Kind[p] == Output {
			b.fail(n, fmt.Sprintf("operand %d is an output", p))
		}
		// Only short lists are searched: an output has thousands of operands.
		if len(b.predVal)-first > 64 || !slices.Contains(b.predVal[first:], p) {
			b.predVal = append(b.predVal, p)
		}
	}
	if len(b.predVal)-first > 64 {
		tail := b.predVal[first:]
		slices.Sort(tail)
		b.predVal = b.predVal[:first+len(slices.Compact(tail))]
	}
	b.predOff = append(b.predOff, int32(len(b.predVal)))
}

// comm fills the columns of a start.
func (b *Builder) comm(n int32, s Spec) {
	b.m.Stream[n] = b.Stream(s.Key.Group)
	b.m.Bytes[n] = s.Bytes
	if !s.Bucketable {
		return
	}
	k, ok := b.keys[s.Key]
	if !ok {
		k = int32(len(b.m.Keys))
		b.keys[s.Key] = k
		b.m.Keys = append(b.m.Keys, s.Key)
	}
	b.m.Key[n] = k
}

// hold lets node n keep live what start c touches.
func (b *Builder) hold(n, c int32) {
	b.held[n] = c
	b.useVal = append(b.useVal, b.useVal[b.useOff[c]:b.useOff[c+1]]...)
}

// Results returns the storages that the results of node n are in: those it shares
// first, then those it creates. The caller must not change the list.
func (b *Builder) Results(n int32) []int32 {
	if n < 0 || int(n) >= len(b.m.Kind) {
		return nil
	}
	return b.resVal[b.resOff[n]:b.resOff[n+1]]
}

// reads returns the storages of the results of all operands.
func (b *Builder) reads(operands []int32) []int32 {
	var out []int32
	for _, p := range operands {
		out = append(out, b.Results(p)...)
	}
	return out
}

// Input adds an input whose storages have the given sizes in bytes. A pinned
// input (parameters, data) lives throughout; another (saved activations,
// tangents) to its last use.
func (b *Builder) Input(pinned bool, bytes ...int64) int32 {
	return b.Add(Spec{Kind: Input, Pinned: pinned, Alloc: bytes})
}

// Compute adds a node that runs for ms milliseconds on the compute stream and
// allocates one storage per result.
func (b *Builder) Compute(ms float64, operands []int32, bytes ...int64) int32 {
	return b.Add(Spec{Kind: Compute, Ms: ms, Operands: operands, Reads: b.reads(operands), Alloc: bytes})
}

// View adds a free node that shares the storages of all its operands.
func (b *Builder) View(operands ...int32) int32 {
	return b.Add(Spec{Kind: View, Operands: operands, Shares: b.reads(operands)})
}

// Pick adds a free node that shares storage k of its operand's results, such as
// one item of an operator with several results.
func (b *Builder) Pick(operand int32, k int) int32 {
	res := b.Results(operand)
	if k < 0 || k >= len(res) {
		b.fail(int32(len(b.m.Kind)), fmt.Sprintf("result %d of node %d, which has %d", k, operand, len(res)))
		return b.View(operand)
	}
	return b.Add(Spec{Kind: View, Operands: []int32{operand}, Reads: res, Shares: slices.Clone(res[k : k+1])})
}

// Start adds a collective that runs for ms milliseconds on the stream of
// key.Group and allocates one storage per result. size is the number of bytes
// that its cost depends on: max(operand bytes, result bytes), added over the
// members of a collective that is a bucket already. bucketable reports whether it
// may join a bucket.
func (b *Builder) Start(ms float64, key Key, bucketable bool, size int64, operands []int32, bytes ...int64) int32 {
	return b.Add(Spec{Kind: Start, Ms: ms, Operands: operands, Reads: b.reads(operands), Alloc: bytes, Key: key, Bucketable: bucketable, Bytes: size})
}

// Wait adds a wait. Its operand is a start, or an input that holds a collective
// in flight, of which the simulator assumes that it has finished. A second wait
// on the same collective names the first one; it blocks nothing and is a view
// that keeps the collective's storages live.
func (b *Builder) Wait(operand int32) int32 {
	s := Spec{Kind: Wait, Operands: []int32{operand}, Shares: slices.Clone(b.Results(operand)), StartOf: -1}
	if operand < 0 || int(operand) >= len(b.m.Kind) {
		return b.Add(s)
	}
	again := int32(-1)
	switch b.m.Kind[operand] {
	case Start:
		s.StartOf = operand
	case Wait, View:
		s.Kind = View
		again = b.held[operand]
	}
	n := b.Add(s)
	if again >= 0 {
		b.hold(n, again)
		b.useOff[n+1] = int32(len(b.useVal))
	}
	return n
}

// Output adds the node that uses the program's results and keeps them live.
func (b *Builder) Output(operands ...int32) int32 {
	return b.Add(Spec{Kind: Output, Operands: operands, Reads: b.reads(operands)})
}

func (b *Builder) fail(n int32, reason string) {
	if b.err == nil {
		b.err = &ModelError{Node: n, Reason: reason}
	}
}

// Build returns the model, or the *ModelError of the first call that made none. The builder
// must not be used afterwards. It takes time linear in nodes and edges.
func (b *Builder) Build() (*Model, error) {
	if b.err != nil {
		return nil, b.err
	}
	m := &b.m
	n := int32(len(m.Kind))
	m.Streams = len(b.streams)
	m.Pred = Lists{b.predOff, b.predVal}
	m.Succ = Transpose(&m.Pred, int(n))
	m.Result = Lists{b.resOff, b.resVal}
	m.Alloc = Lists{b.allocOff, make([]int32, len(m.Size))}
	for i := range m.Alloc.Val {
		m.Alloc.Val[i] = int32(i)
	}
	stamp := make([]int32, len(m.Size))
	for i := range stamp {
		stamp[i] = -1
	}
	use := make([]int32, 0, len(b.useVal))
	off := make([]int32, 1, n+1)
	for i := int32(0); i < n; i++ {
		for _, s := range b.useVal[b.useOff[i]:b.useOff[i+1]] {
			if stamp[s] != i {
				stamp[s] = i
				use = append(use, s)
			}
		}
		if m.Kind[i] == Output {
			for _, s := range use[off[i]:] {
				m.Pinned[s] = true
			}
		}
		off = append(off, int32(len(use)))
	}
	m.Use = Lists{off, use}
	return m, nil
}

// Transpose returns for each of n values the ascending list of the rows of l
// that contain it.
func Transpose(l *Lists, n int) Lists {
	off := make([]int32, n+1)
	for _, v := range l.Val {
		off[v+1]++
	}
	for i := 0; i < n; i++ {
		off[i+1] += off[i]
	}
	val := make([]int32, len(l.Val))
	next := slices.Clone(off[:n])
	for i := int32(0); int(i) < l.Len(); i++ {
		for _, v := range l.At(i) {
			val[next[v]] = i
			next[v]++
		}
	}
	return Lists{off, val}
}
