package device

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/seed-ee968945/concert/cuda/device/internal/code"
	"github.com/seed-ee968945/concert/cuda/device/internal/domain"
	"github.com/seed-ee968945/concert/cuda/device/internal/pace"
	"github.com/seed-ee968945/concert/cuda/device/internal/progress"
	"github.com/seed-ee968945/concert/cuda/driver"
	"github.com/seed-ee968945/concert/cuda/library"
	"github.com/seed-ee968945/concert/cuda/nvrtc"
	"github.com/seed-ee968945/concert/cuda/symm"
	"github.com/seed-ee968945/concert/internal/lifecycle"
	rt "github.com/seed-ee968945/concert/runtime"
	"github.com/seed-ee968945/concert/runtime/rendezvous"
)

// Device is one rank's GPU.
type Device struct {
	spec    rt.Spec
	opts    Options
	drv     driver.Driver
	dev     int
	host    *hostKernels // computes on the fake driver, else nil
	code    *code.Code   // compiled kernels, nil on the fake driver
	site    *site
	domain  *domain.Domain // of this rank
	rank    *symm.Rank
	nonce   string
	base    driver.Ptr // of the arena on this rank
	libs    []library.Library
	missing []error // libraries that are not installed
	early   bool    // launches may be early
	side    *stream // where weights are fetched, nil before the first

	groups map[string]*group        // of who enqueues, as made
	made   int                      // groups, dropped ones too
	over   atomic.Pointer[overNCCL] // nil while no group needs it
	link   *progress.Link
	open   atomic.Bool                   // failures that others tell of break it
	latest atomic.Pointer[progress.Call] // the collective that was enqueued last

	// Of the goroutine that enqueues.
	plans map[string]*plan
	most  int // of plans: maxPlans, unless a test says otherwise
	key   []byte
	rec   *recording
	trace *trace

	broken *rendezvous.Failure // first failure
	stop   stop

	life *lifecycle.Scope

	spares   spares
	mu       sync.Mutex // of those who change what follows
	table    atomic.Pointer[table]
	badSizes badSizes
	// retired are unreferenced plans that their library has yet to release; under mu.
	retired []*plan
}

var _ rt.Device = (*Device)(nil)

type stream struct {
	name string
	life *lifecycle.Scope
	id   rt.Stream
	h    driver.Stream
	join driver.Event // end of its part of a capture
	mark driver.Event // of the side stream: where in another stream it begins
	work []memory     // for libraries: the last one serves, those before may be in plans
	// loose says that it was given work outside of captures that no replay has waited for.
	loose bool
}

// memory is an allocation of the rank's own.
type memory struct {
	at    driver.Ptr
	bytes uint64
}

// table is the streams, events and groups there are, never changed: each call looks some up,
// and locks would be a third of what it costs.
type table struct {
	streams []*stream // nil for those that were dropped
	events  []*event  // as well
	groups  []*group  // the first is all ranks
}

// change replaces the table.
func (d *Device) change(f func(t *table)) {
	d.mu.Lock()
	defer d.mu.Unlock()
	t := *d.table.Load()
	f(&t)
	d.table.Store(&t)
}

type event struct {
	h        driver.Event
	life     *lifecycle.Scope
	recorded bool
	during   *recording // the capture that recorded it last, nil if none
	waits    pace.Waits
	record   driver.Commands // of it, and waiting for it
	wait     driver.Commands
}

func newDevice(drv driver.Driver, spec rt.Spec, o Options, dev int) (*Device, error) {
	d := &Device{spec: spec, opts: o, drv: drv, dev: dev, host: newHostKernels(drv), groups: map[string]*group{}, plans: map[string]*plan{}, most: maxPlans, broken: rendezvous.NewFailure(), life: lifecycle.New("device")}
	d.table.Store(&table{})
	d.life.Defer("place in the world", func() error { return d.site.leave() })
	if d.host == nil {
		var err error
		if d.code, err = code.New(drv, dev, o.compiler()); err != nil {
			return nil, &rt.RendezvousError{Rank: spec.Rank, Reason: "cannot compile the device's kernels", Err: err}
		}
	}
	return d, nil
}

