package rendezvous

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/seed-ee968945/concert/internal/stall"
)

// Place is a rank's place in a job.
type Place struct {
	Name             string // of the world; the same on all ranks
	Rank, World      int
	Timeout          time.Duration // of barriers whose context has no deadline; 0 for none
	HeartbeatTimeout time.Duration // how long a machine may not answer until its ranks are lost; 0: the default
}

// protocolVersion of messages; ranks must agree.
const protocolVersion = 3

const (
	maxHello   = 4 << 10
	maxMessage = 2 << 20 // of a rank: MaxData in base64, and facts
	maxOutcome = 256 << 20
	// writeLimit is how long the other end of a session may take in nothing.
	writeLimit = 30 * time.Second
)

// Join makes this process, or goroutine, a rank of a job, and returns when all ranks
// have joined, or with the reason why they have not, which is the same on all ranks
// that came: a *TimeoutError with the ranks that did not come before ctx ended, a
// *MismatchError if two processes claim one rank or disagree on the world's size or name,
// or a *CanceledError. At another job's listener it returns a *MismatchError. Rank 0
// listens; its process coordinates the job for as long as any rank has not left. A job
// may be joined again when this has been decided.
func Join(ctx context.Context, job *Job, p Place) (*Group, error) {
	if p.World < 1 || p.World > maxWorld || p.Rank < 0 || p.Rank >= p.World {
		return nil, fmt.Errorf("rank %d of a world of %d", p.Rank, p.World)
	}
	h := hello{Version: protocolVersion, Name: p.Name, World: p.World, Rank: p.Rank, Process: process()}
	s := newSession(p)
	if job != nil {
		own := *job
		job, own.silence, own.asked = &own, p.HeartbeatTimeout, true
		s.wrap, s.silence = job.wrap, p.HeartbeatTimeout
	}
	var ln *Listener
	var err error
	switch {
	case p.World == 1:
		s.alone(h, tree{2, 1})
	case job == nil:
		err = errors.New("there is no job to join")
	case job.Local():
		err = job.local.join(ctx, s, h)
	case p.Rank == 0:
		ln, err = host(ctx, job, s, h)
	default:
		err = s.connect(ctx, job, h)
	}
	if err != nil {
		return nil, err
	}
	g := s.job()
	err = g.Barrier(ctx, "rendezvous")
	if ln != nil {
		ln.Close() // the address may be used again when Join returns
	}
	if err == nil {
		return g, nil
	}
	var late *TimeoutError
	if ln != nil && errors.As(err, &late) {
		late.Detail = ln.unauthenticated()
	}
	g.Close()
	return nil, err
}

// job is the group of all ranks.
func (s *session) job() *Group {
	g := &Group{s: s, ranks: make([]int, s.world)}
	for i := range g.ranks {
		g.ranks[i] = i
	}
	return g
}

// process names this one, for the errors of two that claim one rank.
func process() string {
	name, err := os.Hostname()
	if err != nil {
		name = "unknown"
	}
	return fmt.Sprintf("process %d on %.60s", os.Getpid(), name)
}

// join joins the world that is forming under the name.
func (l *local) join(ctx context.Context, s *session, h hello) error {
	for {
		l.mu.Lock()
		c := l.forming[h.Name]
		if c == nil {
			c = newCoordinator(h, tree{max(h.World, 2), h.World})
			l.forming[h.Name] = c
		}
		out := newOutbox()
		in := c.join(h, out)
		if in != nil {
			s.local(c, in)
		} else if c.decided() {
			delete(l.forming, h.Name)
		}
		l.mu.Unlock()
		if in != nil {
			return nil
		}
		stop := context.AfterFunc(ctx, out.close)
		var told error
		out.pump(func(batch []*message) error {
			for _, m := range batch {
				if m.Err != nil {
					told = DecodeError(m.Err)
				}
			}
			return nil
		})
		if stop(); told != nil || ctx.Err() != nil {
			return errors.Join(told, ctx.Err())
		}
	}
}

// local connects a session to a hub of this process, which has admitted it.
func (s *session) local(n node, l *link) {
	s.send = func(m *message) {
		if err := n.receive(l, m); err != nil {
			n.end(l)
		}
	}
	s.hangUp = func() {}
	go func() {
		l.out.pump(func(batch []*message) error {
			for _, m := range batch {
				s.receive(m)
			}
			return nil
		})
		s.end()
	}()
}

// alone makes the session coordinate by itself, as rank 0.
func (s *session) alone(h hello, t tree) *coordinator {
	c := newCoordinator(h, t)
	s.local(c, c.join(h, newOutbox()))
	return c
}

// host listens and coordinates, and joins rank 0.
func host(ctx context.Context, job *Job, s *session, h hello) (*Listener, error) {
	ln, err := Listen(ctx, job)
	if err != nil {
		return nil, fmt.Errorf("cannot listen at %s: %w", job.Addr, err)
	}
	c := s.alone(h, job.tree(h.World))
	s.hosts, s.address, s.anywhere = c, job.at(), job.Listen != ""
	serveJoins(ln, c, c.formed, &c.sessions)
	return ln, nil
}

