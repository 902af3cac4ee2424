package rendezvous

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed-ee968945/concert/internal/leak"
	"github.com/seed-ee968945/concert/runtime/rendezvous/loopback"
)

// eachJob runs f for ranks that are goroutines, and for ranks as processes have them
// over either kind of socket.
func eachJob(t *testing.T, f func(t *testing.T, job *Job)) {
	for name, job := range map[string]func() *Job{
		"local": NewLocal,
		"unix":  func() *Job { return NewJob("") },
		"tcp":   func() *Job { return NewJob(addrs.Next()) },
		"relays": func() *Job { // rank 3 reaches rank 0 through rank 2
			job := NewJob(addrs.Next())
			job.base = 2
			return job
		},
		"relays of unix": func() *Job {
			job := NewJob("")
			job.base = 2
			return job
		},
	} {
		t.Run(name, func(t *testing.T) {
			leak.Check(t)
			f(t, job())
		})
	}
}

var addrs loopback.Addrs

// world runs f on n ranks that have joined, and returns their errors.
func world(t testing.TB, job *Job, n int, timeout time.Duration, f func(g *Group) error) []error {
	t.Helper()
	errs := make([]error, n)
	var wg sync.WaitGroup
	for r := range n {
		wg.Go(func() {
			g, err := Join(t.Context(), job, Place{Name: "w", Rank: r, World: n, Timeout: timeout})
			if err == nil {
				err = errors.Join(f(g), g.Close())
			}
			errs[r] = err
		})
	}
	wg.Wait()
	return errs
}

func TestExchange(t *testing.T) {
	eachJob(t, func(t *testing.T, job *Job) {
		for range 2 { // one world after the other at one address
			errs := world(t, job, 4, time.Minute, func(g *Group) error {
				for i := range 10 {
					parts, err := g.Exchange(t.Context(), Call{Data: fmt.Append(nil, i, g.Rank())})
					if err != nil {
						return err
					}
					for r, p := range parts {
						if string(p.Data) != fmt.Sprint(i, r) {
							return fmt.Errorf("rank %d said %q", r, p.Data)
						}
					}
				}
				half := []int{3, 1}
				if g.Rank()%2 == 0 {
					half = []int{0, 2}
				}
				for range 2 {
					s := g.Sub("half", half)
					parts, err := s.Exchange(t.Context(), Call{Data: []byte{byte(s.Rank())}})
					if err != nil || len(parts) != 2 || parts[1].Data[0] != 1 || s.Ranks()[s.Rank()] != g.Rank() {
						return fmt.Errorf("half: %v, %w", parts, err)
					}
					s.Close()
				}
				return g.Barrier(t.Context(), "end")
			})
			if err := errors.Join(errs...); err != nil {
				t.Fatal(err)
			}
		}
	})
}

func TestFacts(t *testing.T) {
	eachJob(t, func(t *testing.T, job *Job) {
		errs := world(t, job, 3, time.Minute, func(g *Group) error {
			v := "same"
			if g.Rank() == 1 {
				v = "odd"
			}
			_, err := g.Exchange(t.Context(), Call{Op: "agreeing", Facts: []Fact{{"first", "x"}, {"second", v}}})
			var e *MismatchError
			if !errors.As(err, &e) || !errors.Is(err, ErrMismatch) || e.What != "second" || e.Rank != g.Rank() || (e.Rank == 1) != (e.RankValue == "odd") || (e.Peer == 1) != (e.PeerValue == "odd") {
				return fmt.Errorf("got %w", err)
			}
			return g.Barrier(t.Context(), "after it")
		})
		if err := errors.Join(errs...); err != nil {
			t.Error(err)
		}
	})
}

// TestCancel: a canceled barrier is canceled for all, also for who comes later, and the
// next one works.
func TestCancel(t *testing.T) {
	eachJob(t, func(t *testing.T, job *Job) {
		why := errors.New("why")
		errs := world(t, job, 3, time.Minute, func(g *Group) error {
			switch g.Rank() {
			case 0: // waits
			case 1:
				g.Cancel(why)
				return g.Barrier(t.Context(), "next")
			case 2: // comes later
				if err := g.Sub("x", []int{0, 2}).Barrier(t.Context(), "x"); err != nil {
					return err
				}
			}
			err := g.Barrier(t.Context(), "first")
			var e *CanceledError
			if !errors.As(err, &e) || e.Origin != 1 || e.Rank != g.Rank() || e.Op != "first" || !strings.Contains(err.Error(), "why") {
				return fmt.Errorf("got %w", err)
			}
			if g.Rank() == 0 {
				if err := g.Sub("x", []int{0, 2}).Barrier(t.Context(), "x"); err != nil {
					return err
				}
			}
			return g.Barrier(t.Context(), "next")
		})
		if err := errors.Join(errs...); err != nil {
			t.Error(err)
		}
	})
}

