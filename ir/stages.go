package ir

import (
	"fmt"
	"slices"
	"strings"
)

// MetaPlaces on the return of a function that was cut out of another, as a half or a stage,
// lists which results of the whole its own are.
const MetaPlaces = "places"

// Stages are the functions of a pipeline: each rank runs that of its stage, which is its index in
// its subgroup of Group. Ranks of several stages communicate by collectives on groups that have
// ranks of each. In a module with stages a group need not have all ranks of the world, as long as
// the ranks that use it are in it.
type Stages struct {
	Name  string
	Group *Group
	Funcs []string // by stage
	pos   Pos
}

// Stages lists the stages in declaration order. The caller must not change the list.
func (m *Module) Stages() []*Stages { return m.stages }

// AddStages declares stages. The functions may be added later.
func (m *Module) AddStages(name string, g *Group, funcs ...string) *Stages {
	s := &Stages{Name: name, Group: g, Funcs: funcs}
	m.stages = append(m.stages, s)
	return s
}

// Index is the stage of a rank, -1 if it is in no subgroup.
func (s *Stages) Index(rank int) int {
	_, at := s.Group.Of(rank)
	return at
}

// Ranks lists the ranks of a stage in ascending order.
func (s *Stages) Ranks(stage int) []int {
	var out []int
	for _, sub := range s.Group.Ranks {
		out = append(out, sub[stage])
	}
	slices.Sort(out)
	return out
}

// Peers lists, in ascending order, the stages that take part in a stage's collectives on g: that
// stage alone where they stay within it. It is an error if its ranks differ in this.
func (s *Stages) Peers(stage int, g *Group) ([]int, error) {
	at := map[int]int{} // by rank; look-up only
	for _, sub := range s.Group.Ranks {
		for i, r := range sub {
			at[r] = i
		}
	}
	var out []int
	first := -1
	for _, r := range s.Ranks(stage) {
		sub, _ := g.Of(r)
		if sub == nil {
			return nil, fmt.Errorf("rank %d runs it and is not in @%s", r, g.Name)
		}
		var peers []int
		for _, q := range sub {
			peers = append(peers, at[q])
		}
		slices.Sort(peers)
		if peers = slices.Compact(peers); first >= 0 && !slices.Equal(peers, out) {
			return nil, fmt.Errorf("in @%s rank %d communicates with stages %v and rank %d with stages %v", g.Name, first, out, r, peers)
		}
		first, out = r, peers
	}
	return out, nil
}

// StagesOf returns the stages that f is one of, and its index; nil and -1 if all ranks run it.
func (m *Module) StagesOf(f *Func) (*Stages, int) {
	for _, s := range m.stages {
		if i := slices.Index(s.Funcs, f.Name); i >= 0 {
			return s, i
		}
	}
	return nil, -1
}

// betweenStages reports whether n is a collective in which several stages take part, or waits for one.
// What one stage makes of it the others have to make of theirs, and what runs on one function does not
// see them: such a collective stays what it is, in its place among those of its group and before the
// waits that it stands before.
func (n *Node) betweenStages() bool {
	if c := awaited(n); c != nil {
		n = c
	}
	return n.op.IsCollective() && n.group != nil && n.fn != nil && n.fn.crosses(n.group)
}

// crosses reports whether other stages than f take part in its collectives on g.
func (f *Func) crosses(g *Group) bool {
	s, at := f.cutFrom, 0
	switch {
	case s != nil:
		at = slices.Index(s.Funcs, f.Name)
	case len(f.mod.stages) > 0:
		s, at = f.mod.StagesOf(f)
	}
	if s == nil || s.Group == nil || len(s.Group.Ranks) == 0 || at < 0 || at >= len(s.Group.Ranks[0]) {
		return false
	}
	sub, _ := g.Of(s.Group.Ranks[0][at]) // all ranks of a stage have the same peers
	return slices.ContainsFunc(sub, func(q int) bool { return s.Index(q) != at })
}

