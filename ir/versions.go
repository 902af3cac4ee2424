package ir

import (
	"fmt"
	"slices"
	"sort"
)

// Versions make in-place writes visible as values, as memory SSA does.
//
// A node that writes an operand's storage gives, behind the results that it
// declares, a version result for every name of that storage that is read later,
// and takes that name as an implicit operand, behind those that it declares:
//
//	%y = view %x : f32[8]
//	%inc:0 = call %x {effects=["writes"], target="inc"}
//	%a = add %x@inc, %y@inc : f32[8]
//
// Here %inc has the implicit operands %x and %y and the version results %x@inc
// and %y@inc. A version lies in the storage of the name that it is a version of
// and has its type. So whoever follows an operand to its definition finds the
// write, never what computed the bytes before it, and uses say what a write needs.
//
// The contents of a storage exist once: when it is written, the old ones are
// gone. So every declared operand must be the newest version of its storage at its place
// in the order, which rule "version" of the verifier checks: a read that is moved,
// cloned or rewired past a write is an error. In text, %x means the newest version
// at its place; %x@inc says which that has to be.

// IsVersion reports whether v is a version: the name of a storage after a write.
func (v *Value) IsVersion() bool { return int(v.index) >= v.def.declaredResults() }

// Before is what v was called before, nil if v is no version. Writes between the two that
// nobody reads by this name have none.
func (v *Value) Before() *Value {
	if !v.IsVersion() {
		return nil
	}
	return v.def.args[len(v.def.args)-len(v.def.results)+int(v.index)]
}

// Base is the name that v is a version of, however many writes ago; v if it is none.
func (v *Value) Base() *Value {
	if v.base != nil {
		return v.base
	}
	return v
}

// rebase says that v is a version of what was called before until then, and so are the
// versions behind v.
func (v *Value) rebase(before *Value) {
	base := before.Base()
	for todo := []*Value{v}; len(todo) > 0; {
		v := todo[len(todo)-1]
		todo = todo[:len(todo)-1]
		if v.base == base {
			continue
		}
		v.base = base
		for _, u := range v.uses {
			if next := u.Node.versionOf(u.Index); next != nil {
				todo = append(todo, next)
			}
		}
	}
}

// versionOf is the version that n makes of its operand i, nil if that is not there for one.
func (n *Node) versionOf(i int) *Value {
	k := i - n.declaredArgs()
	if r := n.declaredResults() + k; k >= 0 && r >= 0 && r < len(n.results) {
		return n.results[r]
	}
	return nil
}

// Aliases is the value in whose storage v lies because of how it is defined: the
// operand of a view or of a call that declares alias, the async value of a wait,
// the name before a write. It is nil where v has a storage of its own.
func (v *Value) Aliases() *Value {
	n := v.def
	switch {
	case v.IsVersion():
		return v.Before()
	case n.Effects()&EffectAlias != 0 && len(n.args) > 0:
		return n.args[0]
	}
	return nil
}

// Root is the value that the storage of v was made for: Aliases to its end.
func (v *Value) Root() *Value {
	for a := v.Aliases(); a != nil; a = v.Aliases() {
		v = a
	}
	return v
}

// Viewed is what v is a view of, through all views of views; v if it is none.
func (v *Value) Viewed() *Value {
	for v.def.op.IsView() {
		v = v.def.args[0]
	}
	return v
}

func (n *Node) declaredArgs() int    { return len(n.args) - int(n.versions) }
func (n *Node) declaredResults() int { return len(n.results) - int(n.versions) }

// DeclaredArgs lists the operands that the text names, without those that are there
// for versions. The caller must not change the list.
func (n *Node) DeclaredArgs() []*Value { return n.args[:n.declaredArgs():n.declaredArgs()] }

// DeclaredResults lists the results without versions. The caller must not change the list.
func (n *Node) DeclaredResults() []*Value { return n.results[:n.declaredResults():n.declaredResults()] }

// Writes reports whether n writes the storage of its operand i in place: a call
// that declares the effect "writes" does so to the operands that its attribute
// "writes" lists, or to all.
func (n *Node) Writes(i int) bool {
	if n.Effects()&EffectWrites == 0 || i >= n.declaredArgs() {
		return false
	}
	return !n.attrs.Has("writes") || slices.Contains(n.attrs.Ints("writes"), int64(i))
}

// roots numbers the storages of a function's values, dense from 0: by ValueID, the
// root of the value; an async value of k tensors has k roots in a row.
type roots struct {
	of    []int32
	count int32
}

// findRoots follows the order once. O(nodes + values).
func findRoots(f *Func) *roots {
	r := &roots{of: make([]int32, len(f.values))}
	for n := f.first; n != nil; n = n.next {
		for _, v := range n.results {
			r.add(v)
		}
	}
	return r
}

