//go:build linux

package cuda

import (
	"fmt"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// A device goes on writing where it was told to when that memory is given back too early,
// and a call of the driver that needs the device to itself never returns while a kernel
// waits for a rank that its caller has yet to launch. The fake driver shows both: memory
// that was given back keeps its addresses and traps, and those calls wait as long as such a
// kernel runs, but not for ever.

// fakeGuard is what a fake knows of memory that was given back and of kernels that wait.
type fakeGuard struct {
	mu      sync.Mutex
	freed   *fakeGraves
	late    []string
	waiting map[int]map[*fakeBlock]string // by device: kernels that wait for a peer
	changed chan struct{}                 // closed when a kernel waits no more
	limit   time.Duration                 // how long a call waits for such kernels; 0 is fakePatience
}

// fakeGraves is memory that was given back, the latest at the end.
type fakeGraves struct{ list []fakeGrave }

type fakeGrave struct {
	at    Ptr
	bytes uint64
	what  string
	made  fakeTrace // who made it
	ended fakeTrace // who gave it back
	own   bool      // the addresses are to be unmapped in the end
}

const (
	// mostGraves bounds the ranges that are kept.
	mostGraves = 1 << 12
	// fakePatience is how long a call waits for kernels that wait for a peer. A group's
	// timeout ends them as a rule.
	fakePatience = 30 * time.Second
)

// fakeTrace is where a call of the fake came from.
type fakeTrace [16]uintptr

func traceHere() (t fakeTrace) {
	runtime.Callers(3, t[:])
	return t
}

// String names the innermost functions that are not the fake's.
func (t fakeTrace) String() string {
	var names []string
	for frames := runtime.CallersFrames(t[:]); len(names) < 4; {
		f, more := frames.Next()
		name := f.Function[strings.LastIndex(f.Function, "/")+1:]
		if name != "" && !strings.Contains(name, ".(*Fake).") && !strings.Contains(name, ".(*fake") && !strings.HasPrefix(name, "runtime.") {
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

// bury makes a range trap from now on.
func (g *fakeGuard) bury(b fakeGrave) error {
	_, err := unix.MmapPtr(-1, 0, pointer(uintptr(b.at)), uintptr(b.bytes), unix.PROT_NONE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS|unix.MAP_FIXED|unix.MAP_NORESERVE)
	if err != nil {
		return err
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.freed == nil {
		g.freed = &fakeGraves{}
		runtime.AddCleanup(g, (*fakeGraves).clear, g.freed) // no stream is left that could touch them
	}
	if f := g.freed; len(f.list) >= mostGraves {
		f.list[0].clear()
		f.list = slices.Delete(f.list, 0, 1)
	}
	g.freed.list = append(g.freed.list, b)
	return nil
}

func (f *fakeGraves) clear() {
	for _, b := range f.list {
		b.clear()
	}
}

func (b fakeGrave) clear() {
	if b.own {
		unix.MunmapPtr(pointer(uintptr(b.at)), uintptr(b.bytes)) // nothing is left to do if it fails
	}
}

// guarded runs an item of a stream. Touching memory that is not there, or no more, is
// reported and ends the stream's work with an error, as on a device.
func (g *fakeGuard) guarded(what string, from fakeTrace, run func() error) (err error) {
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
		text := g.report(what, from, Ptr(fault.Addr()))
		err = &Error{Call: what, Code: 700, Name: "CUDA_ERROR_ILLEGAL_ADDRESS", Text: text}
	}()
	return run()
}

// report keeps what touched an address that is not there.
func (g *fakeGuard) report(what string, from fakeTrace, at Ptr) string {
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
func (f *Fake) Late() []string {
	f.guard.mu.Lock()
	defer f.guard.mu.Unlock()
	return slices.Clone(f.guard.late)
}

// Patience bounds how long loading, mapping, freeing and uploading wait for kernels that
// wait for a peer. After that they fail, and Late says so.
func (f *Fake) Patience(d time.Duration) {
	f.guard.mu.Lock()
	defer f.guard.mu.Unlock()
	f.guard.limit = d
}

// waits notes that a block waits for a peer, until the result is called.
func (g *fakeGuard) waits(b *fakeBlock, peer uint32) func() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.waiting == nil {
		g.waiting = map[int]map[*fakeBlock]string{}
	}
	if g.waiting[b.dev] == nil {
		g.waiting[b.dev] = map[*fakeBlock]string{}
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
func (f *Fake) exclusive(call string, c Ctx) error {
	f.mu.Lock()
	o, ok := f.objects[uint64(c)].(*fakeCtx)
	f.mu.Unlock()
	if !ok {
		return nil
	}
	g := &f.guard
	var late <-chan time.Time
	for {
		g.mu.Lock()
		var which string
		for _, text := range g.waiting[o.dev] {
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
				limit = fakePatience
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
			text := fmt.Sprintf("%s on device %d, by %s, waited too long for %s", call, o.dev, traceHere(), which)
			g.mu.Lock()
			g.late = append(g.late, text)
			g.mu.Unlock()
			return &Error{Call: call, Code: 702, Name: "CUDA_ERROR_LAUNCH_TIMEOUT", Text: text}
		}
	}
}
