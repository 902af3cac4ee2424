// Package progress exchanges between ranks how far each has come with its collectives: who is
// late, has left, has died or has broken the world.
package progress

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/seed-ee968945/concert/runtime/rendezvous"
)

// Link is what the devices of a world tell each other outside of barriers: that one has broken
// the world, and how many collectives each has enqueued.
type Link struct {
	job   *rendezvous.Group
	logs  func() []*Log // of this rank's groups
	alarm func()        // called when the world is found broken
	stop  func()

	mu      sync.Mutex
	cond    *sync.Cond
	told    []map[string]uint64 // by rank: what it has enqueued, as it said last
	answers []int               // by rank: how often it said so
	left    []bool              // by rank
	lost    int                 // a rank that ended without a word, -1 for none
	broke   error               // why the world is broken, as the first rank to say so put it
	breaker int                 // which rank that is
	news    atomic.Bool         // that a rank has left, is lost or has broken the world
}

// note is what one rank tells the others.
type note struct {
	Kind   string            `json:"kind"`
	Counts map[string]uint64 `json:"counts,omitempty"`
}

// The kinds of notes.
const (
	noteAsk   = "ask"   // the rank wants to know what the others have enqueued
	noteCount = "count" // what the rank has enqueued
	noteLeft  = "left"  // the rank is about to leave, having enqueued so much
)

// NewLink listens until the link is closed. logs and alarm are called from other
// goroutines, and once more after that at most.
func NewLink(job *rendezvous.Group, logs func() []*Log, alarm func()) *Link {
	world := len(job.Ranks())
	l := &Link{job: job, logs: logs, alarm: alarm, lost: -1, told: make([]map[string]uint64, world), answers: make([]int, world), left: make([]bool, world)}
	l.cond = sync.NewCond(&l.mu)
	l.stop = job.Watch(l.receive)
	return l
}

// counts is what this rank has enqueued, by log.
func (l *Link) counts() map[string]uint64 {
	out := map[string]uint64{}
	for _, g := range l.logs() {
		out[g.Name] = g.counted()
	}
	return out
}

func (l *Link) send(n note) {
	if b, err := json.Marshal(n); err == nil { // texts and numbers only
		l.job.Notify(b)
	}
}

func (l *Link) receive(e rendezvous.Event) {
	var n note
	if e.Kind == rendezvous.Notice && json.Unmarshal(e.Data, &n) != nil {
		return
	}
	l.mu.Lock()
	switch {
	case e.Kind == rendezvous.Left:
		l.left[e.Rank] = true
	case e.Kind == rendezvous.Lost:
		if l.lost < 0 && !l.left[e.Rank] {
			l.lost = e.Rank
		}
	case n.Kind == noteCount:
		l.told[e.Rank] = n.Counts
		l.answers[e.Rank]++
	case n.Kind == noteLeft:
		l.told[e.Rank], l.left[e.Rank] = n.Counts, true
	case e.Kind == rendezvous.Broken && l.broke == nil:
		l.broke, l.breaker = e.Err, e.Rank
	}
	if e.Kind != rendezvous.Notice || n.Kind == noteLeft {
		l.news.Store(true)
	}
	l.cond.Broadcast()
	l.mu.Unlock()
	switch {
	case n.Kind == noteAsk:
		l.send(note{Kind: noteCount, Counts: l.counts()})
	case e.Kind == rendezvous.Broken, e.Kind == rendezvous.Lost:
		l.alarm()
	}
}

// gone is a rank that was lost, -1 for none.
func (l *Link) gone() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.lost
}

// Break says that this rank has broken the world, unless one has said so before, ahead of
// what the others see of groups that end, which says less. A device that has not joined the
// others has no link.
func (l *Link) Break(err error) {
	if l == nil {
		return
	}
	l.mu.Lock()
	known := l.broke != nil || l.lost >= 0
	l.mu.Unlock()
	if !known {
		l.job.Break(0, err)
	}
}

// reason is who said first that the world is broken, and why; nil if it is not broken.
func (l *Link) reason() (from int, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.breaker, l.broke
}

// quit reports whether a rank has left, and what it had enqueued then.
func (l *Link) quit(rank int) (bool, map[string]uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.left[rank], l.told[rank]
}

