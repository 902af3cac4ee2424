package host_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed-ee968945/concert/internal/leak"
	rt "github.com/seed-ee968945/concert/runtime"
	"github.com/seed-ee968945/concert/runtime/host"
	"github.com/seed-ee968945/concert/runtime/rendezvous"
)

// each runs f on a joined world of goroutines, whose time passes when all of them wait, and
// returns every rank's error.
func each(t *testing.T, world int, cfg rt.Config, opts host.Options, mods []*rt.Module, f func(ctx context.Context, r *rt.Rank) error) []error {
	t.Helper()
	leak.Check(t)
	opts.Local = true
	if cfg.Job == nil {
		cfg.Job = rendezvous.NewLocal()
	}
	if cfg.Timeout == 0 {
		cfg.Timeout = 5 * time.Minute
	}
	errs := make([]error, world)
	synctest.Test(t, func(t *testing.T) {
		var wg sync.WaitGroup
		for i := range world {
			wg.Go(func() {
				cfg := cfg
				cfg.Env = &rt.Env{Rank: i, World: world}
				if opts.Hosts > 1 {
					cfg.Env.Host = fmt.Sprint(i)
				}
				r, err := rt.Join(t.Context(), host.Opener(opts), cfg, mods...)
				if err != nil {
					errs[i] = err
					return
				}
				errs[i] = f(t.Context(), r)
				if err := r.Close(); err != nil {
					t.Errorf("rank %d: Close: %v", i, err)
				}
			})
		}
		wg.Wait()
	})
	return errs
}

// onHosts runs a test of ranks that share memory, and of ranks that are each on a host of
// their own.
func onHosts(t *testing.T, f func(t *testing.T, opts host.Options)) {
	t.Run("one host", func(t *testing.T) { f(t, host.Options{}) })
	t.Run("a host each", func(t *testing.T) { f(t, host.Options{Hosts: 2}) })
}

// run starts a collective and waits for it.
func run(ctx context.Context, r *rt.Rank, c *rt.Collective) error {
	w, err := r.Start(ctx, "", c)
	if err != nil {
		return err
	}
	return w.Wait(ctx)
}

func sumOf(t rt.Tensor) *rt.Collective {
	return &rt.Collective{Op: rt.AllReduce, Group: "world", Reduce: "sum", Ins: rt.Ts{t}, Outs: rt.Ts{t}, Label: "%s"}
}

func TestTimeout(t *testing.T) { onHosts(t, testTimeout) }

func testTimeout(t *testing.T, opts host.Options) {
	const timeout = 200 * time.Millisecond
	errs := each(t, 3, rt.Config{Timeout: timeout, UserBytes: 512}, opts, nil, func(ctx context.Context, r *rt.Rank) error {
		if r.Info().Rank == 1 { // late until both others have given up
			time.Sleep(2 * timeout)
			return run(ctx, r, sumOf(rt.C(0, rt.F32, 4)))
		}
		start := time.Now()
		err := run(ctx, r, sumOf(rt.C(0, rt.F32, 4)))
		if d := time.Since(start); d < timeout || d > timeout+time.Millisecond {
			return fmt.Errorf("after %v: %w", d, err)
		}
		if again := run(ctx, r, sumOf(rt.C(0, rt.F32, 4))); !errors.Is(again, rt.ErrTimeout) {
			return fmt.Errorf("a broken world went on: %v", again)
		}
		return err
	})
	for i, err := range errs {
		var te *rt.TimeoutError
		if !errors.Is(err, rt.ErrTimeout) || !errors.Is(err, context.DeadlineExceeded) || !errors.As(err, &te) ||
			te.Peer != 1 || !slices.Equal(te.Missing, []int{1}) || te.Group != "world" || !strings.Contains(te.Op, "all_reduce") || !strings.Contains(te.Op, "%s") {
			t.Errorf("rank %d: %#v", i, err)
		}
	}
	if want := "rank 1 has entered no collective"; !strings.Contains(errs[0].Error(), want) {
		t.Errorf("rank 0: %v; want %q", errs[0], want)
	}
	if !errors.Is(errs[1], rt.ErrCanceled) {
		t.Errorf("the late rank: %v", errs[1])
	}
}

