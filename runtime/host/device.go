package host

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/seed-ee968945/concert/internal/hostops"
	"github.com/seed-ee968945/concert/internal/lifecycle"
	rt "github.com/seed-ee968945/concert/runtime"
	"github.com/seed-ee968945/concert/runtime/internal/shm"
	"github.com/seed-ee968945/concert/runtime/rendezvous"
)

// Device is one rank's host device.
type Device struct {
	spec  rt.Spec
	opts  Options
	nonce string
	lay   layout
	pads  []*shm.Pad // by world rank; of other hosts' ranks mirrors of what they say
	own   *shm.Pad   // pads[spec.Rank]
	links []*link    // by world rank, nil for the ranks of this host

	transfers transfers // from other hosts

	mesh   *mesh
	room   *lifecycle.Scope         // of regions, which outlive streams
	pieces atomic.Pointer[[]*piece] // the arena, by place
	gate   sync.RWMutex             // held by transfers, and when pieces change

	lost      []atomic.Uint32 // by world rank: peerState, set by the connection's watcher
	abortSeen atomic.Int64    // how often an unfinished abort record was seen

	broken *rendezvous.Failure // first failure

	mu      sync.Mutex // guards what follows
	streams []*stream
	events  []*event
	chans   map[string]*channel // by group name
	sigSent map[[2]int]uint32   // signals enqueued per (peer, slot)
	sigSeen map[[2]int]uint32   // waits enqueued per (peer, slot)
	life    *lifecycle.Scope
}

var _ rt.Device = (*Device)(nil)

// Options tune the host device. The zero value is right for most uses.
type Options struct {
	// Local says that all ranks are goroutines of this process, in one job of
	// rendezvous.NewLocal; else each has memory as a process has it.
	Local bool
	// Signals is the number of slots for Device.Signal, default 16.
	Signals int
	// Groups is how many groups there may be at a time, default 32, or as many as the
	// world begins with. Each has a place in every rank's pad.
	Groups int
	// FirstEpoch is where the epochs of all channels start. Tests use it to wrap
	// around; it must agree on all ranks.
	FirstEpoch uint32
	// Hosts, if more than one, makes Local's ranks as many hosts: they share memory within
	// one only, which is as many neighbouring ranks as there are in any other.
	Hosts int
	// WaitHook, if not nil, is called before each collective on a stream's
	// goroutine; tests use it to disturb the order of events.
	WaitHook func(c *rt.Collective)
	// StreamHook, if not nil, is called on a stream's goroutine before each launch,
	// copy and collective; tests use it to hold streams and ranks back.
	StreamHook func(rank int, stream string)
}

// channel is this rank's side of a group's signals.
type channel struct {
	id      int
	group   rt.Group
	members []int // world ranks of this rank's subgroup, in order
	pos     int   // of this rank in members
	others  []int // positions of the other members
	far     []int // of those on other hosts

	// Used only on the stream whose turn it is (see Collective).
	epoch uint32
	call  uint32

	// Guarded by Device.mu: the last use, so that two streams that share a
	// group take turns in the order of their calls.
	lastStream rt.Stream
	lastDone   *completion
}

