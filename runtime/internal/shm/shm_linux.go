package shm

import (
	"fmt"
	"os"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// File is memory as a file that other processes can map. It is sealed: it can neither
// shrink nor grow, so no peer can be made to fault.
type File struct{ fd, size int }

const seals = unix.F_SEAL_SHRINK | unix.F_SEAL_GROW | unix.F_SEAL_SEAL

// Create returns a zeroed memory file of that many bytes, rounded up to pages.
func Create(size int) (*File, error) {
	fd, err := unix.MemfdCreate("concert", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	if err != nil {
		return nil, fmt.Errorf("shm: memfd_create: %w", err)
	}
	f := &File{fd: fd, size: pages(size)}
	if err := unix.Ftruncate(fd, int64(f.size)); err != nil {
		f.Close()
		return nil, fmt.Errorf("shm: %d bytes: %w", f.size, err)
	}
	if _, err := unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, seals); err != nil {
		f.Close()
		return nil, fmt.Errorf("shm: seal: %w", err)
	}
	return f, nil
}

// Adopt takes over a descriptor that a peer sent, after checking that it is a
// sealed memory file of the right size.
func Adopt(fd, size int) (*File, error) {
	f := &File{fd: fd, size: pages(size)}
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		f.Close()
		return nil, fmt.Errorf("shm: fstat: %w", err)
	}
	got, err := unix.FcntlInt(uintptr(fd), unix.F_GET_SEALS, 0)
	if err != nil || got&seals != seals {
		f.Close()
		return nil, fmt.Errorf("shm: the peer's descriptor is not a sealed memory file")
	}
	if st.Size != int64(f.size) {
		f.Close()
		return nil, fmt.Errorf("shm: the peer's memory file has %d bytes, expected %d", st.Size, f.size)
	}
	return f, nil
}

// FD is the descriptor, for sending. It stays the File's.
func (f *File) FD() int { return f.fd }

// Close closes the descriptor; mappings stay.
func (f *File) Close() error {
	if f.fd < 0 {
		return nil
	}
	err := unix.Close(f.fd)
	f.fd = -1
	return err
}

// pages is a size in whole pages, one at least.
func pages(size int) int { return roundUp(max(size, 1), os.Getpagesize()) }

// World is a flat range of addresses, stride bytes for each rank.
type World struct {
	base      unsafe.Pointer
	stride, n int
}

// Reserve reserves the addresses of n ranks without memory behind them.
func Reserve(n, stride int) (*World, error) {
	w := &World{stride: pages(stride), n: n}
	base, err := unix.MmapPtr(-1, 0, nil, uintptr(n*w.stride), unix.PROT_NONE, unix.MAP_PRIVATE|unix.MAP_ANON|unix.MAP_NORESERVE)
	if err != nil {
		return nil, fmt.Errorf("shm: reserve %d x %d bytes: %w", n, w.stride, err)
	}
	w.base = base
	return w, nil
}

// Stride is the distance between what neighbouring ranks have, in bytes.
func (w *World) Stride() int { return w.stride }

// at is where bytes of a rank are, whole pages of its addresses.
func (w *World) at(rank, off, size int) (unsafe.Pointer, error) {
	if rank < 0 || rank >= w.n || w.base == nil || off < 0 || off%os.Getpagesize() != 0 || size > w.stride-off {
		return nil, fmt.Errorf("shm: %d bytes from %d of rank %d, of %d ranks with %d bytes", size, off, rank, w.n, w.stride)
	}
	return unsafe.Add(w.base, rank*w.stride+off), nil
}

// Map maps f where rank's bytes from off are, which is a multiple of the page size.
func (w *World) Map(rank, off int, f *File) ([]byte, error) {
	at, err := w.at(rank, off, f.size)
	if err != nil {
		return nil, err
	}
	if _, err := unix.MmapPtr(f.fd, 0, at, uintptr(f.size), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED|unix.MAP_FIXED); err != nil {
		return nil, fmt.Errorf("shm: map %d bytes of rank %d: %w", f.size, rank, err)
	}
	return unsafe.Slice((*byte)(at), f.size), nil
}

// Unmap takes the memory away from size bytes at off, whose addresses stay reserved.
func (w *World) Unmap(rank, off, size int) error {
	at, err := w.at(rank, off, pages(size))
	if err != nil {
		return err
	}
	_, err = unix.MmapPtr(-1, 0, at, uintptr(pages(size)), unix.PROT_NONE, unix.MAP_PRIVATE|unix.MAP_ANON|unix.MAP_NORESERVE|unix.MAP_FIXED)
	if err != nil {
		return fmt.Errorf("shm: unmap %d bytes of rank %d: %w", size, rank, err)
	}
	return nil
}

// Close unmaps everything; nothing of it may be used after that.
func (w *World) Close() error {
	if w.base == nil {
		return nil
	}
	err := unix.MunmapPtr(w.base, uintptr(w.n*w.stride))
	w.base = nil
	return err
}

// Futex operations between processes; the private forms would be for one.
const (
	futexWait = 0
	futexWake = 1
)

// Sleep blocks while *word has the given value, until Wake is called on the same
// word by any process or the time is up. It may return early for no reason.
func Sleep(word *uint32, value uint32, limit time.Duration) {
	ts := unix.NsecToTimespec(limit.Nanoseconds())
	// Every outcome (woken, changed, interrupted, timed out) means the same to
	// the caller, who looks at the word again.
	unix.Syscall6(unix.SYS_FUTEX, uintptr(unsafe.Pointer(word)), futexWait, uintptr(value), uintptr(unsafe.Pointer(&ts)), 0, 0)
}

// Wake wakes all who sleep on word.
func Wake(word *uint32) {
	unix.Syscall6(unix.SYS_FUTEX, uintptr(unsafe.Pointer(word)), futexWake, 1<<30, 0, 0, 0)
}
