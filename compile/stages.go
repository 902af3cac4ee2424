package compile

import (
	"errors"

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
	Stages []Figures    // by place, without bounds; Makespan is when the stage ends
	Models []*sim.Model // by place
	Lines  []*sim.Timeline
}

// Stages lowers stages of the module as Function.Program does functions; see lower.Stages.
func (r *Result) Stages(s *ir.Stages) (program.Stages, error) {
	p, err := lower.Stages(r.Module, s, lower.Options{Kernels: r.target.Device == GPU})
	for i := 0; err == nil && r.validate && i < len(p); i++ {
		if err = proof.Check(r.Module.Func(s.Funcs[i]), p[i]); errors.Is(err, proof.ErrControl) {
			err = nil
		}
	}
	if err != nil {
		return nil, err
	}
	return p, nil
}

// MeasureStages simulates stages of a module, each in its own order: a transfer begins when both
// ends have come to it. Errors are Simulate's and sim.EvaluateStages'.
func MeasureStages(m *ir.Module, s *ir.Stages, model *cost.Model) (*Staged, error) {
	var models []*sim.Model
	var orders [][]int32
	starts := make([]map[*ir.Group][]int32, len(s.Funcs)) // by place: those with other stages, in order; look-up only
	met := make([]map[*ir.Group][]int, len(s.Funcs))      // by place: who comes to them; look-up only
	for place, name := range s.Funcs {
		f := m.Func(name)
		sm, err := sim.FromFunc(f, sim.FuncOptions{Ms: func(n *ir.Node) float64 {
			ms, _ := model.NodeMs(n)
			return ms
		}})
		if err != nil {
			return nil, err
		}
		models, orders = append(models, sm), append(orders, sm.InputOrder())
		starts[place], met[place] = map[*ir.Group][]int32{}, map[*ir.Group][]int{}
		for i, n := range f.Order() {
			if g := n.Group(); g != nil && n.Op().IsCollective() {
				if _, ok := met[place][g]; !ok {
					if met[place][g], err = s.Meets(place, g); err != nil {
						return nil, err
					}
				}
				if len(met[place][g]) > 1 {
					starts[place][g] = append(starts[place][g], int32(i))
				}
			}
		}
	}
	var meets []sim.Meet
	for place := range s.Funcs {
		for _, g := range m.Groups() {
			if l := met[place][g]; len(l) < 2 || l[0] != place {
				continue // the first of them says it
			}
			for k := range starts[place][g] {
				var meet sim.Meet
				for _, p := range met[place][g] {
					meet = append(meet, sim.Site{Stage: p, Node: starts[p][g][k]})
				}
				meets = append(meets, meet)
			}
		}
	}
	lines, err := sim.EvaluateStages(models, orders, meets)
	if err != nil {
		return nil, err
	}
	out := &Staged{Models: models, Lines: lines}
	computed := 0.0
	for place, tl := range lines {
		f := Figures{Nodes: models[place].Len(), Makespan: tl.Makespan, Compute: tl.Compute, Exposed: tl.Exposed, Peak: tl.Peak}
		f.count(m.Func(s.Funcs[place]))
		out.Stages = append(out.Stages, f)
		out.Step = max(out.Step, tl.Makespan)
		computed += tl.Compute
	}
	if out.Step > 0 {
		out.Bubble = 1 - computed/(out.Step*float64(len(lines)))
	}
	return out, nil
}
