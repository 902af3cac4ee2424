//go:build linux && cgo && (amd64 || arm64)

package driver

/*
#cgo CFLAGS: -O2 -Wall
#cgo LDFLAGS: -ldl
#include <stdlib.h>
#include "shim.h"
*/
import "C"

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"strings"
	"sync"
	"unsafe"

	"github.com/seed-ee968945/concert/cuda/dl"
)

// lib is the driver behind libcuda.
type lib struct{}

// opened is what Open has loaded.
var opened struct {
	sync.Mutex
	library *dl.Library // nil before
}

// Open loads the driver library and initialises the driver. path is the library
// to use; empty means the usual names. Modules are loaded eagerly for the whole
// process (CUDA_MODULE_LOADING), because a kernel that waits for a peer must
// never make another kernel wait for its code; and each context gets the most hardware
// queues (CUDA_DEVICE_MAX_CONNECTIONS, unless it is set), because streams that share
// a queue wait for each other.
//
// The library is loaded once for the process: later calls get it, too, if they ask for
// no other one, which is a *dl.LoadError. A call that fails leaves nothing behind, and may
// be repeated. The error wraps ErrNoDriver when there is no driver, and is a
// *LaunchBlockingError where the environment makes launches wait.
func Open(path string) (Driver, error) {
	opened.Lock()
	defer opened.Unlock()
	if opened.library != nil {
		if _, err := opened.library.Load(path, nil); err != nil {
			return nil, err
		}
		return lib{}, nil
	}
	// Drivers read this at the first call.
	if v := os.Getenv(launchBlocking); v != "" && v != "0" {
		return nil, &LaunchBlockingError{Value: v}
	}
	setenv("CUDA_MODULE_LOADING", "EAGER", true)
	setenv("CUDA_DEVICE_MAX_CONNECTIONS", "32", false)
	library := &dl.Library{Kind: ErrNoDriver, Needs: "CUDA 12", Names: dl.Driver}
	name, err := library.Load(path, func(lib unsafe.Pointer) string { return C.GoString(C.cc_bind(lib)) })
	if err != nil {
		return nil, err
	}
	if err := check("cuInit", C.cc_init(0)); err != nil {
		return nil, fmt.Errorf("%w: %s: %w", ErrNoDriver, name, err)
	}
	opened.library = library
	return lib{}, nil
}

// setenv changes C's environment, which the driver reads, and which Go's Setenv also
// writes, but only with cgo's help.
func setenv(name, value string, overwrite bool) {
	n, v := C.CString(name), C.CString(value)
	defer C.free(unsafe.Pointer(n))
	defer C.free(unsafe.Pointer(v))
	var o C.int
	if overwrite {
		o = 1
	}
	C.setenv(n, v, o)
}

func check(call string, rc C.int) error {
	if rc == 0 {
		return nil
	}
	e := &Error{Call: call, Code: int(rc), Name: "unknown", Text: "no text"}
	var s *C.char
	if C.cc_error_name(rc, &s) == 0 && s != nil {
		e.Name = C.GoString(s)
	}
	if C.cc_error_text(rc, &s) == 0 && s != nil {
		e.Text = C.GoString(s)
	}
	switch rc {
	case C.CC_BAD_COMMAND:
		e.Name, e.Text = "CONCERT_BAD_COMMAND", "malformed command buffer"
	case C.CC_NOT_LOADED:
		e.Name, e.Text = "CONCERT_NOT_LOADED", "the driver library is not loaded"
	}
	if rc < callStatus {
		return callError(int(rc))
	}
	return e
}

// in runs f with c current: both happen on one thread.
func in(c Ctx, call string, f func() C.int) error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if rc := C.cc_set_context(C.handle(c)); rc != 0 {
		return check("cuCtxSetCurrent", rc)
	}
	return check(call, f())
}

