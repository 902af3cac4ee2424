package cuda

import (
	"errors"
	"fmt"
	"math"
	"sync"
	"sync/atomic"
	"time"

	"github.com/seed-ee968945/concert/internal/dtype"
	"github.com/seed-ee968945/concert/kernels"
)

// Group is a set of world ranks that run collectives together. It owns a control
// page, scratch for packets and, for every local member, a host page through
// which the host can abort the member's waits and read its error record.
//
// All collectives of a group are issued in one stream order per rank, and in the
// same order on every rank.
type Group struct {
	world   *World
	id      int // number within the world, the same in all processes
	ranks   []int
	sc      kernels.Scratch
	offs    []uint64 // symmetric allocations
	members []*Member
	tuning  kernels.Tuning
	// Staging of collectives by copy engines: two halves of one slot per rank.
	staging, stageSlot uint64
}

// GroupOptions are the knobs of a group. The zero value is the default of each.
type GroupOptions struct {
	Timeout time.Duration // how long a wait may last; 0 is 10 minutes, negative for ever
	Region  uint64        // bytes of each of the four regions of flagless packets; 0 is 32 MiB
	Flagged uint64        // bytes of each half for flagged packets; 0 is 8 MiB
	Staging uint64        // bytes of staging for collectives by copy engines; 0 is none
	// Calibration chooses the protocols by the size of the group; nil is the defaults.
	// Every rank of a group needs an equal one: compare Digest.
	Calibration *kernels.Calibration
	Tuning      *kernels.Tuning // instead, for this group
}

// Digest identifies what plans depend on besides the program and the tensors. Ranks
// whose groups have different digests must not meet: they might choose different
// protocols for one collective.
func (o *GroupOptions) Digest() string {
	text := fmt.Sprintf("%d %d %d %s", o.Region, o.Flagged, o.Staging, o.Calibration.Digest())
	if o.Tuning != nil {
		text += fmt.Sprintf(" %+v", *o.Tuning)
	}
	return kernels.Hash([]byte(text))
}

// Member is one local rank's view of a group.
type Member struct {
	Group   *Group
	Rank    *Rank
	Index   int // rank within the group
	peer    [kernels.MaxRanks]uint64
	ctl     Ptr
	host    uintptr
	hostDev Ptr
	timeout uint64
	seq     atomic.Uint32
	engine  *engine
	hostMu  sync.Mutex // host may go away while another goroutine aborts
	broken  atomic.Pointer[error]
}

const hostPageBytes = 4096

