//go:build linux && cgo && (amd64 || arm64)

package driver

/*
#include "shim.h"
*/
import "C"

import (
	"fmt"
	"sync"
)

const attrMulticast = 132

var (
	multicastOnce sync.Once
	multicastErr  error
)

// loadMulticast resolves what concerns multicast, once. Nothing else in the package does.
func loadMulticast() error {
	multicastOnce.Do(func() {
		if missing := C.cc_bind_multicast(); missing != nil {
			multicastErr = fmt.Errorf("%w: the driver library has no symbol %s: it is older than CUDA 12.1", ErrNoMulticast, C.GoString(missing))
		}
	})
	return multicastErr
}

func (lib) MulticastSupported(dev int) (bool, error) {
	if err := loadMulticast(); err != nil {
		return false, err
	}
	var v C.int
	err := check("cuDeviceGetAttribute", C.cc_device_attr(&v, attrMulticast, C.int(dev)))
	return v == 1, err
}

func multicastProp(devices int, bytes uint64, how Sharing) C.cc_multicast_prop {
	return C.cc_multicast_prop{devices: C.unsigned(devices), bytes: C.size_t(bytes), handleTypes: C.ulonglong(handleTypes(how))}
}

func (lib) MulticastGranularity(c Ctx, devices int, bytes uint64, how Sharing) (uint64, error) {
	const minimum = 0 // the recommended one can be hundreds of MiB
	var g C.size_t
	p := multicastProp(devices, bytes, how)
	err := in(c, "cuMulticastGetGranularity", func() C.int { return C.cc_mc_granularity(&g, &p, minimum) })
	return uint64(g), err
}

func (lib) MulticastCreate(c Ctx, devices int, bytes uint64, how Sharing) (Mem, error) {
	var h C.handle
	p := multicastProp(devices, bytes, how)
	err := in(c, "cuMulticastCreate", func() C.int { return C.cc_mc_create(&h, &p) })
	return Mem(h), err
}

func (lib) MulticastAdd(c Ctx, object Mem, dev int) error {
	return in(c, "cuMulticastAddDevice", func() C.int { return C.cc_mc_add(C.handle(object), C.int(dev)) })
}

func (lib) MulticastBind(c Ctx, object, m Mem, bytes uint64) error {
	return in(c, "cuMulticastBindMem", func() C.int { return C.cc_mc_bind(C.handle(object), 0, C.handle(m), 0, C.size_t(bytes), 0) })
}

func (lib) MulticastUnbind(c Ctx, object Mem, dev int, bytes uint64) error {
	return in(c, "cuMulticastUnbind", func() C.int { return C.cc_mc_unbind(C.handle(object), C.int(dev), 0, C.size_t(bytes)) })
}
