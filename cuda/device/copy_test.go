//go:build linux

package device_test

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/seed-ee968945/concert/cuda/device"
	"github.com/seed-ee968945/concert/cuda/driver"
	rt "github.com/seed-ee968945/concert/runtime"
)

// uploads counts copies to the device.
type uploads struct {
	driver.Driver
	count int
}

func (d *uploads) CopyIn(c driver.Ctx, s driver.Stream, to driver.Ptr, from []byte) error {
	d.count++
	return d.Driver.CopyIn(c, s, to, from)
}

// What is uploaded into any layout is downloaded again, and the bytes between its elements
// stay; what is contiguous on the device is one copy, whatever the order of its indices.
func TestUploads(t *testing.T) {
	drv, devs, o := target(t, 1)
	d := &uploads{Driver: drv}
	if !*onGPU { // the driver does not look like the host's, and libraries for GPUs may be installed
		o.NVRTC, o.Libraries = "/nonexistent/libnvrtc.so", nil
	}
	all := rt.C(0, rt.U8, 4096)
	m := &rt.Module{Name: "m", World: 1, Arena: 4096, Streams: []string{"compute"}}
	err := device.Local(t.Context(), d, devs, rt.Config{Timeout: plenty}, o, []*rt.Module{m}, func(_ context.Context, r *rt.Rank) error {
		for _, c := range []struct {
			to     rt.Tensor
			copies int
		}{
			{rt.C(64, rt.F32, 3, 4, 5), 1},
			{rt.S(64, rt.F32, rt.Dims{30, 20}, rt.Dims{1, 30}), 1},
			{rt.S(64, rt.BF16, rt.Dims{3, 1, 4, 5}, rt.Dims{4, 7, 1, 12}), 1},
			{rt.S(64, rt.U8, rt.Dims{6, 10}, rt.Dims{1, 16}), 10},
			{rt.S(64, rt.I64, rt.Dims{4, 3, 5}, rt.Dims{3, 1, 20}), 5},
			{rt.S(64, rt.F32, rt.Dims{3, 4}, rt.Dims{2, 6}), 12},
			{rt.S(64, rt.F32, rt.Dims{0, 4}, rt.Dims{1, 3}), 0},
		} {
			before := bytes.Repeat([]byte{0xee}, 4096)
			if err := r.Upload(all, before); err != nil {
				return err
			}
			data := make([]byte, c.to.Bytes())
			fill(c.to.DType, rand.New(rand.NewPCG(3, 1)), data)
			d.count = 0
			if err := r.Upload(c.to, data); err != nil {
				return err
			}
			if d.count != c.copies {
				t.Errorf("%v: %d copies, want %d", c.to, d.count, c.copies)
			}
			if got, err := r.Download(c.to); err != nil || !bytes.Equal(got, data) {
				t.Errorf("%v: what was uploaded does not come back: %v", c.to, err)
			}
			after, err := r.Download(all)
			if err != nil {
				return err
			}
			changed := 0
			for i := range after {
				if after[i] != before[i] {
					changed++
				}
			}
			if int64(changed) > c.to.Bytes() {
				t.Errorf("%v: %d bytes changed, it has %d", c.to, changed, c.to.Bytes())
			}
			if lo, hi, err := c.to.Span(); err != nil || !bytes.Equal(after[:lo], before[:lo]) || !bytes.Equal(after[hi:], before[hi:]) {
				return fmt.Errorf("%v: bytes around it changed: %v", c.to, err)
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}
