//go:build linux && cgo && (amd64 || arm64)

package cudnn

/*
#cgo CFLAGS: -O2 -Wall
#cgo LDFLAGS: -ldl -lpthread
#include <stdlib.h>
#include "shim.h"
*/
import "C"

import (
	"fmt"
	"path/filepath"
	"runtime"
	"unsafe"

	"github.com/seed-ee968945/concert/cuda/dl"
	"github.com/seed-ee968945/concert/cuda/driver"
	"github.com/seed-ee968945/concert/cuda/library"
)

// The libraries, which a process loads once.
var cudnn, cuda = dl.Library{Kind: library.ErrUnavailable, Needs: "cuDNN 9",
	Names: []string{"libcudnn.so.9", "/usr/lib/x86_64-linux-gnu/libcudnn.so.9", "/usr/lib/aarch64-linux-gnu/libcudnn.so.9", "/usr/local/cuda/lib64/libcudnn.so.9"}},
	dl.Library{Kind: library.ErrUnavailable, Needs: "a driver of CUDA 12", Names: dl.Driver}

// parts are the libraries that libcudnn.so.9 looks for by bare name, in an order in
// which each finds those it needs. Versions of cuDNN differ in which there are.
var parts = []string{"libcudnn_graph.so.9", "libcudnn_engines_tensor_ir.so.9", "libcudnn_engines_runtime_compiled.so.9",
	"libcudnn_engines_precompiled.so.9", "libcudnn_heuristic.so.9", "libcudnn_ops.so.9", "libcudnn_cnn.so.9", "libcudnn_adv.so.9"}

// load loads the library and what it will look for by bare names.
func load(o Options) error {
	path := ""
	if o.Dir != "" {
		path = filepath.Join(o.Dir, "libcudnn.so.9")
	}
	for _, p := range o.Preload {
		if err := loadPart(p); err != nil {
			return err
		}
	}
	if o.Dir != "" {
		// A part that is missing or that the loader refuses shows when it is needed.
		for _, p := range parts {
			_ = loadPart(filepath.Join(o.Dir, p))
		}
	}
	if _, err := cuda.Load("", func(l unsafe.Pointer) string { return C.GoString(C.cd_bind_driver(l)) }); err != nil {
		return err
	}
	_, err := cudnn.Load(path, func(l unsafe.Pointer) string { return C.GoString(C.cd_bind(l)) })
	return err
}

func loadPart(path string) error {
	l := dl.Library{Kind: library.ErrUnavailable, Global: true}
	_, err := l.Load(path, func(unsafe.Pointer) string { return "" })
	return err
}

// lib is the library behind a handle.
type lib struct {
	ctx    driver.Ctx
	handle *C.cd_handle
}

// newBackend loads the library and makes a handle in a context.
func newBackend(ctx driver.Ctx, o Options) (backend, error) {
	if err := load(o); err != nil {
		return nil, err
	}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	b := &lib{ctx: ctx}
	if err := check("cudnnCreate", descKindHandle, C.cd_handle_new(C.uint64_t(ctx), &b.handle)); err != nil {
		return nil, err
	}
	return b, nil
}

// in runs f with the context current: both happen on one thread.
func (b *lib) in(f func() error) error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if err := check("cuCtxSetCurrent", descKindHandle, C.cd_context(C.uint64_t(b.ctx))); err != nil {
		return err
	}
	return f()
}

func (b *lib) version() int { return int(C.cd_version()) }

func (b *lib) close() error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	return check("cudnnDestroy", descKindHandle, C.cd_handle_free(C.uint64_t(b.ctx), b.handle))
}

func check(call string, on fmt.Stringer, rc C.int) error {
	if rc == 0 {
		return nil
	}
	e := &Error{Call: call, On: on.String(), Status: int(rc)}
	switch {
	case rc <= C.CD_DRIVER:
		e.Call, e.Status, e.Name = "a call of the driver in "+call, int(C.CD_DRIVER-rc), "CUresult"
	case rc < 0:
		e.Name = "the library is not loaded"
	default:
		e.Name = C.GoString(C.cd_status_text(rc))
		var text [2048]C.char
		C.cd_last_error(&text[0], C.size_t(len(text)))
		e.Text = C.GoString(&text[0])
	}
	return e
}

