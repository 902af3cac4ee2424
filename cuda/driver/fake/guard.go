//go:build linux

package fake

import (
	"fmt"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/seed-ee968945/concert/cuda/driver"
	"github.com/seed-ee968945/concert/cuda/internal/hostmem"
	"golang.org/x/sys/unix"
)

// A device goes on writing where it was told to when that memory is given back too early,
// and a call of the driver that needs the device to itself never returns while a kernel
// waits for a rank that its caller has yet to launch. The fake driver shows both: memory
// that was given back keeps its addresses and traps, and those calls wait as long as such a
// kernel runs, but not for ever.

// guard is what a fake knows of memory that was given back and of kernels that wait.
type guard struct {
	mu      sync.Mutex
	freed   *quarantine
	late    []string
	waiting map[int]map[*block]string // by device: kernels that wait for a peer
	changed chan struct{}             // closed when a kernel waits no more
	limit   time.Duration             // how long a call waits for such kernels; 0 is fakePatience
}

// quarantine is memory that was given back, the latest at the end.
type quarantine struct {
	list  []freedRange
	bytes uint64 // of addresses that are to be unmapped
}

type freedRange struct {
	at    driver.Ptr
	bytes uint64
	what  string
	made  trace // who made it
	ended trace // who gave it back
	own   bool  // the addresses are to be unmapped in the end
}

const (
	// maxFreed bounds the ranges that are kept, and maxFreedBytes their addresses.
	maxFreed      = 1 << 12
	maxFreedBytes = 1 << 45
	// waitLimit is how long a call waits for kernels that wait for a peer. A group's
	// timeout ends them as a rule.
	waitLimit = 30 * time.Second
)

// trace is where a call of the fake came from.
type trace [16]uintptr

func traceHere() (t trace) {
	runtime.Callers(3, t[:])
	return t
}

// String names the innermost functions that are not the fake's.
func (t trace) String() string {
	var names []string
	for frames := runtime.CallersFrames(t[:]); len(names) < 4; {
		f, more := frames.Next()
		name := f.Function[strings.LastIndex(f.Function, "/")+1:]
		if name != "" && !strings.HasPrefix(name, "fake.(*") && !strings.HasPrefix(name, "runtime.") {
			names = append(names, name)
		}
		if !more {
			break
		}
	}
	if len(names) == 0 {
		return "a replay"
	}
	return strings.Join(names, " < ")
}

