package store

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"
)

// maxPending bounds the blocking gets of one connection, so that a broken
// client cannot fill the host with goroutines.
const maxPending = 4096

// Server hosts a store for the other ranks. It is a Store itself: the hosting
// rank uses its memory directly.
type Server struct {
	Mem
	ln     net.Listener
	ctx    context.Context
	cancel context.CancelFunc
	wg     sync.WaitGroup

	mu     sync.Mutex
	conns  map[net.Conn]struct{}
	closed bool
}

var _ Store = (*Server)(nil)

// Listen hosts a store at addr ("host:port"; port 0 takes a free one, see Addr)
// under the given nonce, or a fresh one if it is empty.
func Listen(ctx context.Context, addr, nonce string) (*Server, error) {
	var lc net.ListenConfig
	ln, err := lc.Listen(ctx, "tcp", addr)
	if err != nil {
		return nil, &ConnError{Addr: addr, Op: "listen", Err: err}
	}
	return Serve(ln, nonce), nil
}

// Serve hosts a store on ln, which it owns from now on. An empty nonce becomes
// a fresh one.
func Serve(ln net.Listener, nonce string) *Server {
	if nonce == "" {
		nonce = NewNonce()
	}
	ctx, cancel := context.WithCancel(context.Background())
	s := &Server{Mem: Mem{newTable(nonce)}, ln: ln, ctx: ctx, cancel: cancel, conns: map[net.Conn]struct{}{}}
	s.wg.Add(1)
	go s.accept()
	return s
}

// Addr is the address that clients dial.
func (s *Server) Addr() string { return s.ln.Addr().String() }

// Close ends the service: listener, connections and waiting calls. It returns
// when all of the server's goroutines have ended.
func (s *Server) Close() error {
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		return nil
	}
	s.closed = true
	s.t.close()
	s.cancel()
	err := s.ln.Close()
	for c := range s.conns {
		c.Close()
	}
	s.mu.Unlock()
	s.wg.Wait()
	if errors.Is(err, net.ErrClosed) {
		err = nil
	}
	return err
}

func (s *Server) accept() {
	defer s.wg.Done()
	for {
		c, err := s.ln.Accept()
		if err != nil {
			if s.ctx.Err() != nil || errors.Is(err, net.ErrClosed) {
				return
			}
			// Out of descriptors or the like: yield, then try again.
			select {
			case <-s.ctx.Done():
				return
			case <-time.After(10 * time.Millisecond):
			}
			continue
		}
		s.mu.Lock()
		if s.closed {
			s.mu.Unlock()
			c.Close()
			return
		}
		s.conns[c] = struct{}{}
		s.wg.Add(1)
		s.mu.Unlock()
		go s.serve(c)
	}
}

// session is one client's connection.
type session struct {
	s   *Server
	c   net.Conn
	ctx context.Context

	wmu sync.Mutex // one frame at a time

	mu   sync.Mutex
	gets map[uint64]context.CancelFunc
}

func (s *Server) serve(c net.Conn) {
	defer s.wg.Done()
	ctx, cancel := context.WithCancel(s.ctx)
	n := &session{s: s, c: c, ctx: ctx, gets: map[uint64]context.CancelFunc{}}
	n.run(bufio.NewReader(c))
	cancel()
	c.Close()
	s.mu.Lock()
	delete(s.conns, c)
	s.mu.Unlock()
}

// run answers requests until the connection ends or breaks the protocol.
func (n *session) run(r *bufio.Reader) {
	n.c.SetReadDeadline(time.Now().Add(10 * time.Second)) // a silent stranger does not stay
	f, err := readFrame(r, maxHello)
	if err != nil {
		return
	}
	if f.version != wireVersion {
		n.reply(f.id, stVersion, []byte(fmt.Sprintf("this store speaks version %d, the client %d", wireVersion, f.version)))
		return
	}
	if _, p, ok := splitRequest(f.body); f.code != opHello || !ok || string(p) != helloMagic {
		n.reply(f.id, stRefused, []byte("expected hello"))
		return
	}
	n.c.SetReadDeadline(time.Time{})
	n.reply(f.id, stOK, []byte(n.s.t.nonce))
	for {
		f, err := readFrame(r, maxFrame)
		if err != nil || f.version != wireVersion {
			return
		}
		n.handle(f)
	}
}

