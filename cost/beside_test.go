package cost

import (
	"math"
	"math/rand/v2"
	"testing"
)

// Slowdowns that observations were made from are found again, with noise as closely as
// the noise allows.
func TestFitSlowdowns(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for _, c := range []struct {
		want  []float64
		noise float64
	}{{[]float64{0.1}, 0}, {[]float64{0.05, 0.4}, 0}, {[]float64{0, 0.3, 0.7}, 0}, {[]float64{0.07, 0.3, 0}, 1}, {[]float64{0, 0}, 1}} {
		var obs []Slowdown
		for range 40 {
			o := Slowdown{Over: make([]float64, len(c.want))}
			for k := range o.Over {
				o.Over[k] = 300 * r.Float64()
				o.Lost += c.want[k] * o.Over[k]
			}
			o.Lost += c.noise * r.NormFloat64()
			obs = append(obs, o)
		}
		got, seen := FitSlowdowns(len(c.want), obs)
		for k := range c.want {
			if !seen[k] || math.Abs(got[k]-c.want[k]) > 1e-9+0.01*c.noise {
				t.Errorf("%v with noise %v: %v", c.want, c.noise, got)
			}
		}
	}
}

// What cannot be told apart, or was not seen, or is outside of the bounds.
func TestFitSlowdownsBounds(t *testing.T) {
	for _, c := range []struct {
		obs  []Slowdown
		want []float64
		seen []bool
	}{
		{nil, []float64{0, 0}, []bool{false, false}},
		{[]Slowdown{{Over: []float64{100, 0}, Lost: 20}}, []float64{0.2, 0}, []bool{true, false}},
		{[]Slowdown{{Over: []float64{100}, Lost: 20}, {Over: []float64{100, 0, 7}, Lost: 20}}, []float64{0.2, 0}, []bool{true, false}},
		{[]Slowdown{{Over: []float64{100, 0}, Lost: -20}}, []float64{0, 0}, []bool{true, false}},
		{[]Slowdown{{Over: []float64{100, 0}, Lost: 200}}, []float64{0.9, 0}, []bool{true, false}},
		{[]Slowdown{{Over: []float64{100, 100}, Lost: 40}, {Over: []float64{50, 50}, Lost: 20}}, []float64{0.2, 0.2}, []bool{true, true}},
		// The second kind would gain by being disturbed: it loses nothing.
		{[]Slowdown{{Over: []float64{100, 0}, Lost: 30}, {Over: []float64{0, 100}, Lost: -10}}, []float64{0.3, 0}, []bool{true, true}},
	} {
		got, seen := FitSlowdowns(2, c.obs)
		for k := range c.want {
			if seen[k] != c.seen[k] || math.Abs(got[k]-c.want[k]) > 1e-9 {
				t.Errorf("%+v: %v %v, want %v %v", c.obs, got, seen, c.want, c.seen)
			}
		}
	}
}

// More kinds than can be tried get one part.
func TestFitSlowdownsOfManyKinds(t *testing.T) {
	const kinds = 100
	var obs []Slowdown
	for k := range kinds {
		o := Slowdown{Over: make([]float64, kinds), Lost: 10}
		if o.Over[k] = 100; k%2 == 1 {
			o.Lost = 30
		}
		obs = append(obs, o)
	}
	got, seen := FitSlowdowns(kinds, obs)
	for k := range kinds {
		if !seen[k] || math.Abs(got[k]-0.2) > 1e-9 {
			t.Fatalf("kind %d: %v, want 0.2", k, got[k])
		}
	}
}
