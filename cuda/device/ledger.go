package device

import (
	"fmt"
	"slices"
	"sync"
	"time"

	rt "github.com/seed-ee968945/concert/runtime"
	"github.com/seed-ee968945/concert/runtime/rendezvous"
)

// ledger is what this rank has enqueued of a group's collectives: the same on all ranks
// when none is late. No kernel says whom it waits for in a call that a peer has not come to;
// what the peer's ledger lacks does.
type ledger struct {
	name  string // the same on all ranks of the subgroup, and of no other
	ranks []int  // of the job

	mu    sync.Mutex
	count uint64 // collectives so far
	last  []some // the last of them
}

// some is collectives that were enqueued together, after so many others.
type some struct {
	from  uint64
	names []called
}

// called is a collective, as errors name it.
type called struct{ name, group string }

// keptCalls is how many enqueuings a ledger remembers, to name what a peer lacks.
const keptCalls = 64

// add counts collectives; names is not changed afterwards. Where there is no ledger no
// peer takes part.
func (l *ledger) add(names []called) {
	if l == nil {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.last) == keptCalls {
		l.last = slices.Delete(l.last, 0, keptCalls/2)
	}
	l.last = append(l.last, some{l.count, names})
	l.count += uint64(len(names))
}

func (l *ledger) counted() uint64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.count
}

// call is collective number n, counted from 0, if it is remembered.
func (l *ledger) call(n uint64) (called, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, s := range l.last {
		if n >= s.from && n-s.from < uint64(len(s.names)) {
			return s.names[n-s.from], true
		}
	}
	return called{}, false
}

// entry is what a step enqueues of one group's collectives.
type entry struct {
	log   *ledger
	names []called
}

// entriesOf lists the collectives of a step, and says which is the last.
func entriesOf(items []item) (list []entry, last *called) {
	for i := range items {
		p := items[i].plan
		if p == nil || p.group == nil || p.group.log == nil {
			continue
		}
		at := slices.IndexFunc(list, func(e entry) bool { return e.log == p.group.log })
		if at < 0 {
			at, list = len(list), append(list, entry{log: p.group.log})
		}
		list[at].names = append(list[at].names, p.said...)
		last = &p.said[0]
	}
	return list, last
}

// enqueues counts the collectives of a step, or of one plan.
func (d *Device) enqueues(list []entry, last *called) {
	if last != nil {
		d.latest.Store(last)
	}
	for _, e := range list {
		e.log.add(e.names)
	}
}

// ledgers are those of the device's groups.
func (d *Device) ledgers() (out []*ledger) {
	for _, g := range d.table.Load().groups {
		if g.log != nil {
			out = append(out, g.log)
		}
	}
	return out
}

// counts is what this rank has enqueued, by ledger.
func (d *Device) counts() map[string]uint64 {
	out := map[string]uint64{}
	for _, l := range d.ledgers() {
		out[l.name] = l.counted()
	}
	return out
}

// waiting says, in errors of a wait, which collective this rank enqueued last.
func (d *Device) waiting() rendezvous.Where {
	w := rendezvous.Where{Op: "waiting", Rank: d.spec.Rank}
	if k := d.latest.Load(); k != nil {
		w.Op, w.Group = k.name, k.group
	}
	return w
}

// missed is what the other ranks' notes say of a broken world, or of a rank that is gone
// or has left without what this one has enqueued, as an error; nil if there is nothing.
func (d *Device) missed() error {
	if !d.link.news.Load() {
		return nil
	}
	at := d.waiting()
	if from, err := d.link.reason(); err != nil {
		return at.Adopt(err, from)
	}
	if r := d.link.gone(); r >= 0 {
		return &rt.PeerLostError{Op: at.Op, Rank: at.Rank, Peer: r, Group: at.Group}
	}
	for _, l := range d.ledgers() {
		for _, r := range l.ranks {
			left, counts := d.link.quit(r)
			if !left || r == d.spec.Rank || counts[l.name] >= l.counted() {
				continue
			}
			k, _ := l.call(counts[l.name])
			return &rt.PeerLostError{Op: k.name, Rank: d.spec.Rank, Peer: r, Group: k.group, Left: true}
		}
	}
	return nil
}

// late is the error of a wait that took too long. It asks the other ranks what they have
// enqueued, and names those that lack what this rank waits for.
func (d *Device) late(waited time.Duration) error {
	told := d.link.ask(500 * time.Millisecond)
	at := d.waiting()
	e := &rt.TimeoutError{Op: at.Op, Rank: at.Rank, Peer: -1, Group: at.Group, Elapsed: waited}
	for _, l := range d.ledgers() {
		own := l.counted()
		least := own
		for _, r := range l.ranks {
			if r != d.spec.Rank && told[r] != nil {
				least = min(least, told[r][l.name])
			}
		}
		for _, r := range l.ranks {
			switch {
			case r == d.spec.Rank || slices.Contains(e.Missing, r):
			case told[r] == nil:
				e.Missing, e.Detail = append(e.Missing, r), "does not answer"
			case told[r][l.name] == least && least < own:
				e.Missing = append(e.Missing, r)
				e.Detail = fmt.Sprintf("has enqueued %d collectives of the group, rank %d has %d", least, d.spec.Rank, own)
			}
		}
		if len(e.Missing) > 0 {
			e.Peer = e.Missing[0]
			if k, ok := l.call(least); ok {
				e.Op, e.Group = k.name, k.group
			}
			return e
		}
	}
	e.Detail = "every rank has enqueued as much"
	return e
}
