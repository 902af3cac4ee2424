package lifecycle

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// ledger notes what is given back.
type ledger struct {
	mu  sync.Mutex
	out []string
}

func (l *ledger) add(s *Scope, what string, err error) {
	if e := s.Defer(what, func() error {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.out = append(l.out, what)
		return err
	}); e != nil {
		panic(e)
	}
}

func (l *ledger) want(t *testing.T, want ...string) {
	t.Helper()
	l.mu.Lock()
	defer l.mu.Unlock()
	if !slices.Equal(l.out, want) {
		t.Errorf("given back: %v, want %v", l.out, want)
	}
}

func child(t *testing.T, s *Scope, name string, h Hooks) *Scope {
	t.Helper()
	c, err := s.New(name)
	if err == nil {
		err = c.Work(h)
	}
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// What is made last goes first, scopes where they stand, each once.
func TestReverseOrder(t *testing.T) {
	var l ledger
	w := New("world")
	l.add(w, "context", nil)
	g := child(t, w, "group", Hooks{})
	l.add(w, "memory", nil)
	l.add(g, "page", nil)
	gone := child(t, w, "gone", Hooks{})
	l.add(gone, "early", nil)
	l.add(g, "event", errors.New("it is broken"))
	if err := gone.End(t.Context()); err != nil {
		t.Error(err)
	}
	l.want(t, "early")
	if err := w.End(t.Context()); err == nil || err.Error() != "event: it is broken" {
		t.Errorf("got %v", err)
	}
	l.want(t, "early", "memory", "event", "page", "context")
	for _, s := range []*Scope{w, g, gone} {
		if err := s.End(t.Context()); err != nil || s.State() != Released || !errors.Is(s.Err(), ErrClosed) {
			t.Errorf("%s: %v, %v, %v", s.name, err, s.State(), s.Err())
		}
		if _, err := s.New("late"); !errors.Is(err, ErrClosed) {
			t.Errorf("%s: a scope was made in it: %v", s.name, err)
		}
	}
	back := false
	if err := w.Defer("late", func() error { back = true; return nil }); !errors.Is(err, ErrClosed) || !back {
		t.Errorf("what was made too late: %v, given back %v", err, back)
	}
}

// Nothing is given back while a call is under way, or while a hold lasts.
func TestCallsHold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var l ledger
		w := New("world")
		g := child(t, w, "group", Hooks{})
		l.add(w, "memory", nil)
		if err := g.Begin(); err != nil {
			t.Fatal(err)
		}
		ended := make(chan error, 1)
		go func() { ended <- w.End(context.Background()) }()
		synctest.Wait()
		if err := g.Begin(); !errors.Is(err, ErrClosed) {
			t.Errorf("a call began: %v", err)
		}
		if !w.Hold() {
			t.Error("no hold of a world that drains")
		}
		g.Done()
		synctest.Wait()
		l.want(t)
		if w.State() != Releasing || w.Hold() {
			t.Errorf("%v, or a hold of a world that releases", w.State())
		}
		w.Drop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
		l.want(t, "memory")
	})
}

// A wait that is bound ends with the scope.
func TestBound(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := New("world")
		if err := w.Begin(); err != nil {
			t.Fatal(err)
		}
		ctx, free := w.Bound(t.Context())
		go func() {
			<-ctx.Done()
			if !errors.Is(context.Cause(ctx), ErrClosed) {
				t.Errorf("got %v", context.Cause(ctx))
			}
			free()
			w.Done()
		}()
		if err := w.End(context.Background()); err != nil {
			t.Error(err)
		}
	})
}

