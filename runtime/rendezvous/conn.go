package rendezvous

import (
	"cmp"
	"context"
	"crypto/tls"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/seed-ee968945/concert/internal/stall"
)

// Conn is a connection whose other end has proved that it belongs to the job.
type Conn struct {
	raw  net.Conn
	tls  net.Conn
	fds  *fileConn // nil where descriptors cannot travel
	asks bool      // it is a question, not a session
	wmu  sync.Mutex
	// ended says that reads may wait no longer.
	ended atomic.Bool
}

// side is what a process does with a connection.
type side uint8

const (
	serves side = iota
	dials
	asks // rank 0, which listens, for its parent
)

const (
	// handshakeLimit is how long a peer has to prove that it belongs here.
	handshakeLimit = 5 * time.Second
	// maxUnauthenticated bounds connections in their handshake. Others wait, until the oldest
	// has had its turn.
	maxUnauthenticated = 128
	handshakeTurn      = 300 * time.Millisecond
	// maxFiles bounds the descriptors of a frame.
	maxFiles = 1
)

var errUnproved = fmt.Errorf("it did not prove itself within %v", handshakeLimit)

// HeartbeatTimeout is how long the other end of a connection may not answer by default.
const HeartbeatTimeout = 20 * time.Second

// patient makes a machine that is gone, or that no link leads to, end the connection when
// nothing has been answered for so long, whether anything was sent or not.
func patient(c net.Conn, silence time.Duration) error {
	t, ok := c.(*net.TCPConn)
	if !ok {
		return nil
	}
	if err := t.SetKeepAliveConfig(net.KeepAliveConfig{Enable: true, Idle: max(silence/4, time.Second), Interval: max(silence/8, time.Second), Count: 6}); err != nil {
		return err
	}
	return setUserTimeout(t, silence)
}

// handshake proves the two sides to each other. It closes raw if it fails.
func handshake(ctx context.Context, raw net.Conn, job *Job, cfg *tls.Config, as side) (*Conn, error) {
	c := &Conn{raw: raw}
	err := c.prove(ctx, job, cfg, as)
	if err == nil && c.fds != nil {
		c.fds.open() // descriptors of who is not known are not even received
	}
	if err == nil && as != serves {
		err = c.ready(ctx, false)
	}
	if err != nil {
		c.Close()
		return nil, err
	}
	return c, nil
}

func (c *Conn) prove(ctx context.Context, job *Job, cfg *tls.Config, as side) error {
	raw := c.raw
	if err := patient(raw, cmp.Or(job.silence, HeartbeatTimeout)); err != nil {
		return err
	}
	if u, ok := raw.(*net.UnixConn); ok {
		if err := sameUser(u); err != nil {
			return err
		}
		c.fds = &fileConn{UnixConn: u}
		raw = c.fds
	}
	if job.wrap != nil {
		raw = job.wrap(raw)
	}
	question := func(f func(*sealed, *Job) error) error {
		s := &sealed{Conn: raw}
		c.tls, c.asks = s, true
		defer c.until(ctx)()
		return f(s, job)
	}
	switch {
	case as == asks:
		raw = ahead(raw)
		return question((*sealed).ask)
	case as == serves && job.asked:
		b := ahead(raw)
		stop := c.until(ctx)
		mark, err := b.r.Peek(1)
		if stop(); err != nil {
			return err
		}
		if raw = b; mark[0] == askMark {
			return question((*sealed).answer)
		}
	}
	t := tls.Client(raw, cfg)
	if as == serves {
		t = tls.Server(raw, cfg)
	}
	c.tls = t
	return t.HandshakeContext(ctx)
}

// ready tells the client that the server has accepted it, and takes descriptors. Who does
// not hear that may dial again.
func (c *Conn) ready(ctx context.Context, server bool) error {
	defer c.until(ctx)()
	var b [1]byte
	if server {
		_, err := c.tls.Write(b[:])
		return err
	}
	_, err := io.ReadFull(c.tls, b[:])
	return err
}

// Close ends the connection. Who reads at the other end finds its end.
func (c *Conn) Close() error {
	err := c.raw.Close()
	if c.fds != nil {
		c.fds.drop()
	}
	return err
}

// until bounds what the connection waits for by ctx, until the returned function is
// called.
func (c *Conn) until(ctx context.Context) func() {
	ended := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		c.raw.SetDeadline(time.Unix(1, 0))
		close(ended)
	})
	return func() {
		if !stop() {
			<-ended // what was to be had has come nevertheless, and the connection goes on
		}
		c.raw.SetDeadline(time.Time{})
	}
}

