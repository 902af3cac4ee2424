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

func (e *ModelError) Error() string { return fmt.Sprintf("sim: node %d: %s", e.Node, e.Reason) }

// Builder fills a Model node by node in program order. Each method that adds a
// node returns its number, which later nodes name as operand. The first error is
// kept and returned by Build; the numbers returned after it are still consecutive.
type Builder struct {
	m         Model
	predVal   []int32
	predOff   []int32
	allocOff  []int32
	resVal    []int32
	resOff    []int32
	extraNode []int32 // View waits: node whose storages stay in use, -1 if none
	keys      map[Key]int32
	streams   map[string]int32
	err       error
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

// Input adds an input whose storages have the given sizes in bytes. A pinned
// input (parameters, data) lives throughout; another (saved activations,
// tangents) to its last use.
func (b *Builder) Input(pinned bool, bytes ...int64) int32 {
	return b.add(Input, 0, nil, bytes, nil, true, pinned)
}

// Compute adds a node that runs for ms milliseconds on the compute stream and
// allocates one storage per result.
func (b *Builder) Compute(ms float64, operands []int32, bytes ...int64) int32 {
	return b.add(Compute, ms, operands, bytes, nil, true, false)
}

// View adds a free node that shares the storages of all its operands.
func (b *Builder) View(operands ...int32) int32 {
	var res []int32
	for _, p := range operands {
		res = append(res, b.results(p)...)
	}
	return b.add(View, 0, operands, nil, res, false, false)
}

// Pick adds a free node that shares storage k of its operand's results, such as
// one item of an operator with several results.
func (b *Builder) Pick(operand int32, k int) int32 {
	res := b.results(operand)
	if k < 0 || k >= len(res) {
		b.fail(int32(len(b.m.Kind)), fmt.Sprintf("result %d of node %d, which has %d", k, operand, len(res)))
		res = nil
	} else {
		res = res[k : k+1]
	}
	return b.add(View, 0, []int32{operand}, nil, slices.Clone(res), false, false)
}

// Start adds a collective that runs for ms milliseconds on the stream of
// key.Group and allocates one storage per result. size is the number of bytes
// that its cost depends on: max(operand bytes, result bytes), added over the
// members of a collective that is a bucket already. bucketable says whether it
// may join a bucket.
func (b *Builder) Start(ms float64, key Key, bucketable bool, size int64, operands []int32, bytes ...int64) int32 {
	s := b.Stream(key.Group)
	n := b.add(Start, ms, operands, bytes, nil, true, false)
	b.m.Stream[n] = s
	b.m.Bytes[n] = size
	if bucketable {
		k, ok := b.keys[key]
		if !ok {
			k = int32(len(b.m.Keys))
			b.keys[key] = k
			b.m.Keys = append(b.m.Keys, key)
		}
		b.m.Key[n] = k
	}
	return n
}

// Wait adds a wait. Its operand is a start, or an input that holds a collective
// in flight, of which the simulator assumes that it has finished. A second wait
// on the same collective names the first one; it blocks nothing and is a view
// that keeps the collective's storages live.
func (b *Builder) Wait(operand int32) int32 {
	n := int32(len(b.m.Kind))
	if operand < 0 || operand >= n {
		b.fail(n, fmt.Sprintf("operand %d does not come before it", operand))
		return b.add(View, 0, nil, nil, nil, false, false)
	}
	res := slices.Clone(b.results(operand))
	switch b.m.Kind[operand] {
	case Start:
		b.add(Wait, 0, []int32{operand}, nil, res, false, false)
		b.m.StartOf[n] = operand
		b.extraNode[n] = operand
	case Wait:
		b.add(View, 0, []int32{operand}, nil, res, false, false)
		b.extraNode[n] = b.m.StartOf[operand]
	case View: // a third wait
		b.add(View, 0, []int32{operand}, nil, res, false, false)
		b.extraNode[n] = b.extraNode[operand]
	default:
		b.add(Wait, 0, []int32{operand}, nil, res, false, false)
	}
	return n
}

// Output adds the node that uses the program's results and keeps them live.
func (b *Builder) Output(operands ...int32) int32 {
	return b.add(Output, 0, operands, nil, nil, false, false)
}

func (b *Builder) results(n int32) []int32 {
	if n < 0 || int(n) >= len(b.m.Kind) {
		return nil
	}
	return b.resVal[b.resOff[n]:b.resOff[n+1]]
}

func (b *Builder) fail(n int32, reason string) {
	if b.err == nil {
		b.err = &ModelError{Node: n, Reason: reason}
	}
}

func (b *Builder) add(k Kind, ms float64, operands []int32, bytes []int64, res []int32, owns, pinned bool) int32 {
	n := int32(len(b.m.Kind))
	if math.IsNaN(ms) || math.IsInf(ms, 0) || ms < 0 {
		b.fail(n, fmt.Sprintf("duration %v ms", ms))
		ms = 0
	}
	b.m.Kind = append(b.m.Kind, k)
	b.m.Dur = append(b.m.Dur, ms)
	b.m.Stream = append(b.m.Stream, -1)
	b.m.StartOf = append(b.m.StartOf, -1)
	b.m.Key = append(b.m.Key, -1)
	b.m.Bytes = append(b.m.Bytes, 0)
	b.extraNode = append(b.extraNode, -1)
	first := len(b.predVal)
	for _, p := range operands {
		if p < 0 || p >= n {
			b.fail(n, fmt.Sprintf("operand %d does not come before it", p))
			continue
		}
		if !slices.Contains(b.predVal[first:], p) || len(b.predVal)-first > 64 {
			b.predVal = append(b.predVal, p)
		}
	}
	if len(b.predVal)-first > 64 { // large lists: by sorting, as an output has thousands
		tail := b.predVal[first:]
		slices.Sort(tail)
		b.predVal = b.predVal[:first+len(slices.Compact(tail))]
	}
	b.predOff = append(b.predOff, int32(len(b.predVal)))
	if owns {
		for _, s := range bytes {
			if s < 0 || s > math.MaxInt64/4 {
				b.fail(n, fmt.Sprintf("a result of %d bytes", s))
				s = 0
			}
			res = append(res, int32(len(b.m.Size)))
			b.m.Size = append(b.m.Size, Round(s))
			b.m.Pinned = append(b.m.Pinned, pinned)
			b.m.Owner = append(b.m.Owner, n)
		}
	}
	b.allocOff = append(b.allocOff, int32(len(b.m.Size)))
	b.resVal = append(b.resVal, res...)
	b.resOff = append(b.resOff, int32(len(b.resVal)))
	return n
}

// Build returns the model. The builder must not be used afterwards. It takes
// time linear in nodes and edges.
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
	use := make([]int32, 0, len(b.predVal)+len(m.Size))
	off := make([]int32, 1, n+1)
	for i := int32(0); i < n; i++ {
		add := func(list []int32) {
			for _, s := range list {
				if stamp[s] != i {
					stamp[s] = i
					use = append(use, s)
				}
			}
		}
		for _, p := range m.Pred.At(i) {
			add(m.Result.At(p))
		}
		add(m.Alloc.At(i))
		if c := b.extraNode[i]; c >= 0 {
			for _, p := range m.Pred.At(c) {
				add(m.Result.At(p))
			}
			add(m.Result.At(c))
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
