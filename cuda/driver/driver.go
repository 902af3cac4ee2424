// Package driver is the part of the CUDA driver API that concert uses, as an interface, and
// its implementation on the real driver, loaded by dlopen.
//
// A build needs no CUDA toolkit. Without cgo, or off Linux, Open returns an error that
// wraps ErrNoDriver. Package fake implements the same interface on host memory, so that
// everything above the driver can be tested without a GPU.
package driver

import (
	"errors"
	"fmt"

	"github.com/seed-ee968945/concert/cuda/internal/hostmem"
)

// Handles of driver objects. The zero value of each names nothing, except that a
// zero Stream is the default stream, which nothing may use while a kernel may wait for a
// peer.
type (
	Ctx    uint64 // a device's primary context
	Stream uint64
	Event  uint64
	Module uint64
	Func   uint64 // a kernel of a loaded module
	Graph  uint64
	Exec   uint64 // an instantiated graph
	Mem    uint64 // a physical allocation that can be mapped
	Ptr    uint64 // a device address
)

// DeviceInfo describes one device. The ordinal is its index in Devices.
type DeviceInfo struct {
	Name   string
	UUID   [16]byte
	Major  int    // compute capability
	Minor  int    //
	SMs    int    // multiprocessors
	Memory uint64 // bytes
	FDs    bool   // physical memory can be shared as POSIX file descriptors
	Fabric bool   // the device claims fabric handles; only a trial shows that they work
	// Network says that physical memory can be made for network adapters to read and write.
	Network bool
	PCI     string // domain:bus:device
}

// Driver is the surface of the CUDA driver that concert uses. All methods
// may be called from any goroutine; objects belong to the context that made them.
// Errors are *Error.
type Driver interface {
	// Version is the CUDA version of the driver, 1000*major + 10*minor.
	Version() (int, error)
	Devices() ([]DeviceInfo, error)
	// CanAccessPeer says whether device dev can read and write device peer's memory.
	// Ordinals out of range are an error.
	CanAccessPeer(dev, peer int) (bool, error)

	// CtxRetain gives a device's primary context, which may live for as long as the process.
	CtxRetain(dev int) (Ctx, error)
	CtxRelease(dev int) error
	// CtxSync waits for all work of c. It begins when no stream of c is in a capture that
	// CaptureBegin began; one that another library began fails, and so does the call.
	CtxSync(c Ctx) error

	// StreamCreate gives a stream of the context, perhaps one that was destroyed when it was
	// idle: see StreamPool.
	StreamCreate(c Ctx) (Stream, error)
	// StreamCreateHighPriority makes a stream of the highest priority: its blocks get a free
	// place on a multiprocessor before those of other streams. For communication.
	StreamCreateHighPriority(c Ctx) (Stream, error)
	StreamDestroy(c Ctx, s Stream) error
	StreamSync(c Ctx, s Stream) error
	// StreamQuery reports whether all work in s has ended.
	StreamQuery(c Ctx, s Stream) (bool, error)
	StreamWait(c Ctx, s Stream, e Event) error
	StreamWrite32(c Ctx, s Stream, at Ptr, v uint32) error
	// StreamWait32 blocks the stream until int32(*at - v) >= 0.
	StreamWait32(c Ctx, s Stream, at Ptr, v uint32) error

	EventCreate(c Ctx, timing bool) (Event, error)
	EventDestroy(c Ctx, e Event) error
	EventRecord(c Ctx, e Event, s Stream) error
	EventQuery(c Ctx, e Event) (bool, error)
	// EventElapsed is the time between two recorded events in milliseconds.
	EventElapsed(c Ctx, from, to Event) (float32, error)

	MemAlloc(c Ctx, bytes uint64) (Ptr, error)
	MemFree(c Ctx, p Ptr) error
	MemInfo(c Ctx) (free, total uint64, err error)
	// HostAlloc gives page-locked zeroed memory that every device can reach: its host
	// address and its device address.
	HostAlloc(c Ctx, bytes uint64) (host uintptr, dev Ptr, err error)
	HostFree(c Ctx, host uintptr) error
	// CopyIn, CopyOut and Copy are ordered in s; the host forms return when the copy is done.
	CopyIn(c Ctx, s Stream, to Ptr, from []byte) error
	CopyOut(c Ctx, s Stream, to []byte, from Ptr) error
	Copy(c Ctx, s Stream, to, from Ptr, bytes uint64) error
	Memset32(c Ctx, s Stream, at Ptr, v uint32, words uint64) error

	// Granularity is the unit of sizes and addresses of mapped memory that is shared so.
	Granularity(c Ctx, dev int, how Sharing) (uint64, error)
	Reserve(c Ctx, bytes, align uint64) (Ptr, error)
	Unreserve(c Ctx, at Ptr, bytes uint64) error
	// MemCreate allocates physical memory on dev that can be exported in one way.
	MemCreate(c Ctx, dev int, bytes uint64, how Sharing) (Mem, error)
	MemRelease(c Ctx, m Mem) error
	Map(c Ctx, at Ptr, bytes uint64, m Mem) error
	Unmap(c Ctx, at Ptr, bytes uint64) error
	// Allow gives the devices read and write access to a mapped range.
	Allow(c Ctx, at Ptr, bytes uint64, devs []int) error
	// Export gives a file descriptor that the caller closes.
	Export(c Ctx, m Mem) (fd int, err error)
	// Import does not take fd over.
	Import(c Ctx, fd int) (Mem, error)
	// ExportFabric names memory that was made to be shared ByFabric. The name is good
	// while m lives.
	ExportFabric(c Ctx, m Mem) (FabricHandle, error)
	ImportFabric(c Ctx, h FabricHandle) (Mem, error)

	ModuleLoad(c Ctx, image []byte) (Module, error)
	ModuleUnload(c Ctx, m Module) error
	// Function readies a kernel, also its local memory: a launch waits for no other kernel. Like
	// loading its module, it may wait for those that run.
	Function(c Ctx, m Module, name string) (Func, error)
	// AllowShared raises the dynamic shared memory a block of f may ask for.
	AllowShared(c Ctx, f Func, bytes int) error
	// TensorMap encodes a map for a kernel's parameters, aligned to 64 bytes there.
	TensorMap(c Ctx, m *TensorMap) ([TensorMapBytes]byte, error)
	// Launch starts f with its parameters packed in buf as the kernel's ABI lays them out.
	Launch(c Ctx, s Stream, f Func, grid, block, shared int, buf []byte) error
	// Run executes a packed command buffer in one crossing.
	Run(c Ctx, words []uint64) error

	CaptureBegin(c Ctx, s Stream) error
	CaptureEnd(c Ctx, s Stream) (Graph, error)
	// StreamCapture is the number of the capture that s is part of, 0 for none.
	StreamCapture(c Ctx, s Stream) (uint64, error)
	// GraphInstantiate makes a graph executable. Nodes keep the priorities of the streams
	// that they were captured from.
	GraphInstantiate(c Ctx, g Graph) (Exec, error)
	GraphUpload(c Ctx, x Exec, s Stream) error
	GraphLaunch(c Ctx, x Exec, s Stream) error
	GraphDestroy(c Ctx, g Graph) error
	ExecDestroy(c Ctx, x Exec) error

	// Close releases what the driver value itself holds. Objects must be gone before.
	Close() error

	// Shared is what all worlds on the driver have in common, one value for as long as it
	// lives. A driver that wraps another passes the other's on.
	Shared() *Shared
}

