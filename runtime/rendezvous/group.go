package rendezvous

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/seed-ee968945/concert/internal/stall"
)

// Group is one rank's membership of a group: of the job, as Join returns it, or of
// some of its ranks, as Sub does. Methods may be called from any goroutine. The nth
// barrier of a rank (Barrier, Exchange, Cancel) is the nth of all others.
type Group struct {
	s      *session
	key    string // empty for the job
	ranks  []int  // in the job
	closed bool   // guarded by s.mu
}

// Call is one rank's part in an Exchange.
type Call struct {
	Op    string // what this is for, in errors; "barrier" if empty
	Data  []byte // for all others: MaxData at most
	Facts []Fact // that must be the same on all ranks
	Value any    // for all others, where all ranks are goroutines of this process
}

// Fact is something on which all ranks must agree.
type Fact struct{ What, Value string }

// Part is what a rank brought to an Exchange.
type Part struct {
	Data  []byte
	Value any
}

// Rank is this rank's index in the group, and Ranks are the members' ranks in the job.
func (g *Group) Rank() int { return slices.Index(g.ranks, g.s.rank) }

// Ranks are the members' ranks in the job, by index. The caller does not change them.
func (g *Group) Ranks() []int { return g.ranks }

// Nonce names this world: no two worlds share one.
func (g *Group) Nonce() string {
	g.s.mu.Lock()
	defer g.s.mu.Unlock()
	return g.s.nonce
}

// Sub is the group of some of this one's ranks, given by index, of which this rank must
// be one. All its members call Sub with the same name and ranks; the nth call of a
// member with them is that of all others. Nothing is said before the first barrier.
func (g *Group) Sub(name string, index []int) *Group {
	ranks := make([]int, len(index))
	for i, at := range index {
		ranks[i] = g.ranks[at]
	}
	sum := sha256.Sum256(fmt.Append(nil, ranks))
	key := fmt.Sprintf("%s/%.64s:%x", g.key, name, sum[:8])
	g.s.mu.Lock()
	defer g.s.mu.Unlock()
	g.s.names[key]++
	return &Group{s: g.s, key: fmt.Sprintf("%s#%d", key, g.s.names[key]), ranks: ranks}
}

// Barrier is Exchange without anything to say.
func (g *Group) Barrier(ctx context.Context, op string) error {
	_, err := g.exchange(ctx, Call{Op: op})
	return err
}

// outcomeLimit is how long a rank that has canceled a barrier waits for the outcome,
// which rank 0 decides without asking anybody.
const outcomeLimit = time.Second

// Exchange waits until all ranks of the group have called it, or Barrier, as often as
// this one, and returns what they brought, by index. When ctx ends, or without a deadline of
// its own the place's timeout, the barrier is canceled for all ranks; what rank 0 decides holds for all, those included that come
// later. Errors are a *TimeoutError, a *PeerLostError, a *MismatchError if ranks
// disagree on facts, a *CanceledError with the rank that canceled, or ErrClosed.
func (g *Group) Exchange(ctx context.Context, c Call) ([]Part, error) {
	m, err := g.exchange(ctx, c)
	if err != nil {
		return nil, err
	}
	out := make([]Part, len(g.ranks))
	for _, d := range m.Parts {
		if d.At >= 0 && d.At < len(out) {
			out[d.At] = Part{Data: d.Data, Value: d.value}
		}
	}
	return out, nil
}

// exchange is Exchange that gives the outcome.
func (g *Group) exchange(ctx context.Context, c Call) (*message, error) {
	if len(c.Data) > MaxData {
		err := fmt.Errorf("%s: %d bytes, of %d at most", c.op(), len(c.Data), MaxData)
		g.Cancel(err)
		return nil, err
	}
	start, s := time.Now(), g.s
	p, w, err := g.arrive(c)
	if err != nil {
		return nil, err
	}
	ctx, done := g.bounded(ctx)
	defer done()
	m, why := g.await(ctx, p, w)
	switch {
	case m == nil && why == nil: // this rank has left, or rank 0 is gone
		s.mu.Lock()
		defer s.mu.Unlock()
		return nil, g.unusable(c.op())
	case m != nil && m.Err == nil:
		return m, g.disagree(m, c, p.turn)
	}
	return nil, g.failure(m, why, c.op(), p.turn, time.Since(start))
}

// bounded is ctx with the place's timeout if it has no deadline of its own.
func (g *Group) bounded(ctx context.Context) (context.Context, func()) {
	if _, ok := ctx.Deadline(); ok || g.s.timeout <= 0 {
		return ctx, func() {}
	}
	return context.WithTimeout(ctx, g.s.timeout)
}