// give is in for calls that give an object back: of a broken context it is gone. What broke it
// is an error of the work.
func give(c Ctx, call string, f func() C.int) error {
	if err := in(c, call, f); !Broken(err) {
		return err
	}
	return nil
}

func (lib) Close() error { return nil }

// libShared is one for the process, as the library is.
var libShared Shared

func (lib) Shared() *Shared { return &libShared }

func (lib) Version() (int, error) {
	var v C.int
	err := check("cuDriverGetVersion", C.cc_version(&v))
	return int(v), err
}

// Device attributes by their numbers in the driver's interface.
const (
	attrSMs    = 16
	attrBus    = 33
	attrDevice = 34
	attrDomain = 50
	attrMajor  = 75
	attrMinor  = 76
	attrFDs    = 103
	attrRDMA   = 110
	attrFabric = 128
)

func (lib) Devices() ([]DeviceInfo, error) {
	var n C.int
	if err := check("cuDeviceGetCount", C.cc_device_count(&n)); err != nil {
		return nil, err
	}
	out := make([]DeviceInfo, n)
	for i := range out {
		d := &out[i]
		var name [128]C.char
		if err := check("cuDeviceGetName", C.cc_device_name(&name[0], C.int(len(name)), C.int(i))); err != nil {
			return nil, err
		}
		d.Name = strings.TrimSpace(C.GoString(&name[0]))
		if err := check("cuDeviceGetUuid", C.cc_device_uuid(unsafe.Pointer(&d.UUID[0]), C.int(i))); err != nil {
			return nil, err
		}
		var mem C.size_t
		if err := check("cuDeviceTotalMem", C.cc_device_mem(&mem, C.int(i))); err != nil {
			return nil, err
		}
		d.Memory = uint64(mem)
		get := func(attr C.int) int {
			var v C.int
			C.cc_device_attr(&v, attr, C.int(i)) // an attribute the driver does not know stays 0
			return int(v)
		}
		d.Major, d.Minor, d.SMs = get(attrMajor), get(attrMinor), get(attrSMs)
		d.FDs, d.Fabric, d.Network = get(attrFDs) == 1, get(attrFabric) == 1, get(attrRDMA) == 1
		d.PCI = fmt.Sprintf("%04x:%02x:%02x", get(attrDomain), get(attrBus), get(attrDevice))
	}
	return out, nil
}

func (l lib) CanAccessPeer(dev, peer int) (bool, error) {
	var n C.int
	if err := check("cuDeviceGetCount", C.cc_device_count(&n)); err != nil {
		return false, err
	}
	if dev < 0 || dev >= int(n) || peer < 0 || peer >= int(n) {
		return false, fmt.Errorf("device pair (%d, %d) out of range: this machine has %d devices", dev, peer, int(n))
	}
	var ok C.int
	err := check("cuDeviceCanAccessPeer", C.cc_device_peer(&ok, C.int(dev), C.int(peer)))
	return ok == 1, err
}

// libStreams are those of the process's contexts, which it keeps for their sake, as the CUDA
// runtime does.
var (
	libStreams StreamPool
	libKept    sync.Map // by device
)

func (lib) CtxRetain(dev int) (Ctx, error) {
	var h C.handle
	err := check("cuDevicePrimaryCtxRetain", C.cc_ctx_retain(&h, C.int(dev)))
	if err != nil {
		return 0, err
	}
	if _, kept := libKept.LoadOrStore(dev, true); !kept {
		err = check("cuDevicePrimaryCtxRetain", C.cc_ctx_retain(&h, C.int(dev)))
	}
	if err != nil {
		return 0, err
	}
	const queues = 32 // see Open
	if err := libStreams.Reserve(Ctx(h), queues, makeStream(Ctx(h))); err != nil {
		return 0, errors.Join(err, lib{}.CtxRelease(dev))
	}
	return Ctx(h), nil
}

func (lib) CtxRelease(dev int) error {
	return check("cuDevicePrimaryCtxRelease", C.cc_ctx_release(C.int(dev)))
}

