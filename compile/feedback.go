package compile

import (
	"context"
	"slices"
	"strings"

	"github.com/seed-ee968945/concert/cost"
	"github.com/seed-ee968945/concert/cost/calibration"
	"github.com/seed-ee968945/concert/internal/place"
	"github.com/seed-ee968945/concert/ir"
	"github.com/seed-ee968945/concert/lower"
	"github.com/seed-ee968945/concert/passes"
	"github.com/seed-ee968945/concert/program"
)

// Passes schedule nodes before they form regions, and what a region takes is not what
// its nodes take one by one: a schedule that counts on their sum starts gathers too late.
// So the program is made to see which launches there will be, their times are fed back
// to the nodes, and the passes run on these costs.

// feedbacks is how often the program is made for that: with the costs of single nodes,
// and with the shares of that program's launches.
const feedbacks = 2

// feedbackNodes is above how many nodes a program is made once for that, not twice. Unrolled
// recurrences have that many: of small launches, on whose order little depends.
const feedbackNodes = 8000

// feedBack gives the nodes of m their shares of the launches that they will be part of.
// Without a calibration a region is taken to cost what it moves.
func (c *compiler) feedBack(ctx context.Context, m *ir.Module) error {
	n := fusionEnd(c.pipeline)
	if n == 0 {
		return nil
	}
	g := c.manager
	if g.Limit == 0 || g.Limit > n {
		g.Limit = n
	}
	g.Hooks, g.Dump, g.Bisect, g.Enable, g.Repeat, g.Validate = nil, nil, "", nil, false, passes.ValidateNever
	base := c.target.base()
	rounds, nodes := feedbacks, 0
	for _, fn := range m.Funcs() {
		nodes += len(fn.Order())
	}
	if nodes > feedbackNodes {
		rounds = 1
	}
	for range rounds {
		made, err := c.toFusion(ctx, m, g)
		if err != nil {
			return err
		}
		for _, fn := range made.Funcs() {
			to := m.Func(fn.Name)
			if to == nil { // a pass has made it
				continue
			}
			p, err := lower.FuncWith(fn, lower.Options{Kernels: true, Unpacked: true})
			if err != nil {
				return err
			}
			costs := c.target.Measured
			if costs == nil {
				costs = trafficCosts(p, base.Machine)
			}
			launches := launchesOf(p, fn, to)
			cost.Apply(costs, to, base, launches, nil)
			zeroCopied(fn, to, launches)
		}
		if err := ctx.Err(); err != nil {
			return err
		}
	}
	return nil
}

// toFusion returns a copy of m on which the passes of a manager have run. Only if something is
// wrong they run with texts and are verified one by one, to say what.
func (c *compiler) toFusion(ctx context.Context, m *ir.Module, g passes.Manager) (*ir.Module, error) {
	careful := g
	g.Verify, g.Brief = passes.VerifyEnd, true
	made := m.Clone()
	_, err := g.RunContext(ctx, made, c.pipeline)
	if err != nil && ctx.Err() == nil {
		made = m.Clone()
		_, err = careful.RunContext(ctx, made, c.pipeline)
	}
	return made, err
}

// launchesOf lists what each launch of the program of f does, by the names of the nodes
// in f's origin, the function before the passes: what replaces a node has its name.
func launchesOf(p *program.Program, f, origin *ir.Func) []cost.Launch {
	nodes := nodesOf(p, f)
	var out []cost.Launch
	for i := range p.Instrs {
		in := &p.Instrs[i]
		if in.Kind != program.Launch && in.Kind != program.Copy {
			continue
		}
		names := slices.DeleteFunc(nodes(in), func(name string) bool {
			n, was := f.Lookup(name), origin.Lookup(name)
			return n != nil && was != nil && n.ID() != was.ID() && !slices.Contains(n.Sources(), was.ID())
		})
		out = append(out, cost.Launch{Key: p.CostKey(in), Nodes: names})
	}
	return out
}

// zeroCopied makes the nodes of origin cost nothing of which only copies are in the launches
// of f's program: what a copy costs is in its region.
func zeroCopied(f, origin *ir.Func, launches []cost.Launch) {
	launched := map[string]bool{}
	for _, l := range launches {
		for _, name := range l.Nodes {
			launched[name] = true
		}
	}
	for _, n := range f.Order() {
		for _, id := range n.Sources() {
			was := origin.NodeByID(id)
			if was != nil && was.Op().Class() == ir.ClassMemory && !launched[was.Name()] && sameWork(n, was) {
				origin.SetCost(was, 0)
			}
		}
	}
}

// sameWork reports whether a node computes what another does, so that one is a copy of
// the other and not what a rewrite has put in its place.
func sameWork(a, b *ir.Node) bool {
	return a.Op() == b.Op() && a.Attrs().String() == b.Attrs().String() && len(a.Results()) == len(b.Results()) && a.Result(0).Type().Equal(b.Result(0).Type())
}

// trafficCosts are costs of a program's generated kernels by the bytes of their operands and
// results, dynamic sizes at their hints, in the form of a calibration.
// Without a machine nothing is known.
func trafficCosts(p *program.Program, m *cost.Machine) *calibration.File {
	out := new(calibration.File)
	for i := range p.Instrs {
		in := &p.Instrs[i]
		if m == nil || p.Kernel(in) == nil {
			continue
		}
		out.Instructions = append(out.Instructions, calibration.Instruction{Key: p.CostKey(in), Us: trafficUs(p, in, m)})
	}
	byKey := func(a, b calibration.Instruction) int { return strings.Compare(a.Key, b.Key) }
	slices.SortFunc(out.Instructions, byKey)
	out.Instructions = slices.CompactFunc(out.Instructions, func(a, b calibration.Instruction) bool { return a.Key == b.Key })
	return out
}

// trafficUs is what a generated kernel takes, in microseconds, by the bytes of its operands
// and results.
func trafficUs(p *program.Program, in *program.Instr, m *cost.Machine) float64 {
	return m.LaunchUs + float64(hintBytes(p, in.Ins)+hintBytes(p, in.Outs))/(m.MemoryGBps*1e3)
}

// nodesOf gives the names of the nodes that an instruction of a function's program does.
// A kernel's body does not tell: equal regions share a kernel.
func nodesOf(p *program.Program, f *ir.Func) func(in *program.Instr) []string {
	regions := map[int64][]string{}
	for _, n := range f.Order() {
		if n.Meta().Has(place.FusionKey) {
			id := n.Meta().Int(place.FusionKey, 0)
			regions[id] = append(regions[id], n.Name())
		}
	}
	return func(in *program.Instr) []string {
		if n := f.Lookup(in.Node); n != nil && p.Kernel(in) != nil && n.Meta().Has(place.FusionKey) {
			return slices.Clone(regions[n.Meta().Int(place.FusionKey, 0)])
		}
		return []string{in.Node}
	}
}

// hintBytes is the size of tensors, dynamic sizes at their hints.
func hintBytes(p *program.Program, ts []program.Tensor) int64 {
	sum := int64(0)
	for k := range ts {
		n := int64(ts[k].DType.Size())
		for _, d := range ts[k].Shape {
			n *= p.Hint(d)
		}
		sum += n
	}
	return sum
}
