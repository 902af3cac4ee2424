package compile

import (
	"github.com/seed-ee968945/concert/cost"
	"github.com/seed-ee968945/concert/internal/place"
	"github.com/seed-ee968945/concert/ir"
	"github.com/seed-ee968945/concert/lower"
	"github.com/seed-ee968945/concert/lower/proof"
	"github.com/seed-ee968945/concert/program"
	"github.com/seed-ee968945/concert/sim"
)

// Function is one function of a compiled module. It is not for concurrent use.
type Function struct {
	Input *ir.Func // as it came in; nil if a pass has made the function
	Func  *ir.Func // after the passes

	result  *Result
	program *program.Program
	layout  *place.Layout
}

// Program is the lowered function, for a GPU with the source of its kernels. Every rank that
// asks gets the same (program.Program.Digest). It is made once and shared by callers, who must
// not change it. Where Manager.Validate asks for proofs, it is proved to compute what the
// function does; see lower/proof. Errors are those of lower.FuncWith and of proof.Check.
func (f *Function) Program() (*program.Program, error) {
	if f.program != nil {
		return f.program, nil
	}
	p, err := f.result.lower(f.Func, lower.Options{Kernels: f.result.target.Device == GPU})
	if err == nil && f.result.validate {
		err = proof.Check(f.Func, p)
	}
	if err != nil {
		return nil, err
	}
	f.program = p
	return p, nil
}

// Plan says which buffers the function needs and when. The error says which annotation of the
// passes is wrong.
func (f *Function) Plan() (*lower.MemoryPlan, error) { return lower.Plan(f.Func) }

// Figures are what the simulator says of a function in its own order. Times are in
// milliseconds.
type Figures struct {
	Nodes       int
	Collectives int
	CommBytes   int64 // see cost.CommBytes
	Makespan    float64
	Compute     float64
	Exposed     float64 // Makespan - Compute
	Bound       float64 // no order without buckets is faster: compute, busiest stream, path, chain
	TightBound  float64 // also head, load and tail sets
	Peak        int64   // bytes that live at once
}

// Before are the figures of the function as it came in. It must not be one that a pass
// has made. Errors are Measure's.
func (f *Function) Before() (Figures, error) { return Measure(f.Input, f.result.costs) }

// After are the figures of the function after the passes. The error is a *sim.ModelError or
// *sim.OrderError: a cost or an order that is none.
func (f *Function) After() (Figures, error) { return Measure(f.Func, f.result.costs) }

// Gap is how far a schedule is above the lower bound of its input, as a part of that
// bound: 0 is optimal for the operations that came in. It is negative where passes have
// removed work, and 0 where there is nothing to bound.
func Gap(before, after Figures) float64 {
	if before.TightBound <= 0 {
		return 0
	}
	return after.Makespan/before.TightBound - 1
}

// Simulate plays a function in its own order with the costs of a model. The error is a
// *sim.ModelError: a cost that is no time, for instance.
func Simulate(f *ir.Func, model *cost.Model) (*sim.Model, *sim.Timeline, error) {
	return simulate(f, func(n *ir.Node) float64 {
		ms, _ := model.NodeMs(n)
		return ms
	})
}

func simulate(f *ir.Func, cost func(n *ir.Node) float64) (*sim.Model, *sim.Timeline, error) {
	m, err := sim.FromFunc(f, sim.FuncOptions{Ms: cost})
	if err != nil {
		return nil, nil, err
	}
	tl, err := sim.Evaluate(m, m.InputOrder(), nil)
	return m, tl, err
}

// Measure simulates a function and bounds it. Errors are Simulate's.
func Measure(f *ir.Func, model *cost.Model) (Figures, error) {
	m, tl, err := Simulate(f, model)
	if err != nil {
		return Figures{}, err
	}
	out := Figures{Nodes: m.Len(), Makespan: tl.Makespan, Compute: tl.Compute, Exposed: tl.Exposed, Peak: tl.Peak, Bound: sim.LowerBound(m).Bound}
	out.TightBound = max(out.Bound, sim.SetBound(m))
	out.count(f)
	return out, nil
}

// count counts what a function communicates.
func (o *Figures) count(f *ir.Func) {
	for _, n := range f.Order() {
		if n.Op().IsCollective() {
			o.Collectives++
			o.CommBytes += cost.CommBytes(n)
		}
	}
}
