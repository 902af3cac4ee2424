//go:build linux && cgo && (amd64 || arm64)

package nccl

/*
#cgo CFLAGS: -O2 -Wall
#cgo LDFLAGS: -ldl
#include <stdlib.h>
#include "shim.h"
*/
import "C"

import (
	"os"
	"unsafe"

	"github.com/seed-ee968945/concert/cuda/dl"
	"github.com/seed-ee968945/concert/internal/dtype"
)

// lib is NCCL behind dlopen.
type lib struct{}

// libraries are NCCL's and the driver's, which a process loads once.
var nccl, cuda = dl.Library{Kind: ErrNoLibrary, Needs: "NCCL 2.17 or newer",
	Names: []string{"libnccl.so.2", "libnccl.so", "/usr/lib/x86_64-linux-gnu/libnccl.so.2", "/usr/lib/aarch64-linux-gnu/libnccl.so.2", "/usr/local/lib/libnccl.so.2"}},
	dl.Library{Kind: ErrNoLibrary, Needs: "a driver of CUDA 12", Names: dl.Driver}

// Open loads NCCL. path is the library to use; empty means the usual names. Only
// one NCCL can be in use in a process: asking for a second one by another path is
// an error. The error is a *dl.LoadError that wraps ErrNoLibrary when there is none that can
// be used. Unless the environment has NCCL_GRAPH_REGISTER, it becomes 0.
func Open(path string) (Library, error) { return open("", path) }

// open loads the driver and NCCL, by other paths in tests.
func open(driver, path string) (Library, error) {
	if _, err := cuda.Load(driver, func(l unsafe.Pointer) string { return C.GoString(C.nc_bind_driver(l)) }); err != nil {
		return nil, err
	}
	if _, err := nccl.Load(path, func(l unsafe.Pointer) string { return C.GoString(C.nc_bind(l)) }); err != nil {
		return nil, err
	}
	if _, ok := os.LookupEnv(ownRegistrations); !ok {
		if err := os.Setenv(ownRegistrations, "0"); err != nil {
			return nil, err
		}
	}
	return lib{}, nil
}

// ownRegistrations is where NCCL is told to leave the registration of captured memory to us. Its
// own end when a graph is long gone, and until then serve whatever is at the same addresses.
const ownRegistrations = "NCCL_GRAPH_REGISTER"

// check turns a result into an error.
func check(call string, h Handle, rc C.int) error {
	switch {
	case rc == 0:
		return nil
	case rc <= C.NC_DRIVER:
		return &Error{Call: call, Code: DriverError, Driver: int(C.NC_DRIVER - rc)}
	case rc == C.NC_NOT_LOADED:
		return &Error{Call: call, Code: InvalidUsage, Text: "the library is not loaded"}
	case rc < 0:
		return &Error{Call: call, Code: InvalidArgument, Text: "unknown call"}
	case rc == 7:
		return &Error{Call: call, Code: InProgress}
	}
	return &Error{Call: call, Code: Code(rc), Text: C.GoString(C.nc_last_error(C.uintptr_t(h)))}
}

func (lib) Version() (int, error) {
	var v C.int
	err := check("ncclGetVersion", 0, C.nc_version(&v))
	return int(v), err
}

func (lib) UniqueID() (id ID, err error) {
	err = check("ncclGetUniqueId", 0, C.nc_unique_id(unsafe.Pointer(&id[0])))
	return id, err
}

func (lib) Init(ctx uintptr, n int, id ID, rank int, c Config) (Handle, error) {
	var h C.uintptr_t
	rc := C.nc_init(C.uintptr_t(ctx), &h, C.int(n), unsafe.Pointer(&id[0]), C.int(rank), C.int(c.MinCTAs), C.int(c.MaxCTAs))
	return Handle(h), check("ncclCommInitRankConfig", 0, rc)
}

func (lib) AsyncError(h Handle) (Code, error) {
	var state C.int
	err := check("ncclCommGetAsyncError", h, C.nc_async_error(C.uintptr_t(h), &state))
	return Code(state), err
}

// Numbers of element types and reductions in NCCL's interface. It has no integers of 16
// bits: as what only moves, they are f16.
var (
	typeNumbers   = map[dtype.DType]C.uint64_t{dtype.I8: 0, dtype.U8: 1, dtype.Bool: 1, dtype.I32: 2, dtype.U32: 3, dtype.I64: 4, dtype.U64: 5, dtype.F16: 6, dtype.I16: 6, dtype.U16: 6, dtype.F32: 7, dtype.F64: 8, dtype.BF16: 9}
	reduceNumbers = [...]C.uint64_t{Sum: 0, Product: 1, Max: 2, Min: 3, Avg: 4}
)

func (lib) Submit(ctx uintptr, h Handle, stream uintptr, calls []Call) error {
	if len(calls) == 0 {
		return nil
	}
	packed := make([]C.nc_call, len(calls))
	for i := range calls {
		c := &calls[i]
		packed[i] = C.nc_call{kind: C.uint64_t(c.Kind), _type: typeNumbers[c.Type], reduce: reduceNumbers[c.Reduce], peer: C.uint64_t(c.Peer),
			send: C.uint64_t(c.Send), recv: C.uint64_t(c.Recv), count: C.uint64_t(c.Count)}
	}
	var failed C.size_t
	rc := C.nc_submit(C.uintptr_t(ctx), C.uintptr_t(h), C.uintptr_t(stream), &packed[0], C.size_t(len(packed)), &failed)
	name := "ncclGroupEnd"
	if int(failed) < len(calls) {
		name = calls[failed].Kind.String()
	}
	return check(name, h, rc)
}

func (l lib) Registers() error {
	v, err := l.Version()
	switch {
	case err != nil:
		return err
	case C.nc_registers() == 0:
		return &LackError{Version: v, Call: "ncclCommRegister"}
	case v < registers:
		return &LackError{Version: v}
	case os.Getenv(ownRegistrations) != "0":
		return &LackError{Version: v, Setting: ownRegistrations + "=0"}
	}
	return nil
}

func (lib) Register(ctx uintptr, h Handle, at uintptr, bytes uint64) (Registration, error) {
	var r C.uintptr_t
	rc := C.nc_register(C.uintptr_t(ctx), C.uintptr_t(h), C.uintptr_t(at), C.size_t(bytes), &r)
	return Registration(r), check("ncclCommRegister", h, rc)
}

func (lib) Deregister(ctx uintptr, h Handle, r Registration) error {
	return check("ncclCommDeregister", h, C.nc_deregister(C.uintptr_t(ctx), C.uintptr_t(h), C.uintptr_t(r)))
}

func (lib) Finalize(ctx uintptr, h Handle) error {
	return check("ncclCommFinalize", h, C.nc_finalize(C.uintptr_t(ctx), C.uintptr_t(h)))
}

func (lib) Destroy(ctx uintptr, h Handle) error {
	return check("ncclCommDestroy", 0, C.nc_destroy(C.uintptr_t(ctx), C.uintptr_t(h)))
}

func (lib) Abort(ctx uintptr, h Handle) error {
	return check("ncclCommAbort", 0, C.nc_abort(C.uintptr_t(ctx), C.uintptr_t(h)))
}

func (lib) LastError(h Handle) string { return C.GoString(C.nc_last_error(C.uintptr_t(h))) }
