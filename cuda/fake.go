//go:build linux

package cuda

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sort"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// Fake is a driver on host memory: device memory is mapped files, a stream is a
// goroutine, and kernels are Go functions that follow the device's protocols word
// by word on the same scratch (fake_kernels.go). Memory can be exported to and
// imported from other processes, so both process models run on it.
//
// It can fail a chosen call, delay kernels at random, and lists what was not
// released. It is for tests; it is not fast.
type Fake struct {
	devices   int
	mu        sync.Mutex
	next      uint64
	objects   map[uint64]any
	noFDs     bool
	fabric    fakeFabric
	common    shared
	apart     map[[2]int]bool // pairs of devices without access
	multicast fakeMulticast
	callbacks []func(args []uint64) error // what RegisterCall took
	ranges    map[Ptr]*fakeMap            // reservations and allocations by address
	calls     int
	failAt    int
	failErr   error
	jitter    atomic.Int64 // nanoseconds a poll may sleep
	rng       atomic.Uint64
	captures  atomic.Uint64
	guard     fakeGuard
	parted    map[*fakeStream]bool // streams that were destroyed and have work left
}

// NewFake gives a driver with that many devices, all of which can access each other.
func NewFake(devices int) *Fake {
	return &Fake{devices: devices, objects: map[uint64]any{}, ranges: map[Ptr]*fakeMap{}, parted: map[*fakeStream]bool{}, next: 1}
}

// FailCall makes the nth driver call from now, counted from 1, fail with err; nil
// stands for out of memory. Zero turns it off.
func (f *Fake) FailCall(n int, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if err == nil {
		err = &Error{Call: "injected", Code: codeOutOfMemory, Name: "CUDA_ERROR_OUT_OF_MEMORY", Text: "injected failure"}
	}
	f.calls, f.failAt, f.failErr = 0, n, err
}

// Calls is the number of driver calls since FailCall or the start.
func (f *Fake) Calls() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.calls
}

// Jitter makes polls and copies sleep up to d at random, from a fixed seed.
func (f *Fake) Jitter(d time.Duration) { f.jitter.Store(int64(d)) }

