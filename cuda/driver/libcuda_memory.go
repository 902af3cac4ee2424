//go:build linux && cgo && (amd64 || arm64)

package driver

/*
#include <string.h>
#include "shim.h"
*/
import "C"

import (
	"runtime"
	"unsafe"

	"github.com/seed-ee968945/concert/cuda/internal/hostmem"
)

func (lib) MemAlloc(c Ctx, bytes uint64) (Ptr, error) {
	var p C.handle
	err := in(c, "cuMemAlloc", func() C.int { return C.cc_mem_alloc(&p, C.size_t(bytes)) })
	return Ptr(p), err
}

func (lib) MemFree(c Ctx, p Ptr) error {
	return give(c, "cuMemFree", func() C.int { return C.cc_mem_free(C.handle(p)) })
}

func (lib) MemInfo(c Ctx) (free, total uint64, err error) {
	var f, t C.size_t
	err = in(c, "cuMemGetInfo", func() C.int { return C.cc_mem_info(&f, &t) })
	return uint64(f), uint64(t), err
}

func (l lib) HostAlloc(c Ctx, bytes uint64) (uintptr, Ptr, error) {
	var h, d C.handle
	const portable, mapped = 1, 2
	err := in(c, "cuMemHostAlloc", func() C.int { return C.cc_host_alloc(&h, C.size_t(bytes), portable|mapped) })
	if err != nil {
		return 0, 0, err
	}
	clear(hostmem.Bytes(uintptr(h), int(bytes)))
	err = in(c, "cuMemHostGetDevicePointer", func() C.int { return C.cc_host_device_ptr(&d, h, 0) })
	if err != nil {
		l.HostFree(c, uintptr(h)) // the first error matters
		return 0, 0, err
	}
	return uintptr(h), Ptr(d), nil
}

func (lib) HostFree(c Ctx, host uintptr) error {
	return give(c, "cuMemFreeHost", func() C.int { return C.cc_host_free(C.handle(host)) })
}

func (l lib) CopyIn(c Ctx, s Stream, to Ptr, from []byte) error {
	if len(from) == 0 {
		return nil
	}
	err := in(c, "cuMemcpyHtoDAsync", func() C.int {
		return C.cc_copy_in(C.handle(to), unsafe.Pointer(&from[0]), C.size_t(len(from)), C.handle(s))
	})
	if err != nil {
		return err
	}
	err = l.StreamSync(c, s)
	runtime.KeepAlive(from)
	return err
}

func (l lib) CopyOut(c Ctx, s Stream, to []byte, from Ptr) error {
	if len(to) == 0 {
		return nil
	}
	err := in(c, "cuMemcpyDtoHAsync", func() C.int {
		return C.cc_copy_out(unsafe.Pointer(&to[0]), C.handle(from), C.size_t(len(to)), C.handle(s))
	})
	if err != nil {
		return err
	}
	err = l.StreamSync(c, s)
	runtime.KeepAlive(to)
	return err
}

func (lib) Copy(c Ctx, s Stream, to, from Ptr, bytes uint64) error {
	return in(c, "cuMemcpyAsync", func() C.int {
		return C.cc_copy(C.handle(to), C.handle(from), C.size_t(bytes), C.handle(s))
	})
}

func (lib) Memset32(c Ctx, s Stream, at Ptr, v uint32, words uint64) error {
	return in(c, "cuMemsetD32Async", func() C.int {
		return C.cc_memset32(C.handle(at), C.unsigned(v), C.size_t(words), C.handle(s))
	})
}

// Kinds of handles of the driver's interface.
const (
	handleFD     = 1
	handleFabric = 8
)

// handleTypes is what the driver's interface calls a way of sharing.
func handleTypes(how Sharing) C.int {
	switch how &^ Network {
	case ByFD:
		return handleFD
	case ByFabric:
		return handleFabric
	}
	return 0
}

