package compile

import (
	"fmt"

	"github.com/seed-ee968945/concert/cost"
	"github.com/seed-ee968945/concert/cost/calibration"
	"github.com/seed-ee968945/concert/ir"
	"github.com/seed-ee968945/concert/program"
)

// OverlappedKey is what the key of a collective (program.Program.CostKey) ends with in a
// calibration for the form that it has when compute overlaps with it.
const OverlappedKey = " beside"

// Simulation is the simulated time of a program with and without its collectives, in
// milliseconds.
type Simulation struct {
	Ms        float64
	ExposedMs float64
	Unknown   int // instructions of which nothing was measured
	Timeline  *program.Simulated
}

// SimulateProgram plays the program of a function, as it is after the passes, with measured
// costs. The instructions of a chain share its time as they share what they take one by one.
// Of what was not measured, generated kernels cost what they move, the rest what its nodes do.
// Errors are program.Simulate's.
func SimulateProgram(p *program.Program, f *ir.Func, m *calibration.File, model *cost.Model) (*Simulation, error) {
	out := new(Simulation)
	us := out.times(p, m, unmeasured(p, f, model))
	overlapped := p.Overlapped()
	speed := make(map[*program.Instr]float64, len(p.Instrs))
	for i := range p.Instrs {
		if in := &p.Instrs[i]; overlapped[i] {
			speed[in], _ = m.Speed(p.CostKey(in) + OverlappedKey)
		}
	}
	for _, c := range p.Chains() {
		if own, ok := m.ChainSpeed(p.ChainKey(c)); ok {
			for _, i := range c.Instrs {
				speed[&p.Instrs[i]] = own
			}
		}
	}
	slowed := func(l, c *program.Instr) (compute, comm float64) {
		compute, comm = m.Speeds(l.Op, c.Op)
		if own := speed[c]; own > 0 {
			comm = own
		}
		if own := speed[l]; own > 0 {
			compute = own
		}
		return compute, comm
	}
	o := program.SimOptions{EdgeUs: m.EdgeUs, Us: func(in *program.Instr) float64 { return us[in] }, Overlap: slowed}
	if model.Machine != nil {
		o.Links = func(in *program.Instr) [2]float64 { return linkShare(p, in, model.Machine, us[in]) }
	}
	var err error
	if out.Timeline, err = program.Simulate(p, o); err != nil {
		return nil, err
	}
	o.NoCollectives = true
	alone, err := program.Simulate(p, o)
	if err != nil {
		return nil, err
	}
	out.Ms, out.ExposedMs = (out.Timeline.Us+m.StepUs)/1e3, (out.Timeline.Us-alone.Us)/1e3
	return out, nil
}

// Warning says what a simulation could not look up, empty if it knew everything.
func (s *Simulation) Warning(p *program.Program) string {
	if s.Unknown == 0 {
		return ""
	}
	return fmt.Sprintf("%d of %d instructions of @%s were not measured, and cost what they move or their nodes are said to", s.Unknown, len(p.Instrs), p.Name)
}

// linkShare is the part of the links that a collective of a program takes.
func linkShare(p *program.Program, in *program.Instr, m *cost.Machine, us float64) [2]float64 {
	op, ok := ir.OpByName(in.Op)
	if !ok || in.Group < 0 {
		return [2]float64{}
	}
	return m.LinkShare(op, m.Span(p.Groups[in.Group].Ranks), max(hintBytes(p, in.Ins), hintBytes(p, in.Outs)), us)
}

// times looks up how long instructions take, in microseconds. Events are not in it.
func (s *Simulation) times(p *program.Program, m *calibration.File, guess func(in *program.Instr) float64) map[*program.Instr]float64 {
	us := make(map[*program.Instr]float64, len(p.Instrs))
	overlapped := p.Overlapped()
	for i := range p.Instrs {
		in := &p.Instrs[i]
		key := p.CostKey(in)
		if key == "" {
			continue
		}
		t, ok := m.Micros(key)
		if overlapped[i] {
			if b, known := m.Micros(key + OverlappedKey); known {
				t, ok = b, true
			}
		}
		if !ok {
			s.Unknown++
			t = guess(in)
		}
		us[in] = t
	}
	for _, c := range p.Chains() {
		whole, ok := m.ChainMicros(p.ChainKey(c))
		if !ok {
			continue
		}
		sum := 0.0
		for _, i := range c.Instrs {
			sum += us[&p.Instrs[i]]
		}
		for _, i := range c.Instrs {
			if in := &p.Instrs[i]; sum > 0 {
				us[in] *= whole / sum
			} else {
				us[in] = whole / float64(len(c.Instrs))
			}
		}
	}
	return us
}

// NodeTimes gives the time, in microseconds, of an instruction of a function's program by
// what the model says of its nodes; 0 for nodes that it does not know.
func NodeTimes(p *program.Program, f *ir.Func, model *cost.Model) func(in *program.Instr) float64 {
	nodes := nodesOf(p, f)
	return func(in *program.Instr) float64 {
		sum := 0.0
		for _, name := range nodes(in) {
			if n := f.Lookup(name); n != nil {
				ms, _ := model.NodeMs(n)
				sum += ms * 1e3
			}
		}
		return sum
	}
}

// unmeasured gives the time of an instruction that was not measured in a simulation. What
// nodes cost says little of the kernel that a region of them became.
func unmeasured(p *program.Program, f *ir.Func, model *cost.Model) func(in *program.Instr) float64 {
	nodes := NodeTimes(p, f, model)
	return func(in *program.Instr) float64 {
		if p.Kernel(in) != nil && model.Machine != nil {
			return trafficUs(p, in, model.Machine)
		}
		return nodes(in)
	}
}
