//go:build linux

package fake

import (
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/seed-ee968945/concert/cuda/driver"
	"github.com/seed-ee968945/concert/cuda/internal/hostmem"
	"golang.org/x/sys/unix"
)

// mapping is a range of addresses: a reservation or a plain allocation.
type mapping struct {
	kind  string
	bytes uint64
	made  trace
	live  map[driver.Ptr]uint64 // parts of a reservation that memory is mapped at
	seen  map[driver.Ptr][]int  // devices that have access to them
}

const Granularity = 1 << 16

func (f *Driver) newMap(kind string, bytes uint64, prot int) (driver.Ptr, error) {
	if bytes == 0 {
		return 0, invalid("allocation", "zero bytes")
	}
	p, err := unix.MmapPtr(-1, 0, nil, uintptr(bytes), prot, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS|unix.MAP_NORESERVE)
	if err != nil {
		return 0, &driver.Error{Call: "allocation", Code: driver.CodeOutOfMemory, Name: "CUDA_ERROR_OUT_OF_MEMORY", Text: err.Error()}
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.ranges[driver.Ptr(uintptr(p))] = &mapping{kind: kind, bytes: bytes, made: traceHere(), live: map[driver.Ptr]uint64{}, seen: map[driver.Ptr][]int{}}
	return driver.Ptr(uintptr(p)), nil
}

func (f *Driver) dropMap(call, kind string, c driver.Ctx, at driver.Ptr) error {
	if kind != "reserve" {
		if err := f.exclusive(call, c); err != nil {
			return err
		}
	}
	f.mu.Lock()
	m := f.ranges[at]
	if m == nil || m.kind != kind {
		f.mu.Unlock()
		return invalid(call, "%#x was not allocated", uint64(at))
	}
	if len(m.live) > 0 {
		f.mu.Unlock()
		return invalid(call, "memory is still mapped in the range at %#x", uint64(at))
	}
	delete(f.ranges, at)
	f.mu.Unlock()
	if err := f.guard.quarantine(freedRange{at: at, bytes: m.bytes, what: m.kind, made: m.made, ended: traceHere(), own: true}); err != nil {
		return fmt.Errorf("%s: %w", call, err)
	}
	return f.call()
}

// MemAlloc gives zeroed memory.
func (f *Driver) MemAlloc(_ driver.Ctx, bytes uint64) (driver.Ptr, error) {
	if err := f.call(); err != nil {
		return 0, err
	}
	return f.newMap("alloc", bytes, unix.PROT_READ|unix.PROT_WRITE)
}

// MemFree frees what MemAlloc gave.
func (f *Driver) MemFree(c driver.Ctx, p driver.Ptr) error {
	return f.dropMap("cuMemFree", "alloc", c, p)
}

// MemInfo claims that all memory is free.
func (f *Driver) MemInfo(driver.Ctx) (free, total uint64, err error) {
	return 1 << 34, 1 << 34, f.call()
}

// HostAlloc gives memory whose host and device addresses are the same.
func (f *Driver) HostAlloc(_ driver.Ctx, bytes uint64) (uintptr, driver.Ptr, error) {
	if err := f.call(); err != nil {
		return 0, 0, err
	}
	p, err := f.newMap("host", bytes, unix.PROT_READ|unix.PROT_WRITE)
	return uintptr(p), p, err
}

// HostFree frees what HostAlloc gave.
func (f *Driver) HostFree(c driver.Ctx, host uintptr) error {
	return f.dropMap("cuMemFreeHost", "host", c, driver.Ptr(host))
}

// Granularity is 64 KiB, twice as much for fabric handles.
func (f *Driver) Granularity(_ driver.Ctx, _ int, how driver.Sharing) (uint64, error) {
	if how&^driver.Network == driver.ByFabric {
		return 2 * Granularity, f.call()
	}
	return Granularity, f.call()
}

// Reserve takes a range of addresses that traps until memory is mapped and allowed.
func (f *Driver) Reserve(_ driver.Ctx, bytes, _ uint64) (driver.Ptr, error) {
	if err := f.call(); err != nil {
		return 0, err
	}
	if bytes%Granularity != 0 {
		return 0, invalid("cuMemAddressReserve", "%d bytes are no multiple of %d", bytes, Granularity)
	}
	return f.newMap("reserve", bytes, unix.PROT_NONE)
}

// Unreserve gives a range back; nothing may be mapped in it.
func (f *Driver) Unreserve(c driver.Ctx, at driver.Ptr, bytes uint64) error {
	return f.dropMap("cuMemAddressFree", "reserve", c, at)
}

// MemCreate makes a file in memory.
func (f *Driver) MemCreate(_ driver.Ctx, dev int, bytes uint64, how driver.Sharing) (driver.Mem, error) {
	if err := f.call(); err != nil {
		return 0, err
	}
	if how&driver.Network != 0 {
		f.network.Add(1)
		how &^= driver.Network
	}
	if how == driver.ByFD && f.noFDs || how == driver.ByFabric && f.fabric == fabricAbsent {
		return 0, &driver.Error{Call: "cuMemCreate", Code: driver.CodeNotSupported, Name: "CUDA_ERROR_NOT_SUPPORTED", Text: "no " + how.String()}
	}
	if how == driver.ByFabric && f.fabric == fabricRefused {
		return 0, &driver.Error{Call: "cuMemCreate", Code: driver.CodeNotPermitted, Name: "CUDA_ERROR_NOT_PERMITTED", Text: how.String()}
	}
	if bytes == 0 || bytes%Granularity != 0 {
		return 0, invalid("cuMemCreate", "%d bytes are no multiple of %d", bytes, Granularity)
	}
	fd, err := unix.MemfdCreate("concert", unix.MFD_CLOEXEC)
	if err != nil {
		return 0, os.NewSyscallError("memfd_create", err)
	}
	if err := unix.Ftruncate(fd, int64(bytes)); err != nil {
		unix.Close(fd)
		return 0, &driver.Error{Call: "cuMemCreate", Code: driver.CodeOutOfMemory, Name: "CUDA_ERROR_OUT_OF_MEMORY", Text: err.Error()}
	}
	return driver.Mem(f.put(&memory{fd: fd, bytes: bytes, how: how, dev: dev})), nil
}

// MemRelease closes the file; mappings keep the memory. It refuses memory that is bound to
// a multicast object, and objects that memory of this process is bound to.
func (f *Driver) MemRelease(_ driver.Ctx, m driver.Mem) error {
	if err := f.unbound(m); err != nil {
		return err
	}
	o, err := drop[*memory](f, "cuMemRelease", uint64(m))
	if err != nil {
		return err
	}
	o.team.close()
	unix.Close(o.fd)
	return f.call()
}

func (f *Driver) reservation(call string, at driver.Ptr, bytes uint64) (*mapping, error) {
	for base, m := range f.ranges {
		if m.kind == "reserve" && at >= base && uint64(at-base)+bytes <= m.bytes {
			return m, nil
		}
	}
	return nil, invalid(call, "[%#x, +%#x) is in no reserved range", uint64(at), bytes)
}

// Map puts memory into a reserved range.
func (f *Driver) Map(c driver.Ctx, at driver.Ptr, bytes uint64, m driver.Mem) error {
	if err := errors.Join(f.call(), f.exclusive("cuMemMap", c)); err != nil {
		return err
	}
	o, err := lookUp[*memory](f, "cuMemMap", uint64(m))
	if err != nil {
		return err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	r, err := f.reservation("cuMemMap", at, bytes)
	if err != nil {
		return err
	}
	if bytes > o.bytes || r.live[at] != 0 {
		return invalid("cuMemMap", "%d bytes of %d at %#x, in use: %v", bytes, o.bytes, uint64(at), r.live[at] != 0)
	}
	if o.team != nil {
		if err := f.mapTeam(at, bytes, o); err != nil {
			return err
		}
		r.live[at] = bytes
		return nil
	}
	if _, err := unix.MmapPtr(o.fd, 0, hostmem.Pointer(uintptr(at)), uintptr(bytes), unix.PROT_NONE, unix.MAP_SHARED|unix.MAP_FIXED); err != nil {
		return os.NewSyscallError("mmap", err)
	}
	r.live[at] = bytes
	return nil
}

// Unmap takes memory out of a range again.
func (f *Driver) Unmap(c driver.Ctx, at driver.Ptr, bytes uint64) error {
	f.mu.Lock()
	r, err := f.reservation("cuMemUnmap", at, bytes)
	var devs []int
	if err == nil {
		devs = r.seen[at]
	}
	f.mu.Unlock()
	if err == nil {
		err = f.exclusive("cuMemUnmap", c)
	}
	for _, dev := range devs {
		if err == nil {
			err = f.alone("cuMemUnmap", dev)
		}
	}
	f.mu.Lock()
	if err == nil && r.live[at] != bytes {
		err = invalid("cuMemUnmap", "[%#x, +%#x) is not mapped", uint64(at), bytes)
	}
	if err == nil {
		delete(r.live, at)
		delete(r.seen, at)
		f.unmapTeam(at)
		err = f.guard.quarantine(freedRange{at: at, bytes: bytes, what: "a mapping", made: r.made, ended: traceHere()})
	}
	f.mu.Unlock()
	if err != nil {
		return err
	}
	return f.call()
}

// Allow makes a mapped range readable and writable.
func (f *Driver) Allow(_ driver.Ctx, at driver.Ptr, bytes uint64, devs []int) error {
	if err := f.call(); err != nil {
		return err
	}
	if len(devs) == 0 {
		return nil
	}
	for _, dev := range devs {
		if err := f.alone("cuMemSetAccess", dev); err != nil {
			return err
		}
	}
	if yes, err := f.allowTeam(at); yes {
		return err
	}
	f.mu.Lock()
	r, err := f.reservation("cuMemSetAccess", at, bytes)
	if err == nil {
		r.seen[at] = devs
	}
	f.mu.Unlock()
	if err != nil {
		return err
	}
	return os.NewSyscallError("mprotect", unix.Mprotect(hostmem.Bytes(uintptr(at), int(bytes)), unix.PROT_READ|unix.PROT_WRITE))
}

// exported is memory that was made to be shared so.
func (f *Driver) exported(m driver.Mem, how driver.Sharing) (*memory, error) {
	const call = "cuMemExportToShareableHandle"
	o, err := lookUp[*memory](f, call, uint64(m))
	if err == nil && o.how != how {
		err = invalid(call, "memory %d is shared by %v, not by %v", m, o.how, how)
	}
	if err == nil && o.team != nil {
		f.mu.Lock()
		defer f.mu.Unlock()
		err = f.multicastCall(call)
	}
	return o, err
}

// Export duplicates the file descriptor.
func (f *Driver) Export(_ driver.Ctx, m driver.Mem) (int, error) {
	if err := f.call(); err != nil {
		return -1, err
	}
	o, err := f.exported(m, driver.ByFD)
	if err != nil {
		return -1, err
	}
	fd, err := unix.FcntlInt(uintptr(o.fd), unix.F_DUPFD_CLOEXEC, 0)
	return fd, os.NewSyscallError("fcntl", err)
}

// Import takes memory that this or another process exported.
func (f *Driver) Import(_ driver.Ctx, fd int) (driver.Mem, error) {
	if err := f.call(); err != nil {
		return 0, err
	}
	own, err := unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return 0, os.NewSyscallError("fcntl", err)
	}
	var st unix.Stat_t
	if err := unix.Fstat(own, &st); err != nil {
		unix.Close(own)
		return 0, os.NewSyscallError("fstat", err)
	}
	return f.imported(&memory{fd: own, bytes: uint64(st.Size), how: driver.ByFD, dev: -1})
}

// imported is a handle of what came from this or another process.
func (f *Driver) imported(o *memory) (driver.Mem, error) {
	if err := f.openTeam(o); err != nil {
		unix.Close(o.fd)
		return 0, err
	}
	return driver.Mem(f.put(o)), nil
}

// ExportFabric names the file by process and descriptor.
func (f *Driver) ExportFabric(_ driver.Ctx, m driver.Mem) (driver.FabricHandle, error) {
	var h driver.FabricHandle
	if err := f.call(); err != nil {
		return h, err
	}
	o, err := f.exported(m, driver.ByFabric)
	if err == nil {
		copy(h[:], fmt.Sprintf("/proc/%d/fd/%d", os.Getpid(), o.fd))
	}
	return h, err
}

// ImportFabric opens the file that ExportFabric named, while its process has it.
func (f *Driver) ImportFabric(_ driver.Ctx, h driver.FabricHandle) (driver.Mem, error) {
	if err := f.call(); err != nil {
		return 0, err
	}
	const call = "cuMemImportFromShareableHandle"
	if f.fabric != fabricWorks {
		return 0, &driver.Error{Call: call, Code: driver.CodeNotPermitted, Name: "CUDA_ERROR_NOT_PERMITTED", Text: driver.ByFabric.String()}
	}
	name, _, _ := strings.Cut(string(h[:]), "\x00")
	own, err := unix.Open(name, unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		return 0, invalid(call, "%q: %v", name, err)
	}
	var st unix.Stat_t
	if err := unix.Fstat(own, &st); err != nil {
		unix.Close(own)
		return 0, os.NewSyscallError("fstat", err)
	}
	return f.imported(&memory{fd: own, bytes: uint64(st.Size), how: driver.ByFabric, dev: -1})
}

// bytesAt views device memory.
func bytesAt(p driver.Ptr, n uint64) []byte { return hostmem.Bytes(uintptr(p), int(n)) }
