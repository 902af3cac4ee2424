package fx

import (
	"bufio"
	"io"
	"slices"
	"strings"

	"github.com/seed-ee968945/concert/ir"
	"github.com/seed-ee968945/concert/ir/fx/internal/traced"
)

// Export writes f, which was imported from src and then scheduled, as a graph
// document in f's order.
//
// Traced nodes are written with the fields they had, costs included. What a
// schedule may add is:
//
//   - A bucket: a collective whose annotation MetaMembers names the traced
//     collectives that it stands for, in operand order. It is one collective node
//     with their operands as inputs, their results as out, and the IR node's cost;
//     its wait is one wait node. Each traced wait of a member must have become an
//     alias, of its old name, of the wait's result at the member's place, and is
//     written as a view with the arguments (wait, place).
//   - Copies: memory ops whose results feed buckets only, and views of them.
//
// Anything else that a pass removed, changed or wired otherwise makes Export
// refuse with an *Error that names a node. Without a source (src nil) targets and
// arguments are written from the IR. Output is deterministic; time is linear.
func Export(w io.Writer, src *File, f *ir.Func) error {
	if src == nil {
		file, err := synthesise(f)
		if err != nil {
			return err
		}
		_, err = file.WriteTo(w)
		return err
	}
	im, err := src.importGraph()
	if err != nil {
		return err
	}
	e := &exporter{src: src, f: f, im: im, have: map[string]*ir.Node{}, buckets: map[*ir.Node]*bucket{}, waits: map[*ir.Node]*bucket{},
		member: map[string]slot{}, lists: map[string][]*Node{}, names: map[*ir.Node]string{}, taken: map[string]bool{}, emitted: map[string]bool{}}
	for _, step := range []func() error{e.index, e.findBuckets, e.compare, e.emit} {
		if err := step(); err != nil {
			return err
		}
	}
	b := bufio.NewWriterSize(w, 1<<16)
	src.write(b, func(i int) []byte { return e.out[i].appendJSON(nil) }, len(e.out))
	return b.Flush()
}

// exporter is the state of one Export with a source.
type exporter struct {
	src     *File
	f       *ir.Func
	im      *importer           // src imported again: what f was before the passes
	have    map[string]*ir.Node // nodes of f by traced name, and helpers by their own
	buckets map[*ir.Node]*bucket
	waits   map[*ir.Node]*bucket
	member  map[string]slot     // where each traced collective went that is no longer alone
	lists   map[string][]*Node  // getitems of each coalesced collective
	names   map[*ir.Node]string // exported names of nodes that are not of the trace
	taken   map[string]bool     // the values of names
	emitted map[string]bool     // exported names
	sizes   []int32             // traced sizes and assertions that are not written yet, in order
	out     []*Node
}

// slot is a place in a bucket.
type slot struct {
	bucket *bucket
	k      int
}

// bucket is a collective that passes made.
type bucket struct {
	node    *ir.Node
	wait    *ir.Node
	members []string
}

func (e *exporter) refuse(node, format string, args ...any) error {
	return e.src.errorf(node, "", "export", format, args...)
}

// tracedName is the name that a node has, or would have, in the file.
func tracedName(n *ir.Node) string { return n.Meta().Str(MetaName, n.Name()) }

// key names a node in both graphs: helpers have names of their own.
func key(n *ir.Node) string {
	if n.Meta().Has(MetaHelper) {
		return "helper " + n.Name()
	}
	return tracedName(n)
}

// index finds the traced nodes in f.
func (e *exporter) index() error {
	for _, n := range e.f.Order() {
		if n.Op() != ir.OpReturn {
			e.have[key(n)] = n
		}
	}
	for _, fl := range e.im.flights {
		if fl.list {
			e.lists[e.src.Nodes[fl.node].Name] = []*Node{}
		}
	}
	for i := range e.src.Nodes {
		s := &e.src.Nodes[i]
		if s.Kind == KindSize || isAssertion(strings.TrimPrefix(s.Target, "torch.ops.")) {
			e.sizes = append(e.sizes, int32(i))
		}
		if len(s.Inputs) == 1 && isGetitem(strings.TrimPrefix(s.Target, "torch.ops.")) && e.lists[s.Inputs[0]] != nil {
			e.lists[s.Inputs[0]] = append(e.lists[s.Inputs[0]], s)
		}
	}
	if e.f.Return() == nil {
		return e.refuse("", "function @%s has no return", e.f.Name)
	}
	return nil
}

