package runtime

import (
	"slices"

	"github.com/seed-ee968945/concert/internal/attr"
)

// called is a launch or a collective as emitted code asked for it last, and what it
// became. A step makes the same calls each time: if the call at its place is the same,
// nothing is checked, placed or made anew. The arguments are copied, so that those of
// the caller stay on its stack.
type called struct {
	stream, node string
	kind         kind
	splits       splits
	attrs        attr.List
	outs, ins    []Tensor
	sizes        []int64
	made         made
}

// kind is what distinguishes calls besides their operands.
type kind struct {
	op, target, group, reduce string // op is empty for collectives
	coll                      CollOp
	dim, root                 int
	inMatmul                  bool
}

// splits are the lists of a collective.
type splits struct {
	pairs   []int64
	in, out [][]int64
}

// mostCalls is how many calls of a module are remembered.
const mostCalls = 1 << 15

// called gives what is remembered of the call at hand, nil if nothing may be.
func (x *Exec) called() *called {
	if x.keep != nil || x.calls >= mostCalls {
		return nil
	}
	i := x.calls
	x.calls++
	if i == len(x.l.calls) {
		x.l.calls = append(x.l.calls, &called{})
	}
	return x.l.calls[i]
}

func (c *called) is(stream, node string, k kind, attrs attr.List, outs, ins []Tensor) bool {
	return (c.made.kernel != nil || c.made.coll != nil) && c.node == node && c.stream == stream && c.kind == k &&
		sameTensors(c.outs, outs) && sameTensors(c.ins, ins) && (len(attrs) == 0 && len(c.attrs) == 0 || c.attrs.Equal(attrs))
}

func sameTensors(a, b []Tensor) bool {
	if len(a) != len(b) {
		return false
	}
	for i := range a {
		t, u := &a[i], &b[i]
		// No strides are not the same as none for no dimensions, but mean the same.
		if t.Off != u.Off || t.DType != u.DType || !slices.Equal(t.Shape, u.Shape) || (t.Strides == nil) != (u.Strides == nil) || !slices.Equal(t.Strides, u.Strides) {
			return false
		}
	}
	return true
}

func sameLists(a, b [][]int64) bool {
	return slices.EqualFunc(a, b, func(v, w []int64) bool { return slices.Equal(v, w) })
}

// copied copies values without a flow from the old to the new that would take the old
// to the heap, as slices.Clone has.
func copied(v []int64) []int64 {
	if v == nil {
		return nil
	}
	w := make([]int64, len(v))
	copy(w, v)
	return w
}

func copiedLists(v [][]int64) [][]int64 {
	if v == nil {
		return nil
	}
	w := make([][]int64, len(v))
	for i := range v {
		w[i] = copied(v[i])
	}
	return w
}

// copiedTensors copies results and operands of a call.
func copiedTensors(outs, ins []Tensor) (o, i []Tensor) {
	n := 0
	for _, list := range [2][]Tensor{outs, ins} {
		for i := range list {
			n += len(list[i].Shape) + len(list[i].Strides)
		}
	}
	sizes, ts := make([]int64, 0, n), make([]Tensor, 0, len(outs)+len(ins))
	take := func(v []int64) []int64 {
		if v == nil {
			return nil
		}
		sizes = append(sizes, v...)
		return sizes[len(sizes)-len(v) : len(sizes) : len(sizes)]
	}
	for _, list := range [2][]Tensor{outs, ins} {
		for i := range list {
			ts = append(ts, Tensor{Off: list[i].Off, DType: list[i].DType, Shape: take(list[i].Shape), Strides: take(list[i].Strides)})
		}
	}
	return ts[:len(outs):len(outs)], ts[len(outs):]
}

// kernel launches: what was launched at this place of the step before, if it is the same.
func (x *Exec) kernel(stream string, k kind, attrs attr.List, outs, ins []Tensor, sizes []int64) {
	node, ok := x.take()
	if !ok {
		return
	}
	c := x.called()
	if c != nil {
		if c.is(stream, node, k, attrs, outs, ins) && slices.Equal(c.sizes, sizes) {
			x.again(&c.made)
			return
		}
	}
	o, i := copiedTensors(outs, ins)
	n := copied(sizes)
	if c != nil {
		*c = called{stream: stream, node: node, kind: k, attrs: attrs, outs: o, ins: i, sizes: n}
	}
	x.launch(stream, &Kernel{Op: k.op, Target: k.target, Group: k.group, Attrs: attrs, Label: node, Outs: o, Ins: i, Sizes: n}, c)
}

// communicate is kernel for collectives.
func (x *Exec) communicate(stream string, k kind, s splits, outs, ins []Tensor) {
	node, ok := x.take()
	if !ok {
		return
	}
	c := x.called()
	if c != nil {
		if c.is(stream, node, k, nil, outs, ins) && slices.Equal(c.splits.pairs, s.pairs) &&
			sameLists(c.splits.in, s.in) && sameLists(c.splits.out, s.out) {
			x.again(&c.made)
			return
		}
	}
	o, i := copiedTensors(outs, ins)
	l := splits{copied(s.pairs), copiedLists(s.in), copiedLists(s.out)}
	if c != nil {
		*c = called{stream: stream, node: node, kind: k, outs: o, ins: i, splits: l}
	}
	x.start(stream, &Collective{Op: k.coll, Group: k.group, Reduce: k.reduce, Dim: k.dim, Root: k.root, InMatmul: k.inMatmul, Label: node,
		Pairs: l.pairs, InSplits: l.in, OutSplits: l.out, Outs: o, Ins: i}, c)
}
