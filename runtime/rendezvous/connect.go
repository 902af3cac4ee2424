package rendezvous

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/seed-ee968945/concert/internal/stall"
)

// connected exchanges c, and then lets f talk to the others over connections of its own,
// whose addresses came with it. What fails on one rank is a *CanceledError of that rank for
// all.
func (g *Group) connected(ctx context.Context, c Call, f func(ctx context.Context, parts []Part) error) error {
	ctx, done := g.bounded(ctx)
	defer done()
	parts, err := g.Exchange(ctx, c)
	if err != nil {
		return err
	}
	start := time.Now()
	early, stop := g.Context(ctx, c.Op)
	defer stop()
	if err := f(early, parts); err != nil {
		return g.broke(ctx, early, c.Op, err, start)
	}
	return g.Barrier(ctx, c.Op)
}

// broke ends what failed on this rank, and returns its error. A connection that ends says
// only that something has happened to another rank; what that is the barrier says, soon, if
// early ends before ctx.
func (g *Group) broke(ctx, early context.Context, op string, err error, start time.Time) error {
	select {
	case <-early.Done():
	case <-stall.After(outcomeLimit):
	}
	if early.Err() != nil && ctx.Err() == nil {
		if err := g.Barrier(ctx, op); err != nil {
			return err
		}
	}
	if ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	err = g.stopped(op, err, time.Since(start))
	g.Cancel(err)
	return err
}

// stopped is the error of a rank that cannot connect to the others because of err.
func (g *Group) stopped(op string, err error, waited time.Duration) error {
	const what = "connecting to the other ranks"
	if errors.Is(err, context.DeadlineExceeded) {
		return &TimeoutError{Op: op, Rank: g.s.rank, Peer: -1, Elapsed: waited, Detail: what}
	}
	return &CanceledError{Op: op, Rank: g.s.rank, Origin: g.s.rank, Err: fmt.Errorf("%s: %w", what, err)}
}

// Connect gives a connection to each rank of the group that far has by index, nil for the
// others; they have this one in theirs. Every rank listens where the others reach it: at the
// address by which it reaches rank 0, and rank 0 at that of the job. The addresses, and a
// secret for each, which no one but the job's ranks learns, go by rank 0; the handshake is
// that of the job. Ranks that are goroutines have pipes. All ranks of the group call it, and
// errors are those of Exchange.
func (g *Group) Connect(ctx context.Context, op string, far []bool) (conns []*Conn, err error) {
	conns = make([]*Conn, len(g.ranks))
	c := Call{Op: op}
	var ln *Listener
	me := g.Rank()
	if !slices.Contains(far, true) {
		err = nil
	} else if g.s.address != "" {
		var job *Job
		if job, ln, err = g.s.listen(ctx); err != nil {
			err = g.stopped(op, err, 0)
			g.Cancel(err)
			return nil, err
		}
		defer ln.Close()
		c.Data = []byte(job.Token())
	} else {
		c.Value = pipes(conns, far, me)
	}
	err = g.connected(ctx, c, func(ctx context.Context, parts []Part) error {
		for i := range me {
			if !far[i] {
				continue
			}
			var err error
			if ln == nil {
				theirs, _ := parts[i].Value.([]*Conn)
				if theirs == nil || theirs[me] == nil {
					return fmt.Errorf("rank %d is no goroutine of this process", g.ranks[i])
				}
				conns[i] = theirs[me]
			} else if conns[i], err = g.s.dial(ctx, string(parts[i].Data), me); err != nil {
				return err
			}
		}
		if ln == nil {
			return nil
		}
		return accept(ctx, ln, conns, far, me)
	})
	if err != nil {
		for _, c := range conns {
			if c != nil {
				c.Close()
			}
		}
		return nil, err
	}
	return conns, nil
}

// pipes puts one end of a pipe to each later rank into conns, and gives the others.
func pipes(conns []*Conn, far []bool, me int) []*Conn {
	theirs := make([]*Conn, len(conns))
	for i := me + 1; i < len(conns); i++ {
		if far[i] {
			a, b := net.Pipe()
			conns[i], theirs[i] = &Conn{raw: a, tls: a}, &Conn{raw: b, tls: b}
		}
	}
	return theirs
}

