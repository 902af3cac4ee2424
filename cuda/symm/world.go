package symm

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/seed-ee968945/concert/cuda/driver"
	"github.com/seed-ee968945/concert/internal/lifecycle"
	"github.com/seed-ee968945/concert/kernels"
)

// World is a set of ranks whose symmetric memory this process has mapped. Rank r
// owns bytes [r*stride, (r+1)*stride) of one flat address range, so a peer's address of
// anything is arithmetic. What of it is memory is the same for all ranks: Grow and Shrink
// change it. Some or all ranks are driven by this process.
//
// Allocation, growth, groups and Close are set-up: the caller makes them while no kernel
// of the world is running, in the same order on every process.
type World struct {
	drv     driver.Driver
	n       int
	base    driver.Ptr
	stride  uint64
	unit    uint64                   // granularity of memory
	pieces  atomic.Pointer[[]*piece] // what is memory of each stride, by offset
	local   []*Rank                  // by rank, nil for those of other processes
	heap    heap
	sharing int  // ranks on one device, at most
	single  bool // no peer's memory is mapped, see NewSingleRankWorld
	mcast   bool // WorldOptions.Multicast
	network bool // WorldOptions.Network
	control *control
	life    *lifecycle.Scope
	busy    []func() (bool, error) // local devices that are not known to be idle; of who ends the world
	mu      sync.Mutex
	made    int            // groups so far
	groups  map[int]*Group // by number, while they are open
}

// Rank is one rank that this process drives: a device, its context and the
// loaded kernels.
type Rank struct {
	World *World
	ID    int
	Dev   int
	Ctx   driver.Ctx
	Info  driver.DeviceInfo
	setup driver.Stream // for fills and copies outside the hot path
	mods  map[string]driver.Module
	funcs atomic.Pointer[map[kernelName]driver.Func]
	mu    sync.Mutex // of who adds to funcs

	fabric error          // why there are no fabric handles, nil where a trial showed them to work
	how    driver.Sharing // of the rank's memory
	alone  error          // why it cannot be shared with other processes

	noMulticast error // why the rank has no kernels that use multicast, if it was asked for
}

// WorldOptions says how to build a world.
type WorldOptions struct {
	Bytes uint64 // symmetric memory per rank for Alloc, rounded up to the granularity
	// Addresses is how many bytes of addresses each rank has, for Grow, rounded up; 0 is
	// Bytes. With it Bytes may be 0.
	Addresses uint64
	// ShareDevice allows several ranks on one device. Their kernels wait for each other, so
	// groups make them as small as all of them fit on the device at once. Streams beyond a device's
	// hardware queues wait for each other, too, so that more than four ranks may block. It shows
	// numbers, not speed.
	ShareDevice bool
	PTX         bool         // load PTX even where machine code exists
	Images      *kernels.Set // nil for the embedded ones, read anew
	Measure     bool         // load the kernels that measure the machine, too
	// Fabric shares memory between processes by fabric handles even where file
	// descriptors would do. Without it they are used where there are no descriptors.
	Fabric bool
	// Network makes the memory for network adapters to read and write, too, where the device
	// can: see driver.DeviceInfo.
	Network bool
	// Multicast lets groups use multicast through NVLink's switches, where all their ranks
	// can: see Group.Multicast, kernels.Tuning.MulticastReduce and GroupOptions.RankOrder.
	// It is off, and then nothing of it is asked of the driver, because a mistake in it can
	// take down the host's fabric and not only this process, and nothing of it has run on a
	// GPU: it was written against the driver's documentation and tested on the fake driver.
	Multicast bool
}

// digest is what the kernels' images are, for comparison between processes.
func (o WorldOptions) digest() string {
	b, err := json.Marshal(o.Images.Manifest)
	if err != nil {
		return "unreadable manifest"
	}
	return kernels.Hash(b)
}

// ErrSharedDevice means that two ranks were given one device without permission.
var ErrSharedDevice = errors.New("two ranks on one device")

