package rendezvous

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/seed-ee968945/concert/internal/leak"
)

var (
	errInjected = errors.New("injected")
	errJoining  = errors.New("joining")
)

// faults disturbs one read or write of all connections of a job: the nth.
type faults struct {
	ops  atomic.Int64
	nth  int64
	kind fault
}

// limit is the deadline of a job. Only a length that is wrong may leave somebody waiting until
// then, for what never comes; how long sixteen jobs at a time take depends on the machine.
func (f *faults) limit() time.Duration {
	if f.kind == longer && f.nth > 0 {
		return time.Second
	}
	return time.Hour
}

// fault is what becomes of a read or a write.
type fault string

const (
	cut       fault = "cut"       // the connection ends before it, as by the death of a process or machine
	truncated fault = "truncated" // it ends within it
	garbage   fault = "garbage"   // a byte is another; of writes only, since all that is read was written
	longer    fault = "longer"    // likewise, and the record claims more bytes than it has
	delayed   fault = "delayed"
)

type faultyConn struct {
	net.Conn
	f *faults
}

func (f *faults) wrap(c net.Conn) net.Conn { return &faultyConn{c, f} }

// hit counts an operation, and reports whether it is the one. What others do meanwhile
// happens before a delayed one.
func (c *faultyConn) hit(write bool) bool {
	if (c.f.kind == garbage || c.f.kind == longer) && !write || c.f.ops.Add(1) != c.f.nth {
		return false
	}
	if c.f.kind == delayed {
		time.Sleep(20 * time.Millisecond)
	}
	return true
}

func (c *faultyConn) Read(b []byte) (int, error) {
	if !c.hit(false) {
		return c.Conn.Read(b)
	}
	switch c.f.kind {
	case cut:
		c.Close()
		return 0, errInjected
	case truncated:
		n, err := c.Conn.Read(b[:max(len(b)/2, 1)])
		c.Close()
		return n, err
	}
	return c.Conn.Read(b)
}

func (c *faultyConn) Write(b []byte) (int, error) {
	if !c.hit(true) {
		return c.Conn.Write(b)
	}
	switch c.f.kind {
	case cut:
		c.Close()
		return 0, errInjected
	case truncated:
		n, _ := c.Conn.Write(b[:len(b)/2])
		c.Close()
		return n, errInjected
	case garbage:
		b = bytes.Clone(b)
		b[len(b)-1] ^= 0x55 // a write ends with a record, so this is never a length
	case longer:
		b = bytes.Clone(b)
		b[min(4, len(b)-1)]++
	}
	return c.Conn.Write(b)
}

// everything is what a rank does in the faults' tests: joining, barriers, exchanges,
// notices, descriptors, groups, leaving.
func everything(ctx context.Context, job *Job, p Place) error {
	rank, world := p.Rank, p.World
	g, err := Join(ctx, job, p)
	if err != nil {
		return fmt.Errorf("%w: %w", errJoining, err)
	}
	defer g.Close()
	if _, err := g.Exchange(ctx, Call{Data: []byte("x"), Facts: []Fact{{"a", "b"}}}); err != nil {
		return err
	}
	g.Notify([]byte("y"))
	if rank < 2 {
		if err := g.Sub("s", []int{1, 0}).Barrier(ctx, "sub"); err != nil {
			return err
		}
	}
	if world > 2 { // what follows goes over connections of its own
		return g.Barrier(ctx, "end")
	}
	f, err := os.Open(os.DevNull)
	if err != nil {
		return err
	}
	defer f.Close()
	fds, err := g.ExchangeFiles(ctx, "files", int(f.Fd()))
	CloseFiles(fds...)
	if err != nil {
		return err
	}
	conns, err := g.Connect(ctx, "links", []bool{rank != 0, rank != 1})
	for _, c := range conns {
		if c != nil {
			c.Close()
		}
	}
	if err != nil {
		return err
	}
	return g.Barrier(ctx, "end")
}