// reference returns the imported node of a key, nil if the trace has none.
func (e *exporter) reference(key string) *ir.Node {
	i, ok := e.im.index[key]
	if !ok {
		return nil
	}
	return e.im.fn.Lookup(e.irName(i))
}

// irName is the IR name that traced node i got.
func (e *exporter) irName(i int32) string {
	st := &e.im.nodes[i]
	switch {
	case len(st.vals) > 0:
		return st.vals[0].Def().Name()
	case st.flight != nil:
		return st.flight.coll.Name()
	}
	return traced.TextName(e.src.Nodes[i].Name, "node")
}

// findBuckets checks the collectives that carry MetaMembers.
func (e *exporter) findBuckets() error {
	for _, n := range e.f.Order() {
		if !n.Op().IsCollective() || !n.Meta().Has(MetaMembers) {
			continue
		}
		if i, ok := e.im.index[key(n)]; ok && len(e.src.Nodes[i].Members) > 0 {
			continue // the file already had it
		}
		b := &bucket{node: n, members: n.Meta().Strs(MetaMembers)}
		if len(b.members) != len(n.Args()) {
			return e.refuse(n.Name(), "the bucket names %d members and has %d operands", len(b.members), len(n.Args()))
		}
		for k := range b.members {
			if err := e.checkMember(b, k); err != nil {
				return err
			}
		}
		if _, ok := n.Cost(); !ok {
			return e.refuse(n.Name(), "the bucket has no cost")
		}
		uses := n.Result(0).Uses()
		if len(uses) != 1 || uses[0].Node.Op() != ir.OpWaitTensor {
			return e.refuse(n.Name(), "the bucket has no wait")
		}
		b.wait = uses[0].Node
		e.buckets[n], e.waits[b.wait] = b, b
	}
	return nil
}

// checkMember compares operand k of a bucket with the traced collective it stands for.
func (e *exporter) checkMember(b *bucket, k int) error {
	name, n := b.members[k], b.node
	i, ok := e.im.index[name]
	r := e.reference(name)
	switch {
	case !ok || r == nil || !r.Op().IsCollective():
		return e.refuse(n.Name(), "member %q is not a traced collective", name)
	case e.member[name].bucket != nil:
		return e.refuse(name, "the collective went into two buckets, %s and %s", e.member[name].bucket.node.Name(), n.Name())
	case e.have[name] != nil && e.have[name] != n:
		return e.refuse(name, "the collective is a member of bucket %s and still stands", n.Name())
	case e.lists[name] != nil || e.im.nodes[i].flight == nil:
		return e.refuse(name, "a coalesced collective cannot be a member of a bucket")
	case e.im.nodes[i].flight.inPlace:
		return e.refuse(name, "a collective that works in place cannot be a member of bucket %s: others read the name that it overwrites", n.Name())
	case r.Op() != n.Op() || r.Group().Name != n.Group().Name || r.Reduction() != n.Reduction():
		return e.refuse(name, "the collective differs from bucket %s in operator, group or reduction", n.Name())
	case !sameMemberAttrs(r, n, k):
		return e.refuse(name, "the attributes differ from those of bucket %s", n.Name())
	}
	got := n.Result(0).Type().Elems()
	if len(got) != len(b.members) || !got[k].Equal(r.Result(0).Type().Elems()[0]) {
		return e.refuse(name, "the result has another type in bucket %s", n.Name())
	}
	if !e.sameValue(throughCopies(e, n.Arg(k)), r.Arg(0)) {
		return e.refuse(name, "bucket %s reads %s in its place, traced is %s", n.Name(), n.Arg(k), r.Arg(0))
	}
	e.member[name] = slot{b, k}
	return nil
}

