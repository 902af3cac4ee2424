package host_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed-ee968945/concert/internal/leak"
	rt "github.com/seed-ee968945/concert/runtime"
	"github.com/seed-ee968945/concert/runtime/host"
	"github.com/seed-ee968945/concert/runtime/rendezvous"
)

// failing is a device one of whose calls fails.
type failing struct {
	*host.Device
	job *rendezvous.Group
	at  string // which call fails next
}

var errStage = errors.New("this one fails")

func (f *failing) fails(at string) error {
	if f.at != at {
		return nil
	}
	f.at = ""
	return errStage
}

func (f *failing) Grow(ctx context.Context, at rt.Region) error {
	if err := f.fails("grow"); err != nil {
		f.job.Cancel(err) // as who grows does
		return err
	}
	return f.Device.Grow(ctx, at)
}

func (f *failing) AddGroup(ctx context.Context, g rt.Group) error {
	if err := f.fails("group"); err != nil {
		return err
	}
	return f.Device.AddGroup(ctx, g)
}

func (f *failing) Sync(ctx context.Context) error {
	if err := f.fails("drain"); err != nil {
		return err
	}
	return f.Device.Sync(ctx)
}

func (f *failing) NewStream(name string) (rt.Stream, error) {
	if err := f.fails("stream"); err != nil {
		return 0, err
	}
	return f.Device.NewStream(name)
}

func (f *failing) NewEvent() (rt.Event, error) {
	if err := f.fails("event"); err != nil {
		return 0, err
	}
	return f.Device.NewEvent()
}

// TestFailedChange lets every stage of a change fail on one rank of three: it fails on all,
// leaves nothing behind, what was there runs, and the same change works then.
func TestFailedChange(t *testing.T) {
	const world, odd = 3, 1
	leak.Check(t)
	synctest.Test(t, func(t *testing.T) {
		job := rendezvous.NewLocal()
		var wg sync.WaitGroup
		for rank := range world {
			wg.Go(func() {
				var dev *failing
				open := func(ctx context.Context, spec rt.Spec) (rt.Device, error) {
					d, err := host.Opener(host.Options{Local: true})(ctx, spec)
					if err != nil {
						return nil, err
					}
					dev = &failing{Device: d.(*host.Device), job: spec.Job}
					return dev, nil
				}
				r, err := rt.Join(t.Context(), open, rt.Config{Env: &rt.Env{Rank: rank, World: world}, Job: job, Timeout: time.Minute})
				if err == nil {
					err = errors.Join(changes(t.Context(), r, dev, rank == odd), r.Close())
				}
				if err != nil {
					t.Errorf("rank %d: %v", rank, err)
				}
			})
		}
		wg.Wait()
	})
}

func changes(ctx context.Context, r *rt.Rank, dev *failing, odd bool) error {
	w, err := r.NewBuffer(ctx, "w", 256)
	if err != nil {
		return err
	}
	failed := func(what string, err error) error {
		var theirs *rt.CanceledError
		if odd && !errors.Is(err, errStage) || !odd && (!errors.As(err, &theirs) || theirs.Origin != 1) {
			return fmt.Errorf("%s: %v", what, err)
		}
		return nil
	}
	var have []*turn
	run := func() error {
		for _, t := range have {
			if _, err := t.run(ctx, r); err != nil {
				return err
			}
		}
		return nil
	}
	for _, stage := range []string{"drain", "grow", "group", "stream", "event"} {
		// All ranks of program 1 are one group, whose name and streams are new each time.
		next, err := newTurn(5*len(have)+1, r.Info().Rank, r.Info().World)
		if err != nil {
			return err
		}
		before := r.Info().ArenaBytes
		if odd {
			dev.at = stage
		}
		if err := failed(stage, r.Add(ctx, next.m, rt.Bindings{"w": w})); err != nil {
			return err
		}
		if got := r.Info().ArenaBytes; got != before {
			return fmt.Errorf("%s: %d bytes of the arena, %d before", stage, got, before)
		}
		if err := run(); err != nil {
			return fmt.Errorf("behind %s: %w", stage, err)
		}
		if err := r.Add(ctx, next.m, rt.Bindings{"w": w}); err != nil {
			return fmt.Errorf("once more behind %s: %w", stage, err)
		}
		have = append(have, next)
		if err := run(); err != nil {
			return err
		}
	}
	for _, stage := range []string{"drain", "grow"} {
		if odd {
			dev.at = stage
		}
		_, err := r.NewBuffer(ctx, "more", 256)
		if err := failed("a buffer: "+stage, err); err != nil {
			return err
		}
	}
	if odd {
		dev.at = "drain"
	}
	if err := failed("drop", r.Drop(ctx, have[0].m)); err != nil {
		return err
	}
	return run()
}

