//go:build linux

package fake

import (
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/seed-ee968945/concert/cuda/driver"
	"github.com/seed-ee968945/concert/cuda/internal/hostmem"
	"github.com/seed-ee968945/concert/internal/dtype"
	"github.com/seed-ee968945/concert/kernels"
	"golang.org/x/sys/unix"
)

// Multicast objects of the fake driver. An object, a team of devices, is a page that the
// processes which have it share: which devices were added, and where the memory is that
// each bound. Mapping it gives an address that traps, as only the kernels' multimem
// instructions may use it; their Go forms reach every device's memory from there. It is
// stricter than a driver, which blocks, or leaves open what happens: nothing may be bound
// before all devices were added or mapped before all have bound, and nothing released while
// it is bound.
type multicast struct {
	works  bool
	calls  int            // that concern multicast
	refuse map[string]int // by the name of the call: how many more of them until one fails
	maps   map[driver.Ptr]*teamMap
}

// team is the shared page: devices, bytes, and for each device what became of it and
// the name of the file that it bound.
type team struct {
	at    uint64
	binds map[int]*memory // by device, of this process
}

const (
	teamBytes = 8192 // no size of memory
	teamMagic = 0x6d756c74
	teamSlots = 64
	slotBytes = 64

	slotAdded = 1
	slotBound = 2
)

// teamMap is an object mapped in this process.
type teamMap struct {
	at      driver.Ptr
	bytes   uint64
	views   [][]byte // of every device's memory
	allowed bool
}

// HaveMulticast gives the devices multicast, and compute capability 9.0, which the kernels
// need. Worlds then have to ask for PTX, since the fake cannot read machine code.
func (f *Driver) HaveMulticast() { f.multicast.works = true }

// MulticastCalls is the number of calls so far that concern multicast.
func (f *Driver) MulticastCalls() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.multicast.calls
}

// RefuseMulticast makes the nth call from now that concerns multicast and has that name
// fail, counted from 1.
func (f *Driver) RefuseMulticast(call string, n int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.multicast.refuse = map[string]int{call: n}
}

// multicastCall counts a call and fails the chosen one. f.mu is held.
func (f *Driver) multicastCall(name string) error {
	f.multicast.calls++
	if n := f.multicast.refuse[name]; n > 0 {
		f.multicast.refuse[name] = n - 1
		if n == 1 {
			return &driver.Error{Call: name, Code: driver.CodeNotSupported, Name: "CUDA_ERROR_NOT_SUPPORTED", Text: "refused"}
		}
	}
	return nil
}

func (f *Driver) multicastCalled(name string) error {
	f.mu.Lock()
	err := f.multicastCall(name)
	f.mu.Unlock()
	if err != nil {
		return err
	}
	return f.call()
}

// MulticastSupported is true of all devices after HaveMulticast.
func (f *Driver) MulticastSupported(dev int) (bool, error) {
	return f.multicast.works, f.multicastCalled("cuDeviceGetAttribute")
}

// MulticastGranularity is twice that of memory.
func (f *Driver) MulticastGranularity(_ driver.Ctx, devices int, bytes uint64, how driver.Sharing) (uint64, error) {
	return 2 * Granularity, f.multicastCalled("cuMulticastGetGranularity")
}

// MulticastCreate makes an object for any devices of this or other processes.
func (f *Driver) MulticastCreate(_ driver.Ctx, devices int, bytes uint64, how driver.Sharing) (driver.Mem, error) {
	const call = "cuMulticastCreate"
	if err := f.multicastCalled(call); err != nil {
		return 0, err
	}
	if devices < 1 || devices > teamSlots || bytes == 0 || bytes%(2*Granularity) != 0 {
		return 0, invalid(call, "%d devices, %d bytes", devices, bytes)
	}
	fd, err := unix.MemfdCreate("concert-multicast", unix.MFD_CLOEXEC)
	if err != nil {
		return 0, os.NewSyscallError("memfd_create", err)
	}
	err = unix.Ftruncate(fd, teamBytes)
	var at uint64
	if err == nil {
		at, err = mapPage(fd)
	}
	if err != nil {
		unix.Close(fd)
		return 0, os.NewSyscallError("multicast object", err)
	}
	setLong(at+8, bytes)
	setWord(at+4, uint32(devices))
	setWord(at, teamMagic)
	return driver.Mem(f.put(&memory{fd: fd, bytes: bytes, how: how, dev: -1, team: &team{at: at, binds: map[int]*memory{}}})), nil
}