// Send writes v and, over a unix socket, descriptors, which stay the caller's.
func (c *Conn) Send(ctx context.Context, v any, files ...int) error {
	defer c.until(ctx)()
	return c.write(v, files...)
}

// Receive reads what Send wrote: v of at most max bytes, and as many descriptors as
// came with it, closed on exec, which are the caller's.
func (c *Conn) Receive(ctx context.Context, max int, v any) ([]int, error) {
	defer c.until(ctx)()
	return c.read(max, v)
}

// A frame is its length in four bytes, the number of descriptors in one, and JSON.
const frameHead = 5

func (c *Conn) write(v any, files ...int) error {
	b, err := frame(v, len(files))
	if err != nil {
		return err
	}
	if len(files) > 0 && c.fds == nil || len(files) > maxFiles {
		return fmt.Errorf("%d descriptors over a connection of network %s: %w", len(files), c.raw.LocalAddr().Network(), errors.ErrUnsupported)
	}
	c.wmu.Lock()
	defer c.wmu.Unlock()
	if c.fds != nil {
		c.fds.attach(files)
	}
	_, err = c.tls.Write(b)
	return err
}

// writeAll writes messages in as few pieces as there are large ones.
func (c *Conn) writeAll(ms []*message) error {
	c.wmu.Lock()
	defer c.wmu.Unlock()
	var b []byte
	for i, m := range ms {
		f, err := m.frame()
		if err != nil {
			return err
		}
		if b = append(b, f...); len(b) < 16<<10 && i+1 < len(ms) {
			continue
		}
		if _, err := c.tls.Write(b); err != nil {
			return err
		}
		b = b[:0]
	}
	return nil
}

// frame is the message's, made once if it goes to many.
func (m *message) frame() ([]byte, error) {
	if m.coded == nil {
		return frame(m, 0)
	}
	m.coded.once.Do(func() { m.coded.b, m.coded.err = frame(m, 0) })
	return m.coded.b, m.coded.err
}

func frame(v any, files int) ([]byte, error) {
	b, err := json.Marshal(v)
	if err != nil {
		return nil, err
	}
	head := append(binary.BigEndian.AppendUint32(nil, uint32(len(b))), byte(files))
	return append(head, b...), nil
}

func (c *Conn) read(max int, v any) (fds []int, err error) {
	n, err := readFrame(c.tls, max, v)
	if err != nil || n == 0 {
		return nil, err
	}
	if c.fds != nil {
		fds = c.fds.take(n)
	}
	if len(fds) != n {
		CloseFiles(fds...)
		return nil, fmt.Errorf("%d descriptors came, %d were said to", len(fds), n)
	}
	return fds, nil
}

// readFrame reads a frame into v and returns the number of its descriptors. A length
// outside the limits is found before anything is allocated for it, and no more than
// what has come is.
func readFrame(r io.Reader, max int, v any) (files int, err error) {
	var head [frameHead]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return 0, err
	}
	size, files := binary.BigEndian.Uint32(head[:]), int(head[4])
	if int64(size) > int64(max) || files > maxFiles {
		return 0, fmt.Errorf("a message of %d bytes and %d descriptors, of %d and %d at most", size, files, max, maxFiles)
	}
	var b strings.Builder
	if _, err := io.CopyN(&b, r, int64(size)); err != nil {
		return 0, noEOF(err)
	}
	return files, json.Unmarshal([]byte(b.String()), v)
}

func noEOF(err error) error {
	if err == io.EOF {
		return io.ErrUnexpectedEOF
	}
	return err
}

// Listener accepts connections from processes of one job.
type Listener struct {
	ln     net.Listener
	job    *Job
	cfg    *tls.Config
	conns  chan *Conn // authenticated
	ctx    context.Context
	cancel context.CancelFunc
	room   chan struct{} // a handshake has ended
	wg     sync.WaitGroup

	mu      sync.Mutex
	pending []pending // unauthenticated, oldest first
	refused int       // connections that did not authenticate
	last    error     // why the last of them did not
}

// pending is a connection in its handshake.
type pending struct {
	net.Conn
	since time.Time
}