// quarantine makes a range trap from now on.
func (g *guard) quarantine(b freedRange) error {
	_, err := unix.MmapPtr(-1, 0, hostmem.Pointer(uintptr(b.at)), uintptr(b.bytes), unix.PROT_NONE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS|unix.MAP_FIXED|unix.MAP_NORESERVE)
	if err != nil {
		return err
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.freed == nil {
		g.freed = &quarantine{}
		runtime.AddCleanup(g, (*quarantine).clear, g.freed) // no stream is left that could touch them
	}
	f := g.freed
	f.list = append(f.list, b)
	if b.own {
		f.bytes += b.bytes
	}
	for len(f.list) > maxFreed || f.bytes > maxFreedBytes {
		if f.list[0].own {
			f.bytes -= f.list[0].bytes
		}
		f.list[0].clear()
		f.list = slices.Delete(f.list, 0, 1)
	}
	return nil
}

func (f *quarantine) clear() {
	if f == nil {
		return
	}
	for _, b := range f.list {
		b.clear()
	}
	f.list, f.bytes = nil, 0
}

func (b freedRange) clear() {
	if b.own {
		unix.MunmapPtr(hostmem.Pointer(uintptr(b.at)), uintptr(b.bytes)) // nothing is left to do if it fails
	}
}

// guarded runs an item of a stream. Touching memory that is not there, or no more, is
// reported and ends the stream's work with an error, as on a device.
func (g *guard) guarded(what string, from trace, run func() error) (err error) {
	debug.SetPanicOnFault(true)
	defer func() {
		r := recover()
		if r == nil {
			return
		}
		fault, ok := r.(interface{ Addr() uintptr })
		if !ok {
			panic(r)
		}
		text := g.report(what, from, driver.Ptr(fault.Addr()))
		err = &driver.Error{Call: what, Code: 700, Name: "CUDA_ERROR_ILLEGAL_ADDRESS", Text: text}
	}()
	return run()
}

// report keeps what touched an address that is not there.
func (g *guard) report(what string, from trace, at driver.Ptr) string {
	g.mu.Lock()
	defer g.mu.Unlock()
	where := "which nobody has mapped"
	if g.freed != nil {
		for _, b := range slices.Backward(g.freed.list) {
			if at >= b.at && uint64(at-b.at) < b.bytes {
				where = fmt.Sprintf("byte %#x of %s that %s made, and %s gave back without waiting", uint64(at-b.at), b.what, b.made, b.ended)
				break
			}
		}
	}
	text := fmt.Sprintf("%s, enqueued by %s, touches %#x: %s", what, from, uint64(at), where)
	g.late = append(g.late, text)
	return text
}

// Late lists what streams did to memory that had been given back, and calls that had to wait
// for a kernel that waited for a peer for too long.
func (f *Driver) Late() []string {
	f.guard.mu.Lock()
	defer f.guard.mu.Unlock()
	return slices.Clone(f.guard.late)
}

// Forget empties what Late lists, and says how much there was.
func (f *Driver) Forget() int {
	f.guard.mu.Lock()
	defer f.guard.mu.Unlock()
	n := len(f.guard.late)
	f.guard.late = nil
	return n
}

// Waiting is how many kernels of a device wait for a peer.
func (f *Driver) Waiting(dev int) int {
	f.guard.mu.Lock()
	defer f.guard.mu.Unlock()
	return len(f.guard.waiting[dev])
}

// WaitLimit bounds how long loading, mapping, freeing and uploading wait for kernels that
// wait for a peer. After that they fail, and Late says so.
func (f *Driver) WaitLimit(d time.Duration) {
	f.guard.mu.Lock()
	defer f.guard.mu.Unlock()
	f.guard.limit = d
}

// waits notes that a block waits for a peer, until the result is called.
func (g *guard) waits(b *block, peer uint32) func() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.waiting == nil {
		g.waiting = map[int]map[*block]string{}
	}
	if g.waiting[b.dev] == nil {
		g.waiting[b.dev] = map[*block]string{}
	}
	g.waiting[b.dev][b] = fmt.Sprintf("kernel %s of rank %d, which waits for rank %d", b.name, b.a.Rank, peer)
	return func() {
		g.mu.Lock()
		defer g.mu.Unlock()
		delete(g.waiting[b.dev], b)
		if g.changed != nil {
			close(g.changed)
			g.changed = nil
		}
	}
}

// exclusive waits until no kernel on the context's device waits for a peer.
func (f *Driver) exclusive(call string, c driver.Ctx) error {
	f.mu.Lock()
	o, ok := f.objects[uint64(c)].(*primaryContext)
	f.mu.Unlock()
	if !ok {
		return nil
	}
	return f.alone(call, o.dev)
}

// alone waits until no kernel on a device waits for a peer.
func (f *Driver) alone(call string, dev int) error {
	g := &f.guard
	var late <-chan time.Time
	for {
		g.mu.Lock()
		var which string
		for _, text := range g.waiting[dev] {
			if which == "" || text < which {
				which = text
			}
		}
		if which == "" {
			g.mu.Unlock()
			return nil
		}
		if late == nil {
			limit := g.limit
			if limit == 0 {
				limit = waitLimit
			}
			timer := time.NewTimer(limit)
			defer timer.Stop()
			late = timer.C
		}
		if g.changed == nil {
			g.changed = make(chan struct{})
		}
		changed := g.changed
		g.mu.Unlock()
		select {
		case <-changed:
		case <-late:
			text := fmt.Sprintf("%s on device %d, by %s, waited too long for %s", call, dev, traceHere(), which)
			g.mu.Lock()
			g.late = append(g.late, text)
			g.mu.Unlock()
			return &driver.Error{Call: call, Code: 702, Name: "CUDA_ERROR_LAUNCH_TIMEOUT", Text: text}
		}
	}
}