// ruleStages checks who runs what, and that stages issue the same collectives between them and do
// not deadlock.
func ruleStages(v *verifier) {
	if len(v.m.stages) == 0 || len(v.errs.All) > 0 {
		return
	}
	used := map[string]string{} // by function: the stages that it is one of; look-up only
	for k, s := range v.m.stages {
		if slices.ContainsFunc(v.m.stages[:k], func(o *Stages) bool { return o.Name == s.Name }) {
			v.module(s.pos, "stages @%s are declared twice", s.Name)
		}
		if s.Group == nil || v.m.Group(s.Group.Name) != s.Group || slices.ContainsFunc(s.Group.Ranks, func(sub []int) bool { return len(sub) != len(s.Funcs) }) {
			v.module(s.pos, "@%s has %d functions: want a group whose subgroups have as many ranks", s.Name, len(s.Funcs))
			return
		}
		if s.Group.members() != v.m.World {
			v.module(s.pos, "@%s: not every rank of the world is in @%s", s.Name, s.Group.Name)
			return
		}
		for _, name := range s.Funcs {
			if v.m.Func(name) == nil {
				v.module(s.pos, "@%s: there is no function @%s", s.Name, name)
				return
			}
			if used[name] != "" {
				v.module(s.pos, "@%s: @%s is a stage already", s.Name, name)
				return
			}
			used[name] = s.Name
		}
	}
	for _, f := range v.m.funcs {
		if used[f.Name] == "" {
			v.wholeGroups(f)
		}
	}
	for _, s := range v.m.stages {
		if x := newStageCalls(v, s); x != nil && x.match() {
			x.simulate()
		}
	}
}

// members counts the ranks in a group's subgroups.
func (g *Group) members() (n int) {
	for _, sub := range g.Ranks {
		n += len(sub)
	}
	return n
}

// wholeGroups checks a function that every rank may run.
func (v *verifier) wholeGroups(f *Func) {
	for _, n := range f.Order() {
		if n.group != nil && n.group.members() != v.m.World {
			v.module(n.pos, "%%%s of @%s is on @%s, which not every rank is in, and @%s is not a stage", n.name, f.Name, n.group.Name, f.Name)
			return
		}
	}
}

// stageCalls is the collectives that the stages of one declaration issue together.
type stageCalls struct {
	v     *verifier
	s     *Stages
	funcs []*Func
	peers []map[*Group][]int   // by stage and group: the stages in its collectives there; look-up only
	calls []map[*Group][]*Node // by stage and group: its collectives between stages, in order
}

// newStageCalls collects the collectives between stages, nil if it finds one where none may be.
func newStageCalls(v *verifier, s *Stages) *stageCalls {
	x := &stageCalls{v: v, s: s}
	for i, name := range s.Funcs {
		f := v.m.Func(name)
		x.funcs = append(x.funcs, f)
		x.peers = append(x.peers, map[*Group][]int{})
		x.calls = append(x.calls, map[*Group][]*Node{})
		for _, n := range f.Order() {
			if n.group != nil && !x.add(i, n) {
				return nil
			}
			for _, body := range n.Bodies() {
				if !x.body(n, i, body) {
					return nil
				}
			}
		}
	}
	return x
}

func (x *stageCalls) add(stage int, n *Node) bool {
	peers, ok := x.peers[stage][n.group]
	if !ok {
		var err error
		if peers, err = x.s.Peers(stage, n.group); err != nil {
			x.v.module(n.pos, "%%%s of @%s: %v", n.name, n.fn.Name, err)
			return false
		}
		x.peers[stage][n.group] = peers
	}
	if len(peers) > 1 && !n.op.IsCollective() && n.ownEffects()&EffectCommunicates != 0 {
		x.v.module(n.pos, "%%%s of @%s communicates with stages %v: only collectives may", n.name, n.fn.Name, peers)
		return false
	}
	if len(peers) > 1 && n.op.IsCollective() {
		x.calls[stage][n.group] = append(x.calls[stage][n.group], n)
	}
	return true
}

// body checks a function that a node of a stage runs: what it communicates stays within the stage.
func (x *stageCalls) body(by *Node, stage int, f *Func) bool {
	if f == nil {
		return true // rule body says so
	}
	for _, n := range f.Order() {
		if n.group != nil {
			if peers, err := x.s.Peers(stage, n.group); err != nil || len(peers) > 1 {
				x.v.module(n.pos, "%%%s of @%s, which %%%s runs, communicates with other stages: loops and branches may not", n.name, f.Name, by.name)
				return false
			}
		}
		for _, inner := range n.Bodies() {
			if !x.body(by, stage, inner) {
				return false
			}
		}
	}
	return true
}

