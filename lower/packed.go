package lower

import (
	"fmt"
	"slices"

	"github.com/seed-ee968945/concert/internal/attr"
	"github.com/seed-ee968945/concert/ir"
	"github.com/seed-ee968945/concert/passes"
	"github.com/seed-ee968945/concert/program"
)

// Options says what a lowering depends on besides the function.
type Options struct {
	// Packed reports whether the transport of a collective needs its operands in
	// one contiguous buffer. Nil stands for none: a bucket stays one instruction
	// whose members are read and written where they lie.
	Packed func(n *ir.Node) bool

	// CopyGBps is the memory bandwidth at which packing is charged, in 1e9 bytes a
	// second, read and written bytes each counted; 0 stands for DefaultCopyGBps.
	CopyGBps float64

	// Kernels writes CUDA source for every region, and turns every launch for which
	// lower/cudagen can write a kernel into a region of its own. What is left as a
	// launch by name has kernels elsewhere: matmul, attention, calls, rand. Sizes that
	// are known at run time only are parameters of kernels, whose grids are those of
	// the bounds. Without it, regions are fused launches without source, which run on the
	// host.
	Kernels bool
}

// DefaultCopyGBps is the memory bandwidth of one H200 as a copy kernel sees it.
const DefaultCopyGBps = 4814

// FuncWith is [Func] with options: it lowers what [Pack] gives. It is linear in the
// text of the kernels, too. With Options.Kernels a region for which no kernel can be
// written is taken apart into its nodes, and buffers are placed anew, without a limit;
// see [Fusable] for how to have pass fuse leave none.
func FuncWith(f *ir.Func, o Options) (*program.Program, error) {
	g, err := Pack(f, o)
	if err != nil {
		return nil, err
	}
	for {
		p, refused, err := lowered(g, o.Kernels)
		if err != nil || len(refused) == 0 {
			return p, err
		}
		if g, err = apart(g, refused); err != nil {
			return nil, err
		}
	}
}

// Pack returns the function, in a copy of its module, with every collective of
// several operands that o.Packed selects in packed form: a pack on the compute
// stream, one collective of one flat operand, and an unpack behind its wait. The
// function itself is returned if there is none. Costs of the copies are attached,
// so that the simulator counts them and what they keep live.
//
// The flat buffer holds the members one after the other. Where ranks send or
// receive different pieces it holds one stretch for each rank, with that rank's
// piece of every member: a reduce_scatter and an all_to_all pack so, an all_gather
// and an all_to_all unpack so. Reductions need one element type, so that members
// of different types make one buffer for each; the others only move bytes and
// share one buffer of bytes. Results are the same bits as without packing, because
// reductions combine element by element in the order of the ranks.
//
// The pieces of an all_to_all of uneven parts can have sizes that are known at run
// time only: its members travel one by one instead, which such a transport can
// carry, too. So does a member that has no company of its type. An error says that
// a collective leaves the function in flight: nothing could unpack it.
func Pack(f *ir.Func, o Options) (*ir.Func, error) {
	if o.Packed == nil {
		return f, nil
	}
	var names []string
	for _, n := range f.Order() {
		if n.Op().IsCollective() && len(n.Args()) > 1 && o.Packed(n) {
			names = append(names, n.Name())
		}
	}
	if len(names) == 0 {
		return f, nil
	}
	m := f.Module().Clone()
	p := &packer{f: m.Func(f.Name), gbps: o.CopyGBps}
	if p.gbps <= 0 {
		p.gbps = DefaultCopyGBps
	}
	for _, name := range names {
		if err := p.collective(p.f.Lookup(name)); err != nil {
			return nil, fmt.Errorf("lower: @%s: packing %%%s: %w", f.Name, name, err)
		}
	}
	if err := m.Verify(); err != nil {
		return nil, fmt.Errorf("lower: @%s: packed form: %w", f.Name, err)
	}
	return p.f, nil
}

// packer rewrites collectives of one function.
type packer struct {
	f    *ir.Func
	gbps float64
}

// collective replaces n and its wait.
func (p *packer) collective(n *ir.Node) error {
	uses := n.Result(0).Uses()
	if len(uses) != 1 || uses[0].Node.Op() != ir.OpWaitTensor {
		return fmt.Errorf("its results leave the function in flight")
	}
	w, name := uses[0].Node, uses[0].Node.Name()
	whole := p.bytes(n, nil)
	lists := together(n)
	var unpack *ir.Node
	for _, members := range lists {
		share := 0.0
		if ms, ok := n.Cost(); ok && whole > 0 {
			share = ms * float64(p.bytes(n, members)) / float64(whole)
		}
		if len(members) == 1 {
			p.single(n, w, members[0], share)
		} else {
			unpack = p.flat(n, w, members, share)
		}
	}
	p.f.Remove(w)
	p.f.Remove(n)
	if len(lists) == 1 && slices.IsSorted(lists[0]) {
		p.f.Rename(unpack, name) // the same results under the same names
	}
	return nil
}

// together returns the operands of a collective that share a flat buffer, each
// list with larger elements first, so that each member lies on a multiple of its
// element size.
func together(n *ir.Node) [][]int {
	var lists [][]int
	uneven := n.Attrs().Has("in_splits") || n.Attrs().Has("out_splits")
	moves := !n.Op().Info().Reduces
	for k, a := range n.Args() {
		at := slices.IndexFunc(lists, func(l []int) bool {
			return !uneven && (moves || n.Arg(l[0]).Type().DType() == a.Type().DType())
		})
		if at < 0 {
			lists = append(lists, []int{k})
		} else {
			lists[at] = append(lists[at], k)
		}
	}
	for _, l := range lists {
		slices.SortStableFunc(l, func(a, b int) int {
			return n.Arg(b).Type().DType().Size() - n.Arg(a).Type().DType().Size()
		})
	}
	return lists
}