// newDevice builds the device once the segments of all ranks are at hand, with connections
// to those of other hosts.
func newDevice(spec rt.Spec, opts Options, lay layout, nonce string, m *mesh, pads []*shm.Pad) *Device {
	d := &Device{
		spec: spec, opts: opts, nonce: nonce, lay: lay, pads: pads, own: pads[spec.Rank], life: lifecycle.New("host device"),
		lost: make([]atomic.Uint32, spec.World), broken: rendezvous.NewFailure(), mesh: m,
		links: make([]*link, spec.World), transfers: transfers{of: map[transferKey]*transfer{}},
		chans: map[string]*channel{}, sigSent: map[[2]int]uint32{}, sigSeen: map[[2]int]uint32{},
	}
	d.life.Work(lifecycle.Hooks{Stop: func() { d.broken.Set(rt.ErrClosed, nil) }}) // which ends all waits
	d.life.Defer("mappings", m.close)
	d.pieces.Store(&[]*piece{})
	d.room, _ = d.life.New("arena")
	// The job says who died; who leaves says so in its pad, or over its links.
	stop := spec.Job.Watch(func(e rendezvous.Event) {
		if e.Kind == rendezvous.Lost {
			d.lost[e.Rank].Store(uint32(peerDied))
		}
	})
	d.life.Defer("watch", func() error { stop(); return nil })
	for r, c := range m.conns {
		if c != nil {
			d.links[r] = newLink(d, r, c)
		}
	}
	d.life.Defer("links", func() error { closeLinks(d.links, d.failure() != rt.ErrClosed); return nil })
	// Peers map this pad, so the status outlives the connections.
	d.life.Defer("status", func() error { d.leave(); return nil })
	return d
}

// leave tells all peers that this rank leaves in order.
func (d *Device) leave() {
	atomic.StoreUint32(&d.own.Words[wordStatus], statusLeft)
	for _, l := range d.links {
		if l != nil {
			l.send(frame{kind: frameLeft})
		}
	}
}

// Info implements runtime.Device.
func (d *Device) Info() rt.Info {
	return rt.Info{Kind: "host", Rank: d.spec.Rank, World: d.spec.World, ArenaBytes: d.arena(),
		Signals: d.lay.slots, Timeout: d.spec.Timeout, Nonce: d.nonce}
}

// failure is the first failure, nil while the device works.
func (d *Device) failure() error { return d.broken.Err() }

// fail breaks the device and the world. The first cause counts.
func (d *Device) fail(err error) {
	if d.life.Hold() { // the pads
		defer d.life.Drop()
		d.broken.Set(err, func() { d.spread(err) })
	}
}

// Abort implements runtime.Device.
func (d *Device) Abort(cause error) {
	if cause == nil {
		cause = rt.ErrCanceled
	}
	d.fail(&rt.CanceledError{Rank: d.spec.Rank, Origin: d.spec.Rank, Err: cause})
}

// Err implements runtime.Device. It also notices what other ranks reported.
func (d *Device) Err() error {
	if err := d.failure(); err != nil {
		return err
	}
	if d.life.Begin() != nil {
		return rt.ErrClosed
	}
	defer d.life.Done()
	if err := d.aborted(rendezvous.Where{Rank: d.spec.Rank}); err != nil {
		d.fail(err)
		return d.failure()
	}
	return nil
}

// Close implements runtime.Device.
func (d *Device) Close() error { return d.life.End(context.Background()) }

// view is rank's window of t as the kernels see it. t has been checked.
func (d *Device) view(rank int, t rt.Tensor) hostops.Tensor {
	lo, hi, _ := t.Span()
	return hostops.Tensor{DType: t.DType, Shape: t.Shape, Strides: t.StridesOrDense(),
		Offset: (t.Off - lo) / int64(t.DType.Size()), Data: d.bytes(rank, lo, hi)}
}

func (d *Device) views(ts []rt.Tensor) []hostops.Tensor {
	vs := make([]hostops.Tensor, len(ts))
	for i, t := range ts {
		vs[i] = d.view(d.spec.Rank, t)
	}
	return vs
}

// inArena checks that every tensor is well formed and inside the arena.
func (d *Device) inArena(lists ...[]rt.Tensor) error {
	for _, ts := range lists {
		for _, t := range ts {
			lo, hi, err := t.Span()
			if err != nil {
				return err
			}
			if _, ok := d.memory(lo, hi); !ok {
				return fmt.Errorf("%v: bytes %d to %d are outside of the arena of %d", t, lo, hi, d.arena())
			}
		}
	}
	return nil
}

// call wraps an error of one call.
func (d *Device) call(op string, err error) error {
	return &rt.CallError{Rank: d.spec.Rank, Op: op, Err: err}
}

