// Package library is the interface between the CUDA device and the libraries that compute for
// it: matmuls, attention, and whatever else is not generated. A library
// plans a call for fixed addresses and shapes, once; the plan then appends itself to
// command buffers, which run eagerly, packed, or captured into a graph.
//
// Libraries import this package and package cuda; the device imports them.
package library

import (
	"errors"
	"fmt"

	"github.com/seed-ee968945/concert/cuda/driver"
	"github.com/seed-ee968945/concert/internal/attr"
	"github.com/seed-ee968945/concert/internal/dtype"
)

// ErrUnavailable is wrapped by errors of opening a library that is not installed or that the
// machine does not run.
var ErrUnavailable = errors.New("the library cannot be used on this machine")

// ErrNotServed is wrapped by errors of Library.Plan that mean that the library does
// not do this call: the device then asks the next one.
var ErrNotServed = errors.New("the library does not serve this call")

// ErrOtherOp is ErrNotServed of a library that has nothing to do with the operation.
var ErrOtherOp = fmt.Errorf("%w: it is for other operations", ErrNotServed)

// Tensor is an operand or result in the memory of the rank's device.
type Tensor struct {
	At      driver.Ptr // of element (0, 0, ...)
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
	Workspace      driver.Ptr
	WorkspaceBytes uint64
	// SMs is how many multiprocessors the call should leave its work to, so that
	// communication can be co-resident; 0 is all.
	SMs int
}

// Step is a planned call.
type Step interface {
	// AddTo adds the call to a command buffer on the stream driver.Main. It may be
	// called any number of times and must not allocate device memory or block.
	AddTo(c *driver.Commands)
	// String names the algorithm, for traces and records. Equal on all ranks that plan
	// the same call on equal devices.
	String() string
}

// Joiner is a Step that can be run as one with steps behind it in its stream.
type Joiner interface {
	Step
	// Join gives a step that does this one and the first n of next, which follow it with
	// nothing between them; n is 0 if there is none. Its results may differ from theirs
	// by rounding. It may do what Library.Plan may, and leaves as little to load.
	Join(next []Step) (joined Step, n int, err error)
}

// DependentLauncher is a Step that can begin before the kernel before it in its stream has
// ended, see driver.Commands.LaunchDependent.
type DependentLauncher interface {
	Step
	// Ahead lists the memory that it reads before the kernel in front has ended.
	Ahead() []Memory
	// AddDependentTo is AddTo with an early launch. What is in front must be a kernel that
	// began after everything before it had ended, and writes nothing of Ahead.
	AddDependentTo(c *driver.Commands)
}

// Prefetcher is a Step bound by reading memory that nothing writes shortly before.
type Prefetcher interface {
	Step
	// AddPrefetchTo adds a launch that brings up to limit bytes of that memory into the
	// device's cache. It changes nothing and may run at any time before the step.
	AddPrefetchTo(c *driver.Commands, limit uint64)
}

// Releaser is a Step that holds something of its library. The device releases it once,
// when no commands of it will be enqueued again and those that were have ended; what it
// joined may go on. Without that a library keeps what its steps hold until it is closed,
// and a program whose sizes never repeat makes steps without end.
type Releaser interface {
	Step
	// Release releases what the step holds. Library.Close does so for all others.
	Release() error
}

// Memory is a range of a device's memory.
type Memory struct {
	At    driver.Ptr
	Bytes uint64
}

// Overlaps reports whether the ranges share a byte.
func (m Memory) Overlaps(o Memory) bool {
	return m.At < o.At+driver.Ptr(o.Bytes) && o.At < m.At+driver.Ptr(m.Bytes)
}

// Library plans calls for one rank. One goroutine at a time uses it and its steps.
type Library interface {
	// Plan readies a call. It may load code, ask for heuristics and time candidates, but
	// must not allocate device memory: what the call needs it takes when the library is
	// opened, or from the workspace.
	//
	// The step leaves nothing to load. Its commands, early or not, what it fetches, and
	// what Join makes of it, neither load code nor allocate when they are first enqueued
	// or captured: the driver would hold locks of the whole process for that and wait for
	// the device, where kernels may be waiting for this rank. A Loader does it.
	Plan(c *Call) (Step, error)
	// Close frees what the library holds. All its work has ended.
	Close() error
}

// SizeReader is a Library whose kernels take sizes from the device's memory.
type SizeReader interface {
	// PlanSized is Plan of a call whose tensors have their sizes and strides in sized: numbers,
	// or less than 0 for those that are in memory, at the address of the other bits.
	// bounds has the bounds of all of them.
	PlanSized(bounds, sized *Call) (Step, error)
}
