package ir

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
)

// This file holds the only code that changes a graph. Mutators keep use lists,
// names and the order list consistent; they do not check meaning, which is the
// verifier's part. Passing nodes or values of another function is a programming
// error and panics.

// NewModule returns an empty module for a world of that many ranks.
func NewModule(world int) *Module {
	return &Module{World: world, groupOf: map[string]*Group{}, symOf: map[string]*Symbol{}}
}

// AddGroup declares a group. The verifier checks that it partitions the world, or in a module
// with stages some ranks of it.
func (m *Module) AddGroup(name string, ranks [][]int) *Group {
	return m.addGroup(&Group{Name: name, Ranks: ranks, index: len(m.groups)})
}

func (m *Module) addGroup(g *Group) *Group {
	m.groups = append(m.groups, g)
	if m.groupOf[g.Name] == nil {
		m.groupOf[g.Name] = g
	}
	return g
}

// AddSymbol declares a run-time size.
func (m *Module) AddSymbol(name string, hint, minimum, maximum int64) *Symbol {
	return m.addSymbol(&Symbol{Name: name, Hint: hint, Min: minimum, Max: maximum})
}

func (m *Module) addSymbol(s *Symbol) *Symbol {
	m.syms = append(m.syms, s)
	if m.symOf[s.Name] == nil {
		m.symOf[s.Name] = s
	}
	return s
}

// AddCheck makes the module one for values of symbols that leave size at 0 or more.
func (m *Module) AddCheck(size Dim) { m.checks = append(m.checks, Check{Size: size}) }

// AddFunc adds an empty function.
func (m *Module) AddFunc(name string) *Func {
	f := &Func{Name: name, mod: m, names: map[string]*Node{}, suffix: map[string]int{}}
	m.funcs = append(m.funcs, f)
	return f
}

// NodeSpec describes a node to be made by Append or InsertBefore.
type NodeSpec struct {
	Op      Op
	Name    string // made unique with a suffix if taken; derived from Op if empty
	Args    []*Value
	Results []Type
	Group   *Group
	Attrs   Attrs
	Meta    Attrs
	Cost    float64 // milliseconds; used if HasCost
	HasCost bool
	Pos     Pos
	From    []*Node   // what the node is made from, see Node.Sources
	Beside  bool      // it does not stand for what it is made from, whose order-only edges it does not get
	After   []*Node   // order-only edges, see Node.After
	Members []*Member // of a bucket, by operand, see Node.Members
	Origin  any       // the caller's own object, see Node.Origins

	// Versions is how many of the last Args and Results belong together as versions;
	// only who copies a node that has some sets it.
	Versions int
}

// Spec describes a copy of n, which is made from n. The caller replaces the operands,
// and the group where the copy goes to another module.
func (n *Node) Spec() NodeSpec {
	s := NodeSpec{Op: n.op, Name: n.name, Args: slices.Clone(n.args), Group: n.group, Attrs: n.attrs, Meta: n.meta,
		Pos: n.pos, From: []*Node{n}, Versions: int(n.versions)}
	for _, r := range n.results {
		s.Results = append(s.Results, r.typ)
	}
	s.Cost, s.HasCost = n.Cost()
	return s
}

// Append makes a node at the end of the order.
func (f *Func) Append(s NodeSpec) *Node { return f.insert(s, nil) }

// InsertBefore makes a node directly before at in the order.
func (f *Func) InsertBefore(at *Node, s NodeSpec) *Node { return f.insert(s, at) }

// InsertAfter makes a node directly after at in the order.
func (f *Func) InsertAfter(at *Node, s NodeSpec) *Node { return f.insert(s, at.next) }

func (f *Func) insert(s NodeSpec, before *Node) *Node {
	n := &Node{id: NodeID(len(f.nodes)), op: s.Op, fn: f, group: s.Group, attrs: s.Attrs, meta: s.Meta, ms: math.NaN(), pos: s.Pos, versions: int32(s.Versions)}
	if s.HasCost {
		n.ms = s.Cost
	}
	n.name = f.uniqueName(s)
	f.names[n.name] = n
	f.nodes = append(f.nodes, n)
	if len(s.Results) > 0 {
		block := make([]Value, len(s.Results))
		n.results = make([]*Value, len(s.Results))
		for i, t := range s.Results {
			v := &block[i]
			*v = Value{id: ValueID(len(f.values)), index: int32(i), def: n, typ: t}
			n.results[i] = v
			f.values = append(f.values, v)
		}
	}
	n.args = make([]*Value, len(s.Args))
	n.argUse = make([]int32, len(s.Args))
	for i, v := range s.Args {
		f.link(n, i, v)
	}
	f.splice(n, before)
	if s.Origin != nil {
		f.SetOrigin(n, s.Origin)
	}
	f.derive(n, s.From, !s.Beside)
	n.members = s.Members
	f.AddAfter(n, s.After...)
	return n
}

