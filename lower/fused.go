package lower

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/seed-ee968945/concert/internal/attr"
	"github.com/seed-ee968945/concert/internal/fusion"
	"github.com/seed-ee968945/concert/internal/place"
	"github.com/seed-ee968945/concert/ir"
	"github.com/seed-ee968945/concert/lower/cudagen"
	"github.com/seed-ee968945/concert/program"
)

// region emits the fused launch of a region; nothing if nobody reads a result.
func (l *lowering) region(nodes []*ir.Node) error {
	b, err := l.newBody(nodes)
	if err != nil || len(b.outs) == 0 {
		return err
	}
	k := program.Kernel{Name: l.nextKernel()}
	if l.source {
		c, err := cudagen.Generate(k.Name, l.st, nodes, b.shared()...)
		if err == nil {
			err = b.order(c)
		}
		if isKernelError(err) {
			l.refused = append(l.refused, nodes...)
			return nil
		}
		if err != nil {
			return fmt.Errorf("the region of %%%s: %w", nodes[0].Name(), err)
		}
		k.Source, k.Grid, k.Blocks, k.Block = c.Body, c.Grid, c.Blocks, int64(c.Block)
	}
	return l.fused(b, k)
}

// singleKernel turns a launch into a fused one, if kernels are to have source and one can
// be written for it; it reports whether it did.
func (l *lowering) singleKernel(n *ir.Node) (bool, error) {
	if !l.source || n.Op().Class() != ir.ClassMemory && !n.Op().Info().Generated || !fusion.Generates(n) || n.Op() == ir.OpCall {
		return false, nil
	}
	inPlace := slices.ContainsFunc(n.Meta().Ints(place.InPlaceKey), func(i int64) bool { return i >= 0 })
	if !slices.ContainsFunc(n.Results(), func(v *ir.Value) bool { return !l.empty(v.Type()) && (len(v.Uses()) > 0 || n.Op() == ir.OpReadSize) }) {
		return true, nil // nothing to compute: others may come after it all the same
	}
	b, err := l.newBody([]*ir.Node{n})
	if err != nil {
		return false, err
	}
	k := program.Kernel{Name: l.nextKernel()}
	c, err := cudagen.Generate(k.Name, l.st, b.nodes)
	if err == nil {
		err = b.order(c)
		if inPlace && !place.KernelInPlace(n.Op()) {
			err = errMisplaced
		}
	}
	switch {
	case isKernelError(err) && inPlace && !errors.Is(err, cudagen.ErrUnsupported):
		l.refused = append(l.refused, n) // a kernel can compute it elsewhere
		return true, nil
	case isKernelError(err):
		return false, nil
	case err != nil:
		return false, err
	}
	k.Source, k.Grid, k.Blocks, k.Block = c.Body, c.Grid, c.Blocks, int64(c.Block)
	return true, l.fused(b, k)
}

func (l *lowering) nextKernel() string { return fmt.Sprintf("k%d", len(l.p.Kernels)) }

// fused emits the launch of a kernel, which it shares with an equal one.
func (l *lowering) fused(b *body, k program.Kernel) error {
	k.Body = b.steps()
	k.Sizes = len(b.sizes)
	in := program.Instr{Kind: program.Launch, Event: -1, Group: -1, Op: program.OpFused, Node: b.outs[len(b.outs)-1].Def().Name(),
		Attrs: attr.Make(attr.Attr{Key: program.KernelKey, Val: attr.String(l.share(k))})}
	if k.Sizes > 0 {
		texts := make([]string, k.Sizes)
		for i, d := range b.sizes {
			texts[i] = d.String()
		}
		in.Attrs = in.Attrs.With(program.SizesKey, attr.Strings(texts...))
	}
	for _, v := range b.ins {
		in.Ins = append(in.Ins, l.tensors(v)...)
	}
	for _, v := range b.outs {
		in.Outs = append(in.Outs, l.tensors(v)...)
	}
	l.emit(in)
	return nil
}

// share adds a kernel, unless there is an equal one, and returns the name to launch.
func (l *lowering) share(k program.Kernel) string {
	key := kernelKey(&k)
	at, ok := l.shared[key]
	if !ok {
		at = len(l.p.Kernels)
		l.shared[key] = at
		l.p.Kernels = append(l.p.Kernels, k)
		if k.Source != "" && l.p.Unit.Prelude == "" {
			l.p.Unit = program.Unit{Prelude: cudagen.Prelude(), Flags: cudagen.Options()}
		}
	}
	return l.p.Kernels[at].Name
}

