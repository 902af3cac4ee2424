//go:build linux

package device_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/seed-ee968945/concert/cuda/device"
	"github.com/seed-ee968945/concert/cuda/topo"
	rt "github.com/seed-ee968945/concert/runtime"
	"github.com/seed-ee968945/concert/runtime/host"
	"github.com/seed-ee968945/concert/runtime/rendezvous"
)

// failures are what rank 1 of two does while rank 0 waits in a collective, or before that,
// and the errors of both.
var failures = []struct {
	name  string
	opens func(cfg *rt.Config, rank int) // before joining
	does  func(r *rt.Rank) error         // rank 1, whose error is what it gives
	want  [2]string                      // as described makes them
}{
	{name: "late", opens: func(cfg *rt.Config, _ int) { cfg.Timeout = 100 * time.Millisecond }, does: broken,
		want: [2]string{late, "canceled, rank 1 by 0: " + late}},
	{name: "aborts", does: func(r *rt.Rank) error { r.Abort(errors.New("out of luck")); return r.Err() },
		want: [2]string{`canceled, rank 0 by 1, all_reduce on "world" (%s) of "world": out of luck`, "canceled, rank 1 by 1: out of luck"}},
	{name: "leaves", does: func(r *rt.Rank) error { return errors.Join(r.Close(), r.Barrier(context.TODO())) },
		want: [2]string{`lost, rank 0 of 1, left true, all_reduce on "world" (%s) of "world"`, "closed"}},
	{name: "differs", opens: func(cfg *rt.Config, rank int) { cfg.UserBytes = 512 * int64(1+rank) },
		want: [2]string{"mismatch, rank 0 and 1, arena bytes: 512 and 1024", "mismatch, rank 1 and 0, arena bytes: 1024 and 512"}},
	{name: "dies", does: func(*rt.Rank) error { os.Exit(0); return nil },
		want: [2]string{`lost, rank 0 of 1, left false, all_reduce on "world" (%s) of "world"`, ""}},
}

const late = `timeout, rank 0 of [1], all_reduce on "world" (%s) of "world"`

// described is an error as far as it is the same on all devices: without times, numbers of
// calls and details. What a rank was in that breaks the world itself, or hears of it
// while it waits for nothing, is not known.
func described(err error, waits bool) string {
	var t *rt.TimeoutError
	var l *rt.PeerLostError
	var m *rt.MismatchError
	var c *rt.CanceledError
	of := func(op, group string) string {
		if !waits {
			return ""
		}
		return fmt.Sprintf(", %s of %q", op, group)
	}
	switch {
	case errors.As(err, &c):
		return fmt.Sprintf("canceled, rank %d by %d%s: %s", c.Rank, c.Origin, of(c.Op, c.Group), described(c.Err, true))
	case errors.As(err, &t):
		return fmt.Sprintf("timeout, rank %d of %v%s", t.Rank, t.Missing, of(t.Op, t.Group))
	case errors.As(err, &l):
		return fmt.Sprintf("lost, rank %d of %d, left %v%s", l.Rank, l.Peer, l.Left, of(l.Op, l.Group))
	case errors.As(err, &m):
		return fmt.Sprintf("mismatch, rank %d and %d, %s: %s and %s", m.Rank, m.Peer, m.What, m.RankValue, m.PeerValue)
	case errors.Is(err, rt.ErrClosed):
		return "closed"
	}
	return fmt.Sprint(err)
}

// fails is one rank of a world in which rank 1 does what failure number i says once rank 0
// waits, which it tells by waiting.
func fails(ctx context.Context, i, rank int, join func(cfg rt.Config) (*rt.Rank, error), waiting func(), waits func()) string {
	f := &failures[i]
	cfg := rt.Config{Timeout: plenty, JoinTimeout: plenty, UserBytes: 512}
	if f.opens != nil {
		f.opens(&cfg, rank)
	}
	r, err := join(cfg)
	if err != nil {
		return described(err, true)
	}
	defer r.Close()
	if rank == 1 {
		waits()
		return described(f.does(r), false)
	}
	w, err := r.Start(ctx, "", sumOf(rt.C(0, rt.F32, 4)))
	waiting()
	if err == nil {
		err = w.Wait(ctx)
	}
	return described(err, true)
}

