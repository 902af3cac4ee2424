package sched

import (
	"testing"

	"github.com/seed-ee968945/concert/sim"
	"github.com/seed-ee968945/concert/sim/simtest"
)

func TestDeferralNeedsAFewWindows(t *testing.T) {
	for _, c := range []simtest.Chain{
		simtest.Default(0),
		{DxMs: 0.6, DwMs: 0.6, TPMs: 0.2, Act: 64 << 20, Weight: 16 << 20, Small: 2},    // tensor parallel only
		{DxMs: 0.6, DwMs: 0.6, FSDPMs: 0.5, Act: 64 << 20, Weight: 112 << 20, Small: 2}, // sharded parameters only
	} {
		for _, layers := range []int{20, 40, 80, 160, 320, 640} {
			c.Layers = layers
			m, err := c.Model()
			if err != nil {
				t.Fatal(err)
			}
			r, err := Schedule(m, Options{Cap: 1 << 60, Thrift: -1})
			if err != nil {
				t.Fatal(err)
			}
			q, err := Schedule(m, Options{Cap: 1 << 60})
			if err != nil {
				t.Fatal(err)
			}
			t.Logf("%d layers: floor %.2f peak %.2f (extra %.2f) input %.2f gap %.4f  thrifty extra %.2f gap %.4f %d runs", layers, gib(r.Floor), gib(r.Timeline.Peak), gib(r.Timeline.Peak-r.Floor), gib(r.Input.Peak), r.Gap(),
				gib(q.Timeline.Peak-q.Floor), q.Gap(), q.Runs)
		}
	}
}

var _ = sim.Align
