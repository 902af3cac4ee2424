//go:build linux

package device_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/seed-ee968945/concert/cuda/device"
	"github.com/seed-ee968945/concert/cuda/driver"
	"github.com/seed-ee968945/concert/cuda/driver/fake"
	"github.com/seed-ee968945/concert/cuda/nccl"
	"github.com/seed-ee968945/concert/internal/hostrun"
	"github.com/seed-ee968945/concert/internal/leak"
	rt "github.com/seed-ee968945/concert/runtime"
	"github.com/seed-ee968945/concert/runtime/host"
	"github.com/seed-ee968945/concert/runtime/rendezvous"
)

// hosts is a world of ranks that are openers of their own, so many on each host, with NCCL's
// double and registration.
type hosts struct {
	ranks, each int
	off         bool                            // NoRegister
	lacks       error                           // of the double
	library     func(l *nccl.Host) nccl.Library // in its place, if not nil
	libs        []*nccl.Host
	drvs        []*fake.Driver
	log         lockedBuffer
}

// lockedBuffer takes what all ranks log.
type lockedBuffer struct {
	mu sync.Mutex
	bytes.Buffer
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.Buffer.Write(p)
}

// onDriver is NCCL's double on a fake driver.
func onDriver(f *fake.Driver) *nccl.Host {
	return nccl.NewHost(nccl.Machine{
		Enqueue: func(ctx, stream uintptr, run func() error) error {
			var c driver.Commands
			c.Call(driver.Main, f.RegisterCall(func([]uint64) error { return run() }))
			return f.Run(driver.Ctx(ctx), c.On(driver.Stream(stream)))
		},
		Bytes: func(at uintptr, n uint64) []byte { return driver.HostBytes(driver.Ptr(at), n) },
	})
}

// run joins the ranks, calls body on each, and gives their errors.
func (h *hosts) run(t *testing.T, mods []*rt.Module, body func(ctx context.Context, r *rt.Rank) error) []error {
	t.Helper()
	fakeOnly(t)
	leak.Check(t)
	job := rendezvous.NewLocal()
	errs := make([]error, h.ranks)
	var wg sync.WaitGroup
	for i := range h.ranks {
		drv := newFake(t, 4)
		lib := onDriver(drv)
		lib.Lacks = h.lacks
		h.libs, h.drvs = append(h.libs, lib), append(h.drvs, drv)
		o := small(h.ranks)
		o.NCCL.Library, o.NCCL.NoRegister = lib, h.off
		if h.library != nil {
			o.NCCL.Library = h.library(lib)
		}
		o.Machine = recorded(t, "h200x4", drv)
		o.Machine.Host.ID, o.Machine.Host.Name = fmt.Sprint("boot ", i/h.each), fmt.Sprint("host", i/h.each)
		o.Log = slog.New(slog.NewTextHandler(&h.log, nil))
		cfg := rt.Config{Timeout: plenty, Job: job, Env: &rt.Env{Rank: i, World: h.ranks, LocalRank: i % h.each, LocalWorld: h.each, Source: "test"}}
		wg.Go(func() {
			r, err := rt.Join(t.Context(), device.Opener(drv, o), cfg, mods...)
			if err == nil {
				err = errors.Join(body(t.Context(), r), r.Close())
			}
			errs[i] = err
		})
	}
	wg.Wait()
	for i, lib := range h.libs {
		if n := lib.Leaks(); n != 0 {
			t.Errorf("rank %d: %d communicators and registrations are left", i, n)
		}
	}
	return errs
}