// TestCause: a rank whose context ends gets its cause; the others hear who it was.
func TestCause(t *testing.T) {
	eachJob(t, func(t *testing.T, job *Job) {
		why := errors.New("why")
		errs := world(t, job, 2, time.Minute, func(g *Group) error {
			ctx := t.Context()
			if g.Rank() == 1 {
				c, cancel := context.WithCancelCause(ctx)
				cancel(why)
				ctx = c
			}
			sub := g.Sub("s", []int{0, 1})
			if g.Rank() == 0 { // comes when it is canceled
				if err := g.Barrier(t.Context(), "then"); err != nil {
					return err
				}
			}
			err := sub.Barrier(ctx, "first")
			if g.Rank() == 1 {
				if err := g.Barrier(t.Context(), "then"); err != nil {
					return err
				}
			}
			var e *CanceledError
			if !errors.As(err, &e) || e.Origin != 1 || (g.Rank() == 1) != errors.Is(err, why) {
				return fmt.Errorf("got %w", err)
			}
			return g.Barrier(t.Context(), "next")
		})
		if err := errors.Join(errs...); err != nil {
			t.Error(err)
		}
	})
}

func TestTimeout(t *testing.T) {
	eachJob(t, func(t *testing.T, job *Job) {
		errs := world(t, job, 3, time.Minute, func(g *Group) error {
			ctx := t.Context()
			if g.Rank() == 0 { // has come when rank 1's time begins
				ready := make(chan error)
				go func() {
					for {
						g.s.mu.Lock()
						come := len(g.s.waits) > 0
						g.s.mu.Unlock()
						if come {
							break
						}
						runtime.Gosched()
					}
					ready <- g.Sub("y", []int{0, 1}).Barrier(ctx, "y")
				}()
				defer func() { <-ready }()
			}
			if g.Rank() == 1 {
				if err := g.Sub("y", []int{0, 1}).Barrier(ctx, "y"); err != nil {
					return err
				}
				c, cancel := context.WithTimeout(ctx, 20*time.Millisecond)
				defer cancel()
				ctx = c
			}
			if g.Rank() == 2 { // comes when it is over
				if err := g.Sub("x", []int{1, 2}).Barrier(t.Context(), "x"); err != nil {
					return err
				}
			}
			err := g.Barrier(ctx, "first")
			var e *TimeoutError
			if !errors.As(err, &e) || !errors.Is(err, context.DeadlineExceeded) || !slices.Equal(e.Missing, []int{2}) || e.Peer != 2 || e.Rank != g.Rank() {
				return fmt.Errorf("got %w", err)
			}
			if g.Rank() == 1 {
				if err := g.Sub("x", []int{1, 2}).Barrier(t.Context(), "x"); err != nil {
					return err
				}
			}
			if g.Rank() == 2 && !strings.Contains(err.Error(), "came too late") {
				return fmt.Errorf("got %w", err)
			}
			return g.Barrier(t.Context(), "next")
		})
		if err := errors.Join(errs...); err != nil {
			t.Error(err)
		}
	})
}

// TestNotify: notices come in order, and before a barrier behind them.
func TestNotify(t *testing.T) {
	eachJob(t, func(t *testing.T, job *Job) {
		errs := world(t, job, 3, time.Minute, func(g *Group) error {
			var mu sync.Mutex
			got := map[int]string{}
			stop := g.Watch(func(e Event) {
				mu.Lock()
				defer mu.Unlock()
				if e.Kind == Notice {
					got[e.Rank] += string(e.Data)
				}
			})
			defer stop()
			if err := g.Barrier(t.Context(), "watching"); err != nil {
				return err
			}
			for i := range 5 {
				g.Notify(fmt.Append(nil, i))
			}
			if err := g.Barrier(t.Context(), "told"); err != nil {
				return err
			}
			mu.Lock()
			defer mu.Unlock()
			for r := range 3 {
				if r != g.Rank() && got[r] != "01234" {
					return fmt.Errorf("rank %d said %q", r, got[r])
				}
			}
			return nil
		})
		if err := errors.Join(errs...); err != nil {
			t.Error(err)
		}
	})
}