// NewGroup makes a group of world ranks, in group-rank order. Every process of
// the world makes the same groups in the same order.
func (w *World) NewGroup(ranks []int, o GroupOptions) (_ *Group, err error) {
	if len(ranks) < 2 || len(ranks) > kernels.MaxRanks {
		return nil, fmt.Errorf("a group of %d ranks: 2 to %d are possible", len(ranks), kernels.MaxRanks)
	}
	seen := map[int]bool{}
	for _, r := range ranks {
		if r < 0 || r >= w.n {
			return nil, fmt.Errorf("rank must be in [0, %d), got %d", w.n, r)
		}
		if seen[r] {
			return nil, fmt.Errorf("rank %d is in the group twice", r)
		}
		seen[r] = true
	}
	g := &Group{world: w, ranks: append([]int(nil), ranks...), tuning: o.Calibration.For(len(ranks))}
	if o.Tuning != nil {
		g.tuning = *o.Tuning
	}
	defer func() {
		if err != nil {
			g.Close() // the first error matters
		}
	}()
	region, flagged := o.Region, o.Flagged
	if region == 0 {
		region = 32 << 20
	}
	if flagged == 0 {
		flagged = 8 << 20
	}
	g.sc.Region, g.sc.FlaggedHalf = (region+4095)&^4095, (flagged+4095)&^4095
	for _, a := range []struct {
		at    *uint64
		bytes uint64
	}{{&g.sc.Ctl, kernels.CtlBytes}, {&g.sc.Poisoned, 4 * g.sc.Region}, {&g.sc.Flagged, 2 * g.sc.FlaggedHalf}} {
		if *a.at, err = w.Alloc(a.bytes, 4096); err != nil {
			return nil, fmt.Errorf("group of %d ranks: %w", len(ranks), err)
		}
		g.offs = append(g.offs, *a.at)
	}
	if o.Staging > 0 {
		g.stageSlot = o.Staging / uint64(2*len(ranks)) &^ 4095
		if g.stageSlot == 0 {
			return nil, fmt.Errorf("staging of %d bytes is too small for %d ranks: 4096 bytes for each half and rank are needed", o.Staging, len(ranks))
		}
		if g.staging, err = w.Alloc(g.stageSlot*uint64(2*len(ranks)), 4096); err != nil {
			return nil, fmt.Errorf("staging of a group of %d ranks: %w", len(ranks), err)
		}
		g.offs = append(g.offs, g.staging)
		g.sc.Staging, g.sc.StagingSize = g.staging, g.stageSlot*uint64(2*len(ranks))
	}
	timeout := uint64(10 * time.Minute)
	if o.Timeout > 0 {
		timeout = uint64(o.Timeout)
	} else if o.Timeout < 0 {
		timeout = 0
	}
	for i, id := range ranks {
		if r := w.local[id]; r != nil {
			if err := g.join(r, i, timeout); err != nil {
				return nil, err
			}
		}
	}
	w.mu.Lock()
	g.id = len(w.groups)
	w.groups = append(w.groups, g)
	w.mu.Unlock()
	if w.control != nil {
		w.control.whenLost(g.lose)
		w.control.whenAborted(w.aborted)
	}
	if err := w.meet(); err != nil {
		return nil, err
	}
	return g, nil
}

// lose aborts the local members because a process of the world ended.
func (g *Group) lose(why error) {
	for _, m := range g.members {
		m.abort(why)
	}
}

// GaveUpError is what the other ranks of a group report when one has aborted it.
type GaveUpError struct {
	Rank   int // group rank
	Reason string
}

// Error names the rank and its reason.
func (e *GaveUpError) Error() string { return fmt.Sprintf("rank %d gave up: %s", e.Rank, e.Reason) }

// aborted is called when a member in another process has aborted a group.
func (w *World) aborted(msg message) {
	w.mu.Lock()
	var g *Group
	if msg.Group >= 0 && msg.Group < len(w.groups) {
		g = w.groups[msg.Group]
	}
	w.mu.Unlock()
	if g != nil {
		g.lose(&GaveUpError{Rank: msg.Rank, Reason: msg.Text})
	}
}

func (g *Group) join(r *Rank, index int, timeout uint64) error {
	m := &Member{Group: g, Rank: r, Index: index, timeout: timeout, ctl: g.world.Addr(r.ID, g.sc.Ctl)}
	for k := range g.ranks {
		m.peer[k] = uint64(g.world.Addr(g.ranks[(index+k)%len(g.ranks)], 0))
	}
	var err error
	if m.host, m.hostDev, err = g.world.drv.HostAlloc(r.Ctx, hostPageBytes); err != nil {
		return err
	}
	g.members = append(g.members, m)
	if g.stageSlot > 0 {
		if err := m.openEngine(); err != nil {
			return err
		}
	}
	return m.clear()
}

// clear readies a member's own pages. Peers must not run the group's kernels meanwhile.
func (m *Member) clear() error {
	d, w, sc, r := m.Rank.World.drv, m.Group.world, m.Group.sc, m.Rank
	for _, f := range []struct {
		off, bytes uint64
		v          uint32
	}{{sc.Ctl, kernels.CtlBytes, 0}, {sc.Poisoned, 4 * sc.Region, kernels.Poison}, {sc.Flagged, 2 * sc.FlaggedHalf, 0}} {
		if err := d.Memset32(r.Ctx, r.setup, w.Addr(r.ID, f.off), f.v, f.bytes/4); err != nil {
			return err
		}
	}
	clear(hostBytes(m.host, hostPageBytes))
	m.broken.Store(nil)
	return d.StreamSync(r.Ctx, r.setup)
}

