// Package sim evaluates schedules for every scheduling pass: it computes the timeline,
// the memory curve and lower bounds of one ordered program.
//
// The package works on a [Model], a flat, dense form of a program that holds
// only what time and memory depend on: dependencies, durations, communication
// streams and storages. A [Builder] fills one.
//
// # Rules
//
// One compute stream runs the compute nodes in list order. Every process group
// has one communication stream. A collective starts when the compute clock
// reaches its place in the list and its stream is free; a wait blocks the
// compute stream until its collective has finished. The makespan is the last
// finish; exposed time is the makespan minus the sum of compute durations.
//
// Every result of every node is a storage, rounded up to [Align] bytes; a view
// or a wait shares its operand's. All inputs are live at the start, pinned
// storages to the end, every other storage to its last use; operands and
// results of a collective at least to its last wait. Memory is sampled after
// each node's allocations and before its frees.
package sim

import "fmt"

// Align is the granularity, in bytes, to which every storage is rounded up.
const Align = 512

// Kind says what a node is to the simulator.
type Kind uint8

// The kinds of nodes.
const (
	Input   Kind = iota // storage that exists before the program runs
	Compute             // runs on the compute stream
	View                // free; shares storages of its operands, allocates nothing
	Start               // issues a collective on its communication stream
	Wait                // blocks the compute stream until its start has finished
	Output              // uses results; keeps them live to the end
)

// String returns the lower-case name of the kind.
func (k Kind) String() string {
	if int(k) < len(kindNames) {
		return kindNames[k]
	}
	return fmt.Sprintf("kind(%d)", uint8(k))
}

var kindNames = [...]string{"input", "compute", "view", "start", "wait", "output"}

// Lists is a dense table of int32 lists: the list of i is Val[Off[i]:Off[i+1]].
type Lists struct {
	Off []int32
	Val []int32
}

// At returns the list of i. The caller must not change it.
func (l *Lists) At(i int32) []int32 { return l.Val[l.Off[i]:l.Off[i+1]] }

// Len returns the number of lists.
func (l *Lists) Len() int { return len(l.Off) - 1 }

// Key is what collectives must have in common to share a bucket.
type Key struct {
	Op        string // operator, for example "all_gather"
	Group     string // process group
	GroupSize int    // ranks per replica group
	Reduce    string // reduction, empty for operators that do not reduce
	Attrs     string // what else must agree, in any spelling
}

// Model is one program as the simulator sees it. Nodes are numbered in the order
// of the input program, which is a legal order. A Model is immutable once built
// and may be read by several goroutines.
type Model struct {
	Kind    []Kind
	Dur     []float64 // milliseconds; of starts on their stream, 0 for views, waits, inputs, outputs
	Stream  []int32   // communication stream of a start, else -1
	StartOf []int32   // start that a wait waits for, else -1; also -1 for a wait of an input in flight
	Key     []int32   // index into Keys of a start that may join a bucket, else -1
	Bytes   []int64   // of a start: max(operand bytes, result bytes), the size its cost depends on
	Keys    []Key
	Streams int // number of communication streams

	Pred Lists // node -> operands, each once
	Succ Lists // node -> users, ascending

	Size   []int64 // storage -> bytes, a multiple of Align
	Pinned []bool  // storage lives to the end once it exists
	Owner  []int32 // storage -> node that allocates it
	Alloc  Lists   // node -> storages it allocates (inputs included)
	Result Lists   // node -> storages its results are in
	Use    Lists   // node -> storages it keeps live: operands', results' and, of a wait, those of its start
}

// Len returns the number of nodes.
func (m *Model) Len() int { return len(m.Kind) }

// ComputeTime returns the sum of compute durations in milliseconds, added in
// input order.
func (m *Model) ComputeTime() float64 {
	s := 0.0
	for i, k := range m.Kind {
		if k == Compute {
			s += m.Dur[i]
		}
	}
	return s
}

// InputOrder returns the order of the input program: 0, 1, ..., Len()-1.
func (m *Model) InputOrder() []int32 {
	o := make([]int32, m.Len())
	for i := range o {
		o[i] = int32(i)
	}
	return o
}

// Round returns bytes rounded up to a multiple of Align.
func Round(bytes int64) int64 { return (bytes + Align - 1) / Align * Align }
