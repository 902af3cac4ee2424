// Package library is where the CUDA device and the libraries that compute for it
// meet: matrix products, attention, and whatever else is not generated. A library
// plans a call for fixed addresses and shapes, once; the plan then adds itself to
// command buffers, which run eagerly, packed, or captured into a graph.
//
// Libraries import this package and package cuda; the device imports them.
package library

import (
	"errors"

	"github.com/seed-ee968945/concert/cuda"
	"github.com/seed-ee968945/concert/internal/attr"
	"github.com/seed-ee968945/concert/internal/dtype"
)

// ErrNotServed is wrapped by errors of Library.Plan that mean that the library does
// not do this call: the device then asks the next one.
var ErrNotServed = errors.New("the library does not serve this call")

// Tensor is an operand or result in the memory of the rank's device.
type Tensor struct {
	At      cuda.Ptr // of element (0, 0, ...)
	DType   dtype.DType
	Shape   []int64
	Strides []int64 // in elements, never nil
}

// Call is one launch of a program: op, attributes, operands and results are those of
// the IR's op table.
type Call struct {
	Op        string // "matmul", "attention", "attention_backward", ...
	Attrs     attr.List
	Outs, Ins []Tensor
	// Workspace is memory that the call may use while it runs. Calls of one stream
	// share it, calls of different streams do not. It is aligned to 256 bytes.
	Workspace      cuda.Ptr
	WorkspaceBytes uint64
	// SMs is how many multiprocessors the call should leave its work to, so that
	// communication finds room beside it; 0 is all.
	SMs int
}

// Step is a planned call.
type Step interface {
	// AddTo adds the call to a command buffer on the stream cuda.Main. It may be
	// called any number of times and must not allocate device memory or block.
	AddTo(c *cuda.Commands)
	// String names the algorithm, for traces and records. Equal on all ranks that plan
	// the same call on equal devices.
	String() string
}

// Library plans calls for one rank. One goroutine at a time uses it.
type Library interface {
	// Plan readies a call. It may load code, ask for heuristics and time candidates, but
	// must not allocate device memory: kernels of other ranks may be waiting for this
	// rank. What it needs it takes when the library is opened, or from the workspace.
	Plan(c *Call) (Step, error)
	// Close frees what the library holds. All its work has ended.
	Close() error
}
