package main

import (
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"

	"github.com/seed-ee968945/concert/cost"
	"github.com/seed-ee968945/concert/internal/place"
	"github.com/seed-ee968945/concert/ir"
	"github.com/seed-ee968945/concert/lower"
	"github.com/seed-ee968945/concert/program"
)

// pricing says where costs come from.
type pricing struct {
	costs   string // file of a calibration, or empty
	machine string // name or file of a description
	comm    string // traced or concert: whose collectives, where nothing was measured

	read *tables // shared by copies; nil: every use reads
}

// tables keeps the calibrations that were read, by file: a command asks for its own
// again and again. What it gives is not to be changed.
type tables struct {
	mu   sync.Mutex
	have map[string]*cost.Measured
}

func (t *tables) get(name string) (*cost.Measured, error) {
	if t == nil {
		return readTable(name)
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if m := t.have[name]; m != nil {
		return m, nil
	}
	m, err := readTable(name)
	if err != nil {
		return nil, err
	}
	if t.have == nil {
		t.have = map[string]*cost.Measured{}
	}
	t.have[name] = m
	return m, nil
}

func readTable(name string) (*cost.Measured, error) {
	r, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer r.Close()
	return cost.ReadMeasured(name, r)
}

func (f *pricing) define(fs *flag.FlagSet) {
	f.read = new(tables)
	fs.StringVar(&f.costs, "costs", "", "`file` of lowerdump calibrate: what was measured goes before the costs in FILE")
	fs.StringVar(&f.comm, "comm", "traced", "collectives that nothing was measured of cost what FILE says (traced), or what this runtime's take on H200s (concert)")
	fs.StringVar(&f.machine, "machine", "h200", "`machine` for what nothing was measured of: a100, h100, h200, b200, or a file that describes one")
}

// model is the model for nodes without attached costs and for buckets: what was
// measured, then tables and formulas of the machine.
func (f *pricing) model() (*cost.Model, error) {
	base, err := f.base()
	if err != nil {
		return nil, err
	}
	m, err := f.measured()
	if err != nil || m == nil {
		return base, err
	}
	return m.Model(base), nil
}

// base is the model without what was measured. The machine whose collectives are
// known best is the one that the graphs were traced on.
func (f *pricing) base() (*cost.Model, error) {
	if !slices.Contains([]string{"", "traced", ownComm}, f.comm) {
		return nil, usagef("-comm=%s: have traced and concert", f.comm)
	}
	name := f.machine
	if name == "" {
		name = "h200"
	}
	if slices.Contains(cost.Machines(), name) {
		m, err := cost.LookupMachine(name)
		if err != nil {
			return nil, err
		}
		switch {
		case f.comm == ownComm:
			return &cost.Model{Table: cost.Concert(), Impl: cost.MeasuredImpl, Machine: m}, nil
		case name == "h200":
			return &cost.Model{Table: cost.H200(), Machine: m}, nil
		}
		return &cost.Model{Machine: m}, nil
	}
	r, err := os.Open(name)
	if err != nil {
		return nil, usagef("-machine=%s: have %v, or a file: %v", name, cost.Machines(), err)
	}
	defer r.Close()
	m, err := cost.ReadMachine(name, r)
	if err != nil {
		return nil, err
	}
	return &cost.Model{Machine: m}, nil
}

// measured is the calibration, nil if there is none.
func (f *pricing) measured() (*cost.Measured, error) {
	if f.costs == "" {
		return nil, nil
	}
	return f.read.get(f.costs)
}

// apply gives the functions of a module the costs of this runtime's collectives, if
// those were asked for, and what was measured.
func (f *pricing) apply(m *ir.Module) error {
	base, err := f.base()
	if err != nil {
		return err
	}
	table, err := f.measured()
	if err != nil {
		return err
	}
	for _, fn := range m.Funcs() {
		if f.comm == ownComm {
			base.PriceCollectives(fn)
		}
		if table != nil {
			table.Apply(fn, base, nil)
		}
	}
	return nil
}

// ownComm is the value of -comm for this runtime's collectives.
const ownComm = "concert"

// spreadings is how often spread makes the program: with the costs of single nodes,
// and with the shares of that program's launches.
const spreadings = 2

// spread gives nodes their shares of the launches that they will be part of. Passes
// schedule nodes before they form regions, and what a region takes is not what its
// nodes take one by one: a schedule that counts on their sum starts gathers too late.
// So the program is made to see which regions there will be. Where no calibration is
// given, a region is taken to cost what it moves.
func (t tool) spread(m *ir.Module, pipeline string) error {
	table, err := t.prices.measured()
	if err != nil || !(source{pipeline: pipeline}).lowering().Kernels {
		return err
	}
	base, err := t.prices.base()
	if err != nil {
		return err
	}
	forming := (source{pipeline: pipeline}).forming()
	for range spreadings {
		c := &input{path: "spreading of costs", module: m.Clone()}
		if _, err := t.passes(c, forming, nil); err != nil {
			return err
		}
		for _, fn := range c.module.Funcs() {
			p, err := lower.FuncWith(fn, lower.Options{Kernels: true})
			if err != nil {
				return err
			}
			costs := table
			if costs == nil {
				costs = moved(p, base.Machine)
			}
			launches := launchesOf(p, fn)
			costs.Apply(m.Func(fn.Name), base, launches)
			copied(m.Func(fn.Name), launches)
		}
	}
	return nil
}

// copied makes nodes cost nothing of which regions only have copies: what a copy costs
// is in its region, under a name with a number behind it.
func copied(f *ir.Func, launches []cost.Launch) {
	names := map[string]bool{}
	for _, l := range launches {
		for _, name := range l.Nodes {
			names[name] = true
		}
	}
	copies := map[string]bool{}
	for name := range names {
		copies[strings.TrimRight(strings.TrimRight(name, "0123456789"), "_")] = true
	}
	for _, n := range f.Order() {
		if n.Op().Class() == ir.ClassMemory && !names[n.Name()] && copies[n.Name()] {
			f.SetCost(n, 0)
		}
	}
}

// moved are costs of a program's generated kernels by the bytes of their operands and
// results, sizes known at run time only at their hints, in the form of a calibration.
func moved(p *program.Program, m *cost.Machine) *cost.Measured {
	out := new(cost.Measured)
	for i := range p.Instrs {
		in := &p.Instrs[i]
		if p.Kernel(in) == nil {
			continue
		}
		out.Instructions = append(out.Instructions, cost.Instruction{Key: p.CostKey(in), Us: movedUs(p, in, m)})
	}
	byKey := func(a, b cost.Instruction) int { return strings.Compare(a.Key, b.Key) }
	slices.SortFunc(out.Instructions, byKey)
	out.Instructions = slices.CompactFunc(out.Instructions, func(a, b cost.Instruction) bool { return a.Key == b.Key })
	return out
}

// movedUs is what a generated kernel takes, in microseconds, by the bytes of its operands
// and results.
func movedUs(p *program.Program, in *program.Instr, m *cost.Machine) float64 {
	return m.LaunchUs + float64(hintBytes(p, in.Ins)+hintBytes(p, in.Outs))/(m.MemoryGBps*1e3)
}

// launchesOf lists what each launch of a function's program does.
func launchesOf(p *program.Program, f *ir.Func) []cost.Launch {
	nodes := nodesOf(p, f)
	var out []cost.Launch
	for i := range p.Instrs {
		in := &p.Instrs[i]
		if in.Kind == program.Launch || in.Kind == program.Copy {
			out = append(out, cost.Launch{Key: p.CostKey(in), Nodes: nodes(in)})
		}
	}
	return out
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
			return regions[n.Meta().Int(place.FusionKey, 0)]
		}
		return []string{in.Node}
	}
}