// TestLeave: who waits for a rank that leaves in order learns it at once, whichever it is.
func TestLeave(t *testing.T) {
	eachJob(t, func(t *testing.T, job *Job) {
		for leaves := range 3 {
			errs := world(t, job, 3, time.Minute, func(g *Group) error {
				if g.Rank() == leaves {
					return nil
				}
				err := g.Barrier(t.Context(), "x")
				var e *PeerLostError
				if !errors.As(err, &e) || e.Peer != leaves || !e.Left || e.Rank != g.Rank() {
					return fmt.Errorf("got %w", err)
				}
				rest := slices.DeleteFunc([]int{0, 1, 2}, func(r int) bool { return r == leaves })
				return g.Sub("rest", rest).Barrier(t.Context(), "among the rest")
			})
			if err := errors.Join(errs...); err != nil {
				t.Error(err)
			}
		}
	})
}

// TestMismatch: wrong world sizes, names and ranks are told to all that came.
func TestMismatch(t *testing.T) {
	eachJob(t, func(t *testing.T, job *Job) {
		for name, odd := range map[string]Place{
			"sizes of the world":                   {Name: "w", Rank: 1, World: 4},
			"names of the world":                   {Name: "other", Rank: 1, World: 3},
			"processes that claim to be rank 0":    {Name: "w", Rank: 0, World: 3},
			"sizes of the world differ: more than": {},
		} {
			if job.Local() && name == "names of the world" || odd.World == 0 {
				continue // goroutines of another name are another world
			}
			if odd.Rank == 0 && !job.Local() {
				continue // a second rank 0 cannot listen
			}
			errs := make([]error, 3)
			var wg sync.WaitGroup
			for i, p := range []Place{{Name: "w", Rank: 0, World: 3}, {Name: "w", Rank: 2, World: 3}, odd} {
				wg.Go(func() { _, errs[i] = Join(t.Context(), job, p) })
			}
			wg.Wait()
			for i, err := range errs {
				var e *MismatchError
				if !errors.As(err, &e) || !strings.Contains(e.What, name) {
					t.Errorf("%s: rank %d: %v", name, i, err)
				}
			}
		}
	})
}

// TestDuplicate: two processes claim rank 1.
func TestDuplicate(t *testing.T) {
	leak.Check(t)
	job := NewJob("")
	errs := make([]error, 3)
	var wg sync.WaitGroup
	for i, r := range []int{0, 1, 1} {
		wg.Go(func() { _, errs[i] = Join(t.Context(), job, Place{Rank: r, World: 3}) })
	}
	wg.Wait()
	for _, err := range errs {
		var e *MismatchError
		if !errors.As(err, &e) || !strings.Contains(err.Error(), "processes that claim to be rank 1") {
			t.Error(err)
		}
	}
}

// TestTwoJobs: jobs at one address do not mix, and say so.
func TestTwoJobs(t *testing.T) {
	leak.Check(t)
	a := NewJob(addrs.Next())
	b := NewJob(a.Addr)
	errs := make([]error, 2)
	var wg sync.WaitGroup
	join := func(r int) {
		wg.Go(func() {
			g, err := Join(t.Context(), a, Place{Rank: r, World: 2})
			if errs[r] = err; err == nil {
				errs[r] = g.Close()
			}
		})
	}
	join(0)
	_, err := Join(t.Context(), b, Place{Rank: 1, World: 2})
	var e *MismatchError
	if !errors.As(err, &e) || e.RankValue != b.ID || !strings.Contains(e.PeerValue, a.ID) {
		t.Errorf("got %v", err)
	}
	same := *a
	same.Secret = b.Secret
	_, err = Join(t.Context(), &same, Place{Rank: 1, World: 2})
	if !errors.As(err, &e) || e.What != "secrets of job "+a.ID+" at "+a.Addr {
		t.Errorf("another secret: %v", err)
	}
	_, err = Join(t.Context(), b, Place{Rank: 0, World: 2})
	if err == nil || !strings.Contains(err.Error(), "cannot listen at "+a.Addr) {
		t.Errorf("rank 0 of the other job: %v", err)
	}
	join(1)
	wg.Wait()
	if err := errors.Join(errs...); err != nil {
		t.Error(err)
	}
}