func raw(d desc) unsafe.Pointer { return *(*unsafe.Pointer)(unsafe.Pointer(&d)) }

func (b *lib) create(k descKind) (desc, error) {
	var d unsafe.Pointer
	err := check("cudnnBackendCreateDescriptor", k, C.cd_create(C.int(k), &d))
	return desc(uintptr(d)), err
}

func (b *lib) destroy(d desc) { C.cd_destroy(raw(d)) }

func (b *lib) set(on fmt.Stringer, d desc, a attribute, t attrType, n int, v unsafe.Pointer) error {
	rc := C.cd_set(raw(d), C.int(a), C.int(t), C.int64_t(n), v)
	return check(fmt.Sprintf("cudnnBackendSetAttribute(%d)", a), on, rc)
}

func (b *lib) setInts(on fmt.Stringer, d desc, a attribute, v ...int64) error {
	return b.set(on, d, a, typeInt64, len(v), unsafe.Pointer(unsafe.SliceData(v)))
}

func (b *lib) setEnum(on fmt.Stringer, d desc, a attribute, t attrType, v int32) error {
	return b.set(on, d, a, t, 1, unsafe.Pointer(&v))
}

func (b *lib) setFloat(on fmt.Stringer, d desc, a attribute, v float32) error {
	return b.set(on, d, a, typeFloat, 1, unsafe.Pointer(&v))
}

func (b *lib) setTrue(on fmt.Stringer, d desc, a attribute) error {
	v := true
	return b.set(on, d, a, typeBoolean, 1, unsafe.Pointer(&v))
}

func (b *lib) setDescs(on fmt.Stringer, d desc, a attribute, v ...desc) error {
	return b.set(on, d, a, typeDescriptor, len(v), unsafe.Pointer(unsafe.SliceData(v)))
}

func (b *lib) setHandle(on fmt.Stringer, d desc, a attribute) error {
	h := uintptr(C.cd_handle_raw(b.handle))
	return b.set(on, d, a, typeHandle, 1, unsafe.Pointer(&h))
}

func (b *lib) setPointers(on fmt.Stringer, d desc, a attribute, v ...uintptr) error {
	return b.set(on, d, a, typePointer, len(v), unsafe.Pointer(unsafe.SliceData(v)))
}

func (b *lib) get(on fmt.Stringer, d desc, a attribute, t attrType, n int, v unsafe.Pointer) (int64, error) {
	var count C.int64_t
	rc := C.cd_get(raw(d), C.int(a), C.int(t), C.int64_t(n), &count, v)
	return int64(count), check(fmt.Sprintf("cudnnBackendGetAttribute(%d)", a), on, rc)
}

func (b *lib) getInt(on fmt.Stringer, d desc, a attribute) (int64, error) {
	var v int64
	_, err := b.get(on, d, a, typeInt64, 1, unsafe.Pointer(&v))
	return v, err
}

func (b *lib) getEnums(on fmt.Stringer, d desc, a attribute, t attrType, most int) ([]int32, error) {
	v := make([]int32, most)
	n, err := b.get(on, d, a, t, most, unsafe.Pointer(unsafe.SliceData(v)))
	return v[:max(min(n, int64(most)), 0)], err
}

func (b *lib) getDescs(on fmt.Stringer, d desc, a attribute, into []desc) (int64, error) {
	var at unsafe.Pointer
	if len(into) > 0 {
		at = unsafe.Pointer(unsafe.SliceData(into))
	}
	return b.get(on, d, a, typeDescriptor, len(into), at)
}

func (b *lib) finalize(on fmt.Stringer, d desc) error {
	return check("cudnnBackendFinalize", on, C.cd_finalize(raw(d)))
}

func (b *lib) scalars(v []float32) (at []uintptr, free func()) {
	const stride = 16
	p := C.calloc(C.size_t(max(len(v), 1)), stride)
	for i, x := range v {
		c := unsafe.Add(p, i*stride)
		*(*float32)(c) = x
		at = append(at, uintptr(c))
	}
	return at, func() { C.free(p) }
}

func (b *lib) step(plan, pack desc) (fn driver.CFunc, arg uint64, free func()) {
	s := C.cd_step_new(b.handle, raw(plan), raw(pack))
	return driver.CFunc(C.cd_run_address()), uint64(uintptr(unsafe.Pointer(s))), func() { C.cd_step_free(s) }
}
