//go:build linux

package device_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/seed-ee968945/concert/cuda/device"
	"github.com/seed-ee968945/concert/cuda/driver"
	"github.com/seed-ee968945/concert/cuda/driver/fake"
	"github.com/seed-ee968945/concert/cuda/topo"
	"github.com/seed-ee968945/concert/internal/llama"
	rt "github.com/seed-ee968945/concert/runtime"
)

// TestFailingCalls fails every driver call of opening, capturing, running and closing
// a small world in turn: each gives an error, and nothing is left behind but where a
// call that gives back itself failed.
func TestFailingCalls(t *testing.T) {
	fakeOnly(t)
	noGoroutines(t)
	m, f := besideModule()
	o := small(2)
	o.Scratch, o.Staging, o.Group.Region, o.Group.Flagged = 4096, 64<<10, 16<<10, 16<<10
	once := func(drv *fake.Driver) error {
		return device.Local(t.Context(), drv, devices(2), rt.Config{Timeout: plenty}, o, []*rt.Module{m}, func(ctx context.Context, r *rt.Rank) error {
			s, err := rt.Prepare(ctx, r, m, f, rt.Options{}, true)
			if err != nil {
				return err
			}
			return errors.Join(s.Replay(ctx), s.Close())
		})
	}
	step := 1
	if testing.Short() {
		step = 31
	}
	// How many calls there are depends on how often ranks poll: it ends with a run that had
	// fewer.
	n := 1
	for hit := true; hit; n += step {
		drv := fake.New(2)
		drv.FailCall(n, nil)
		err := once(drv)
		hit = drv.Calls() >= n
		if hit && err == nil {
			t.Errorf("call %d failed and nobody noticed", n)
		}
		if err != nil && (!hit || !strings.Contains(err.Error(), "injected")) {
			t.Errorf("call %d: %v does not name the cause", n, err)
		}
		drv.FailCall(0, nil)
		if l := drv.Leaks(); len(l) > 0 {
			t.Errorf("call %d (%v): not released: %s", n, err, leaks(l))
		}
	}
	if n < 300 {
		t.Errorf("only %d calls", n)
	}
	t.Logf("%d calls", n)
}

// scarce is a driver that asks before it allocates: the how manieth it is, counted from 1.
type scarce struct {
	*fake.Driver
	may    func(n int64, bytes uint64) error
	allocs atomic.Int64
}

func (s *scarce) MemAlloc(c driver.Ctx, bytes uint64) (driver.Ptr, error) {
	if err := s.may(s.allocs.Add(1), bytes); err != nil {
		return 0, err
	}
	return s.Driver.MemAlloc(c, bytes)
}

// scarceStages captures and runs stages that communicate over NCCL. It closes ended when one has, if that is given.
func scarceStages(t *testing.T, timeout time.Duration, ended chan struct{}, may func(n int64, bytes uint64) error) (allocs int64, err error) {
	m, s := stages(t, llama.Step{}, "", "")
	in, _ := expectedOf(t, m)
	drv := &scarce{Driver: newFake(t, 2), may: may}
	o := small(2)
	o.Transport = topo.NCCL
	var once sync.Once
	_, err = runStages(t.Context(), s, in, func(f func(context.Context, *rt.Rank) error) error {
		return device.Local(t.Context(), drv, devices(2), rt.Config{Timeout: timeout, JoinTimeout: plenty}, hosted(drv, o), nil, func(ctx context.Context, r *rt.Rank) error {
			defer once.Do(func() {
				if ended != nil {
					close(ended)
				}
			})
			ctx, cancel := context.WithTimeout(ctx, plenty) // which is for joining
			defer cancel()
			return f(ctx, r)
		})
	}, graph)
	return drv.allocs.Load(), err
}

// TestScarceOverNCCL lets each allocation fail of stages that communicate over NCCL: the other rank does not
// wait for what the rank without memory would have done.
func TestScarceOverNCCL(t *testing.T) {
	fakeOnly(t)
	noGoroutines(t)
	n := int64(1)
	for hit := true; hit; n++ {
		allocs, err := scarceStages(t, plenty, nil, func(k int64, _ uint64) error {
			if k == n {
				return errors.New("injected")
			}
			return nil
		})
		if hit = allocs >= n; hit != (err != nil) || hit && !strings.Contains(err.Error(), "injected") {
			t.Errorf("allocation %d: %v", n, err)
		}
	}
	if n < 10 {
		t.Errorf("only %d allocations", n)
	}
}

// TestLateIntroduction holds one of two ranks up where they connect: the other is not patient for ever.
func TestLateIntroduction(t *testing.T) {
	fakeOnly(t)
	noGoroutines(t)
	const connecting = 2 * 2 * 256 // bytes, which nothing else has
	for limit := 200 * time.Millisecond; ; limit *= 4 {
		var held atomic.Bool
		ended := make(chan struct{})
		_, err := scarceStages(t, limit, ended, func(_ int64, bytes uint64) error {
			if bytes == connecting && held.CompareAndSwap(false, true) {
				<-ended
			}
			return nil
		})
		var late *rt.TimeoutError
		if !errors.As(err, &late) {
			t.Fatal(err)
		}
		if held.Load() {
			return
		}
		if limit > plenty { // else it was another wait that a stall of the machine ended
			t.Fatalf("nobody was held up: %v", err)
		}
	}
}