func (lib) CtxSync(c Ctx) error {
	return libShared.SyncContext(c, func() error {
		return in(c, "cuCtxSynchronize", func() C.int { return C.cc_ctx_sync() })
	})
}

func (lib) StreamCreate(c Ctx) (Stream, error) { return libStreams.Take(c, false, makeStream(c)) }

func (lib) StreamCreateHighPriority(c Ctx) (Stream, error) {
	return libStreams.Take(c, true, makeStream(c))
}

// makeStream makes streams of a context.
func makeStream(c Ctx) func(high bool) (Stream, error) {
	return func(high bool) (Stream, error) {
		const nonBlocking = 1
		priority := C.int(0)
		if high {
			priority = -100 // more than any device has: the driver takes its highest
		}
		var h C.handle
		err := in(c, "cuStreamCreateWithPriority", func() C.int { return C.cc_stream_create(&h, nonBlocking, priority) })
		return Stream(h), err
	}
}

func (l lib) StreamDestroy(c Ctx, s Stream) error {
	left := libShared.Destroying(s)
	idle, _ := l.StreamQuery(c, s) // one that fails is destroyed, and says so there
	kept, err := libStreams.Give(s, idle)
	if !kept {
		err = give(c, "cuStreamDestroy", func() C.int { return C.cc_stream_destroy(C.handle(s)) })
	}
	return errors.Join(left, err)
}

func (lib) StreamSync(c Ctx, s Stream) error {
	return in(c, "cuStreamSynchronize", func() C.int { return C.cc_stream_sync(C.handle(s)) })
}

func (lib) StreamQuery(c Ctx, s Stream) (bool, error) {
	return ready(in(c, "cuStreamQuery", func() C.int { return C.cc_stream_query(C.handle(s)) }))
}

func ready(err error) (bool, error) {
	if e, ok := err.(*Error); ok && e.Code == CodeNotReady {
		return false, nil
	}
	return err == nil, err
}

func (lib) StreamWait(c Ctx, s Stream, e Event) error {
	return in(c, "cuStreamWaitEvent", func() C.int { return C.cc_stream_wait(C.handle(s), C.handle(e), 0) })
}

func (lib) StreamWrite32(c Ctx, s Stream, at Ptr, v uint32) error {
	return in(c, "cuStreamWriteValue32", func() C.int {
		return C.cc_stream_write32(C.handle(s), C.handle(at), C.uint32_t(v), 0)
	})
}

func (lib) StreamWait32(c Ctx, s Stream, at Ptr, v uint32) error {
	return in(c, "cuStreamWaitValue32", func() C.int {
		return C.cc_stream_wait32(C.handle(s), C.handle(at), C.uint32_t(v), 0)
	})
}

func (lib) EventCreate(c Ctx, timing bool) (Event, error) {
	flags := C.unsigned(2)
	if timing {
		flags = 0
	}
	var h C.handle
	err := in(c, "cuEventCreate", func() C.int { return C.cc_event_create(&h, flags) })
	return Event(h), err
}

func (lib) EventDestroy(c Ctx, e Event) error {
	return give(c, "cuEventDestroy", func() C.int { return C.cc_event_destroy(C.handle(e)) })
}

func (lib) EventRecord(c Ctx, e Event, s Stream) error {
	return in(c, "cuEventRecord", func() C.int { return C.cc_event_record(C.handle(e), C.handle(s)) })
}

func (lib) EventQuery(c Ctx, e Event) (bool, error) {
	return ready(in(c, "cuEventQuery", func() C.int { return C.cc_event_query(C.handle(e)) }))
}

func (lib) EventElapsed(c Ctx, from, to Event) (float32, error) {
	var ms C.float
	err := in(c, "cuEventElapsedTime", func() C.int { return C.cc_event_elapsed(&ms, C.handle(from), C.handle(to)) })
	return float32(ms), err
}
