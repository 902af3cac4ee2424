package fx

import (
	"cmp"
	"slices"

	"github.com/seed-ee968945/concert/ir"
	"github.com/seed-ee968945/concert/ir/fx/internal/pytext"
)

// emit lists the nodes of the new document in f's order.
func (e *exporter) emit() error {
	for _, n := range e.f.Order() {
		if err := e.emitNode(n); err != nil {
			return err
		}
	}
	for i := range e.src.Nodes {
		if name := e.src.Nodes[i].Name; !e.emitted[name] && e.member[name].bucket == nil {
			return e.refuse(name, "the node has no place in the schedule")
		}
	}
	return nil
}

func (e *exporter) emitNode(n *ir.Node) error {
	switch b := e.buckets[n]; {
	case b != nil:
		return e.emitBucket(b)
	case e.waits[n] != nil:
		return e.add(&Node{Name: e.newName(n), Kind: KindWait, Target: "_c10d_functional.wait_tensor.default", Inputs: []string{e.newName(n.Arg(0).Def())},
			Args: "(" + e.newName(n.Arg(0).Def()) + ",)", Out: e.memberOuts(e.waits[n])})
	case n.Op() == ir.OpReturn:
		for i := range e.src.Nodes {
			if e.src.Nodes[i].Kind == KindOutput {
				return e.add(&e.src.Nodes[i])
			}
		}
	case e.added(n):
		return e.emitAdded(n)
	case n.Meta().Has(MetaHelper):
		if n.Op() == ir.OpWaitTensor {
			return e.emitFirstWait(n)
		}
		return nil
	}
	i := e.im.index[key(n)]
	s := &e.src.Nodes[i]
	if e.emitted[s.Name] {
		return nil // written earlier, at its coalesced collective or that one's wait
	}
	if r := e.reference(s.Name); r.Op() == ir.OpWaitTensor {
		if at := e.member[key(r.Arg(0).Def())]; at.bucket != nil {
			view := *s
			w := e.newName(at.bucket.wait)
			view.Kind, view.Target, view.Inputs, view.raw = KindView, "<built-in function getitem>", []string{w}, nil
			view.Args, view.Kwargs = pytext.FormatTuple(w, pytext.FormatInts(int64(at.k))), ""
			return e.add(&view)
		}
	}
	if err := e.add(s); err != nil {
		return err
	}
	if e.lists[s.Name] != nil {
		return e.emitItems(s)
	}
	return nil
}

// emitSizes writes the sizes that stood before traced node i, where their tensors are written.
func (e *exporter) emitSizes(i int32) {
	rest := e.sizes[:0]
	for k, j := range e.sizes {
		s := &e.src.Nodes[j]
		if j >= i {
			rest = append(rest, e.sizes[k:]...)
			break
		}
		if slices.ContainsFunc(s.Inputs, func(in string) bool { return !e.emitted[in] }) {
			rest = append(rest, j)
			continue
		}
		e.emitted[s.Name] = true
		e.out = append(e.out, s)
	}
	e.sizes = rest
}

// add appends a node whose inputs must have been written.
func (e *exporter) add(n *Node) error {
	if i, traced := e.im.index[n.Name]; traced {
		e.emitSizes(i)
	}
	for _, in := range n.Inputs {
		if !e.emitted[in] {
			return e.refuse(n.Name, "the schedule puts the node before %q, which its traced arguments name", in)
		}
	}
	e.emitted[n.Name] = true
	e.out = append(e.out, n)
	return nil
}

// emitItems writes the getitems of a coalesced collective right after it, where
// a trace has them; in the IR they had to come after the wait.
func (e *exporter) emitItems(coll *Node) error {
	for _, s := range e.lists[coll.Name] {
		if err := e.add(s); err != nil {
			return err
		}
	}
	return nil
}

// emitFirstWait writes, where the IR waits for a coalesced collective, the
// traced wait that comes first in the new order.
func (e *exporter) emitFirstWait(wait *ir.Node) error {
	var first *ir.Node
	for _, r := range wait.Results() {
		for _, u := range r.Uses() {
			for _, n := range append([]*ir.Node{u.Node}, users(u.Node)...) {
				i, ok := e.im.index[key(n)]
				if ok && n.Op() == ir.OpAlias && e.src.Nodes[i].Kind == KindWait && (first == nil || n.At() < first.At()) {
					first = n
				}
			}
		}
	}
	if first == nil {
		return nil
	}
	return e.add(&e.src.Nodes[e.im.index[key(first)]])
}

func users(n *ir.Node) []*ir.Node {
	var out []*ir.Node
	for _, r := range n.Results() {
		for _, u := range r.Uses() {
			out = append(out, u.Node)
		}
	}
	return out
}

// newName is the exported name of a node that is not of the trace.
func (e *exporter) newName(n *ir.Node) string {
	if name, ok := e.names[n]; ok {
		return name
	}
	name := pytext.Ident(n.Name())
	taken := func(s string) bool {
		_, traced := e.im.index[s]
		return traced || e.taken[s]
	}
	for taken(name) {
		name += "_x"
	}
	e.names[n], e.taken[name] = name, true
	return name
}

// valueName is the exported name of a value that a new node reads.
func (e *exporter) valueName(v *ir.Value) (string, error) {
	n := v.Def()
	switch {
	case e.added(n):
		return e.newName(n), nil
	case len(n.Results()) == 1 && !n.Meta().Has(MetaHelper):
		return key(n), nil
	}
	return "", e.refuse(n.Name(), "a copy reads result %d, which has no name in the trace", v.Index())
}

func (e *exporter) emitBucket(b *bucket) error {
	n := b.node
	var names []string
	for k, m := range b.members {
		if e.added(n.Arg(k).Def()) {
			names = append(names, e.newName(n.Arg(k).Def()))
			continue
		}
		names = append(names, e.src.Nodes[e.im.index[m]].Inputs[0])
	}
	first := &e.src.Nodes[e.im.index[b.members[0]]]
	group := first.Group
	if group == "" {
		group = n.Group().Name
	}
	target, args := collectiveText(n, names, group, true)
	ms, _ := n.Cost()
	return e.add(&Node{Name: e.newName(n), Kind: KindCollective, Target: target, Inputs: unique(names), Args: args, Out: e.memberOuts(b), Ms: ms,
		Group: group, Op: cmp.Or(first.Op, n.Op().Name()), Reduce: first.Reduce, Members: b.members})
}

func (e *exporter) memberOuts(b *bucket) []Tensor {
	var out []Tensor
	for _, m := range b.members {
		out = append(out, e.src.Nodes[e.im.index[m]].Out...)
	}
	return out
}

// emitAdded writes a copy, or a view of one, that a pass added.
func (e *exporter) emitAdded(n *ir.Node) error {
	if n.Op().Class() != ir.ClassMemory && !n.Op().IsView() || n.Op() == ir.OpCall {
		return e.refuse(n.Name(), "passes added the node, which is neither a bucket nor a copy: %s", n)
	}
	s := &synth{name: e.valueName}
	out, err := s.node(n, e.newName(n))
	if err != nil {
		return err
	}
	return e.add(out)
}

// unique returns the names without repeats, in order of first appearance.
func unique(names []string) []string {
	out := make([]string, 0, len(names))
	seen := make(map[string]bool, len(names))
	for _, s := range names {
		if !seen[s] {
			seen[s] = true
			out = append(out, s)
		}
	}
	return out
}
