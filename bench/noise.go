package bench

import (
	"context"
	"fmt"

	"github.com/seed-ee968945/concert/interp"
	"github.com/seed-ee968945/concert/interp/step"
)

func tooFar(all []step.Result) int {
	bad := 0
	for _, r := range all {
		if !r.OK() {
			bad++
		}
	}
	return bad
}

// allowNoise widens the bounds of results that are nothing but rounding errors, of which two runs
// that add in other orders have no digit in common, and of those as near to float64 as any.
func (j *Job) allowNoise(ctx context.Context, t *Console, all []step.Result, got [][][]interp.Tensor) error {
	defer t.Phase("computing in float64")()
	in, err := j.allInputs()
	if err != nil {
		return err
	}
	noise, err := j.traced.MeasureNoise(ctx, interp.Options{Symbols: j.Symbols}, in)
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if err != nil {
		fmt.Fprintf(t.Err, "note: whether results are rounding errors cannot be measured: %v\n", err)
		return nil
	}
	noise.Allow(all, got)
	return nil
}

// reportNoise counts the outputs that agree only as far as rounding errors can.
func reportNoise(t *Console, all []step.Result) {
	noise, exact := 0, 0
	for _, r := range all {
		if r.Bound.Noise {
			noise++
		}
		if r.Bound.Exact {
			exact++
		}
	}
	note := t.Colour("33", "note")
	if noise > 0 {
		fmt.Fprintf(t.Out, "%s: %d of them are rounding errors and nothing else: float64 gives other numbers\n", note, noise)
	}
	if exact > 0 {
		fmt.Fprintf(t.Out, "%s: %d of them are beyond their limits and as close to what float64 gives as what is expected is\n", note, exact)
	}
}