func mapPage(fd int) (uint64, error) {
	p, err := unix.MmapPtr(fd, 0, nil, teamBytes, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	return uint64(uintptr(p)), err
}

// openTeam makes an object of what was imported, if it is one.
func (f *Driver) openTeam(o *memory) error {
	if o.bytes != teamBytes {
		return nil
	}
	f.mu.Lock()
	err := f.multicastCall("cuMemImportFromShareableHandle")
	f.mu.Unlock()
	if err != nil {
		return err
	}
	at, err := mapPage(o.fd)
	if err != nil {
		return os.NewSyscallError("mmap", err)
	}
	o.team = &team{at: at, binds: map[int]*memory{}}
	if o.bytes = long(at + 8); word(at) != teamMagic {
		o.team.close()
		return invalid("cuMemImportFromShareableHandle", "neither memory nor a multicast object")
	}
	return nil
}

func (t *team) close() {
	if t != nil {
		unix.MunmapPtr(hostmem.Pointer(uintptr(t.at)), teamBytes)
	}
}

func (t *team) slot(dev int) uint64 { return t.at + 64 + slotBytes*uint64(dev) }

// complete says whether all devices have got that far.
func (t *team) complete(state uint32) bool {
	n := uint32(0)
	for dev := range teamSlots {
		if word(t.slot(dev)) >= state {
			n++
		}
	}
	return n == word(t.at+4)
}

func (f *Driver) object(call string, m driver.Mem) (*memory, error) {
	o, err := lookUp[*memory](f, call, uint64(m))
	if err == nil && o.team == nil {
		err = invalid(call, "%d is memory, no multicast object", m)
	}
	return o, err
}

// MulticastAdd adds a device that the object has not, and has room for.
func (f *Driver) MulticastAdd(_ driver.Ctx, object driver.Mem, dev int) error {
	const call = "cuMulticastAddDevice"
	if err := f.multicastCalled(call); err != nil {
		return err
	}
	o, err := f.object(call, object)
	if err != nil {
		return err
	}
	if dev < 0 || dev >= min(f.devices, teamSlots) || word(o.team.slot(dev)) != 0 || o.team.complete(slotAdded) {
		return invalid(call, "device %d is none, was added before, or one too many", dev)
	}
	setWord(o.team.slot(dev), slotAdded)
	return nil
}

func illegal(call, text string) error {
	return &driver.Error{Call: call, Code: 401, Name: "CUDA_ERROR_ILLEGAL_STATE", Text: text}
}

// MulticastBind refuses what a driver might wait for.
func (f *Driver) MulticastBind(_ driver.Ctx, object, m driver.Mem, bytes uint64) error {
	const call = "cuMulticastBindMem"
	if err := f.multicastCalled(call); err != nil {
		return err
	}
	o, err := f.object(call, object)
	if err != nil {
		return err
	}
	own, err := lookUp[*memory](f, call, uint64(m))
	if err != nil {
		return err
	}
	if own.dev < 0 || own.how != o.how || bytes%(2*Granularity) != 0 || bytes > min(own.bytes, o.bytes) || word(o.team.slot(own.dev)) != slotAdded {
		return invalid(call, "%d bytes of %d of device %d, shared by %v", bytes, own.bytes, own.dev, own.how)
	}
	if !o.team.complete(slotAdded) {
		return illegal(call, "not all devices were added: a driver would wait")
	}
	at := o.team.slot(own.dev)
	name := bytesAt(driver.Ptr(at+8), slotBytes-8)
	clear(name)
	copy(name, fmt.Sprintf("/proc/%d/fd/%d", os.Getpid(), own.fd))
	f.mu.Lock()
	o.team.binds[own.dev] = own
	own.bound++
	f.mu.Unlock()
	setWord(at, slotBound)
	return nil
}

// MulticastUnbind undoes a bind of this process.
func (f *Driver) MulticastUnbind(_ driver.Ctx, object driver.Mem, dev int, bytes uint64) error {
	const call = "cuMulticastUnbind"
	o, err := f.object(call, object)
	if err != nil {
		return err
	}
	f.mu.Lock()
	own := o.team.binds[dev]
	if own != nil {
		own.bound--
		delete(o.team.binds, dev)
		setWord(o.team.slot(dev), slotAdded)
	}
	f.mu.Unlock()
	if own == nil {
		return invalid(call, "device %d has nothing bound", dev)
	}
	return f.multicastCalled(call)
}

// unbound refuses to release what is bound.
func (f *Driver) unbound(m driver.Mem) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if o, ok := f.objects[uint64(m)].(*memory); ok && (o.bound > 0 || o.team != nil && len(o.team.binds) > 0) {
		return invalid("cuMemRelease", "%d is bound", m)
	}
	return nil
}

