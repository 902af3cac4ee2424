package partition

import (
	"fmt"

	"github.com/seed-ee968945/concert/ir"
	"github.com/seed-ee968945/concert/passes"
)

// Point is one point of the curve of memory against recomputation.
type Point struct {
	Budget      float64
	LimitBytes  int64   // what the budget allows
	SavedBytes  int64   // what is saved, by storage, without parameters and data
	RecomputeMs float64 // time of the operations that run in both the forward and the backward function
	Saved       int     // values that are saved
	Recomputed  int     // operations that run in both the forward and the backward function

	// ForwardPeak and BackwardPeak are the peak memory of the halves in the order in
	// which they are emitted, inputs included, by package sim. The lowest peak is
	// not at the smallest budget, see pass partition.
	ForwardPeak, BackwardPeak int64
}

// Curve says for each budget what pass partition would do to a joint
// function, without changing it. costs serves nodes without attached costs and
// may be nil. The points share their minimum cuts, so that a curve costs little
// more than its most expensive point. It fails where f is not a joint function, a
// budget lies outside 0..1, or f cannot be split (*Error).
func Curve(f *ir.Func, costs passes.CostModel, budgets []float64) ([]Point, error) {
	p := Pass()
	j, err := readJoint(passes.NewContext(&p, costs, f), f)
	if err != nil {
		return nil, err
	}
	if j == nil {
		return nil, fmt.Errorf("partition: @%s is not a joint function: it has no tangents, takes saved values, or all of its outputs depend on tangents", f.Name)
	}
	c := newCutter(j)
	var out []Point
	for _, b := range budgets {
		if !(b >= 0 && b <= 1) {
			return nil, fmt.Errorf("partition: budget %g: a budget lies between 0 and 1", b)
		}
		plan, err := c.plan(b)
		if err != nil {
			return nil, err
		}
		pt := Point{Budget: b, LimitBytes: plan.limit, SavedBytes: plan.bytes, RecomputeMs: plan.ms, Recomputed: plan.repeat}
		for _, s := range plan.saved {
			if s {
				pt.Saved++
			}
		}
		scratch := ir.NewModule(f.Module().World)
		for _, y := range f.Module().Symbols() {
			scratch.AddSymbol(y.Name, y.Hint, y.Min, y.Max)
		}
		fw, bw := emitHalves(scratch, j, plan)
		if pt.ForwardPeak, pt.BackwardPeak, err = peaks(fw, bw); err != nil {
			return nil, err
		}
		out = append(out, pt)
	}
	return out, nil
}
