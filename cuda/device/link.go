package device

import (
	"context"
	"encoding/json"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/seed-ee968945/concert/runtime/rendezvous"
)

// link is what the devices of a world tell each other beside barriers: that one has broken
// the world, and how many collectives each has enqueued.
type link struct {
	job    *rendezvous.Group
	counts func() map[string]uint64 // what this rank has enqueued, by communicator
	alarm  func()                   // called when the world is found broken
	stop   func()

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

// newLink listens until the link is closed. counts and alarm are called from other
// goroutines, and once more after that at most.
func newLink(job *rendezvous.Group, counts func() map[string]uint64, alarm func()) *link {
	world := len(job.Ranks())
	l := &link{job: job, counts: counts, alarm: alarm, lost: -1, told: make([]map[string]uint64, world), answers: make([]int, world), left: make([]bool, world)}
	l.cond = sync.NewCond(&l.mu)
	l.stop = job.Watch(l.hear)
	return l
}

func (l *link) say(n note) {
	if b, err := json.Marshal(n); err == nil { // texts and numbers only
		l.job.Notify(b)
	}
}

func (l *link) hear(e rendezvous.Event) {
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
		l.say(note{Kind: noteCount, Counts: l.counts()})
	case e.Kind == rendezvous.Broken, e.Kind == rendezvous.Lost:
		l.alarm()
	}
}

// gone is a rank that was lost, -1 for none.
func (l *link) gone() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.lost
}

// breaks says that this rank has broken the world, unless one has said so before, ahead of
// what the others see of groups that end, which says less. A device that has not met the
// others has no link.
func (l *link) breaks(err error) {
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

// reason is who said first that the world is broken, and why; nil while nobody has.
func (l *link) reason() (from int, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.breaker, l.broke
}

// quit reports whether a rank has left, and what it had enqueued then.
func (l *link) quit(rank int) (bool, map[string]uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.left[rank], l.told[rank]
}

// until waits until ok, for which l.mu is held, for limit at most.
func (l *link) until(limit time.Duration, ok func() bool) {
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

// ask gives what the ranks have enqueued, nil for those that do not answer in time.
func (l *link) ask(limit time.Duration) []map[string]uint64 {
	l.mu.Lock()
	before := slices.Clone(l.answers)
	l.mu.Unlock()
	out := make([]map[string]uint64, len(before))
	out[l.job.Rank()] = l.counts()
	l.say(note{Kind: noteAsk})
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

// leave says that this rank is about to go, and waits a little until all others are as
// well, which it reports.
func (l *link) leave(limit time.Duration) (all bool) {
	l.say(note{Kind: noteLeft, Counts: l.counts()})
	l.until(limit, func() bool {
		all = true
		for r, left := range l.left {
			all = all && (left || r == l.job.Rank())
		}
		return all || l.lost >= 0
	})
	return all
}

func (l *link) close() { l.stop() }