// Rejoin readies a broken group for use: it waits for all work of the local devices,
// which has given up or soon will, meets the other processes, and clears control
// pages, packets and errors. Every process of the world calls it, with no work of the
// group enqueued meanwhile. What was prepared or captured for the group stays valid.
// It fails with a *PeerLostError in a world that lost a process: the survivors make a
// new world then.
func (g *Group) Rejoin() error {
	for _, m := range g.members {
		if err := m.settle(); err != nil {
			return fmt.Errorf("rank %d: %w", m.Rank.ID, err)
		}
	}
	if err := g.world.meet(); err != nil {
		return err
	}
	for _, m := range g.members {
		if err := m.clear(); err != nil {
			return fmt.Errorf("rank %d: %w", m.Rank.ID, err)
		}
	}
	return g.world.meet()
}

// Members lists the local members.
func (g *Group) Members() []*Member { return g.members }

// Size is the number of ranks of the group.
func (g *Group) Size() int { return len(g.ranks) }

// Close frees the group's memory. No kernel of the group may be running.
func (g *Group) Close() error {
	g.world.mu.Lock()
	if g.id < len(g.world.groups) && g.world.groups[g.id] == g {
		g.world.groups[g.id] = nil
	}
	g.world.mu.Unlock()
	var errs []error
	for _, m := range g.members {
		errs = append(errs, m.closeEngine())
		m.hostMu.Lock()
		if m.host != 0 {
			errs = append(errs, g.world.drv.HostFree(m.Rank.Ctx, m.host))
			m.host = 0
		}
		m.hostMu.Unlock()
	}
	for _, off := range g.offs {
		errs = append(errs, g.world.Free(off))
	}
	g.offs = nil
	return errors.Join(errs...)
}

// Tensor is one operand of a collective: what this rank gives and what it gets.
// Bytes is the piece of one rank, as in kernels.Seg.
type Tensor struct {
	Src, Dst Ptr
	Bytes    uint64
}

// Op is a collective call.
type Op struct {
	Kind    kernels.Collective
	Red     kernels.Reduction
	DType   dtype.DType
	Tensors []Tensor
	// Symmetric promises that every Src and Dst lies in symmetric memory at the same
	// offset on every rank, which the direct protocol needs.
	Symmetric bool
	Algo      kernels.Algo
	// Beside says that compute runs beside the collective: what is large enough goes by
	// copies that need no multiprocessor, see beside.go. It needs symmetric tensors and
	// GroupOptions.Staging; without them, and for small calls, it changes nothing. With
	// Algo Engine all tensors go that way, however small.
	Beside  bool
	Root    int      // of Broadcast and Reduce: a group rank. A Reduce leaves the others' Dst alone
	Pairs   [][2]int // of Permute: from and to. Who receives nothing keeps its Dst; no Dst may overlap a Src
	Blocks  int
	Threads int
}

// Prepared is a collective planned for one member, ready to be launched any
// number of times.
type Prepared struct {
	m    *Member
	l    *kernels.Launch // nil when nothing need run, or when cmds does it
	f    Func
	buf  []byte
	cmds *Commands // of a collective of several steps
}

