package ir

import (
	"math"
	"slices"

	"github.com/seed-ee968945/concert/internal/dim"
)

// NodeID identifies a node within its function: dense from 0 in order of
// creation, never reused. Side tables are slices indexed by it.
type NodeID int32

// ValueID identifies a value within its function, like NodeID.
type ValueID int32

// MaxWorld is the largest number of ranks of a module; it bounds what passes and
// verifier allocate on hostile input and lies beyond every real machine.
const MaxWorld = 1 << 20

// Module is one SPMD program: process groups, symbols and functions. All ranks
// of the world run the same module; nothing in it depends on the rank. All ranks run a
// function, or those at a place of Stages.
type Module struct {
	World  int // number of ranks; every group partitions 0..World-1, or with stages some of them
	groups []*Group
	syms   []*Symbol
	checks []Check
	stages []*Stages
	funcs  []*Func
	source *Source // the text the module was read from, or nil

	groupOf map[string]*Group  // by name, the first of each
	symOf   map[string]*Symbol // likewise
}

// Group is a process group: a partition of the world's ranks into equal
// subgroups (replica groups). A rank finds its own subgroup at run time.
type Group struct {
	Name  string
	Ranks [][]int // each inner list in group-rank order; all of one length
	index int
	pos   Pos
}

// Size is the number of ranks in each subgroup.
func (g *Group) Size() int {
	if len(g.Ranks) == 0 {
		return 0
	}
	return len(g.Ranks[0])
}

// Index is the position of g in its module's group list, dense from 0.
func (g *Group) Index() int { return g.index }

// Of returns the subgroup that holds rank and the rank's place in it, or nil and -1.
func (g *Group) Of(rank int) ([]int, int) {
	for _, sub := range g.Ranks {
		if i := slices.Index(sub, rank); i >= 0 {
			return sub, i
		}
	}
	return nil, -1
}

// Symbol is a run-time size. Hint feeds cost models, Max bounds memory and
// offsets; the run-time value may differ by rank and lies in Min..Max.
type Symbol struct {
	Name           string
	Hint, Min, Max int64
	pos            Pos
}

// Check is a size that must not be negative: what the program takes for granted of the values
// of its symbols. Each rank checks it before a function runs.
type Check struct {
	Size Dim
	pos  Pos
}

// Groups lists the groups in declaration order. The caller must not change the list.
func (m *Module) Groups() []*Group { return m.groups }

// Symbols lists the symbols in declaration order. The caller must not change the list.
func (m *Module) Symbols() []*Symbol { return m.syms }

// Checks lists the checks in declaration order. The caller must not change the list.
func (m *Module) Checks() []Check { return m.checks }

// Zeros are the sizes that the checks say to be 0: neither they nor their negatives are negative,
// by another check or by the bounds of symbols. What equals another size by one of them is told by [Dim.Given].
func (m *Module) Zeros() []Dim {
	var out []Dim
	for i, c := range m.checks {
		r, ok := m.Bounds(c.Size)
		if ok && r.Max <= 0 || slices.ContainsFunc(m.checks[:i], func(o Check) bool { return o.Size.Add(c.Size).Equal(D(0)) }) {
			out = append(out, c.Size)
		}
	}
	return out
}

// Funcs lists the functions in declaration order. The caller must not change the list.
func (m *Module) Funcs() []*Func { return m.funcs }

// Source is the text that the module was parsed from, or nil.
func (m *Module) Source() *Source { return m.source }

// Group returns the group of that name, or nil.
func (m *Module) Group(name string) *Group {
	return m.groupOf[name]
}

// Symbol returns the symbol of that name, or nil.
func (m *Module) Symbol(name string) *Symbol {
	return m.symOf[name]
}

// Func returns the function of that name, or nil.
func (m *Module) Func(name string) *Func {
	for _, f := range m.funcs {
		if f.Name == name {
			return f
		}
	}
	return nil
}

