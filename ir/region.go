package ir

import (
	"fmt"
	"slices"
)

// Control flow. A body is a function of the module that a node of another function names in
// an attribute:
//
//	%r:2 = while %k, %x, %w {body="step", cond="more"} : i64[], f32[4]
//	%y = case %k, %x {branches=["first", "other"]} : f32[4]
//
// Bodies see nothing but their inputs. The first operands of a while are carried, one for each
// result, the others are the same in every iteration; cond and body take all of them. Operand 0 of
// a case says which branch runs, all others are the branches' inputs.

// The attributes that name bodies.
const (
	CondKey     = "cond"
	BodyKey     = "body"
	BranchesKey = "branches"
)

// UniformKey is the attribute of a value or a choice that is the same on all ranks.
const UniformKey = "uniform"

// bodyNames are the names of the functions that n runs, as its attributes have them.
func (n *Node) bodyNames() []string {
	var names []string
	for _, key := range n.op.info().Bodies {
		if name := n.attrs.Str(key, ""); name != "" {
			names = append(names, name)
		}
		names = append(names, n.attrs.Strs(key)...)
	}
	return names
}

// Bodies are the functions that n runs: cond and body of a while, the branches of a case, none
// of other operations. Of a module that verifies none is nil.
func (n *Node) Bodies() []*Func {
	var out []*Func
	for _, name := range n.bodyNames() {
		out = append(out, n.fn.mod.Func(name))
	}
	return out
}

// bodyArgs are the operands that are inputs of n's bodies.
func (n *Node) bodyArgs() []*Value {
	if n.op == OpCase {
		return n.args[min(1, len(n.args)):]
	}
	return n.args
}

// Carried is how many of a while's operands change from iteration to iteration: as many as it has
// results. They come first.
func (n *Node) Carried() int {
	if n.op != OpWhile {
		return 0
	}
	return len(n.results)
}

// Entries lists the functions that no node runs, in declaration order. O(nodes).
func (m *Module) Entries() []*Func {
	run := map[string]bool{}
	for _, f := range m.funcs {
		for _, n := range f.Order() {
			for _, name := range n.bodyNames() {
				run[name] = true
			}
		}
	}
	return slices.DeleteFunc(slices.Clone(m.funcs), func(f *Func) bool { return run[f.Name] })
}

// bodyEffects are the effects that a node has because its bodies, and theirs, have them.
func (n *Node) bodyEffects() Effect {
	var e Effect
	seen := map[*Func]bool{nil: true}
	todo := n.Bodies()
	for len(todo) > 0 {
		f := todo[0]
		if todo = todo[1:]; seen[f] {
			continue
		}
		seen[f] = true
		for _, o := range f.Order() {
			if o.group == nil || o.group.Size() > 1 { // one rank by itself talks to nobody
				e |= o.ownEffects() & (EffectCommunicates | EffectRandom)
			}
			todo = append(todo, o.Bodies()...)
		}
	}
	return e
}

// maxNesting bounds how deep bodies stand in bodies.
const maxNesting = 32

// ruleNesting refuses functions that run themselves: all that follows bodies ends.
func ruleNesting(v *verifier) {
	const open = -1
	depth := map[*Func]int{nil: 0} // of bodies in a function; look-up only
	var visit func(f *Func) int
	visit = func(f *Func) int {
		if d, ok := depth[f]; ok {
			if d == open {
				v.module(f.pos, "@%s runs itself", f.Name)
			}
			return max(d, 0)
		}
		depth[f] = open
		deepest := 0
		for _, n := range f.Order() {
			for _, b := range n.Bodies() {
				deepest = max(deepest, visit(b)+1)
			}
		}
		if depth[f] = deepest; deepest == maxNesting+1 {
			v.module(f.pos, "bodies of @%s are nested more than %d deep", f.Name, maxNesting)
		}
		return deepest
	}
	for _, f := range v.m.funcs {
		visit(f)
	}
}

// ruleBody holds a node's bodies to its operands and results.
func ruleBody(v *verifier) {
	for _, n := range v.f.Order() {
		if n.op.info().Bodies == nil || v.bad[n.id] {
			continue
		}
		for i, b := range n.Bodies() {
			if b == nil {
				v.at(n, -1, nil, "there is no function @%s", n.bodyNames()[i])
			}
		}
		if v.bad[n.id] {
			continue
		}
		switch n.op {
		case OpWhile:
			v.loop(n)
		case OpCase:
			v.branches(n)
		}
		for _, b := range n.Bodies() {
			v.isolated(n, b)
		}
		if !v.bad[n.id] && n.Communicates() && !v.sameWay(n) {
			v.at(n, -1, []string{"what an all_reduce, all_gather or broadcast over all ranks gives is, inputs that say uniform=true are, and what follows from such values; or say uniform=true here"},
				"it communicates, and all ranks have to go the same way: what decides is not known to be equal on all of them")
		}
	}
}