// comments are where the text of a kernel names nodes and values.
var comments = regexp.MustCompile(`//[^\n]*|/\*.*?\*/`)

// kernelKey is the same for kernels that do the same: all but the names.
func kernelKey(k *program.Kernel) string {
	like := program.Kernel{Name: "k", Sizes: k.Sizes, Body: slices.Clone(k.Body)}
	for i := range like.Body {
		like.Body[i].Node = ""
	}
	p := program.Program{Kernels: []program.Kernel{like}}
	names := strings.NewReplacer(" "+k.Name+"(", " (", k.Name+"_data", "_data")
	source := names.Replace(comments.ReplaceAllString(k.Source, ""))
	return fmt.Sprintf("%d %v %d %d\n%s\n%s", k.Grid, k.Blocks, k.Block, k.Shared, p.String(), source)
}

// body makes the body of a kernel.
type body struct {
	l         *lowering
	nodes     []*ir.Node
	member    map[*ir.Node]bool // look-up only
	ins, outs []*ir.Value       // parameters
	sizes     []ir.Dim          // parameters, too
	temps     map[ir.StorageID]int
	out       []program.BodyStep
}

// newBody finds operands and results: what the nodes read that none of them
// computes, in order of reading, and what they compute that has bytes, in order of
// definition.
func (l *lowering) newBody(nodes []*ir.Node) (*body, error) {
	if l.st == nil {
		var err error
		if l.st, err = ir.ComputeStorages(l.f); err != nil {
			return nil, err
		}
	}
	b := &body{l: l, nodes: nodes, member: map[*ir.Node]bool{}, temps: map[ir.StorageID]int{}}
	for _, n := range nodes {
		b.member[n] = true
		for _, v := range slices.Concat(n.Args(), n.Results()) {
			sizes := v.Type().Shape()
			if !v.Type().Contiguous() {
				sizes = slices.Concat(sizes, v.Type().SymbolicStrides())
			}
			for _, d := range sizes {
				if _, ok := d.Const(); !ok && !slices.ContainsFunc(b.sizes, d.Equal) {
					b.sizes = append(b.sizes, d)
				}
			}
		}
	}
	for _, n := range nodes {
		if n.Op().IsView() {
			continue
		}
		for _, a := range n.Args() {
			if b.given(a) && !slices.Contains(b.ins, a) {
				b.ins = append(b.ins, a)
			}
		}
		for _, r := range n.Results() {
			if !l.lay.Inside(r) {
				b.outs = append(b.outs, r)
			}
		}
	}
	return b, nil
}

// given reports whether v is in memory before the kernel runs.
func (b *body) given(v *ir.Value) bool {
	root, _ := b.l.st.Root(b.l.st.Of(v)[0].Storage)
	return !b.member[root.Def()]
}

// order takes over the parameters of a kernel's source: its results are those of
// the body, and its operands among the body's: what only elements depend on that
// nobody reads, it does not load.
func (b *body) order(k *cudagen.Kernel) error {
	name := b.nodes[0].Name()
	for _, v := range k.Outs {
		if !slices.Contains(b.outs, v) {
			return fmt.Errorf("the kernel of %%%s writes %s, which has no bytes", name, v)
		}
	}
	for _, v := range k.Ins {
		if !b.given(v) {
			return fmt.Errorf("the kernel of %%%s reads %s, which it computes itself", name, v)
		}
	}
	if len(k.Outs) != len(b.outs) && len(b.nodes) > 1 {
		return fmt.Errorf("%w: that of %%%s writes %d results of %d", errMisplaced, name, len(k.Outs), len(b.outs))
	}
	b.ins, b.outs, b.sizes = k.Ins, k.Outs, k.Sizes
	for _, v := range slices.Concat(b.ins, b.outs) {
		w, p := b.l.lay.Windows(v)[0], b.l.st.Of(v)[0]
		if start := w.Offset - p.Offset*int64(v.Type().DType().Size()); start%place.KernelAlign != 0 {
			return fmt.Errorf("%w: that of %%%s moves %d bytes at a time, and %s lies in a storage %d bytes from the start of its buffer", errMisplaced, name, place.KernelAlign, v, start)
		}
	}
	return nil
}