// Hint evaluates a dimension with every symbol at its hint.
func (m *Module) Hint(d Dim) int64 {
	n, _ := d.Eval(func(s string) (int64, bool) {
		if y := m.Symbol(s); y != nil {
			return y.Hint, true
		}
		return 0, false
	})
	return n
}

// Bounds returns a range that holds every value of d, whatever the values of the
// symbols, each from 0 to its Max and independent of the others; see dim.Dim.Bounds.
// False if a symbol is not declared or a value may not fit 64 bits.
func (m *Module) Bounds(d Dim) (dim.Range, bool) {
	return d.Bounds(func(s string) (dim.Range, bool) {
		y := m.Symbol(s)
		if y == nil {
			return dim.Range{}, false
		}
		return dim.Range{Min: y.Min, Max: y.Max}, true
	})
}

// Bound is the greatest value of d, the upper end of its Bounds: what memory and
// offsets are laid out for. It is 0 if that cannot be told, which the verifier does not
// accept of a size.
func (m *Module) Bound(d Dim) int64 {
	r, _ := m.Bounds(d)
	return r.Max
}

// Func is a function: a graph of nodes and, as an explicit list, the total order
// in which they run. The order is the schedule: it starts with the inputs in
// signature order, ends with the one return node, and every operand is defined
// before its use. Only the methods of edit.go change a function.
type Func struct {
	Name string
	mod  *Module

	nodes  []*Node  // by NodeID; nil where a node was removed
	values []*Value // by ValueID; nil where removed

	// The order is a doubly linked list from first to last; order caches it as a
	// slice and positions while orderOK holds.
	first, last *Node
	order       []*Node
	orderOK     bool

	names   map[string]*Node // node of each name; look-up only, never ranged over
	suffix  map[string]int   // last suffix tried for a base name, so that naming stays linear
	version int64            // grows with every edit
	pos     Pos

	cutFrom *Stages // of a stage that was copied without the others; else the module has them
}

// Module returns the module that f belongs to.
func (f *Func) Module() *Module { return f.mod }

// Version grows with every edit, so that an analysis can tell whether it is stale.
func (f *Func) Version() int64 { return f.version }

// NumNodeIDs bounds node ids: side tables indexed by NodeID need this length.
func (f *Func) NumNodeIDs() int { return len(f.nodes) }

// NumValueIDs bounds value ids.
func (f *Func) NumValueIDs() int { return len(f.values) }

// NodeByID returns the node, or nil if it was removed.
func (f *Func) NodeByID(id NodeID) *Node {
	if id < 0 || int(id) >= len(f.nodes) {
		return nil
	}
	return f.nodes[id]
}

// Lookup returns the node of that name, or nil.
func (f *Func) Lookup(name string) *Node { return f.names[name] }

// Order returns the nodes in program order. The slice is shared: the caller must
// not change it, and it is valid until the next edit. O(1) while nothing changed.
func (f *Func) Order() []*Node {
	if !f.orderOK {
		f.order = f.order[:0:0]
		for n := f.first; n != nil; n = n.next {
			n.at = int32(len(f.order))
			f.order = append(f.order, n)
		}
		f.orderOK = true
	}
	return f.order
}

// Inputs lists the input nodes in signature order.
func (f *Func) Inputs() []*Node {
	order := f.Order()
	n := 0
	for n < len(order) && order[n].op == OpInput {
		n++
	}
	return order[:n:n]
}

// Return is the return node, or nil while the function is being built.
func (f *Func) Return() *Node {
	if f.last != nil && f.last.op == OpReturn {
		return f.last
	}
	return nil
}

// Node is one operation. Its fields are read through methods and changed only
// through the mutators of Func.
type Node struct {
	id      NodeID
	op      Op
	at      int32 // position in Func.order while Func.orderOK holds
	name    string
	args    []*Value // args[i].uses[argUse[i]] is the use {n, i}
	argUse  []int32
	results []*Value // results[i].def == n and results[i].index == i

	// The last versions operands and results belong together, one by one: names of a
	// storage that n writes, and what they are called from then on; see versions.go.
	versions int32

	group *Group // set on collectives, on ops that are Grouped, and on calls that ask for one
	attrs Attrs
	meta  Attrs
	ms    float64 // cost, NaN if unknown
	fn    *Func
	prev  *Node
	next  *Node
	pos   Pos

	sources       []NodeID // see Sources; shared by clones
	after, before []*Node  // order-only edges, see After: n is in o.before for every o of n.after

	members []*Member // see Members; shared by clones
	origins []*origin // see Origins; shared by clones
}

