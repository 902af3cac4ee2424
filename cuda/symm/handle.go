package symm

import (
	"fmt"

	"github.com/seed-ee968945/concert/cuda/driver"
	"github.com/seed-ee968945/concert/runtime/rendezvous"
)

// memHandle is a rank's memory on its way to other processes: a file descriptor, or the
// handle of an NVLink fabric. noHandle is neither; it and every other may be closed.
type memHandle struct {
	fd     int    // -1 where there is none
	fabric []byte // nil where there is none
}

var noHandle = memHandle{fd: -1}

// exportMem wraps memory that was made to be shared so. The caller closes the handle.
func exportMem(drv driver.Driver, c driver.Ctx, m driver.Mem, how driver.Sharing) (memHandle, error) {
	if how == driver.ByFabric {
		h, err := drv.ExportFabric(c, m)
		return memHandle{fd: -1, fabric: h[:]}, err
	}
	fd, err := drv.Export(c, m)
	if err != nil {
		return noHandle, err
	}
	return memHandle{fd: fd}, nil
}

// importMem unwraps another rank's memory. The handle stays the caller's.
func (h memHandle) importMem(drv driver.Driver, c driver.Ctx) (driver.Mem, error) {
	if h.fd >= 0 {
		return drv.Import(c, h.fd)
	}
	var f driver.FabricHandle
	if len(h.fabric) != len(f) {
		return 0, fmt.Errorf("a fabric handle of %d bytes, expected %d", len(h.fabric), len(f))
	}
	copy(f[:], h.fabric)
	return drv.ImportFabric(c, f)
}

func (h memHandle) close() { rendezvous.CloseFiles(h.fd) }

func closeHandles(all []memHandle) {
	for _, h := range all {
		h.close()
	}
}