func TestLeave(t *testing.T) { onHosts(t, testLeave) }

// Those who wait for a rank that is gone hear of it within a second of the bubble's time, whatever
// their deadline is.
func testLeave(t *testing.T, opts host.Options) {
	var gone atomic.Pointer[time.Time]
	errs := each(t, 3, rt.Config{UserBytes: 512}, opts, nil, func(ctx context.Context, r *rt.Rank) error {
		if err := run(ctx, r, sumOf(rt.C(0, rt.F32, 4))); err != nil {
			return err
		}
		if r.Info().Rank == 2 {
			time.Sleep(time.Minute) // the others wait
			gone.Store(new(time.Now()))
			return nil // and Close
		}
		err := run(ctx, r, sumOf(rt.C(0, rt.F32, 4)))
		if took := time.Since(*gone.Load()); took >= time.Second {
			t.Errorf("rank %d hears of it after %v", r.Info().Rank, took)
		}
		return err
	})
	for i, err := range errs[:2] {
		var pe *rt.PeerLostError
		if !errors.Is(err, rt.ErrPeerLost) || !errors.As(err, &pe) || pe.Peer != 2 || !pe.Left || pe.Group != "world" || !strings.Contains(pe.Op, "all_reduce") {
			t.Errorf("rank %d: %v", i, err)
		}
	}
	if errs[2] != nil {
		t.Errorf("rank 2: %v", errs[2])
	}
}

// TestMismatch lets rank 1 of three call something else.
func TestMismatch(t *testing.T) { onHosts(t, testMismatch) }

func testMismatch(t *testing.T, opts host.Options) {
	x := rt.C(0, rt.F32, 6)
	splits := func(send, receive []int64, out int64) *rt.Collective {
		return &rt.Collective{Op: rt.AllToAll, Group: "world", InSplits: [][]int64{send}, OutSplits: [][]int64{receive},
			Ins: rt.Ts{x}, Outs: rt.Ts{rt.C(64, rt.F32, out)}}
	}
	for _, c := range []struct {
		what string
		call func(odd bool) *rt.Collective
	}{
		{"operations", func(odd bool) *rt.Collective {
			if odd {
				return &rt.Collective{Op: rt.Broadcast, Group: "world", Ins: rt.Ts{x}, Outs: rt.Ts{x}}
			}
			return sumOf(x)
		}},
		{"operations", func(odd bool) *rt.Collective {
			if odd {
				return &rt.Collective{Op: rt.Barrier, Group: "world"}
			}
			return sumOf(x)
		}},
		{"operand bytes", func(odd bool) *rt.Collective {
			if odd {
				return sumOf(rt.C(0, rt.F32, 7))
			}
			return sumOf(x)
		}},
		{"numbers of operands", func(odd bool) *rt.Collective {
			s := sumOf(x)
			if odd {
				s.Ins = append(s.Ins, rt.C(64, rt.F32, 1))
				s.Outs = s.Ins
			}
			return s
		}},
		{"types, shapes", func(odd bool) *rt.Collective {
			if odd {
				return sumOf(rt.C(0, rt.I32, 6))
			}
			return sumOf(x)
		}},
		{"types, shapes", func(odd bool) *rt.Collective {
			s := sumOf(x)
			if odd {
				s.Reduce = "max"
			}
			return s
		}},
		{"rows of operand 0 from rank 1 to rank", func(odd bool) *rt.Collective {
			if odd {
				return splits([]int64{3, 2, 1}, []int64{2, 2, 2}, 6)
			}
			return splits([]int64{2, 2, 2}, []int64{2, 2, 2}, 6)
		}},
	} {
		t.Run(c.what, func(t *testing.T) {
			errs := each(t, 3, rt.Config{UserBytes: 512}, opts, nil, func(ctx context.Context, r *rt.Rank) error {
				return run(ctx, r, c.call(r.Info().Rank == 1))
			})
			for i, err := range errs {
				var se *rt.MismatchError
				if !errors.Is(err, rt.ErrMismatch) || !errors.As(err, &se) || !strings.HasPrefix(se.What, c.what) ||
					se.Rank != 1 && se.Peer != 1 || se.RankValue == se.PeerValue {
					t.Errorf("rank %d: %v", i, err)
				}
			}
		})
	}
}

