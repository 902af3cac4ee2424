package window_test

import (
	"math/rand/v2"
	"testing"

	"github.com/seed-ee968945/concert/internal/window"
)

// Phases are all windows, each once, and all of their places that meet an element.
func TestPhases(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for range 2000 {
		d := window.Dim{Size: rng.Int64N(5), Stride: 1 + rng.Int64N(4), Low: rng.Int64N(7) - 3, High: rng.Int64N(7) - 3,
			Base: 1 + rng.Int64N(4), Dilation: 1 + rng.Int64N(4)}
		n := rng.Int64N(9)
		type pair struct{ window, tap int64 }
		want, seen := map[pair]int64{}, map[int64]bool{}
		for o := range d.Count(n) {
			for k := range d.Size {
				at := o*d.Stride + k*d.Dilation
				if at < 0 || at >= d.Span(n) {
					t.Fatalf("%+v over %d: place %d of window %d is outside", d, n, k, o)
				}
				if at -= d.Low; at >= 0 && at%d.Base == 0 && at/d.Base < n {
					want[pair{o, k}] = at / d.Base
				}
			}
		}
		for _, p := range d.Phases(d.Count(n)) {
			for j := range p.Count {
				o := p.First + j*p.Step
				if seen[o] {
					t.Fatalf("%+v over %d: window %d twice", d, n, o)
				}
				seen[o] = true
				for i := range p.Taps {
					k, at := p.Tap+i*p.TapStep, p.Start+i*p.TapMove+j*p.Move
					if at < 0 || at >= n {
						continue // padding
					}
					if e, ok := want[pair{o, k}]; !ok || e != at || k >= d.Size {
						t.Fatalf("%+v over %d: place %d of window %d is element %d, want %d", d, n, k, o, at, e)
					}
					delete(want, pair{o, k})
				}
			}
		}
		if int64(len(seen)) != d.Count(n) || len(want) > 0 {
			t.Fatalf("%+v over %d: %d of %d windows, and without %v", d, n, len(seen), d.Count(n), want)
		}
	}
}

func TestParse(t *testing.T) {
	for _, bad := range []map[string][]int64{
		{window.StridesKey: {0, 1}}, {window.StridesKey: {1}}, {window.PaddingKey: {1, 1}}, {window.BaseKey: {1, -1}},
		{window.DilationKey: {1, 1 << 31}}, {window.ReverseKey: {0, 2}}, {window.PaddingKey: {0, 0, 0, -1 << 40}},
	} {
		if d, err := window.Parse(func(key string) []int64 { return bad[key] }, []int64{2, 3}); err == nil {
			t.Errorf("%v: %v", bad, d)
		}
	}
	d, err := window.Parse(func(key string) []int64 {
		return map[string][]int64{window.PaddingKey: {1, -2, 3, 4}, window.ReverseKey: {0, 1}}[key]
	}, []int64{2, 3})
	if want := (window.Dim{Size: 3, Stride: 1, Low: 3, High: 4, Base: 1, Dilation: 1, Reverse: true}); err != nil || d[1] != want {
		t.Errorf("%+v, %v", d, err)
	}
}
