//go:build linux

package device_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/seed-ee968945/concert/cuda/device"
	"github.com/seed-ee968945/concert/cuda/topo"
	rt "github.com/seed-ee968945/concert/runtime"
)

// A collective that a peer never comes to is late also where another wait has ended meanwhile.
func TestLateBehindAnotherWait(t *testing.T) {
	fakeOnly(t)
	noGoroutines(t)
	const n = 2
	drv, devs, o := target(t, n)
	o.Transport = topo.NCCL
	y := rt.C(0, rt.F32, 64)
	m := &rt.Module{Name: "m", World: n, Arena: 4096, Streams: []string{"compute"}, Inputs: []rt.Param{{Name: "y", Tensors: rt.Ts{y}}}, Outputs: []rt.Param{{Name: "y", Tensors: rt.Ts{y}}}}
	alone := func(ctx context.Context, r *rt.Rank) error { // nothing of it waits for a peer
		in := []rt.Value{{DType: rt.F32, Shape: rt.Dims{64}, Data: make([]byte, 256)}}
		_, err := rt.RunModule(ctx, r, m, func(e *rt.Exec) { e.Launch("compute", "neg", nil, rt.Ts{y}, rt.Ts{y}) }, in, rt.Options{})
		return err
	}
	gave := make(chan struct{})
	var got error
	device.Local(t.Context(), drv, devs, rt.Config{Timeout: time.Second, UserBytes: 4096}, hosted(drv, o), []*rt.Module{m}, func(ctx context.Context, r *rt.Rank) error {
		x := r.User(rt.C(0, rt.F32, 64))
		if err := alone(ctx, r); err != nil { // ranks plan it together
			return err
		}
		if r.Info().Rank == 1 {
			<-gave
			return nil
		}
		defer close(gave)
		w, err := r.Start(ctx, "", &rt.Collective{Op: rt.AllReduce, Group: "world", Reduce: "sum", Ins: rt.Ts{x}, Outs: rt.Ts{x}})
		if err != nil {
			return err
		}
		if err := alone(ctx, r); err != nil {
			return err
		}
		got = w.Wait(ctx)
		return got
	})
	var late *rt.TimeoutError
	if !errors.As(got, &late) {
		t.Errorf("got %v, want that the peer is late", got)
	}
}