// uniqueName returns the wanted name, or the name with _1, _2, ... if it is taken.
func (f *Func) uniqueName(s NodeSpec) string {
	base := s.Name
	if base == "" {
		base = s.Op.Name()
	}
	if _, taken := f.names[base]; !taken {
		return base
	}
	if i := strings.LastIndexByte(base, '_'); i > 0 {
		if _, err := strconv.Atoi(base[i+1:]); err == nil {
			base = base[:i]
		}
	}
	for k := f.suffix[base] + 1; ; k++ {
		name := base + "_" + strconv.Itoa(k)
		if _, taken := f.names[name]; !taken {
			f.suffix[base] = k
			return name
		}
	}
}

// link makes v operand i of n.
func (f *Func) link(n *Node, i int, v *Value) {
	if v.def.fn != f {
		panic(fmt.Sprintf("ir: operand %s of %s belongs to function %s, not %s", v, n.name, v.def.fn.Name, f.Name))
	}
	n.args[i] = v
	n.argUse[i] = int32(len(v.uses))
	v.uses = append(v.uses, Use{n, i})
	if made := n.versionOf(i); made != nil {
		made.rebase(v)
	}
}

// unlink removes the use of operand i; the last use takes its place.
func unlink(n *Node, i int) {
	v, k := n.args[i], n.argUse[i]
	last := v.uses[len(v.uses)-1]
	v.uses[k] = last
	last.Node.argUse[last.Index] = k
	v.uses = v.uses[:len(v.uses)-1]
}

// splice puts n before another node of the order, or at the end for nil.
func (f *Func) splice(n, before *Node) {
	n.next = before
	if before != nil {
		n.prev, before.prev = before.prev, n
		f.orderOK = false
	} else {
		n.prev, f.last = f.last, n
		if f.orderOK || len(f.order) == 0 && n.prev == nil {
			n.at = int32(len(f.order))
			f.order = append(f.order, n)
			f.orderOK = true
		}
	}
	if n.prev != nil {
		n.prev.next = n
	} else {
		f.first = n
	}
	f.version++
}

func (f *Func) unsplice(n *Node) {
	if n.prev != nil {
		n.prev.next = n.next
	} else {
		f.first = n.next
	}
	if n.next != nil {
		n.next.prev = n.prev
	} else {
		f.last = n.prev
	}
	n.prev, n.next = nil, nil
	f.orderOK = false
	f.version++
}

// SetArg makes v operand i of n.
func (f *Func) SetArg(n *Node, i int, v *Value) {
	unlink(n, i)
	f.link(n, i, v)
	f.version++
	if i >= n.declaredArgs() {
		f.mergeVersions(n, i)
	}
}

// SetArgs replaces all operands of n.
func (f *Func) SetArgs(n *Node, args ...*Value) {
	for i := len(n.args) - 1; i >= 0; i-- {
		unlink(n, i)
	}
	n.args = make([]*Value, len(args))
	n.argUse = make([]int32, len(args))
	for i, v := range args {
		f.link(n, i, v)
	}
	f.version++
}

// mergeVersions makes who reads the version of implicit operand i, or another one that
// n gives of the same value, read the first of them: a name has one version at a node,
// and nobody reads the others. O(versions of n or uses of the value, whichever are
// fewer).
func (f *Func) mergeVersions(n *Node, i int) {
	declared, v := n.declaredResults()-n.declaredArgs(), n.args[i]
	first := n.implicit(v)
	if first != i {
		f.ReplaceUses(n.results[declared+i], n.results[declared+first])
		return
	}
	for k := i + 1; k < len(n.args); k++ {
		if n.args[k] == v {
			f.ReplaceUses(n.results[declared+k], n.results[declared+first])
		}
	}
}

