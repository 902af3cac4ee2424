package shm

import (
	"fmt"
	"os"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// File is one rank's segment as a memory file that other processes can map. It
// is sealed: it can neither shrink nor grow, so no peer can be made to fault.
type File struct {
	fd        int
	pad, data int
}

const seals = unix.F_SEAL_SHRINK | unix.F_SEAL_GROW | unix.F_SEAL_SEAL

// Create returns a zeroed memory file for a pad and an arena of these sizes.
func Create(pad, data int) (*File, error) {
	fd, err := unix.MemfdCreate("concert", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	if err != nil {
		return nil, fmt.Errorf("shm: memfd_create: %w", err)
	}
	f := &File{fd: fd, pad: pad, data: data}
	if err := unix.Ftruncate(fd, int64(f.layout().size)); err != nil {
		f.Close()
		return nil, fmt.Errorf("shm: %d bytes: %w", f.layout().size, err)
	}
	if _, err := unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, seals); err != nil {
		f.Close()
		return nil, fmt.Errorf("shm: seal: %w", err)
	}
	return f, nil
}

// Adopt takes over a descriptor that a peer sent, after checking that it is a
// sealed memory file of the right size.
func Adopt(fd, pad, data int) (*File, error) {
	f := &File{fd: fd, pad: pad, data: data}
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
	if st.Size != int64(f.layout().size) {
		f.Close()
		return nil, fmt.Errorf("shm: the peer's memory file has %d bytes, expected %d", st.Size, f.layout().size)
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

// layout places the pad at the start and the arena at the next page.
type layout struct{ arena, size int }

func (f *File) layout() layout { return layoutOf(f.pad, f.data) }

func layoutOf(pad, data int) layout {
	page := os.Getpagesize()
	a := roundUp(max(pad, padAlign), page)
	return layout{arena: a, size: a + roundUp(max(data, 1), page)}
}

// World is a flat range of addresses with room for one segment per rank.
type World struct {
	base      unsafe.Pointer
	pad, data int
	stride    int
	n         int
}

// Reserve reserves the addresses of n segments without memory behind them.
func Reserve(n, pad, data int) (*World, error) {
	w := &World{pad: pad, data: data, stride: layoutOf(pad, data).size, n: n}
	base, err := unix.MmapPtr(-1, 0, nil, uintptr(n*w.stride), unix.PROT_NONE, unix.MAP_PRIVATE|unix.MAP_ANON|unix.MAP_NORESERVE)
	if err != nil {
		return nil, fmt.Errorf("shm: reserve %d x %d bytes: %w", n, w.stride, err)
	}
	w.base = base
	return w, nil
}

// Stride is the distance between the segments of neighbouring ranks in bytes.
func (w *World) Stride() int { return w.stride }

// Place maps f as rank's segment.
func (w *World) Place(rank int, f *File) (*Segment, error) {
	if rank < 0 || rank >= w.n || w.base == nil {
		return nil, fmt.Errorf("shm: rank %d of %d", rank, w.n)
	}
	if f.pad != w.pad || f.data != w.data {
		return nil, fmt.Errorf("shm: segment of rank %d has pad and arena of %d and %d bytes, expected %d and %d", rank, f.pad, f.data, w.pad, w.data)
	}
	at := unsafe.Add(w.base, rank*w.stride)
	if _, err := unix.MmapPtr(f.fd, 0, at, uintptr(w.stride), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED|unix.MAP_FIXED); err != nil {
		return nil, fmt.Errorf("shm: map rank %d: %w", rank, err)
	}
	pad := roundUp(max(w.pad, padAlign), padAlign)
	return &Segment{
		Words: unsafe.Slice((*uint32)(at), pad/4),
		Quads: unsafe.Slice((*uint64)(at), pad/8),
		Bytes: unsafe.Slice((*byte)(at), pad),
		Data:  unsafe.Slice((*byte)(unsafe.Add(at, layoutOf(w.pad, w.data).arena)), w.data),
	}, nil
}

// Close unmaps everything; no segment may be used after it.
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