// job runs everything on two ranks with a fault, or on four of which one reaches rank 0 through
// another, and says how many operations that were.
func (f *faults) job(t *testing.T, addr string) (int64, []error) {
	job, world := NewJob(""), 2
	switch addr {
	case "tcp":
		job = NewJob(addrs.Next())
	case "relays":
		job, world = NewJob(addrs.Next()), 4
		job.base = 2
	}
	job.wrap = f.wrap
	ctx, cancel := context.WithTimeout(t.Context(), f.limit())
	defer cancel()
	joining, fail := context.WithCancelCause(ctx)
	defer fail(nil)
	errs := make([]error, world)
	var wg sync.WaitGroup
	for r := range errs {
		wg.Go(func() {
			errs[r] = everything(joining, job, Place{Rank: r, World: world, Timeout: f.limit()})
			if errors.Is(errs[r], errJoining) { // rank 0 cannot know who did not get to say hello: its launcher ends it
				fail(errs[r])
			}
		})
	}
	wg.Wait()
	return f.ops.Load(), errs
}

// TestEveryMessageFails disturbs every read and write of a job in turn. Every rank ends,
// with an error of this package or well, nobody runs into a deadline unless a length is wrong, and
// nothing is left.
func TestEveryMessageFails(t *testing.T) {
	for _, addr := range []string{"unix", "tcp", "relays"} {
		for _, kind := range []fault{cut, truncated, garbage, longer, delayed} {
			t.Run(addr+"/"+string(kind), func(t *testing.T) {
				leak.Check(t)
				total, errs := (&faults{kind: kind}).job(t, addr)
				if err := errors.Join(errs...); err != nil {
					t.Fatal(err)
				}
				var wg sync.WaitGroup
				var failed atomic.Int64
				slots := make(chan struct{}, 16) // a connection that ends alone is believed after a second only
				for n := int64(1); n <= total; n++ {
					if testing.Short() && n%7 != 0 {
						continue
					}
					slots <- struct{}{}
					wg.Go(func() {
						defer func() { <-slots }()
						_, errs := (&faults{nth: n, kind: kind}).job(t, addr)
						for r, err := range errs {
							if err == nil {
								continue
							}
							failed.Add(1)
							typed := errors.Is(err, ErrPeerLost) || errors.Is(err, ErrCanceled) || errors.Is(err, ErrClosed)
							if late := errors.Is(err, ErrTimeout); kind == delayed || kind != longer && late || !typed && !late {
								t.Errorf("operation %d of %d: rank %d: %v", n, total, r, err)
							}
						}
					})
				}
				wg.Wait()
				t.Logf("%d operations, %d errors", total, failed.Load())
			})
		}
	}
}

// TestUnauthenticated lets others than the ranks connect: none of them may keep a world
// from forming, or get anything.
func TestUnauthenticated(t *testing.T) {
	leak.Check(t)
	job := NewJob(addrs.Next())
	errs := make([]error, 2)
	var wg sync.WaitGroup
	join := func(r int) {
		wg.Go(func() {
			g, err := Join(t.Context(), job, Place{Rank: r, World: 2})
			if errs[r] = err; err == nil {
				errs[r] = g.Close()
			}
		})
	}
	join(0)
	dial := func() net.Conn {
		for t.Context().Err() == nil {
			if c, err := net.Dial("tcp", strings.TrimPrefix(job.Addr, "tcp:")); err == nil {
				t.Cleanup(func() { c.Close() })
				return c
			}
		}
		return nil
	}
	for range 2 * maxUnauthenticated { // more than are heard at a time; they say nothing
		dial()
	}
	for _, b := range []string{strings.Repeat("x", 1000), "GET / HTTP/1.1\r\n\r\n", "\x16\x03\x01\xff\xff"} {
		c := dial()
		if _, err := c.Write([]byte(b)); err != nil {
			t.Error(err)
		}
		c.(*net.TCPConn).CloseWrite()
		got, _ := io.ReadAll(c) // an alert of TLS at most
		if len(got) > 64 || bytes.Contains(got, []byte(job.Secret.Reveal())) {
			t.Errorf("%q was answered with %q", b, got)
		}
	}
	join(1)
	wg.Wait()
	if err := errors.Join(errs...); err != nil {
		t.Error(err)
	}
}