// Launch implements runtime.Device.
func (d *Device) Launch(s rt.Stream, k *rt.Kernel) error {
	launch, err := d.Prepare(s, k)
	if err != nil {
		return err
	}
	return launch()
}

// Prepare implements runtime.Preparer. A launch is laid out anew when the arena has changed.
func (d *Device) Prepare(s rt.Stream, k *rt.Kernel) (func() error, error) {
	st, err := d.stream(s)
	if err != nil {
		return nil, err
	}
	pieces := d.pieces.Load()
	work, err := d.work(st, k)
	if err != nil {
		return nil, err
	}
	return func() error {
		if err := d.failure(); err != nil {
			return err
		}
		if now := d.pieces.Load(); now != pieces {
			again, err := d.work(st, k)
			if err != nil {
				return err
			}
			pieces, work = now, again
		}
		st.push(work)
		return nil
	}, nil
}

// work is a launch as a stream does it.
func (d *Device) work(st *stream, k *rt.Kernel) (func() error, error) {
	if err := d.inArena(k.Outs, k.Ins); err != nil {
		return nil, d.call(k.Name(), err)
	}
	var run func() error
	var err error
	if k.Op == "call" {
		run, err = d.function(k)
	} else {
		run, err = k.OnHost(d.ownBytes)
	}
	if err != nil {
		return nil, d.call(k.Name(), err)
	}
	return func() error {
		st.hook()
		if err := run(); err != nil {
			return d.call(k.Name(), err)
		}
		return nil
	}, nil
}

// RunsStages implements runtime.StageRunner: who moves operands says where they are.
func (d *Device) RunsStages() bool { return true }

// RunsFunc implements runtime.FuncRunner.
func (d *Device) RunsFunc(f rt.Func) bool { return f.Host != nil }

// function prepares a call of a registered Go function.
func (d *Device) function(k *rt.Kernel) (func() error, error) {
	f := d.spec.Funcs[k.Target].Host
	if f == nil {
		return nil, fmt.Errorf("no function is registered as %q: %w", k.Target, rt.ErrUnsupported)
	}
	c := k.Call(d.spec.Rank, d.spec.World, func(t rt.Tensor) rt.FuncTensor {
		_, hi, _ := t.Span()
		return rt.FuncTensor{Tensor: t, Data: d.ownBytes(min(t.Off, hi), hi)}
	})
	return func() error { return c.Run(f) }, nil
}

// Copy implements runtime.Device.
func (d *Device) Copy(s rt.Stream, dst, src rt.Tensor) error {
	st, err := d.stream(s)
	if err != nil {
		return err
	}
	if err := d.inArena([]rt.Tensor{dst, src}); err != nil {
		return d.call("copy", err)
	}
	if !dst.SameType(src) {
		return d.call("copy", fmt.Errorf("from %v to %v", src, dst))
	}
	st.push(func() error {
		st.hook()
		if err := d.copyTensor(d.spec.Rank, dst, d.spec.Rank, src); err != nil {
			return d.call("copy", err)
		}
		return nil
	})
	return nil
}

// copyTensor copies between two ranks' arenas.
func (d *Device) copyTensor(dstRank int, dst rt.Tensor, srcRank int, src rt.Tensor) error {
	if dst.Dense() && src.Dense() {
		copy(d.bytes(dstRank, dst.Off, dst.Off+dst.Bytes()), d.bytes(srcRank, src.Off, src.Off+src.Bytes()))
		return nil
	}
	return hostops.Copy(d.view(dstRank, dst), d.view(srcRank, src))
}

// hostTensor is dense host memory with the type of t.
func hostTensor(t rt.Tensor, data []byte) hostops.Tensor {
	return hostops.Tensor{DType: t.DType, Shape: t.Shape, Strides: hostops.RowMajor(t.Shape), Data: data}
}

// Upload implements runtime.Device.
func (d *Device) Upload(dst rt.Tensor, src []byte) error {
	if d.life.Begin() != nil {
		return rt.ErrClosed
	}
	defer d.life.Done()
	d.gate.RLock()
	defer d.gate.RUnlock()
	if err := d.transferable("upload", dst, len(src)); err != nil {
		return err
	}
	if err := hostops.Copy(d.view(d.spec.Rank, dst), hostTensor(dst, src)); err != nil {
		return d.call("upload", err)
	}
	return nil
}

