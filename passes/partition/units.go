package partition

import (
	"fmt"
	"slices"

	"github.com/seed-ee968945/concert/ir"
	"github.com/seed-ee968945/concert/passes"
)

// This file reads a joint function as partition sees it: units of execution over
// roots of storage, with a side for each unit.
//
// A unit is what runs as one: a node that is no view, a collective together with
// its wait. Views run nowhere: whoever has the storage has the view. So values
// are looked at by root: the tensor that a unit or an input made, through however
// many views it is read.

// side says in which half of a joint function a unit runs.
type side uint8

const (
	sideForward  side = iota // a forward output needs it, or it has to run before what does
	sideBackward             // a tangent reaches it
	sideFree                 // pure, and neither: it runs where its results are cheaper to have
)

// planUnit is what runs as one.
type planUnit struct {
	nodes    []*ir.Node // in program order: one node, or a collective and its wait
	args     []int32    // roots that it reads, each once, in operand order
	writes   []int32    // those of them that it writes in place
	outs     []int32    // roots that it makes
	after    []int32    // units whose writes it reads or overwrites
	side     side
	keep     bool  // runs once: its results are saved or not needed
	rerun    bool  // communication of a checkpointed region that is repeated as a whole
	overrun  bool  // a later write changes what it reads
	region   int64 // checkpointed region, 0 for none
	wanted   bool  // some output or effect needs it
	asyncOut bool  // its result leaves the function in flight
	ms       float64
}

func (u *planUnit) effectful() bool {
	for _, n := range u.nodes {
		if !n.Pure() || n.Op().Class() == ir.ClassWait {
			return true
		}
	}
	return false
}

// only reports whether the unit has no effects beyond those given.
func (u *planUnit) only(e ir.Effect) bool {
	for _, n := range u.nodes {
		if n.Effects()&^(e|ir.EffectAlias) != 0 {
			return false
		}
	}
	return true
}

func (u *planUnit) name() string { return u.nodes[0].Name() }

// planRoot is a tensor, or an async value that leaves in flight, with a storage of
// its own.
type planRoot struct {
	val       *ir.Value
	unit      int32 // that makes it; -1 for an input
	bytes     int64 // symbols at their upper bounds
	free      bool  // backward can have it at no cost: a parameter or data that forward does not change
	tangent   bool
	async     bool
	duplicate int32 // equal root that backward has in any case, -1 for none
	inside    bool  // of a checkpointed region and read by no other forward unit: never saved
	edge      bool  // of a checkpointed region and read by forward units outside
}

// jointFunc is the analysis of one function.
type jointFunc struct {
	ctx    *passes.Context
	f      *ir.Func
	units  []planUnit
	roots  []planRoot
	rootOf []int32 // ValueID -> root, -1 for an async value between a collective and its wait
	unitOf []int32 // NodeID -> unit, -1 for inputs, views and the return

	fwOuts, bwOuts []int // operands of the return that forward and backward give

	store   []int32   // root -> the root whose storage it shares through an opaque call, mostly itself
	writers [][]int32 // by root that is its own storage: units that write it, in order
	touch   [][]int32 // and units that touch it, in order, where anything is written
}

// Error says why a function cannot be split.
type Error struct {
	Node   string // where
	Reason string

	// Whole says that the function is legal as it stands, but in two halves something
	// would be read, written or awaited at another time.
	Whole bool
}

// Error implements error.
func (e *Error) Error() string { return fmt.Sprintf("%%%s: %s", e.Node, e.Reason) }

