package symm

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/seed-ee968945/concert/cuda/driver"
	"github.com/seed-ee968945/concert/cuda/internal/hostmem"
	"github.com/seed-ee968945/concert/internal/lifecycle"
	"github.com/seed-ee968945/concert/kernels"
)

// Group is a set of world ranks that signal each other: a control page and a pad in the
// symmetric memory of each, and for every local member a host page through which the host
// can abort the member's waits and read its error record. What is built on it, such as
// collectives, is its Extension.
//
// All calls of a group are issued in one stream order per rank, and in the same order on
// every rank. That goes for replays of graphs that hold some, too: nothing but the stream
// that they are launched in keeps them apart. No such graph is launched behind Close.
type Group struct {
	world   *World
	id      int // number within the world, the same in all processes
	ranks   []int
	name    string
	job     []int        // by member: GroupOptions.Job
	timeout atomic.Int64 // nanoseconds, 0 for ever
	ctl     uint64       // offset of the control pages
	members []*Member
	many    bool // GroupOptions.ManyStreams
	life    *lifecycle.Scope

	pad, padBytes uint64
	room          *heap  // GroupOptions.Range, nil where the world's memory serves
	roomAt        uint64 // where it begins

	mc          *multicast // nil if the group has none
	noMulticast error      // why, where it was asked for
}

// GroupOptions are the knobs of a group. The zero value is the default of each.
type GroupOptions struct {
	Name    string        // for errors
	Job     []int         // the members' ranks in the job, for errors; nil if they are the world's
	Timeout time.Duration // how long a wait may last; 0 is 10 minutes, negative for ever
	Pad     uint64        // bytes of each rank's pad, see Member.Pad, rounded up to 128; 0 is 16 KiB
	// Range is memory that the world has been grown by and that serves the group instead of
	// the world's Alloc. Groups that share no rank may share it.
	Range Range
	// ManyStreams says that a rank's calls will come in several streams by turns, or in
	// captures in addition to others. Each is followed by an event then, one more call of the
	// driver. Without it a group does so from its first change of streams on; that change
	// waits for all that the caller has enqueued in the stream of the call before.
	ManyStreams bool
	// Extend, if it is not nil, makes what a package above keeps with the group, before any
	// rank begins. It allocates by Group.Alloc, alike on all ranks, and gives the function
	// that makes the part of a local member.
	Extend func(g *Group) (func(m *Member) (Extension, error), error)
}

// Range is a range of symmetric memory, from an offset on. The zero value is none.
type Range struct{ At, Bytes uint64 }

// Extension is what a package above keeps for a member of a group.
type Extension interface {
	// Reset clears its part of the rank's symmetric memory, by Member.HostStream, while
	// no peer runs anything of the group.
	Reset() error
	// Streams are its own besides Member.HostStream, in which work of the group may be.
	Streams() []driver.Stream
	// Tend is called by a host that has waited so long for work of the group: it breaks the
	// group past its timeout, and ends waits in a broken one, where no kernel does.
	Tend(waited time.Duration) error
	// EndWaits ends waits that no kernel ends. It is called again and again.
	EndWaits() error
	// Waits reports whether streams may hold waits that nothing but EndWaits ends.
	Waits() bool
}

// noExtension is the Extension of a group that has none.
type noExtension struct{}

func (noExtension) Reset() error             { return nil }
func (noExtension) Streams() []driver.Stream { return nil }
func (noExtension) Tend(time.Duration) error { return nil }
func (noExtension) EndWaits() error          { return nil }
func (noExtension) Waits() bool              { return false }

// Member is one local rank's view of a group.
type Member struct {
	Group   *Group
	Rank    *Rank
	Index   int // rank within the group
	peer    [kernels.MaxRanks]uint64
	ctl     driver.Ptr
	host    uintptr
	hostDev driver.Ptr
	stream  driver.Stream // HostStream
	seq     atomic.Uint32 // calls prepared
	ext     Extension
	Naming  func(seq uint32, what string) string // names a call of that number in errors, if not nil
	pad     padWatch
	order   *Order // of collectives
	orderMu sync.Mutex
	// channels has the orders of directions, made when they are first used.
	channels map[direction]*Order
	broken   atomic.Pointer[error]
	// brokenAt is when it broke: set behind broken, and nil in a group that is whole.
	brokenAt atomic.Pointer[time.Time]
}

