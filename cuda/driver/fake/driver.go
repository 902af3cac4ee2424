//go:build linux

package fake

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/seed-ee968945/concert/cuda/driver"
)

// Driver is a driver on host memory: device memory is mapped files, a stream is a
// goroutine, and kernels are Go functions that follow the device's protocols word
// by word on the same scratch (kernels.go). Memory can be exported to and
// imported from other processes, so both process models run on it.
//
// It can fail a chosen call, delay kernels at random, and lists what was not
// released. It is for tests; it is not fast.
type Driver struct {
	devices   int
	mu        sync.Mutex
	next      uint64
	objects   map[uint64]any
	images    map[*byte]func() map[string]bool // by its first byte: an image's kernels
	noFDs     bool
	fabric    fabricState
	common    driver.Shared
	apart     map[[2]int]bool // pairs of devices without access
	multicast multicast
	callbacks []func(args []uint64) error // what RegisterCall took
	ranges    map[driver.Ptr]*mapping     // reservations and allocations by address
	calls     int
	failAt    int
	failErr   error
	jitter    atomic.Int64 // nanoseconds a poll may sleep
	network   atomic.Int32 // how often memory was made for adapters
	resting   atomic.Int32 // goroutines in rest
	rng       atomic.Uint64
	captures  atomic.Uint64
	functions sync.Map // by handle; they live as long as their module
	guard     guard
	parted    map[*stream]bool // streams that were destroyed and have work left
	streams   driver.StreamPool
	kept      map[driver.Stream]*stream // that the pool has, by id
	ids       driver.Stream             // so many were made
	queues    queues

	unconditional bool // without conditional nodes
}

// New gives a driver with that many devices, all of which can access each other.
func New(devices int) *Driver {
	return &Driver{devices: devices, objects: map[uint64]any{}, images: map[*byte]func() map[string]bool{}, ranges: map[driver.Ptr]*mapping{}, parted: map[*stream]bool{}, kept: map[driver.Stream]*stream{}, next: 1}
}

// FailCall makes the nth driver call from now, counted from 1, fail with err; nil
// stands for out of memory. Zero turns it off.
func (f *Driver) FailCall(n int, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if err == nil {
		err = &driver.Error{Call: "injected", Code: driver.CodeOutOfMemory, Name: "CUDA_ERROR_OUT_OF_MEMORY", Text: "injected failure"}
	}
	f.calls, f.failAt, f.failErr = 0, n, err
}

// Calls is the number of driver calls since FailCall or the start.
func (f *Driver) Calls() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.calls
}

// Networked is how often memory was made for network adapters, too.
func (f *Driver) Networked() int { return int(f.network.Load()) }

// Jitter makes polls and copies sleep up to d at random, from a fixed seed.
func (f *Driver) Jitter(d time.Duration) { f.jitter.Store(int64(d)) }

// Leaks is how many objects of each kind are left.
type Leaks map[string]int

// String lists them as kind:count, sorted; it is empty where nothing is left.
func (l Leaks) String() string {
	var b strings.Builder
	for _, k := range slices.Sorted(maps.Keys(l)) {
		fmt.Fprintf(&b, "%s:%d ", k, l[k])
	}
	return strings.TrimSpace(b.String())
}

// Leaks lists by kind what was not released: objects, mappings, and streams that were
// destroyed and still have work. What Late lists is among it.
func (f *Driver) Leaks() Leaks {
	out := Leaks{}
	for _, text := range f.Late() {
		out[text]++
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if n := len(f.parted); n > 0 {
		out["stream that was destroyed and has work"] = n
	}
	for _, o := range f.objects {
		out[strings.TrimPrefix(fmt.Sprintf("%T", o), "*fake.")]++
	}
	for _, m := range f.ranges {
		out[m.kind]++
	}
	if n := len(f.multicast.maps); n > 0 {
		out["multicast mapping"] = n
	}
	return out
}

type (
	primaryContext struct{ dev, retained int }
	module         struct {
		names func() map[string]bool
	}
	function struct{ name string }
	memory   struct {
		fd    int
		bytes uint64
		how   driver.Sharing
		dev   int   // -1 for another process's, or an object's
		team  *team // of a multicast object, else nil
		bound int   // to how many objects
	}
	fabricState int
)

const (
	fabricAbsent  fabricState = iota
	fabricRefused             // claimed, not permitted
	fabricWorks
)

// ShareBy says how the devices' memory can be shared from now on: whether by file
// descriptors, whether they claim fabric handles, and whether those are permitted.
func (f *Driver) ShareBy(fds, fabric, permitted bool) {
	defer f.common.Forget()
	f.noFDs, f.fabric = !fds, fabricAbsent
	if fabric {
		f.fabric = fabricRefused
		if permitted {
			f.fabric = fabricWorks
		}
	}
}

// call counts a driver call and fails the chosen one.
func (f *Driver) call() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.calls++
	if f.failAt != 0 && f.calls == f.failAt {
		return f.failErr
	}
	return nil
}

