//go:build linux && cgo && (amd64 || arm64)

package lt

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
	"unsafe"

	"github.com/seed-ee968945/concert/cuda/dl"
	"github.com/seed-ee968945/concert/cuda/driver"
	"github.com/seed-ee968945/concert/cuda/library"
	"github.com/seed-ee968945/concert/internal/dtype"
)

// lib is cuBLASLt behind dlopen.
type lib struct{}

// The libraries, which a process loads once.
var cublas, cuda = dl.Library{Kind: library.ErrUnavailable, Needs: "cuBLASLt of CUDA 12 or 13",
	Names: []string{"libcublasLt.so.13", "libcublasLt.so.12", "/usr/local/cuda/lib64/libcublasLt.so.13", "/usr/local/cuda/lib64/libcublasLt.so.12"}},
	dl.Library{Kind: library.ErrUnavailable, Needs: "a driver of CUDA 12", Names: dl.Driver}

func openLibrary(drv driver.Driver, path string) (backend, error) {
	if lib := hostLibrary(drv); lib != nil {
		return lib, nil
	}
	if _, err := cuda.Load("", func(l unsafe.Pointer) string { return C.GoString(C.lt_bind_driver(l)) }); err != nil {
		return nil, err
	}
	if _, err := cublas.Load(path, func(l unsafe.Pointer) string { return C.GoString(C.lt_bind(l)) }); err != nil {
		return nil, err
	}
	return lib{}, nil
}

func check(call string, rc C.int) error {
	switch {
	case rc == 0:
		return nil
	case rc <= C.LT_DRIVER:
		return &driver.Error{Call: "cuCtxSetCurrent", Code: int(C.LT_DRIVER - rc), Name: "unknown", Text: "no text"}
	case rc == C.LT_NO_MEMORY:
		return errors.New("cuBLASLt: out of host memory")
	}
	return &StatusError{Call: call, Status: int(rc)}
}

func (lib) version() uint64 { return uint64(C.lt_version()) }

func (lib) create(ctx driver.Ctx) (uint64, error) {
	var h C.uint64_t
	err := check("cublasLtCreate", C.lt_create(C.uint64_t(ctx), &h))
	return uint64(h), err
}

func (lib) destroy(ctx driver.Ctx, h uint64) error {
	return check("cublasLtDestroy", C.lt_destroy(C.uint64_t(ctx), C.uint64_t(h)))
}

// cudaDataType and cublasComputeType_t by their numbers.
var dataTypes = map[dtype.DType]C.int32_t{dtype.F32: 0, dtype.F64: 1, dtype.F16: 2, dtype.BF16: 14}

const (
	compute32 = 68
	compute64 = 70
	computeTF = 77
)

func (lib) plan(ctx driver.Ctx, h uint64, p *Problem) (uint64, error) {
	matrix := func(m Matrix, rows, cols int64, t dtype.DType) C.lt_matrix {
		if m.Trans {
			rows, cols = cols, rows
		}
		return C.lt_matrix{rows: C.uint64_t(rows), cols: C.uint64_t(cols), ld: C.int64_t(m.LD), stride: C.int64_t(m.Stride),
			_type: dataTypes[t], align: C.uint32_t(m.Align)}
	}
	trans := func(m Matrix) C.int32_t {
		if m.Trans {
			return 1
		}
		return 0
	}
	c := C.lt_problem{x: matrix(p.X, p.M, p.K, p.Type), y: matrix(p.Y, p.K, p.N, p.Type), d: matrix(p.D, p.M, p.N, p.Out),
		trans_x: trans(p.X), trans_y: trans(p.Y), compute: compute32, scale: dataTypes[dtype.F32],
		batch: C.int32_t(p.Batch), sms: C.int32_t(p.SMs), bias: C.uint64_t(p.Bias)}
	switch {
	case p.Type == dtype.F64:
		c.compute, c.scale = compute64, dataTypes[dtype.F64]
	case p.TF32:
		c.compute = computeTF
	}
	var plan C.uint64_t
	err := check("descriptors", C.lt_plan(C.uint64_t(ctx), C.uint64_t(h), &c, &plan))
	return uint64(plan), err
}

func (lib) free(plan uint64) { C.lt_plan_free(C.uint64_t(plan)) }

// heuristics keeps the library's own form only of algorithms that their attributes
// do not rebuild.
func (lib) heuristics(ctx driver.Ctx, plan, limit uint64, n int) ([]Algo, error) {
	if n < 1 {
		return nil, nil
	}
	list := make([]C.lt_algo, n)
	var found C.int
	rc := C.lt_heuristics(C.uint64_t(ctx), C.uint64_t(plan), C.uint64_t(limit), &list[0], C.int(n), &found)
	if err := check("cublasLtMatmulAlgoGetHeuristic", rc); err != nil {
		return nil, err
	}
	out := make([]Algo, found)
	for i := range out {
		c := list[i]
		out[i] = Algo{ID: int32(c.id), Tile: uint32(c.tile), Stages: uint32(c.stages), SplitK: uint32(c.splitk), Reduction: uint32(c.reduction),
			Swizzle: uint32(c.swizzle), Custom: uint32(c.custom), Inner: uint32(c.inner), Cluster: uint32(c.cluster)}
		again := c
		again.raw = [8]C.uint64_t{}
		if C.lt_use(C.uint64_t(ctx), C.uint64_t(plan), &again, 0) != 0 || again.raw != c.raw {
			for j := range c.raw {
				out[i].Raw[j] = uint64(c.raw[j])
			}
		}
	}
	return out, nil
}

func (lib) use(ctx driver.Ctx, plan uint64, a Algo) (uint64, error) {
	c := C.lt_algo{id: C.int32_t(a.ID), tile: C.uint32_t(a.Tile), stages: C.uint32_t(a.Stages), splitk: C.uint32_t(a.SplitK),
		reduction: C.uint32_t(a.Reduction), swizzle: C.uint32_t(a.Swizzle), custom: C.uint32_t(a.Custom),
		inner: C.uint32_t(a.Inner), cluster: C.uint32_t(a.Cluster)}
	const computeType = 2
	if a.Reduction&^computeType != 0 {
		return 0, fmt.Errorf("%v: its result may differ from run to run", a)
	}
	raw := C.int(0)
	for i, w := range a.Raw {
		c.raw[i] = C.uint64_t(w)
		if w != 0 {
			raw = 1
		}
	}
	err := check("cublasLtMatmulAlgoCheck", C.lt_use(C.uint64_t(ctx), C.uint64_t(plan), &c, raw))
	if err != nil {
		return 0, fmt.Errorf("%v: %w", a, err)
	}
	return uint64(c.workspace), nil
}

func (lib) call() driver.CFunc { return driver.CFunc(C.lt_call()) }

func (lib) skinny() driver.CFunc { return 0 }
func (lib) fetch() driver.CFunc  { return 0 }
