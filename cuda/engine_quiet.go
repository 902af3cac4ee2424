package cuda

import (
	"errors"
	"time"

	"github.com/seed-ee968945/concert/kernels"
)

// Collectives beside compute (beside.go) keep their order without kernels: by words
// that streams themselves write and wait for. A kernel, however small, has to find
// room on a multiprocessor, and beside a matrix product that holds all of them it
// waits until the product ends.
//
// A captured wait has a fixed value, so each word is a flag: the peer sets it, the
// owner waits for it and clears it. ready says that the peer has come, done that it
// has written here, left that it needs its staging and tensors no more. Meetings by
// one kind of flag are never next to each other: between two of them lies one of
// another kind. A peer can set ready anew only after it saw our done, which we send
// after clearing its ready; done only after our ready, which follows our clearing of
// its done; and left likewise. So no flag is set while it is still up, and none needs
// an epoch.
//
// Nothing in a stream times such a wait, so Check does: past the deadline it aborts the
// group, and a broken group's flags are set by the host, again and again until the
// streams have run dry, so that contexts survive.
const (
	quietReady = kernels.CtlQuiet
	quietDone  = kernels.CtlQuiet + 4*kernels.MaxRanks
	quietLeft  = kernels.CtlQuiet + 8*kernels.MaxRanks
	quietBytes = 12 * kernels.MaxRanks
)

// flag is the address of a word of rank r's control page that belongs to rank src.
func (m *Member) flag(r, src int, which uint64) Ptr {
	return m.Group.world.Addr(m.Group.ranks[r], m.Group.sc.Ctl+which) + Ptr(4*src)
}

// meet sets our flag on every peer, waits for theirs and clears them.
func (b *engineBuilder) meet(which uint64) {
	m := b.m
	b.peers(func(r, _ int) { b.c.Write32(Main, m.flag(r, m.Index, which), 1) })
	b.peers(func(r, _ int) { b.c.Wait32(Main, m.flag(m.Index, r, which), 1) })
	b.peers(func(r, _ int) { b.c.Write32(Main, m.flag(m.Index, r, which), 0) })
}

// isQuiet says whether streams may hold waits that only flags end.
func (m *Member) isQuiet() bool { return m.engine != nil && m.engine.quiet.Load() }

// drain waits for s like StreamSync, but ends the waits of quiet collectives at the
// deadline or when the group is broken.
func (m *Member) drain(s Stream) error {
	d, c := m.Rank.World.drv, m.Rank.Ctx
	start := time.Now()
	for pause := time.Duration(0); ; pause = min(pause+time.Microsecond, 200*time.Microsecond) {
		ok, err := d.StreamQuery(c, s)
		if ok || err != nil {
			return err
		}
		elapsed := time.Since(start)
		if m.timeout != 0 && elapsed > time.Duration(m.timeout) && m.Err() == nil {
			m.Abort(&TimeoutError{Rank: m.Index, Peer: m.missing(), Seq: m.seq.Load(), Elapsed: elapsed})
		}
		if m.Err() != nil {
			if err := m.release(); err != nil {
				return err
			}
		}
		time.Sleep(pause)
	}
}

// missing is the first peer whose flags are down, or this rank when none is.
func (m *Member) missing() int {
	var b [quietBytes]byte
	if m.Rank.World.drv.CopyOut(m.Rank.Ctx, m.engine.rescue, b[:], m.flag(m.Index, 0, quietReady)) == nil {
		for r := range m.Group.ranks {
			if r != m.Index && b[4*r] == 0 && b[4*(kernels.MaxRanks+r)] == 0 && b[4*(2*kernels.MaxRanks+r)] == 0 {
				return r
			}
		}
	}
	return m.Index
}

// release sets all flags of this rank, which lets its streams go on.
func (m *Member) release() error {
	d, c := m.Rank.World.drv, m.Rank.Ctx
	return errors.Join(d.Memset32(c, m.engine.rescue, m.flag(m.Index, 0, quietReady), 1, quietBytes/4), d.StreamSync(c, m.engine.rescue))
}

// settle waits for all work of the rank's context. Meanwhile it keeps ending the waits
// of quiet collectives, which nothing else would end in a broken group.
func (m *Member) settle() error {
	d, c := m.Rank.World.drv, m.Rank.Ctx
	if !m.isQuiet() {
		return d.CtxSync(c)
	}
	done := make(chan error)
	go func() { done <- d.CtxSync(c) }()
	for {
		if err := m.release(); err != nil {
			return errors.Join(err, <-done)
		}
		select {
		case err := <-done:
			return err
		case <-time.After(time.Millisecond):
		}
	}
}
