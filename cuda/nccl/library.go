package nccl

import (
	"errors"
	"fmt"

	"github.com/seed-ee968945/concert/internal/dtype"
)

// ID is NCCL's unique id: how the ranks of one communicator find each other.
type ID [128]byte

// Handle names a communicator of a Library; 0 names none.
type Handle uintptr

// CallKind is what one Call does.
type CallKind uint8

// The kinds of calls. Copy and Zero are the driver's; they come before all others.
const (
	CallCopy CallKind = iota // Count bytes from Send to Recv
	CallZero                 // Count zero bytes to Recv
	CallAllReduce
	CallBroadcast // Peer is the root
	CallReduce    // Peer is the root
	CallAllGather
	CallReduceScatter
	CallSend // to Peer
	CallRecv // from Peer
)

var callNames = [...]string{"cuMemcpyAsync", "cuMemsetD8Async", "ncclAllReduce", "ncclBroadcast", "ncclReduce",
	"ncclAllGather", "ncclReduceScatter", "ncclSend", "ncclRecv"}

// String is the library's name of the call.
func (k CallKind) String() string {
	if int(k) < len(callNames) {
		return callNames[k]
	}
	return fmt.Sprintf("call(%d)", uint8(k))
}

// Call is one call of the library or the driver on device memory.
type Call struct {
	Kind       CallKind
	Type       dtype.DType
	Reduce     Reduction
	Peer       int // root of a broadcast or reduce, partner of a send or receive
	Send, Recv uintptr
	Count      uint64 // elements as NCCL counts them: of one rank's piece for all_gather and reduce_scatter
}

// Config tunes a communicator. The zero value leaves everything to the library.
type Config struct {
	MinCTAs, MaxCTAs int // bounds of the thread blocks that a collective takes
}

// Library is the table of what this package uses of NCCL. ctx is the driver's
// context of the rank's device, which is made current for the call; 0 leaves the
// thread's current context alone. Errors are *Error. Methods may be called from
// any goroutine, those on one communicator by one at a time, except AsyncError.
type Library interface {
	// Version is that of NCCL, 10000*major + 100*minor + patch.
	Version() (int, error)
	UniqueID() (ID, error)
	// Init begins to join a non-blocking communicator of n ranks. It is complete
	// when AsyncError no longer reports InProgress.
	Init(ctx uintptr, n int, id ID, rank int, c Config) (Handle, error)
	// AsyncError is the communicator's state: Success, InProgress, or why it failed.
	AsyncError(h Handle) (Code, error)
	// Submit enqueues calls on stream: copies at once, the rest as one group. An
	// error with code InProgress says that the group is complete when AsyncError
	// no longer reports InProgress.
	Submit(ctx uintptr, h Handle, stream uintptr, calls []Call) error
	// Registers says whether Register does something for the network: nil, or a *LackError.
	Registers() error
	// Register lets the network read and write memory of the rank until Deregister, which comes
	// before Finalize or Abort. Neither waits for a peer.
	Register(ctx uintptr, h Handle, at uintptr, bytes uint64) (Registration, error)
	Deregister(ctx uintptr, h Handle, r Registration) error
	// Finalize begins to end the communicator; completion is as for Init.
	Finalize(ctx uintptr, h Handle) error
	// Destroy frees a finalized communicator, Abort any, ending its kernels.
	Destroy(ctx uintptr, h Handle) error
	Abort(ctx uintptr, h Handle) error
	// LastError is the library's last message, for errors.
	LastError(h Handle) string
}

// Code is a result of the library.
type Code int

// The results of the library, and one of our own for the driver's calls.
const (
	Success         Code = 0
	UnhandledCUDA   Code = 1
	SystemError     Code = 2
	InternalError   Code = 3
	InvalidArgument Code = 4
	InvalidUsage    Code = 5
	RemoteError     Code = 6
	InProgress      Code = 7
	Timeout         Code = 8
	// DriverError is a failed driver call; Error.Driver has its code.
	DriverError Code = 100
)

var codeTexts = map[Code]string{
	Success: "success", UnhandledCUDA: "a CUDA call inside NCCL failed", SystemError: "a system call inside NCCL failed",
	InternalError: "internal error of NCCL", InvalidArgument: "invalid argument", InvalidUsage: "invalid usage",
	RemoteError: "a peer failed or its connection broke", InProgress: "in progress", Timeout: "time-out inside NCCL",
	DriverError: "a driver call failed",
}

// String says what the code means.
func (c Code) String() string {
	if s, ok := codeTexts[c]; ok {
		return s
	}
	return fmt.Sprintf("NCCL result %d", int(c))
}

// Error is a failed call of the library.
type Error struct {
	Call   string // such as ncclCommInitRankConfig
	Code   Code
	Driver int    // the driver's code when Code is DriverError
	Text   string // the library's message, may be empty
}

// Error names the call, the code and the library's message.
func (e *Error) Error() string {
	s := fmt.Sprintf("%s: %v (%d)", e.Call, e.Code, int(e.Code))
	if e.Code == DriverError {
		s = fmt.Sprintf("%s: CUDA driver error %d", e.Call, e.Driver)
	}
	if e.Text != "" {
		s += ": " + e.Text
	}
	return s
}

// Is matches an *Error of the same code, whatever the call.
func (e *Error) Is(target error) bool {
	t, ok := target.(*Error)
	return ok && t.Code == e.Code && (t.Call == "" || t.Call == e.Call)
}

// ErrNoLibrary is wrapped by every error of Open that means that this machine or
// this build has no usable NCCL.
var ErrNoLibrary = errors.New("no usable NCCL")

// code gives the result that err carries; Success for nil, InternalError for an
// error of another kind.
func code(err error) Code {
	if err == nil {
		return Success
	}
	var e *Error
	if errors.As(err, &e) {
		return e.Code
	}
	return InternalError
}
