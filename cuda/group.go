package cuda

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/seed-ee968945/concert/cuda/driver"
	"github.com/seed-ee968945/concert/cuda/internal/hostmem"
	"github.com/seed-ee968945/concert/internal/lifecycle"
	"github.com/seed-ee968945/concert/kernels"
)

// Group is a set of world ranks that run collectives together. It owns a control
// page, scratch for packets and, for every local member, a host page through
// which the host can abort the member's waits and read its error record.
//
// All collectives of a group are issued in one stream order per rank, and in the
// same order on every rank. That goes for replays of graphs that hold some, too: they share
// the group's scratch with each other and with all other calls, and nothing but the stream
// that they are launched in keeps them apart. No such graph is launched behind Close.
type Group struct {
	world   *World
	id      int // number within the world, the same in all processes
	ranks   []int
	sc      kernels.Scratch
	members []*Member
	tuning  kernels.Tuning
	many    bool // GroupOptions.ManyStreams
	life    *lifecycle.Scope
	// Staging of collectives by copy engines: two halves of one slot per rank.
	staging, stageSlot uint64
	pad, padBytes      uint64

	mc          *multicast // nil if the group has none
	noMulticast error      // why, where it was asked for
	rankOrder   bool
}

// GroupOptions are the knobs of a group. The zero value is the default of each.
type GroupOptions struct {
	Timeout time.Duration // how long a wait may last; 0 is 10 minutes, negative for ever
	Region  uint64        // bytes of each of the four regions of flagless packets; 0 is 32 MiB
	Flagged uint64        // bytes of each half for flagged packets; 0 is 8 MiB
	Staging uint64        // bytes of staging for collectives by copy engines and pushes, see Prepared.Enqueue; 0 is none
	Pad     uint64        // bytes of each rank's pad, see Member.Pad, rounded up to 128; 0 is 16 KiB
	// Calibration chooses the protocols by the size of the group; nil is the defaults.
	// Every rank of a group needs an equal one: compare Digest.
	Calibration *kernels.Calibration
	Tuning      *kernels.Tuning // instead, for this group
	// RankOrder demands that every sum is folded in the order of the ranks, whatever the
	// protocol, so that its bits do not depend on how it was made. All protocols do but
	// multicast, which then does not serve sums.
	RankOrder bool
	// ManyStreams says that a rank's calls will come in several streams by turns, or in
	// captures beside others. Each is followed by an event then, one more call of the
	// driver. Without it a group does so from its first change of streams on; that change
	// waits for all that the caller has enqueued in the stream of the call before.
	ManyStreams bool
}

// Digest identifies what plans depend on besides the program and the tensors. Ranks
// whose groups have different digests must not meet: they might choose different
// protocols for one collective.
func (o *GroupOptions) Digest() string {
	text := fmt.Sprintf("%d %d %d %d %s", o.Region, o.Flagged, o.Staging, o.Pad, o.Calibration.Digest())
	if o.Tuning != nil {
		text += fmt.Sprintf(" %+v", *o.Tuning)
	}
	if o.RankOrder {
		text += " in rank order"
	}
	return kernels.Hash([]byte(text))
}

// Member is one local rank's view of a group.
type Member struct {
	Group   *Group
	Rank    *Rank
	Index   int // rank within the group
	peer    [kernels.MaxRanks]uint64
	ctl     driver.Ptr
	host    uintptr
	hostDev driver.Ptr
	timeout uint64
	seq     atomic.Uint32 // calls prepared
	last    atomic.Uint32 // number of the collective without kernels that was enqueued last
	engine  *engine
	// bounce is memory of the rank's own that parts of a call pass through, see split.go.
	bounce      driver.Ptr
	bounceBytes uint64
	eager       eager
	pad         padWatch
	planMu      sync.Mutex // plans may need more of the engine's events
	order       *turns     // of collectives
	orderMu     sync.Mutex
	// channels has the orders of user channels, made when they are first used.
	channels map[direction]*turns
	broken   atomic.Pointer[error]
	// brokenAt is when it broke: set behind broken, and nil in a group that is whole.
	brokenAt atomic.Pointer[time.Time]
}

const hostPageBytes = 4096