func (r *roots) add(v *Value) {
	for int(v.id) >= len(r.of) {
		r.of = append(r.of, 0)
	}
	a := v.Aliases()
	if a != nil && a.typ.IsAsync() && int(v.index) >= len(a.typ.Elems()) {
		a = nil // more results than tensors, which another rule reports
	}
	switch {
	case a == nil:
		r.of[v.id] = r.count
		r.count += int32(len(v.typ.Tensors()))
	case a.typ.IsAsync():
		r.of[v.id] = r.of[a.id] + v.index
	default:
		r.of[v.id] = r.of[a.id]
	}
}

// writes reports whether some node of f writes in place. O(nodes).
func (f *Func) writes() bool {
	for n := f.first; n != nil; n = n.next {
		if n.op == OpCall && n.Effects()&EffectWrites != 0 {
			return true
		}
	}
	return false
}

// resolver knows the newest version of every name while it follows an order.
type resolver struct {
	f      *Func
	roots  *roots
	writes [][]*Node        // by root: the nodes that write it, so far
	newest map[*Value]named // by base, of names that were ever read after a write; look-up only
}

// named is a version of a name, and how many writes of its storage it has seen.
type named struct {
	v    *Value
	seen int
}

// ResolveVersions makes every operand that names no version read the newest one at
// its place, as text and builders mean it; versions that are missing are made. Call
// it once a function is built, and never in a pass: a pass knows what it reads.
// O(nodes + uses + writes).
func (f *Func) ResolveVersions() {
	if !f.writes() {
		return
	}
	f.resolve(nil)
}

// ReadNewest makes nodes read the newest versions of their operands: what a return does
// with storages that were written on the way. O(nodes).
func (f *Func) ReadNewest(of ...*Node) {
	if !f.writes() {
		return
	}
	only := make([]bool, len(f.nodes))
	for _, n := range of {
		only[n.id] = true
	}
	f.resolve(only)
}

// resolve is ReadNewest by NodeID, or ResolveVersions.
func (f *Func) resolve(only []bool) {
	r := &resolver{f: f, roots: findRoots(f), newest: map[*Value]named{}}
	r.writes = make([][]*Node, r.roots.count)
	f.Order() // positions
	for n := f.first; n != nil; n = n.next {
		for i := range n.args[:n.declaredArgs()] {
			if a := n.args[i]; only == nil && !a.IsVersion() || only != nil && only[n.id] {
				if now := r.current(a.Base()); now != a {
					f.SetArg(n, i, now)
				}
			}
		}
		for i := range n.args[:n.declaredArgs()] {
			if !n.Writes(i) || n.args[i].typ.IsAsync() {
				continue
			}
			root := r.roots.of[n.args[i].id]
			if w := r.writes[root]; len(w) == 0 || w[len(w)-1] != n {
				r.writes[root] = append(w, n)
			}
		}
	}
}

// current is the newest version of a name.
func (r *resolver) current(base *Value) *Value {
	if base.typ.IsAsync() {
		return base
	}
	writes := r.writes[r.roots.of[base.id]]
	now, known := r.newest[base]
	if !known {
		now.v = base
		now.seen = sort.Search(len(writes), func(i int) bool { return writes[i].at > base.def.at }) // those before gave the name what it means, its own too
	}
	if now.seen == len(writes) {
		return now.v
	}
	now = named{r.f.VersionAt(writes[len(writes)-1], now.v), len(writes)}
	r.roots.add(now.v)
	r.newest[base] = now
	return now.v
}

// VersionAt is the version of v that n makes by writing its storage. It is made if it
// is not there; that n writes v's storage is the caller's to know and the verifier's
// to check.
func (f *Func) VersionAt(n *Node, v *Value) *Value {
	if k := n.implicit(v); k >= 0 {
		return n.results[n.declaredResults()-n.declaredArgs()+k]
	}
	made := &Value{id: ValueID(len(f.values)), index: int32(len(n.results)), def: n, typ: v.typ}
	f.values = append(f.values, made)
	n.results = append(n.results, made)
	n.args, n.argUse = append(n.args, nil), append(n.argUse, 0)
	n.versions++
	f.link(n, len(n.args)-1, v)
	f.version++
	return made
}

// Writes is what a function writes in place, for passes that add reads: a value
// whose storage something writes must not get new ones, unless their place is known
// to be on the right side of the write.
type Writes struct {
	roots   *roots
	written []bool // by root; nil if nothing is written
}

// FindWrites analyses f. O(nodes + values).
func FindWrites(f *Func) *Writes {
	w := &Writes{}
	if !f.writes() {
		return w
	}
	w.roots = findRoots(f)
	w.written = make([]bool, w.roots.count)
	for n := f.first; n != nil; n = n.next {
		for i := range n.args[:n.declaredArgs()] {
			if n.Writes(i) {
				w.written[w.roots.of[n.args[i].id]] = true
			}
		}
	}
	return w
}

