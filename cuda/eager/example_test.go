//go:build linux

package eager_test

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math"

	"github.com/seed-ee968945/concert/cuda/coll"
	"github.com/seed-ee968945/concert/cuda/driver/fake"
	"github.com/seed-ee968945/concert/cuda/eager"
	"github.com/seed-ee968945/concert/cuda/symm"
	"github.com/seed-ee968945/concert/kernels"
)

// Two ranks of one process add their gradients: each call returns at once, and the wait
// comes where the sum is needed. On a machine with GPUs, driver.Open gives the driver.
func ExampleComm_AllReduce() {
	step := func(ctx context.Context) (err error) {
		drv := fake.New(2)
		world, err := symm.NewLocalWorld(drv, []int{0, 1}, symm.WorldOptions{Bytes: 8 << 20})
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, world.Close()) }()
		group, err := coll.NewGroup(ctx, world, []int{0, 1}, coll.GroupOptions{Region: 1 << 20, Flagged: 1 << 20})
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, group.Close()) }()
		off, err := world.Alloc(4*4, 16) // four floats on every rank
		if err != nil {
			return err
		}

		var works []eager.Work
		for _, m := range group.Members() {
			r := m.Rank
			grad, err := r.Buffer(off, symm.F32, 4)
			if err != nil {
				return err
			}
			s, err := drv.StreamCreate(r.Ctx)
			if err != nil {
				return err
			}
			defer drv.StreamDestroy(r.Ctx, s)
			if err := drv.Memset32(r.Ctx, s, grad.At, math.Float32bits(float32(1+r.ID)), grad.Count); err != nil {
				return err
			}
			w, err := eager.New(m).AllReduce(ctx, s, kernels.Sum, grad.InPlace())
			if err != nil {
				return err
			}
			works = append(works, w)
		}
		for i, w := range works {
			if err := errors.Join(w.Wait(ctx), w.Close()); err != nil {
				return err
			}
			r := world.Rank(i)
			b := make([]byte, 16)
			if err := drv.CopyOut(r.Ctx, r.Setup(), b, world.Addr(i, off)); err != nil {
				return err
			}
			fmt.Println("rank", i, "has", math.Float32frombits(binary.LittleEndian.Uint32(b[12:])))
		}
		return nil
	}
	if err := step(context.Background()); err != nil {
		fmt.Println(err)
	}
	// Output:
	// rank 0 has 3
	// rank 1 has 3
}