// NewGroup makes a group of world ranks, in group-rank order. Every process of the world
// makes the same groups in the same order; it returns when all have, or with ctx's cause
// when ctx ends first. Where one process fails, all do, and the others get a
// *CanceledError.
func (w *World) NewGroup(ctx context.Context, ranks []int, o GroupOptions) (_ *Group, err error) {
	if err := errors.Join(given(ctx), w.checkGroup(ranks, &o)); err != nil {
		return nil, err
	}
	padBytes, err := padSize(o.Pad)
	if err != nil {
		return nil, err
	}
	if err := w.life.Begin(); err != nil {
		return nil, err
	}
	defer w.life.Done()
	g := &Group{world: w, padBytes: padBytes, ranks: append([]int(nil), ranks...), tuning: o.Calibration.For(len(ranks)), rankOrder: o.RankOrder, many: o.ManyStreams}
	if o.Tuning != nil {
		g.tuning = *o.Tuning
	}
	w.mu.Lock()
	g.id = w.made
	w.made++
	w.mu.Unlock()
	met := false
	defer func() {
		if err != nil {
			if !met {
				w.control.skip(err)
			}
			if g.life != nil {
				g.life.EndInCall() // the first error matters
			}
		}
	}()
	if g.life, err = w.life.New("group"); err != nil {
		return nil, err
	}
	if err := g.allocate(&o); err != nil {
		return nil, err
	}
	timeout := uint64(10 * time.Minute)
	if o.Timeout > 0 {
		timeout = uint64(o.Timeout)
	} else if o.Timeout < 0 {
		timeout = 0
	}
	// A group may take the place of one that other processes are still closing.
	met = true
	if err := w.Meet(ctx); err != nil {
		return nil, err
	}
	met = false
	for i, id := range ranks {
		if r := w.local[id]; r != nil {
			if err := g.join(r, i, timeout); err != nil {
				return nil, err
			}
		}
	}
	if err := g.life.Work(lifecycle.Hooks{Stop: g.stop, Tend: g.tend, Idle: g.idle}); err != nil {
		return nil, err
	}
	g.listen()
	met = true
	if w.mcast {
		if err := g.openMulticast(ctx); err != nil {
			return nil, err
		}
		g.life.Defer("multicast object", g.mc.close)
	}
	if err := w.Meet(ctx); err != nil {
		return nil, err
	}
	return g, nil
}

// allocate takes the group's parts of symmetric memory.
func (g *Group) allocate(o *GroupOptions) (err error) {
	region, flagged := o.Region, o.Flagged
	if region == 0 {
		region = 32 << 20
	}
	if flagged == 0 {
		flagged = 8 << 20
	}
	g.sc.Region, g.sc.FlaggedHalf = (region+4095)&^4095, (flagged+4095)&^4095
	n := len(g.ranks)
	parts := []struct {
		at    *uint64
		bytes uint64
	}{{&g.sc.Ctl, kernels.CtlBytes}, {&g.sc.Poisoned, 4 * g.sc.Region}, {&g.sc.Flagged, 2 * g.sc.FlaggedHalf}, {&g.pad, g.padBytes}, {&g.staging, 0}}
	if o.Staging > 0 {
		g.stageSlot = o.Staging / uint64(2*n) &^ 4095
		if g.stageSlot == 0 {
			return fmt.Errorf("staging of %d bytes is too small for %d ranks: 4096 bytes for each half and rank are needed", o.Staging, n)
		}
		g.sc.StagingSize = g.stageSlot * uint64(2*n)
		parts[4].bytes = g.sc.StagingSize
	}
	w := g.world
	for _, a := range parts {
		if a.bytes == 0 {
			continue
		}
		at, err := w.Alloc(a.bytes, 4096)
		if err != nil {
			return fmt.Errorf("group of %d ranks: %w", n, err)
		}
		*a.at = at
		g.life.Defer("symmetric memory", func() error { return w.Free(at) })
	}
	g.sc.Staging = g.staging
	return nil
}

// listen makes the group hear what becomes of its peers, until it is released.
func (g *Group) listen() {
	w := g.world
	w.mu.Lock()
	w.groups[g.id] = g
	w.mu.Unlock()
	g.life.Defer("place among the groups", func() error {
		w.mu.Lock()
		defer w.mu.Unlock()
		delete(w.groups, g.id)
		return nil
	})
}

