package symm

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/seed-ee968945/concert/cuda/driver"
	"github.com/seed-ee968945/concert/cuda/internal/hostmem"
	"github.com/seed-ee968945/concert/kernels"
)

// lose aborts the local members because a process of the world ended. A group that is being
// closed waits for kernels that wait for that process.
func (g *Group) lose(why error) {
	if !g.life.Hold() {
		return
	}
	defer g.life.Drop()
	for _, m := range g.members {
		m.abort(why)
	}
}

// lost is called when a process of the world has ended.
func (w *World) lost(why error) {
	for _, g := range w.Groups() {
		g.lose(why)
	}
}

// PeerAbortError is what the other ranks of a group report when one has aborted it.
type PeerAbortError struct {
	Rank   int // group rank
	Reason string
}

// Error names the rank and its reason.
func (e *PeerAbortError) Error() string {
	return fmt.Sprintf("rank %d aborted the group: %s", e.Rank, e.Reason)
}

// aborted is called when a member in another process has aborted a group.
func (w *World) aborted(group, rank int, reason string) {
	w.mu.Lock()
	g := w.groups[group]
	w.mu.Unlock()
	if g != nil {
		g.lose(&PeerAbortError{Rank: rank, Reason: reason})
	}
}

// TimeoutError is a wait in a collective that passed its deadline. The group is
// broken on every rank; contexts and memory are alive.
type TimeoutError struct {
	Rank    int    // group rank that waited
	Peer    int    // group rank it waited for
	Op      string // what waited, as kernels.Collective names it; "wait", "barrier on a channel", "wait for a value"; empty where it is not known
	Channel int    // of Wait and BarrierOn, or the word of WaitValue; 0 for collectives
	Block   int    // block of the kernel
	Seq     uint32 // Args.Seq of the launch
	Elapsed time.Duration
}

// ErrTimeout matches every TimeoutError by errors.Is.
var ErrTimeout = errors.New("collective timed out")

// ErrAborted means that a group was aborted, by a peer's timeout or by Abort.
var ErrAborted = errors.New("group aborted")

// Error names the call, rank and peer, and the channel or the block.
func (e *TimeoutError) Error() string {
	kind, _, n := Called(e.Seq)
	what, where := e.Op, fmt.Sprintf("block %d", e.Block)
	if what == "" {
		what = "a collective"
	}
	if kind.signals() {
		where = fmt.Sprintf("channel %d", e.Channel)
	}
	if kind == callWaitValue {
		where = fmt.Sprintf("word %d", e.Channel)
	}
	return fmt.Sprintf("%v: in %s rank %d waited %v for rank %d (%s, call %d of the group)", ErrTimeout, what, e.Rank, e.Elapsed.Round(time.Millisecond), e.Peer, where, n)
}

// TimedOut is this rank's error for a wait for a peer in the call of that number.
func (m *Member) TimedOut(peer int, seq uint32, elapsed time.Duration) *TimeoutError {
	kind, channel, _ := Called(seq)
	return &TimeoutError{Rank: m.Index, Peer: peer, Op: kind.String(), Channel: channel, Seq: seq, Elapsed: elapsed}
}

// Unwrap gives ErrTimeout.
func (e *TimeoutError) Unwrap() error { return ErrTimeout }

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
		e := m.TimedOut(int(rec.Peer), rec.Seq, time.Duration(rec.ElapsedNanos))
		e.Rank, e.Block = int(rec.Rank), int(rec.Block)
		return m.fail(e)
	}
	return nil
}

func (m *Member) fail(err error) error {
	if m.broken.CompareAndSwap(nil, &err) {
		now := time.Now()
		m.brokenAt.Store(&now)
	}
	return *m.broken.Load()
}

// Abort breaks the group on every rank: waits of kernels in flight end, here and in
// other processes, whether or not this member has one in flight. The reason is what
// Err reports from now on; the other members report a *GaveUpError with its text.
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

// Break is Abort within a call.
func (m *Member) Break(reason error) {
	m.abort(reason)
	g := m.Group
	for _, o := range g.members {
		if o != m {
			o.abort(&PeerAbortError{Rank: m.Index, Reason: reason.Error()})
		}
	}
	if c := g.world.control; c != nil {
		c.tell(g.id, m.Index, reason.Error())
	}
}

// abort is Abort's part for one member. It touches host memory only.
func (m *Member) abort(reason error) {
	m.fail(fmt.Errorf("%w: %w", ErrAborted, reason))
	hostmem.Store32(m.host+kernels.CtlAbort, 1)
}

// Check waits for s and reports what became of the collectives in it: nil, a
// *TimeoutError, or an error that wraps ErrAborted when a peer aborted it. When ctx ends
// first the group is aborted, because a collective that one rank leaves can end on no
// rank; the error then wraps ErrAborted and ctx's cause. It polls, so that no thread is
// stuck in the driver; kernels that do not wait for peers it gives two seconds then.
func (m *Member) Check(ctx context.Context, s driver.Stream) error {
	if err := CheckContext(ctx); err != nil {
		return err
	}
	if err := m.Begin(); err != nil {
		return err
	}
	defer m.Done()
	d := m.Rank.World.drv
	if err := m.Drain(ctx, func() (bool, error) { return d.StreamQuery(m.Rank.Ctx, s) }); err != nil {
		return err
	}
	if err := m.works(); err != nil {
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

// Tend is for a host that watches the member's streams itself instead of calling
// Check: waited is how long it has been waiting for them. It returns Err, after doing
// what no kernel can for collectives without kernels: past the group's timeout it
// aborts the group, and while the group is broken it ends their waits.
func (m *Member) Tend(waited time.Duration) error {
	if err := m.Begin(); err != nil {
		return err
	}
	defer m.Done()
	err := m.ext.Tend(waited)
	return errors.Join(m.works(), err)
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
