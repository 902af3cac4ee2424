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
