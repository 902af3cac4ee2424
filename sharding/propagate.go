package sharding

import (
	"fmt"
	"slices"
)

// Mode says how far propagation goes.
type Mode uint8

// The modes, each with what those above it do.
const (
	Basic        Mode = iota // axes that suit all tensors of an operation
	Conservative             // Basic that splits no axis, nor propagates where data would move
	Aggressive               // conflicts are resolved for each tensor by itself; without Basic before it
	OpPriority               // Basic and then Aggressive, operations by their kinds
	UserPriority             // OpPriority for the axes of each priority that the user gave
)

// modeNames are the modes in their order.
var modeNames = []string{"basic", "conservative", "aggressive", "op-priority", "user-priority"}

func (m Mode) String() string { return modeNames[m] }

// ModeByName is the mode of a name.
func ModeByName(name string) (Mode, error) {
	if i := slices.Index(modeNames, name); i >= 0 {
		return Mode(i), nil
	}
	return 0, fmt.Errorf("there is no mode %q: want one of %v", name, modeNames)
}

// Value is what a sharding is of. Values that must be sharded alike, such as a loop's
// result and the argument of its body, are one.
type Value struct {
	Name     string
	Shape    []int64
	Sharding *Sharding // nil: nothing is known
	Group    int       // values of a group other than 0 are sharded alike
	Why      *Reason   // nil of a sharding that was given
}

// Reason says where an inferred sharding comes from.
type Reason struct {
	Step *Step
	From []int // the values that the step took axes from
	Mode Mode
	Op   int // the operations' priority at that time
}

// Class says when a step's turn comes where operations have priorities.
type Class uint8

// The classes.
const (
	Plain     Class = iota
	Through         // elementwise, reshape, transpose, an edge: first
	Slicing         // dynamic slices and their updates: first, forward only
	Broadcast       // forward last
)

// Step relates values by a rule: an operation, or an edge along which data flows.
type Step struct {
	Op          string
	Line        int
	Rule        *Rule // nil: shardings do not pass
	Operands    []int // values; None of what cannot be sharded
	Results     []int
	Elementwise bool
	Class       Class
	MultiUse    bool       // an operand that is not scalar has other uses
	Allowed     *Direction // of a propagation barrier or a return, in every mode
	Manual      *Manual    // of an edge into or out of a manual computation
	Edge        bool       // data flows: axes are split in every mode
}

// Manual says how the sharding of an edge's result differs from what the rule relates.
type Manual struct {
	Outer *Sharding // as the computation states it
	Axes  []string  // that its body does not see
	In    bool      // the result is inside of the body
}

// Graph is a program as propagation sees it.
type Graph struct {
	Values  []Value
	Steps   []Step // in the order of the program
	Returns []Step // from returned values to a function's results
	users   [][]int
	def     []int
	groups  map[int][]int
	tick    int
	changed []int    // by value: the tick of its last change
	settled []settle // by step
	proj    projection
	sides   [2][]*Sharding
}

// settle says when a step was looked at, with and without resolving conflicts, and which way
// it passed its factors then: there is nothing new in it until a value changes.
type settle struct {
	tick [2]int
	dirs [2]uint64
	all  [opPriorities]uint64 // by priority: the ways of up to 31 factors, 2 bits each
}

// stale reports whether a step may pass something new, and remembers that it was looked at.
func (g *Graph) stale(at int, p pass) bool {
	st, k := &g.Steps[at], 0
	if p.mode == Aggressive {
		k = 1
	}
	if st.Rule == nil || len(st.Rule.Factors) > 31 {
		return st.Rule != nil
	}
	x := &g.settled[at]
	dirs := x.all[p.priority]
	if dirs == 0 || x.dirs[k] == dirs && g.unchanged(st.Operands, x.tick[k]) && g.unchanged(st.Results, x.tick[k]) {
		return false
	}
	g.tick++
	x.dirs[k], x.tick[k] = dirs, g.tick
	return true
}

// unchanged reports whether no value has changed since a tick.
func (g *Graph) unchanged(values []int, tick int) bool {
	for _, v := range values {
		if v != None && g.changed[v] >= tick {
			return false
		}
	}
	return true
}

// Propagate runs to the fixpoint. It takes time that is linear in what it infers.
func (g *Graph) Propagate(mode Mode) error {
	if err := g.index(); err != nil {
		return err
	}
	g.syncGroups()
	if mode != UserPriority {
		g.byOps(mode)
		return nil
	}
	given := make([]*Sharding, len(g.Values))
	var priorities []int
	for i := range g.Values {
		v := &g.Values[i]
		if v.Sharding == nil {
			continue
		}
		given[i] = v.Sharding
		for _, d := range v.Sharding.Dims {
			if d.Priority > 0 && !slices.Contains(priorities, d.Priority) {
				priorities = append(priorities, d.Priority)
			}
		}
		v.Sharding = first(v.Sharding)
	}
	slices.Sort(priorities)
	g.byOps(mode)
	for _, p := range priorities {
		for i, s := range given {
			if s != nil {
				g.set(i, release(g.Values[i].Sharding, s, p), g.Values[i].Why)
			}
		}
		g.byOps(mode)
	}
	return nil
}