// sumOf is an all_reduce in place.
func sumOf(x rt.Tensor) *rt.Collective {
	return &rt.Collective{Op: rt.AllReduce, Group: "world", Reduce: "sum", Ins: rt.Ts{x}, Outs: rt.Ts{x}, Label: "%s"}
}

// faultyWorld runs a world in which rank 1 misbehaves as soon as all have joined, and gives
// the errors of all ranks.
func faultyWorld(t *testing.T, ranks int, timeout time.Duration, wrong func(ctx context.Context, r *rt.Rank) error) []error {
	t.Helper()
	noGoroutines(t)
	drv, devs, o := target(t, ranks)
	errs := make([]error, ranks)
	var joined sync.WaitGroup
	joined.Add(ranks)
	device.Local(t.Context(), drv, devs, rt.Config{Timeout: timeout, JoinTimeout: plenty, UserBytes: 512}, o, nil, func(ctx context.Context, r *rt.Rank) error {
		joined.Done()
		joined.Wait()
		me := r.Info().Rank
		if me == 1 {
			errs[me] = wrong(ctx, r)
			return errs[me]
		}
		w, err := r.Start(ctx, "", sumOf(rt.C(0, rt.F32, 4)))
		if err == nil {
			err = w.Wait(ctx)
		}
		errs[me] = err
		if again, err := r.Start(ctx, "", sumOf(rt.C(0, rt.F32, 4))); err == nil {
			if again.Wait(ctx) == nil {
				t.Errorf("rank %d: a broken world went on", me)
			}
		}
		return err
	})
	return errs
}

// Two ranks: a third could be late as well, and be named.
func TestTimeout(t *testing.T) {
	const timeout = 100 * time.Millisecond
	errs := faultyWorld(t, 2, timeout, func(ctx context.Context, r *rt.Rank) error {
		return broken(r)
	})
	named := false
	for i, err := range errs {
		var te *rt.TimeoutError
		if errors.As(err, &te) {
			if te.Peer != 1 || te.Group != "world" || te.Elapsed < timeout {
				t.Errorf("rank %d: %+v", i, te)
			}
			named = named || strings.Contains(te.Op, "%s")
		}
		if !errors.Is(err, rt.ErrTimeout) && !errors.Is(err, rt.ErrCanceled) {
			t.Errorf("rank %d: %v", i, err)
		}
	}
	if !named {
		t.Errorf("no error names the collective: %v", errs)
	}
}

func TestAbort(t *testing.T) {
	errs := faultyWorld(t, 3, plenty, func(ctx context.Context, r *rt.Rank) error {
		r.Abort(context.Canceled)
		return r.Err()
	})
	for i, err := range errs {
		var ae *rt.CanceledError
		if !errors.Is(err, rt.ErrCanceled) || !errors.Is(err, context.Canceled) || !errors.As(err, &ae) || ae.Origin != 1 || ae.Rank != i {
			t.Errorf("rank %d: %v", i, err)
		}
	}
}

// Joining that takes longer than it may leaves nothing behind, wherever it was.
func TestJoinTimeout(t *testing.T) {
	fakeOnly(t)
	for _, timeout := range []time.Duration{time.Microsecond, 3 * time.Millisecond, 10 * time.Millisecond, 30 * time.Millisecond} {
		noGoroutines(t)
		drv, devs, o := target(t, 3)
		err := device.Local(t.Context(), drv, devs, rt.Config{Timeout: timeout, UserBytes: 512}, o, nil, func(ctx context.Context, r *rt.Rank) error { return nil })
		if err != nil && !errors.Is(err, rt.ErrTimeout) && !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%v: %v", timeout, err)
		}
	}
}

// A rank that fails breaks the world for those that wait for it.
func TestRankFails(t *testing.T) {
	errs := faultyWorld(t, 3, plenty, func(context.Context, *rt.Rank) error { return errors.New("out of luck") })
	for i, err := range errs {
		if err == nil || !strings.Contains(err.Error(), "out of luck") {
			t.Errorf("rank %d: %v", i, err)
		}
	}
}

// Cancelling the context of a replay breaks the world, on a rank that has come and on
// those that have not.
func TestCancelReplay(t *testing.T) {
	fakeOnly(t)
	m, f := besideModule()
	noGoroutines(t)
	drv, devs, o := target(t, 2)
	err := device.Local(t.Context(), drv, devs, rt.Config{Timeout: plenty}, o, []*rt.Module{m}, func(ctx context.Context, r *rt.Rank) error {
		s, err := rt.Prepare(ctx, r, m, f, rt.Options{}, false)
		if err != nil {
			return err
		}
		defer s.Close()
		if r.Info().Rank == 1 {
			if broken(r); !errors.Is(r.Err(), context.DeadlineExceeded) && !errors.Is(r.Err(), rt.ErrCanceled) {
				return fmt.Errorf("rank 1: %w", r.Err())
			}
			return nil
		}
		for r.Err() == nil { // its context may have ended before it began, on a busy machine
			short, cancel := context.WithTimeout(ctx, 50*time.Millisecond)
			err := s.Replay(short)
			if cancel(); !errors.Is(err, context.DeadlineExceeded) {
				return fmt.Errorf("rank 0: %w", err)
			}
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
}