// match holds what stages issue on a group against each other.
func (x *stageCalls) match() bool {
	ok := true
	for stage, f := range x.funcs {
		for _, g := range x.v.m.groups {
			own := x.calls[stage][g]
			if len(own) == 0 {
				continue
			}
			for _, other := range x.peers[stage][g] {
				if !slices.Equal(x.peers[other][g], x.peers[stage][g]) && len(x.calls[other][g]) > 0 {
					x.v.module(own[0].pos, "%%%s of @%s communicates with stages %v in @%s, and stage %d with %v", own[0].name, f.Name, x.peers[stage][g], g.Name, other, x.peers[other][g])
					return false
				}
				ok = ok && x.same(own, x.calls[other][g], f, x.funcs[other], g)
			}
		}
	}
	return ok
}

func (x *stageCalls) same(own, other []*Node, f, h *Func, g *Group) bool {
	for i, n := range own {
		if i >= len(other) {
			x.v.module(n.pos, "%%%s of @%s is collective %d of the stage on @%s, and @%s issues %d there", n.name, f.Name, i+1, g.Name, h.Name, len(other))
			return false
		}
		if o := other[i]; !sameCollective(n, o) {
			x.v.module(n.pos, "%%%s of @%s and %%%s of @%s are collective %d of their stages on @%s, and are not the same: %s; %s", n.name, f.Name, o.name, h.Name, i+1, g.Name, signature(n), signature(o))
			return false
		}
	}
	return true
}

func sameCollective(n, o *Node) bool { return signature(n) == signature(o) }

// signature is what has to be equal on all ranks of a collective.
func signature(n *Node) string {
	var b strings.Builder
	b.WriteString(n.op.Name())
	for _, a := range n.args {
		fmt.Fprintf(&b, " %s", a.typ)
	}
	fmt.Fprintf(&b, " %s", n.attrs)
	return b.String()
}

// simulate runs the stages concurrently: a collective between stages has finished when all of them
// have issued it, and each stage goes on until it waits for one that has not. Nothing that
// happens can keep anything else from happening, so where this stops, every run does.
func (x *stageCalls) simulate() {
	at := make([]int, len(x.funcs))
	issued := make([]map[*Group]int, len(x.funcs))
	number := map[*Node]int{} // from 1, in its group and stage; look-up only
	for i := range issued {
		issued[i] = map[*Group]int{}
	}
	finished := func(stage int, c *Node) bool {
		for _, o := range x.peers[stage][c.group] {
			if issued[o][c.group] < number[c] {
				return false
			}
		}
		return true
	}
	for moved := true; moved; {
		moved = false
		for i, f := range x.funcs {
			for order := f.Order(); at[i] < len(order); at[i]++ {
				n := order[at[i]]
				if c := awaited(n); c != nil && number[c] > 0 && !finished(i, c) {
					break
				}
				if n.op.IsCollective() && len(x.peers[i][n.group]) > 1 {
					issued[i][n.group]++
					number[n] = issued[i][n.group]
				}
				moved = true
			}
		}
	}
	var stuck []string
	var first *Node
	for i, f := range x.funcs {
		if order := f.Order(); at[i] < len(order) {
			n := order[at[i]]
			if first == nil {
				first = n
			}
			stuck = append(stuck, fmt.Sprintf("@%s at %%%s for %%%s on @%s", f.Name, n.name, awaited(n).name, awaited(n).group.Name))
		}
	}
	if first != nil {
		x.v.module(first.pos, "the stages of @%s wait for each other: %s", x.s.Name, strings.Join(stuck, ", "))
	}
}

// awaited is the collective that a wait is for, nil of other nodes and of inputs in flight.
func awaited(n *Node) *Node {
	if n.op.Class() != ClassWait || len(n.args) == 0 || !n.args[0].def.op.IsCollective() {
		return nil
	}
	return n.args[0].def
}
