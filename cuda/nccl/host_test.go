//go:build linux && cgo && (amd64 || arm64)

package nccl

import (
	"errors"
	"fmt"
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