// load brings code and libraries to the device. No rank launches anything meanwhile.
func (d *Device) load() error {
	d.domain = d.site.domains[d.spec.Rank]
	place := d.domain.Place(d.spec.Rank)
	d.rank, d.base = d.domain.World.Rank(place), d.domain.World.Addr(place, 0)
	d.life.Work(lifecycle.Hooks{Tend: d.tend, Idle: d.drained})
	version, err := d.drv.Version()
	if err != nil {
		return err
	}
	// Graphs have edges for it since CUDA 12.3, devices since compute capability 9.0.
	d.early = !d.opts.NoDependentLaunch && (d.host != nil || version >= 12030 && d.rank.Info.Major >= 9)
	if d.code != nil {
		if err := d.code.Load(d.own(d.life)); err != nil {
			return err
		}
	}
	for _, open := range slices.Concat(d.opts.Libraries, own()) {
		l, err := open(LibraryEnv{Driver: d.drv, Rank: d.rank, Compile: d.compile, Matmuls: d.opts.Matmuls, Early: d.early, Log: d.opts.Log})
		if errors.Is(err, library.ErrUnavailable) {
			d.missing = append(d.missing, err)
			continue
		}
		if err != nil {
			return err
		}
		d.life.Defer("library", l.Close)
		d.libs = append(d.libs, l)
	}
	return nil
}

// compile is for libraries with kernels of their own.
func (d *Device) compile(name, source string, options ...string) ([]byte, error) {
	o := d.opts.compiler()
	rtc, err := o.Compiler()
	if err != nil {
		return nil, err
	}
	image, _, err := rtc.Compile(name, source, append(slices.Clone(options), nvrtc.Arch(d.rank.Info.Major, d.rank.Info.Minor)))
	return image, err
}

// Info implements runtime.Device.
func (d *Device) Info() rt.Info {
	return rt.Info{Kind: "cuda", Rank: d.spec.Rank, World: d.spec.World, ArenaBytes: d.domain.Arena(),
		Signals: symm.UserChannels, Timeout: d.spec.Timeout, Nonce: d.nonce}
}

// call wraps an error of one call.
func (d *Device) call(op string, err error) error {
	return &rt.CallError{Rank: d.spec.Rank, Op: op, Err: err}
}

// compute reports whether a stream of that name is for computation.
func compute(name string) bool { return strings.HasPrefix(name, "compute") }

// NewStream implements runtime.Device.
func (d *Device) NewStream(name string) (rt.Stream, error) {
	if err := d.enter(); err != nil {
		return 0, err
	}
	defer d.leave()
	s, err := d.openStream(name, !compute(name))
	if err != nil {
		return 0, d.call("new stream "+name, err)
	}
	if compute(name) && len(d.libs) > 0 {
		if err := d.workspace(s, d.opts.workspace()); err != nil {
			return 0, d.call("new stream "+name, errors.Join(err, s.life.EndInCall()))
		}
	}
	d.change(func(t *table) {
		var at int
		t.streams, at = put(t.streams, s)
		s.id = rt.Stream(at)
	})
	return s.id, nil
}

// DropStream implements runtime.Device.
func (d *Device) DropStream(s rt.Stream) error {
	st, err := d.stream(s)
	if err != nil {
		return err
	}
	defer d.leave()
	d.change(func(t *table) {
		t.streams = slices.Clone(t.streams)
		t.streams[s] = nil
	})
	for _, g := range d.turns() {
		if g.last == st { // whose last call has ended
			g.last = nil
		}
	}
	return errors.Join(d.forget(func(p *plan) bool { return p.stream == st }), st.life.EndInCall())
}

// workspace sees to it that calls of a stream have that many bytes for libraries. Plans
// made before keep what they have.
func (d *Device) workspace(s *stream, bytes uint64) error {
	if bytes == 0 || len(s.work) > 0 && s.work[len(s.work)-1].bytes >= bytes {
		return nil
	}
	at, err := d.own(s.life).Alloc(bytes)
	if err != nil {
		return fmt.Errorf("workspace of %d bytes: %w", bytes, err)
	}
	s.work = append(s.work, memory{at, bytes})
	return nil
}

// NewEvent implements runtime.Device.
func (d *Device) NewEvent() (rt.Event, error) {
	if err := d.enter(); err != nil {
		return 0, err
	}
	defer d.leave()
	life, err := d.life.New("event")
	if err != nil {
		return 0, err
	}
	h, err := d.own(life).Event(false)
	if err != nil {
		return 0, d.call("new event", errors.Join(err, life.EndInCall()))
	}
	ev := &event{h: h, life: life}
	ev.record.Record(driver.Main, h)
	ev.wait.Wait(driver.Main, h)
	var n int
	d.change(func(t *table) { t.events, n = put(t.events, ev) })
	return rt.Event(n), nil
}

// put takes the first place that is free.
func put[T any](list []*T, x *T) ([]*T, int) {
	at := slices.Index(list, nil)
	if at < 0 {
		return append(slices.Clip(list), x), len(list)
	}
	list = slices.Clone(list)
	list[at] = x
	return list, at
}

// DropEvent implements runtime.Device.
func (d *Device) DropEvent(e rt.Event) error {
	if err := d.enter(); err != nil {
		return err
	}
	defer d.leave()
	ev, err := d.event("drop", e)
	if err != nil {
		return err
	}
	d.change(func(t *table) {
		t.events = slices.Clone(t.events)
		t.events[e] = nil
	})
	return ev.life.EndInCall()
}