func TestCancel(t *testing.T) { onHosts(t, testCancel) }

func testCancel(t *testing.T, opts host.Options) {
	errs := each(t, 2, rt.Config{UserBytes: 512}, opts, nil, func(ctx context.Context, r *rt.Rank) error {
		if r.Info().Rank == 1 {
			synctest.Wait() // the other one waits
			r.Abort(context.Canceled)
			return r.Err()
		}
		return run(ctx, r, sumOf(rt.C(0, rt.F32, 4)))
	})
	for i, err := range errs {
		var ae *rt.CanceledError
		if !errors.Is(err, rt.ErrCanceled) || !errors.Is(err, context.Canceled) || !errors.As(err, &ae) || ae.Origin != 1 {
			t.Errorf("rank %d: %v", i, err)
		}
	}
}

// TestRejoin breaks a world of three and lets two survivors form another in the
// same store.
func TestRejoin(t *testing.T) {
	st := rendezvous.NewLocal()
	errs := each(t, 3, rt.Config{Job: st, UserBytes: 512}, host.Options{}, nil, func(ctx context.Context, r *rt.Rank) error {
		me := r.Info().Rank
		if me == 2 {
			return nil
		}
		if err := run(ctx, r, sumOf(rt.C(0, rt.F32, 4))); !errors.Is(err, rt.ErrPeerLost) {
			return fmt.Errorf("the first world: %v", err)
		}
		r2, err := rt.Join(ctx, host.Opener(host.Options{Local: true}), rt.Config{Env: &rt.Env{Rank: me, World: 2}, Job: st, UserBytes: 512, Timeout: 5 * time.Minute})
		if err != nil {
			return err
		}
		defer r2.Close()
		if r2.Info().Nonce == r.Info().Nonce {
			return errors.New("both worlds have one nonce")
		}
		x := rt.C(0, rt.F32, 4)
		if err := r2.Upload(x, bytesOf(rt.F32, 1, 2, 3, 4)); err != nil {
			return err
		}
		if err := run(ctx, r2, sumOf(x)); err != nil {
			return err
		}
		b, err := r2.Download(x)
		if got := numbersOf(rt.F32, b); err != nil || !slices.Equal(got, []float64{2, 4, 6, 8}) {
			return fmt.Errorf("%v %v", got, err)
		}
		return nil
	})
	for i, err := range errs {
		if err != nil {
			t.Errorf("rank %d: %v", i, err)
		}
	}
}

// TestFuncFails lets a registered function fail, or panic, on one rank: the
// others wait for that rank in a collective and learn why it does not come.
func TestFuncFails(t *testing.T) { onHosts(t, testFuncFails) }