// until waits until ok, for which l.mu is held, for limit at most.
func (l *Link) until(limit time.Duration, ok func() bool) {
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	stop := context.AfterFunc(ctx, func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.cond.Broadcast()
	})
	defer stop()
	l.mu.Lock()
	defer l.mu.Unlock()
	for !ok() && ctx.Err() == nil {
		l.cond.Wait()
	}
}

// Changed waits a while until a rank has left, is lost or has broken the world.
func (l *Link) Changed(limit time.Duration) {
	l.until(limit, func() bool { return l.lost >= 0 || l.broke != nil || slices.Contains(l.left, true) })
}

// ask gives what the ranks have enqueued, nil for those that do not answer in time.
func (l *Link) ask(limit time.Duration) []map[string]uint64 {
	l.mu.Lock()
	before := slices.Clone(l.answers)
	l.mu.Unlock()
	out := make([]map[string]uint64, len(before))
	out[l.job.Rank()] = l.counts()
	l.send(note{Kind: noteAsk})
	l.until(limit, func() bool { // who has not answered by then is left out
		for r := range out {
			if out[r] == nil && (l.answers[r] > before[r] || l.left[r]) {
				out[r] = map[string]uint64{}
				maps.Copy(out[r], l.told[r])
			}
		}
		return !slices.ContainsFunc(out, func(m map[string]uint64) bool { return m == nil })
	})
	return out
}

// Missed is what notes say of a broken world, or of a rank that is gone or has left without
// what this one, which waits at a place, has enqueued, as an error; nil if there is nothing.
func (l *Link) Missed(at rendezvous.Where) error {
	if !l.news.Load() {
		return nil
	}
	if from, err := l.reason(); err != nil {
		return at.Adopt(err, from)
	}
	if r := l.gone(); r >= 0 {
		return &rendezvous.PeerLostError{Op: at.Op, Rank: at.Rank, Peer: r, Group: at.Group}
	}
	for _, g := range l.logs() {
		for _, r := range g.ranks {
			left, counts := l.quit(r)
			if !left || r == at.Rank || counts[g.Name] >= g.counted() {
				continue
			}
			k, _ := g.call(counts[g.Name])
			return &rendezvous.PeerLostError{Op: k.Name, Rank: at.Rank, Peer: r, Group: k.Group, Left: true}
		}
	}
	return nil
}

// Late is the error of a wait that took too long. It asks the other ranks what they have
// enqueued, and names those that lack what this rank waits for.
func (l *Link) Late(at rendezvous.Where, waited time.Duration) error {
	told := l.ask(500 * time.Millisecond)
	e := &rendezvous.TimeoutError{Op: at.Op, Rank: at.Rank, Peer: -1, Group: at.Group, Elapsed: waited}
	for _, g := range l.logs() {
		own := g.counted()
		least := own
		for _, r := range g.ranks {
			if r != at.Rank && told[r] != nil {
				least = min(least, told[r][g.Name])
			}
		}
		for _, r := range g.ranks {
			switch {
			case r == at.Rank || slices.Contains(e.Missing, r):
			case told[r] == nil:
				e.Missing, e.Detail = append(e.Missing, r), "does not answer"
			case told[r][g.Name] == least && least < own:
				e.Missing = append(e.Missing, r)
				e.Detail = fmt.Sprintf("has enqueued %d collectives of the group, rank %d has %d", least, at.Rank, own)
			}
		}
		if len(e.Missing) > 0 {
			e.Peer = e.Missing[0]
			if k, ok := g.call(least); ok {
				e.Op, e.Group = k.Name, k.Group
			}
			return e
		}
	}
	e.Detail = "every rank has enqueued as much"
	return e
}

// Leave says that this rank is about to go, and waits a little until all others are as
// well, which it reports.
func (l *Link) Leave(limit time.Duration) (all bool) {
	l.send(note{Kind: noteLeft, Counts: l.counts()})
	l.until(limit, func() bool {
		all = true
		for r, left := range l.left {
			all = all && (left || r == l.job.Rank())
		}
		return all || l.lost >= 0
	})
	return all
}

func (l *Link) Close() { l.stop() }