// implicit is the first operand of n that is there for a version of v, -1 if there is
// none.
func (n *Node) implicit(v *Value) int {
	first, at := n.declaredArgs(), -1
	if int(n.versions) < len(v.uses) {
		if k := slices.Index(n.args[first:], v); k >= 0 {
			at = first + k
		}
		return at
	}
	for _, u := range v.uses {
		if u.Node == n && u.Index >= first && (at < 0 || u.Index < at) {
			at = u.Index
		}
	}
	return at
}

// ReplaceUses makes every user of old use v instead. O(uses of old).
func (f *Func) ReplaceUses(old, v *Value) {
	if old == v {
		return
	}
	for len(old.uses) > 0 {
		u := old.uses[len(old.uses)-1]
		f.SetArg(u.Node, u.Index, v)
	}
}

// Remove deletes a node whose results have no uses; it panics if one has.
func (f *Func) Remove(n *Node) {
	for _, r := range n.results {
		if len(r.uses) > 0 {
			panic(fmt.Sprintf("ir: removing %s, which %s still uses", n.name, r.uses[0].Node.name))
		}
	}
	for i := len(n.args) - 1; i >= 0; i-- {
		unlink(n, i)
	}
	for _, r := range n.results {
		f.values[r.id] = nil
	}
	n.unorder()
	f.nodes[n.id] = nil
	delete(f.names, n.name)
	f.unsplice(n)
}

// MoveBefore moves n directly before at in the order.
func (f *Func) MoveBefore(n, at *Node) {
	if n == at || n.next == at {
		return
	}
	f.unsplice(n)
	f.splice(n, at)
}

// MoveAfter moves n directly after at in the order.
func (f *Func) MoveAfter(n, at *Node) {
	if n == at || at.next == n {
		return
	}
	f.unsplice(n)
	f.splice(n, at.next)
}

// SetOrder replaces the order. It returns an error, and changes nothing, unless
// order holds every node of f once; legality is the verifier's part. O(nodes).
func (f *Func) SetOrder(order []*Node) error {
	seen := make([]bool, len(f.nodes))
	for _, n := range order {
		if n == nil || n.fn != f || f.nodes[n.id] != n {
			return fmt.Errorf("ir: new order of %s holds a node that is not of the function", f.Name)
		}
		if seen[n.id] {
			return fmt.Errorf("ir: new order of %s holds %s twice", f.Name, n.name)
		}
		seen[n.id] = true
	}
	if have := len(f.Order()); len(order) != have {
		return fmt.Errorf("ir: new order of %s holds %d of %d nodes", f.Name, len(order), have)
	}
	f.order = append(f.order[:0:0], order...)
	f.first, f.last = nil, nil
	for i, n := range f.order {
		n.at, n.prev, n.next = int32(i), f.last, nil
		if f.last != nil {
			f.last.next = n
		} else {
			f.first = n
		}
		f.last = n
	}
	f.orderOK = true
	f.version++
	return nil
}

// SetAttrs replaces the attributes of n.
func (f *Func) SetAttrs(n *Node, a Attrs) { n.attrs = a; f.version++ }

// SetMeta replaces the annotations of n.
func (f *Func) SetMeta(n *Node, a Attrs) { n.meta = a; f.version++ }

// SetCost attaches a cost in milliseconds; NaN detaches it.
func (f *Func) SetCost(n *Node, ms float64) { n.ms = ms; f.version++ }

// SetOp turns n into another operation that takes the same operands and results.
func (f *Func) SetOp(n *Node, op Op) { n.op = op; f.version++ }

// SetGroup sets the process group of a node that has one.
func (f *Func) SetGroup(n *Node, g *Group) { n.group = g; f.version++ }

// SetType replaces the type of a value.
func (f *Func) SetType(v *Value, t Type) { v.typ = t; f.version++ }

// Rename gives n a new name, made unique with a suffix if taken, and returns it.
func (f *Func) Rename(n *Node, name string) string {
	if n.name == name {
		return name
	}
	delete(f.names, n.name)
	n.name = f.uniqueName(NodeSpec{Op: n.op, Name: name})
	f.names[n.name] = n
	f.version++
	return n.name
}

// RemoveFunc removes a function from the module; it does nothing if f is not of
// the module. The function keeps its nodes and can still be read.
func (m *Module) RemoveFunc(f *Func) {
	m.funcs = slices.DeleteFunc(m.funcs, func(g *Func) bool { return g == f })
}
