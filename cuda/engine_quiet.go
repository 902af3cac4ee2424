package cuda

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/seed-ee968945/concert/cuda/driver"
	"github.com/seed-ee968945/concert/internal/lifecycle"
	"github.com/seed-ee968945/concert/kernels"
)

// Collectives beside compute (beside.go) keep their order without kernels: by words
// that streams themselves write and wait for. A kernel of more than a warp has to find
// room on a multiprocessor, and beside a matrix product that holds all of them it
// waits until the product ends.
//
// A captured wait has a fixed value, so each word is a flag: the peer sets it, the
// owner waits for it and clears it. Rows of flags, one word for each peer:
//
//   - ready: the peer has come, and its results may be written;
//   - done: it has written here;
//   - left: it needs its tensors no more;
//   - credit, a row for each part of staging: it has folded what we put into that part
//     there. Credits begin as set, and every fill of a part takes one from each peer.
//
// Flags of one row are never set twice in a row. Meetings by ready, done and left take
// turns, every call of the main stream has two kinds of them: a peer can set ready anew
// only after it saw our done or left, which we send after clearing its ready, and so on.
// A credit comes after the copies that we made behind clearing the one before it. So no
// flag is set while it is still up, and none needs an epoch.
//
// Nothing in a stream times such a wait, so Check does: past the deadline it aborts the
// group, and a broken group's flags are set by the host, again and again until the
// streams have run dry, so that contexts survive.
const (
	quietRow    = 4 * kernels.MaxRanks
	quietReady  = kernels.CtlQuiet
	quietDone   = quietReady + quietRow
	quietLeft   = quietDone + quietRow
	quietCredit = quietLeft + quietRow
	quietBytes  = quietCredit + StagingParts*quietRow - quietReady
)

// flag is the address of a word of rank r's control page that belongs to rank src.
func (m *Member) flag(r, src int, which uint64) driver.Ptr {
	return m.Group.world.Addr(m.Group.ranks[r], m.Group.sc.Ctl+which) + driver.Ptr(4*src)
}

// tell sets our flag on every peer; what s did before is visible to it then.
func (b *engineBuilder) tell(s driver.Stream, which uint64) { b.c.Flags(s, b.telling(which)...) }

// await waits for the flags of all peers and clears them.
func (b *engineBuilder) await(s driver.Stream, which uint64) { b.c.Flags(s, b.awaiting(which)...) }

// meet is both.
func (b *engineBuilder) meet(s driver.Stream, which uint64) {
	b.c.Flags(s, append(b.telling(which), b.awaiting(which)...)...)
}

func (b *engineBuilder) telling(which uint64) (f []driver.Flag) {
	b.peers(func(r, _ int) { f = append(f, driver.Flag{At: b.m.flag(r, b.m.Index, which), V: 1}) })
	return f
}

func (b *engineBuilder) awaiting(which uint64) (f []driver.Flag) {
	b.peers(func(r, _ int) { f = append(f, driver.Flag{At: b.m.flag(b.m.Index, r, which), V: 1, Wait: true}) })
	b.peers(func(r, _ int) { f = append(f, driver.Flag{At: b.m.flag(b.m.Index, r, which)}) })
	return f
}

// settle waits until the peers have folded all that this rank put into their staging
// by collectives beside compute: what stages by kernels asks for no credit.
func (m *Member) settle(c *driver.Commands, s driver.Stream) {
	var f []driver.Flag
	for part := range uint64(StagingParts) {
		for r := range m.Group.ranks {
			if r != m.Index {
				f = append(f, driver.Flag{At: m.flag(m.Index, r, quietCredit+part*quietRow), V: 1, Wait: true})
			}
		}
	}
	c.Flags(s, f...)
}

// isQuiet says whether streams may hold waits that only flags end.
func (m *Member) isQuiet() bool { return m.engine != nil && m.engine.quiet.Load() }

// drain waits until idle, which asks for the end of some of this member's work. It ends
// the waits of quiet collectives at the deadline or when the group is broken, and aborts
// the group when ctx ends; then it waits a little longer for the kernels to leave.
func (m *Member) drain(ctx context.Context, idle func() (bool, error)) error {
	start := time.Now()
	var ended time.Time
	for pause := time.Duration(0); ; pause = min(pause+time.Microsecond, 100*time.Microsecond) {
		ok, err := idle()
		if ok || err != nil {
			return err
		}
		if err := m.nurse(time.Since(start)); err != nil {
			return err
		}
		if ctx.Err() != nil {
			if ended.IsZero() {
				ended = time.Now()
				m.breakAll(context.Cause(ctx))
			} else if time.Since(ended) > lifecycle.Grace {
				return fmt.Errorf("rank %d: its device has not finished: %w", m.Rank.ID, context.Cause(ctx))
			}
		}
		if pause > 10*time.Microsecond { // what is short ends while we spin
			time.Sleep(pause)
		}
	}
}