// ID is dense within the function.
func (n *Node) ID() NodeID { return n.id }

// Op is the operation.
func (n *Node) Op() Op { return n.op }

// Name is unique within the function and never empty; a node's only declared
// result is written %name, several are %name#0, %name#1, ...
func (n *Node) Name() string { return n.name }

// Func is the function that holds n.
func (n *Node) Func() *Func { return n.fn }

// Args lists the operands, those for versions last. The caller must not change the list.
func (n *Node) Args() []*Value { return n.args }

// Arg returns operand i.
func (n *Node) Arg(i int) *Value { return n.args[i] }

// Results lists the results, versions last. The caller must not change the list.
func (n *Node) Results() []*Value { return n.results }

// Result returns result i.
func (n *Node) Result(i int) *Value { return n.results[i] }

// Group is the process group of a collective or of a node whose op is Grouped;
// a call may have one; nil on other nodes.
func (n *Node) Group() *Group { return n.group }

// Attrs are the attributes that give the operation its meaning.
func (n *Node) Attrs() Attrs { return n.attrs }

// Meta are annotations: facts about the node that no result depends on, such
// as an input's role, a layer tag or a checkpoint region.
func (n *Node) Meta() Attrs { return n.meta }

// Cost is the attached cost in milliseconds; false if none is attached.
func (n *Node) Cost() (float64, bool) { return n.ms, !math.IsNaN(n.ms) }

// At is the position of n in the function's order. Amortised O(1).
func (n *Node) At() int {
	n.fn.Order()
	return int(n.at)
}

// Prev is the node before n in program order, nil for the first. O(1).
func (n *Node) Prev() *Node { return n.prev }

// Next is the node after n in program order, nil for the last. O(1).
func (n *Node) Next() *Node { return n.next }

// Pos is the place in the module's source, unknown for nodes built in Go.
func (n *Node) Pos() Pos { return n.pos }

// Role is what an input stands for, from the annotation "role".
func (n *Node) Role() Role { return Role(n.meta.Str("role", "")) }

// Role says what an input stands for; it decides how long its storage lives.
type Role string

// The roles of inputs. An input without a role lives throughout, like data.
const (
	RoleParameter Role = "parameter" // lives throughout
	RoleData      Role = "data"      // lives throughout
	RoleSaved     Role = "saved"     // an activation kept by the forward pass: dies at its last use
	RoleTangent   Role = "tangent"   // an incoming gradient: dies at its last use
)

// Value is one result of a node.
type Value struct {
	id    ValueID
	index int32
	def   *Node
	typ   Type
	uses  []Use
	base  *Value // of a version: the name that it is a version of, however many writes ago
}

// Use is one operand slot: Node.Arg(Index) is the value.
type Use struct {
	Node  *Node
	Index int
}

// ID is dense within the function.
func (v *Value) ID() ValueID { return v.id }

// Def is the node that defines v.
func (v *Value) Def() *Node { return v.def }

// Index is the place of v among its node's results.
func (v *Value) Index() int { return int(v.index) }

// Type is the type of v.
func (v *Value) Type() Type { return v.typ }

// Uses lists the operand slots that hold v, in no particular but a
// deterministic order. The caller must not change the list.
func (v *Value) Uses() []Use { return v.uses }

// Name is the text form without the percent sign: name, name#index, or for a
// version the name of what it is a version of, then @ and the node that wrote.
func (v *Value) Name() string { return string(v.appendName(nil)[1:]) }

// String is the text form with the percent sign.
func (v *Value) String() string { return string(v.appendName(nil)) }
