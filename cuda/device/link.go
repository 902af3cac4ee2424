package device

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"sync"
	"time"

	rt "github.com/seed-ee968945/concert/runtime"
	"github.com/seed-ee968945/concert/runtime/store"
)

// link is how ranks that share no memory hear of each other: a log of notes in a store,
// which every rank reads in order. Whoever has something to say writes it under the first
// free number.
type link struct {
	st          store.Store
	rank, world int
	counts      func() map[string]uint64 // what this rank has enqueued, by communicator
	alarm       func()                   // called when the world is found broken
	cancel      context.CancelFunc
	ended       chan struct{}

	mu      sync.Mutex
	cond    *sync.Cond
	next    int                 // number of the note to be read
	meets   int                 // meetings that this rank has been called to
	roll    roll                // as the log has it
	told    []map[string]uint64 // by rank: what it has enqueued, as it said last
	answers []int               // by rank: how often it said so
	left    []bool              // by rank
	lost    int                 // a rank that ended without a word, -1 for none
	broke   *report             // why the world is broken, as the first rank to say so put it
	err     error               // why nothing can be heard any more
	// hostLeft says that rank 0, which hosts the log, has ended its connection in order.
	hostLeft bool
}

// note is one entry of the log.
type note struct {
	Kind   string            `json:"kind"`
	Rank   int               `json:"rank"`
	Text   string            `json:"text,omitempty"`
	Counts map[string]uint64 `json:"counts,omitempty"`
	Report *report           `json:"report,omitempty"`
}

// The kinds of notes.
const (
	noteMeet  = "meet"  // the rank has come to its next meeting
	noteAsk   = "ask"   // the rank wants to know what the others have enqueued
	noteCount = "count" // what the rank has enqueued
	noteLeft  = "left"  // the rank has left, having enqueued so much
	noteLost  = "lost"  // the rank's process has ended
	noteBroke = "broke" // the rank has broken the world
)

// newLink reads the log until the link is closed. It closes neither the store nor p.
// counts and alarm are called from other goroutines, at any time until close returns.
func newLink(st store.Store, rank, world int, p *presence, counts func() map[string]uint64, alarm func()) *link {
	ctx, cancel := context.WithCancel(context.Background())
	l := &link{st: st, rank: rank, world: world, counts: counts, alarm: alarm, cancel: cancel, ended: make(chan struct{}), lost: -1,
		roll: newRoll(world), told: make([]map[string]uint64, world), answers: make([]int, world), left: make([]bool, world)}
	l.cond = sync.NewCond(&l.mu)
	go l.read(ctx)
	if p != nil {
		p.watch(func(rank int) { l.say(context.Background(), note{Kind: noteLost, Rank: rank}) }, l.hostGone)
	}
	return l
}

func noteKey(n int) string { return "note/" + strconv.Itoa(n) }

// say writes a note. A store that is gone hears nothing, which the reader notices.
func (l *link) say(ctx context.Context, n note) error {
	b, err := json.Marshal(n)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	l.mu.Lock()
	at := l.next
	l.mu.Unlock()
	for ; ; at++ {
		_, won, err := l.st.CompareAndSet(ctx, noteKey(at), nil, b)
		if won || err != nil {
			return err
		}
	}
}

// read follows the log.
func (l *link) read(ctx context.Context) {
	defer close(l.ended)
	for at := 0; ; at++ {
		b, err := l.st.Get(ctx, noteKey(at))
		var n note
		if err == nil {
			if err = json.Unmarshal(b, &n); err == nil && (n.Rank < 0 || n.Rank >= l.world) {
				err = fmt.Errorf("a note of rank %d in a world of %d", n.Rank, l.world)
			}
		}
		if err != nil {
			if ctx.Err() == nil {
				l.fail(err)
			}
			return
		}
		l.hear(n)
		switch n.Kind {
		case noteLost, noteBroke:
			l.alarm()
		case noteAsk:
			_ = l.say(ctx, note{Kind: noteCount, Rank: l.rank, Counts: l.counts()}) // who asks has a deadline
		}
	}
}

func (l *link) hear(n note) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.next++
	switch n.Kind {
	case noteMeet:
		l.roll.come(n.Rank, n.Text)
	case noteCount:
		l.told[n.Rank] = n.Counts
		l.answers[n.Rank]++
	case noteLeft:
		l.told[n.Rank], l.left[n.Rank] = n.Counts, true
	case noteLost:
		if l.lost < 0 && !l.left[n.Rank] {
			l.lost = n.Rank
		}
	case noteBroke:
		if l.broke == nil {
			l.broke = n.Report
		}
	}
	l.cond.Broadcast()
}

// fail notes that the store is gone, which rank 0 hosts. Whether rank 0 is lost or has
// left, its other connection tells.
func (l *link) fail(err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.err == nil {
		l.err = err
	}
	l.cond.Broadcast()
}