// readJoint analyses f. It returns nil where f is not a joint function: it has no
// tangents, it takes saved values, so that it is a backward half already, or all
// of its outputs depend on tangents. Linear in nodes and uses.
func readJoint(ctx *passes.Context, f *ir.Func) (*jointFunc, error) {
	tangents := false
	for _, n := range f.Inputs() {
		switch n.Role() {
		case ir.RoleTangent:
			tangents = true
		case ir.RoleSaved:
			return nil, nil
		}
	}
	if !tangents || f.Return() == nil || f.Return().Meta().Has(metaHalf) {
		return nil, nil
	}
	j := &jointFunc{ctx: ctx, f: f, rootOf: make([]int32, f.NumValueIDs()), unitOf: make([]int32, f.NumNodeIDs())}
	j.collect()
	j.orderWrites()
	reached := j.tangentDependent()
	if err := j.outputs(reached); err != nil || len(j.fwOuts) == 0 {
		return nil, err
	}
	j.assignHalves(reached)
	if err := j.checkOrder(); err != nil {
		return nil, err
	}
	j.markLive()
	j.regions()
	j.banRecomputation()
	j.findDuplicates()
	return j, nil
}

// collect builds units and roots.
func (j *jointFunc) collect() {
	for i := range j.rootOf {
		j.rootOf[i] = -1
	}
	for i := range j.unitOf {
		j.unitOf[i] = -1
	}
	for _, n := range j.f.Order() {
		switch {
		case n.Op() == ir.OpInput:
			r := j.root(n.Result(0), -1)
			role := n.Role()
			r.tangent = role == ir.RoleTangent
			r.free = !r.tangent
		case n.Op().IsView():
			for _, v := range n.Results() {
				j.rootOf[v.ID()] = j.rootOf[n.Arg(0).ID()]
			}
		case n.Op().Class() == ir.ClassOutput:
		case n.Op().Class() == ir.ClassWait && j.unitOf[n.Arg(0).Def().ID()] >= 0:
			j.extend(j.unitOf[n.Arg(0).Def().ID()], n)
		default:
			j.add(n)
		}
	}
}

func (j *jointFunc) root(v *ir.Value, unit int32) *planRoot {
	j.rootOf[v.ID()] = int32(len(j.roots))
	j.roots = append(j.roots, planRoot{val: v, unit: unit, bytes: j.f.Module().Bound(v.Type().Bytes()), async: v.Type().IsAsync(), duplicate: -1})
	return &j.roots[len(j.roots)-1]
}

// add makes a unit of one node.
func (j *jointFunc) add(n *ir.Node) {
	id := int32(len(j.units))
	j.unitOf[n.ID()] = id
	u := planUnit{nodes: []*ir.Node{n}, ms: j.cost(n), region: n.Meta().Int(MetaCheckpoint, 0)}
	for i, a := range n.Args() {
		u.args = appendOnce(u.args, j.rootOf[a.ID()])
		if n.Writes(i) {
			u.writes = appendOnce(u.writes, j.rootOf[a.ID()])
		}
	}
	for _, v := range n.Results() {
		if v.IsVersion() { // the same tensor, whose contents order decides
			j.rootOf[v.ID()] = j.rootOf[v.Before().ID()]
			continue
		}
		if v.Type().IsAsync() && len(v.Uses()) > 0 && v.Uses()[0].Node.Op().Class() == ir.ClassWait {
			continue // the wait makes the roots
		}
		u.asyncOut = u.asyncOut || v.Type().IsAsync()
		u.outs = append(u.outs, int32(len(j.roots)))
		j.root(v, id)
	}
	j.units = append(j.units, u)
}

// extend adds the wait of a collective to its unit.
func (j *jointFunc) extend(id int32, wait *ir.Node) {
	j.unitOf[wait.ID()] = id
	u := &j.units[id]
	u.nodes = append(u.nodes, wait)
	for _, v := range wait.Results() {
		u.outs = append(u.outs, int32(len(j.roots)))
		j.root(v, id)
	}
}

// Lists of operands are short, except those of buckets and returns, which are few.
func appendOnce(list []int32, x int32) []int32 {
	for _, y := range list {
		if y == x {
			return list
		}
	}
	return append(list, x)
}

// trafficGBps is the rate at which nodes of unknown cost are reckoned to move
// their operands and results: what one H200 reads or writes.
const trafficGBps = 4814