// TestOneErrorSet lets a rank fail in every way, on every device, in ranks that are
// goroutines and in ranks that are processes: the errors are of the same types, with the
// same fields.
func TestOneErrorSet(t *testing.T) {
	fakeOnly(t)
	for _, kind := range []string{"host", "cuda", "nccl"} {
		t.Run(kind+"/goroutines", func(t *testing.T) {
			for i, f := range failures {
				if f.name == "dies" {
					continue // nobody else would be left
				}
				noGoroutines(t)
				var got [2]string
				ready := make(chan struct{})
				one := func(rank int, join func(rt.Config) (*rt.Rank, error)) {
					got[rank] = fails(t.Context(), i, rank, join, func() { close(ready) }, func() { <-ready })
				}
				goroutines(t, kind, one)
				if got != f.want {
					t.Errorf("%s:\ngot  %q\nwant %q", f.name, got, f.want)
				}
			}
		})
		t.Run(kind+"/processes", func(t *testing.T) {
			dir := t.TempDir()
			if err := spawn(t, 2, envFault+"=all of "+kind, envFolder+"="+dir); err != nil {
				t.Error(err)
			}
			for _, f := range failures {
				var got [2]string
				for rank := range got {
					b, _ := os.ReadFile(filepath.Join(dir, fmt.Sprint(f.name, rank)))
					got[rank] = string(b)
				}
				if got != f.want {
					t.Errorf("%s:\ngot  %q\nwant %q", f.name, got, f.want)
				}
			}
		})
	}
}

// TestToldBack lets a rank that times out hear of it first from the other rank, which stops
// because of that.
func TestToldBack(t *testing.T) {
	fakeOnly(t)
	noGoroutines(t)
	var got [2]string
	told := make(chan struct{})
	goroutines(t, "cuda", func(rank int, join func(rt.Config) (*rt.Rank, error)) {
		r, err := join(rt.Config{Timeout: 100 * time.Millisecond, JoinTimeout: plenty, UserBytes: 512})
		if err != nil {
			t.Error(err)
			return
		}
		defer r.Close()
		if rank == 1 {
			<-told
			got[rank] = described(broken(r), false)
			return
		}
		w, err := r.Start(t.Context(), "", sumOf(rt.C(0, rt.F32, 4)))
		if err == nil {
			device.TimedOut(r)
		}
		close(told)
		if err == nil {
			<-device.Broken(r) // by the other rank: nobody waits here
			err = w.Wait(t.Context())
		}
		got[rank] = described(err, true)
	})
	if want := [2]string{late, "canceled, rank 1 by 0: " + late}; got != want {
		t.Errorf("got  %q\nwant %q", got, want)
	}
}

// goroutines calls rank for the two ranks of a world, which each joins by itself.
func goroutines(t *testing.T, kind string, rank func(rank int, join func(rt.Config) (*rt.Rank, error))) {
	opener, job := host.Opener(host.Options{Local: true}), rendezvous.NewLocal()
	if kind != "host" {
		o := small(2)
		if kind == "nccl" {
			o.Transport = topo.NCCL
		}
		opener = device.LocalOpener(newFake(t, 2), devices(2), o)
	}
	var wg sync.WaitGroup
	for r := range 2 {
		wg.Go(func() {
			rank(r, func(cfg rt.Config) (*rt.Rank, error) {
				cfg.Job, cfg.Env = job, &rt.Env{Rank: r, World: 2, LocalRank: r, LocalWorld: 2}
				return rt.Join(t.Context(), opener, cfg)
			})
		})
	}
	wg.Wait()
}

// failsInTurn is a process: a rank of one world after another, in which all failures happen.
func failsInTurn(ctx context.Context, opener rt.Opener) error {
	env, err := rt.EnvFrom(os.Getenv)
	if err != nil {
		return err
	}
	dir := os.Getenv(envFolder)
	for i, f := range failures {
		ready := filepath.Join(dir, f.name)
		got := fails(ctx, i, env.Rank, func(cfg rt.Config) (*rt.Rank, error) { return rt.Join(ctx, opener, cfg) },
			func() { os.WriteFile(ready, nil, 0o600) },
			func() {
				tick := time.NewTicker(time.Millisecond)
				defer tick.Stop()
				for _, err := os.Stat(ready); err != nil; _, err = os.Stat(ready) {
					<-tick.C
				}
			})
		if err := os.WriteFile(filepath.Join(dir, fmt.Sprint(f.name, env.Rank)), []byte(got), 0o600); err != nil {
			return err
		}
	}
	return nil
}
