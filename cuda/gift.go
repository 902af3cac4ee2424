//go:build linux

package cuda

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// gift is a rank's memory on its way to other processes: a file descriptor, or the
// handle of an NVLink fabric. The zero gift holds nothing but must not be closed; none
// does.
type gift struct {
	fd     int    // -1 where there is none
	handle []byte // nil where there is none
}

var none = gift{fd: -1}

// exportMem wraps memory that was made to be shared so. The caller closes the gift.
func exportMem(drv Driver, c Ctx, m Mem, how Sharing) (gift, error) {
	if how == ByFabric {
		h, err := drv.ExportFabric(c, m)
		return gift{fd: -1, handle: h[:]}, err
	}
	fd, err := drv.Export(c, m)
	if err != nil {
		return none, err
	}
	return gift{fd: fd}, nil
}

// importMem unwraps another rank's memory. The gift stays the caller's.
func (g gift) importMem(drv Driver, c Ctx) (Mem, error) {
	if g.fd >= 0 {
		return drv.Import(c, g.fd)
	}
	var h FabricHandle
	if len(g.handle) != len(h) {
		return 0, fmt.Errorf("a fabric handle of %d bytes, expected %d", len(g.handle), len(h))
	}
	copy(h[:], g.handle)
	return drv.ImportFabric(c, h)
}

// fds lists the gift's descriptor, if it has one.
func (g gift) fds() []int {
	if g.fd < 0 {
		return nil
	}
	return []int{g.fd}
}

func (g gift) close() { closeAll(g.fds()) }

// dup is the same gift with a descriptor of its own.
func (g gift) dup() (gift, error) {
	if g.fd < 0 {
		return g, nil
	}
	fd, err := dup(g.fd)
	if err != nil {
		return none, err
	}
	return gift{fd: fd}, nil
}

func closeGifts(all []gift) {
	for _, g := range all {
		g.close()
	}
}

func closeAll(fds []int) {
	for _, fd := range fds {
		if fd >= 0 {
			unix.Close(fd)
		}
	}
}

// wrap makes gifts of what came in a message: the handles, or else the descriptors, of
// which there must be one for each of n ranks.
func wrap(handles [][]byte, fds []int, n int) ([]gift, error) {
	if handles != nil && len(fds) == 0 {
		if len(handles) != n {
			return nil, fmt.Errorf("%d fabric handles for %d ranks", len(handles), n)
		}
		out := make([]gift, n)
		for i, h := range handles {
			out[i] = gift{fd: -1, handle: h}
		}
		return out, nil
	}
	if len(fds) != n {
		closeAll(fds)
		return nil, fmt.Errorf("%d descriptors for %d ranks", len(fds), n)
	}
	out := make([]gift, n)
	for i, fd := range fds {
		out[i] = gift{fd: fd}
	}
	return out, nil
}
