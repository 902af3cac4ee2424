//go:build linux && cgo && (amd64 || arm64)

package cublas

/*
#cgo CFLAGS: -O2 -Wall
#cgo LDFLAGS: -ldl
#include <stdlib.h>
#include "cublas.h"
*/
import "C"

import (
	"errors"
	"fmt"
	"sync"
	"unsafe"

	"github.com/seed-ee968945/concert/cuda/driver"
)

// Handle is the library bound to one stream of one context. What it enqueues may be
// captured.
type Handle struct {
	drv       driver.Driver
	ctx       driver.Ctx
	handle    C.handle
	workspace driver.Ptr
}

var (
	once    sync.Once
	loadErr error
)

const workspaceBytes = 32 << 20

// Open loads cuBLAS, from path or under its usual names, and binds a handle to a stream of
// a context of a driver that driver.Open gave. The first path counts for the process. A
// missing library is a *driver.LoadError.
func Open(drv driver.Driver, path string, c driver.Ctx, s driver.Stream) (*Handle, error) {
	if _, host := drv.(driver.HostDriver); host {
		return nil, fmt.Errorf("%w: cuBLAS needs a device", driver.ErrNoDriver)
	}
	once.Do(func() { loadErr = load(path) })
	if loadErr != nil {
		return nil, loadErr
	}
	b := &Handle{drv: drv, ctx: c}
	var err error
	if b.workspace, err = drv.MemAlloc(c, workspaceBytes); err != nil {
		return nil, fmt.Errorf("workspace of cuBLAS: %w", err)
	}
	if rc := C.blas_create(C.handle(c), &b.handle, C.handle(s), C.handle(b.workspace), workspaceBytes); rc != 0 {
		return nil, errors.Join(fmt.Errorf("cuBLAS: a handle cannot be made: status %d", int(rc)), drv.MemFree(c, b.workspace))
	}
	return b, nil
}

func load(path string) error {
	names := []string{"libcublas.so.13", "libcublas.so.12", "/usr/local/cuda/lib64/libcublas.so.13", "/usr/local/cuda/lib64/libcublas.so.12"}
	if path != "" {
		names = []string{path}
	}
	var first error
	for _, name := range names {
		cs := C.CString(name)
		var why [512]C.char
		rc := C.blas_load(cs, &why[0], C.size_t(len(why)))
		C.free(unsafe.Pointer(cs))
		if rc == 0 {
			return nil
		}
		e := &driver.LoadError{Path: name, Reason: C.GoString(&why[0])}
		if rc == C.BLAS_NO_SYMBOL {
			e.Symbol, e.Reason = e.Reason, ""
		}
		if first == nil {
			first = e
		}
	}
	return first
}

// MatMul enqueues the row-major product c[m,n] = a[m,k] b[k,n] of bf16, summed in f32.
func (b *Handle) MatMul(m, n, k int, x, y, out driver.Ptr) error {
	if rc := C.blas_matmul(C.handle(b.ctx), b.handle, C.int(m), C.int(n), C.int(k), C.handle(x), C.handle(y), C.handle(out)); rc != 0 {
		return fmt.Errorf("cuBLAS: a product of %dx%dx%d: status %d", m, n, k, int(rc))
	}
	return nil
}

// Multiprocessors makes later products use n multiprocessors, all for 0. It is a hint
// that the library's persistent kernels follow.
func (b *Handle) Multiprocessors(n int) error {
	if rc := C.blas_multiprocessors(C.handle(b.ctx), b.handle, C.int(n)); rc != 0 {
		return fmt.Errorf("cuBLAS: products on %d multiprocessors: status %d", n, int(rc))
	}
	return nil
}

// Close frees the handle and its workspace. Its work must have ended.
func (b *Handle) Close() error {
	var err error
	if rc := C.blas_destroy(C.handle(b.ctx), b.handle); rc != 0 {
		err = fmt.Errorf("cuBLAS: status %d", int(rc))
	}
	return errors.Join(err, b.drv.MemFree(b.ctx, b.workspace))
}
