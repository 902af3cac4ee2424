//go:build linux

package fake

import (
	"testing"

	"github.com/seed-ee968945/concert/cuda/driver"
)

// A mark tells when a launch of the graph came by, the last one's time each time, and
// stands in captures only.
func TestMark(t *testing.T) {
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
	var ev [3]driver.Event
	for i := range ev {
		if ev[i], err = f.EventCreate(ctx, true); err != nil {
			t.Fatal(err)
		}
	}
	var c driver.Commands
	c.Mark(driver.Main, ev[0])
	c.Mark(driver.Main, ev[1])
	if err := f.Run(ctx, c.On(s)); err == nil {
		t.Error("a mark outside of a capture")
	}
	if err := f.CaptureBegin(ctx, s); err != nil {
		t.Fatal(err)
	}
	if err := f.Run(ctx, c.On(s)); err != nil {
		t.Fatal(err)
	}
	g, err := f.CaptureEnd(ctx, s)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.EventElapsed(ctx, ev[0], ev[1]); err == nil {
		t.Error("a mark that was never passed has a time")
	}
	x, err := f.GraphInstantiate(ctx, g)
	if err != nil {
		t.Fatal(err)
	}
	if err := f.EventRecord(ctx, ev[2], s); err != nil {
		t.Fatal(err)
	}
	last := float32(-1)
	for range 2 {
		if err := f.GraphLaunch(ctx, x, s); err != nil {
			t.Fatal(err)
		}
		if err := f.StreamSync(ctx, s); err != nil {
			t.Fatal(err)
		}
		a, err := f.EventElapsed(ctx, ev[2], ev[0])
		if err != nil {
			t.Fatal(err)
		}
		b, err := f.EventElapsed(ctx, ev[2], ev[1])
		if err != nil {
			t.Fatal(err)
		}
		if !(a > last && b > a) {
			t.Errorf("marks at %v and %v ms, the launch before ended with one at %v", a, b, last)
		}
		last = b
	}
}
