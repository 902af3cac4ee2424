//go:build linux

package cuda

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"
)

// Meeting points: the nth call of a process meets the nth calls of all others. Rank 0
// counts who has come and says when all have. A process whose context ends, whose time
// is up or that cannot go on gives the point up, and rank 0 fails it for all, those
// included that come to it later; so that nobody counts differently afterwards.

// meetings is the part of a control that its lock guards.
type meetings struct {
	calls   int              // meeting points this process has come to
	waiting map[int]bool     // calls that have not returned
	ruled   map[int]verdict  // what became of points, until this process's call returns
	open    map[int]*turnout // points that not all have come to (rank 0)
}

// verdict is what became of a meeting point: what the ranks said, or who gave it up.
type verdict struct {
	texts []string
	err   error
}

const hasLeft = "it has left the world"

// turnout is who has come to a point or given it up.
type turnout struct {
	here   []bool
	said   []string // by rank
	failed bool
}

// verdict reads a msgGo.
func (m message) verdict() verdict {
	switch {
	case m.Late:
		return verdict{err: &MeetingTimeoutError{Missing: m.Missing}}
	case m.Out:
		return verdict{err: &MeetingError{Rank: m.Rank, Reason: m.Text, Left: m.Left}}
	}
	return verdict{texts: m.Texts}
}

func newMeetings() meetings {
	return meetings{waiting: map[int]bool{}, ruled: map[int]verdict{}, open: map[int]*turnout{}}
}

// come counts a rank at a point, which is forgotten once all have come.
func (c *control) come(rank, turn int) (p *turnout, all bool) {
	p = c.points.open[turn]
	if p == nil {
		p = &turnout{here: make([]bool, c.world), said: make([]string, c.world)}
		c.points.open[turn] = p
	}
	p.here[rank] = true
	if all = !slices.Contains(p.here, false); all {
		delete(c.points.open, turn)
	}
	return p, all
}

// arrive is rank 0's: a rank has come.
func (c *control) arrive(rank, turn int, text string) {
	c.mu.Lock()
	p, all := c.come(rank, turn)
	p.said[rank] = text
	gone := -1
	for r, left := range c.left {
		if left && !p.here[r] {
			gone = r
		}
	}
	first := !p.failed
	p.failed = p.failed || gone >= 0
	c.mu.Unlock()
	switch {
	case !first: // all have been told
	case gone >= 0:
		c.rule(message{Kind: msgGo, Turn: turn, Out: true, Rank: gone, Left: true, Text: hasLeft})
	case all:
		m := message{Kind: msgGo, Turn: turn}
		if slices.ContainsFunc(p.said, func(s string) bool { return s != "" }) {
			m.Texts = p.said
		}
		c.rule(m)
	}
}

// withdraw is rank 0's: a rank gives a point up, which it has come to before or not.
func (c *control) withdraw(rank int, m message) {
	c.mu.Lock()
	p := c.points.open[m.Turn]
	if m.Out && p == nil { // all had come when it did so
		c.mu.Unlock()
		return
	}
	if !m.Out {
		p, _ = c.come(rank, m.Turn)
	}
	first := !p.failed
	p.failed = true
	missing := p.missing()
	c.mu.Unlock()
	if first {
		m.Kind, m.Rank, m.Out = msgGo, rank, true
		if m.Late {
			m.Missing = missing
		}
		c.rule(m)
	}
}

// missing lists who has not come.
func (p *turnout) missing() (out []int) {
	for r, here := range p.here {
		if !here {
			out = append(out, r)
		}
	}
	return out
}

// leave notes that a rank leaves in order. It comes to no more points.
func (c *control) leave(rank int) {
	c.mu.Lock()
	c.left[rank] = true
	var lack []int
	for turn, p := range c.points.open {
		if !p.here[rank] && !p.failed {
			p.failed = true
			lack = append(lack, turn)
		}
	}
	c.cond.Broadcast()
	c.mu.Unlock()
	slices.Sort(lack)
	for _, turn := range lack {
		c.rule(message{Kind: msgGo, Turn: turn, Out: true, Rank: rank, Left: true, Text: hasLeft})
	}
}

