//go:build linux && cgo && (amd64 || arm64)

package cuda

/*
#include <stdlib.h>
#include "blas.h"
*/
import "C"

import (
	"errors"
	"fmt"
	"sync"
	"unsafe"
)

// BLAS is cuBLAS on one stream of one context: matrix products for measurements
// beside collectives. It is safe to capture.
type BLAS struct {
	drv       Driver
	ctx       Ctx
	handle    C.handle
	workspace Ptr
}

var (
	blasOnce sync.Once
	blasErr  error
)

const blasWorkspace = 32 << 20

// OpenBLAS loads cuBLAS, from path or under its usual names, and binds a handle to
// a stream of a context of a driver that Open gave. The first path counts for the
// process. A missing library is a *LoadError.
func OpenBLAS(drv Driver, path string, c Ctx, s Stream) (*BLAS, error) {
	if _, ok := drv.(lib); !ok {
		return nil, errors.New("cuBLAS needs the driver that Open gives")
	}
	blasOnce.Do(func() { blasErr = loadBLAS(path) })
	if blasErr != nil {
		return nil, blasErr
	}
	b := &BLAS{drv: drv, ctx: c}
	var err error
	if b.workspace, err = drv.MemAlloc(c, blasWorkspace); err != nil {
		return nil, fmt.Errorf("workspace of cuBLAS: %w", err)
	}
	if rc := C.cc_blas_create(C.handle(c), &b.handle, C.handle(s), C.handle(b.workspace), blasWorkspace); rc != 0 {
		return nil, errors.Join(fmt.Errorf("cuBLAS: a handle cannot be made: status %d", int(rc)), drv.MemFree(c, b.workspace))
	}
	return b, nil
}

func loadBLAS(path string) error {
	names := []string{"libcublas.so.13", "libcublas.so.12", "/usr/local/cuda/lib64/libcublas.so.13", "/usr/local/cuda/lib64/libcublas.so.12"}
	if path != "" {
		names = []string{path}
	}
	var first error
	for _, name := range names {
		cs := C.CString(name)
		var why [512]C.char
		rc := C.cc_blas_load(cs, &why[0], C.size_t(len(why)))
		C.free(unsafe.Pointer(cs))
		if rc == 0 {
			return nil
		}
		e := &LoadError{Path: name, Reason: C.GoString(&why[0])}
		if rc == C.CC_NO_SYMBOL {
			e.Symbol, e.Reason = e.Reason, ""
		}
		if first == nil {
			first = e
		}
	}
	return first
}

// MatMul enqueues the row-major product c[m,n] = a[m,k] b[k,n] of bf16, summed in f32.
func (b *BLAS) MatMul(m, n, k int, x, y, out Ptr) error {
	if rc := C.cc_blas_matmul(C.handle(b.ctx), b.handle, C.int(m), C.int(n), C.int(k), C.handle(x), C.handle(y), C.handle(out)); rc != 0 {
		return fmt.Errorf("cuBLAS: a product of %dx%dx%d: status %d", m, n, k, int(rc))
	}
	return nil
}

// Multiprocessors makes later products use n multiprocessors, all for 0. It is a hint
// that the library's persistent kernels follow.
func (b *BLAS) Multiprocessors(n int) error {
	if rc := C.cc_blas_multiprocessors(C.handle(b.ctx), b.handle, C.int(n)); rc != 0 {
		return fmt.Errorf("cuBLAS: products on %d multiprocessors: status %d", n, int(rc))
	}
	return nil
}

// Close frees the handle and its workspace. Its work must have ended.
func (b *BLAS) Close() error {
	var err error
	if rc := C.cc_blas_destroy(C.handle(b.ctx), b.handle); rc != 0 {
		err = fmt.Errorf("cuBLAS: status %d", int(rc))
	}
	return errors.Join(err, b.drv.MemFree(b.ctx, b.workspace))
}