func TestExchangeFiles(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("needs Linux")
	}
	for n := 1; n <= 3; n++ {
		leak.Check(t)
		errs := world(t, NewJob(""), n, time.Minute, func(g *Group) error {
			f, err := os.CreateTemp(t.TempDir(), "x")
			if err != nil {
				return err
			}
			defer f.Close()
			fmt.Fprint(f, "rank ", g.Rank())
			fds, err := g.ExchangeFiles(t.Context(), "files", int(f.Fd()))
			if err != nil {
				return err
			}
			for r, fd := range fds {
				o := os.NewFile(uintptr(fd), "")
				b := make([]byte, 10)
				k, err := o.ReadAt(b, 0)
				if string(b[:k]) != fmt.Sprint("rank ", r) {
					err = fmt.Errorf("of rank %d: %q, %w", r, b[:k], err)
				} else {
					err = nil
				}
				if err = errors.Join(err, o.Close()); err != nil {
					return err
				}
			}
			return nil
		})
		if err := errors.Join(errs...); err != nil {
			t.Error(err)
		}
	}
}

// TestMissingBehindRelays: ranks that have come, and for whose neighbors their relay waits, are not
// taken to be missing.
func TestMissingBehindRelays(t *testing.T) {
	leak.Check(t)
	job := NewJob(addrs.Next())
	job.base = 2
	errs := world(t, job, 8, time.Minute, func(g *Group) error {
		ctx := t.Context()
		ready, come := g.Sub("ready", []int{0, 1}), g.Sub("come", []int{1, 4, 5})
		after := g.Sub("after", []int{1, 2, 6, 7})
		switch g.Rank() {
		case 0: // has time to hear the relays
			c := g.s.hosts.(*coordinator)
			c.mu.Lock()
			c.after = func(time.Duration, func()) {}
			c.mu.Unlock()
			if err := ready.Barrier(ctx, "ready"); err != nil {
				return err
			}
		case 1, 4, 5: // behind what they say here, rank 4 has it
			p, w, err := g.arrive(Call{Op: "first"})
			if err != nil {
				return err
			}
			if err := come.Barrier(ctx, "come"); err != nil {
				return err
			}
			if g.Rank() > 1 {
				return missing(g.failure(<-w, nil, "first", p.turn, 0))
			}
			if err := ready.Barrier(ctx, "ready"); err != nil {
				return err
			}
			g.withdraw(p, context.DeadlineExceeded)
			err = missing(g.failure(<-w, nil, "first", p.turn, 0))
			return errors.Join(err, after.Barrier(ctx, "after"))
		case 2, 6, 7:
			if err := after.Barrier(ctx, "after"); err != nil {
				return err
			}
		}
		return missing(g.Barrier(ctx, "first"))
	})
	if err := errors.Join(errs...); err != nil {
		t.Error(err)
	}
}

// missing is nil if an error says that ranks 2, 6 and 7 have not come.
func missing(err error) error {
	var e *TimeoutError
	if !errors.As(err, &e) || !slices.Contains(e.Missing, 2) || !slices.Contains(e.Missing, 6) || !slices.Contains(e.Missing, 7) || slices.ContainsFunc(e.Missing, func(r int) bool { return r == 1 || r == 4 || r == 5 }) {
		return fmt.Errorf("got %w", err)
	}
	return nil
}

// TestWatchInOrder: who begins to watch hears first of those that are gone, and then what comes
// meanwhile.
func TestWatchInOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSession(Place{World: 4})
		s.receive(&message{Kind: kindGone, Who: []int{1, 2}})
		var heard []int
		stop := s.job().Watch(func(e Event) {
			if e.Rank == 1 {
				go s.receive(&message{Kind: kindGone, Who: []int{3}})
				synctest.Wait()
			}
			heard = append(heard, e.Rank)
		})
		synctest.Wait()
		if stop(); !slices.Equal(heard, []int{1, 2, 3}) {
			t.Errorf("heard of %v", heard)
		}
	})
}
