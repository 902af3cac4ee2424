package store

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"time"
)

// Client is a Store that a Server of another process hosts. Calls of any
// number of goroutines share its one connection.
type Client struct {
	addr  string
	c     net.Conn
	nonce string
	done  chan struct{} // closed when the reader has ended

	wmu sync.Mutex // one frame at a time

	mu      sync.Mutex
	next    uint64
	pending map[uint64]chan frame
	err     error // why the connection ended; ErrClosed after Close
}

var _ Store = (*Client)(nil)

// Dial connects to the store at addr, trying again until ctx ends, because the
// hosting rank may start last. The error is a *ConnError, or a *ProtocolError
// when something else answers there.
func Dial(ctx context.Context, addr string) (*Client, error) {
	const firstPause, lastPause = 2 * time.Millisecond, 50 * time.Millisecond
	pause := firstPause
	for {
		var d net.Dialer
		c, err := d.DialContext(ctx, "tcp", addr)
		if err == nil {
			cl, err := handshake(ctx, c, addr)
			var ce *ConnError
			if err == nil || !errors.As(err, &ce) || ctx.Err() != nil {
				return cl, err
			}
			// The peer hung up: it may be ending its previous job.
		}
		select {
		case <-ctx.Done():
			return nil, &ConnError{Addr: addr, Op: "dial", Err: errors.Join(ctx.Err(), err)}
		case <-time.After(pause):
			pause = min(2*pause, lastPause)
		}
	}
}

func handshake(ctx context.Context, c net.Conn, addr string) (*Client, error) {
	fail := func(err error) (*Client, error) {
		c.Close()
		var pe *ProtocolError
		if errors.As(err, &pe) {
			return nil, err
		}
		return nil, &ConnError{Addr: addr, Op: "handshake", Err: err}
	}
	if dl, ok := ctx.Deadline(); ok {
		c.SetDeadline(dl)
	}
	stop := context.AfterFunc(ctx, func() { c.SetDeadline(time.Unix(1, 0)) })
	defer stop()
	if err := writeFrame(c, frame{wireVersion, opHello, 0, request("", []byte(helloMagic))}); err != nil {
		return fail(err)
	}
	r := bufio.NewReader(c)
	f, err := readFrame(r, maxHello)
	if err != nil {
		return fail(err)
	}
	if f.version != wireVersion || f.code != stOK {
		return fail(&ProtocolError{Reason: fmt.Sprintf("%s answers hello with version %d, status %d: %q", addr, f.version, f.code, f.body)})
	}
	if !stop() {
		return fail(ctx.Err())
	}
	c.SetDeadline(time.Time{})
	cl := &Client{addr: addr, c: c, nonce: string(f.body), done: make(chan struct{}), pending: map[uint64]chan frame{}}
	go cl.read(r)
	return cl, nil
}

// Nonce implements Store.
func (c *Client) Nonce() string { return c.nonce }

// Close ends the connection; waiting calls return ErrClosed.
func (c *Client) Close() error {
	c.end(ErrClosed)
	<-c.done
	return nil
}

// end records why the connection is over (the first reason stays) and releases
// everyone who waits.
func (c *Client) end(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.err != nil {
		return
	}
	c.err = err
	c.c.Close()
	for id, ch := range c.pending {
		close(ch)
		delete(c.pending, id)
	}
}

func (c *Client) read(r io.Reader) {
	defer close(c.done)
	for {
		f, err := readFrame(r, maxFrame)
		if err == nil && f.version != wireVersion {
			err = &ProtocolError{Reason: fmt.Sprintf("%s changed to version %d", c.addr, f.version)}
		}
		if err != nil {
			c.end(&ConnError{Addr: c.addr, Op: "read", Err: err})
			return
		}
		c.mu.Lock()
		ch, ok := c.pending[f.id]
		delete(c.pending, f.id)
		c.mu.Unlock()
		if ok {
			ch <- f // has room for one
		}
	}
}