// hostGone hears that the connection to rank 0 ended, in order or not.
func (l *link) hostGone(left bool) {
	l.mu.Lock()
	if left {
		l.hostLeft = true // what it had enqueued, its note says
	} else if !l.left[0] && l.lost < 0 {
		l.lost = 0
	}
	l.cond.Broadcast()
	l.mu.Unlock()
	l.alarm()
}

// gone is a rank that was lost, -1 for none.
func (l *link) gone() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.lost
}

// breaks says that this rank has broken the world, unless one has said so before.
func (l *link) breaks(r *report) {
	l.mu.Lock()
	known := l.broke != nil || l.lost >= 0
	l.mu.Unlock()
	if !known {
		_ = l.say(context.Background(), note{Kind: noteBroke, Rank: l.rank, Report: r}) // the communicators tell it as well
	}
}

// reason is why the world is broken, nil while nobody has said so.
func (l *link) reason() *report {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.broke
}

// quit reports whether a rank has left, and what it had enqueued then.
func (l *link) quit(rank int) (bool, map[string]uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.left[rank], l.told[rank]
}

// until waits until ok, for which l.mu is held, or ctx ends, whose error it returns then.
func (l *link) until(ctx context.Context, ok func() bool) error {
	stop := context.AfterFunc(ctx, func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.cond.Broadcast()
	})
	defer stop()
	l.mu.Lock()
	defer l.mu.Unlock()
	for !ok() {
		if err := ctx.Err(); err != nil {
			return err
		}
		l.cond.Wait()
	}
	return nil
}

// meet waits until every rank has come as often as this one. failed is another reason to
// give up, nil for none.
func (l *link) meet(ctx context.Context, timeout time.Duration, failed func() error) error {
	_, err := l.compare(ctx, "", timeout, failed)
	return err
}

// compare is meet, with a text of every rank.
func (l *link) compare(ctx context.Context, text string, timeout time.Duration, failed func() error) ([]string, error) {
	start := time.Now()
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	if err := l.say(ctx, note{Kind: noteMeet, Rank: l.rank, Text: text}); err != nil && ctx.Err() == nil {
		l.fail(err)
	}
	l.mu.Lock()
	l.meets++
	turn := l.meets
	l.mu.Unlock()
	var missing []int
	var texts []string
	var why error
	for {
		// In short waits, since nobody tells this link what failed may find.
		short, end := context.WithTimeout(ctx, 20*time.Millisecond)
		err := l.until(short, func() bool {
			if missing = l.roll.missing(turn); len(missing) == 0 {
				texts = l.roll.heard(turn)
				return true
			}
			why = l.obstacle(missing)
			return why != nil
		})
		end()
		switch {
		case err == nil:
			return texts, why
		case ctx.Err() == nil:
			if err := failed(); err != nil {
				return nil, err
			}
		case errors.Is(ctx.Err(), context.DeadlineExceeded):
			return nil, &rt.TimeoutError{Op: "meeting", Rank: l.rank, Peer: missing[0], Missing: missing, Elapsed: time.Since(start)}
		default:
			return nil, context.Cause(ctx)
		}
	}
}

// obstacle is why ranks that have not come to a meeting never will: one at least. l.mu is
// held.
func (l *link) obstacle(missing []int) error {
	if l.lost >= 0 {
		return &rt.PeerLostError{Op: "meeting", Rank: l.rank, Peer: l.lost}
	}
	for _, r := range missing {
		if l.left[r] {
			return &rt.PeerLostError{Op: "meeting", Rank: l.rank, Peer: r, Left: true}
		}
	}
	if l.err != nil {
		return &rt.PeerLostError{Op: "meeting", Rank: l.rank, Peer: 0, Left: l.left[0] || l.hostLeft}
	}
	return nil
}

// ask gives what the ranks have enqueued, nil for those that do not answer in time.
func (l *link) ask(limit time.Duration) []map[string]uint64 {
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	l.mu.Lock()
	before := slices.Clone(l.answers)
	l.mu.Unlock()
	out := make([]map[string]uint64, l.world)
	if err := l.say(ctx, note{Kind: noteAsk, Rank: l.rank}); err != nil {
		return out
	}
	_ = l.until(ctx, func() bool { // who has not answered by then is left out
		all := true
		for r := range out {
			if l.answers[r] > before[r] || l.left[r] {
				out[r] = maps.Clone(l.told[r])
				if out[r] == nil {
					out[r] = map[string]uint64{}
				}
			} else {
				all = false
			}
		}
		return all || l.err != nil
	})
	return out
}

// leave says that this rank is about to go, and waits a little until all others are as
// well, which it reports.
func (l *link) leave(limit time.Duration) bool {
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	if err := l.say(context.Background(), note{Kind: noteLeft, Rank: l.rank, Counts: l.counts()}); err != nil {
		return false
	}
	all := false
	_ = l.until(ctx, func() bool {
		all = !slices.Contains(l.left, false)
		return all || l.lost >= 0 || l.err != nil
	})
	return all
}

// close ends the reading.
func (l *link) close() {
	l.cancel()
	<-l.ended
}