func (f *Driver) put(o any) uint64 {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.add(o)
}

// add is put for a caller that holds mu.
func (f *Driver) add(o any) uint64 {
	h := f.next
	f.next++
	f.objects[h] = o
	return h
}

func invalid(call, format string, args ...any) error {
	return &driver.Error{Call: call, Code: driver.CodeInvalid, Name: "CUDA_ERROR_INVALID_VALUE", Text: fmt.Sprintf(format, args...)}
}

func lookUp[T any](f *Driver, call string, h uint64) (T, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	o, ok := f.objects[h].(T)
	if !ok {
		return o, invalid(call, "handle %d is no %T", h, o)
	}
	return o, nil
}

func drop[T any](f *Driver, call string, h uint64) (T, error) {
	o, err := lookUp[T](f, call, h)
	if err == nil {
		f.mu.Lock()
		delete(f.objects, h)
		f.mu.Unlock()
	}
	return o, err
}

// Shared is the driver's own.
func (f *Driver) Shared() *driver.Shared { return &f.common }

// Close lets the addresses go that were given back, unless a stream is left that could touch
// them.
func (f *Driver) Close() error {
	f.mu.Lock()
	left := len(f.parted) > 0
	for _, o := range f.objects {
		_, is := o.(*stream)
		left = left || is
	}
	f.mu.Unlock()
	if !left {
		f.guard.mu.Lock()
		defer f.guard.mu.Unlock()
		f.guard.freed.clear()
	}
	return nil
}

// Version claims CUDA 13.0.
func (f *Driver) Version() (int, error) { return 13000, f.call() }

// Devices describes devices of compute capability 8.0, so that PTX is loaded,
// which names its kernels in plain text.
func (f *Driver) Devices() ([]driver.DeviceInfo, error) {
	out := make([]driver.DeviceInfo, f.devices)
	for i := range out {
		out[i] = driver.DeviceInfo{Name: "fake", Major: 8, SMs: 4, Memory: 1 << 34, PCI: fmt.Sprintf("0000:%02x:00", i+1)}
		out[i].FDs, out[i].Fabric, out[i].Network = !f.noFDs, f.fabric != fabricAbsent, true
		out[i].UUID[0] = byte(i + 1)
		if f.multicast.works {
			out[i].Major = 9
		}
	}
	return out, f.call()
}

// Separate takes access to each other's memory from two devices.
func (f *Driver) Separate(a, b int) {
	defer f.common.Forget()
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.apart == nil {
		f.apart = map[[2]int]bool{}
	}
	f.apart[[2]int{a, b}], f.apart[[2]int{b, a}] = true, true
}

// CanAccessPeer is true for every pair of devices but those that Separate took.
func (f *Driver) CanAccessPeer(dev, peer int) (bool, error) {
	if dev < 0 || dev >= f.devices || peer < 0 || peer >= f.devices {
		return false, fmt.Errorf("device pair (%d, %d) out of range: this machine has %d devices", dev, peer, f.devices)
	}
	f.mu.Lock()
	ok := !f.apart[[2]int{dev, peer}]
	f.mu.Unlock()
	return ok, f.call()
}