func (g *Group) join(r *Rank, index int, timeout uint64) error {
	m := &Member{Group: g, Rank: r, Index: index, timeout: timeout, ctl: g.world.Addr(r.ID, g.sc.Ctl)}
	m.order = m.newTurns()
	m.pad.idle.L = &m.pad.mu
	for k := range g.ranks {
		m.peer[k] = uint64(g.world.Addr(g.ranks[(index+k)%len(g.ranks)], 0))
	}
	own := r.own(g.life)
	var err error
	if m.host, m.hostDev, err = own.host(hostPageBytes); err != nil {
		return err
	}
	g.members = append(g.members, m)
	if m.pad.rescue, err = own.stream(false); err != nil {
		return err
	}
	m.bounceBytes = g.sc.FlaggedHalf / 2
	if m.bounce, err = own.alloc(m.bounceBytes); err != nil {
		return err
	}
	if g.stageSlot > 0 {
		if err := m.openEngine(); err != nil {
			return err
		}
	}
	return m.clear()
}

// clear readies a member's own pages. Peers must not run the group's kernels meanwhile.
func (m *Member) clear() error {
	if err := m.quietPad(); err != nil {
		return err
	}
	d, w, sc, r := m.Rank.World.drv, m.Group.world, m.Group.sc, m.Rank
	for _, f := range []struct {
		off, bytes uint64
		v          uint32
	}{{sc.Ctl, kernels.CtlBytes, 0}, {sc.Poisoned, 4 * sc.Region, kernels.Poison}, {sc.Flagged, 2 * sc.FlaggedHalf, 0}, {m.Group.pad, m.Group.padBytes, 0},
		{sc.Ctl + quietCredit, StagingParts * quietRow, 1}} {
		if err := d.Memset32(r.Ctx, r.setup, w.Addr(r.ID, f.off), f.v, f.bytes/4); err != nil {
			return err
		}
	}
	for _, t := range m.allTurns() {
		t.reset()
	}
	clear(hostmem.Bytes(m.host, hostPageBytes))
	m.broken.Store(nil)
	m.brokenAt.Store(nil)
	return d.StreamSync(r.Ctx, r.setup)
}

// Rejoin readies a broken group for use: it waits for all work of the local devices,
// which has given up or soon will, meets the other processes, and clears control
// pages, packets and errors. Every process of the world calls it, with no work of the
// group enqueued meanwhile. What was prepared or captured for the group stays valid.
// It fails with a *PeerLostError in a world that lost a process: the survivors make a
// new world then. When ctx ends it returns its cause, with the group broken; it may be
// called again where all processes do so.
func (g *Group) Rejoin(ctx context.Context) error {
	return g.rejoin(ctx, func(int) []driver.Stream { return nil })
}

// RejoinAfter is Rejoin for devices that other work goes on on: it waits for the given
// streams and the group's own only. streams has those of each of Members on which work
// of the group may have been enqueued, or what waits for it.
func (g *Group) RejoinAfter(ctx context.Context, streams [][]driver.Stream) error {
	if err := g.usable(); err != nil {
		return err
	}
	if len(streams) != len(g.members) {
		return fmt.Errorf("streams of %d members, the group has %d here", len(streams), len(g.members))
	}
	return g.rejoin(ctx, func(i int) []driver.Stream {
		m := g.members[i]
		all := append([]driver.Stream{m.Rank.setup}, streams[i]...)
		if m.engine != nil {
			all = append(all, m.engine.in, m.engine.out)
		}
		return all
	})
}

func (g *Group) rejoin(ctx context.Context, streams func(member int) []driver.Stream) error {
	if err := given(ctx); err != nil {
		return err
	}
	if err := g.begin(); err != nil {
		return err
	}
	defer g.done()
	ctx, free := g.life.Bound(ctx)
	defer free()
	each := func(f func(i int, m *Member) error) error {
		for i, m := range g.members {
			if err := f(i, m); err != nil {
				err = fmt.Errorf("rank %d: %w", m.Rank.ID, err)
				g.world.control.skip(err)
				return err
			}
		}
		return g.world.Meet(ctx)
	}
	err := each(func(i int, m *Member) error { return m.finishAll(ctx, streams(i)...) })
	if err == nil {
		err = each(func(_ int, m *Member) error { return m.clear() })
	}
	if err != nil { // some may be ready, some are not
		for _, m := range g.members {
			m.abort(err)
		}
	}
	return err
}