// first is a sharding before any priority but 0 has come: the axes of others wait among the
// replicated ones, so that nobody takes them.
func first(s *Sharding) *Sharding {
	s = s.Clone()
	for i := range s.Dims {
		d := &s.Dims[i]
		if d.Priority > 0 {
			s.Replicated = append(s.Replicated, d.Axes...)
			*d = Dim{}
		}
		d.Priority = -1
	}
	slices.SortFunc(s.Replicated, s.Mesh.compare)
	return s
}

// release gives a sharding what waited for a priority.
func release(s, given *Sharding, priority int) *Sharding {
	s = s.Clone()
	for i, d := range given.Dims {
		if d.Priority == priority {
			s.Dims[i] = Dim{slices.Clone(d.Axes), d.Open, -1}
			s.Replicated = slices.DeleteFunc(s.Replicated, func(a Ref) bool { return slices.Contains(d.Axes, a) })
		}
	}
	return s
}

// index finds users and definitions, and checks that steps fit their rules.
func (g *Graph) index() error {
	g.users, g.def = make([][]int, len(g.Values)), make([]int, len(g.Values))
	g.groups = map[int][]int{}
	g.tick, g.changed, g.settled = 0, make([]int, len(g.Values)), make([]settle, len(g.Steps))
	for i := range g.def {
		g.def[i] = -1
		if n := g.Values[i].Group; n != 0 {
			g.groups[n] = append(g.groups[n], i)
		}
		if s := g.Values[i].Sharding; s != nil {
			if err := s.Check(len(g.Values[i].Shape)); err != nil {
				return fmt.Errorf("%s: %w", g.Values[i].Name, err)
			}
		}
	}
	for i := range g.Steps {
		st := &g.Steps[i]
		if err := g.fits(st); err != nil {
			return fmt.Errorf("line %d: %s: %w", st.Line, st.Op, err)
		}
		if st.Rule != nil {
			for p := range opPriorities {
				for f := range st.Rule.Factors {
					g.settled[i].all[p] = g.settled[i].all[p]<<2 | uint64(st.direction(f, p))
				}
			}
		}
		for _, v := range st.Operands {
			if v != None {
				g.users[v] = append(g.users[v], i)
			}
		}
		for _, v := range st.Results {
			if v != None {
				g.def[v] = i
			}
		}
	}
	return nil
}

// fits checks a step's rule against its values.
func (g *Graph) fits(st *Step) error {
	if st.Rule == nil {
		return nil
	}
	if len(st.Rule.Operands) != len(st.Operands) || len(st.Rule.Results) != len(st.Results) {
		return fmt.Errorf("a rule of %d operands and %d results for %d and %d", len(st.Rule.Operands), len(st.Rule.Results), len(st.Operands), len(st.Results))
	}
	for i, v := range slices.Concat(st.Operands, st.Results) {
		t := slices.Concat(st.Rule.Operands, st.Rule.Results)[i]
		if v != None && len(t) != len(g.Values[v].Shape) {
			return fmt.Errorf("a rule for %d dimensions of %s, which has %d", len(t), g.Values[v].Name, len(g.Values[v].Shape))
		}
	}
	return nil
}

// syncGroups gives the values of each group the sharding that one of them has.
func (g *Graph) syncGroups() {
	for i := range g.Values {
		s := g.Values[i].Sharding
		for _, j := range g.groups[g.Values[i].Group] {
			if v := &g.Values[j]; v.Group != 0 && !s.Free() && v.Sharding.Free() {
				v.Sharding = s
			}
		}
	}
}

// opPriorities is how many turns operations take.
const opPriorities = 5

// byOps gives operations their turns.
func (g *Graph) byOps(mode Mode) {
	switch mode {
	case OpPriority, UserPriority:
		for p := range opPriorities {
			g.fixpoint(pass{Basic, p, false})
			g.fixpoint(pass{Aggressive, p, false})
		}
	default:
		g.fixpoint(pass{mode, opPriorities - 1, mode == Conservative})
	}
}

// pass is one way to the fixpoint.
type pass struct {
	mode     Mode
	priority int
	conserve bool
}

// direction is which way a step passes a factor when a priority's turn has come.
func (st *Step) direction(f, priority int) Direction {
	if st.Rule.Factors[f].Blocked {
		return NoDirection
	}
	if st.Allowed != nil {
		return *st.Allowed
	}
	out := NoDirection
	for p := range priority + 1 {
		d := Both
		switch {
		case p == 0 && st.MultiUse, p <= 1 && st.Class != Through && st.Class != Slicing:
			d = NoDirection
		case p <= 1 && st.Class == Slicing:
			d = Forward
		case p == 2 && st.Rule.Factors[f].Kind != PassThrough:
			d = NoDirection
		case p < opPriorities-1 && st.Class == Broadcast:
			d = Backward
		}
		out = out.or(d)
	}
	return out
}