// mapTeam maps an object whose devices have all bound. f.mu is held.
func (f *Driver) mapTeam(at driver.Ptr, bytes uint64, o *memory) error {
	const call = "cuMemMap"
	if err := f.multicastCall(call); err != nil {
		return err
	}
	if !o.team.complete(slotBound) {
		return illegal(call, "not all devices have bound memory")
	}
	m := &teamMap{at: at, bytes: bytes}
	for dev := range teamSlots {
		if word(o.team.slot(dev)) != slotBound {
			continue
		}
		name, _, _ := strings.Cut(string(bytesAt(driver.Ptr(o.team.slot(dev)+8), slotBytes-8)), "\x00")
		fd, err := unix.Open(name, unix.O_RDWR|unix.O_CLOEXEC, 0)
		if err == nil {
			var v []byte
			v, err = unix.Mmap(fd, 0, int(bytes), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
			unix.Close(fd)
			m.views = append(m.views, v)
		}
		if err != nil {
			m.close()
			return illegal(call, fmt.Sprintf("memory of device %d: %v", dev, err))
		}
	}
	if f.multicast.maps == nil {
		f.multicast.maps = map[driver.Ptr]*teamMap{}
	}
	f.multicast.maps[at] = m
	return nil
}

func (m *teamMap) close() {
	for _, v := range m.views {
		if v != nil {
			unix.Munmap(v)
		}
	}
}

// unmapTeam lets go of the object mapped at an address, if one is. f.mu is held.
func (f *Driver) unmapTeam(at driver.Ptr) {
	if m := f.multicast.maps[at]; m != nil {
		m.close()
		delete(f.multicast.maps, at)
	}
}

// allowTeam lets devices in. yes is false where no object is mapped.
func (f *Driver) allowTeam(at driver.Ptr) (yes bool, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	m := f.multicast.maps[at]
	if m == nil {
		return false, nil
	}
	m.allowed = true
	return true, f.multicastCall("cuMemSetAccess")
}

// all gives sixteen bytes at a multicast address in every device's memory.
func (b *block) all(addr uint64) ([][]byte, error) {
	b.f.mu.Lock()
	defer b.f.mu.Unlock()
	for _, m := range b.f.multicast.maps {
		if at := uint64(m.at); m.allowed && addr >= at && addr+16 <= at+m.bytes && addr%16 == 0 {
			var out [][]byte
			for _, v := range m.views {
				out = append(out, v[addr-at:][:16])
			}
			return out, nil
		}
	}
	return nil, fmt.Errorf("%#x is no multicast address", addr)
}

// stAll is a store to all.
func (b *block) stAll(addr uint64, v [16]byte) error {
	all, err := b.all(addr)
	for _, to := range all {
		copy(to, v[:])
	}
	return err
}

// sumAll adds in float32, from the last device to the first: in which order a switch adds
// is its own business, and tests shall not rely on the ranks'.
func (b *block) sumAll(addr uint64) (out [16]byte, err error) {
	all, err := b.all(addr)
	if err != nil {
		return out, err
	}
	slices.Reverse(all)
	t := dtype.DType(b.a.DType)
	for at := 0; at < 16; at += t.Size() {
		s := getFloat(t, all[0][at:])
		for _, v := range all[1:] {
			s += getFloat(t, v[at:])
		}
		putFloat(t, out[at:], s)
	}
	return out, nil
}

// multicast is all_reduce_multicast and all_gather_multicast.
func (b *block) multicast(kind kernels.Collective) error {
	a := b.a
	e, err := b.enter()
	if err != nil {
		return err
	}
	toAll := a.Scratch - a.Peer[0]
	lo, hi := uint32(0), a.Units
	if kind == kernels.AllReduce {
		lo, hi = min(a.Rank*a.Per, a.Units), min((a.Rank+1)*a.Per, a.Units)
	}
	for i := lo + b.bid; i < hi; i += b.grid {
		seg, off := a.Find(i, 16)
		s := a.Segs[seg]
		whole := (s.Src|s.Dst|s.Bytes)%16 == 0 // then every unit is
		dst := s.Dst
		if kind == kernels.AllGather {
			dst += uint64(a.Rank) * s.Bytes
		}
		var w [16]byte
		switch {
		case kind == kernels.AllGather:
			w = b.load(seg, s.Src, off, 16)
		case whole:
			if w, err = b.sumAll(toAll + s.Src + off); err != nil {
				return err
			}
		default:
			v := make([][16]byte, a.N)
			for k := uint32(0); k < a.N; k++ {
				v[b.rankAt(k)] = b.load(seg, b.toPeer(k, s.Src), off, 16)
			}
			w = reduce(a, v)
		}
		if whole {
			if err := b.stAll(toAll+dst+off, w); err != nil {
				return err
			}
			continue
		}
		for k := uint32(0); k < a.N; k++ {
			b.store(seg, b.toPeer(k, dst), off, 16, w)
		}
	}
	return b.leave(e)
}