// cost is the time of a node. Where nothing knows it, partition must not take
// recomputation for free, so that it is reckoned by its bytes.
func (j *jointFunc) cost(n *ir.Node) float64 {
	if _, ok := n.Cost(); ok {
		return j.ctx.Cost(n)
	}
	if c := j.ctx.Costs(); c != nil {
		if ms, ok := c.NodeMs(n); ok {
			return ms
		}
	}
	if n.Op().Class() == ir.ClassWait {
		return 0
	}
	mod, bytes := j.f.Module(), int64(0)
	for _, v := range n.Args() {
		bytes += mod.Hint(v.Type().Bytes())
	}
	for _, v := range n.Results() {
		bytes += mod.Hint(v.Type().Bytes())
	}
	return float64(bytes) / (trafficGBps * 1e6)
}

// orderWrites finds what in-place writes order: after lists, for each unit, the last
// writers of the storages that it touches; overrun marks units whose operands or
// results are written later.
func (j *jointFunc) orderWrites() {
	if !slices.ContainsFunc(j.units, func(u planUnit) bool { return len(u.writes) > 0 }) {
		return
	}
	j.store = make([]int32, len(j.roots))
	for r := range j.roots {
		j.store[r] = int32(r)
		if u := j.roots[r].unit; u >= 0 && j.units[u].nodes[0].Effects()&ir.EffectAlias != 0 && len(j.units[u].args) > 0 {
			j.store[r] = j.store[j.units[u].args[0]] // an opaque call that aliases
		}
	}
	j.writers, j.touch = make([][]int32, len(j.roots)), make([][]int32, len(j.roots))
	marked := make([]int, len(j.roots)) // by storage: touches known to be overrun
	for i := range j.units {
		u := &j.units[i]
		for _, list := range [][]int32{u.args, u.outs} {
			for _, r := range list {
				s := j.store[r]
				if k := len(j.writers[s]); k > 0 && j.writers[s][k-1] != int32(i) {
					u.after = appendOnce(u.after, j.writers[s][k-1])
				}
				j.touch[s] = append(j.touch[s], int32(i))
			}
		}
		for _, r := range u.writes {
			s := j.store[r]
			for _, t := range j.touch[s][marked[s]:] {
				if t != int32(i) {
					j.units[t].overrun = true
				}
			}
			marked[s] = len(j.touch[s]) - 1 // i itself, which another write may follow
			if k := len(j.writers[s]); k == 0 || j.writers[s][k-1] != int32(i) {
				j.writers[s] = append(j.writers[s], int32(i))
			}
		}
	}
}

// lastWriter is the last unit that writes the storage of a root, or -1.
func (j *jointFunc) lastWriter(r int32) int32 {
	if j.store == nil {
		return -1
	}
	if w := j.writers[j.store[r]]; len(w) > 0 {
		return w[len(w)-1]
	}
	return -1
}

// tangentDependent marks the units that depend on a tangent.
func (j *jointFunc) tangentDependent() []bool {
	on := make([]bool, len(j.units))
	for i := range j.units {
		u := &j.units[i]
		for _, r := range u.args {
			def := j.roots[r].unit
			on[i] = on[i] || j.roots[r].tangent || def >= 0 && on[def]
		}
		for _, w := range u.after {
			on[i] = on[i] || on[w]
		}
	}
	return on
}

// outputs says which half gives each result of the function.
func (j *jointFunc) outputs(reached []bool) error {
	ret := j.f.Return()
	declared := ret.Meta().Int(MetaForward, -1)
	if declared > int64(len(ret.Args())) {
		return &Error{Node: ret.Name(), Reason: fmt.Sprintf("%s=%d, but there are %d results", MetaForward, declared, len(ret.Args()))}
	}
	for k, v := range ret.Args() {
		r := j.rootOf[v.ID()]
		if r < 0 { // a collective whose result leaves in flight always has a root
			return &Error{Node: v.Def().Name(), Reason: "an async value is returned and waited for"}
		}
		late := j.roots[r].tangent || j.roots[r].unit >= 0 && reached[j.roots[r].unit]
		if w := j.lastWriter(r); w >= 0 {
			late = late || reached[w]
		}
		switch {
		case declared < 0 && !late, int64(k) < declared && !late:
			j.fwOuts = append(j.fwOuts, k)
		case int64(k) < declared:
			return &Error{Node: v.Def().Name(), Reason: fmt.Sprintf("it is result %d of %d that forward has to give (%s=%d), but it depends on a tangent", k, declared, MetaForward, declared)}
		default:
			j.bwOuts = append(j.bwOuts, k)
		}
	}
	return nil
}