// besideKey marks the key of a collective in its form for beside compute.
const besideKey = " beside"

// stepTime is the simulated time of a program with and without its collectives, in
// milliseconds.
type stepTime struct {
	ms, exposed float64
	missing     int // instructions of which nothing was measured
	timeline    *program.Simulated
}

// simulateProgram plays a lowered function with measured costs. The instructions of a
// chain share its time as they share what they take one by one. Of what was not measured,
// generated kernels cost what they move, the rest what its nodes do.
func simulateProgram(p *program.Program, f *ir.Func, m *cost.Measured, model *cost.Model) (*stepTime, error) {
	out := new(stepTime)
	us := out.times(p, m, unmeasured(p, f, model))
	beside := p.Overlapped()
	speed := make(map[*program.Instr]float64, len(p.Instrs))
	for i := range p.Instrs {
		if in := &p.Instrs[i]; beside[i] {
			speed[in], _ = m.Speed(p.CostKey(in) + besideKey)
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
	o := program.SimOptions{EdgeUs: m.EdgeUs, Us: func(in *program.Instr) float64 { return us[in] }, Beside: slowed}
	if model.Machine != nil {
		o.Links = func(in *program.Instr) float64 { return linkShare(p, in, model.Machine, us[in]) }
	}
	var err error
	if out.timeline, err = program.Simulate(p, o); err != nil {
		return nil, err
	}
	o.NoCollectives = true
	alone, err := program.Simulate(p, o)
	if err != nil {
		return nil, err
	}
	out.ms, out.exposed = (out.timeline.Us+m.StepUs)/1e3, (out.timeline.Us-alone.Us)/1e3
	return out, nil
}

// linkShare is the part of the links that a collective of a program takes.
func linkShare(p *program.Program, in *program.Instr, m *cost.Machine, us float64) float64 {
	op, ok := ir.OpByName(in.Op)
	if !ok || in.Group < 0 {
		return 0
	}
	return m.LinkShare(op, p.Groups[in.Group].Size(), max(hintBytes(p, in.Ins), hintBytes(p, in.Outs)), us)
}

// hintBytes is the size of tensors, sizes known at run time only at their hints.
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

// times looks up how long instructions take, in microseconds. Events are not in it.
func (s *stepTime) times(p *program.Program, m *cost.Measured, guess func(in *program.Instr) float64) map[*program.Instr]float64 {
	us := make(map[*program.Instr]float64, len(p.Instrs))
	beside := p.Overlapped()
	for i := range p.Instrs {
		in := &p.Instrs[i]
		key := p.CostKey(in)
		if key == "" {
			continue
		}
		t, ok := m.Micros(key)
		if beside[i] {
			if b, known := m.Micros(key + besideKey); known {
				t, ok = b, true
			}
		}
		if !ok {
			s.missing++
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

// guesses gives the time, in microseconds, of an instruction that was not measured: what
// its nodes are said to cost.
func guesses(p *program.Program, f *ir.Func, model *cost.Model) func(in *program.Instr) float64 {
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
	nodes := guesses(p, f, model)
	return func(in *program.Instr) float64 {
		if p.Kernel(in) != nil && model.Machine != nil {
			return movedUs(p, in, model.Machine)
		}
		return nodes(in)
	}
}

// describe says what a simulation could not look up.
func (s *stepTime) describe(p *program.Program) string {
	if s.missing == 0 {
		return ""
	}
	return fmt.Sprintf("warning: %d of %s of @%s were not measured, and cost what they move or their nodes are said to", s.missing, count(len(p.Instrs), "instruction"), p.Name)
}
