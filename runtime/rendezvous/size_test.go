package rendezvous

import (
	"errors"
	"fmt"
	"testing"
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
		m := &message{Kind: k, Group: key, Rank: rank, Ranks: []int{0, 2}, Who: []int{rank}, Came: &came{Who: []int{rank / 2}}}
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