func testFuncFails(t *testing.T, opts host.Options) {
	mod := &rt.Module{Name: "m", Arena: 512, Streams: []string{"compute", "comm"}, Events: 2}
	for _, how := range []string{"out of luck", "panic"} {
		f := func(c *rt.FuncCall) error {
			if c.Rank != 1 {
				return nil
			}
			if how == "panic" {
				var m map[string]int
				m["x"] = 1 //lint:ignore SA5000 the panic is the point
			}
			return errors.New(how)
		}
		t.Run(how, func(t *testing.T) {
			errs := each(t, 3, rt.Config{Funcs: map[string]rt.Func{"f": {Host: f}}}, opts, []*rt.Module{mod}, func(ctx context.Context, r *rt.Rank) error {
				x := rt.C(0, rt.F32, 4)
				_, err := rt.RunModule(ctx, r, mod, func(e *rt.Exec) {
					e.At("f").Call("compute", "f", "", nil, nil, nil)
					e.Record("compute", 0)
					e.Wait("comm", 0)
					e.At("r").AllReduce("comm", "world", "sum", rt.Ts{x}, rt.Ts{x})
					e.Record("comm", 1)
					e.Wait("compute", 1)
				}, nil, rt.Options{})
				return err
			})
			for i, err := range errs {
				if err == nil || !strings.Contains(err.Error(), how) || !strings.Contains(err.Error(), "rank 1: call @f (f)") {
					t.Errorf("rank %d: %v", i, err)
				}
				if i != 1 && !errors.Is(err, rt.ErrCanceled) {
					t.Errorf("rank %d: %v", i, err)
				}
			}
		})
	}
}

// TestMalformedCalls are refused where they are made.
func TestMalformedCalls(t *testing.T) {
	x := rt.C(0, rt.F32, 4)
	errs := each(t, 2, rt.Config{UserBytes: 512}, host.Options{}, nil, func(ctx context.Context, r *rt.Rank) error {
		for _, c := range []struct {
			want string
			call *rt.Collective
		}{
			{"no group", &rt.Collective{Op: rt.AllReduce, Group: "nobody", Reduce: "sum", Ins: rt.Ts{x}, Outs: rt.Ts{x}}},
			{"unknown reduction", &rt.Collective{Op: rt.AllReduce, Group: "world", Reduce: "median", Ins: rt.Ts{x}, Outs: rt.Ts{x}}},
			{"outside of the arena", sumOf(rt.C(500, rt.F32, 4))},
			{"outside of the arena", sumOf(rt.C(-4, rt.F32, 4))},
			{"outside of the arena", sumOf(rt.S(0, rt.F32, rt.Dims{2}, rt.Dims{-1}))},
			{"operands and", &rt.Collective{Op: rt.AllReduce, Group: "world", Reduce: "sum", Ins: rt.Ts{x}}},
			{"negative dimension", sumOf(rt.C(0, rt.F32, -4))},
			{"do not differ by 2", &rt.Collective{Op: rt.AllGather, Group: "world", Ins: rt.Ts{x}, Outs: rt.Ts{x}}},
			{"dimension 1", &rt.Collective{Op: rt.AllGather, Group: "world", Dim: 1, Ins: rt.Ts{x}, Outs: rt.Ts{x}}},
			{"equal parts", &rt.Collective{Op: rt.AllToAll, Group: "world", Ins: rt.Ts{rt.C(0, rt.F32, 3)}, Outs: rt.Ts{rt.C(0, rt.F32, 3)}}},
			{"root 2", &rt.Collective{Op: rt.Broadcast, Group: "world", Root: 2, Ins: rt.Ts{x}, Outs: rt.Ts{x}}},
			{"twice", &rt.Collective{Op: rt.CollectivePermute, Group: "world", Pairs: []int64{0, 1, 1, 1}, Ins: rt.Ts{x}, Outs: rt.Ts{x}}},
			{"splits", &rt.Collective{Op: rt.AllToAll, Group: "world", InSplits: [][]int64{{4}}, OutSplits: [][]int64{{4}}, Ins: rt.Ts{x}, Outs: rt.Ts{x}}},
			{"barrier has no operands", &rt.Collective{Op: rt.Barrier, Group: "world", Ins: rt.Ts{x}}},
		} {
			if err := run(ctx, r, c.call); err == nil || !strings.Contains(err.Error(), c.want) {
				return fmt.Errorf("%v: got %v, want %q", c.call.Op, err, c.want)
			}
		}
		return run(ctx, r, sumOf(x)) // nothing of this broke the world
	})
	for i, err := range errs {
		if err != nil {
			t.Errorf("rank %d: %v", i, err)
		}
	}
}