// allocProp asks for pinned memory on dev that can be shared in one way, and with adapters.
func allocProp(dev int, how Sharing) C.cc_alloc_prop {
	var p C.cc_alloc_prop
	p._type = 1
	p.handleTypes = handleTypes(how)
	p.location._type, p.location.id = 1, C.int(dev)
	if how&Network != 0 {
		p.rdma = 1
	}
	return p
}

func (lib) Granularity(c Ctx, dev int, how Sharing) (uint64, error) {
	var g C.size_t
	p := allocProp(dev, how)
	err := in(c, "cuMemGetAllocationGranularity", func() C.int { return C.cc_vm_granularity(&g, &p, 1) })
	return uint64(g), err
}

func (lib) Reserve(c Ctx, bytes, align uint64) (Ptr, error) {
	var p C.handle
	err := in(c, "cuMemAddressReserve", func() C.int {
		return C.cc_vm_reserve(&p, C.size_t(bytes), C.size_t(align), 0, 0)
	})
	return Ptr(p), err
}

func (lib) Unreserve(c Ctx, at Ptr, bytes uint64) error {
	return give(c, "cuMemAddressFree", func() C.int { return C.cc_vm_unreserve(C.handle(at), C.size_t(bytes)) })
}

func (lib) MemCreate(c Ctx, dev int, bytes uint64, how Sharing) (Mem, error) {
	var h C.handle
	p := allocProp(dev, how)
	err := in(c, "cuMemCreate", func() C.int { return C.cc_vm_create(&h, C.size_t(bytes), &p, 0) })
	return Mem(h), err
}

func (lib) MemRelease(c Ctx, m Mem) error {
	return give(c, "cuMemRelease", func() C.int { return C.cc_vm_release(C.handle(m)) })
}

func (lib) Map(c Ctx, at Ptr, bytes uint64, m Mem) error {
	return in(c, "cuMemMap", func() C.int { return C.cc_vm_map(C.handle(at), C.size_t(bytes), 0, C.handle(m), 0) })
}

func (lib) Unmap(c Ctx, at Ptr, bytes uint64) error {
	return give(c, "cuMemUnmap", func() C.int { return C.cc_vm_unmap(C.handle(at), C.size_t(bytes)) })
}

func (lib) Allow(c Ctx, at Ptr, bytes uint64, devs []int) error {
	if len(devs) == 0 {
		return nil
	}
	d := make([]C.cc_access, len(devs))
	for i, dev := range devs {
		d[i].location._type, d[i].location.id, d[i].flags = 1, C.int(dev), 3
	}
	return in(c, "cuMemSetAccess", func() C.int {
		return C.cc_vm_access(C.handle(at), C.size_t(bytes), &d[0], C.size_t(len(d)))
	})
}

func (lib) Export(c Ctx, m Mem) (int, error) {
	var fd C.int
	err := in(c, "cuMemExportToShareableHandle", func() C.int {
		return C.cc_vm_export(unsafe.Pointer(&fd), C.handle(m), handleFD, 0)
	})
	return int(fd), err
}

func (lib) Import(c Ctx, fd int) (Mem, error) {
	var h C.handle
	err := in(c, "cuMemImportFromShareableHandle", func() C.int {
		return C.cc_import_fd(&h, C.int(fd))
	})
	return Mem(h), err
}

func (lib) ExportFabric(c Ctx, m Mem) (FabricHandle, error) {
	var h FabricHandle
	err := in(c, "cuMemExportToShareableHandle", func() C.int {
		return C.cc_vm_export(unsafe.Pointer(&h[0]), C.handle(m), handleFabric, 0)
	})
	return h, err
}

func (lib) ImportFabric(c Ctx, h FabricHandle) (Mem, error) {
	var m C.handle
	err := in(c, "cuMemImportFromShareableHandle", func() C.int {
		return C.cc_vm_import(&m, unsafe.Pointer(&h[0]), handleFabric)
	})
	return Mem(m), err
}
