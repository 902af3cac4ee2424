// Package drivertest has helpers for tests on GPUs.
package drivertest

import (
	"testing"

	"github.com/seed-ee968945/concert/cuda/driver"
)

// GPUs opens the driver of this machine for a test of so many devices, and lists those that there are.
// It skips the test where they are fewer, and where flag -gpu, which asked is, was not given.
func GPUs(t testing.TB, asked bool, wanted int) (driver.Driver, []driver.DeviceInfo) {
	t.Helper()
	if !asked {
		t.Skipf("runs on GPUs only, %d or more: ask for them with -gpu", wanted)
	}
	drv, err := driver.Open("")
	if err != nil {
		t.Fatal(err)
	}
	infos, err := drv.Devices()
	if err != nil {
		t.Fatal(err)
	}
	if len(infos) < wanted {
		t.Skipf("runs on %d or more GPUs, there are %d", wanted, len(infos))
	}
	return drv, infos
}