// NewLocalWorld builds a world whose ranks all belong to this process: rank r
// runs on device devs[r].
func NewLocalWorld(drv driver.Driver, devs []int, o WorldOptions) (*World, error) {
	ranks := make([]int, len(devs))
	for i := range ranks {
		ranks[i] = i
	}
	return newWorld(drv, len(devs)).build(context.Background(), ranks, devs, &o, nil)
}

// NewSingleRankWorld builds one rank's part of a world of n ranks whose memory no other rank
// reaches: on GPUs without access to each other, or on several hosts. Addresses of
// other ranks name nothing, and it has no groups: what the ranks tell each other goes another
// way. n may be far beyond what a host has.
func NewSingleRankWorld(drv driver.Driver, rank, n, dev int, o WorldOptions) (*World, error) {
	w := newWorld(drv, n)
	w.single = true
	return w.build(context.Background(), []int{rank}, []int{dev}, &o, nil)
}

// build makes this process's ranks of a world, and the memory that it begins with when join,
// if it is not nil, has joined the other processes. It closes the world if it fails.
func (w *World) build(ctx context.Context, ranks, devs []int, o *WorldOptions, join func() error) (_ *World, err error) {
	defer func() {
		if err != nil {
			w.control.skip(err) // the others may wait for this process
			w.Close()           // the first error matters
		}
	}()
	if err := checkWorld(w.drv, w.n, o, w.single); err != nil {
		return nil, err
	}
	for _, r := range ranks {
		if r < 0 || r >= w.n {
			return nil, Invalid("rank", "it must be in [0, %d), got %d", w.n, r)
		}
	}
	if err = w.open(ranks, devs, o); err == nil && join != nil {
		err = join()
	}
	if err == nil {
		err = w.begin(ctx, o)
	}
	if err == nil && join != nil {
		err = w.control.g.Barrier(ctx, "opening the world")
	}
	if err != nil {
		return nil, err
	}
	return w, nil
}

// newWorld is a world with nothing in it.
func newWorld(drv driver.Driver, n int) *World {
	w := &World{drv: drv, n: n, groups: map[int]*Group{}}
	w.pieces.Store(&[]*piece{})
	w.life = lifecycle.New("world")
	w.life.Work(lifecycle.Hooks{Idle: w.idle})
	return w
}

// begin makes the memory that the world begins with.
func (w *World) begin(ctx context.Context, o *WorldOptions) error {
	if o.Bytes == 0 && o.Addresses > 0 {
		return nil
	}
	w.heap.reset(w.stride)
	if o.Addresses > 0 {
		w.heap.reset((o.Bytes + w.unit - 1) / w.unit * w.unit)
	}
	return w.Grow(ctx, 0, w.heap.size)
}