// fixpoint applies steps until none changes anything. What is changed is looked at again
// next, so that an axis runs as far as it can before the next one starts.
func (g *Graph) fixpoint(p pass) {
	none := func(int) {}
	for i := range g.Returns {
		g.apply(&g.Returns[i], p, none)
	}
	stack := make([]int, len(g.Steps))
	queued := make([]bool, len(g.Steps))
	for i := range stack {
		stack[len(stack)-1-i] = i
		queued[i] = true
	}
	for len(stack) > 0 {
		at := stack[len(stack)-1]
		stack = stack[:len(stack)-1]
		queued[at] = false
		push := func(i int) {
			if i >= 0 && i != at && !queued[i] {
				queued[i] = true
				stack = append(stack, i)
			}
		}
		if !g.stale(at, p) {
			continue
		}
		quiet := g.apply(&g.Steps[at], p, func(v int) {
			push(g.def[v])
			for _, u := range slices.Backward(g.users[v]) {
				push(u)
			}
		})
		if x := &g.settled[at]; quiet {
			x.dirs = [2]uint64{x.all[p.priority], x.all[p.priority]}
			x.tick = [2]int{g.tick, g.tick}
		}
	}
	for i := range g.Returns {
		g.apply(&g.Returns[i], p, none)
	}
}

// apply propagates through one step, and calls changed for each value that was given more. It
// reports whether there is nothing that any tensor of the step could be given.
func (g *Graph) apply(st *Step, p pass, changed func(v int)) bool {
	if st.Rule == nil {
		return true
	}
	operands, results := g.shardings(0, st.Operands), g.shardings(1, st.Results)
	if st.Manual != nil {
		results[0] = st.Manual.before(results[0])
	}
	mesh := common(operands, results)
	if mesh == nil || mesh.Maximal() {
		return true
	}
	proj := &g.proj
	proj.rule, proj.mesh, proj.elementwise, proj.conserve = st.Rule, mesh, st.Elementwise, p.conserve && !st.Edge && st.Allowed == nil
	proj.operands = slices.Grow(proj.operands[:0], len(operands))[:len(operands)]
	for i, s := range operands {
		proj.operands[i].set(st.Rule.Operands[i], s, st.Rule, mesh)
	}
	proj.results = slices.Grow(proj.results[:0], len(results))[:len(results)]
	for i, s := range results {
		proj.results[i].set(st.Rule.Results[i], s, st.Rule, mesh)
	}
	dir := func(f int) Direction { return st.direction(f, p.priority) }
	proj.quiet = true
	if p.mode == Aggressive {
		proj.aggressive(dir)
	} else {
		proj.basic(dir)
	}
	if proj.quiet {
		return true
	}
	for i, v := range st.Operands {
		if proj.operands[i].changed && v != None {
			g.update(st, p, v, operands[i], proj.operands[i].sharding(st.Rule.Operands[i], st.Rule, mesh), false, changed)
		}
	}
	for i, v := range st.Results {
		if proj.results[i].changed && v != None {
			g.update(st, p, v, results[i], proj.results[i].sharding(st.Rule.Results[i], st.Rule, mesh), st.Manual != nil, changed)
		}
	}
	return false
}

// shardings are those of some values, until it is called again for the same side of a step.
func (g *Graph) shardings(side int, values []int) []*Sharding {
	out := g.sides[side][:0]
	for _, v := range values {
		var s *Sharding
		if v != None {
			s = g.Values[v].Sharding
		}
		out = append(out, s)
	}
	g.sides[side] = out
	return out
}

// common is the mesh of shardings; nil if there is none, or more than one.
func common(operands, results []*Sharding) *Mesh {
	var m *Mesh
	for _, l := range [2][]*Sharding{operands, results} {
		for _, s := range l {
			switch {
			case s == nil || len(s.Mesh.Axes) == 0 && s.Mesh.Devices == nil:
			case m == nil:
				m = s.Mesh
			case m != s.Mesh && (!slices.Equal(m.Axes, s.Mesh.Axes) || !slices.Equal(m.Devices, s.Mesh.Devices)):
				return nil
			}
		}
	}
	return m
}

// update gives a value its new sharding.
func (g *Graph) update(st *Step, p pass, v int, old, s *Sharding, manual bool, changed func(v int)) {
	if old == nil && s.Empty() || s.Equal(old) {
		return
	}
	if manual {
		s = st.Manual.after(s)
	}
	why := &Reason{Step: st, Mode: p.mode, Op: p.priority}
	for _, o := range slices.Concat(st.Operands, st.Results) {
		if o != None && o != v && !slices.Contains(why.From, o) && !g.Values[o].Sharding.Empty() {
			why.From = append(why.From, o)
		}
	}
	g.set(v, s, why)
	changed(v)
	for _, o := range g.groups[g.Values[v].Group] {
		if g.Values[v].Group != 0 && o != v {
			g.set(o, s, why)
			changed(o)
		}
	}
}

func (g *Graph) set(v int, s *Sharding, why *Reason) {
	g.Values[v].Sharding, g.Values[v].Why, g.changed[v] = s, why, g.tick
}
