package symm

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/seed-ee968945/concert/cuda/driver"
	"github.com/seed-ee968945/concert/cuda/internal/hostmem"
	"github.com/seed-ee968945/concert/internal/stall"
	"github.com/seed-ee968945/concert/kernels"
	"github.com/seed-ee968945/concert/runtime/rendezvous"
)

// lose aborts the local members because of what another process reported, or because it
// ended. A group that is being closed waits for kernels that wait for that process.
func (g *Group) lose(why error, origin int) {
	if !g.life.Hold() {
		return
	}
	defer g.life.Drop()
	for _, m := range g.members {
		m.abort(m.where().Adopt(why, origin))
	}
}

// lost is called when a process of the world has ended.
func (w *World) lost(rank int) {
	for _, g := range w.Groups() {
		g.lose(&PeerLostError{Peer: rank}, rank)
	}
}

// aborted is called when a member in another process, that rank of the job, has aborted a
// group.
func (w *World) aborted(group, rank int, why error) {
	w.mu.Lock()
	g := w.groups[group]
	w.mu.Unlock()
	if g != nil {
		g.lose(why, rank)
	}
}

// where says in errors of no call in particular which member they are of.
func (m *Member) where() rendezvous.Where {
	op := "collectives"
	if m.Group.name != "" {
		op = fmt.Sprintf("collectives on %q", m.Group.name)
	}
	return rendezvous.Where{Op: op, Rank: m.Group.jobRank(m.Index), Group: m.Group.name}
}

// jobRank is a member's rank in the job; an index out of range, which a device may have
// written, is -1.
func (g *Group) jobRank(index int) int {
	if index < 0 || index >= len(g.job) {
		return -1
	}
	return g.job[index]
}

// TimedOut is this rank's error for a wait for a peer, by its index, in the call of that
// number. detail says where, if that is known.
func (m *Member) TimedOut(peer int, seq uint32, elapsed time.Duration, detail string) *TimeoutError {
	kind, channel, n := Called(seq)
	e := &TimeoutError{Op: m.Called(seq), Rank: m.Group.jobRank(m.Index), Peer: m.Group.jobRank(peer), Group: m.Group.name, Step: uint64(n), Elapsed: elapsed, Detail: detail}
	if kind.signals() && detail == "" {
		e.Detail = fmt.Sprintf("channel %d", channel)
	}
	if e.Peer >= 0 {
		e.Missing = []int{e.Peer}
	}
	return e
}

// Err is nil while the member's group works. It reads host memory only.
func (m *Member) Err() error {
	if m == nil || !m.Group.life.Hold() {
		return m.Usable()
	}
	defer m.Group.life.Drop()
	return m.works()
}

// works is Err within a call.
func (m *Member) works() error {
	err := m.Failure()
	if closed := m.Usable(); closed != nil { // which may have broken it
		return closed
	}
	return err
}

// Failure is what broke the group, nil while it works.
func (m *Member) Failure() error {
	if p := m.broken.Load(); p != nil {
		return *p
	}
	if hostmem.Load32(m.host+kernels.CtlRecord) == 2 {
		rec, _ := kernels.ParseRecord(hostmem.Bytes(m.host, hostPageBytes)[kernels.CtlRecord:])
		if why := m.reported(rec); m.fail(why) == why {
			m.spread(why)
		}
		return *m.broken.Load()
	}
	return nil
}

// reported is the error of a record.
func (m *Member) reported(rec kernels.Record) error {
	kind, _, n := Called(rec.Seq)
	if rec.Code == kernels.CodeMismatch {
		rank, peer := m.Group.jobRank(m.Index), m.Group.jobRank(int(rec.Peer))
		return &MismatchError{Op: m.Called(rec.Seq), What: fmt.Sprintf("bytes from rank %d to rank %d", peer, rank), Rank: rank, Peer: peer,
			RankValue: fmt.Sprintf("%d expected", rec.Want), PeerValue: fmt.Sprintf("%d sent", rec.Seen), Group: m.Group.name, Step: uint64(n)}
	}
	detail := "" // of a channel that says more
	if !kind.signals() {
		detail = fmt.Sprintf("block %d", rec.Block)
	}
	return m.TimedOut(int(rec.Peer), rec.Seq, time.Duration(rec.ElapsedNanos), detail)
}

// spread tells all other members why the group is broken.
func (m *Member) spread(why error) {
	g, at := m.Group, m.where()
	for _, o := range g.members {
		if o != m {
			o.abort(o.where().Adopt(why, at.Rank))
		}
	}
	if c := g.world.control; c != nil {
		c.g.Break(g.id, why)
	}
}

func (m *Member) fail(err error) error {
	if m.broken.CompareAndSwap(nil, &err) {
		now := time.Now()
		m.brokenAt.Store(&now)
	}
	return *m.broken.Load()
}

