package driver

import (
	"errors"
	"fmt"
)

// Sharing is a way by which physical memory reaches other processes.
type Sharing int

// The ways. A file descriptor serves processes of one host; a fabric handle is a number
// that serves every process in the fabric's domain, without a socket that passes it.
const (
	ByFD Sharing = iota
	ByFabric
	Unshared // stays in its process
)

// Network is added to a way for memory that network adapters read and write, too
// (GPUDirect RDMA): see DeviceInfo.Network.
const Network Sharing = 1 << 8

// String names the way.
func (s Sharing) String() string {
	switch s &^ Network {
	case ByFD:
		return "file descriptors"
	case ByFabric:
		return "fabric handles"
	}
	return "nothing"
}

// FabricHandle names exported memory in the processes of an NVLink fabric.
type FabricHandle [64]byte

// ErrNoFabric means that a device has no fabric handles. FabricError says why.
var ErrNoFabric = errors.New("no fabric handles")

// FabricError is the outcome of a trial that failed. It wraps ErrNoFabric and what the
// driver said, if the driver was asked.
type FabricError struct {
	Dev  int
	Step string // what of the trial failed, empty where the device does not claim handles
	Err  error
}

// Error names the device, the step and the driver's answer.
func (e *FabricError) Error() string {
	if e.Step == "" {
		return fmt.Sprintf("device %d: %v: it does not claim them", e.Dev, ErrNoFabric)
	}
	return fmt.Sprintf("device %d: %v: %s failed: %v", e.Dev, ErrNoFabric, e.Step, e.Err)
}

// Unwrap gives ErrNoFabric and the cause.
func (e *FabricError) Unwrap() []error {
	if e.Err == nil {
		return []error{ErrNoFabric}
	}
	return []error{ErrNoFabric, e.Err}
}

// NoSharingError means that no way leads a device's memory into another process.
type NoSharingError struct {
	Dev    int
	Fabric error // why there are no fabric handles
}

// Error names the device and what to do.
func (e *NoSharingError) Error() string {
	return fmt.Sprintf("device %d cannot share memory with other processes (it has no file descriptors; %v): drive all devices by one process", e.Dev, e.Fabric)
}

// Unwrap gives the reason.
func (e *NoSharingError) Unwrap() error { return e.Fabric }

// tryFabric allocates the least memory with a fabric handle, exports the handle and
// imports it again. That a device claims handles is not enough: they need the fabric's
// manager and permission for its channels, which containers often lack. Whatever fails,
// the error is a *FabricError.
func tryFabric(drv Driver, c Ctx, dev int, info DeviceInfo) (err error) {
	if !info.Fabric {
		return &FabricError{Dev: dev}
	}
	step := ""
	defer func() {
		if err != nil {
			err = &FabricError{Dev: dev, Step: step, Err: err}
		}
	}()
	step = "asking for the granularity"
	bytes, err := drv.Granularity(c, dev, ByFabric)
	if err != nil {
		return err
	}
	step = "allocation"
	m, err := drv.MemCreate(c, dev, bytes, ByFabric)
	if err != nil {
		return err
	}
	defer func() {
		if rerr := drv.MemRelease(c, m); err == nil && rerr != nil {
			step, err = "release", rerr
		}
	}()
	step = "export"
	h, err := drv.ExportFabric(c, m)
	if err != nil {
		return err
	}
	step = "import"
	again, err := drv.ImportFabric(c, h)
	if err != nil {
		return err
	}
	step = "release"
	return drv.MemRelease(c, again)
}
