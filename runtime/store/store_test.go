package store

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// eachStore runs f once per implementation, with two views of one store.
func eachStore(t *testing.T, f func(t *testing.T, a, b Store)) {
	t.Run("mem", func(t *testing.T) {
		m := NewMem()
		f(t, m, m)
	})
	t.Run("tcp", func(t *testing.T) {
		noLeaks(t)
		s, err := Listen(t.Context(), "127.0.0.1:0", "")
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		c, err := Dial(t.Context(), s.Addr())
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		f(t, s, c)
	})
}

// noLeaks fails the test if it leaves goroutines behind.
func noLeaks(t *testing.T) {
	t.Helper()
	before := runtime.NumGoroutine()
	t.Cleanup(func() {
		for range 200 {
			if runtime.NumGoroutine() <= before {
				return
			}
			time.Sleep(5 * time.Millisecond)
		}
		buf := make([]byte, 1<<16)
		t.Errorf("goroutines: %d before, %d after\n%s", before, runtime.NumGoroutine(), buf[:runtime.Stack(buf, true)])
	})
}

func within(t *testing.T, d time.Duration) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), d)
	t.Cleanup(cancel)
	return ctx
}

func TestValues(t *testing.T) {
	eachStore(t, func(t *testing.T, a, b Store) {
		ctx := within(t, 10*time.Second)
		if a.Nonce() == "" || a.Nonce() != b.Nonce() {
			t.Errorf("nonces %q and %q", a.Nonce(), b.Nonce())
		}
		if _, ok, err := b.TryGet(ctx, "k"); ok || err != nil {
			t.Errorf("TryGet of an absent key: %v, %v", ok, err)
		}
		if err := a.Set(ctx, "k", []byte("one")); err != nil {
			t.Fatal(err)
		}
		if v, err := b.Get(ctx, "k"); err != nil || string(v) != "one" {
			t.Errorf("Get = %q, %v", v, err)
		}
		if err := b.Set(ctx, "empty", nil); err != nil {
			t.Fatal(err)
		}
		if v, ok, err := a.TryGet(ctx, "empty"); err != nil || !ok || len(v) != 0 {
			t.Errorf("empty value: %q, %v, %v", v, ok, err)
		}
		big := bytes.Repeat([]byte{7}, 3<<20)
		if err := b.Set(ctx, "big", big); err != nil {
			t.Fatal(err)
		}
		if v, err := a.Get(ctx, "big"); err != nil || !bytes.Equal(v, big) {
			t.Errorf("3 MiB value came back as %d bytes, %v", len(v), err)
		}
	})
}

func TestAddAndCAS(t *testing.T) {
	eachStore(t, func(t *testing.T, a, b Store) {
		ctx := within(t, 10*time.Second)
		var wg sync.WaitGroup
		for _, s := range []Store{a, b, b, a} {
			wg.Go(func() {
				for range 50 {
					if _, err := s.Add(ctx, "n", 2); err != nil {
						t.Error(err)
					}
				}
			})
		}
		wg.Wait()
		if n, err := b.Add(ctx, "n", -400); err != nil || n != 0 {
			t.Errorf("sum is %d, %v; want 0", n, err)
		}
		a.Set(ctx, "text", []byte("x"))
		var pe *ProtocolError
		if _, err := b.Add(ctx, "text", 1); !errors.As(err, &pe) {
			t.Errorf("Add to text: %v", err)
		}

		if cur, ok, err := b.CompareAndSet(ctx, "c", []byte{}, []byte("v")); ok || err != nil || len(cur) != 0 {
			t.Errorf("CAS of an absent key against an empty value: %q %v %v", cur, ok, err)
		}
		if cur, ok, err := b.CompareAndSet(ctx, "c", nil, []byte("v1")); !ok || err != nil || string(cur) != "v1" {
			t.Errorf("CAS of an absent key: %q %v %v", cur, ok, err)
		}
		if cur, ok, err := a.CompareAndSet(ctx, "c", nil, []byte("v2")); ok || err != nil || string(cur) != "v1" {
			t.Errorf("CAS that must fail: %q %v %v", cur, ok, err)
		}
		if cur, ok, err := b.CompareAndSet(ctx, "c", []byte("v1"), []byte("v3")); !ok || err != nil || string(cur) != "v3" {
			t.Errorf("CAS: %q %v %v", cur, ok, err)
		}
	})
}