// call sends one request and waits for its answer.
func (c *Client) call(ctx context.Context, code uint8, key string, payload ...[]byte) ([]byte, error) {
	start := time.Now()
	if err := ctx.Err(); err != nil {
		return nil, &WaitError{Key: key, Err: err}
	}
	if err := checkKey(key); err != nil {
		return nil, err
	}
	ch := make(chan frame, 1)
	c.mu.Lock()
	if c.err != nil {
		defer c.mu.Unlock()
		return nil, c.err
	}
	c.next++
	id := c.next
	c.pending[id] = ch
	c.mu.Unlock()

	if err := c.send(frame{wireVersion, code, id, request(key, payload...)}); err != nil {
		c.end(&ConnError{Addr: c.addr, Op: "write", Err: err})
	}
	select {
	case f, ok := <-ch:
		return c.answer(f, ok, key, start)
	case <-ctx.Done():
	}
	c.mu.Lock()
	_, waiting := c.pending[id]
	delete(c.pending, id)
	c.mu.Unlock()
	if !waiting { // the answer came just now
		f, ok := <-ch
		return c.answer(f, ok, key, start)
	}
	if code == opGet {
		// Best effort: frees the server's goroutine before the connection ends.
		_ = c.send(frame{wireVersion, opCancel, id, nil})
	}
	return nil, &WaitError{Key: key, Elapsed: time.Since(start), Err: ctx.Err()}
}

func (c *Client) send(f frame) error {
	c.wmu.Lock()
	defer c.wmu.Unlock()
	return writeFrame(c.c, f)
}

func (c *Client) answer(f frame, ok bool, key string, start time.Time) ([]byte, error) {
	if !ok {
		c.mu.Lock()
		defer c.mu.Unlock()
		return nil, c.err
	}
	switch f.code {
	case stOK:
		return f.body, nil
	case stClosed:
		return nil, ErrClosed
	case stCanceled:
		return nil, &WaitError{Key: key, Elapsed: time.Since(start), Err: context.Canceled}
	default:
		return nil, &ProtocolError{Reason: string(f.body)}
	}
}

// Set implements Store.
func (c *Client) Set(ctx context.Context, key string, value []byte) error {
	if err := checkValue(value); err != nil {
		return err
	}
	_, err := c.call(ctx, opSet, key, value)
	return err
}

// Get implements Store.
func (c *Client) Get(ctx context.Context, key string) ([]byte, error) {
	return c.call(ctx, opGet, key)
}

// TryGet implements Store.
func (c *Client) TryGet(ctx context.Context, key string) ([]byte, bool, error) {
	b, err := c.call(ctx, opTryGet, key)
	return split(b, err, "tryget")
}

// Add implements Store.
func (c *Client) Add(ctx context.Context, key string, delta int64) (int64, error) {
	b, err := c.call(ctx, opAdd, key, binary.BigEndian.AppendUint64(nil, uint64(delta)))
	if err != nil {
		return 0, err
	}
	if len(b) != 8 {
		return 0, &ProtocolError{Reason: "malformed answer to add"}
	}
	return int64(binary.BigEndian.Uint64(b)), nil
}

// CompareAndSet implements Store.
func (c *Client) CompareAndSet(ctx context.Context, key string, old, new []byte) ([]byte, bool, error) {
	if err := errors.Join(checkValue(old), checkValue(new)); err != nil {
		return nil, false, err
	}
	b, err := c.call(ctx, opCAS, key, casPayload(old), new)
	return split(b, err, "cas")
}

// split takes the leading flag byte off an answer.
func split(b []byte, err error, op string) ([]byte, bool, error) {
	if err != nil {
		return nil, false, err
	}
	if len(b) == 0 {
		return nil, false, &ProtocolError{Reason: "malformed answer to " + op}
	}
	return b[1:], b[0] != 0, nil
}
