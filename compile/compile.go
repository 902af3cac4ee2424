// Package compile turns a tensor program into an executable one: a single call attaches costs,
// runs the passes, and lowers. It stands above passes and lower, and decides only what the
// passes need to know about the lowered program: see Compile.
//
//	r, err := compile.Compile(ctx, module, compile.Target{Device: compile.GPU}, compile.Options{})
//	...
//	p, err := r.Func("step").Program()
//
// A module may hold several functions, such as the forward and the backward function of
// a training step, or one joint function that pass partition splits.
//
// The result does not depend on the rank, clocks or the environment: every rank that compiles
// the same module for the same target gets the same bytes.
package compile

import (
	"context"
	"fmt"
	"strings"

	"github.com/seed-ee968945/concert/cost"
	"github.com/seed-ee968945/concert/cost/calibration"
	"github.com/seed-ee968945/concert/ir"
	"github.com/seed-ee968945/concert/lower"
	"github.com/seed-ee968945/concert/passes"
	"github.com/seed-ee968945/concert/passes/standard"
	"github.com/seed-ee968945/concert/program"
)

// Device is a kind of device that programs are made for.
type Device uint8

// The devices.
const (
	Host Device = iota // launches are operations of package runtime/host
	GPU                // regions of operations become kernels
)

// Pipeline is the named pipeline for the device: default or cuda.
func (d Device) Pipeline() string {
	if d == GPU {
		return "cuda"
	}
	return "default"
}

// Target is what a program is compiled for. The zero Target is the host device with the
// costs of an H200. Process groups are the module's own. Which libraries compute what is
// decided where a program is loaded, by the device's options, and not here.
type Target struct {
	Device Device

	// Costs serves nodes without attached costs, and buckets; nil is cost.Default().
	Costs *cost.Model

	// Measured is a calibration; what it knows goes before attached costs. Nil: none.
	Measured *calibration.File

	// Reprice gives nodes what Costs says of them in place of attached costs.
	Reprice Reprice
}

// Reprice says which attached costs give way to those of the target.
type Reprice uint8

// The choices.
const (
	RepriceNothing     Reprice = iota // attached costs stay
	RepriceCollectives                // those of collectives give way
	RepriceAll                        // all that Costs knows better give way
)

func (t *Target) base() *cost.Model {
	if t.Costs == nil {
		return cost.Default()
	}
	return t.Costs
}

// Model is the target's cost model: the collectives of the calibration, if there is one,
// before those of Costs.
func (t Target) Model() *cost.Model {
	if t.Measured == nil {
		return t.base()
	}
	return t.base().Calibrated(t.Measured)
}

// price attaches the costs that the target knows better than the graph, and returns what
// they are of the nodes that have got one.
func (t *Target) price(m *ir.Module) map[*ir.Node]cost.Source {
	out := map[*ir.Node]cost.Source{}
	for _, f := range m.Funcs() {
		if t.Reprice != RepriceNothing {
			t.base().Reprice(f, t.Reprice == RepriceAll, out)
		}
		if t.Measured != nil {
			cost.Apply(t.Measured, f, t.base(), nil, out)
		}
	}
	return out
}

// Options says how to compile. The zero Options runs the pipeline of the target's device.
type Options struct {
	// Pipeline is what passes.Table.Parse has read: of the standard table, or of one
	// that has passes of your own. Nil is the standard pipeline of the device, an empty
	// pipeline no pass at all.
	Pipeline *passes.Pipeline

	// Manager says how passes are run: dumps, hooks, verification, bisection, progress.
	// Compile sets its Costs.
	Manager passes.Manager
}

// Result is a compiled module.
type Result struct {
	Input  *ir.Module     // as it came in, with the costs of the target; node ids are the caller's
	Module *ir.Module     // after the passes
	Funcs  []*Function    // those of Module, in its order
	Report *passes.Report // what every pass did, moved and decided

	target   Target
	costs    *cost.Model
	priced   map[*ir.Node]cost.Source // nodes of Input that have their cost from target; look-up only
	validate bool                     // programs are proved
	lower    func(*ir.Func, lower.Options) (*program.Program, error)
}