// Abort breaks the group on every rank: waits of kernels in flight end, here and in
// other processes, whether or not this member has one in flight. Err reports the reason
// from now on, in a *CanceledError if it is none of this package, and the other members
// a *CanceledError with it.
func (m *Member) Abort(reason error) {
	if m == nil || !m.Group.life.Hold() {
		return
	}
	defer m.Group.life.Drop()
	if reason == nil {
		reason = errors.New("no reason was given")
	}
	m.Break(reason)
}

// Break is Abort within a call. The other members here know first: who sees that this one is
// broken finds no other that works.
func (m *Member) Break(reason error) {
	reason = m.where().Own(reason)
	m.spread(reason)
	m.abort(reason)
}

// abort is Abort's part for one member, which keeps what it has found out itself.
func (m *Member) abort(reason error) {
	if m.Failure() == nil {
		m.fail(reason)
	}
	hostmem.Store32(m.host+kernels.CtlAbort, 1)
}

// Check waits for s and reports what became of the collectives in it: nil, a
// *TimeoutError, or a *CanceledError when a peer aborted it. When ctx ends first the group
// is aborted, because a collective that one rank leaves can end on no rank; the error is
// a *CanceledError with ctx's cause then. It polls, so that no thread is
// stuck in the driver; kernels that do not wait for peers it gives two seconds then.
func (m *Member) Check(ctx context.Context, s driver.Stream) error {
	if err := CheckContext(ctx); err != nil {
		return err
	}
	if err := m.Begin(); err != nil {
		return err
	}
	defer m.Done()
	drained := func(s driver.Stream) error {
		return m.Drain(ctx, func() (bool, error) { return m.Rank.World.drv.StreamQuery(m.Rank.Ctx, s) })
	}
	if err := drained(s); err != nil {
		return err
	}
	if err := m.works(); err != nil {
		return err
	}
	// The copy waits for a queue of the GPU, of which other streams' waits may hold all: CopyOut would
	// stay in the driver.
	if err := m.copyAbort(); err != nil {
		return err
	}
	if err := drained(m.stream); err != nil {
		return err
	}
	if hostmem.Load32(m.host+abortSeen) != 0 {
		return m.byPeer(ctx)
	}
	return nil
}

// copyAbort begins a copy of the device's abort word to the host page, at abortSeen.
func (m *Member) copyAbort() error {
	return m.Rank.World.drv.Copy(m.Rank.Ctx, m.stream, m.hostDev+abortSeen, m.ctl+kernels.CtlAbort, 4)
}

// byPeer is the error of a group that a peer's kernel gave up. Who began it, and why, comes
// as a message, or is in the peer's record, either of which may be slower than the flags that
// kernels pass on.
func (m *Member) byPeer(ctx context.Context) error {
	for clock := stall.Start(); ctx.Err() == nil && m.awaitsReason(&clock); time.Sleep(time.Millisecond) {
	}
	return m.unknown()
}

// awaitsReason says whether the reason of a break that flags told of at that time may still
// come. The process that would have sent it may have died: it does not come for ever.
func (m *Member) awaitsReason(since *stall.Clock) bool {
	const patience = 2 * time.Second
	for _, o := range m.Group.members {
		o.Failure() // which tells the others
	}
	return m.Failure() == nil && since.Look() < patience
}

// unknown breaks the group, if it is not broken, for an unknown reason.
func (m *Member) unknown() error {
	if err := m.Failure(); err != nil {
		return err
	}
	at := m.where()
	return m.fail(&CanceledError{Op: at.Op, Rank: at.Rank, Origin: -1, Group: at.Group})
}

// Poll is for a host that watches the member's streams itself instead of calling
// Check: waited is how long it has been waiting for them. It returns Err, after doing
// what no kernel can for collectives without kernels: past the group's timeout it
// aborts the group, and while the group is broken it ends their waits.
func (m *Member) Poll(waited time.Duration) error {
	if err := m.Begin(); err != nil {
		return err
	}
	defer m.Done()
	if err := m.ext.Tend(waited); err != nil {
		return errors.Join(m.works(), err)
	}
	return m.works()
}

// Aborted says whether results of this member may be undefined because the group was
// aborted, here or by a peer: a kernel has left early, or the group is broken and has
// had collectives without kernels. No kernel tells of those: the streams of a peer that
// has heard of the break earlier go on without what they waited for, and set our flags.
// It reads host memory only, and what it says holds for all work that has ended: a
// caller asks after it has seen an event behind it. The peer's reason may reach Err later.
func (m *Member) Aborted() bool {
	if m.Begin() != nil {
		return false
	}
	defer m.Done()
	return hostmem.Load32(m.host+kernels.CtlLeft) != 0 || m.ext.Waits() && m.Failure() != nil
}