// serveJoins lets those who connect to a hub join, until the world has formed.
func serveJoins(ln *Listener, n node, formed <-chan struct{}, sessions *sync.WaitGroup) {
	sessions.Go(func() {
		<-formed
		ln.Close()
	})
	sessions.Go(func() { // so that who waits for them cannot miss one
		for {
			conn, err := ln.Accept(context.Background())
			if err != nil {
				return
			}
			sessions.Go(func() { conn.serve(n, sessions) })
		}
	})
}

// serve is a hub's end of a session, or rank 0's of a question.
func (c *Conn) serve(n node, sessions *sync.WaitGroup) {
	defer c.Close()
	var first message
	ctx, cancel := context.WithTimeout(context.Background(), writeLimit)
	_, err := c.Receive(ctx, maxHello, &first)
	cancel()
	if err != nil || first.Hello == nil {
		return
	}
	out, rank := newOutbox(), first.Hello.Rank
	if root, ok := n.(*coordinator); ok && c.asks {
		if !root.ask(*first.Hello, out) {
			c.pump(out)
			return
		}
		sessions.Go(func() { c.pump(out) })
		c.receiveAll(maxMessage, func(m *message) error { return root.answer(rank, out, m) })
		root.requesterLost(rank, out)
		return
	}
	l := n.join(*first.Hello, out)
	if l == nil {
		c.pump(out)
		return
	}
	sessions.Go(func() { c.pump(out) })
	c.receiveAll(min(maxOutcome, (l.to-l.from)*maxMessage), func(m *message) error { return n.receive(l, m) })
	n.end(l)
}

// pump sends what is put into out until it is closed, and then hangs up. If the other end
// takes nothing any more, what has come from there is still received.
func (c *Conn) pump(out *outbox) {
	err := out.pump(func(batch []*message) error {
		c.raw.SetWriteDeadline(time.Now().Add(writeLimit))
		return c.writeAll(batch)
	})
	if err != nil {
		c.LimitReads(closeLimit)
		return
	}
	delivered(c.raw, closeLimit)
	c.Close()
}

// receiveAll calls f for every message until the connection ends or f fails.
func (c *Conn) receiveAll(max int, f func(*message) error) {
	for {
		m := &message{}
		if _, err := c.read(max, m); err != nil || f(m) != nil {
			return
		}
	}
}

// connect connects a session to the rank's parent, trying until ctx ends: a listener may still
// be that of this job's last world, which says so.
func (s *session) connect(ctx context.Context, job *Job, h hello) error {
	t := job.tree(h.World)
	s.parent, s.because = t.parent(h.Rank), t.parent(h.Rank)
	start := time.Now()
	for {
		var again bool
		var err error
		if s.parent == 0 {
			again, err = s.enter(ctx, job, h, start)
		} else {
			again, err = s.ask(ctx, job, h, start)
		}
		if !again {
			return err
		}
		select { // the listener of the last world is about to close
		case <-ctx.Done():
			return joinFailure(ctx, job, h.Rank, start, &dialError{addr: job.Addr, why: context.Cause(ctx), last: err})
		case <-time.After(time.Millisecond):
		}
	}
}

// enter begins the session with who listens at job's address, and reports whether to try
// again.
func (s *session) enter(ctx context.Context, job *Job, h hello, start time.Time) (again bool, err error) {
	conn, err := Dial(ctx, job)
	if err != nil {
		return false, joinFailure(ctx, job, h.Rank, start, err)
	}
	defer func() {
		if again || err != nil {
			conn.Close()
		}
	}()
	if s.address == "" {
		s.address = reached(conn.raw.LocalAddr())
	}
	var r *relay
	if t := job.tree(h.World); t.inner(h.Rank) {
		r = newRelay(t, h.Rank, s.timeout)
		below := &Job{ID: job.ID, Secret: job.Secret, Addr: "unix:@concert-" + newID(), wrap: s.wrap, silence: s.silence}
		if !strings.HasPrefix(job.Addr, "unix:") {
			below.Addr = s.anyPort()
		}
		var ln *Listener
		if ln, err = Listen(ctx, below); err != nil {
			return false, fmt.Errorf("cannot listen at %s for the ranks behind this one: %w", below.Addr, err)
		}
		defer func() {
			if again || err != nil {
				ln.Close()
			} else {
				serveJoins(ln, r, r.formed, &r.sessions)
			}
		}()
		h.Address = s.reachable(ln)
	}
	var first message
	if err = conn.Send(ctx, message{Kind: kindHello, Hello: &h}); err == nil {
		_, err = conn.Receive(ctx, maxMessage, &first)
	}
	switch {
	case err == nil && first.Kind == kindHello:
		s.receive(&first)
		s.remote(conn, r)
		return false, nil
	case err == nil && first.Err != nil:
		return false, DecodeError(first.Err)
	case ctx.Err() != nil:
		return false, joinFailure(ctx, job, h.Rank, start, &dialError{addr: job.Addr, why: context.Cause(ctx), last: err})
	case err != nil: // the parent knows this one, and does not answer
		return false, &PeerLostError{Op: "rendezvous", Rank: h.Rank, Peer: s.parent}
	}
	return true, nil
}

