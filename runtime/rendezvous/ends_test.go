package rendezvous

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// endingConn calls end when a read has brought the rest of a message.
type endingConn struct {
	net.Conn
	reads int
	end   func()
}

func (c *endingConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if c.reads++; c.reads == 2 {
		c.end()
	}
	return n, err
}

// TestReceiveAtTheEnd: a context that ends when a message has come leaves the connection to who
// has it then.
func TestReceiveAtTheEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := net.Pipe()
		defer a.Close()
		defer b.Close()
		ctx, end := context.WithCancel(t.Context())
		late := &endingConn{Conn: b, end: end}
		from, to := &Conn{raw: a, tls: a}, &Conn{raw: late, tls: late}
		go func() {
			from.write(message{Kind: kindHello})
			from.write(message{Kind: kindGone})
		}()
		for _, c := range []context.Context{ctx, t.Context()} {
			var m message
			if _, err := to.Receive(c, maxHello, &m); err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
		}
	})
}

// TestUnproved: who connects and does not prove itself is dropped when it has had its time.
func TestUnproved(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := net.Pipe()
		defer b.Close()
		l := &Listener{job: &Job{}, cfg: &tls.Config{}, ctx: t.Context(), room: make(chan struct{}, 1)}
		start := time.Now()
		l.serve(a)
		if d := time.Since(start); d != handshakeLimit || l.refused != 1 || l.last != errUnproved {
			t.Errorf("after %v: %d refused, %v", d, l.refused, l.last)
		}
	})
}

// TestSilence: a read fails when nothing has come for its limit, or when reads are to end.
func TestSilence(t *testing.T) {
	for _, ends := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			a, b := net.Pipe()
			defer a.Close()
			defer b.Close()
			c := &Conn{raw: a, tls: a}
			want := time.Minute
			if ends {
				want = time.Second
				c.LimitReads(want)
			}
			start := time.Now()
			_, err := c.Reader(time.Minute).ReadByte()
			if d := time.Since(start); !errors.Is(err, os.ErrDeadlineExceeded) || d != want {
				t.Errorf("%v after %v, want it after %v", err, d, want)
			}
		})
	}
}

// TestAllEnded: who has waited for a hub's sessions finds its listener closed as well.
func TestAllEnded(t *testing.T) {
	for range 20 {
		ln, err := Listen(t.Context(), NewJob(""))
		if err != nil {
			t.Fatal(err)
		}
		c := newCoordinator(hello{World: 2}, tree{2, 2})
		serveJoins(ln, c, c.formed, &c.sessions)
		close(c.formed)
		if c.sessions.Wait(); ln.ctx.Err() == nil {
			t.Fatal("it listens")
		}
	}
}

// TestStuckParent: a relay whose parent takes nothing any more does not wait for it longer than
// any other rank that leaves.
func TestStuckParent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := net.Pipe()
		defer b.Close()
		s := newSession(Place{Rank: 2, World: 4})
		r := newRelay(tree{2, 4}, 2, time.Hour)
		s.remote(&Conn{raw: a, tls: a}, r)
		r.down(&message{Kind: kindOutcome})
		start := time.Now()
		if s.job().Close(); time.Since(start) != closeLimit {
			t.Errorf("it waits for %v", time.Since(start))
		}
	})
}

// TestJoinsNoMore: nobody joins a relay whose own rank has left, behind whose back rank 0 would
// have to know of it.
func TestJoinsNoMore(t *testing.T) {
	r := newRelay(tree{2, 4}, 2, 0)
	must(r.receive(r.add(2, newOutbox()), &message{Kind: kindLeave, Rank: 2, Who: []int{2}}))
	out := newOutbox()
	if r.join(hello{Version: protocolVersion, World: 4, Rank: 3}, out) != nil || len(out.queue) != 1 || out.queue[0].Kind != kindGone {
		t.Errorf("rank 3 hears %v", out.queue)
	}
}

// TestFrozenBelow: what a relay knows of those who have come it says at once when it is asked,
// though a relay behind it does not answer.
func TestFrozenBelow(t *testing.T) {
	r := newRelay(tree{2, 8}, 4, 0)
	own := r.add(4, newOutbox())
	r.join(hello{Version: protocolVersion, World: 8, Rank: 6, Address: "x"}, newOutbox())
	must(r.receive(own, &message{Kind: kindArrive, Rank: 4, Arrival: &arrival{Who: []int{4}}}))
	r.down(&message{Kind: kindAsk})
	if last := r.up.queue[len(r.up.queue)-1]; last.Kind != kindArrive || !slices.Equal(last.Arrival.Who, []int{4}) {
		t.Errorf("rank 0 hears %+v", last)
	}
}