// sameMemberAttrs compares attributes; splits are lists with one text per operand.
func sameMemberAttrs(r, n *ir.Node, k int) bool {
	if len(r.Attrs()) != len(n.Attrs()) {
		return false
	}
	for _, a := range r.Attrs() {
		v, ok := n.Attrs().Get(a.Key)
		if !ok {
			return false
		}
		if one, list := a.Val.AsStrings(); list {
			all, _ := v.AsStrings()
			if len(one) != 1 || k >= len(all) || all[k] != one[0] {
				return false
			}
		} else if !v.Equal(a.Val) {
			return false
		}
	}
	return true
}

// throughCopies follows copies that a pass added back to the traced value.
func throughCopies(e *exporter, v *ir.Value) *ir.Value {
	for e.added(v.Def()) && (v.Def().Op() == ir.OpClone || v.Def().Op() == ir.OpAlias) {
		v = v.Def().Arg(0)
	}
	return v
}

// added reports whether a pass added the node.
func (e *exporter) added(n *ir.Node) bool {
	if n.Meta().Has(MetaHelper) {
		return e.im.fn.Lookup(n.Name()) == nil
	}
	_, ok := e.im.index[key(n)]
	return !ok
}

// sameValue reports whether v of f is r of the reference.
func (e *exporter) sameValue(v, r *ir.Value) bool {
	v, r = v.Base(), r.Base()
	return v.Index() == r.Index() && key(v.Def()) == key(r.Def())
}

// compare checks that every traced node is in f as it was imported.
func (e *exporter) compare() error {
	for _, r := range e.im.fn.Order() {
		name := key(r)
		if r.Op() == ir.OpReturn {
			if err := e.compareArgs(r, e.f.Return(), KindOutput); err != nil {
				return err
			}
			continue
		}
		if e.member[name].bucket != nil {
			continue
		}
		n := e.have[name]
		if n == nil {
			return e.refuse(name, "passes removed the node; only order and buckets can be exported against a trace")
		}
		if r.Op() == ir.OpWaitTensor {
			if at := e.member[key(r.Arg(0).Def())]; at.bucket != nil {
				if err := e.compareMemberWait(at, r, n); err != nil {
					return err
				}
				continue
			}
		}
		if n.Op() != r.Op() || !n.Attrs().Equal(r.Attrs()) || (n.Group() == nil) != (r.Group() == nil) ||
			n.Group() != nil && n.Group().Name != r.Group().Name || !sameTypes(n, r) {
			return e.refuse(name, "passes changed the node to: %s", n)
		}
		if err := e.compareArgs(r, n, name); err != nil {
			return err
		}
	}
	return nil
}

func sameTypes(n, r *ir.Node) bool {
	return slices.EqualFunc(n.DeclaredResults(), r.DeclaredResults(), func(a, b *ir.Value) bool { return a.Type().Equal(b.Type()) })
}

func (e *exporter) compareArgs(r, n *ir.Node, name string) error {
	if len(n.DeclaredArgs()) != len(r.DeclaredArgs()) {
		return e.refuse(name, "passes changed the node's %d operands to %d", len(r.DeclaredArgs()), len(n.DeclaredArgs()))
	}
	for k, v := range n.DeclaredArgs() {
		if !e.sameValue(v, r.Arg(k)) {
			return e.refuse(name, "passes rewired operand %d from %s to %s", k, r.Arg(k), v)
		}
	}
	return nil
}

// compareMemberWait checks that the traced wait r has become n, an alias of the bucket's wait.
func (e *exporter) compareMemberWait(at slot, r, n *ir.Node) error {
	b, k := at.bucket, at.k
	if n.Op() != ir.OpAlias || n.Arg(0) != b.wait.Results()[k] {
		return e.refuse(key(r), "the wait of a member of bucket %s must be an alias of %s, it is: %s", b.node.Name(), b.wait.Results()[k], n)
	}
	if !n.Result(0).Type().Equal(r.Result(0).Type()) {
		return e.refuse(key(r), "the wait has another type in bucket %s", b.node.Name())
	}
	return nil
}