// HostDriver is a Driver whose devices compute on the host: their addresses are the
// host's, and kernels of libraries are functions in Go. Package fake has one.
type HostDriver interface {
	Driver
	// RegisterCall gives a function that Commands.Call accepts on this driver. run is
	// called in stream order, in replays of a captured graph too, with a copy of the
	// words. Device memory is readable through HostBytes. An error it returns is the
	// stream's from then on.
	RegisterCall(run func(args []uint64) error) CFunc
}

// HostBytes views n bytes of the memory of a HostDriver's device. Use it only inside
// functions that RegisterCall took, or when no stream writes there; the view ends with the
// allocation.
func HostBytes(p Ptr, n uint64) []byte { return hostmem.Bytes(uintptr(p), int(n)) }

// ErrNoDriver is wrapped by every error of Open that means that this machine or
// this build has no usable CUDA driver.
var ErrNoDriver = errors.New("no usable CUDA driver")

// Error is a failed driver call.
type Error struct {
	Call string // the driver's name for it, such as cuMemCreate
	Code int    // CUresult
	Name string // CUDA_ERROR_...
	Text string
}

// Error names the call, the code and the driver's text.
func (e *Error) Error() string {
	s := fmt.Sprintf("%s: %s (%d): %s", e.Call, e.Name, e.Code, e.Text)
	if e.Code == codeLaunchFailed {
		s += " (a kernel stops so where an index is out of range)"
	}
	if Broken(e) {
		s += "; this process can use the device no more"
	}
	return s
}

const codeLaunchFailed = 719

// Broken reports whether err says that the context is lost: a kernel or the hardware has failed,
// and every call fails as that one did until the process ends.
func Broken(err error) bool {
	var e *Error
	if !errors.As(err, &e) {
		return false
	}
	switch e.Code {
	case 214, 220, // errors of memory and links that could not be corrected
		700, 702, 710, 714, 715, 716, 717, 718, codeLaunchFailed, // kernels that failed, or took too long
		709: // the context was destroyed
		return true
	}
	return false
}

// Codes that callers test for.
const (
	CodeNotReady    = 600
	CodeInvalid     = 1
	CodeOutOfMemory = 2

	CodeNotPermitted = 800
	CodeNotSupported = 801
)

// Is makes errors.Is match two driver errors of one code, whatever the call.
func (e *Error) Is(target error) bool {
	t, ok := target.(*Error)
	return ok && t.Code == e.Code && (t.Call == "" || t.Call == e.Call)
}

// ErrOutOfMemory matches, by errors.Is, a driver error for lack of device memory.
var ErrOutOfMemory error = &Error{Code: CodeOutOfMemory}

// launchBlocking is the variable by which drivers make every launch wait for its end.
const launchBlocking = "CUDA_LAUNCH_BLOCKING"

// LaunchBlockingError means that the environment makes every launch wait for its kernel,
// so that one that waits for a peer of this process would never return.
type LaunchBlockingError struct{ Value string }

// Error names the variable and what to do.
func (e *LaunchBlockingError) Error() string {
	return fmt.Sprintf("%s=%s is set: kernels that wait for a peer would never return; unset it", launchBlocking, e.Value)
}
