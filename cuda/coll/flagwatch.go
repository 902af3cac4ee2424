package coll

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/seed-ee968945/concert/cuda/driver"
	"github.com/seed-ee968945/concert/internal/stall"
	"github.com/seed-ee968945/concert/kernels"
)

// The host watches streams' waits for flags, which have no end of their own. Before each wait
// its stream writes into a word of the host which rows it waits for, and behind it that it waits
// no more. So a step may take as long as it likes before it comes to a wait. The number of
// the wait stands in the word, too: a host that sees it again sees the same wait, unless it
// looks at one replay after the other just then.
//
// The host never waits for the device, whose queues may be stuck: that is what it looks for. It
// has one copy or write of a member on its way at a time, and asks whether that has ended.

// flagWatch is what a host knows of a member's waits.
type flagWatch struct {
	number atomic.Uint32 // waits made so far

	mu      sync.Mutex
	lanes   [lanes]lane
	asks    bool            // the host wants to know the flags
	since   stall.Clock     // when it began to
	copies  bool            // a copy of them was put into its stream since it asked
	posted  driver.Event    // behind what the host has put into its stream last
	letting driver.Commands // that sets all flags of this rank
}

// lane is a stream that waits for flags.
type lane struct {
	says  uint32 // its word, as it was last
	since time.Time
}

// Streams that wait: that of the calls, which come one after the other, and the engine's own.
const (
	laneMain = iota
	laneIn
	lanes
)

// flagsSeen is where a copy of the rank's flags is among the words of the host, behind those of
// the lanes.
const flagsSeen = 16

// rowOf names a row of flags among those that a stream waits for.
func rowOf(which uint64) uint32 { return 1 << ((which - flagReady) / flagRow) }

const rows = flagBytes / flagRow

// announced is waits for rows with what tells the host of them.
func (m *Member) announced(s driver.Stream, waits []driver.Flag, which uint32) []driver.Flag {
	at := m.OwnWords()
	if s != driver.Main {
		at += 4 * laneIn
	}
	says := m.engine.watch.number.Add(1)<<rows | which
	return append(append([]driver.Flag{{At: at, V: says}}, waits...), driver.Flag{At: at})
}

// stands gives the rows of the wait that has stood longest, and for how long the host, which has
// been waiting for as long as it says, has seen it.
func (w *flagWatch) stands(m *Member, waited time.Duration) (which uint32, stood time.Duration) {
	now := time.Now()
	for i := range w.lanes {
		l := &w.lanes[i]
		if says := m.OwnWord(i); says != l.says {
			l.says, l.since = says, now
		}
		if t := min(waited, now.Sub(l.since)); l.says != 0 && t > stood {
			which, stood = l.says&(1<<rows-1), t
		}
	}
	return which, stood
}

// anyWaits reports whether a stream says that it waits.
func (m *Member) anyWaits() bool {
	for i := range lanes {
		if m.OwnWord(i) != 0 {
			return true
		}
	}
	return false
}

// late breaks the group if a wait has stood for longer than the timeout. The error names a peer
// whose flag is down. Where the device does not tell in time it names none; a stall of this
// process is none of that time.
func (m *Member) late(waited time.Duration) error {
	const patience = time.Second
	w, d, c := &m.engine.watch, m.Rank.World.Driver(), m.Rank.Ctx
	w.mu.Lock()
	defer w.mu.Unlock()
	which, stood := w.stands(m, waited)
	if limit := m.Timeout(); limit == 0 || stood <= limit {
		w.asks = false
		return nil
	}
	ended, err := d.EventQuery(c, w.posted)
	if err != nil {
		return err
	}
	if !w.asks {
		w.asks, w.copies, w.since = true, false, stall.Start()
	}
	asked, peer := w.since.Look(), m.Index
	if ended && !w.copies {
		err := w.post(m, func() error {
			return d.Copy(c, m.HostStream(), m.OwnWords()+4*flagsSeen, m.flag(m.Index, 0, flagReady), flagBytes)
		})
		w.copies = err == nil
		return err
	} else if ended {
		peer = missing(func(i int) uint32 { return m.OwnWord(flagsSeen + i) }, which, m.Group.Size(), m.Index)
	}
	if peer != m.Index || asked > patience {
		m.Break(m.TimedOut(peer, m.last.Load(), stood, ""))
	}
	return nil
}

// post puts something into the host's stream. What was posted before has ended.
func (w *flagWatch) post(m *Member, put func() error) error {
	err := put()
	if err == nil {
		err = m.Rank.World.Driver().EventRecord(m.Rank.Ctx, w.posted, m.HostStream())
	}
	return err
}

// missing is the first peer of the rank self in a group of n whose flag in one of the rows is
// down, or self if there is none. word gives the words of all rows.
func missing(word func(i int) uint32, which uint32, n, self int) int {
	for r := range n {
		for row := range rows {
			if r != self && which>>row&1 != 0 && word(row*kernels.MaxRanks+r) == 0 {
				return r
			}
		}
	}
	return self
}

// release sets all flags of this rank, which lets its streams go on.
func (m *Member) release() error {
	w, d, c := &m.engine.watch, m.Rank.World.Driver(), m.Rank.Ctx
	w.mu.Lock()
	defer w.mu.Unlock()
	if ended, err := d.EventQuery(c, w.posted); !ended || err != nil {
		return err
	}
	if w.letting.Len() == 0 {
		var f []driver.Flag
		for row := range uint64(rows) {
			for r := range m.Group.Ranks() {
				f = append(f, driver.Flag{At: m.flag(m.Index, r, flagReady+row*flagRow), V: 1})
			}
		}
		w.letting.Flags(driver.Main, f...)
	}
	return w.post(m, func() error { return d.Run(c, w.letting.On(m.HostStream())) })
}
