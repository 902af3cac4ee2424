package progress

import (
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/seed-ee968945/concert/runtime/rendezvous"
)

// linked runs body on ranks of one job.
func linked(t *testing.T, n int, body func(rank int, l *Link) error) {
	t.Helper()
	job := rendezvous.NewLocal()
	var wg sync.WaitGroup
	for r := range n {
		wg.Go(func() {
			g, err := rendezvous.Join(t.Context(), job, rendezvous.Place{Rank: r, World: n, Timeout: 5 * time.Minute})
			if err != nil {
				t.Error(err)
				return
			}
			defer g.Close()
			l := NewLink(g, func() []*Log {
				g := NewLog("g", g.Ranks())
				g.Add(make([]Call, 10+r))
				return []*Log{g}
			}, func() {})
			defer l.Close()
			if err := errors.Join(g.Barrier(t.Context(), "listening"), body(r, l)); err != nil {
				t.Errorf("rank %d: %v", r, err)
			}
		})
	}
	wg.Wait()
}

// Counts are told, and those of a rank that leaves are heard before who waits for it.
func TestLink(t *testing.T) {
	linked(t, 3, func(rank int, l *Link) error {
		if rank == 1 {
			for r, c := range l.ask(20 * time.Second) {
				if c["g"] != uint64(10+r) {
					return fmt.Errorf("rank %d told %v", r, c)
				}
			}
		}
		if err := l.job.Barrier(t.Context(), "told"); err != nil {
			return err
		}
		if rank == 2 {
			l.Leave(0)
			return nil
		}
		err := l.job.Barrier(t.Context(), "without rank 2")
		var lost *rendezvous.PeerLostError
		if !errors.As(err, &lost) || !lost.Left || lost.Peer != 2 || lost.Rank != rank {
			return fmt.Errorf("a barrier with a rank that left: %w", err)
		}
		l.until(20*time.Second, func() bool { return l.left[2] })
		if left, counts := l.quit(2); !left || counts["g"] != 12 {
			return fmt.Errorf("rank 2: %v %v", left, counts)
		}
		return nil
	})
}

// The first report of a broken world counts, everywhere.
func TestLinkBreaks(t *testing.T) {
	linked(t, 2, func(rank int, l *Link) error {
		if rank == 1 {
			l.Break(errors.New("of rank 1"))
			return l.job.Barrier(t.Context(), "told")
		}
		if err := l.job.Barrier(t.Context(), "told"); err != nil {
			return err
		}
		l.Break(errors.New("of rank 0")) // says nothing: it is known
		if from, err := l.reason(); from != 1 || err == nil || err.Error() != "of rank 1" {
			return fmt.Errorf("the reason is %v of rank %d", err, from)
		}
		return nil
	})
}

// A rank that is cut off goes on: what waits for it is not told that it has left, and names it only
// when time is up.
func TestLinkCut(t *testing.T) {
	linked(t, 2, func(rank int, l *Link) error {
		at := rendezvous.Where{Op: "x", Rank: rank}
		l.receive(rendezvous.Event{Kind: rendezvous.Cut, Rank: 1 - rank, Via: 1 - rank})
		if err := l.Missed(at); err != nil {
			return err
		}
		return l.job.Barrier(t.Context(), "asked")
	})
}
