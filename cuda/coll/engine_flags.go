package coll

import (
	"time"

	"github.com/seed-ee968945/concert/cuda/driver"
	"github.com/seed-ee968945/concert/kernels"
)

// Collectives overlapped with compute (overlapped.go) keep their order without kernels: by words
// that streams themselves write and wait for. A kernel of more than a warp has to find
// a multiprocessor, and while a matmul occupies all of them it
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
// Nothing in a stream times such a wait, so the host does (flagwatch.go): past the deadline,
// counted from when the stream has come to the wait, it aborts the group, and a broken group's
// flags are set by the host, again and again until the streams have run dry, so that contexts
// survive.
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
	b.c.Flags(s, b.m.announced(s, b.flagsToAwait(which), rowOf(which))...)
}

// flagBarrier is both.
func (b *engineBuilder) flagBarrier(which uint64) {
	b.c.Flags(driver.Main, append(b.flagsToSet(which), b.m.announced(driver.Main, b.flagsToAwait(which), rowOf(which))...)...)
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
// by collectives overlapped with compute: what stages by kernels asks for no credit.
func (m *Member) settle(c *driver.Commands, s driver.Stream) {
	var f []driver.Flag
	rows := uint32(0)
	for part := range uint64(StagingParts) {
		rows |= rowOf(flagCredit + part*flagRow)
		for r := range m.Group.Ranks() {
			if r != m.Index {
				f = append(f, driver.Flag{At: m.flag(m.Index, r, flagCredit+part*flagRow), V: 1, Wait: true})
			}
		}
	}
	c.Flags(s, m.announced(s, f, rows)...)
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
		if err := w.Driver().Memset32(r.Ctx, x.m.HostStream(), w.Addr(r.ID, f.off), f.v, f.bytes/4); err != nil {
			return err
		}
	}
	return nil
}

// Streams are the copy engines'.
func (x extension) Streams() []driver.Stream {
	if e := x.m.engine; e != nil {
		return []driver.Stream{e.in, e.out}
	}
	return nil
}

// Waits says whether streams may hold waits that only flags end.
func (x extension) Waits() bool { return x.m.engine != nil && x.m.engine.byFlags.Load() }

// Tend breaks the group past its timeout, and ends the waits of a broken one.
func (x extension) Tend(waited time.Duration) error {
	if !x.Waits() {
		return nil
	}
	if x.m.Failure() == nil {
		if err := x.m.late(waited); err != nil || x.m.Failure() == nil {
			return err
		}
	}
	return x.EndWaits()
}

// EndWaits does nothing while other processes may not have heard of the break, nor while no
// stream says that it waits: who ends the group waits for the host's own stream, too, which has
// to run dry.
func (x extension) EndWaits() error {
	if !x.Waits() || !x.m.anyWaits() || x.m.Failure() != nil && !x.m.AbortDelivered() {
		return nil
	}
	return x.m.release()
}