func TestGetBlocks(t *testing.T) {
	eachStore(t, func(t *testing.T, a, b Store) {
		ctx := within(t, 10*time.Second)
		got := make(chan string, 3)
		for range 3 {
			go func() {
				v, err := b.Get(ctx, "late")
				if err != nil {
					v = []byte(err.Error())
				}
				got <- string(v)
			}()
		}
		time.Sleep(10 * time.Millisecond)
		if err := a.Set(ctx, "late", []byte("here")); err != nil {
			t.Fatal(err)
		}
		for range 3 {
			if v := <-got; v != "here" {
				t.Errorf("got %q", v)
			}
		}

		short, cancel := context.WithTimeout(ctx, 20*time.Millisecond)
		defer cancel()
		_, err := b.Get(short, "never")
		var we *WaitError
		if !errors.Is(err, ErrWait) || !errors.Is(err, context.DeadlineExceeded) || !errors.As(err, &we) || we.Key != "never" {
			t.Errorf("expired Get: %v", err)
		}
		if err := b.Set(ctx, "after", nil); err != nil {
			t.Errorf("the store after an expired Get: %v", err)
		}
	})
}

func TestBarrier(t *testing.T) {
	eachStore(t, func(t *testing.T, a, b Store) {
		ctx := within(t, 10*time.Second)
		var wg sync.WaitGroup
		for r := range 4 {
			wg.Go(func() {
				if err := Barrier(ctx, []Store{a, b}[r%2], "all", r, 4); err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		for _, r := range []int{0, 2} {
			wg.Go(func() {
				short, cancel := context.WithTimeout(ctx, 100*time.Millisecond)
				defer cancel()
				err := Barrier(short, b, "some", r, 4)
				var be *BarrierError
				if !errors.As(err, &be) || !slices.Equal(be.Missing, []int{1, 3}) || be.Rank != r {
					t.Errorf("rank %d: %v", r, err)
				}
			})
		}
		wg.Wait()
	})
}

func TestLimits(t *testing.T) {
	eachStore(t, func(t *testing.T, a, b Store) {
		ctx := within(t, 10*time.Second)
		var pe *ProtocolError
		for _, key := range []string{"", strings.Repeat("k", MaxKey+1)} {
			if err := b.Set(ctx, key, nil); !errors.As(err, &pe) {
				t.Errorf("key of %d bytes: %v", len(key), err)
			}
		}
		if err := b.Set(ctx, "v", make([]byte, MaxValue+1)); !errors.As(err, &pe) {
			t.Errorf("value too long: %v", err)
		}
	})
}

func TestCloseReleasesWaiters(t *testing.T) {
	noLeaks(t)
	s, err := Listen(t.Context(), "127.0.0.1:0", "job7")
	if err != nil {
		t.Fatal(err)
	}
	c, err := Dial(t.Context(), s.Addr())
	if err != nil {
		t.Fatal(err)
	}
	if c.Nonce() != "job7" {
		t.Errorf("nonce %q", c.Nonce())
	}
	errs := make(chan error, 2)
	go func() { _, err := c.Get(context.Background(), "x"); errs <- err }()
	go func() { _, err := s.Get(context.Background(), "x"); errs <- err }()
	time.Sleep(10 * time.Millisecond)
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	for range 2 {
		err := <-errs
		var ce *ConnError
		if !errors.Is(err, ErrClosed) && !errors.As(err, &ce) {
			t.Errorf("waiter got %v", err)
		}
	}
	if err := c.Set(context.Background(), "x", nil); err == nil {
		t.Error("Set after the service ended succeeded")
	}
	c.Close()
	if err := s.Close(); err != nil {
		t.Errorf("second Close: %v", err)
	}
}

func TestDialWaitsForServer(t *testing.T) {
	noLeaks(t)
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	addr := ln.Addr().String()
	ln.Close()
	short, cancel := context.WithTimeout(t.Context(), 30*time.Millisecond)
	defer cancel()
	var ce *ConnError
	if _, err := Dial(short, addr); !errors.As(err, &ce) || !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("nobody listens: %v", err)
	}
	started := make(chan *Server, 1)
	time.AfterFunc(30*time.Millisecond, func() {
		s, err := Listen(context.Background(), addr, "")
		if err != nil {
			t.Error(err)
		}
		started <- s
	})
	c, err := Dial(within(t, 10*time.Second), addr)
	s := <-started
	if s == nil {
		return
	}
	defer s.Close()
	if err != nil {
		t.Fatal(err)
	}
	c.Close()
}

// TestWrongProtocol talks to a server as strangers do.
func TestWrongProtocol(t *testing.T) {
	noLeaks(t)
	s, err := Listen(t.Context(), "127.0.0.1:0", "")
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	raw := func(b []byte) (frame, error) {
		c, err := net.Dial("tcp", s.Addr())
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		c.SetDeadline(time.Now().Add(5 * time.Second))
		c.Write(b)
		return readFrame(c, maxHello)
	}
	var newer bytes.Buffer
	writeFrame(&newer, frame{wireVersion + 1, opHello, 9, request("", []byte(helloMagic))})
	if f, err := raw(newer.Bytes()); err != nil || f.code != stVersion || f.id != 9 {
		t.Errorf("newer version: %+v, %v", f, err)
	}
	var early bytes.Buffer
	writeFrame(&early, frame{wireVersion, opSet, 1, request("k")})
	if f, err := raw(early.Bytes()); err != nil || f.code != stRefused {
		t.Errorf("no hello: %+v, %v", f, err)
	}
	if _, err := raw([]byte("GET / HTTP/1.1\r\nHost: x\r\n\r\n")); err != io.EOF {
		t.Errorf("other protocol: %v", err)
	}

	// And a client that meets something else.
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	go func() {
		c, err := ln.Accept()
		if err != nil {
			return
		}
		readFrame(c, maxHello)
		writeFrame(c, frame{wireVersion + 1, stVersion, 0, []byte("other version")})
		c.Close()
	}()
	var pe *ProtocolError
	if _, err := Dial(within(t, 5*time.Second), ln.Addr().String()); !errors.As(err, &pe) || !strings.Contains(err.Error(), "other version") {
		t.Errorf("Dial: %v", err)
	}
}

func FuzzFrame(f *testing.F) {
	var b bytes.Buffer
	writeFrame(&b, frame{1, opCAS, 3, request("key", casPayload([]byte("old")), []byte("new"))})
	f.Add(b.Bytes())
	f.Add(binary.BigEndian.AppendUint32(nil, 1<<31))
	f.Fuzz(func(t *testing.T, b []byte) {
		fr, err := readFrame(io.LimitReader(bytes.NewReader(b), 1<<16), maxFrame)
		if err != nil {
			return
		}
		if key, p, ok := splitRequest(fr.body); ok {
			if !bytes.Equal(request(key, p), fr.body) {
				t.Error("request does not round-trip")
			}
			splitCAS(p)
		}
	})
}

func BenchmarkSetGet(b *testing.B) {
	s, err := Listen(b.Context(), "127.0.0.1:0", "")
	if err != nil {
		b.Fatal(err)
	}
	defer s.Close()
	c, err := Dial(b.Context(), s.Addr())
	if err != nil {
		b.Fatal(err)
	}
	defer c.Close()
	v := make([]byte, 256)
	for b.Loop() {
		if err := c.Set(b.Context(), "k", v); err != nil {
			b.Fatal(err)
		}
		if _, err := c.Get(b.Context(), "k"); err != nil {
			b.Fatal(err)
		}
	}
}