// Listen listens at the job's address. Everybody who connects is heard at the same
// time and has a few seconds to authenticate; who does not is dropped.
func Listen(ctx context.Context, job *Job) (*Listener, error) {
	if err := job.Check(); err != nil {
		return nil, err
	}
	cfg, err := job.config()
	if err != nil {
		return nil, err
	}
	at := job.Addr
	if job.Listen != "" {
		at = job.Listen
	}
	network, addr, _ := strings.Cut(at, ":")
	ln, err := (&net.ListenConfig{}).Listen(ctx, network, addr)
	if errors.Is(err, syscall.EADDRNOTAVAIL) {
		err = fmt.Errorf("%w: %s is no address of this machine; say where to listen by Job.Listen, or CONCERT_LISTEN in the environment", err, at)
	}
	if err != nil {
		return nil, err
	}
	l := &Listener{ln: ln, job: job, cfg: cfg, conns: make(chan *Conn), room: make(chan struct{}, 1)}
	l.ctx, l.cancel = context.WithCancel(context.Background())
	l.wg.Go(l.accept)
	return l, nil
}

// Addr is the address in the form of Job.Addr, with the port that was chosen.
func (l *Listener) Addr() string { return l.ln.Addr().Network() + ":" + l.ln.Addr().String() }

func (l *Listener) accept() {
	for {
		raw, err := l.ln.Accept()
		if err != nil {
			if l.ctx.Err() != nil || errors.Is(err, net.ErrClosed) {
				return
			}
			select { // out of descriptors or the like
			case <-l.ctx.Done():
				return
			case <-time.After(10 * time.Millisecond):
			}
			continue
		}
		if !l.makeRoom() {
			raw.Close()
			return
		}
		l.mu.Lock()
		l.pending = append(l.pending, pending{raw, time.Now()})
		l.mu.Unlock()
		l.wg.Go(func() { l.serve(raw) })
	}
}

// makeRoom waits until fewer connections are in their handshake than may be: those of ranks
// soon are not, and the oldest gives way when it has had its time. It reports false when the
// listener ends.
func (l *Listener) makeRoom() bool {
	for {
		l.mu.Lock()
		var left time.Duration
		full := len(l.pending) >= maxUnauthenticated
		if full {
			if left = time.Until(l.pending[0].since.Add(handshakeTurn)); left <= 0 {
				l.pending[0].Close()
				l.pending = l.pending[1:]
				full = false
			}
		}
		l.mu.Unlock()
		if !full {
			return true
		}
		t := time.NewTimer(left)
		select {
		case <-l.room:
		case <-t.C:
		case <-l.ctx.Done():
		}
		t.Stop()
		if l.ctx.Err() != nil {
			return false
		}
	}
}

func (l *Listener) serve(raw net.Conn) {
	ctx, cancel := context.WithCancelCause(l.ctx)
	defer cancel(nil)
	stall.AfterFunc(handshakeLimit, func() { cancel(errUnproved) }) // stalls do not count: a rank that is hardly scheduled still proves itself
	c, err := handshake(ctx, raw, l.job, l.cfg, serves)
	if cause := context.Cause(ctx); err != nil && cause != nil {
		err = cause
	}
	l.mu.Lock()
	for i, p := range l.pending {
		if p.Conn == raw {
			l.pending = append(l.pending[:i], l.pending[i+1:]...)
			break
		}
	}
	if err != nil {
		l.refused++
		l.last = err
	}
	l.mu.Unlock()
	select {
	case l.room <- struct{}{}:
	default:
	}
	if err != nil {
		return
	}
	select {
	case l.conns <- c:
	case <-l.ctx.Done():
		c.Close()
	}
}

// Accept returns the next authenticated connection.
func (l *Listener) Accept(ctx context.Context) (*Conn, error) {
	for {
		select {
		case c := <-l.conns:
			if err := c.ready(ctx, true); err == nil {
				return c, nil
			}
			c.Close()
		case <-l.ctx.Done():
			return nil, net.ErrClosed
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}

// unauthenticated says who connected in vain, for the errors of those who wait for
// somebody else; empty if nobody has.
func (l *Listener) unauthenticated() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.refused == 0 {
		return ""
	}
	return fmt.Sprintf("%d unauthenticated peers connected, the last: %v", l.refused, l.last)
}

// Close ends the listener and all handshakes. Connections that Accept has returned
// go on.
func (l *Listener) Close() error {
	l.cancel()
	err := l.ln.Close()
	l.wg.Wait()
	if errors.Is(err, net.ErrClosed) {
		err = nil
	}
	return err
}