// Leaks lists by kind what was not released: objects, mappings, and streams that were
// destroyed and still have work. What Late lists is among it.
func (f *Fake) Leaks() map[string]int {
	out := map[string]int{}
	for _, text := range f.Late() {
		out[text]++
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if n := len(f.parted); n > 0 {
		out["stream that was destroyed and has work"] = n
	}
	for _, o := range f.objects {
		out[strings.TrimPrefix(fmt.Sprintf("%T", o), "*cuda.fake")]++
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
	fakeCtx    struct{ dev int }
	fakeModule struct {
		names map[string]bool
	}
	fakeFunc struct{ name string }
	fakeMem  struct {
		fd    int
		bytes uint64
		how   Sharing
		dev   int       // -1 for another process's, or an object's
		team  *fakeTeam // of a multicast object, else nil
		bound int       // to how many objects
	}
	fakeFabric int
)

const (
	fabricAbsent  fakeFabric = iota
	fabricRefused            // claimed, not permitted
	fabricWorks
)

// ShareBy says how the devices' memory can be shared from now on: whether by file
// descriptors, whether they claim fabric handles, and whether those are permitted.
func (f *Fake) ShareBy(fds, fabric, permitted bool) {
	defer f.common.facts.forget()
	f.noFDs, f.fabric = !fds, fabricAbsent
	if fabric {
		f.fabric = fabricRefused
		if permitted {
			f.fabric = fabricWorks
		}
	}
}

// call counts a driver call and fails the chosen one.
func (f *Fake) call() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.calls++
	if f.failAt != 0 && f.calls == f.failAt {
		return f.failErr
	}
	return nil
}

func (f *Fake) put(o any) uint64 {
	f.mu.Lock()
	defer f.mu.Unlock()
	h := f.next
	f.next++
	f.objects[h] = o
	return h
}

func invalid(call, format string, args ...any) error {
	return &Error{Call: call, Code: codeInvalid, Name: "CUDA_ERROR_INVALID_VALUE", Text: fmt.Sprintf(format, args...)}
}

func fakeGet[T any](f *Fake, call string, h uint64) (T, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	o, ok := f.objects[h].(T)
	if !ok {
		return o, invalid(call, "handle %d is no %T", h, o)
	}
	return o, nil
}

func fakeDrop[T any](f *Fake, call string, h uint64) (T, error) {
	o, err := fakeGet[T](f, call, h)
	if err == nil {
		f.mu.Lock()
		delete(f.objects, h)
		f.mu.Unlock()
	}
	return o, err
}

func (f *Fake) shared() *shared { return &f.common }

// Close does nothing: a fake has no library to let go.
func (f *Fake) Close() error { return nil }

// Version claims CUDA 13.0.
func (f *Fake) Version() (int, error) { return 13000, f.call() }

// Devices describes devices of compute capability 8.0, so that PTX is loaded,
// which names its kernels in plain text.
func (f *Fake) Devices() ([]DeviceInfo, error) {
	out := make([]DeviceInfo, f.devices)
	for i := range out {
		out[i] = DeviceInfo{Name: "fake", Major: 8, SMs: 4, Memory: 1 << 34, PCI: fmt.Sprintf("0000:%02x:00", i+1)}
		out[i].FDs, out[i].Fabric = !f.noFDs, f.fabric != fabricAbsent
		out[i].UUID[0] = byte(i + 1)
		if f.multicast.works {
			out[i].Major = 9
		}
	}
	return out, f.call()
}

// Separate takes access to each other's memory from two devices.
func (f *Fake) Separate(a, b int) {
	defer f.common.facts.forget()
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.apart == nil {
		f.apart = map[[2]int]bool{}
	}
	f.apart[[2]int{a, b}], f.apart[[2]int{b, a}] = true, true
}

// CanAccessPeer is true for every pair of devices but those that Separate took.
func (f *Fake) CanAccessPeer(dev, peer int) (bool, error) {
	if dev < 0 || dev >= f.devices || peer < 0 || peer >= f.devices {
		return false, fmt.Errorf("device pair (%d, %d) out of range: this machine has %d devices", dev, peer, f.devices)
	}
	f.mu.Lock()
	ok := !f.apart[[2]int{dev, peer}]
	f.mu.Unlock()
	return ok, f.call()
}

// CtxRetain gives a device's primary context.
func (f *Fake) CtxRetain(dev int) (Ctx, error) {
	if err := f.call(); err != nil {
		return 0, err
	}
	if dev < 0 || dev >= f.devices {
		return 0, invalid("cuDevicePrimaryCtxRetain", "device %d", dev)
	}
	return Ctx(f.put(&fakeCtx{dev: dev})), nil
}

// CtxRelease gives back one retained context of the device.
func (f *Fake) CtxRelease(dev int) error {
	f.mu.Lock()
	found := uint64(0)
	for h, o := range f.objects {
		if c, ok := o.(*fakeCtx); ok && c.dev == dev && (found == 0 || h < found) {
			found = h
		}
	}
	delete(f.objects, found)
	f.mu.Unlock()
	if found == 0 {
		return invalid("cuDevicePrimaryCtxRelease", "device %d has no context", dev)
	}
	return f.call()
}

// CtxSync waits for all streams of the device, those that have been destroyed included.
func (f *Fake) CtxSync(c Ctx) error {
	if err := f.call(); err != nil {
		return err
	}
	ctx, err := fakeGet[*fakeCtx](f, "cuCtxSynchronize", uint64(c))
	if err != nil {
		return err
	}
	f.mu.Lock()
	streams := slices.Collect(maps.Keys(f.parted))
	for _, o := range f.objects {
		if s, ok := o.(*fakeStream); ok {
			streams = append(streams, s)
		}
	}
	f.mu.Unlock()
	streams = slices.DeleteFunc(streams, func(s *fakeStream) bool { return s.dev != ctx.dev })
	var errs []error
	for _, s := range streams {
		errs = append(errs, s.sync())
	}
	return errors.Join(errs...)
}

// ModuleLoad reads the kernels' names from PTX.
func (f *Fake) ModuleLoad(c Ctx, image []byte) (Module, error) {
	if err := errors.Join(f.call(), f.exclusive("cuModuleLoadDataEx", c)); err != nil {
		return 0, err
	}
	m := &fakeModule{names: map[string]bool{}}
	for rest := image; ; {
		_, after, ok := bytes.Cut(rest, []byte(".visible .entry "))
		if !ok {
			break
		}
		name, _, _ := bytes.Cut(after, []byte("("))
		m.names[string(name)] = true
		rest = after
	}
	if len(m.names) == 0 {
		return 0, &Error{Call: "cuModuleLoadDataEx", Code: 218, Name: "CUDA_ERROR_INVALID_PTX", Text: "the image names no kernel"}
	}
	return Module(f.put(m)), nil
}

// ModuleUnload forgets a module.
func (f *Fake) ModuleUnload(c Ctx, m Module) error {
	if err := f.exclusive("cuModuleUnload", c); err != nil {
		return err
	}
	if _, err := fakeDrop[*fakeModule](f, "cuModuleUnload", uint64(m)); err != nil {
		return err
	}
	return f.call()
}

// Function finds a kernel that has a Go form.
func (f *Fake) Function(_ Ctx, m Module, name string) (Func, error) {
	if err := f.call(); err != nil {
		return 0, err
	}
	mod, err := fakeGet[*fakeModule](f, "cuModuleGetFunction", uint64(m))
	if err != nil {
		return 0, err
	}
	if !mod.names[name] {
		return 0, &Error{Call: "cuModuleGetFunction", Code: 500, Name: "CUDA_ERROR_NOT_FOUND", Text: "kernel " + name + ": named symbol not found"}
	}
	// Functions live as long as their module and are not released one by one.
	f.mu.Lock()
	defer f.mu.Unlock()
	h := f.next
	f.next++
	fakeFuncs.Store(h, &fakeFunc{name: name})
	return Func(h), nil
}

// FuncInfo is empty: nothing was compiled.
func (f *Fake) FuncInfo(Ctx, Func) (FuncInfo, error) { return FuncInfo{}, f.call() }

// AllowShared accepts any size.
func (f *Fake) AllowShared(Ctx, Func, int) error { return f.call() }

// fakeFuncs maps handles of functions, which the driver never releases.
var fakeFuncs sync.Map

// sortedLeaks is Leaks in a stable text form.
func (f *Fake) sortedLeaks() string {
	l := f.Leaks()
	keys := make([]string, 0, len(l))
	for k := range l {
		keys = append(keys, k)
	}
	sort.Strings(keys)
	var b strings.Builder
	for _, k := range keys {
		fmt.Fprintf(&b, "%s:%d ", k, l[k])
	}
	return strings.TrimSpace(b.String())
}