// Prepare plans op for this member: kernel, grid and arguments. The plan is the
// same on every rank.
func (m *Member) Prepare(op Op) (*Prepared, error) {
	if op.Kind == kernels.Barrier {
		return m.prepareBarrier()
	}
	segs := make([]kernels.Seg, len(op.Tensors))
	for i, t := range op.Tensors {
		segs[i] = kernels.Seg{Src: uint64(t.Src), Dst: uint64(t.Dst), Bytes: t.Bytes}
		if op.Symmetric {
			if err := m.inArena(op, t); err != nil {
				return nil, err
			}
		}
	}
	if op.Kind == kernels.Broadcast || op.Kind == kernels.Permute || op.Kind == kernels.Reduce {
		return m.prepareRooted(op)
	}
	if op.Beside && (op.Algo == kernels.Engine || op.Algo == kernels.Auto) {
		if p, err := m.prepareBeside(op); p != nil || err != nil {
			return p, err
		}
	}
	if op.Algo == kernels.Engine || op.Algo == kernels.Auto && m.preferEngine(op) {
		return m.prepareEngine(op)
	}
	l, err := kernels.Plan(kernels.Call{Op: op.Kind, Red: op.Red, DType: op.DType, N: len(m.Group.ranks), Segs: segs,
		Symmetric: op.Symmetric, Algo: op.Algo, Blocks: op.Blocks, Threads: op.Threads}, m.Group.sc, m.Group.tuning)
	if err != nil || l == nil {
		return &Prepared{m: m}, err
	}
	return m.finish(l)
}

// preferEngine says whether copy engines are the fastest for op.
func (m *Member) preferEngine(op Op) bool {
	if m.engine == nil || !op.Symmetric {
		return false
	}
	// Each tensor is copied by itself, so the smallest one decides.
	least := uint64(math.MaxUint64)
	for _, t := range op.Tensors {
		least = min(least, t.Bytes)
	}
	if op.Kind != kernels.AllReduce && len(op.Tensors) > 0 {
		least *= uint64(len(m.Group.ranks))
	}
	t := m.Group.tuning
	limit := t.EngineMove
	switch op.Kind {
	case kernels.AllReduce:
		limit = t.EngineReduce
		for _, o := range op.Tensors {
			if o.Src == o.Dst {
				limit = t.EngineInPlace
			}
		}
	case kernels.ReduceScatter: // its pieces would have to be staged
		return false
	}
	return limit > 0 && len(op.Tensors) > 0 && least >= limit
}

func (m *Member) prepareBarrier() (*Prepared, error) {
	p := &Prepared{m: m, cmds: &Commands{}}
	return p, m.channel(p.cmds, Main, "barrier", chanBarrier, m.allPeers())
}

// finish adds what depends on the rank.
func (m *Member) finish(l *kernels.Launch) (*Prepared, error) {
	f, err := m.Rank.Func(l.Image, l.Kernel)
	if err != nil {
		return nil, err
	}
	a, own := &l.Args, m.args()
	a.Peer, a.Ctl, a.Host, a.Timeout, a.Rank, a.Seq = own.Peer, own.Ctl, own.Host, own.Timeout, own.Rank, own.Seq
	return &Prepared{m: m, l: l, f: f, buf: a.Pack(nil, l.Segs)}, nil
}

// Piece is a part of an uneven all_to_all.
type Piece struct {
	At    Ptr
	Bytes uint64
}