// Members lists the local members.
func (g *Group) Members() []*Member {
	if g == nil {
		return nil
	}
	return g.members
}

// Size is the number of ranks of the group.
func (g *Group) Size() int { return len(g.ranks) }

// Close ends the group: calls and handles that are used afterwards fail with ErrClosed. It
// waits for calls that are under way, and on the devices for the calls that were enqueued,
// which end by their timeout if peers do not come. Replays of graphs are the caller's to wait
// for. It is safe to call twice.
func (g *Group) Close() error {
	if g == nil {
		return nil
	}
	return g.life.End(context.Background())
}

// stop ends the waits for words of pads, which nothing but Abort would end.
func (g *Group) stop() {
	for _, m := range g.members {
		m.stopPad()
	}
}

// tend does for the group's work what only its hosts can.
func (g *Group) tend(waited time.Duration, cause error) error {
	var errs []error
	for _, m := range g.members {
		if cause != nil && m.failure() == nil {
			m.breakAll(cause)
		}
		errs = append(errs, m.nurse(waited))
	}
	return errors.Join(errs...)
}

// idle reports whether the calls that the group knows of have ended.
func (g *Group) idle() (bool, error) {
	for _, m := range g.members {
		if ok, err := m.idle(); !ok || err != nil {
			return false, err
		}
	}
	return true, nil
}

// idle reports whether the member's calls have ended, and what its own streams do.
func (m *Member) idle() (bool, error) {
	if !m.padPassed() {
		return false, nil
	}
	for _, s := range m.streams() {
		if ok, err := m.Rank.World.drv.StreamQuery(m.Rank.Ctx, s); !ok || err != nil {
			return false, err
		}
	}
	for _, t := range m.allTurns() {
		if ok, err := t.idle(); !ok || err != nil {
			return false, err
		}
	}
	return true, nil
}

// streams are those of the member itself.
func (m *Member) streams() []driver.Stream {
	all := []driver.Stream{m.pad.rescue}
	if e := m.engine; e != nil {
		all = append(all, e.in, e.out, e.rescue)
	}
	return all
}

// Signal adds to channel on the chosen peers, given as group ranks, when the
// stream has got here. Wait holds the stream until each chosen peer has signalled
// once more. Channels are 0 to UserChannels-1.
func (m *Member) Signal(s driver.Stream, channel int, peers ...int) error {
	return m.userChannel(s, callSignal, "signal", channel, peers)
}

// Wait is Signal's other half.
func (m *Member) Wait(s driver.Stream, channel int, peers ...int) error {
	return m.userChannel(s, callWait, "wait", channel, peers)
}

func (m *Member) userChannel(s driver.Stream, kind callKind, kernel string, channel int, peers []int) error {
	if err := m.begin(); err != nil {
		return err
	}
	defer m.done()
	if channel < 0 || channel >= UserChannels {
		return fmt.Errorf("channel must be in [0, %d), got %d", UserChannels, channel)
	}
	var mask uint32
	for _, r := range peers {
		if r < 0 || r >= len(m.Group.ranks) {
			return fmt.Errorf("rank must be in [0, %d), got %d", len(m.Group.ranks), r)
		}
		if r == m.Index {
			return fmt.Errorf("rank %d cannot %s itself", r, kernel)
		}
		mask |= 1 << r
	}
	if err := m.works(); err != nil {
		return err
	}
	var c driver.Commands
	if err := m.channel(&c, driver.Main, kind, kernel, chanUser+channel, mask); err != nil {
		return err
	}
	var orders []*turns
	for _, waits := range []bool{false, true} { // a barrier does both
		if kind == callMeet || waits == (kind == callWait) {
			orders = append(orders, m.turnsOf(direction{channel, waits}))
		}
	}
	return m.inTurn(s, func() error { return m.Rank.World.drv.Run(m.Rank.Ctx, c.On(s)) }, orders...)
}
