package rendezvous

import (
	"context"
	"errors"
	"net"
	"reflect"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed-ee968945/concert/internal/leak"
)

// TestRelayWaits: a rank that others are behind ends when they have left, or when none of them
// can be waiting for another any more; at once, if the world has not formed.
func TestRelayWaits(t *testing.T) {
	for _, test := range []struct {
		name           string
		outcome        message
		timeout, leave time.Duration
		want           time.Duration
	}{
		{"left", message{}, time.Hour, time.Minute, time.Minute},
		{"time is up", message{}, time.Hour, 2 * time.Hour, time.Hour},
		{"without a limit", message{}, 0, 1000 * time.Hour, 1000 * time.Hour},
		{"no world", message{Err: EncodeError(errInjected, maxReason)}, time.Hour, time.Minute, lingerLimit},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRelay(tree{2, 4}, 2, test.timeout)
				go r.up.pump(func([]*message) error { return nil })
				own := r.add(2, newOutbox())
				behind := r.join(hello{Version: protocolVersion, World: 4, Rank: 3}, newOutbox())
				test.outcome.Kind = kindOutcome
				r.down(&test.outcome)
				start := time.Now()
				must(r.receive(own, &message{Kind: kindLeave, Rank: 2, Who: []int{2}}))
				time.AfterFunc(test.leave, func() { must(r.receive(behind, &message{Kind: kindLeave, Rank: 3, Who: []int{3}})) })
				if r.linger(lingerLimit); time.Since(start) != test.want {
					t.Errorf("it waits for %v, want %v", time.Since(start), test.want)
				}
				time.Sleep(test.leave)
				synctest.Wait()
			})
		})
	}
}

// TestRelayLeft: ranks that continue after one that has left, and whose process has ended, have
// neither died nor left: nobody's world breaks, but what needs their sessions does. Behind one that
// dies they are lost.
func TestRelayLeft(t *testing.T) {
	for leaves, want := range map[bool][]Event{
		true:  {{Kind: Left, Rank: 2}, {Kind: Cut, Rank: 3, Via: 2}},
		false: {{Kind: Lost, Rank: 2}, {Kind: Lost, Rank: 3}},
	} {
		c := newCoordinator(hello{World: 4}, tree{2, 4})
		root := newOutbox()
		c.join(hello{World: 4}, root)
		c.join(hello{World: 4, Rank: 1}, newOutbox())
		l := c.join(hello{World: 4, Rank: 2, Address: "x"}, newOutbox())
		c.ask(hello{World: 4, Rank: 3}, newOutbox())
		must(c.receive(l, &message{Kind: kindHello, Hello: &hello{World: 4, Rank: 3}}))
		if leaves {
			must(c.receive(l, &message{Kind: kindLeave, Who: []int{2}}))
		}
		c.end(l)
		g := newSession(Place{World: 4}).job()
		var got []Event
		g.Watch(func(e Event) { got = append(got, e) })
		ctx, stop := g.Sub("", []int{3, 0}).Context(t.Context(), "x")
		defer stop()
		for _, m := range root.queue {
			g.s.receive(m)
		}
		if !reflect.DeepEqual(got, want) {
			t.Errorf("the relay leaves: %v; rank 0 hears %+v", leaves, got)
		}
		var lost *PeerLostError
		if err := context.Cause(ctx); !errors.As(err, &lost) || lost.Left != leaves || leaves && lost.Peer != 2 {
			t.Errorf("the relay leaves: %v; %v", leaves, err)
		}
		if e := c.missed(3); e.Peer != 2 || e.Left != leaves {
			t.Errorf("the relay leaves: %v; %v", leaves, e)
		}
	}
}