// PrepareUneven plans an all_to_all with a size of its own for every pair of ranks:
// send[d] goes to group rank d, recv[s] comes from it, and recv[s].Bytes equals
// send[this rank].Bytes there. Pieces of no bytes are allowed. Each piece must fit
// in a slot of the group's scratch.
func (m *Member) PrepareUneven(send, recv []Piece) (*Prepared, error) {
	n := len(m.Group.ranks)
	if len(send) != n || len(recv) != n {
		return nil, &kernels.PlanError{Op: kernels.AllToAllUneven, Reason: fmt.Sprintf("%d pieces to send and %d to receive in a group of %d", len(send), len(recv), n)}
	}
	a := m.args()
	a.Scratch, a.Half = m.Group.sc.Flagged, m.Group.sc.FlaggedHalf
	a.Slot = m.Group.sc.FlaggedHalf / uint64(n) &^ 15
	var t kernels.Table
	most := uint64(0)
	for r := range send {
		t.Src[r], t.Send[r] = uint64(send[r].At), send[r].Bytes
		t.Dst[r], t.Recv[r] = uint64(recv[r].At), recv[r].Bytes
		most = max(most, send[r].Bytes, recv[r].Bytes)
	}
	if (most+7)/8*16 > a.Slot {
		return nil, &kernels.PlanError{Op: kernels.AllToAllUneven, Reason: fmt.Sprintf("a piece of %d bytes does not fit in a slot of %d bytes of packets: raise GroupOptions.Flagged", most, a.Slot)}
	}
	if send[m.Index].Bytes != recv[m.Index].Bytes {
		return nil, &kernels.PlanError{Op: kernels.AllToAllUneven, Reason: fmt.Sprintf("rank %d sends itself %d bytes and expects %d", m.Index, send[m.Index].Bytes, recv[m.Index].Bytes)}
	}
	f, err := m.Rank.Func("alltoall_ll", "all_to_all_uneven_ll")
	if err != nil {
		return nil, err
	}
	p := &Prepared{m: m, cmds: &Commands{}}
	// The grid must be the same on every rank, and sizes differ: it is fixed.
	p.cmds.Launch(Main, f, 32, 256, 0, a.PackUneven(nil, t))
	return p, nil
}

// inArena checks that a tensor that is said to be symmetric lies in this rank's part.
func (m *Member) inArena(op Op, t Tensor) error {
	w, n := m.Group.world, uint64(len(m.Group.ranks))
	src, dst := t.Bytes, t.Bytes
	switch op.Kind {
	case kernels.AllGather:
		dst *= n
	case kernels.ReduceScatter:
		src *= n
	case kernels.AllToAll:
		src, dst = src*n, dst*n
	}
	lo, hi := w.Addr(m.Rank.ID, 0), w.Addr(m.Rank.ID, w.size)
	for _, p := range []struct {
		at    Ptr
		bytes uint64
	}{{t.Src, src}, {t.Dst, dst}} {
		if p.at < lo || uint64(hi-p.at) < p.bytes || p.at > hi {
			return fmt.Errorf("%v: %d bytes at %#x are not in rank %d's symmetric memory [%#x, %#x)", op.Kind, p.bytes, uint64(p.at), m.Rank.ID, uint64(lo), uint64(hi))
		}
	}
	return nil
}

// Launch is the plan, nil when the call moves nothing.
func (p *Prepared) Launch() *kernels.Launch { return p.l }

// Enqueue launches the collective on a stream of the member's rank. It does not wait.
func (p *Prepared) Enqueue(s Stream) error {
	if p.l == nil && p.cmds == nil {
		return nil
	}
	if err := p.m.Err(); err != nil {
		return err
	}
	if p.cmds != nil {
		return p.m.Rank.World.drv.Run(p.m.Rank.Ctx, p.cmds.On(s))
	}
	return p.m.Rank.World.drv.Launch(p.m.Rank.Ctx, s, p.f, p.l.Grid, p.l.Block, 0, p.buf)
}

// AddTo adds the collective to a command buffer, whose Main is its stream. Unlike
// Enqueue the buffer does not look whether the group is broken.
func (p *Prepared) AddTo(c *Commands) {
	switch {
	case p.cmds != nil:
		c.Append(p.cmds)
	case p.l != nil:
		c.Launch(Main, p.f, p.l.Grid, p.l.Block, 0, p.buf)
	}
}

// Enqueue plans and launches op.
func (m *Member) Enqueue(s Stream, op Op) error {
	p, err := m.Prepare(op)
	if err != nil {
		return err
	}
	return p.Enqueue(s)
}

// Signal adds to channel on the chosen peers, given as group ranks, when the
// stream has got here. Wait holds the stream until each chosen peer has signalled
// once more. Channels are 0 to UserChannels-1.
func (m *Member) Signal(s Stream, channel int, peers ...int) error {
	return m.userChannel(s, "signal", channel, peers)
}

// Wait is Signal's other half.
func (m *Member) Wait(s Stream, channel int, peers ...int) error {
	return m.userChannel(s, "wait", channel, peers)
}