// Written reports whether something writes the storage of v at any time. v may be
// younger than w: then what it aliases decides, or, where that is young too, whoever
// reads it by any name.
func (w *Writes) Written(v *Value) bool {
	if w.written == nil {
		return false
	}
	for k := 0; ; { // which tensor of an async value, 0 for all of them
		if int(v.id) < len(w.roots.of) {
			for i := range v.typ.Tensors() {
				if (i == k || k == 0) && w.written[int(w.roots.of[v.id])+i] {
					return true
				}
			}
			return false
		}
		a := v.Aliases()
		if a == nil || a.typ.IsAsync() && int(a.id) >= len(w.roots.of) {
			return v.writtenBelow()
		}
		if a.typ.IsAsync() {
			k = int(v.index)
		}
		v = a
	}
}

// writtenBelow reports whether a node writes v, or what lies in v's storage because it
// was made of v. O(uses).
func (v *Value) writtenBelow() bool {
	for _, u := range v.uses {
		if u.Node.Writes(u.Index) {
			return true
		}
		for _, r := range u.Node.results {
			if r.Aliases() == v && r.writtenBelow() {
				return true
			}
		}
	}
	return false
}

// ruleVersion checks that operands are the newest versions of their storages, that
// versions belong to writes, and that nothing is written while a collective reads it, or twice
// by one call.
func ruleVersion(v *verifier) {
	f := v.f
	if !f.writes() {
		for n := f.first; n != nil; n = n.next {
			if n.versions > 0 {
				v.at(n, -1, nil, "%s gives versions of names, but writes nothing in place", n.op.Name())
			}
		}
		return
	}
	c := &versionCheck{v: v, roots: findRoots(f)}
	c.last = make([]*Node, c.roots.count)
	c.flying = make([][]*Node, c.roots.count)
	for n := f.first; n != nil; n = n.next {
		if !v.bad[n.id] {
			c.node(n)
		}
	}
}

// versionCheck follows the order.
type versionCheck struct {
	v      *verifier
	roots  *roots
	last   []*Node   // by root: the node that wrote it last
	flying [][]*Node // by root: collectives in flight that read it
}

func (c *versionCheck) node(n *Node) {
	for i, a := range n.DeclaredArgs() {
		if a.typ.IsAsync() {
			continue
		}
		if w := c.last[c.roots.of[a.id]]; w != nil && a.def.at < w.at {
			c.v.at(n, i, []string{fmt.Sprintf("the newest version here is %s@%s", a.Base(), w.name)},
				"%s is gone: %%%s has written its storage", a, w.name)
			return
		}
	}
	switch {
	case n.op.IsCollective():
		for _, a := range n.args {
			c.flying[c.roots.of[a.id]] = append(c.flying[c.roots.of[a.id]], n)
		}
	case n.op == OpWaitTensor:
		start := n.args[0].def
		for _, a := range start.args {
			root := c.roots.of[a.id]
			c.flying[root] = slices.DeleteFunc(c.flying[root], func(s *Node) bool { return s == start })
		}
	}
	c.writes(n)
}

func (c *versionCheck) writes(n *Node) {
	written := map[int32][]int{} // operands, by root
	for i := range n.args[:n.declaredArgs()] {
		if !n.Writes(i) || n.args[i].typ.IsAsync() {
			continue
		}
		root := c.roots.of[n.args[i].id]
		if s := c.flying[root]; len(s) > 0 {
			c.v.at(n, i, []string{fmt.Sprintf("wait for %s first, or give it a copy", s[0].results[0])},
				"%s is written while %%%s reads it", n.args[i], s[0].name)
			return
		}
		for _, j := range written[root] {
			if !c.v.apart(n.args[j], n.args[i]) {
				c.v.at(n, i, []string{fmt.Sprintf("write a copy: %%c = clone %s", n.args[i])},
					"%s writes %s twice: operands %d and %d have elements in common", n.op.Name(), n.args[i], j, i)
				return
			}
		}
		written[root] = append(written[root], i)
		c.last[root] = n
	}
	first := n.declaredArgs()
	read := map[*Value]bool{} // look-up only
	for k, r := range n.results[n.declaredResults():] {
		before := n.args[first+k]
		if len(r.uses) > 0 && read[before] {
			c.v.at(n, -1, nil, "%%%s gives two versions of %s", n.name, before)
		}
		read[before] = read[before] || len(r.uses) > 0
		switch {
		case before.typ.IsAsync() || written[c.roots.of[before.id]] == nil:
			c.v.at(n, -1, nil, "%s is a version of %s, whose storage %%%s does not write", r, before, n.name)
		case !r.typ.Equal(before.typ):
			c.v.at(n, -1, nil, "%s has type %s, the name that it is a version of %s", r, r.typ, before.typ)
		}
	}
}