// open retains contexts, loads every kernel, fixes the sizes and reserves the addresses.
func (w *World) open(ranks, devs []int, o *WorldOptions) error {
	infos, err := w.drv.Devices()
	if err != nil {
		return err
	}
	w.mcast, w.network = o.Multicast && !w.single, o.Network
	w.local = make([]*Rank, w.n)
	if o.Images == nil {
		if o.Images, err = kernels.NewSet(); err != nil {
			return err
		}
	}
	used, on := map[int]int{}, map[int]int{}
	for i, dev := range devs {
		if dev < 0 || dev >= len(infos) {
			return fmt.Errorf("rank %d: device %d: this machine has %d devices", ranks[i], dev, len(infos))
		}
		if other, ok := used[dev]; ok {
			if !o.ShareDevice {
				return fmt.Errorf("%w: ranks %d and %d on device %d", ErrSharedDevice, other, ranks[i], dev)
			}
		}
		used[dev] = ranks[i]
		on[dev]++
		w.sharing = max(w.sharing, on[dev])
	}
	for i, dev := range devs {
		for _, peer := range devs {
			if peer == dev {
				continue
			}
			ok, err := w.drv.Shared().CanAccess(w.drv, dev, peer)
			if err != nil {
				return err
			}
			if !ok {
				return &NoPeerAccessError{Dev: dev, Peer: peer}
			}
		}
		r := &Rank{World: w, ID: ranks[i], Dev: dev, Info: infos[dev], mods: map[string]driver.Module{}}
		r.funcs.Store(&map[kernelName]driver.Func{})
		if r.Ctx, err = w.drv.CtxRetain(dev); err != nil {
			return err
		}
		w.life.Defer("context", func() error { return w.drv.CtxRelease(dev) })
		w.local[r.ID] = r
		w.busy = append(w.busy, r.drained())
		if r.setup, err = r.own(w.life).Stream(false); err != nil {
			return err
		}
		if err := r.load(o, false); err != nil {
			return fmt.Errorf("rank %d: %w", r.ID, err)
		}
		if w.mcast {
			r.noMulticast = r.load(o, true) // without them the rank has none
		}
		r.fabric = w.drv.Shared().TryFabric(w.drv, r.Ctx, dev, r.Info)
		r.how, r.alone = r.sharing(o)
		g, err := w.drv.Granularity(r.Ctx, dev, r.made())
		if err != nil {
			return err
		}
		w.unit = max(w.unit, g)
	}
	w.stride = (max(o.Bytes, o.Addresses, 1) + w.unit - 1) / w.unit * w.unit
	own := w.local[ranks[0]].own(w.life)
	if w.single { // addresses of other ranks name nothing
		w.base, err = own.Addresses(w.stride)
		w.base -= driver.Ptr(uint64(ranks[0]) * w.stride)
		return err
	}
	w.base, err = own.Addresses(uint64(w.n) * w.stride)
	return err
}

// NoPeerAccessError means that two devices cannot read each other's memory.
type NoPeerAccessError struct{ Dev, Peer int }

// Error names the devices and the way out.
func (e *NoPeerAccessError) Error() string {
	return fmt.Sprintf("device %d cannot access the memory of device %d: use NCCL for this group", e.Dev, e.Peer)
}

// Driver is the driver the world runs on.
func (w *World) Driver() driver.Driver { return w.drv }

// Bytes is the most symmetric memory that each rank can have: all that it has addresses for.
func (w *World) Bytes() uint64 { return w.stride }

// Shares reports whether ranks share a device, see WorldOptions.ShareDevice.
func (w *World) Shares() bool { return w.sharing > 1 }

// Sharing is how many ranks are on one device, at most.
func (w *World) Sharing() int { return w.sharing }

// Size is the number of ranks.
func (w *World) Size() int { return w.n }

// Local lists the ranks of this process in order.
func (w *World) Local() []*Rank {
	var out []*Rank
	for _, r := range w.local {
		if r != nil {
			out = append(out, r)
		}
	}
	return out
}

// Rank gives a rank of this process, nil for another's.
func (w *World) Rank(id int) *Rank {
	if id < 0 || id >= w.n {
		return nil
	}
	return w.local[id]
}

// Addr is the address, in this process, of offset off in rank r's memory.
func (w *World) Addr(r int, off uint64) driver.Ptr {
	return w.base + driver.Ptr(uint64(r)*w.stride+off)
}

