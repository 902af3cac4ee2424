//go:build linux

package fake

import (
	"slices"
	"testing"

	"github.com/seed-ee968945/concert/cuda/driver"
)

// An early launch is a launch with another number, on the stream that it is bound to.
func TestLaunchEarly(t *testing.T) {
	var a, b driver.Commands
	params := []byte{1, 2, 3, 4, 5, 6, 7, 8, 9}
	a.Launch(driver.Main, 7, 3, 64, 128, params)
	b.LaunchDependent(driver.Main, 7, 3, 64, 128, params)
	x, y := slices.Clone(a.On(5)), slices.Clone(b.On(5))
	if x[0]&255 != driver.OpLaunch || y[0]&255 != driver.OpLaunchDependent || x[1] != 5 {
		t.Errorf("opcodes %d and %d on stream %d", x[0]&255, y[0]&255, x[1])
	}
	if x[0]>>8 != y[0]>>8 || !slices.Equal(x[1:], y[1:]) {
		t.Errorf("%v, %v", x, y)
	}
	f := New(1)
	ctx, err := f.CtxRetain(0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.CtxRelease(0)
	s, err := f.StreamCreate(ctx)
	if err != nil {
		t.Fatal(err)
	}
	defer f.StreamDestroy(ctx, s)
	late, early := f.Run(ctx, a.On(s)), f.Run(ctx, b.On(s)) // function 7 does not exist
	if late == nil || early == nil || late.Error() != early.Error() {
		t.Errorf("%v, %v", late, early)
	}
	if err := f.Run(ctx, y[:4]); err == nil {
		t.Error("a malformed command buffer was accepted")
	}
}