// CtxRetain gives a device's primary context, the same one while it is retained.
func (f *Driver) CtxRetain(dev int) (driver.Ctx, error) {
	if err := f.call(); err != nil {
		return 0, err
	}
	if dev < 0 || dev >= f.devices {
		return 0, invalid("cuDevicePrimaryCtxRetain", "device %d", dev)
	}
	if err := f.streams.Reserve(driver.Ctx(dev), f.queues.count(), f.makeStream(dev)); err != nil {
		return 0, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	h, c := f.primary(dev)
	if c == nil {
		c = &primaryContext{dev: dev}
		h = f.add(c)
	}
	c.retained++
	return driver.Ctx(h), nil
}

// primary is the device's context, if there is one. The caller holds mu.
func (f *Driver) primary(dev int) (uint64, *primaryContext) {
	for h, o := range f.objects {
		if c, ok := o.(*primaryContext); ok && c.dev == dev {
			return h, c
		}
	}
	return 0, nil
}

// CtxRelease undoes one CtxRetain.
func (f *Driver) CtxRelease(dev int) error {
	f.mu.Lock()
	h, c := f.primary(dev)
	if c != nil {
		if c.retained--; c.retained == 0 {
			delete(f.objects, h)
		}
	}
	f.mu.Unlock()
	if c == nil {
		return invalid("cuDevicePrimaryCtxRelease", "device %d has no context", dev)
	}
	return f.call()
}

// CtxSync waits for all streams of the device, those that have been destroyed included.
func (f *Driver) CtxSync(c driver.Ctx) error {
	if err := f.call(); err != nil {
		return err
	}
	ctx, err := lookUp[*primaryContext](f, "cuCtxSynchronize", uint64(c))
	if err != nil {
		return err
	}
	return f.common.SyncContext(c, func() error { return f.syncAll(ctx) })
}

func (f *Driver) syncAll(ctx *primaryContext) error {
	f.mu.Lock()
	streams := slices.Collect(maps.Keys(f.parted))
	for _, o := range f.objects {
		if s, ok := o.(*stream); ok {
			streams = append(streams, s)
		}
	}
	f.mu.Unlock()
	streams = slices.DeleteFunc(streams, func(s *stream) bool { return s.dev != ctx.dev })
	capturing := false
	for _, s := range streams {
		capturing = s.invalidate() || capturing
	}
	if capturing {
		return &driver.Error{Call: "cuCtxSynchronize", Code: 900, Name: "CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED", Text: "a stream of the context is capturing"}
	}
	var errs []error
	for _, s := range streams {
		errs = append(errs, s.sync())
	}
	return errors.Join(errs...)
}

// ModuleLoad takes PTX. The kernels' names are read when one is first asked for: most of
// the modules that a world loads are never used.
func (f *Driver) ModuleLoad(c driver.Ctx, image []byte) (driver.Module, error) {
	if err := errors.Join(f.call(), f.exclusive("cuModuleLoadDataEx", c)); err != nil {
		return 0, err
	}
	if !bytes.Contains(image, entry) {
		return 0, &driver.Error{Call: "cuModuleLoadDataEx", Code: 218, Name: "CUDA_ERROR_INVALID_PTX", Text: "the image names no kernel"}
	}
	f.mu.Lock()
	names := f.images[&image[0]]
	if names == nil {
		names = sync.OnceValue(func() map[string]bool { return kernelNames(image) })
		f.images[&image[0]] = names
	}
	f.mu.Unlock()
	return driver.Module(f.put(&module{names})), nil
}

func kernelNames(image []byte) map[string]bool {
	names := map[string]bool{}
	for _, after, ok := bytes.Cut(image, entry); ok; _, after, ok = bytes.Cut(after, entry) {
		name, _, _ := bytes.Cut(after, []byte("("))
		names[string(name)] = true
	}
	return names
}

// entry is in front of a kernel's name. A point is in front of that, but points are
// everywhere in PTX, and to look for them takes longer.
var entry = []byte("visible .entry ")

// ModuleUnload forgets a module.
func (f *Driver) ModuleUnload(c driver.Ctx, m driver.Module) error {
	if err := f.exclusive("cuModuleUnload", c); err != nil {
		return err
	}
	if _, err := drop[*module](f, "cuModuleUnload", uint64(m)); err != nil {
		return err
	}
	return f.call()
}

// Function finds a kernel that has a Go form.
func (f *Driver) Function(_ driver.Ctx, m driver.Module, name string) (driver.Func, error) {
	if err := f.call(); err != nil {
		return 0, err
	}
	mod, err := lookUp[*module](f, "cuModuleGetFunction", uint64(m))
	if err != nil {
		return 0, err
	}
	if !mod.names()[name] {
		return 0, &driver.Error{Call: "cuModuleGetFunction", Code: 500, Name: "CUDA_ERROR_NOT_FOUND", Text: "kernel " + name + ": named symbol not found"}
	}
	// Functions live as long as their module and are not released one by one.
	f.mu.Lock()
	defer f.mu.Unlock()
	h := f.next
	f.next++
	f.functions.Store(h, &function{name: name})
	return driver.Func(h), nil
}

// AllowShared accepts any size.
func (f *Driver) AllowShared(driver.Ctx, driver.Func, int) error { return f.call() }