// arrive comes to the next barrier, whose outcome w gives; it is closed when there will be
// none.
func (g *Group) arrive(c Call) (p point, w chan *message, err error) {
	s := g.s
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := g.unusable(c.op()); err != nil {
		return p, nil, err
	}
	p, w = g.next(), make(chan *message, 1)
	if m := s.canceled[p]; m != nil {
		delete(s.canceled, p)
		w <- m
	} else {
		s.waits[p] = w
	}
	at := g.Rank()
	own := &arrival{Who: []int{at}, Facts: []rankFacts{{at, c.Facts}}}
	if c.Data != nil || c.Value != nil {
		own.Data = []rankData{{at, bytes.Clone(c.Data), c.Value}}
	}
	g.send(&message{Kind: kindArrive, Turn: p.turn, Arrival: own})
	return p, w, nil
}

// withdraw cancels a barrier behind arriving at it.
func (g *Group) withdraw(p point, why error) {
	g.s.mu.Lock()
	defer g.s.mu.Unlock()
	late := errors.Is(why, context.DeadlineExceeded)
	g.send(&message{Kind: kindCancel, Turn: p.turn, Come: true, Late: late, Err: EncodeError(why, maxReason)})
}

func (c *Call) op() string {
	if c.Op == "" {
		return "barrier"
	}
	return c.Op
}

// unusable is why nothing can be called; nil if it can. s.mu is held.
func (g *Group) unusable(op string) error {
	switch {
	case g.closed || g.s.closed:
		return fmt.Errorf("rank %d: %s: %w", g.s.rank, op, ErrClosed)
	case g.s.over != nil:
		return g.adopt(g.s.over, op, 0, 0)
	}
	return nil
}

// next counts this rank's next barrier. s.mu is held.
func (g *Group) next() point {
	p := point{g.key, g.s.turns[g.key]}
	g.s.turns[g.key]++
	return p
}

// send sends m. s.mu is held, so that messages go out in the order of the barriers.
func (g *Group) send(m *message) {
	m.Rank = g.s.rank
	if m.Group = g.key; g.key != "" {
		m.Ranks = g.ranks
	}
	g.s.send(m)
}

// await waits for an outcome, and cancels the barrier when ctx ends: why is the cause
// then. There is no outcome when rank 0 does not answer, or is gone.
func (g *Group) await(ctx context.Context, p point, w chan *message) (m *message, why error) {
	select {
	case m = <-w:
		return m, nil
	case <-ctx.Done():
	}
	why = context.Cause(ctx)
	g.withdraw(p, why)
	select {
	case m = <-w:
	case <-stall.After(outcomeLimit):
		g.s.mu.Lock()
		delete(g.s.waits, p)
		g.s.mu.Unlock()
		select {
		case m = <-w: // just now
		default:
			return nil, why
		}
	}
	if m == nil {
		why = nil
	}
	return m, why
}

// disagree is the error of ranks that disagree on a fact, nil if they do not.
func (g *Group) disagree(m *message, c Call, turn int) error {
	if m.Facts == nil {
		return nil
	}
	own := fact(c.Facts, m.Facts.Fact)
	for _, s := range m.Facts.Values {
		if peer := s.Fact; peer != own && s.At >= 0 && s.At < len(g.ranks) {
			what := own.What
			if peer.What != own.What {
				what, own.Value, peer.Value = "what the ranks say", fmt.Sprintf("%q", own.What), fmt.Sprintf("%q", peer.What)
			}
			return &MismatchError{Op: c.op(), What: what, Rank: g.s.rank, Peer: g.ranks[s.At], RankValue: own.Value, PeerValue: peer.Value, Step: uint64(turn + 1)}
		}
	}
	return nil
}

// failure is this rank's error for a barrier that was canceled by m, or that this rank
// canceled because of why.
func (g *Group) failure(m *message, why error, op string, turn int, waited time.Duration) error {
	own := &CanceledError{Op: op, Rank: g.s.rank, Origin: g.s.rank, Step: uint64(turn + 1), Err: why}
	switch {
	case m == nil && errors.Is(why, context.DeadlineExceeded):
		who := "rank 0, which decides,"
		if g.s.parent > 0 {
			who = fmt.Sprintf("rank 0, which decides and is reached through rank %d,", g.s.parent)
		}
		return &TimeoutError{Op: op, Rank: g.s.rank, Peer: 0, Missing: []int{0}, Step: own.Step, Elapsed: waited, Detail: who + " does not answer"}
	case m == nil, why != nil && !errors.Is(why, context.DeadlineExceeded):
		return own
	case !m.Own:
		return Where{Op: op, Rank: g.s.rank, Step: own.Step}.Adopt(DecodeError(m.Err), m.Rank)
	}
	return g.adopt(DecodeError(m.Err), op, turn, waited)
}

// adopt makes an error of the coordinator this rank's own.
func (g *Group) adopt(err error, op string, turn int, waited time.Duration) error {
	switch e := err.(type) {
	case *TimeoutError:
		own := *e
		own.Op, own.Rank, own.Step, own.Elapsed = op, g.s.rank, uint64(turn+1), waited
		return &own
	case *PeerLostError:
		own := *e
		own.Op, own.Rank, own.Step = op, g.s.rank, uint64(turn+1)
		return &own
	}
	return err
}