// Costs is the model of the target, on the scale of the costs that are attached to Input
// (cost.Model.ScaledTo): what the passes were given.
func (r *Result) Costs() *cost.Model { return r.costs }

// CostOf is the cost of a node of Input in milliseconds, and where it comes from.
func (r *Result) CostOf(n *ir.Node) (ms float64, from cost.Source) {
	ms, from = r.costs.CostOf(n)
	if own, ok := r.priced[n]; ok {
		from = own
	}
	return ms, from
}

// Func returns the function of that name after the passes, nil if there is none.
func (r *Result) Func(name string) *Function {
	for _, f := range r.Funcs {
		if f.Func.Name == name {
			return f
		}
	}
	return nil
}

// Compile runs the passes over a module and returns what came of it; programs, plans and
// schedules of its functions are made when asked for. m is not changed: the result holds
// copies, whose nodes keep their origins (ir.Node.Origins).
//
// Where a pipeline forms regions for kernels and the target has a calibration, it runs up
// to that point more than once: see feedback.go. Errors are a *diag.Error if m is broken, a *passes.PassError if a
// pass fails, and ctx's if it ends.
func Compile(ctx context.Context, m *ir.Module, t Target, o Options) (*Result, error) {
	p := o.Pipeline
	if p == nil {
		var err error
		if p, err = standard.Table().Parse(t.Device.Pipeline()); err != nil {
			return nil, err
		}
	}
	if err := m.Verify(); err != nil {
		return nil, err
	}
	r := &Result{Input: m.Clone(), Report: &passes.Report{}, target: t, lower: lower.FuncWith}
	r.priced = t.price(r.Input)
	r.costs = t.Model().ScaledTo(r.Input)
	r.Module = r.Input.Clone()
	if p.Len() > 0 {
		o.Manager.Costs = r.costs
		c := &compiler{target: t, pipeline: p, manager: o.Manager}
		if err := c.feedBack(ctx, r.Module); err != nil {
			return nil, err
		}
		var err error
		if r.Report, err = o.Manager.RunContext(ctx, r.Module, p); err != nil {
			return nil, err
		}
	}
	r.validate = o.Manager.Validate.Wants(r.Module)
	for _, f := range r.Module.Funcs() {
		r.Funcs = append(r.Funcs, &Function{Input: r.Input.Func(f.Name), Func: f, result: r})
	}
	return r, ctx.Err()
}

// compiler is one Compile.
type compiler struct {
	target   Target
	pipeline *passes.Pipeline
	manager  passes.Manager
}

// fusionEnd is the number of passes up to the one that forms regions for kernels, 0 if none
// does: what follows it places buffers, which launches do not depend on.
func fusionEnd(p *passes.Pipeline) int {
	for i := range p.Len() {
		if p.Pass(i).Regions {
			return i + 1
		}
	}
	return 0
}

// Warnings says what a user of the result should know: nodes that nothing knows the cost
// of, which passes have counted as free.
func (r *Result) Warnings() []string {
	var out []string
	for _, f := range r.Input.Funcs() {
		var names []string
		for _, n := range f.Order() {
			if _, ok := r.costs.NodeMs(n); !ok {
				names = append(names, "%"+n.Name())
			}
		}
		if len(names) == 0 {
			continue
		}
		shown := strings.Join(names[:min(len(names), shownUnpriced)], ", ")
		if more := len(names) - shownUnpriced; more > 0 {
			shown += fmt.Sprintf(" and %d more", more)
		}
		out = append(out, fmt.Sprintf("@%s: %d of %d operations have no cost and count as 0 ms: %s; attach costs to them", f.Name, len(names), len(f.Order()), shown))
	}
	return out
}

// shownUnpriced bounds the names in a warning.
const shownUnpriced = 3
