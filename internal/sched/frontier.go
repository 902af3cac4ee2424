package sched

import (
	"errors"

	"github.com/seed-ee968945/concert/sim"
)

// Point is one cap of a frontier.
type Point struct {
	Cap      int64   // bytes
	Makespan float64 // milliseconds, 0 if nothing was found
	Peak     int64   // bytes
	Found    bool
}

// Frontier schedules the model once under each cap, given as fractions of the peak
// of the input order, and returns what makespan each buys. A larger cap never
// yields a longer makespan: a schedule under a smaller one counts for it, too. The
// caps should ascend. Memory is not traded for time: MemoryTradeoff does not apply.
func Frontier(m *sim.Model, opts Options, fractions []float64) ([]Point, error) {
	input, err := sim.Evaluate(m, m.InputOrder(), nil)
	if err != nil {
		return nil, err
	}
	opts.MemoryTradeoff = -1
	var out []Point
	for i, f := range fractions {
		p := Point{Cap: int64(f * float64(input.Peak))}
		opts.Cap = p.Cap
		r, err := Schedule(m, opts)
		switch {
		case err == nil:
			p.Makespan, p.Peak, p.Found = r.Timeline.Makespan, r.Timeline.Peak, true
		case !errors.Is(err, ErrInfeasible):
			return nil, err
		}
		if i > 0 && out[i-1].Found && out[i-1].Cap <= p.Cap && (!p.Found || out[i-1].Makespan < p.Makespan) {
			p.Makespan, p.Peak, p.Found = out[i-1].Makespan, out[i-1].Peak, true
		}
		out = append(out, p)
	}
	return out, nil
}