// assignHalves assigns every unit to a half.
//
// What a tangent reaches is backward; what a forward output needs is forward. Of
// the rest, an operation with effects runs once and stays where the program has
// it: after the last node that a forward output needs it belongs to backward,
// such as a gather that backward repeats on purpose; before, to forward. Pure
// operations are free unless an operand comes from backward, or a later write
// destroys what they read, which only forward can forestall.
func (j *jointFunc) assignHalves(reached []bool) {
	need := j.forwardNeeds()
	boundary := -1
	for i := range j.units {
		if need[i] && !reached[i] {
			boundary = i
		}
	}
	bwAsync := make([]bool, len(j.units))
	for _, k := range j.bwOuts {
		if r := &j.roots[j.rootOf[j.f.Return().Arg(k).ID()]]; r.async && r.unit >= 0 {
			bwAsync[r.unit] = true
		}
	}
	for i := range j.units {
		u := &j.units[i]
		late := reached[i]
		for _, r := range u.args {
			def := j.roots[r].unit
			late = late || def >= 0 && j.units[def].side == sideBackward
		}
		for _, w := range u.after {
			late = late || j.units[w].side == sideBackward
		}
		switch {
		case late:
			u.side = sideBackward
		case need[i]:
			u.side = sideForward
		case u.effectful() && (i > boundary || bwAsync[i]):
			u.side = sideBackward
		case u.effectful() || u.overrun:
			u.side = sideForward
		default:
			u.side = sideFree
		}
	}
	for i := len(j.units) - 1; i >= 0; i-- { // forward runs what its effects need
		if u := &j.units[i]; u.side == sideForward {
			for _, r := range u.args {
				if def := j.roots[r].unit; def >= 0 && j.units[def].side == sideFree {
					j.units[def].side = sideForward
				}
			}
		}
	}
}

// forwardNeeds marks the units that forward outputs need.
func (j *jointFunc) forwardNeeds() []bool {
	need := make([]bool, len(j.units))
	for _, k := range j.fwOuts {
		r := j.rootOf[j.f.Return().Arg(k).ID()]
		if u := j.roots[r].unit; u >= 0 {
			need[u] = true
		}
		if w := j.lastWriter(r); w >= 0 {
			need[w] = true
		}
	}
	for i := len(j.units) - 1; i >= 0; i-- {
		if need[i] {
			j.mark(need, &j.units[i])
		}
	}
	return need
}

// mark marks what u directly depends on.
func (j *jointFunc) mark(on []bool, u *planUnit) {
	for _, r := range u.args {
		if def := j.roots[r].unit; def >= 0 {
			on[def] = true
		}
	}
	for _, w := range u.after {
		on[w] = true
	}
}

// markLive marks what outputs and effects need; the rest is dead.
func (j *jointFunc) markLive() {
	want := make([]bool, len(j.units))
	for _, v := range j.f.Return().Args() {
		r := j.rootOf[v.ID()]
		if u := j.roots[r].unit; u >= 0 {
			want[u] = true
		}
	}
	for i := len(j.units) - 1; i >= 0; i-- {
		u := &j.units[i]
		want[i] = want[i] || u.effectful()
		if want[i] {
			j.mark(want, u)
		}
		u.wanted = want[i]
	}
	// An input that forward changes is not the caller's any more when backward runs.
	for s := range j.writers {
		for _, w := range j.writers[s] {
			j.roots[s].free = j.roots[s].free && j.units[w].side == sideBackward
		}
	}
}