// Alloc takes bytes of symmetric memory and gives their offset, the same on
// every rank; align is a power of two, at least 16 is used. First fit, so the
// same calls give the same offsets everywhere. The memory is not cleared.
func (w *World) Alloc(bytes, align uint64) (uint64, error) {
	if err := w.Usable(); err != nil {
		return 0, err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.heap.alloc(bytes, align)
}

// Free gives back what Alloc took. No kernel of any rank may still use it.
func (w *World) Free(off uint64) error {
	if w == nil {
		return w.Usable()
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.heap.free(off)
}

// InUse is how much of each rank's symmetric memory Alloc has given out.
func (w *World) InUse() uint64 {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.heap.inUse()
}

// Close is CloseContext without an end.
func (w *World) Close() error { return w.CloseContext(context.Background()) }

// CloseContext ends the world and all that was made in it: groups, shared memory. Calls that
// are under way end first, barriers with ErrClosed, and it waits for the local devices. When
// ctx ends first it aborts the world's groups, so that kernels that wait for peers leave, and
// waits a little longer. If a device still has work then, nothing is released, the error
// wraps ctx's cause and lists what is kept, and the world may be closed again later. It is
// safe to call twice, and from several goroutines.
func (w *World) CloseContext(ctx context.Context) error {
	if w == nil {
		return nil
	}
	if err := CheckContext(ctx); err != nil {
		return err
	}
	return w.life.End(ctx)
}

// idle reports whether the local devices have ended all work.
func (w *World) idle() (bool, error) {
	for len(w.busy) > 0 {
		if ok, err := w.busy[0](); !ok || err != nil {
			return false, err
		}
		w.busy = w.busy[1:]
	}
	return true, nil
}

// Groups lists the open groups in the order they were made.
func (w *World) Groups() (out []*Group) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, id := range slices.Sorted(maps.Keys(w.groups)) {
		out = append(out, w.groups[id])
	}
	return out
}

// load loads every image that uses multicast, or every one that does not, so that no
// kernel is loaded while another waits.
func (r *Rank) load(o *WorldOptions, multicast bool) error {
	cc := r.Info.Major*10 + r.Info.Minor
	for _, name := range o.Images.Manifest.Names() {
		measures := strings.HasPrefix(name, "bench")
		if kernels.UsesMulticast(name) != multicast || measures && !o.Measure || kernels.IsMatmul(name) {
			continue
		}
		b, err := o.Images.Image(name, cc, o.PTX)
		if err != nil {
			if measures {
				continue // some need sm_90
			}
			return err
		}
		mod, err := r.own(r.World.life).Module(b)
		if err != nil {
			return fmt.Errorf("image %s: %w", name, err)
		}
		r.mods[name] = mod
	}
	return nil
}

// Func gives a kernel by image and name; it is looked up once.
func (r *Rank) Func(image, name string) (driver.Func, error) {
	if r == nil {
		return 0, Invalid("rank", "it is nil: another process drives it")
	}
	key := kernelName{image, name}
	if f, ok := (*r.funcs.Load())[key]; ok {
		return f, nil
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	mod, ok := r.mods[image]
	if !ok {
		return 0, fmt.Errorf("no image %s is loaded", image)
	}
	f, err := r.World.drv.Function(r.Ctx, mod, name)
	if err != nil {
		return 0, err
	}
	all := maps.Clone(*r.funcs.Load())
	all[key] = f
	r.funcs.Store(&all)
	return f, nil
}

type kernelName struct{ image, kernel string }

// Setup is the rank's stream for work outside the hot path.
func (r *Rank) Setup() driver.Stream { return r.setup }

// Fabric says whether the rank's memory can be shared by fabric handles: nil, or a
// *FabricError. It is what a trial found when the world was opened.
func (r *Rank) Fabric() error { return r.fabric }

// made is how r's memory is made: for what it is shared by, and for network adapters.
func (r *Rank) made() driver.Sharing {
	if r.World.network && r.Info.Network {
		return r.how | driver.Network
	}
	return r.how
}

// sharing is the way by which r's memory reaches other processes: file descriptors where
// the device has them and the options do not ask for fabric handles. With an error there
// is none, which a world of one process does without.
func (r *Rank) sharing(o *WorldOptions) (driver.Sharing, error) {
	switch {
	case r.Info.FDs && !o.Fabric:
		return driver.ByFD, nil
	case r.fabric == nil:
		return driver.ByFabric, nil
	case r.Info.FDs: // but handles are asked for
		return driver.Unshared, r.fabric
	}
	return driver.Unshared, &driver.NoSharingError{Dev: r.Dev, Fabric: r.fabric}
}