// shared are the operands that results take the place of, and these results, if there is
// another result, which the kernel may compute from an operand behind the one in its place.
func (b *body) shared() (out []*ir.Value) {
	if len(b.outs) < 2 {
		return nil
	}
	r := place.Region{Nodes: b.nodes, First: b.nodes[0].At(), Last: b.nodes[len(b.nodes)-1].At()}
	ops := r.Operands(b.l.st)
	for _, n := range b.nodes {
		for k, i := range n.Meta().Ints(place.InPlaceKey) {
			if i >= 0 {
				out = append(out, ops[i], n.Result(k))
			}
		}
	}
	return out
}

// steps lists the operations.
func (b *body) steps() []program.BodyStep {
	needed := b.needed()
	for _, n := range b.nodes {
		if n.Op().IsView() || !needed[n] {
			continue
		}
		s := program.BodyStep{Op: n.Op().Name(), Attrs: n.Attrs(), Node: n.Name()}
		for _, a := range n.Args() {
			s.Ins = append(s.Ins, b.tensor(a))
		}
		for _, r := range n.Results() {
			s.Outs = append(s.Outs, b.tensor(r))
		}
		b.out = append(b.out, s)
	}
	return b.out
}

// needed are the nodes that results depend on.
func (b *body) needed() map[*ir.Node]bool {
	read := map[ir.StorageID]bool{} // look-up only
	for _, v := range b.outs {
		read[b.l.st.Of(v)[0].Storage] = true
	}
	out := map[*ir.Node]bool{} // look-up only
	for _, n := range slices.Backward(b.nodes) {
		if !slices.ContainsFunc(n.Results(), func(v *ir.Value) bool { return read[b.l.st.Of(v)[0].Storage] }) {
			continue
		}
		out[n] = true
		for _, a := range n.Args() {
			read[b.l.st.Of(a)[0].Storage] = true
		}
	}
	return out
}

// tensor says where a value of the body is.
func (b *body) tensor(v *ir.Value) program.BodyTensor {
	t := v.Type()
	w := program.BodyTensor{Param: -1, DType: t.DType(), Shape: b.sizesOf(t.Shape())}
	if !t.Contiguous() {
		w.Strides = b.sizesOf(t.SymbolicStrides())
	}
	p := b.l.st.Of(v)[0]
	// Two names of the same bytes may be one parameter: nothing writes within a body.
	same := func(u *ir.Value) bool { return u == v || b.l.st.Of(u)[0] == p && u.Type().Equal(t) }
	if i := slices.IndexFunc(b.ins, same); i >= 0 {
		w.Param = i
		return w
	}
	w.Offset = p.Offset * int64(t.DType().Size())
	for j, o := range b.outs {
		if q := b.l.st.Of(o)[0]; q.Storage == p.Storage {
			w.Param, w.Offset = len(b.ins)+j, w.Offset-q.Offset*int64(o.Type().DType().Size())
			return w
		}
	}
	temp, ok := b.temps[p.Storage]
	if !ok {
		temp = len(b.temps)
		b.temps[p.Storage] = temp
		if b.given(v) {
			b.unread(temp, p.Storage)
		}
	}
	w.Temp = temp
	return w
}

// unread makes a temporary for an operand that the kernel does not load because no
// result depends on it: zeros do as well.
func (b *body) unread(temp int, s ir.StorageID) {
	t := b.l.st.Type(s)
	w := program.BodyTensor{Param: -1, Temp: temp, DType: t.DType(), Shape: b.sizesOf(t.Shape())}
	if !t.Contiguous() {
		w.Strides = b.sizesOf(t.SymbolicStrides())
	}
	b.out = append(b.out, program.BodyStep{Op: ir.OpFull.Name(), Attrs: attr.Make(attr.Attr{Key: "value", Val: attr.Float(0)}), Outs: []program.BodyTensor{w}})
}

// empty reports whether a tensor has no elements even if sizes are at their bounds.
func (l *lowering) empty(t ir.Type) bool {
	return !t.IsAsync() && l.m.Bound(t.Shape().NumElems()) == 0
}

// sizesOf are sizes or strides of a tensor of the body, those that are known at run
// time only being those that the launch gives.
func (b *body) sizesOf(list []ir.Dim) []int64 {
	out := make([]int64, len(list))
	for i, d := range list {
		n, ok := d.Const()
		if !ok {
			n = program.SizeParam(slices.IndexFunc(b.sizes, d.Equal)) // place and cudagen have checked
		}
		out[i] = n
	}
	return out
}