// ask asks rank 0 where this rank's parent is, and begins the session there. Until it has
// begun rank 0 says what becomes of the world. It reports whether to try again.
func (s *session) ask(ctx context.Context, job *Job, h hello, start time.Time) (again bool, err error) {
	q, err := dial(ctx, job, asks)
	if err != nil {
		return false, joinFailure(ctx, job, h.Rank, start, err)
	}
	defer q.Close()
	s.address = reached(q.raw.LocalAddr())
	rootLost := &PeerLostError{Op: "rendezvous", Rank: h.Rank, Peer: 0}
	if err := q.Send(ctx, message{Kind: kindHello, Hello: &h}); err != nil && ctx.Err() == nil {
		return false, rootLost
	}
	told := q.told()
	within, stop := context.WithCancel(ctx)
	var entered chan error // has what becomes of the session with the parent
	defer func() {
		if stop(); entered != nil && <-entered == nil {
			s.job().Close()
		}
	}()
	var why error     // that it has canceled
	var trouble error // that it has had with its parent until then
	done, limit := ctx.Done(), (<-chan struct{})(nil)
	failed := func(m *message) error {
		err := s.job().failure(m, why, "rendezvous", 0, time.Since(start))
		if late, ok := err.(*TimeoutError); ok && trouble != nil {
			late.Detail = fmt.Sprintf("rank %d is reached through rank %d: %v", h.Rank, s.parent, trouble)
		}
		return err
	}
	for {
		select {
		case m, ok := <-told:
			switch {
			case !ok && why == nil:
				return false, rootLost
			case !ok:
				return false, failed(nil)
			case m.Kind == kindGone:
				return true, nil
			case m.Kind == kindOutcome:
				return false, failed(m)
			}
			parent := &Job{ID: job.ID, Secret: job.Secret, Addr: m.Address, wrap: s.wrap, silence: s.silence, base: job.base}
			entered = make(chan error, 1)
			go func() {
				again, err := s.enter(within, parent, h, start)
				if again {
					err = ErrPeerLost // the parent knows that the world has formed, or will not
				}
				entered <- err
			}()
		case err := <-entered:
			entered = nil
			switch {
			case err == nil:
				q.write(message{Kind: kindReached}) // if that is lost, so is this rank
				return false, nil
			case ctx.Err() != nil:
				trouble = err
			case errors.Is(err, ErrPeerLost):
				q.write(message{Kind: kindGone, Rank: s.parent})
			default: // not for the parent's sake
				return false, err
			}
		case <-done:
			why, done, limit = context.Cause(ctx), nil, stall.After(outcomeLimit)
			if stop(); entered != nil {
				if trouble, entered = <-entered, nil; trouble == nil {
					q.write(message{Kind: kindReached})
					return false, nil
				}
			}
			q.write(message{Kind: kindCancel, Late: errors.Is(why, context.DeadlineExceeded), Err: EncodeError(why, maxReason)})
		case <-limit:
			return false, failed(nil)
		}
	}
}

// told is all that rank 0 says to a question, closed when it says no more.
func (c *Conn) told() <-chan *message {
	told := make(chan *message, 3)
	go func() {
		c.receiveAll(maxMessage, func(m *message) error {
			select {
			case told <- m:
				return nil
			default:
				return net.ErrClosed
			}
		})
		close(told)
	}()
	return told
}

// joinFailure is the error of a rank that could not connect.
func joinFailure(ctx context.Context, job *Job, rank int, start time.Time, err error) error {
	var other *unauthenticatedError
	switch cause := context.Cause(ctx); {
	case errors.As(err, &other):
		return other.mismatch(job.Addr, rank)
	case errors.Is(cause, context.DeadlineExceeded):
		return &TimeoutError{Op: "rendezvous", Rank: rank, Peer: 0, Missing: []int{0}, Elapsed: time.Since(start), Detail: err.Error()}
	case cause != nil:
		return &CanceledError{Op: "rendezvous", Rank: rank, Origin: rank, Err: cause}
	}
	return err
}

// remote lets the session talk over conn, by a relay if others are behind it.
func (s *session) remote(conn *Conn, r *relay) {
	out, receive, end := newOutbox(), s.receive, s.end
	var wrote sync.WaitGroup
	hangUp := func() {
		out.close()
		stall.AfterFunc(closeLimit, func() { conn.Close() }) // if the other end takes nothing
	}
	if r != nil {
		r.nonce, r.hangUp, s.hosts, out, receive, end = s.nonce, hangUp, r, r.up, r.down, r.orphan
		s.local(r, r.add(s.rank, newOutbox()))
	} else {
		s.send, s.hangUp = func(m *message) { out.put(m) }, hangUp
	}
	wrote.Go(func() { conn.pump(out) })
	talk := func() {
		conn.receiveAll(min(maxOutcome, s.world*maxMessage), func(m *message) error { receive(m); return nil })
		out.close()
		conn.Close()
		wrote.Wait()
		end()
	}
	if r != nil {
		r.sessions.Go(talk)
	} else {
		go talk()
	}
}