// Work that does not end keeps everything, and another End goes on.
func TestQuarantine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var l ledger
		var idle atomic.Bool
		stops := 0
		var causes []error
		w := New("world")
		l.add(w, "memory", nil)
		g := child(t, w, "group", Hooks{
			Stop: func() { stops++ },
			Tend: func(_ time.Duration, cause error) error {
				if cause != nil && (len(causes) == 0 || causes[len(causes)-1] != cause) {
					causes = append(causes, cause)
				}
				return nil
			},
			Idle: func() (bool, error) { return idle.Load(), nil },
		})
		l.add(g, "page", nil)
		for i := range 2 {
			why := fmt.Errorf("reason %d", i)
			ctx, cancel := context.WithTimeoutCause(t.Context(), time.Minute, why)
			start := time.Now()
			err := w.End(ctx)
			cancel()
			var held *HeldError
			if !errors.As(err, &held) || !slices.Equal(held.Busy, []string{"group"}) || !slices.Equal(held.Keeps, []string{"memory", "page"}) || !errors.Is(err, why) {
				t.Errorf("got %v", err)
			}
			if d := time.Since(start); d != time.Minute+Grace {
				t.Errorf("it took %v", d)
			}
			if w.State() != Quarantined || g.State() != Quarantined || stops != 1 || len(causes) != i+1 || causes[i] != why {
				t.Errorf("%v, %v, stopped %d times, causes %v", w.State(), g.State(), stops, causes)
			}
		}
		l.want(t)
		go func() { time.Sleep(time.Minute); idle.Store(true) }()
		if err := w.End(context.Background()); err != nil {
			t.Error(err)
		}
		l.want(t, "page", "memory")
	})
}

// An owner that is cancelled cancels what another call is ending.
func TestCancelBelow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var l ledger
		w := New("world")
		cancelled := false
		g := child(t, w, "group", Hooks{
			Tend: func(_ time.Duration, cause error) error { cancelled = cancelled || cause != nil; return nil },
			Idle: func() (bool, error) { return cancelled, nil },
		})
		l.add(g, "page", nil)
		first := make(chan error, 1)
		go func() { first <- g.End(context.Background()) }()
		synctest.Wait()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := errors.Join(w.End(ctx), <-first); err != nil {
			t.Error(err)
		}
		l.want(t, "page")
	})
}

// A call of a world undoes a group that it could not make while the world is being ended.
func TestUndo(t *testing.T) {
	for _, late := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			var l ledger
			w := New("world")
			if err := w.Begin(); err != nil {
				t.Fatal(err)
			}
			g := child(t, w, "group", Hooks{})
			l.add(g, "page", nil)
			ended := make(chan error, 1)
			if late {
				go func() { ended <- w.End(context.Background()) }()
				synctest.Wait()
			}
			if err := g.EndInCall(); err != nil {
				t.Error(err)
			}
			if !late {
				l.want(t, "page")
				go func() { ended <- w.End(context.Background()) }()
			}
			w.Done()
			if err := <-ended; err != nil {
				t.Error(err)
			}
			l.want(t, "page")
		})
	}
}

// A question that fails once is asked again, one that fails always has no work behind it.
func TestFailingQuestion(t *testing.T) {
	for fails, want := range []int{1, 2, 3, 3} {
		synctest.Test(t, func(t *testing.T) {
			asked := 0
			lost := errors.New("lost")
			w := New("world")
			w.Work(Hooks{Idle: func() (bool, error) {
				if asked++; asked <= fails {
					return false, lost
				}
				return true, nil
			}})
			if err := w.End(t.Context()); asked != want || errors.Is(err, lost) != (fails > 0) {
				t.Errorf("%d failures: asked %d times, %v", fails, asked, err)
			}
		})
	}
}

// A question that takes a while before it fails comes to an end as well.
func TestSlowFailingQuestion(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		asked := 0
		w := New("world")
		w.Work(Hooks{Idle: func() (bool, error) {
			if asked++; asked%2 == 1 {
				return false, nil
			}
			return false, errors.New("lost")
		}})
		if err := w.End(t.Context()); asked != 2*insist || err == nil {
			t.Errorf("asked %d times, %v", asked, err)
		}
	})
}

