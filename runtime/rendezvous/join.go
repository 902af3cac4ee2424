package rendezvous

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"
)

// Place is a rank's place in a job.
type Place struct {
	Name             string // of the world; the same on all ranks
	Rank, World      int
	Timeout          time.Duration // of barriers whose context has no deadline; 0 for none
	HeartbeatTimeout time.Duration // how long a machine may not answer until its ranks are lost; 0: the default
}

// protocolVersion of messages; ranks must agree.
const protocolVersion = 2

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
// or a *CanceledError. Who meets another job's listener gets a *MismatchError. Rank 0
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
		job, own.silence, own.control = &own, p.HeartbeatTimeout, true
		s.wrap, s.silence = job.wrap, p.HeartbeatTimeout
	}
	var ln *Listener
	var err error
	switch {
	case p.World == 1:
		s.alone(h)
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
	g := &Group{s: s, ranks: make([]int, p.World)}
	for i := range g.ranks {
		g.ranks[i] = i
	}
	_, err = g.Exchange(ctx, Call{Op: "rendezvous"})
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
			c = newCoordinator(h)
			l.forming[h.Name] = c
		}
		out := newOutbox()
		in := c.join(h, out)
		if in {
			s.local(c, out)
		} else if c.decided() {
			delete(l.forming, h.Name)
		}
		l.mu.Unlock()
		if in {
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

// local connects a session to a coordinator of this process, which has admitted it.
func (s *session) local(c *coordinator, out *outbox) {
	s.send = func(m *message) {
		if err := c.receive(s.rank, m); err != nil {
			c.end(s.rank)
		}
	}
	s.hangUp = func() {}
	go func() {
		out.pump(func(batch []*message) error {
			for _, m := range batch {
				s.receive(m)
			}
			return nil
		})
		s.end()
	}()
}

// alone makes the session coordinate by itself, as rank 0.
func (s *session) alone(h hello) *coordinator {
	c, out := newCoordinator(h), newOutbox()
	c.join(h, out)
	s.local(c, out)
	return c
}

// host listens and coordinates, and joins rank 0.
func host(ctx context.Context, job *Job, s *session, h hello) (*Listener, error) {
	ln, err := Listen(ctx, job)
	if err != nil {
		return nil, fmt.Errorf("cannot listen at %s: %w", job.Addr, err)
	}
	c := s.alone(h)
	s.hosts, s.address, s.anywhere = c, job.at(), job.Listen != ""
	go func() {
		<-c.formed
		ln.Close()
	}()
	go func() {
		for {
			conn, err := ln.Accept(context.Background())
			if err != nil {
				return
			}
			c.sessions.Go(func() { c.serve(conn) })
		}
	}()
	return ln, nil
}

// serve is the coordinator's end of a session.
func (c *coordinator) serve(conn *Conn) {
	var first message
	ctx, cancel := context.WithTimeout(context.Background(), writeLimit)
	_, err := conn.Receive(ctx, maxHello, &first)
	cancel()
	if err != nil || first.Hello == nil {
		conn.Close()
		return
	}
	h := *first.Hello
	out := newOutbox()
	in := c.join(h, out)
	if !in {
		conn.pump(out)
		return
	}
	c.sessions.Go(func() { conn.pump(out) })
	conn.receiveAll(maxMessage, func(m *message) error { return c.receive(h.Rank, m) })
	c.end(h.Rank)
	conn.Close()
}

// pump sends what is put into out until it is closed, and then hangs up. If the other end
// takes nothing any more, what has come from there is still received.
func (c *Conn) pump(out *outbox) {
	err := out.pump(func(batch []*message) error {
		c.raw.SetWriteDeadline(time.Now().Add(writeLimit))
		return c.writeAll(batch)
	})
	if err != nil {
		c.raw.SetReadDeadline(time.Now().Add(closeLimit))
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

// connect connects a session to rank 0, trying until ctx ends: a listener may still be that
// of this job's last world, which says so.
func (s *session) connect(ctx context.Context, job *Job, h hello) error {
	start := time.Now()
	for {
		conn, err := Dial(ctx, job)
		if err != nil {
			return joinFailure(ctx, job, h.Rank, start, err)
		}
		var first message
		if err = conn.Send(ctx, message{Kind: kindHello, Hello: &h}); err == nil {
			_, err = conn.Receive(ctx, maxMessage, &first)
		}
		switch {
		case err == nil && first.Kind == kindHello:
			s.receive(&first)
			s.remote(conn)
			return nil
		case err == nil && first.Err != nil:
			conn.Close()
			return DecodeError(first.Err)
		}
		conn.Close()
		switch {
		case ctx.Err() != nil:
			return joinFailure(ctx, job, h.Rank, start, &dialError{addr: job.Addr, why: context.Cause(ctx), last: err})
		case err != nil: // rank 0 knows this one, and does not answer
			return &PeerLostError{Op: "rendezvous", Rank: h.Rank, Peer: 0}
		}
		select { // the listener of the last world is about to close
		case <-ctx.Done():
		case <-time.After(time.Millisecond):
		}
	}
}

// joinFailure is the error of a rank that could not connect.
func joinFailure(ctx context.Context, job *Job, rank int, start time.Time, err error) error {
	var other *unauthenticatedError
	switch cause := context.Cause(ctx); {
	case errors.As(err, &other):
		return &MismatchError{Op: "rendezvous", What: "jobs at " + job.Addr + ", or their secrets,", Rank: rank, RankValue: job.ID, PeerValue: other.other}
	case errors.Is(cause, context.DeadlineExceeded):
		return &TimeoutError{Op: "rendezvous", Rank: rank, Peer: 0, Missing: []int{0}, Elapsed: time.Since(start), Detail: err.Error()}
	case cause != nil:
		return &CanceledError{Op: "rendezvous", Rank: rank, Origin: rank, Err: cause}
	}
	return err
}

// remote lets the session talk over conn.
func (s *session) remote(conn *Conn) {
	s.address = reached(conn.raw.LocalAddr())
	out := newOutbox()
	s.send = func(m *message) { out.put(m) }
	s.hangUp = func() {
		out.close()
		time.AfterFunc(closeLimit, func() { conn.Close() }) // if the other end takes nothing
	}
	var wrote sync.WaitGroup
	wrote.Go(func() { conn.pump(out) })
	go func() {
		conn.receiveAll(min(maxOutcome, s.world*maxMessage), func(m *message) error { s.receive(m); return nil })
		out.close()
		conn.Close()
		wrote.Wait()
		s.end()
	}()
}