// bytes is what some operands, nil for all, carry: the larger of operand and result each.
func (p *packer) bytes(n *ir.Node, members []int) int64 {
	m, sum := p.f.Module(), int64(0)
	for k, a := range n.Args() {
		if members == nil || slices.Contains(members, k) {
			sum += max(m.Hint(a.Type().Bytes()), m.Hint(n.Result(0).Type().Elems()[k].Bytes()))
		}
	}
	return sum
}

// single lets one member travel by itself.
func (p *packer) single(n, w *ir.Node, k int, ms float64) {
	attrs := n.Attrs()
	for _, key := range []string{"in_splits", "out_splits"} {
		if all := attrs.Strs(key); len(all) > k {
			attrs = attrs.With(key, attr.Strings(all[k]))
		}
	}
	t := n.Result(0).Type().Elems()[k]
	start := p.start(n, n.Arg(k), t, attrs, ms)
	wait := p.f.InsertBefore(w, ir.NodeSpec{Op: ir.OpWaitTensor, Name: start.Name() + "_wait", Args: []*ir.Value{start.Result(0)}, Results: []ir.Type{t}, Pos: w.Pos(), From: []*ir.Node{w}})
	p.f.ReplaceUses(w.Result(k), wait.Result(0))
}

// start inserts a collective of one operand in front of n.
func (p *packer) start(n *ir.Node, operand *ir.Value, result ir.Type, attrs attr.List, ms float64) *ir.Node {
	_, has := n.Cost()
	return p.f.InsertBefore(n, ir.NodeSpec{Op: n.Op(), Name: n.Name() + "_flat", Args: []*ir.Value{operand}, Results: []ir.Type{ir.Async(result)},
		Group: n.Group(), Attrs: attrs, Meta: n.Meta().Without(passes.MembersKey), Cost: ms, HasCost: has, Pos: n.Pos(), From: []*ir.Node{n}})
}

// flat lets several members travel in one buffer and returns the unpack.
func (p *packer) flat(n, w *ir.Node, members []int, ms float64) *ir.Node {
	dt := n.Arg(members[0]).Type().DType()
	args, outs := make([]*ir.Value, len(members)), make([]ir.Type, len(members))
	for i, k := range members {
		args[i], outs[i] = n.Arg(k), n.Result(0).Type().Elems()[k]
		if args[i].Type().DType() != dt {
			dt = ir.U8
		}
	}
	size := int64(1) // of an operand's element, counted in elements of the buffer
	count := func(t ir.Type) ir.Dim {
		if dt == ir.U8 {
			size = int64(t.DType().Size())
		}
		return t.Shape().NumElems().Mul(ir.D(size))
	}
	send, receive := ir.D(0), ir.D(0)
	for i := range members {
		send, receive = send.Add(count(args[i].Type())), receive.Add(count(outs[i]))
	}
	pieces := attr.Make(attr.Attr{Key: "dim", Val: attr.Int(n.Attrs().Int("dim", 0))}, attr.Attr{Key: "parts", Val: attr.Int(int64(n.Group().Size()))})
	var in, out attr.List
	attrs := n.Attrs()
	switch n.Op() {
	case ir.OpAllGather:
		out, attrs = pieces, attrs.With("dim", attr.Int(0))
	case ir.OpReduceScatter:
		in, attrs = pieces, attrs.With("dim", attr.Int(0))
	case ir.OpAllToAll:
		in, out = pieces, pieces
	}
	pack := p.copy(n, ir.OpPack, n.Name()+"_pack", args, []ir.Type{ir.TensorOf(dt, ir.Shape{send})}, in)
	if names := n.Meta().Strs(passes.MembersKey); len(names) == len(n.Args()) {
		own := make([]string, len(members))
		for i, k := range members {
			own[i] = names[k]
		}
		p.f.SetMeta(pack, attr.Make(attr.Attr{Key: passes.MembersKey, Val: attr.Strings(own...)}))
	}
	result := ir.TensorOf(dt, ir.Shape{receive})
	start := p.start(n, pack.Result(0), result, attrs, ms)
	wait := p.f.InsertBefore(w, ir.NodeSpec{Op: ir.OpWaitTensor, Name: start.Name() + "_wait", Args: []*ir.Value{start.Result(0)}, Results: []ir.Type{result}, Pos: w.Pos(), From: []*ir.Node{w}})
	unpack := p.copy(w, ir.OpUnpack, n.Name()+"_unpack", []*ir.Value{wait.Result(0)}, outs, out)
	for i, k := range members {
		p.f.ReplaceUses(w.Result(k), unpack.Result(i))
	}
	return unpack
}

// copy inserts a pack or unpack in front of a node, at the cost of reading and
// writing its bytes.
func (p *packer) copy(at *ir.Node, op ir.Op, name string, args []*ir.Value, results []ir.Type, attrs attr.List) *ir.Node {
	bytes := int64(0)
	for _, t := range results {
		bytes += p.f.Module().Hint(t.Bytes())
	}
	return p.f.InsertBefore(at, ir.NodeSpec{Op: op, Name: name, Args: args, Results: results, Attrs: attrs,
		Cost: float64(2*bytes) / (p.gbps * 1e6), HasCost: true, Pos: at.Pos(), From: []*ir.Node{at}})
}
