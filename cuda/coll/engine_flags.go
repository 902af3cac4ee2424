package coll

import (
	"errors"
	"time"

	"github.com/seed-ee968945/concert/cuda/driver"
	"github.com/seed-ee968945/concert/kernels"
)

// Collectives beside compute (beside.go) keep their order without kernels: by words
// that streams themselves write and wait for. A kernel of more than a warp has to find
// room on a multiprocessor, and beside a matmul that holds all of them it
// waits until the matmul ends.
//
// A captured wait has a fixed value, so each word is a flag: the peer sets it, the
// owner waits for it and clears it. Rows of flags, one word for each peer:
//
//   - ready: the peer has come, and its results may be written;
//   - done: it has written here;
//   - left: it needs its tensors no more;
//   - credit, a row for each part of staging: it has reduced what we put into that part
//     there. Credits begin as set, and every fill of a part takes one from each peer.
//
// Flags of one row are never set twice in a row. Barriers by ready, done and left take
// turns, every call of the main stream has two kinds of them: a peer can set ready anew
// only after it saw our done or left, which we send after clearing its ready, and so on.
// A credit comes after the copies that we made behind clearing the one before it. So no
// flag is set while it is still up, and none needs an epoch.
//
// Nothing in a stream times such a wait, so Check does: past the deadline, which leaves out what the
// device did meanwhile as far as the host can tell, it aborts the group. The host sets the flags of a broken
// group again and again until the streams have run dry, so that contexts survive.
const (
	flagRow    = 4 * kernels.MaxRanks
	flagReady  = kernels.CtlStreamFlags
	flagDone   = flagReady + flagRow
	flagLeft   = flagDone + flagRow
	flagCredit = flagLeft + flagRow
	flagBytes  = flagCredit + StagingParts*flagRow - flagReady
)

// flag is the address of a word of rank r's control page that belongs to rank src.
func (m *Member) flag(r, src int, which uint64) driver.Ptr {
	return m.Rank.World.Addr(m.Group.Ranks()[r], m.Group.sc.Ctl+which) + driver.Ptr(4*src)
}

// setFlags sets our flag on every peer; what s did before is visible to it then.
func (b *engineBuilder) setFlags(s driver.Stream, which uint64) { b.c.Flags(s, b.flagsToSet(which)...) }

// awaitFlags waits for the flags of all peers and clears them.
func (b *engineBuilder) awaitFlags(s driver.Stream, which uint64) {
	b.c.Flags(s, b.flagsToAwait(which)...)
}

// flagBarrier is both.
func (b *engineBuilder) flagBarrier(which uint64) {
	b.c.Flags(driver.Main, append(b.flagsToSet(which), b.flagsToAwait(which)...)...)
}

func (b *engineBuilder) flagsToSet(which uint64) (f []driver.Flag) {
	b.peers(func(r, _ int) { f = append(f, driver.Flag{At: b.m.flag(r, b.m.Index, which), V: 1}) })
	return f
}

func (b *engineBuilder) flagsToAwait(which uint64) (f []driver.Flag) {
	b.peers(func(r, _ int) { f = append(f, driver.Flag{At: b.m.flag(b.m.Index, r, which), V: 1, Wait: true}) })
	b.peers(func(r, _ int) { f = append(f, driver.Flag{At: b.m.flag(b.m.Index, r, which)}) })
	return f
}

// settle waits until the peers have reduced all that this rank put into their staging
// by collectives beside compute: what stages by kernels asks for no credit.
func (m *Member) settle(c *driver.Commands, s driver.Stream) {
	var f []driver.Flag
	for part := range uint64(StagingParts) {
		for r := range m.Group.Ranks() {
			if r != m.Index {
				f = append(f, driver.Flag{At: m.flag(m.Index, r, flagCredit+part*flagRow), V: 1, Wait: true})
			}
		}
	}
	c.Flags(s, f...)
}

// missing is the first peer that this rank is waiting for, or this rank when none is.
//
// Streams wait for credits or for a barrier. A part whose credits are all down has been
// taken for a round that is not over, so the wait is for that round's barriers. Else a
// credit that is down is waited for: peers that have ours may be waiting for it as well,
// and then their flags of the next barrier are down through no fault of theirs.
func (m *Member) missing() int {
	var b [flagBytes]byte
	if m.Rank.World.Driver().CopyOut(m.Rank.Ctx, m.engine.rescue, b[:], m.flag(m.Index, 0, flagReady)) != nil {
		return m.Index
	}
	return awaited(b[:], m.Group.Size(), m.Index)
}

// awaited is missing, given the flags of the rank self in a group of n.
func awaited(flags []byte, n, self int) int {
	const barriers = (flagCredit - flagReady) / flagRow
	up := func(row, r int) bool { return flags[row*flagRow+4*r] != 0 }
	taken, owes, absent := false, self, self
	for r := n - 1; r >= 0; r-- {
		if r == self {
			continue
		}
		for part := range StagingParts {
			if !up(barriers+part, r) {
				owes = r
			}
		}
		met := false
		for row := range barriers {
			met = met || up(row, r)
		}
		if !met {
			absent = r
		}
	}
	for part := range StagingParts {
		some := false
		for r := range n {
			some = some || r != self && up(barriers+part, r)
		}
		taken = taken || !some
	}
	if !taken && owes != self || absent == self {
		return owes
	}
	return absent
}

// release sets all flags of this rank, which lets its streams go on.
func (m *Member) release() error {
	d, c := m.Rank.World.Driver(), m.Rank.Ctx
	return errors.Join(d.Memset32(c, m.engine.rescue, m.flag(m.Index, 0, flagReady), 1, flagBytes/4), d.StreamSync(c, m.engine.rescue))
}

// extension is the member as its group of symmetric memory knows it.
type extension struct{ m *Member }

// Reset clears the scratch, and gives every credit.
func (x extension) Reset() error {
	w, sc, r := x.m.Rank.World, x.m.Group.sc, x.m.Rank
	for _, f := range []struct {
		off, bytes uint64
		v          uint32
	}{{sc.Poisoned, 4 * sc.Region, kernels.Poison}, {sc.Flagged, 2 * sc.FlaggedHalf, 0}, {sc.Ctl + flagCredit, StagingParts * flagRow, 1}} {
		if err := w.Driver().Memset32(r.Ctx, r.Setup(), w.Addr(r.ID, f.off), f.v, f.bytes/4); err != nil {
			return err
		}
	}
	return nil
}

// Streams are the copy engines'.
func (x extension) Streams() []driver.Stream {
	if e := x.m.engine; e != nil {
		return []driver.Stream{e.in, e.out, e.rescue}
	}
	return nil
}

// Waits says whether streams may hold waits that only flags end.
func (x extension) Waits() bool { return x.m.engine != nil && x.m.engine.byFlags.Load() }

// Tend breaks the group past its timeout, and ends the waits of a broken one.
func (x extension) Tend(waited time.Duration) error {
	m := x.m
	if !x.Waits() {
		return nil
	}
	if limit := m.Timeout(); m.Failure() == nil && limit != 0 && waited > limit {
		m.Break(m.TimedOut(m.missing(), m.last.Load(), waited, ""))
	}
	if m.Failure() == nil {
		return nil
	}
	return x.EndWaits()
}

// EndWaits does nothing while other processes may not have heard of the break.
func (x extension) EndWaits() error {
	if !x.Waits() || x.m.Failure() != nil && !x.m.AbortDelivered() {
		return nil
	}
	return x.m.release()
}