// islandsOn runs the module of TestIslands, whose results must be the host device's.
func islandsOn(t *testing.T, h *hosts) {
	t.Helper()
	m := newIslands()
	want := make([][]rt.Value, m.World)
	err := host.Local(t.Context(), m.World, rt.Config{Timeout: plenty}, host.Options{}, []*rt.Module{m.Module}, func(ctx context.Context, r *rt.Rank) (err error) {
		want[r.Info().Rank], err = rt.RunModule(ctx, r, m.Module, m.step, m.input(r.Info().Rank), rt.Options{})
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	for i, err := range h.run(t, []*rt.Module{m.Module}, func(ctx context.Context, r *rt.Rank) error {
		return alike(ctx, r, m.Module, m.step, m.input, want[r.Info().Rank], 2, func(*rt.Step) error { return nil })
	}) {
		if err != nil {
			t.Errorf("rank %d: %v", i, err)
		}
	}
}

// Groups with one rank a host run on registered memory, which is made for network adapters: the
// double refuses ranks that differ, and calls whose registration has ended.
func TestRegistered(t *testing.T) {
	for _, tc := range []struct {
		name       string
		each       int
		registered int // by each rank: arena and scratch, for each group that is apart
		missing    string
	}{
		{"a rank a host", 1, 6, ""},
		{"two ranks a host", 2, 2, "the group has several ranks on one host"}, // of world; "in" is in a host
	} {
		t.Run(tc.name, func(t *testing.T) {
			h := &hosts{ranks: 4, each: tc.each}
			islandsOn(t, h)
			for i := range h.libs {
				if n := h.libs[i].Registered(); n < tc.registered {
					t.Errorf("rank %d: memory was registered %d times, want %d or more", i, n, tc.registered)
				}
				if h.drvs[i].Networked() == 0 {
					t.Errorf("rank %d: no memory was made for network adapters", i)
				}
			}
			if s := h.log.String(); !strings.Contains(s, "registration") || !strings.Contains(s, tc.missing) {
				t.Errorf("log: %s", s)
			}
		})
	}
}

// An old library, or the options, register nothing; all else is as before, and the log says why.
func TestNoRegistration(t *testing.T) {
	for _, tc := range []struct {
		h         *hosts
		networked bool
		want      string
	}{
		{&hosts{ranks: 4, each: 1, lacks: &nccl.LackError{Version: 22304}}, true, "rank 0: NCCL 2.23.4 does not use registered memory"},
		{&hosts{ranks: 4, each: 1, off: true}, false, "rank 0: the options say so"},
		{&hosts{ranks: 4, each: 4}, false, ""}, // nothing leaves the host
	} {
		islandsOn(t, tc.h)
		if n := tc.h.libs[0].Registered(); n != 0 {
			t.Errorf("%s: memory was registered %d times", tc.want, n)
		}
		if n := tc.h.drvs[0].Networked(); (n > 0) != tc.networked {
			t.Errorf("%s: memory was made for network adapters %d times", tc.want, n)
		}
		if s := tc.h.log.String(); !strings.Contains(s, tc.want) {
			t.Errorf("log: %s", s)
		}
	}
}

// Regions come and go under communicators that stay: each is deregistered before its memory goes.
func TestRegisteredWorldLives(t *testing.T) {
	h := &hosts{ranks: 2, each: 1}
	l := hostrun.Living{Steps: 12, Kernels: true, Capture: true, Each: behind}
	for i, err := range h.run(t, nil, func(ctx context.Context, r *rt.Rank) error { return l.Run(ctx, r) }) {
		if err != nil {
			t.Errorf("rank %d: %v", i, err)
		}
	}
	if n := h.libs[0].Registered(); n < l.Steps {
		t.Errorf("memory was registered %d times in %d steps", n, l.Steps)
	}
}

// failing is a library of which one call that registers, or ends that, fails.
type failing struct {
	*nccl.Host
	call  string
	count *atomic.Int64 // calls left until then
}

func (f failing) err(call string) error {
	if call == f.call && f.count.Add(-1) == 0 {
		return &nccl.Error{Call: call, Code: nccl.SystemError, Text: "as asked"}
	}
	return nil
}

func (f failing) Register(ctx uintptr, h nccl.Handle, at uintptr, bytes uint64) (nccl.Registration, error) {
	if err := f.err("ncclCommRegister"); err != nil {
		return 0, err
	}
	return f.Host.Register(ctx, h, at, bytes)
}

func (f failing) Deregister(ctx uintptr, h nccl.Handle, r nccl.Registration) error {
	return errors.Join(f.Host.Deregister(ctx, h, r), f.err("ncclCommDeregister"))
}

// Whichever registration fails: the rank says so, the others hear of it, nothing is left.
func TestRegistrationFails(t *testing.T) {
	m := newIslands()
	for _, call := range []string{"ncclCommRegister", "ncclCommDeregister"} {
		for nth := 1; ; nth++ {
			counts := make([]atomic.Int64, m.World)
			rank := -1
			h := &hosts{ranks: m.World, each: 1}
			h.library = func(l *nccl.Host) nccl.Library {
				rank++
				if rank == 1 {
					counts[rank].Store(int64(nth))
				}
				return failing{l, call, &counts[rank]}
			}
			errs := h.run(t, []*rt.Module{m.Module}, func(ctx context.Context, r *rt.Rank) error {
				_, err := rt.RunModule(ctx, r, m.Module, m.step, m.input(r.Info().Rank), rt.Options{})
				return err
			})
			if t.Failed() {
				t.Fatalf("%s %d: %v", call, nth, errs)
			}
			if counts[1].Load() > 0 { // there were fewer
				if nth < 4 {
					t.Errorf("%s was called %d times", call, nth-1)
				}
				break
			}
			if call == "ncclCommRegister" && !errors.Is(errs[1], &nccl.Error{Code: nccl.SystemError}) {
				t.Errorf("%s %d: rank 1: %v", call, nth, errs[1])
			}
		}
	}
}
