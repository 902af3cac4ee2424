package compile

import (
	"slices"

	"github.com/seed-ee968945/concert/cost"
	"github.com/seed-ee968945/concert/ir"
	"github.com/seed-ee968945/concert/lower"
	"github.com/seed-ee968945/concert/lower/proof"
	"github.com/seed-ee968945/concert/program"
	"github.com/seed-ee968945/concert/sim"
)

// Staged is what the simulator says of stages that run side by side. Times are in milliseconds.
type Staged struct {
	Step   float64      // the last end
	Bubble float64      // part of the time of all stages in which they do not compute
	Stages []Figures    // by stage, without bounds; Makespan is when the stage ends
	Models []*sim.Model // by stage
	Lines  []*sim.Timeline
}

// Stages lowers stages of the module as Function.Program does functions; see lower.Stages. The
// error is its, or that a program is not proved to compute what its function does.
func (r *Result) Stages(s *ir.Stages) (program.Stages, error) {
	p, err := lower.Stages(r.Module, s, lower.Options{Kernels: r.target.Device == GPU})
	for i := 0; err == nil && r.validate && i < len(p); i++ {
		err = proof.Check(r.Module.Func(s.Funcs[i]), p[i])
	}
	if err != nil {
		return nil, err
	}
	return p, nil
}

// MeasureStages simulates stages of a module, each in its own order: a transfer begins when both
// ends have come to it. Errors are Simulate's and sim.EvaluateStages'.
func MeasureStages(m *ir.Module, s *ir.Stages, model *cost.Model) (*Staged, error) {
	p, err := newSimulation(m, s, model)
	if err != nil {
		return nil, err
	}
	lines, err := p.run(nil)
	if err != nil {
		return nil, err
	}
	out := &Staged{Models: p.models, Lines: lines, Step: makespan(lines)}
	computed := 0.0
	for stage, tl := range lines {
		f := Figures{Nodes: p.models[stage].Len(), Makespan: tl.Makespan, Compute: tl.Compute, Exposed: tl.Exposed, Peak: tl.Peak}
		f.count(p.funcs[stage])
		out.Stages = append(out.Stages, f)
		computed += tl.Compute
	}
	if out.Step > 0 {
		out.Bubble = 1 - computed/(out.Step*float64(len(lines)))
	}
	return out, nil
}

// StageBottlenecks returns what would shorten a step of stages, as Function.Bottlenecks does: the
// collectives between stages are one entry. Errors are MeasureStages'.
func (r *Result) StageBottlenecks(s *ir.Stages) ([]Bottleneck, error) {
	p, err := newSimulation(r.Module, s, r.costs)
	if err != nil {
		return nil, err
	}
	return p.bottlenecks(r.costs)
}

// simulation is of stages that run concurrently, or of one function.
type simulation struct {
	s      *ir.Stages // nil of one function
	funcs  []*ir.Func
	models []*sim.Model
	orders [][]int32
	joint  []sim.StageCollective
	across map[*ir.Group]bool // groups with ranks of several stages; look-up only
}

// newSimulation readies stages.
func newSimulation(m *ir.Module, s *ir.Stages, model *cost.Model) (*simulation, error) {
	p := &simulation{s: s, across: map[*ir.Group]bool{}}
	for _, name := range s.Funcs {
		p.funcs = append(p.funcs, m.Func(name))
	}
	if err := p.model(model); err != nil {
		return nil, err
	}
	starts := make([]map[*ir.Group][]int32, len(s.Funcs)) // by stage: collectives with other stages, in order; look-up only
	peers := make([]map[*ir.Group][]int, len(s.Funcs))    // by stage: the stages in them; look-up only
	for stage, f := range p.funcs {
		starts[stage], peers[stage] = map[*ir.Group][]int32{}, map[*ir.Group][]int{}
		for i, n := range f.Order() {
			g := n.Group()
			if g == nil || !n.Op().IsCollective() {
				continue
			}
			if _, ok := peers[stage][g]; !ok {
				var err error
				if peers[stage][g], err = s.Peers(stage, g); err != nil {
					return nil, err
				}
			}
			if len(peers[stage][g]) > 1 {
				p.across[g] = true
				starts[stage][g] = append(starts[stage][g], int32(i))
			}
		}
	}
	for stage := range s.Funcs {
		for _, g := range m.Groups() {
			if l := peers[stage][g]; len(l) < 2 || l[0] != stage {
				continue // the first of them says it
			}
			for k := range starts[stage][g] {
				var c sim.StageCollective
				for _, q := range peers[stage][g] {
					c = append(c, sim.Site{Stage: q, Node: starts[q][g][k]})
				}
				p.joint = append(p.joint, c)
			}
		}
	}
	return p, nil
}

// model makes the models of the functions.
func (p *simulation) model(model *cost.Model) error {
	for _, f := range p.funcs {
		m, err := sim.FromFunc(f, sim.FuncOptions{Ms: func(n *ir.Node) float64 {
			ms, _ := model.NodeMs(n)
			return ms
		}})
		if err != nil {
			return err
		}
		p.models, p.orders = append(p.models, m), append(p.orders, m.InputOrder())
	}
	return nil
}

// between reports whether a group has ranks of several stages.
func (p *simulation) between(g *ir.Group) bool { return p.across[g] }

// run simulates the functions, with the nodes that fast says twice as fast; nil is none.
func (p *simulation) run(fast func(n *ir.Node) bool) ([]*sim.Timeline, error) {
	models := slices.Clone(p.models)
	for i, f := range p.funcs {
		if fast == nil {
			break
		}
		m := *models[i]
		m.Dur = slices.Clone(m.Dur)
		for k, n := range f.Order() {
			if fast(n) {
				m.Dur[k] /= 2
			}
		}
		models[i] = &m
	}
	if p.s == nil {
		tl, err := sim.Evaluate(models[0], p.orders[0], nil)
		return []*sim.Timeline{tl}, err
	}
	return sim.EvaluateStages(models, p.orders, p.joint)
}