func (v *verifier) loop(n *Node) {
	bodies := n.Bodies()
	if len(n.args) < len(n.results) {
		v.at(n, -1, nil, "%d operands for %d results: each result is an operand that is carried", len(n.args), len(n.results))
		return
	}
	want := make([]Type, len(n.args))
	for i, a := range n.args {
		want[i] = a.typ
		if i < len(n.results) {
			if want[i] = n.results[i].typ; !want[i].SameTensor(a.typ) {
				v.at(n, i, nil, "result %d is %s, and operand %d, which it is carried from, %s", i, want[i], i, a.typ)
				return
			}
		}
	}
	if len(bodies) != 2 {
		v.at(n, -1, nil, "a while names two functions, cond and body")
		return
	}
	for _, b := range bodies {
		v.takes(n, b, want)
	}
	if v.bad[n.id] {
		return
	}
	if r := bodies[0].Return(); len(r.args) != 1 || !isScalar(r.args[0].typ, Bool) {
		v.at(n, -1, nil, "the condition @%s gives %s, want bool[]", bodies[0].Name, typesText(r.args))
	}
	v.gives(n, bodies[1])
}

func (v *verifier) branches(n *Node) {
	bodies := n.Bodies()
	if len(bodies) == 0 {
		v.at(n, -1, nil, "a case has at least one branch")
		return
	}
	if t := n.args[0].typ; !isScalar(t, t.DType()) || t.DType() != Bool && !t.DType().IsInt() {
		v.at(n, 0, nil, "a case goes by an integer or a truth value without dimensions, got %s", t)
		return
	}
	var want []Type
	for _, a := range n.bodyArgs() {
		want = append(want, a.typ)
	}
	for _, b := range bodies {
		if v.takes(n, b, want); !v.bad[n.id] {
			v.gives(n, b)
		}
	}
}

// takes checks the inputs of a body, which lie where the operands do.
func (v *verifier) takes(n *Node, b *Func, want []Type) {
	in := b.Inputs()
	if b.Return() == nil || len(in) != len(want) {
		v.at(n, -1, nil, "@%s takes %d inputs, the %s hands over %d", b.Name, len(in), n.op, len(want))
		return
	}
	for i, t := range want {
		if got := in[i].results[0].typ; !got.Equal(t) {
			v.at(n, -1, nil, "input %d of @%s is %s, the %s hands over %s", i, b.Name, got, n.op, t)
		}
	}
}

// gives checks the results of a body, which become those of the node.
func (v *verifier) gives(n *Node, b *Func) {
	r := b.Return()
	if len(r.args) != len(n.results) {
		v.at(n, -1, nil, "@%s gives %d results, the %s has %d", b.Name, len(r.args), n.op, len(n.results))
		return
	}
	for i, a := range r.args {
		if t := n.results[i].typ; a.typ.IsAsync() || !a.typ.SameTensor(t) {
			v.at(n, -1, nil, "result %d of @%s is %s, that of the %s %s", i, b.Name, a.typ, n.op, t)
		}
	}
}

// isolated checks that a body changes nothing around it, and draws no random numbers: those
// of one iteration would be those of the next.
func (v *verifier) isolated(n *Node, b *Func) {
	var r *roots
	for i, in := range b.Inputs() {
		if r := in.Role(); r == RoleSaved || r == RoleTangent {
			v.at(n, -1, nil, "input %%%s of @%s has the role %s, of what a function may overwrite: it belongs to whoever runs it", in.name, b.Name, r)
		}
		if in.Donated() && (n.op != OpWhile || b != n.Bodies()[1] || i >= n.Carried() || in.attrs.Int(DonateKey, -1) != int64(i)) {
			v.at(n, -1, nil, "@%s donates input %d: of bodies only that of a while does, a carried input to its own result", b.Name, i)
		}
	}
	for _, o := range b.Order() {
		e := o.ownEffects()
		if e&EffectRandom != 0 {
			v.at(n, -1, nil, "@%s draws random numbers in %%%s, and one iteration's are not told from another's: draw them outside", b.Name, o.name)
		}
		if e&EffectWrites == 0 {
			continue
		}
		if r == nil {
			r = findRoots(b)
		}
		for i, a := range o.DeclaredArgs() {
			for _, in := range b.Inputs() {
				if o.Writes(i) && r.of[a.id] == r.of[in.results[0].id] {
					v.at(n, -1, nil, "%%%s of @%s writes input %%%s in place, which belongs to whoever runs it: write a copy", o.name, b.Name, in.name)
				}
			}
		}
	}
}

func isScalar(t Type, dt DType) bool { return !t.IsAsync() && t.DType() == dt && t.Rank() == 0 }

func typesText(vs []*Value) string {
	s := ""
	for i, v := range vs {
		if i > 0 {
			s += ", "
		}
		s += fmt.Sprint(v.typ)
	}
	return "(" + s + ")"
}
