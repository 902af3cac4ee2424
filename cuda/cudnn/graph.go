package cudnn

import (
	"fmt"
	"math"

	"github.com/seed-ee968945/concert/internal/intmath"
)

// dataType is cuDNN's number of an element type.
type dataType int32

const (
	typeF32  dataType = 0
	typeF16  dataType = 2
	typeI32  dataType = 4
	typeBF16 dataType = 9
	typeBool dataType = 11
)

// pointMode is cuDNN's number of a pointwise operation.
type pointMode int32

const (
	modeAdd      pointMode = 0
	modeMul      pointMode = 1
	modeDiv      pointMode = 6
	modeSub      pointMode = 9
	modeExp      pointMode = 13
	modeLog      pointMode = 15
	modeIdentity pointMode = 21
	modeGE       pointMode = 303
	modeIndex    pointMode = 501
	modeSelect   pointMode = 601
)

// Reductions by cuDNN's numbers.
const (
	reduceAdd = 0
	reduceMax = 3
)

// role says where a tensor of a graph is.
type role int

const (
	virtual  role = iota // inside the engine's kernels
	external             // an operand or result of the call
	scratch              // in the workspace, before what the engine asks for
	scalar               // one f32 that the host passes
	moved                // in the workspace, a copy of an operand or result of the call
)

// tensor is one tensor of a graph. Sizes and strides have four entries, of convolutions of
// three dimensions five.
type tensor struct {
	uid           int64
	name          string
	typ           dataType
	role          role
	dims, strides []int64
	port          port    // of an external tensor, or of a copy
	offset        uint64  // in the workspace
	value         float32 // of a scalar
}

// port names the operands and results of a call.
type port int

const (
	portQ port = iota
	portK
	portV
	portOut
	portLSE
	portGrad
	portDQ
	portDK
	portDV
	portBias
	portImage
	portFilter
	portResult
	numPorts
)

type nodeKind int

const (
	matmul nodeKind = iota
	pointwise
	reduction
	reshape
	convForward // image, filter
	convData    // gradient of the result, filter
	convFilter  // image, gradient of the result
)

// node is one operation. Its operands are, for matmul, A and B; for pointwise, X, B
// and, of a selection, the mask.
type node struct {
	kind nodeKind
	name string
	mode int32    // pointMode, or the reduction
	prec dataType // that it computes in
	axis int64    // of modeIndex
	ins  []*tensor
	out  *tensor
	win  *slide // of a convolution
}

// graph is a list of operations in an order that respects what they read, and what is asked
// of the engine that computes them.
type graph struct {
	tensors []*tensor
	nodes   []*node
	scratch uint64 // bytes of its scratch tensors

	modes   []int32 // heuristics that are asked, one after the other
	never   []int32 // notes of engines that are not taken
	varying []int64 // engines whose results vary from run to run, though no note says so
	most    uint64  // bytes of workspace, whatever there is
}

const scratchAlign = 256

func packed(dims []int64) []int64 {
	s, n := make([]int64, len(dims)), int64(1)
	for i := len(dims) - 1; i >= 0; i-- {
		s[i] = n
		n *= max(dims[i], 1)
	}
	return s
}

func (g *graph) add(name string, typ dataType, r role, dims, strides []int64) *tensor {
	if strides == nil {
		strides = packed(dims)
	}
	t := &tensor{uid: int64(len(g.tensors)) + 1, name: name, typ: typ, role: r, dims: dims, strides: strides}
	g.tensors = append(g.tensors, t)
	return t
}

// scalar gives an f32 of shape [1, 1, 1, 1].
func (g *graph) scalar(name string, v float32) *tensor {
	t := g.add(name, typeF32, scalar, []int64{1, 1, 1, 1}, nil)
	t.value = v
	return t
}

// workspace gives a packed f32 tensor in the workspace.
func (g *graph) workspace(name string, dims []int64) *tensor {
	t := g.add(name, typeF32, scratch, dims, nil)
	g.place(t, 4*uint64(intmath.Product(dims)))
	return t
}

// copies counts the tensors that are in the workspace in another layout.
func (g *graph) copies() (n int) {
	for _, t := range g.tensors {
		if t.role == moved {
			n++
		}
	}
	return n
}

// place gives a tensor bytes of the workspace.
func (g *graph) place(t *tensor, bytes uint64) {
	t.offset = g.scratch
	g.scratch += (bytes + scratchAlign - 1) &^ (scratchAlign - 1)
}

// into appends a node with a given result.
func (g *graph) into(n *node, out *tensor) *tensor {
	n.out = out
	g.nodes = append(g.nodes, n)
	return out
}

// virtual appends a node whose result is virtual, f32 and packed.
func (g *graph) virtual(n *node, dims []int64) *tensor {
	return g.into(n, g.add(n.name, typeF32, virtual, dims, nil))
}

func point(name string, mode pointMode, ins ...*tensor) *node {
	return &node{kind: pointwise, name: name, mode: int32(mode), prec: typeF32, ins: ins}
}

func product(name string, a, b *tensor) *node {
	return &node{kind: matmul, name: name, prec: typeF32, ins: []*tensor{a, b}}
}

func reduce(name string, mode int32, x *tensor) *node {
	return &node{kind: reduction, name: name, mode: mode, prec: typeF32, ins: []*tensor{x}}
}

func view(name string, x *tensor) *node {
	return &node{kind: reshape, name: name, ins: []*tensor{x}}
}

// causal puts -inf where the column of x is greater than the row. Engines recognise
// this very chain.
func (g *graph) causal(x *tensor) *tensor {
	row := g.virtual(point("row", modeIndex, x), x.dims)
	g.nodes[len(g.nodes)-1].axis = 2
	row.typ = typeI32
	col := g.virtual(point("column", modeIndex, x), x.dims)
	g.nodes[len(g.nodes)-1].axis = 3
	col.typ = typeI32
	below := point("row >= column", modeGE, row, col)
	below.prec = typeBool
	mask := g.virtual(below, x.dims)
	mask.typ = typeBool
	return g.virtual(point("causal", modeSelect, x, g.scalar("-inf", float32(math.Inf(-1))), mask), x.dims)
}

func (t *tensor) String() string { return fmt.Sprintf("tensor %d %q %v", t.uid, t.name, t.dims) }
func (n *node) String() string   { return fmt.Sprintf("operation %q", n.name) }