const hostPageBytes = 4096

// ownWords is where the part of a member's host page begins that is its extension's: far behind
// what kernels write.
const ownWords = hostPageBytes / 2

// abortSeen is where the host page has the device's abort word as the host copied it last.
const abortSeen = ownWords - 4

// OwnWords is where the device sees the words of the host that are the extension's, 512 of them.
// They are zero at first and after Rejoin.
func (m *Member) OwnWords() driver.Ptr { return m.hostDev + ownWords }

// OwnWord is one of OwnWords as it is now.
func (m *Member) OwnWord(i int) uint32 { return hostmem.Load32(m.host + ownWords + uintptr(4*i)) }

// HostStream is the stream by which the host clears the member's memory, looks at it and ends its
// waits. Each group has its own: what one has put into it holds up no other's end.
func (m *Member) HostStream() driver.Stream { return m.stream }

// NewGroup makes a group of world ranks, in group-rank order. Every process of the world
// makes the same groups in the same order; it returns when all have, or with ctx's cause
// when ctx ends first. Where one process fails, all do, and the others get a
// *CanceledError.
func NewGroup(ctx context.Context, w *World, ranks []int, o GroupOptions) (_ *Group, err error) {
	if err := errors.Join(CheckContext(ctx), w.checkRanks(ranks)); err != nil {
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
	g := w.newGroup(ranks, padBytes, &o)
	inBarrier := false
	defer func() {
		if err != nil {
			if !inBarrier {
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
	if g.ctl, err = g.Alloc(kernels.CtlBytes); err != nil {
		return nil, err
	}
	if g.pad, err = g.Alloc(g.padBytes); err != nil {
		return nil, err
	}
	extend := func(*Member) (Extension, error) { return noExtension{}, nil }
	if o.Extend != nil {
		if extend, err = o.Extend(g); err != nil {
			return nil, err
		}
	}
	g.SetTimeout(o.Timeout)
	// A group may take the place of one that other processes are still closing.
	inBarrier = true
	if err := w.Barrier(ctx); err != nil {
		return nil, err
	}
	inBarrier = false
	if err := g.life.Work(lifecycle.Hooks{Stop: g.stop, Tend: g.tend, Idle: g.idle}); err != nil {
		return nil, err
	}
	for i, id := range ranks {
		if r := w.local[id]; r != nil {
			if err := g.join(r, i, extend); err != nil {
				return nil, err
			}
		}
	}
	g.listen()
	inBarrier = true
	if w.mcast {
		if err := g.openMulticast(ctx); err != nil {
			return nil, err
		}
		g.life.Defer("multicast object", g.mc.close)
	}
	if err := w.Barrier(ctx); err != nil {
		return nil, err
	}
	return g, nil
}

// newGroup is a group without memory, with its number.
func (w *World) newGroup(ranks []int, padBytes uint64, o *GroupOptions) *Group {
	g := &Group{world: w, padBytes: padBytes, ranks: slices.Clone(ranks), name: o.Name, job: o.Job, many: o.ManyStreams}
	if g.job == nil {
		g.job = w.jobRanks(ranks)
	}
	if o.Range.Bytes > 0 {
		g.room, g.roomAt = &heap{size: o.Range.Bytes}, o.Range.At
	}
	w.mu.Lock()
	g.id = w.made
	w.made++
	w.mu.Unlock()
	return g
}

// Alloc takes symmetric memory of the world for as long as the group lives, and gives its
// offset. All ranks allocate alike.
func (g *Group) Alloc(bytes uint64) (uint64, error) {
	if g == nil {
		return 0, g.usable()
	}
	w := g.world
	if g.room != nil {
		at, err := g.room.alloc(bytes, 4096)
		if err != nil {
			err = fmt.Errorf("group of %d ranks: %w", len(g.ranks), err)
		}
		return g.roomAt + at, err
	}
	at, err := w.Alloc(bytes, 4096)
	if err != nil {
		return 0, fmt.Errorf("group of %d ranks: %w", len(g.ranks), err)
	}
	return at, g.life.Defer("symmetric memory", func() error { return w.Free(at) })
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

func (g *Group) join(r *Rank, index int, extend func(*Member) (Extension, error)) error {
	m := &Member{Group: g, Rank: r, Index: index, ctl: g.world.Addr(r.ID, g.ctl), ext: noExtension{}}
	m.pad.idle.L = &m.pad.mu
	for k := range g.ranks {
		m.peer[k] = uint64(g.world.Addr(g.ranks[(index+k)%len(g.ranks)], 0))
	}
	own := r.own(g.life)
	var err error
	if m.order, err = m.newOrder(); err != nil {
		return err
	}
	if m.host, m.hostDev, err = own.Host(hostPageBytes); err != nil {
		return err
	}
	if m.stream, err = own.Stream(false); err != nil {
		return err
	}
	g.members = append(g.members, m)
	if m.pad.copied, err = own.Event(false); err != nil {
		return err
	}
	ext, err := extend(m)
	if err != nil {
		return err
	}
	m.ext = ext
	return m.clear()
}

// clear readies a member's own pages. Peers must not run the group's kernels meanwhile.
func (m *Member) clear() error {
	if err := m.drainPad(); err != nil {
		return err
	}
	d, g, r := m.Rank.World.drv, m.Group, m.Rank
	for _, f := range []struct{ off, bytes uint64 }{{g.ctl, kernels.CtlBytes}, {g.pad, g.padBytes}} {
		if err := d.Memset32(r.Ctx, m.stream, g.world.Addr(r.ID, f.off), 0, f.bytes/4); err != nil {
			return err
		}
	}
	if err := m.ext.Reset(); err != nil {
		return err
	}
	for _, t := range m.allOrders() {
		t.reset()
	}
	clear(hostmem.Bytes(m.host, hostPageBytes))
	m.broken.Store(nil)
	m.brokenAt.Store(nil)
	return d.StreamSync(r.Ctx, m.stream)
}

// Rejoin readies a broken group for use: it waits for all work of the local devices,
// which has ended early or soon will, waits for the other processes, and clears control
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
		return slices.Concat([]driver.Stream{m.stream}, streams[i], m.ext.Streams())
	})
}

func (g *Group) rejoin(ctx context.Context, streams func(member int) []driver.Stream) error {
	if err := CheckContext(ctx); err != nil {
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
		return g.world.Barrier(ctx)
	}
	err := each(func(i int, m *Member) error { return m.finishAll(ctx, streams(i)...) })
	if err == nil {
		err = each(func(_ int, m *Member) error { return m.clear() })
	}
	if err != nil { // some may be ready, some are not
		for _, m := range g.members {
			m.abort(m.where().Own(err))
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

// World is the world of the group.
func (g *Group) World() *World { return g.world }

// Ranks are the group's world ranks in its order. The caller leaves them as they are.
func (g *Group) Ranks() []int { return g.ranks }

// Timeout is how long a wait may last, 0 for ever.
func (m *Member) Timeout() time.Duration { return time.Duration(m.Group.timeout.Load()) }

// SetTimeout changes how long waits of this process's members may last, as
// GroupOptions.Timeout said it before. Kernels that are prepared keep the limit that they have.
func (g *Group) SetTimeout(limit time.Duration) {
	if limit == 0 {
		limit = 10 * time.Minute
	}
	g.timeout.Store(int64(max(limit, 0)))
}

// Calls is the order of the member's calls but those on user channels.
func (m *Member) Calls() *Order { return m.order }

// Control is the offset of the control pages in symmetric memory, kernels.CtlBytes each.
func (g *Group) Control() uint64 { return g.ctl }

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
		if cause != nil && m.Failure() == nil {
			m.Break(cause)
		}
		errs = append(errs, m.ext.Tend(waited))
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
	for _, t := range m.allOrders() {
		if ok, err := t.idle(); !ok || err != nil {
			return false, err
		}
	}
	return true, nil
}

// streams are those of the member itself, and the host's.
func (m *Member) streams() []driver.Stream {
	return append([]driver.Stream{m.stream}, m.ext.Streams()...)
}
