package sched

import (
	"testing"
)

// Deferred weight gradients pin activations. Whatever the length of the chain,
// and even where memory is no concern, a few windows of them must do.
func TestDeferralNeedsAFewWindows(t *testing.T) {
	for name, c := range map[string]chain{
		"both":     defaultChain(0),
		"tensor":   {DxMs: 0.6, DwMs: 0.6, TPMs: 0.2, Act: 64 << 20, Weight: 16 << 20, Small: 2},
		"sharding": {DxMs: 0.6, DwMs: 0.6, FSDPMs: 0.5, Act: 64 << 20, Weight: 112 << 20, Small: 2},
	} {
		t.Run(name, func(t *testing.T) {
			for _, layers := range []int{20, 80, 320, 640} {
				c.Layers = layers
				m, err := c.Model()
				if err != nil {
					t.Fatal(err)
				}
				r, err := Schedule(m, Options{Cap: 1 << 60, MemoryTradeoff: -1})
				if err != nil {
					t.Fatal(err)
				}
				// Six layers' activations and weights, of up to 640 layers.
				if extra := r.Timeline.Peak - r.Floor; extra > 6*(c.Act+c.Weight) {
					t.Errorf("%d layers: %.2f GiB above the floor of %.2f", layers, gib(extra), gib(r.Floor))
				}
				if r.Gap() > 0.02 {
					t.Errorf("%d layers: gap %.3f", layers, r.Gap())
				}
			}
		})
	}
}