// TestImpostor listens in rank 0's place, without the secret: who dials says nothing but
// the greeting of TLS.
func TestImpostor(t *testing.T) {
	leak.Check(t)
	job := NewJob("")
	other := &Job{ID: job.ID, Secret: NewSecret(), Addr: job.Addr, asked: true}
	l, err := Listen(t.Context(), other)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	_, err = Join(t.Context(), job, Place{Rank: 1, World: 2})
	if !errors.Is(err, ErrMismatch) || !strings.Contains(err.Error(), "secrets") || strings.Contains(err.Error(), job.Secret.Reveal()) {
		t.Errorf("got %v", err)
	}
	if _, err := Dial(t.Context(), job); !errors.Is(err, ErrUnauthenticated) {
		t.Errorf("got %v", err)
	}
	job.base = 2 // a rank that asks for its parent
	if _, err = Join(t.Context(), job, Place{Rank: 3, World: 4}); !errors.Is(err, ErrMismatch) || !strings.Contains(err.Error(), "secrets") {
		t.Errorf("got %v", err)
	}
}

// TestFrozen: who leaves waits for no answer. The coordinator reads again when Close has
// returned, and finds that the rank has left in order.
func TestFrozen(t *testing.T) {
	for _, addr := range []string{"unix", "tcp"} {
		t.Run(addr, func(t *testing.T) {
			leak.Check(t)
			job := NewJob("")
			if addr == "tcp" {
				job = NewJob(addrs.Next())
			}
			l, err := Listen(t.Context(), job)
			if err != nil {
				t.Fatal(err)
			}
			defer l.Close()
			left := make(chan struct{})
			var wg sync.WaitGroup
			wg.Go(func() {
				g, err := Join(t.Context(), job, Place{Rank: 1, World: 2})
				if err != nil {
					t.Error(err)
				} else {
					g.Close()
				}
				close(left)
			})
			defer wg.Wait()
			c, err := l.Accept(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			for _, m := range []*message{{Kind: kindHello, Data: []byte("x")}, {Kind: kindOutcome, Turn: 0}} {
				var got message
				if _, err := c.read(maxMessage, &got); err != nil {
					t.Fatal(err)
				}
				if err := c.write(m); err != nil {
					t.Fatal(err)
				}
			}
			<-left
			var got message
			if _, err := c.read(maxMessage, &got); err != nil || got.Kind != kindLeave {
				t.Fatalf("got %+v, %v", got, err)
			}
			if _, err := c.read(maxMessage, &got); err == nil {
				t.Fatalf("got %+v behind leaving", got)
			}
		})
	}
}

// TestSecretHides: no way of printing a job shows its secret.
func TestSecretHides(t *testing.T) {
	j := NewJob("")
	text, err := j.Secret.MarshalText()
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range []string{fmt.Sprintf("%v %+v %#v %s", j, *j, *j, j.Secret), fmt.Sprint(struct{ j Job }{*j}), string(text), j.Secret.LogValue().String()} {
		if strings.Contains(s, j.Secret.Reveal()) {
			t.Errorf("%q shows the secret", s)
		}
	}
	again, err := ParseJob(j.Token())
	if err != nil || again.ID != j.ID || again.Addr != j.Addr || again.Secret.Reveal() != j.Secret.Reveal() {
		t.Errorf("%+v, %v", again, err)
	}
	for _, s := range []string{"", "id", "id 0123456789abcdef", "id short tcp:a:1", "id 0123456789abcdef udp:a:1", " 0123456789abcdef tcp:a:1", "id 0123456789abcdef tcp:a:1 x y"} {
		if _, err := ParseJob(s); err == nil || strings.Contains(err.Error(), "0123456789") {
			t.Errorf("%q: %v", s, err)
		}
	}
}

// FuzzFrame reads what anybody may send.
func FuzzFrame(f *testing.F) {
	b, err := frame(message{Kind: kindArrive, Arrival: &arrival{Who: []int{1}, Data: []rankData{{At: 1, Data: []byte("x")}}}}, 0)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(b)
	f.Add([]byte{0xff, 0xff, 0xff, 0xff, 0})
	f.Fuzz(func(t *testing.T, b []byte) {
		var m message
		readFrame(bytes.NewReader(b), 1<<12, &m)
	})
}

// FuzzCoordinator hands a coordinator what a rank of the job may send that breaks the
// protocol, as a relay with two ranks behind it: it refuses it or goes on, and the other ranks
// still get outcomes.
func FuzzCoordinator(f *testing.F) {
	f.Add([]byte{2, 0, 0, 1, 3, 1, 1, 2, 5, 0, 0, 0})
	f.Add([]byte{3, 0, 1, 0, 3, 0, 0, 0, 6, 1, 0, 0, 2, 0, 0, 1})
	f.Fuzz(func(t *testing.T, b []byte) {
		c := newCoordinator(hello{World: 8}, tree{2, 8})
		c.after = func(_ time.Duration, f func()) {}
		outs := map[int]*outbox{}
		var l *link
		for _, r := range []int{0, 1, 2, 4} {
			outs[r] = newOutbox()
			if x := c.join(hello{World: 8, Rank: r}, outs[r]); r == 4 {
				l = x
			}
		}
		outs[3], outs[5] = newOutbox(), newOutbox()
		c.ask(hello{World: 8, Rank: 3}, outs[3])
		c.ask(hello{World: 8, Rank: 5}, outs[5])
		if feed(b, func(m *message) error {
			if m.Turn == 77 {
				return c.answer(5, outs[5], m)
			}
			return c.receive(l, m)
		}) != nil {
			c.requesterLost(5, outs[5])
			c.end(l)
		}
		own, _ := c.find(0)
		if own := c.links[own]; c.receive(own, &message{Kind: kindArrive, Arrival: &arrival{Who: []int{0}}}) != nil {
			t.Fatal("an honest rank is refused")
		}
		c.requesterLost(5, outs[5])
		c.end(l)
		c.answer(3, outs[3], &message{Kind: kindCancel, Err: EncodeError(errInjected, maxReason)})
		for _, r := range []int{0, 1, 3} {
			outcome(t, outs[r])
		}
	})
}

// FuzzRelay hands a relay what those below it and its parent may not send.
func FuzzRelay(f *testing.F) {
	f.Add([]byte{2, 0, 0, 1, 3, 1, 1, 2, 5, 0, 0, 0})
	f.Add([]byte{0x89, 0, 0, 0, 10, 0, 0, 0, 8, 1, 0, 0, 2, 0, 0, 1})
	f.Fuzz(func(t *testing.T, b []byte) {
		r := newRelay(tree{2, 8}, 4, 0)
		own, one := newOutbox(), newOutbox()
		r.add(4, own)
		r.join(hello{Version: protocolVersion, World: 8, Rank: 5}, one)
		l := r.join(hello{Version: protocolVersion, World: 8, Rank: 6}, newOutbox())
		if feed(b, func(m *message) error {
			if m.Late && m.Come {
				r.down(m)
				return nil
			}
			return r.receive(l, m)
		}) != nil {
			r.end(l)
		}
		r.down(&message{Kind: kindOutcome})
		r.orphan()
		outcome(t, own)
		if !own.closed || !one.closed || !r.up.closed {
			t.Fatal("a session goes on without a way to rank 0")
		}
	})
}

// feed makes messages of bytes.
func feed(b []byte, f func(*message) error) error {
	groups := []string{"", "/a", "/b", strings.Repeat("x", 2000)}
	members := [][]int{nil, {4, 6}, {1, 5, 6, 7}, {-1, 5}}
	for ; len(b) >= 4; b = b[4:] {
		m := &message{Kind: kind(b[0] % 14), Group: groups[b[1]&3], Ranks: members[b[1]>>2&3], Rank: int(b[1] >> 4 & 7), Turn: int(int8(b[2])), Come: b[3]&1 != 0, Late: b[3]&2 != 0, Lost: b[3]&8 != 0}
		m.Who = []int{int(b[3] >> 4), m.Rank}
		if b[3]&4 != 0 {
			m.Arrival = &arrival{Who: m.Who, Facts: []rankFacts{{At: m.Rank}}, Data: []rankData{{At: int(b[0] >> 4)}}}
			m.Hello = &hello{Version: protocolVersion, World: 8, Rank: m.Rank, Address: "tcp:x:1"}
		}
		if b[0]&0x80 != 0 {
			m.Arrival = &arrival{Who: []int{m.Rank}, Facts: []rankFacts{{At: m.Rank}}}
		}
		if err := f(m); err != nil {
			return err
		}
	}
	return nil
}

// outcome finds what became of the job's barrier 0.
func outcome(t *testing.T, o *outbox) {
	t.Helper()
	for _, x := range o.queue {
		if x.Kind == kindOutcome && x.Group == "" && x.Turn == 0 {
			return
		}
	}
	t.Fatalf("no outcome in %v", o.queue)
}