// TestManyEnds ends a tree from many goroutines at once while calls come and go.
func TestManyEnds(t *testing.T) {
	for seed := range uint64(40) {
		rng := rand.New(rand.NewPCG(seed, 1))
		var live, back atomic.Int64
		var under [4]atomic.Int64 // calls, by scope
		scopes := make([]*Scope, len(under))
		for i := range scopes {
			h := Hooks{Idle: func() (bool, error) { return under[i].Load() == 0, nil }}
			if i == 0 {
				scopes[i] = New("0")
				scopes[i].Work(h)
			} else {
				scopes[i] = child(t, scopes[rng.IntN(i)], fmt.Sprint(i), h)
			}
			for range 3 {
				live.Add(1)
				scopes[i].Defer("thing", func() error {
					if n := under[i].Load(); n != 0 {
						t.Errorf("given back under %d calls", n)
					}
					back.Add(1)
					return nil
				})
			}
		}
		var wg sync.WaitGroup
		for i, s := range scopes {
			order := rng.IntN(3)
			for range 2 {
				wg.Go(func() {
					for s.Begin() == nil {
						under[i].Add(1)
						if order == 0 {
							if c, err := s.New("more"); err == nil {
								live.Add(1)
								c.Defer("thing", func() error { back.Add(1); return nil })
								c.EndInCall()
							}
						}
						under[i].Add(-1)
						s.Done()
					}
				})
				wg.Go(func() {
					ctx, cancel := context.WithCancel(context.Background())
					if order == 1 {
						cancel()
					}
					defer cancel()
					if err := s.End(ctx); err != nil {
						t.Errorf("seed %d: %v", seed, err)
					}
				})
			}
		}
		wg.Wait()
		if back.Load() != live.Load() {
			t.Errorf("seed %d: %d of %d given back", seed, back.Load(), live.Load())
		}
	}
}

// What ends a scope may wait for what its owner's Stop ends.
func TestStopBeforeBelow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, stop := New("world"), make(chan struct{})
		if err := w.Work(Hooks{Stop: func() { close(stop) }}); err != nil {
			t.Fatal(err)
		}
		s := child(t, w, "stream", Hooks{})
		if err := s.Defer("goroutine", func() error { <-stop; return nil }); err != nil {
			t.Fatal(err)
		}
		go s.End(context.Background())
		synctest.Wait()
		if err := w.End(context.Background()); err != nil {
			t.Error(err)
		}
	})
}

// A call of End whose context ends while another one drives is cancelled as well, even before the other is.
func TestSecondEndGivesUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, idle := New("world"), false
		w.Work(Hooks{Idle: func() (bool, error) { return idle, nil }})
		ended := make(chan error, 2)
		for _, timeout := range []time.Duration{time.Second, 2 * time.Second} {
			ctx, cancel := context.WithTimeout(t.Context(), timeout)
			defer cancel()
			go func() { ended <- w.End(ctx) }()
			synctest.Wait()
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		for range 2 {
			select {
			case err := <-ended:
				if held := (*HeldError)(nil); !errors.As(err, &held) {
					t.Errorf("got %v", err)
				}
			default:
				t.Error("it waits on")
			}
		}
		idle = true
		if err := w.End(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

// Nothing is asked for the end of its work while a call is under way: an answer that takes a while
// would not know of what the call goes on to enqueue, which need not be the scope's own.
func TestAskBehindCalls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var asked, tended atomic.Int64
		w := New("world")
		w.Work(Hooks{Tend: func(time.Duration, error) error { tended.Add(1); return nil },
			Idle: func() (bool, error) { asked.Add(1); return true, nil }})
		g := child(t, w, "group", Hooks{})
		if err := g.Begin(); err != nil {
			t.Fatal(err)
		}
		ended := make(chan error, 1)
		go func() { ended <- w.End(context.Background()) }()
		time.Sleep(time.Second)
		if asked.Load() > 0 || tended.Load() < 100 {
			t.Errorf("asked %d times, tended %d times during a call", asked.Load(), tended.Load())
		}
		g.Done()
		if err := <-ended; err != nil || asked.Load() == 0 {
			t.Errorf("asked %d times, %v", asked.Load(), err)
		}
	})
}

// Time in which the process stands still is not taken from what has to end.
func TestGraceInStall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, cancelled := New("world"), 0
		w.Work(Hooks{Tend: func(_ time.Duration, cause error) error {
			if cause != nil {
				if cancelled++; cancelled == 2 {
					time.Sleep(time.Hour)
				}
			}
			return nil
		}, Idle: func() (bool, error) { return cancelled > 3, nil }})
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if err := w.End(ctx); err != nil {
			t.Error(err)
		}
	})
}