// listen listens where the other ranks reach this one.
func (s *session) listen(ctx context.Context) (*Job, *Listener, error) {
	job := &Job{ID: "link-" + newID(), Secret: NewSecret(), Addr: s.anyPort(), wrap: s.wrap, silence: s.silence}
	if s.anywhere {
		job.Listen = "tcp::0"
	}
	ln, err := Listen(ctx, job)
	if err != nil {
		return nil, nil, err
	}
	job.Addr, job.Listen = s.reachable(ln), ""
	return job, ln, nil
}

// anyPort is where this rank listens if it does not matter at which port.
func (s *session) anyPort() string { return "tcp:" + net.JoinHostPort(s.address, "0") }

// reachable is where others reach a listener of this rank.
func (s *session) reachable(ln *Listener) string {
	t, ok := ln.ln.Addr().(*net.TCPAddr)
	if !ok {
		return ln.Addr()
	}
	return "tcp:" + net.JoinHostPort(s.address, strconv.Itoa(t.Port))
}

// reached is the address by which this rank is reached from others: of a connection to rank
// 0, or of the job.
func reached(addr net.Addr) string {
	if t, ok := addr.(*net.TCPAddr); ok {
		return (&net.IPAddr{IP: t.IP, Zone: t.Zone}).String()
	}
	return "127.0.0.1" // all ranks are on one machine
}

// at is reached of rank 0.
func (j *Job) at() string {
	network, addr, _ := strings.Cut(j.Addr, ":")
	host, _, err := net.SplitHostPort(addr)
	if network != "tcp" || err != nil || host == "" {
		return "127.0.0.1"
	}
	return host
}

// dial connects to the listener of a token, and says who this is.
func (s *session) dial(ctx context.Context, token string, me int) (*Conn, error) {
	job, err := ParseJob(token)
	if err != nil {
		return nil, err
	}
	job.wrap, job.silence = s.wrap, s.silence
	c, err := Dial(ctx, job)
	if err != nil {
		return nil, err
	}
	if err := c.Send(ctx, turnIn{Index: me}); err != nil {
		c.Close()
		return nil, err
	}
	return c, nil
}

// accept takes the connections of the later ranks.
func accept(ctx context.Context, ln *Listener, conns []*Conn, far []bool, me int) error {
	for i := me + 1; i < len(far); i++ {
		if !far[i] {
			continue
		}
		c, err := ln.Accept(ctx)
		if err != nil {
			return err
		}
		var from turnIn
		_, err = c.Receive(ctx, maxHello, &from)
		if err != nil || from.Index <= me || from.Index >= len(far) || !far[from.Index] || conns[from.Index] != nil {
			c.Close()
			return errors.Join(err, errors.New("a rank connected that has no reason to"))
		}
		conns[from.Index] = c
	}
	return nil
}

// Reader and Writer carry bytes beside, or in place of, Send and Receive. A read, or a
// write, that does not move for limit fails.
func (c *Conn) Reader(limit time.Duration) *bufio.Reader {
	return bufio.NewReaderSize(&bounded{c, limit}, 64<<10)
}

// Writer is Reader's other end.
func (c *Conn) Writer(limit time.Duration) *bufio.Writer {
	return bufio.NewWriterSize(&bounded{c, limit}, 64<<10)
}

// LimitReads makes reads fail that have not ended when limit is over.
func (c *Conn) LimitReads(limit time.Duration) {
	stall.AfterFunc(limit, func() {
		c.ended.Store(true)
		c.raw.SetReadDeadline(time.Unix(1, 0))
	})
}

// Delivered waits until the other end's machine has what was written, while it takes some of it within limit.
func (c *Conn) Delivered(limit time.Duration) { delivered(c.raw, limit) }

type bounded struct {
	c     *Conn
	limit time.Duration
}

var _ io.ReadWriter = (*bounded)(nil)

// Read waits in steps: what comes while this process stands still is there when it goes on, when a
// deadline of all the time would be over.
func (b *bounded) Read(p []byte) (int, error) {
	const steps = 20
	for step := 1; ; step++ {
		b.c.raw.SetReadDeadline(time.Now().Add(b.limit / steps))
		n, err := b.c.tls.Read(p)
		if n > 0 || step == steps || !errors.Is(err, os.ErrDeadlineExceeded) || b.c.ended.Load() {
			return n, err
		}
	}
}

func (b *bounded) Write(p []byte) (int, error) {
	b.c.raw.SetWriteDeadline(time.Now().Add(b.limit))
	return b.c.tls.Write(p)
}