// rule tells all ranks what became of a point.
func (c *control) rule(m message) {
	for _, conn := range c.conns {
		if conn != nil {
			send(conn, m) // a dead one shows in its reader
		}
	}
	c.pass(m.Turn, m.verdict())
}

// pass keeps a verdict for the call of this process that it is for.
func (c *control) pass(turn int, v verdict) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if turn >= c.points.calls || c.points.waiting[turn] {
		c.points.ruled[turn] = v
		c.cond.Broadcast()
	}
}

// meet waits until every process has called it as often as this one, and gives what
// they said, by rank; nil where nobody said anything.
func (c *control) meet(ctx context.Context, text string) ([]string, error) {
	if c == nil {
		return nil, context.Cause(ctx)
	}
	start := time.Now()
	c.mu.Lock()
	turn := c.points.calls
	c.points.calls++
	c.points.waiting[turn] = true
	c.mu.Unlock()
	if c.rank == 0 {
		c.arrive(0, turn, text)
	} else if err := send(c.conns[0], message{Kind: msgArrive, Turn: turn, Text: text}); err != nil {
		c.lose(&PeerLostError{Rank: 0})
	}
	v, done := c.await(ctx, c.timeout, turn)
	if !done {
		var err error = &MeetingTimeoutError{}
		m := message{Turn: turn, Out: true, Late: ctx.Err() == nil}
		if !m.Late {
			err = fmt.Errorf("meeting of the world: %w", context.Cause(ctx))
			m.Text = context.Cause(ctx).Error()
		}
		c.giveUp(m)
		// All may have come meanwhile. What rank 0 says holds for everybody.
		v, done = c.await(context.WithoutCancel(ctx), verdictLimit, turn)
		if late := (*MeetingTimeoutError)(nil); !done || v.err != nil && !(m.Late && errors.As(v.err, &late)) {
			v = verdict{err: err}
		}
	}
	if late, ok := v.err.(*MeetingTimeoutError); ok {
		late.Rank, late.Waited = c.rank, time.Since(start)
	}
	c.mu.Lock()
	delete(c.points.waiting, turn)
	delete(c.points.ruled, turn)
	c.mu.Unlock()
	return v.texts, v.err
}

// verdictLimit is how long a process that has given a point up waits for rank 0's answer,
// which needs no other process and takes less than a millisecond.
const verdictLimit = time.Second

// await waits for a verdict. It reports false when ctx or the time limit ends first.
func (c *control) await(ctx context.Context, limit time.Duration, turn int) (verdict, bool) {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	stop := context.AfterFunc(ctx, func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.cond.Broadcast()
	})
	defer stop()
	c.mu.Lock()
	defer c.mu.Unlock()
	for {
		v, ok := c.points.ruled[turn]
		switch {
		case ok:
			return v, true
		case c.lost != nil:
			return verdict{err: c.lost}, true
		case c.rank != 0 && c.left[0]:
			return verdict{err: &MeetingError{Rank: 0, Left: true, Reason: hasLeft}}, true
		case ctx.Err() != nil:
			return v, false
		}
		c.cond.Wait()
	}
}

// giveUp fails a point for all ranks.
func (c *control) giveUp(m message) {
	m.Kind = msgGiveUp
	if c.rank == 0 {
		c.withdraw(0, m)
		return
	}
	send(c.conns[0], m) // a dead one shows in its reader
}

// skip gives up the meeting point that this process cannot go to, because of why.
func (c *control) skip(why error) {
	if c == nil {
		return
	}
	c.mu.Lock()
	turn := c.points.calls
	c.points.calls++
	delete(c.points.ruled, turn)
	c.mu.Unlock()
	c.giveUp(message{Turn: turn, Text: why.Error()})
}
