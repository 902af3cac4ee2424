//go:build linux && cgo && (amd64 || arm64)

package nccl

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/seed-ee968945/concert/cuda/driver"
	"github.com/seed-ee968945/concert/cuda/driver/fake"
	"github.com/seed-ee968945/concert/internal/dtype"
	"github.com/seed-ee968945/concert/internal/leak"
	"github.com/seed-ee968945/concert/runtime/rendezvous"
)

// onFake is the host's library on the streams and the memory of a fake driver.
func onFake(f *fake.Driver) *Host {
	return NewHost(Machine{
		Enqueue: func(ctx, stream uintptr, run func() error) error {
			var c driver.Commands
			c.Call(driver.Main, f.RegisterCall(func([]uint64) error { return run() }))
			return f.Run(driver.Ctx(ctx), c.On(driver.Stream(stream)))
		},
		Bytes: func(at uintptr, n uint64) []byte { return driver.HostBytes(driver.Ptr(at), n) },
	})
}

// hostRanks runs body on n ranks with streams of a fake driver.
func hostRanks(t *testing.T, n int, body func(lib Library, st *rendezvous.Job, c *Comm, g *gpu) error) {
	t.Helper()
	leak.Check(t)
	f, st := fake.New(n), rendezvous.NewLocal()
	lib := onFake(f)
	noErrors(t, ranks(n, func(rank int) error {
		g, err := openDriver(f, rank)
		if err != nil {
			return err
		}
		c, err := Join(t.Context(), lib, member(t, st, rank, n), "g", g.ctx, Options{Timeout: plenty})
		if err != nil {
			return err
		}
		err = body(lib, st, c, g)
		if cerr := c.Close(t.Context()); !errors.Is(cerr, ErrClosed) {
			err = errors.Join(err, cerr)
		}
		return errors.Join(err, f.StreamDestroy(g.c, g.s))
	}))
	if lib.Leaks() != 0 {
		t.Errorf("%d communicators leaked", lib.Leaks())
	}
}

func TestHostConformance(t *testing.T) {
	for _, n := range []int{1, 2, 3} {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			if testing.Short() && n == 3 {
				t.Skip("many cases")
			}
			hostRanks(t, n, func(_ Library, _ *rendezvous.Job, c *Comm, g *gpu) error { return conform(t.Context(), c, g.device) })
		})
	}
}

// TestHostCapture replays graphs.
func TestHostCapture(t *testing.T) {
	hostRanks(t, 2, func(_ Library, _ *rendezvous.Job, c *Comm, g *gpu) error { return capture(t.Context(), c, g) })
}

// TestHostRegistered does on the double what TestRegistered does on GPUs.
func TestHostRegistered(t *testing.T) {
	hostRanks(t, 2, func(lib Library, _ *rendezvous.Job, c *Comm, g *gpu) error {
		if err := errors.Join(onRegistered(t, c, g, c.Rank()), remapped(t, c, g, c.Rank())); err != nil {
			return err
		}
		if n := lib.(*Host).Registered(); n < 6 {
			return fmt.Errorf("%d registrations", n)
		}
		return nil
	})
}

// TestHostRegistrations shows what the double holds against a caller: ranks that differ, and
// a registration that ends before a graph that counts on it.
func TestHostRegistrations(t *testing.T) {
	for _, tc := range []struct {
		name, want string
		do         func(c *Comm, g *gpu, at uintptr, run func() error) error
	}{
		{"one rank only", "registered: ", func(c *Comm, _ *gpu, at uintptr, run func() error) error {
			if c.Rank() == 0 {
				if err := c.Register(at, 64); err != nil {
					return err
				}
			}
			return run()
		}},
		{"too early an end", "memory of ncclAllReduce was deregistered before the call ran", func(c *Comm, g *gpu, at uintptr, run func() error) error {
			if err := errors.Join(c.Register(at, 64), g.drv.CaptureBegin(g.c, g.s), run()); err != nil {
				return err
			}
			graph, err := g.drv.CaptureEnd(g.c, g.s)
			if err != nil {
				return err
			}
			defer g.drv.GraphDestroy(g.c, graph)
			x, err := g.drv.GraphInstantiate(g.c, graph)
			if err != nil {
				return err
			}
			defer g.drv.ExecDestroy(g.c, x)
			return errors.Join(c.Deregister(at), g.drv.GraphLaunch(g.c, x, g.s))
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			hostRanks(t, 2, func(_ Library, _ *rendezvous.Job, c *Comm, g *gpu) error {
				at, err := g.alloc(64)
				if err = errors.Join(err, c.g.Barrier(t.Context(), "joined")); err != nil { // a break before would fail others' Join
					return err
				}
				err = tc.do(c, g, at, func() error {
					return c.Run(t.Context(), g.stream, Op{Kind: AllReduce, DType: dtype.F32, Tensors: []Tensor{{Src: at, Dst: at, Bytes: 64}}})
				})
				if err == nil {
					err = c.Wait(t.Context(), "all_reduce", g.done)
				}
				if err == nil || !strings.Contains(err.Error(), tc.want) {
					return fmt.Errorf("%v, want %q", err, tc.want)
				}
				return nil
			})
		})
	}
}

// TestHostLate leaves a rank out and joins anew.
func TestHostLate(t *testing.T) {
	hostRanks(t, 2, func(lib Library, st *rendezvous.Job, c *Comm, g *gpu) error { return lose(t, lib, st, c, g, false) })
}

// TestHostPeerGone ends a rank without a word: the other sees the broken connection.
func TestHostPeerGone(t *testing.T) {
	hostRanks(t, 2, func(lib Library, st *rendezvous.Job, c *Comm, g *gpu) error {
		if err := c.g.Barrier(t.Context(), "joined"); err != nil {
			return err
		}
		if c.Rank() == 1 {
			c.mu.Lock()
			h := c.h
			c.mu.Unlock()
			if err := lib.Abort(g.ctx, h); err != nil { // as if the process had ended: nobody is told
				return err
			}
			<-c.broken
			return nil
		}
		at, err := g.alloc(64)
		if err != nil {
			return err
		}
		err = c.Run(t.Context(), g.stream, Op{Kind: AllReduce, DType: dtype.F32, Tensors: []Tensor{{Src: at, Dst: at, Bytes: 64}}})
		if err == nil {
			err = c.Wait(t.Context(), "all_reduce", g.done)
		}
		if !errors.Is(err, rendezvous.ErrTimeout) && !errors.Is(err, rendezvous.ErrCanceled) {
			return fmt.Errorf("rank 0: %v", err)
		}
		return nil
	})
}
