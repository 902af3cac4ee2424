package rendezvous

import (
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed-ee968945/concert/internal/leak"
)

// manyRanks joins, agrees on a digest, and leaves.
func manyRanks(t testing.TB, job *Job, n int) error {
	return errors.Join(world(t, job, n, time.Minute, func(g *Group) error {
		if _, err := g.Exchange(t.Context(), Call{Facts: []Fact{{"programs", "same"}}}); err != nil {
			return err
		}
		return g.Barrier(t.Context(), "end")
	})...)
}

// TestManyRanks: more ranks come at a time than may be in their handshake.
func TestManyRanks(t *testing.T) {
	if testing.Short() {
		t.Skip("hundreds of handshakes")
	}
	leak.Check(t)
	if err := manyRanks(t, NewJob(addrs.Next()), 2*maxUnauthenticated); err != nil {
		t.Error(err)
	}
}

// BenchmarkRanks is manyRanks of goroutines, with connections and without.
func BenchmarkRanks(b *testing.B) {
	for name, job := range map[string]func() *Job{"local": NewLocal, "tcp": func() *Job { return NewJob(addrs.Next()) }} {
		for _, n := range []int{64, 512, 4096} {
			b.Run(fmt.Sprint(name, "/", n), func(b *testing.B) {
				for b.Loop() {
					if err := manyRanks(b, job(), n); err != nil {
						b.Fatal("not all are there")
					}
				}
			})
		}
	}
}

// TestLeftGroups: a job may have any number of groups one after the other.
func TestLeftGroups(t *testing.T) {
	c := newCoordinator(hello{World: 3}, tree{64, 3})
	var links []*link
	for r := range 3 {
		links = append(links, c.join(hello{World: 3, Rank: r}, newOutbox()))
	}
	say := func(rank int, key string, k kind) {
		m := &message{Kind: k, Group: key, Rank: rank, Ranks: []int{0, 2}, Who: []int{rank}, Arrival: &arrival{Who: []int{rank / 2}}}
		if err := c.receive(links[rank], m); err != nil {
			t.Fatalf("group %s: %v", key, err)
		}
	}
	for i := range maxGroups {
		key := fmt.Sprint("/", i)
		say(0, key, kindArrive)
		say(2, key, kindArrive)
		say(0, key, kindLeave)
		say(2, key, kindLeave)
	}
	say(0, "/last", kindLeave)
	if c.end(links[2]); len(c.groups) != 1 {
		t.Errorf("%d groups are left", len(c.groups))
	}
}

// TestOutboxJoins: what one message says of several ranks is told as one, without a copy for
// each, and leaves what other outboxes have as it is.
func TestOutboxJoins(t *testing.T) {
	o, other := newOutbox(), newOutbox()
	const n = 4096
	gone := func(r int) *message { return &message{Kind: kindGone, Who: []int{r}, coded: &coded{}} }
	first := gone(0)
	o.put(first)
	other.put(first)
	last, ranks, grown := (*message)(nil), (*int)(nil), 0
	for r := 1; r <= n; r++ {
		o.put(gone(r))
		if r > 1 && o.queue[0] != last {
			t.Fatalf("rank %d: the message is copied once more", r)
		}
		if last = o.queue[0]; ranks != &last.Who[0] {
			ranks, grown = &last.Who[0], grown+1
		}
	}
	if grown > 64 { // as append grows what it appends to
		t.Errorf("the ranks are copied %d times", grown)
	}
	if len(o.queue) != 1 || o.queue[0] == first || o.queue[0].coded != nil || len(o.queue[0].Who) != n+1 || o.queue[0].Who[n] != n {
		t.Errorf("%d messages, the first of %d ranks", len(o.queue), len(o.queue[0].Who))
	}
	if other.queue[0] != first || len(first.Who) != 1 || first.coded == nil {
		t.Errorf("what another outbox has was changed: %v", first.Who)
	}
	taken := make(chan []*message, 2)
	go o.pump(func(list []*message) error { taken <- list; return nil })
	list := <-taken
	o.put(gone(1))
	o.close()
	<-o.done
	if len(list) != 1 || len(list[0].Who) != n+1 {
		t.Errorf("what was handed on was changed: %d messages of %d ranks", len(list), len(list[0].Who))
	}
}

// TestFlushOfBroken: who waits until a session has sent what it has hears that it sends no more.
func TestFlushOfBroken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o, breaks := newOutbox(), make(chan struct{})
		o.put(&message{})
		go o.pump(func([]*message) error { <-breaks; return errors.New("the connection is gone") })
		synctest.Wait()
		flushed := make(chan bool)
		go func() { flushed <- o.flush(time.After(time.Minute)) }()
		synctest.Wait()
		close(breaks)
		start := time.Now()
		if !<-flushed || time.Since(start) > 0 || !o.flush(nil) {
			t.Errorf("it waited for %v", time.Since(start))
		}
	})
}