// stream starts a call on a stream of a device that works. Without an error leave ends it.
func (d *Device) stream(s rt.Stream) (*stream, error) {
	if err := d.enter(); err != nil {
		return nil, err
	}
	t := d.table.Load()
	if s < 0 || int(s) >= len(t.streams) || t.streams[s] == nil {
		d.leave()
		return nil, d.call("stream", fmt.Errorf("no stream %d", s))
	}
	return t.streams[s], nil
}

func (d *Device) event(op string, e rt.Event) (*event, error) {
	t := d.table.Load()
	if e < 0 || int(e) >= len(t.events) || t.events[e] == nil {
		return nil, d.call(op, fmt.Errorf("no event %d", e))
	}
	return t.events[e], nil
}

// Record implements runtime.Device.
func (d *Device) Record(s rt.Stream, e rt.Event) error {
	st, err := d.stream(s)
	if err != nil {
		return err
	}
	defer d.leave()
	ev, err := d.event("record", e)
	if err != nil {
		return err
	}
	ev.recorded, ev.during = true, d.rec
	if d.rec != nil {
		d.rec.add(item{st: st, record: ev.h})
		return nil
	}
	st.loose = true
	return d.driver("record", d.drv.Run(d.rank.Ctx, ev.record.On(st.h))) // one crossing, not two
}

// Wait implements runtime.Device.
func (d *Device) Wait(s rt.Stream, e rt.Event) error {
	st, err := d.stream(s)
	if err != nil {
		return err
	}
	defer d.leave()
	ev, err := d.event("wait", e)
	if err != nil {
		return err
	}
	if d.rec != nil {
		d.rec.wait(st, ev)
		return nil
	}
	if !ev.recorded || ev.during != nil {
		return d.call("wait", fmt.Errorf("event %d was never recorded", e))
	}
	st.loose = true
	return d.driver("wait", d.drv.Run(d.rank.Ctx, ev.wait.On(st.h)))
}

// driver wraps the error of a driver call. It breaks nothing: the runtime breaks the world
// when a call of a step fails, and knows which step it was.
func (d *Device) driver(op string, err error) error {
	if err == nil {
		return nil
	}
	return d.call(op, err)
}

// at is the address of t's element (0, 0, ...) on this rank.
func (d *Device) at(t rt.Tensor) driver.Ptr { return d.base + driver.Ptr(t.Off) }

// inArena checks that every tensor is well formed and inside the arena.
func (d *Device) inArena(lists ...[]rt.Tensor) error {
	for _, ts := range lists {
		for i := range ts {
			lo, hi, err := ts[i].Span()
			if err != nil {
				return err
			}
			if _, ok := d.domain.Region(lo, hi); !ok {
				return fmt.Errorf("%v: bytes %d to %d are outside of the arena of %d", ts[i], lo, hi, d.domain.Arena())
			}
		}
	}
	return nil
}

// Synchronize implements runtime.Device.
func (d *Device) Synchronize(ctx context.Context, e rt.Event) error {
	if err := d.enter(); err != nil {
		return err
	}
	defer d.leave()
	ev, err := d.event("synchronize", e)
	if err != nil {
		return err
	}
	if !ev.recorded || ev.during != nil {
		return d.call("synchronize", fmt.Errorf("event %d was never recorded", e))
	}
	return d.await(ctx, &ev.waits, func() (bool, error) { return d.drv.EventQuery(d.rank.Ctx, ev.h) })
}

// Sync implements runtime.Device.
func (d *Device) Sync(ctx context.Context) error {
	if err := d.enter(); err != nil {
		return err
	}
	defer d.leave()
	return d.await(ctx, new(pace.Waits), d.idle)
}

// idle reports whether all streams are.
func (d *Device) idle() (bool, error) {
	for _, s := range d.table.Load().streams {
		if s == nil {
			continue
		}
		if ok, err := d.drv.StreamQuery(d.rank.Ctx, s.h); !ok || err != nil {
			return false, err
		}
	}
	return true, nil
}

// Close implements runtime.Device. Work that waits for a peer that does not come ends by its
// timeout, or at once in a broken world.
func (d *Device) Close() error { return d.life.End(context.Background()) }

// tend hears, while the device or a part of it drains, what has become of the groups, and does
// what their hosts must.
func (d *Device) tend(waited time.Duration, cause error) error {
	if cause != nil {
		d.Abort(cause)
	}
	d.look(waited) // what fails breaks the device
	return nil
}

// drained is idle for all streams, when no call is under way.
func (d *Device) drained() (bool, error) {
	if d.side != nil {
		if ok, err := d.drv.StreamQuery(d.rank.Ctx, d.side.h); !ok || err != nil {
			return false, err
		}
	}
	return d.idle()
}