// What a module calls has to be there for this kind of device when the module is loaded:
// nothing of it has run then.
func TestFuncMissing(t *testing.T) {
	ran := func(*rt.FuncCall) error { t.Error("a function ran"); return nil }
	mod := &rt.Module{Name: "m", Streams: []string{"compute"}, Calls: []string{"a", "f"}}
	for _, c := range []struct {
		f    rt.Func
		want string
	}{
		{rt.Func{}, "rank 0: module m calls @f, for which no function is registered in Config.Funcs"},
		{rt.Func{GPU: ran}, "rank 0: module m calls @f, whose function is for GPUs only: a host device needs another in Config.Funcs"},
	} {
		cfg := rt.Config{Funcs: map[string]rt.Func{"a": {Host: ran}, "f": c.f}}
		for i, err := range each(t, 2, cfg, host.Options{}, []*rt.Module{mod}, func(context.Context, *rt.Rank) error { t.Error("joined"); return nil }) {
			var missing *rt.FuncError
			if !errors.As(err, &missing) || !errors.Is(err, rt.ErrUnsupported) || !strings.HasSuffix(missing.Error(), strings.TrimPrefix(c.want, "rank 0")) {
				t.Errorf("rank %d: %v", i, err)
			}
		}
	}
}

// TestTimeoutNamesGroup: what a peer did last is told of groups that came later, too.
func TestTimeoutNamesGroup(t *testing.T) {
	errs := each(t, 2, rt.Config{Timeout: time.Second, UserBytes: 512}, host.Options{}, nil, func(ctx context.Context, r *rt.Rank) error {
		if err := r.Device().AddGroup(ctx, rt.Group{Name: "later", Ranks: [][]int{{1, 0}}}); err != nil {
			return err
		}
		if err := r.Barrier(ctx); err != nil {
			return err
		}
		c := sumOf(rt.C(0, rt.F32, 4))
		c.Group = "later"
		if err := run(ctx, r, c); err != nil || r.Info().Rank == 1 {
			time.Sleep(2 * time.Second)
			return err
		}
		return run(ctx, r, sumOf(rt.C(0, rt.F32, 4)))
	})
	if want := `rank 1 finished all_reduce on "later"`; errs[0] == nil || !strings.Contains(errs[0].Error(), want) {
		t.Errorf("rank 0: %v; want %q", errs[0], want)
	}
}

// TestClosedTakesNoGroup: the pads of processes are gone with the device.
func TestClosedTakesNoGroup(t *testing.T) {
	leak.Check(t)
	r, err := rt.Join(t.Context(), host.Opener(host.Options{}), rt.Config{Env: &rt.Env{World: 1}})
	if err != nil {
		t.Skip(err)
	}
	if err := r.Close(); err != nil {
		t.Error(err)
	}
	if err := r.Device().AddGroup(t.Context(), rt.Group{Name: "late", Ranks: [][]int{{0}}}); !errors.Is(err, rt.ErrClosed) {
		t.Errorf("a closed device takes a group: %v", err)
	}
}

// TestLocalFails: no rank waits for a rank that cannot even join.
func TestLocalFails(t *testing.T) {
	leak.Check(t)
	synctest.Test(t, func(t *testing.T) {
		stage := &rt.Module{Name: "stage", Streams: []string{"s"}, Joint: "a stage of two", Ranks: []int{0}}
		err := host.Local(t.Context(), 2, rt.Config{}, host.Options{}, []*rt.Module{stage}, func(context.Context, *rt.Rank) error { return nil })
		if err == nil || errors.Is(err, rt.ErrTimeout) || !strings.Contains(err.Error(), "this stage is for ranks [0]") {
			t.Errorf("got %v", err)
		}
	})
}