// Download implements runtime.Device.
func (d *Device) Download(dst []byte, src rt.Tensor) error {
	if d.life.Begin() != nil {
		return rt.ErrClosed
	}
	defer d.life.Done()
	d.gate.RLock()
	defer d.gate.RUnlock()
	if err := d.transferable("download", src, len(dst)); err != nil {
		return err
	}
	if err := hostops.Copy(hostTensor(src, dst), d.view(d.spec.Rank, src)); err != nil {
		return d.call("download", err)
	}
	return nil
}

func (d *Device) transferable(op string, t rt.Tensor, n int) error {
	if err := d.inArena([]rt.Tensor{t}); err != nil {
		return d.call(op, err)
	}
	if int64(n) != t.Bytes() {
		return d.call(op, fmt.Errorf("%d bytes for %v, which has %d", n, t, t.Bytes()))
	}
	return nil
}

// Signal implements runtime.Device.
func (d *Device) Signal(s rt.Stream, peer, slot int) error {
	st, err := d.signalArgs("signal", s, peer, slot)
	if err != nil {
		return err
	}
	d.mu.Lock()
	d.sigSent[[2]int{peer, slot}]++
	value := d.sigSent[[2]int{peer, slot}]
	d.mu.Unlock()
	st.push(func() error {
		d.put(peer, d.lay.signal(slot, d.spec.Rank), d.opts.FirstEpoch+value)
		return nil
	})
	return nil
}

// WaitSignal implements runtime.Device.
func (d *Device) WaitSignal(s rt.Stream, peer, slot int) error {
	st, err := d.signalArgs("wait_signal", s, peer, slot)
	if err != nil {
		return err
	}
	d.mu.Lock()
	d.sigSeen[[2]int{peer, slot}]++
	value := d.sigSeen[[2]int{peer, slot}]
	d.mu.Unlock()
	st.push(func() error {
		return d.await(&wait{at: rendezvous.Where{Op: fmt.Sprintf("wait_signal from rank %d, slot %d", peer, slot), Rank: d.spec.Rank}, peers: []int{peer},
			word: func(int) int { return d.lay.signal(slot, peer) }, want: d.opts.FirstEpoch + value})
	})
	return nil
}

func (d *Device) signalArgs(op string, s rt.Stream, peer, slot int) (*stream, error) {
	st, err := d.stream(s)
	if err != nil {
		return nil, err
	}
	if peer < 0 || peer >= d.spec.World || slot < 0 || slot >= d.lay.slots {
		return nil, d.call(op, fmt.Errorf("rank %d of %d, slot %d of %d", peer, d.spec.World, slot, d.lay.slots))
	}
	return st, nil
}

// Synchronize implements runtime.Device.
func (d *Device) Synchronize(ctx context.Context, e rt.Event) error {
	c, err := d.recorded("synchronize", e)
	if err != nil {
		return err
	}
	return d.finish(ctx, c)
}

// Sync implements runtime.Device.
func (d *Device) Sync(ctx context.Context) error {
	d.mu.Lock()
	streams := slices.Clone(d.streams)
	d.mu.Unlock()
	for _, s := range streams {
		if s == nil {
			continue
		}
		c := newCompletion()
		s.push(func() error { c.done(); return nil })
		if err := d.finish(ctx, c); err != nil {
			return err
		}
	}
	return nil
}

// finish waits for c; a failure of the device ends the wait.
func (d *Device) finish(ctx context.Context, c *completion) error {
	select {
	case <-c.ch: // also if ctx has ended
		return nil
	default:
	}
	select {
	case <-c.ch:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	case <-d.broken.Done():
	}
	select {
	case <-c.ch: // finished before the failure
		return nil
	default:
		return d.failure()
	}
}