// TestLostAlone: a rank that is lost because it waits for nobody does not take along those
// through whom it is reached, though more of what it said is on its way.
func TestLostAlone(t *testing.T) {
	c := newCoordinator(hello{World: 8}, tree{2, 8})
	root, relay := c.join(hello{World: 8}, newOutbox()), newRelay(tree{2, 8}, 4, 0)
	l := c.join(hello{World: 8, Rank: 4, Address: "x"}, newOutbox())
	relay.add(4, newOutbox())
	below := relay.join(hello{Version: protocolVersion, World: 8, Rank: 6, Address: "x"}, newOutbox())
	must(relay.receive(below, &message{Kind: kindHello, Hello: &hello{World: 8, Rank: 7}}))
	for rank := range 8 {
		if rank > 4 {
			c.ask(hello{World: 8, Rank: rank}, newOutbox())
			must(c.receive(l, &message{Kind: kindHello, Hello: &hello{World: 8, Rank: rank}}))
		} else if rank%4 > 0 {
			c.join(hello{World: 8, Rank: rank}, newOutbox())
		}
	}
	for turn := range 2 * maxWaits {
		said := []*message{
			{Kind: kindArrive, Turn: turn, Arrival: &arrival{Who: []int{7}}},
			{Kind: kindNotice, Rank: 7},
		}
		for _, m := range said {
			must(c.receive(l, m))
			must(relay.receive(below, m))
		}
		if c.status[7] == lost && relay.is(7) != lost {
			relay.down(&message{Kind: kindGone, Who: []int{7}, Rank: 7, Lost: true})
		}
	}
	must(c.receive(l, &message{Kind: kindArrive, Arrival: &arrival{Who: []int{4, 5, 6}}}))
	if c.status[7] != lost || c.status[6] != joined || relay.is(7) != lost || relay.is(6) != joined {
		t.Errorf("rank 0 has %v, the relay %v", c.status, relay.status)
	}
	if last := root.out.queue[len(root.out.queue)-1]; len(c.groups[""].open) > maxWaits+1 || last.Kind != kindGone && last.Kind != kindOutcome {
		t.Errorf("%d barriers are open; rank 0 hears %+v", len(c.groups[""].open), last)
	}
}

// TestLeaveTogether: what ranks of a large world say when they leave is one message.
func TestLeaveTogether(t *testing.T) {
	o := newOutbox()
	for _, r := range []int{4, 5} {
		o.put(&message{Kind: kindLeave, Rank: r, Who: []int{r}})
	}
	if len(o.queue) != 1 || !slices.Equal(o.queue[0].Who, []int{4, 5}) {
		t.Errorf("the queue is %v", o.queue)
	}
}

// TestNoAnswer: a rank that hears no outcome says through whom it would have come.
func TestNoAnswer(t *testing.T) {
	s := newSession(Place{Rank: 3, World: 4})
	s.parent = 2
	if err := s.job().failure(nil, context.DeadlineExceeded, "step", 0, 0); !strings.Contains(err.Error(), "through rank 2") {
		t.Error(err)
	}
}

// TestOwnCancelForgotten: nothing is kept of barriers that this rank itself has canceled.
func TestOwnCancelForgotten(t *testing.T) {
	eachJob(t, func(t *testing.T, job *Job) {
		errs := world(t, job, 3, time.Minute, func(g *Group) error {
			sub := g.Sub("x", []int{0, 1, 2})
			defer sub.Close()
			for _, g := range []*Group{g, sub} {
				for range 10 {
					if g.Rank() == 1 {
						g.Cancel(errors.New("why"))
					} else if err := g.Barrier(t.Context(), "x"); !errors.Is(err, ErrCanceled) {
						return fmt.Errorf("got %v", err)
					}
				}
				if err := g.Barrier(t.Context(), "behind them"); err != nil {
					return err
				}
			}
			g.s.mu.Lock()
			defer g.s.mu.Unlock()
			if n := len(g.s.canceled); n > 0 {
				return fmt.Errorf("it keeps %d outcomes", n)
			}
			return nil
		})
		if err := errors.Join(errs...); err != nil {
			t.Error(err)
		}
	})
}