// TestRelayTold: what rank 0 asks a relay is answered, though rank 0 takes one to be lost that
// the relay waits for.
func TestRelayTold(t *testing.T) {
	r := newRelay(tree{2, 8}, 4, 0)
	r.add(4, newOutbox())
	r.join(hello{Version: protocolVersion, World: 8, Rank: 6, Address: "x"}, newOutbox())
	r.down(&message{Kind: kindAsk})
	r.down(&message{Kind: kindGone, Who: []int{6}, Rank: 6, Lost: true})
	if last := r.up.queue[len(r.up.queue)-1]; last.Kind != kindAnswer || len(r.asks) > 0 {
		t.Errorf("rank 0 hears %+v, %d questions are left", last, len(r.asks))
	}
}

// TestMissingWhileAsking: one whose time is up while it waits for its parent does not take those
// to be missing who have come, and whom their relay holds back.
func TestMissingWhileAsking(t *testing.T) {
	c := newCoordinator(hello{World: 8}, tree{2, 8})
	c.after = func(time.Duration, func()) {}
	h := func(rank int) hello { return hello{World: 8, Rank: rank, Address: "x"} }
	root := newOutbox()
	for r, l := range map[int]*link{0: c.join(h(0), root), 1: c.join(h(1), newOutbox())} {
		must(c.receive(l, &message{Kind: kindArrive, Arrival: &arrival{Who: []int{r}}}))
	}
	relay := newOutbox()
	l := c.join(h(4), relay)
	asks := newOutbox()
	c.ask(h(3), asks)
	for _, r := range []int{5, 6} {
		own := h(r)
		c.ask(own, newOutbox())
		must(c.receive(l, &message{Kind: kindHello, Hello: &own}))
	}
	must(c.answer(3, asks, &message{Kind: kindCancel, Late: true, Err: EncodeError(context.DeadlineExceeded, maxReason)}))
	if last := relay.queue[len(relay.queue)-1]; last.Kind != kindAsk {
		t.Fatalf("the relay hears %+v", last)
	}
	must(c.receive(l, &message{Kind: kindArrive, Arrival: &arrival{Who: []int{4, 5, 6}}}))
	must(c.receive(l, &message{Kind: kindAnswer}))
	outcome(t, root)
	var late *TimeoutError
	if err := DecodeError(root.queue[len(root.queue)-1].Err); !errors.As(err, &late) || !slices.Equal(late.Missing, []int{2, 7}) {
		t.Errorf("got %v, want 2 and 7 to be missing", err)
	}
	outcome(t, asks)
}

// TestNoParent: a rank whose time is up and that does not get through to its parent says why; the
// parent is not said to have left.
func TestNoParent(t *testing.T) {
	leak.Check(t)
	job := NewJob("")
	job.base, job.asked = 2, true
	l, err := Listen(t.Context(), job)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	parent, err := net.Listen("unix", "@concert-"+newID())
	if err != nil {
		t.Fatal(err)
	}
	defer parent.Close()
	ctx, end := context.WithCancelCause(t.Context())
	joined := make(chan error, 1)
	go func() {
		_, err := Join(ctx, job, Place{Rank: 3, World: 4})
		joined <- err
	}()
	c, err := l.Accept(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	var m message
	if _, err := c.read(maxMessage, &m); err != nil {
		t.Fatal(err)
	}
	at := "unix:" + parent.Addr().String()
	if err := c.write(&message{Kind: kindHello, Data: []byte("x"), Address: at}); err != nil {
		t.Fatal(err)
	}
	raw, err := parent.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer raw.Close()
	end(context.DeadlineExceeded)
	m = message{}
	if _, err := c.read(maxMessage, &m); err != nil || m.Kind != kindCancel || !m.Late {
		t.Fatalf("rank 0 hears %+v, %v", m, err)
	}
	e := EncodeError(&TimeoutError{Peer: 3, Missing: []int{3}}, maxReason)
	if err := c.write(&message{Kind: kindOutcome, Rank: 3, Own: true, Err: e}); err != nil {
		t.Fatal(err)
	}
	var late *TimeoutError
	if err := <-joined; !errors.As(err, &late) || !strings.Contains(late.Detail, at) || !strings.Contains(late.Detail, "through rank 2") {
		t.Errorf("got %v", err)
	}
}