// Cancel cancels this rank's next barrier, in place of coming to it, because of why: the
// others get a *CanceledError when they come, or if they wait, at once.
func (g *Group) Cancel(why error) {
	g.s.mu.Lock()
	defer g.s.mu.Unlock()
	if g.unusable("") != nil {
		return
	}
	p := g.next()
	delete(g.s.canceled, p)
	g.send(&message{Kind: kindCancel, Turn: p.turn, Err: EncodeError(why, maxReason)})
}

// Notify sends data to all others of the group, who Watch. It does not wait. It arrives
// before any barrier that this rank comes to afterwards is released.
func (g *Group) Notify(data []byte) {
	if len(data) <= MaxData {
		g.tell(&message{Kind: kindNotice, Data: bytes.Clone(data)})
	}
}

// Break tells all others of the group, as Notify does, that this rank's side of it, or of the
// part of that number, is broken because of why. See Failure.
func (g *Group) Break(part int, why error) {
	g.tell(&message{Kind: kindBreak, Turn: part, Err: EncodeError(why, maxReason)})
}

func (g *Group) tell(m *message) {
	g.s.mu.Lock()
	defer g.s.mu.Unlock()
	if g.unusable("") == nil {
		g.send(m)
	}
}

// Watch calls f for every event of the group until stop is called: first for the ranks
// that are gone already, then in order, from another goroutine. f must not wait for a
// barrier. It may be called once more while stop is.
func (g *Group) Watch(f func(Event)) (stop func()) {
	return g.watch(func(e Event) {
		if e.Kind != canceled {
			f(e)
		}
	})
}

func (g *Group) watch(f func(Event)) (stop func()) {
	s := g.s
	own := func(e Event) {
		if e.group == g.key || e.group == "" && (e.Kind == Left || e.Kind == Lost || e.Kind == Cut) && slices.Contains(g.ranks, e.Rank) {
			f(e)
		}
	}
	s.mu.Lock()
	at, before := s.watched, slices.Clone(s.gone)
	for p, m := range s.canceled {
		before = append(before, Event{Kind: canceled, Rank: m.Rank, group: p.group, turn: p.turn})
	}
	s.watched++
	first := make(chan struct{}) // what comes now waits until f has been told what was before
	s.watchers[at] = func(e Event) {
		<-first
		own(e)
	}
	s.mu.Unlock()
	for _, e := range before {
		own(e)
	}
	close(first)
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.watchers, at)
	}
}

// Context is ctx until stop is called, and ends earlier when the group's next barrier
// will fail, because it was canceled or a member is gone. It is for what ranks do with each
// other before that barrier.
func (g *Group) Context(ctx context.Context, op string) (_ context.Context, stop func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	g.s.mu.Lock()
	turn := g.s.turns[g.key]
	g.s.mu.Unlock()
	unwatch := g.watch(func(e Event) {
		switch {
		case e.Kind == Lost || e.Kind == Left:
			cancel(&PeerLostError{Op: op, Rank: g.s.rank, Peer: e.Rank, Left: e.Kind == Left})
		case e.Kind == Cut:
			cancel(&PeerLostError{Op: op, Rank: g.s.rank, Peer: e.Via, Left: true, Detail: reachedThrough(e.Rank)})
		case e.Kind == canceled && e.turn == turn:
			cancel(&CanceledError{Op: op, Rank: g.s.rank, Origin: e.Rank})
		}
	})
	return ctx, func() { unwatch(); cancel(nil) }
}

// closeLimit is how long a rank that leaves waits until its parent's machine has heard of it;
// lingerLimit is how long rank 0, or a relay whose world has not formed, waits for the others to
// leave as well.
const (
	closeLimit  = time.Second
	lingerLimit = 300 * time.Millisecond
)

// Close leaves the group: the others hear of it, and calls in progress end with ErrClosed.
// Closing the job's group ends the session, whether rank 0's process listens or not; rank 0
// then goes on to coordinate those that have not left, for as long as its process lives,
// and waits for them for a second at most. In a world of more than 64, a rank with others behind
// it waits until these have left, for the place's timeout at most. Closing twice does nothing.
func (g *Group) Close() error {
	g.leave()
	if g.key == "" {
		<-g.s.ended
		if g.s.hosts != nil {
			g.s.hosts.linger(lingerLimit)
		}
	}
	return nil
}

// leave is Close without the waits.
func (g *Group) leave() {
	s := g.s
	s.mu.Lock()
	defer s.mu.Unlock()
	if g.closed || s.closed {
		return
	}
	g.closed = true
	delete(s.turns, g.key)
	for p := range s.canceled {
		if p.group == g.key {
			delete(s.canceled, p)
		}
	}
	if s.over == nil {
		g.send(&message{Kind: kindLeave, Who: []int{s.rank}})
	}
	if g.key == "" {
		s.closed = true
		s.hangUp()
	}
	s.release(g.key)
}