// nurse does what no kernel can for collectives without kernels, after a host has waited so
// long for them: past the group's timeout it gives the group up, and while the group is
// broken it ends their waits.
func (m *Member) nurse(waited time.Duration) error {
	if !m.isQuiet() {
		return nil
	}
	if m.failure() == nil && m.timeout != 0 && waited > time.Duration(m.timeout) {
		m.breakAll(m.late(m.missing(), m.last.Load(), waited))
	}
	if m.failure() == nil {
		return nil
	}
	return m.endWaits()
}

// missing is the first peer that this rank is waiting for, or this rank when none is.
//
// Streams wait for credits or for a meeting. A part whose credits are all down has been
// taken for a round that is not over, so the wait is for that round's meetings. Else a
// credit that is down is waited for: peers that have ours may be waiting for it as well,
// and then their flags of the next meeting are down through no fault of theirs.
func (m *Member) missing() int {
	var b [quietBytes]byte
	if m.Rank.World.drv.CopyOut(m.Rank.Ctx, m.engine.rescue, b[:], m.flag(m.Index, 0, quietReady)) != nil {
		return m.Index
	}
	return awaited(b[:], len(m.Group.ranks), m.Index)
}

// awaited is missing, given the flags of the rank self in a group of n.
func awaited(flags []byte, n, self int) int {
	const meetings = (quietCredit - quietReady) / quietRow
	up := func(row, r int) bool { return flags[row*quietRow+4*r] != 0 }
	taken, owes, absent := false, self, self
	for r := n - 1; r >= 0; r-- {
		if r == self {
			continue
		}
		for part := range StagingParts {
			if !up(meetings+part, r) {
				owes = r
			}
		}
		met := false
		for row := range meetings {
			met = met || up(row, r)
		}
		if !met {
			absent = r
		}
	}
	for part := range StagingParts {
		some := false
		for r := range n {
			some = some || r != self && up(meetings+part, r)
		}
		taken = taken || !some
	}
	if !taken && owes != self || absent == self {
		return owes
	}
	return absent
}

// hearing is how long a rank keeps its streams waiting after its group has broken, so
// that other processes hear of the break before what these streams go on to do reaches
// them: their last collective would end with what has not come, and without an error. A
// message through rank 0 takes less than a millisecond.
const hearing = 50 * time.Millisecond

// endWaits lets this rank's streams go on in a broken group. Callers repeat it, for it
// does nothing while other processes may not have heard of the break.
func (m *Member) endWaits() error {
	if m.failure() != nil && !m.heard() {
		return nil
	}
	return m.release()
}

// heard says that the other processes of a broken group can have heard of the break.
func (m *Member) heard() bool {
	at := m.brokenAt.Load()
	return m.Rank.World.control == nil || at != nil && time.Since(*at) >= hearing
}

// release sets all flags of this rank, which lets its streams go on.
func (m *Member) release() error {
	d, c := m.Rank.World.drv, m.Rank.Ctx
	return errors.Join(d.Memset32(c, m.engine.rescue, m.flag(m.Index, 0, quietReady), 1, quietBytes/4), d.StreamSync(c, m.engine.rescue))
}

// finishAll waits for the streams, or for all work of the rank's context if there are
// none. Meanwhile it keeps ending the waits of quiet collectives, which nothing else would
// end in a broken group.
func (m *Member) finishAll(ctx context.Context, streams ...driver.Stream) error {
	d, c := m.Rank.World.drv, m.Rank.Ctx
	var idle func() (bool, error)
	if len(streams) == 0 {
		idle = m.Rank.synced()
	} else {
		idle = func() (bool, error) {
			for len(streams) > 0 {
				if ok, err := d.StreamQuery(c, streams[0]); !ok || err != nil {
					return ok, err
				}
				streams = streams[1:]
			}
			return true, nil
		}
	}
	return m.drain(ctx, func() (bool, error) {
		for _, o := range m.Group.members { // ranks may share the device
			if o.isQuiet() {
				if err := o.endWaits(); err != nil {
					return false, err
				}
			}
		}
		return idle()
	})
}

// synced starts to wait for all work of the rank's context, for which the driver has no
// question that can be asked again, and gives one for the end of that wait.
func (r *Rank) synced() (idle func() (bool, error)) {
	done := make(chan error, 1)
	go func() { done <- r.World.drv.CtxSync(r.Ctx) }()
	return func() (bool, error) {
		select {
		case err := <-done:
			return err == nil, err
		default:
			return false, nil
		}
	}
}