func (n *session) reply(id uint64, status uint8, body []byte) {
	n.wmu.Lock()
	defer n.wmu.Unlock()
	if err := writeFrame(n.c, frame{wireVersion, status, id, body}); err != nil {
		n.c.Close() // the reader notices and ends the session
	}
}

// fail answers with the status that stands for err.
func (n *session) fail(id uint64, err error) {
	var pe *ProtocolError
	switch {
	case errors.Is(err, ErrClosed):
		n.reply(id, stClosed, nil)
	case errors.As(err, &pe):
		n.reply(id, stRefused, []byte(pe.Reason))
	default:
		n.reply(id, stRefused, []byte(err.Error()))
	}
}

func (n *session) handle(f frame) {
	t := n.s.t
	if f.code == opCancel {
		n.mu.Lock()
		if cancel, ok := n.gets[f.id]; ok {
			cancel()
		}
		n.mu.Unlock()
		return
	}
	key, p, ok := splitRequest(f.body)
	if !ok {
		n.reply(f.id, stRefused, []byte("malformed request"))
		return
	}
	switch f.code {
	case opSet:
		if err := t.set(key, p); err != nil {
			n.fail(f.id, err)
			return
		}
		n.reply(f.id, stOK, nil)
	case opGet:
		n.get(f.id, key)
	case opTryGet:
		v, found, err := t.tryGet(key)
		if err != nil {
			n.fail(f.id, err)
			return
		}
		n.reply(f.id, stOK, append([]byte{flag(found)}, v...))
	case opAdd:
		if len(p) != 8 {
			n.reply(f.id, stRefused, []byte("add: malformed delta"))
			return
		}
		sum, err := t.add(key, int64(binary.BigEndian.Uint64(p)))
		if err != nil {
			n.fail(f.id, err)
			return
		}
		n.reply(f.id, stOK, binary.BigEndian.AppendUint64(nil, uint64(sum)))
	case opCAS:
		old, new, ok := splitCAS(p)
		if !ok {
			n.reply(f.id, stRefused, []byte("cas: malformed request"))
			return
		}
		cur, swapped, err := t.cas(key, old, new)
		if err != nil {
			n.fail(f.id, err)
			return
		}
		n.reply(f.id, stOK, append([]byte{flag(swapped)}, cur...))
	default:
		n.reply(f.id, stRefused, []byte(fmt.Sprintf("unknown request %d", f.code)))
	}
}

// get answers at once if it can; otherwise it waits in a goroutine of its own,
// so that the connection's other requests go on.
func (n *session) get(id uint64, key string) {
	v, ok, err := n.s.t.tryGet(key)
	if err != nil {
		n.fail(id, err)
		return
	}
	if ok {
		n.reply(id, stOK, v)
		return
	}
	ctx, cancel := context.WithCancel(n.ctx)
	n.mu.Lock()
	_, dup := n.gets[id]
	if dup || len(n.gets) >= maxPending {
		n.mu.Unlock()
		cancel()
		n.reply(id, stRefused, []byte("get: too many requests wait, or the id is in use"))
		return
	}
	n.gets[id] = cancel
	n.mu.Unlock()
	n.s.wg.Add(1)
	go func() {
		defer n.s.wg.Done()
		v, err := n.s.t.get(ctx, key)
		cancel()
		n.mu.Lock()
		delete(n.gets, id)
		n.mu.Unlock()
		switch {
		case err == nil:
			n.reply(id, stOK, v)
		case errors.Is(err, ErrWait):
			n.reply(id, stCanceled, nil)
		default:
			n.fail(id, err)
		}
	}()
}

func flag(b bool) byte {
	if b {
		return 1
	}
	return 0
}