// TestDifferentChanges: ranks that change the world in different ways hear of it at once, and the
// world goes on.
func TestDifferentChanges(t *testing.T) {
	const world = 3
	leak.Check(t)
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		err := host.Local(t.Context(), world, rt.Config{Timeout: time.Minute}, host.Options{}, nil, func(ctx context.Context, r *rt.Rank) error {
			next, err := newTurn(1, r.Info().Rank, world)
			if err != nil {
				return err
			}
			if r.Info().Rank == 1 {
				_, err = r.NewBuffer(ctx, "w", 256)
			} else {
				err = r.Add(ctx, next.m, nil)
			}
			var differ *rt.MismatchError
			if !errors.As(err, &differ) || differ.What != "changes of the world" || time.Since(start) > 0 {
				return fmt.Errorf("after %v: %v", time.Since(start), err)
			}
			w, err := r.NewBuffer(ctx, "w", 256)
			if err != nil {
				return err
			}
			bind := rt.Bindings{"w": w}
			if r.Info().Rank == 2 {
				bind = nil
			}
			if err := r.Add(ctx, next.m, bind); !errors.As(err, &differ) || differ.What != "bindings to buffers" {
				return fmt.Errorf("other bindings: %v", err)
			}
			return r.Add(ctx, next.m, rt.Bindings{"w": w})
		})
		if err != nil {
			t.Error(err)
		}
	})
}

// stuck is a device whose Grow returns only when it is cancelled.
type stuck struct {
	*host.Device
	job   *rendezvous.Group
	until chan struct{}
}

func (s *stuck) Grow(context.Context, rt.Region) error {
	<-s.until
	s.job.Cancel(errStage) // as who grows does
	return errStage
}

// TestCloseWhileGrowing: a rank that waits for another to grow can be closed at once.
func TestCloseWhileGrowing(t *testing.T) {
	leak.Check(t)
	synctest.Test(t, func(t *testing.T) {
		job, until := rendezvous.NewLocal(), make(chan struct{})
		ranks := make([]*rt.Rank, 2)
		var wg sync.WaitGroup
		for i := range ranks {
			open := func(ctx context.Context, spec rt.Spec) (rt.Device, error) {
				d, err := host.Opener(host.Options{Local: true})(ctx, spec)
				if err == nil && i == 1 {
					d = &stuck{d.(*host.Device), spec.Job, until}
				}
				return d, err
			}
			wg.Go(func() {
				var err error
				if ranks[i], err = rt.Join(t.Context(), open, rt.Config{Env: &rt.Env{Rank: i, World: 2}, Job: job, Timeout: time.Hour}); err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		errs := make([]error, len(ranks))
		for i, r := range ranks {
			wg.Go(func() { _, errs[i] = r.NewBuffer(t.Context(), "w", 256) })
		}
		synctest.Wait()
		start := time.Now()
		if err := ranks[0].Close(); err != nil || time.Since(start) > time.Minute {
			t.Errorf("after %v: %v", time.Since(start), err)
		}
		close(until)
		wg.Wait()
		if !errors.Is(errs[0], rt.ErrClosed) || !errors.Is(errs[1], errStage) {
			t.Errorf("got %v", errs)
		}
		if err := ranks[1].Close(); err != nil {
			t.Error(err)
		}
	})
}
