package driver

import "errors"

// Condition is the number by which a conditional node of a graph decides.
type Condition uint64

// Node is a node of a graph that is being captured.
type Node uint64

// Conditioner is implemented by a Driver whose graphs can run loops and choose
// branches by themselves, by conditional nodes. A driver library that is too old for them
// gives errors that match ErrNoConditions.
//
// A capture with such a node has several parts: CaptureDivide ends the one before the node,
// and CaptureInto begins each body, and what comes after the node. CaptureEnd ends these,
// and gives the graph that they were captured into. All belong to the graph of the first part.
type Conditioner interface {
	// Conditions reports why there are no conditional nodes, nil if there are.
	Conditions() error
	// ConditionCreate makes a number of the graph that s is being captured into, for one
	// node of it. Kernels set it by cudaGraphSetConditional, before the node in each
	// launch of the graph, and in the body of a loop.
	ConditionCreate(c Ctx, s Stream) (Condition, error)
	// CaptureDivide ends the capture of s, as CaptureEnd does, with a node behind all that
	// s has been given. Of a loop there is one body, which runs as long as the number is
	// not 0; else the body of the number runs, none if there is none.
	CaptureDivide(c Ctx, s Stream, by Condition, loop bool, bodies int) (*Division, error)
	// CaptureInto begins the capture of s into a graph that is being made: behind a
	// node of it, or as a body, which has none.
	CaptureInto(c Ctx, s Stream, g Graph, behind Node) error
}

// Division is a conditional node, the graph that it stands in, and its bodies, all empty.
type Division struct {
	Graph  Graph
	Node   Node
	Bodies []Graph
}

// ErrNoConditions means that the driver's graphs have no conditional nodes.
var ErrNoConditions = errors.New("no conditional nodes")