func (m *Member) userChannel(s Stream, kernel string, channel int, peers []int) error {
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
	if err := m.Err(); err != nil {
		return err
	}
	var c Commands
	if err := m.channel(&c, Main, kernel, chanUser+channel, mask); err != nil {
		return err
	}
	return m.Rank.World.drv.Run(m.Rank.Ctx, c.On(s))
}

// TimeoutError is a wait in a collective that passed its deadline. The group is
// broken on every rank; contexts and memory are alive.
type TimeoutError struct {
	Rank    int // group rank that waited
	Peer    int // group rank it waited for
	Block   int // block of the kernel, the channel of the protocol
	Seq     uint32
	Elapsed time.Duration
}

// ErrTimeout matches every TimeoutError by errors.Is.
var ErrTimeout = errors.New("collective timed out")

// ErrAborted means that a group was aborted, by a peer's timeout or by Abort.
var ErrAborted = errors.New("group aborted")

// Error names rank, peer, block and call.
func (e *TimeoutError) Error() string {
	return fmt.Sprintf("%v: rank %d waited %v for rank %d (channel %d, call %d of the group)", ErrTimeout, e.Rank, e.Elapsed.Round(time.Millisecond), e.Peer, e.Block, e.Seq)
}

// Unwrap gives ErrTimeout.
func (e *TimeoutError) Unwrap() error { return ErrTimeout }

// Err is nil while the member's group works. It reads host memory only.
func (m *Member) Err() error {
	if p := m.broken.Load(); p != nil {
		return *p
	}
	if m.host == 0 {
		return nil
	}
	if load32(m.host+kernels.CtlRecord) == 2 {
		rec, _ := kernels.ParseRecord(hostBytes(m.host, hostPageBytes)[kernels.CtlRecord:])
		return m.fail(&TimeoutError{Rank: int(rec.Rank), Peer: int(rec.Peer), Block: int(rec.Block), Seq: rec.Seq, Elapsed: time.Duration(rec.ElapsedNanos)})
	}
	return nil
}

func (m *Member) fail(err error) error {
	m.broken.CompareAndSwap(nil, &err)
	return *m.broken.Load()
}

// Abort breaks the group on every rank: waits of kernels in flight end, here and in
// other processes, whether or not this member has one in flight. The reason is what
// Err reports from now on; the other members report a *GaveUpError with its text.
func (m *Member) Abort(reason error) {
	m.abort(reason)
	g := m.Group
	for _, o := range g.members {
		if o != m {
			o.abort(&GaveUpError{Rank: m.Index, Reason: reason.Error()})
		}
	}
	if c := g.world.control; c != nil {
		c.relay(message{Kind: msgAbort, Rank: m.Index, Group: g.id, Text: reason.Error()}, c.rank)
	}
}

// abort is Abort's part for one member. It touches host memory only.
func (m *Member) abort(reason error) {
	m.fail(fmt.Errorf("%w: %w", ErrAborted, reason))
	m.hostMu.Lock()
	defer m.hostMu.Unlock()
	if m.host != 0 {
		store32(m.host+kernels.CtlAbort, 1)
	}
}

// Check waits for s and reports what became of the collectives in it: nil, a
// *TimeoutError, or an error that wraps ErrAborted when a peer gave up.
func (m *Member) Check(s Stream) error {
	d := m.Rank.World.drv
	if m.isQuiet() {
		if err := m.drain(s); err != nil {
			return err
		}
	} else if err := d.StreamSync(m.Rank.Ctx, s); err != nil {
		return err
	}
	if err := m.Err(); err != nil {
		return err
	}
	var b [4]byte
	if err := d.CopyOut(m.Rank.Ctx, m.Rank.setup, b[:], m.ctl+kernels.CtlAbort); err != nil {
		return err
	}
	if b[0] != 0 {
		return m.fail(fmt.Errorf("%w by a peer", ErrAborted))
	}
	return nil
}
