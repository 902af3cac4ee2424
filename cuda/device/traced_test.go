//go:build linux

package device_test

import (
	"fmt"
	"testing"

	"github.com/seed-ee968945/concert/internal/hostrun"
	"github.com/seed-ee968945/concert/interp"
	"github.com/seed-ee968945/concert/interp/step"
	"github.com/seed-ee968945/concert/lower"
	rt "github.com/seed-ee968945/concert/runtime"
)

// The traced steps on two devices of the fake driver: eagerly, packed, and as graphs,
// node by node and with fused kernels; all give the host device's bits.
func TestTraced(t *testing.T) {
	for _, name := range []string{"tiny_fsdp2", "tiny_tp2", "tiny_tpsp2", "tiny_ddp2", "tiny_moe2"} {
		pair, err := step.Load(testdata+"graphs", name)
		if err != nil {
			t.Fatal(err)
		}
		in, err := interp.RandomInputs(pair.Forward, 1, interp.RandomOptions{})
		if err != nil {
			t.Fatal(err)
		}
		wantFw, wantBw, err := pair.Run(t.Context(), hostrun.Goroutines(rt.Config{}), in)
		if err != nil {
			t.Fatal(err)
		}
		for _, kernels := range []bool{false, true} {
			for _, h := range []how{eager, packed, graph} {
				if testing.Short() && h == packed {
					continue
				}
				t.Run(fmt.Sprintf("%s/kernels=%v/%v", name, kernels, h), func(t *testing.T) {
					noGoroutines(t)
					drv := newFake(t, 2)
					fw, bw, err := pair.Run(t.Context(), runner(drv, devices(2), small(2), lower.Options{Kernels: kernels}, h, 3), in)
					if err != nil {
						t.Fatal(err)
					}
					compare(t, "forward", fw, wantFw)
					compare(t, "backward", bw, wantBw)
				})
			}
		}
	}
}

func compare(t *testing.T, half string, got, want [][]interp.Tensor) {
	t.Helper()
	for r := range want {
		for k := range want[r] {
			if !interp.Equal(got[r][k], want[r][k]) {
				t.Errorf("%s: rank %d output %d differs from the host device's", half, r, k)
			}
		}
	}
}
