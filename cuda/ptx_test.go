//go:build linux

package cuda

import (
	"errors"
	"math/rand/v2"
	"testing"

	"github.com/seed-ee968945/concert/cuda/symm"
	"github.com/seed-ee968945/concert/kernels"
)

// TestPTX runs all cases with the kernels that a driver makes of the embedded PTX, as on
// devices for which no machine code is embedded. On a GPU the driver compiles all images
// first, about a minute where it has not cached them.
func TestPTX(t *testing.T) {
	numbersOnly(t)
	const n = 2
	drv, devs, share := newDriver(t, n)
	r := newRigOn(t, drv, devs, symm.WorldOptions{Bytes: 32 << 20, ShareDevice: share, Images: images(t), PTX: true})
	rng := rand.New(rand.NewPCG(1, 7))
	ran := 0
	for _, c := range allCases(n) {
		err := r.runCase(c, rng)
		var plan *kernels.PlanError
		if errors.As(err, &plan) && c.algo != kernels.Auto {
			continue
		}
		if err != nil {
			t.Fatalf("%v: %v", c, err)
		}
		ran++
	}
	if ran < 1100 {
		t.Errorf("only %d cases ran", ran)
	}
}
