//go:build linux

package main

import (
	"fmt"
	"testing"
	"time"

	"github.com/seed-ee968945/concert/cuda/driver/fake"
)

// TestModes runs what needs no clock on the fake driver.
func TestModes(t *testing.T) {
	for _, c := range []struct {
		mode         string
		ranks, calls int
	}{
		{mode: "soak", ranks: 2, calls: 400},
		{mode: "soak", ranks: 3, calls: 400},
	} {
		t.Run(fmt.Sprint(c), func(t *testing.T) {
			drv := fake.New(c.ranks)
			o := options{mode: c.mode, ranks: c.ranks, calls: c.calls, limit: 16 << 20, staging: 16 << 20, region: 1 << 20, timeout: 20 * time.Second}
			if err := runOn(drv, o); err != nil {
				t.Fatal(err)
			}
			if l := drv.Leaks(); len(l) > 0 {
				t.Errorf("not released: %v", l)
			}
		})
	}
}
