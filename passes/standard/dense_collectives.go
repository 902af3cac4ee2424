package standard

import (
	"cmp"
	"slices"

	"github.com/seed-ee968945/concert/internal/attr"
	"github.com/seed-ee968945/concert/ir"
	"github.com/seed-ee968945/concert/passes"
)

// denseCollectives gathers and scatters along dimension 0 what a program gathers and scatters along an
// inner one, where a rank's part of it is many rows: kernels and NCCL move contiguous bytes, a few dozen
// ranges at once. A permuted copy stands behind a gather and in front of a reduce_scatter; it is
// scheduled, planned and fused like any operation, while a device that must move rows by itself needs
// scratch for all of them. A collective stays as it is that something other than its waits reads, that
// has order-only edges, whose tensors something writes in place, whose sizes are known at run time
// only, or that reduces what is reduced before or afterwards, too. Linear.
func denseCollectives() passes.Pass {
	return passes.Pass{
		Name:         "dense-collectives",
		Doc:          "Gathers and scatters blocks along dimension 0, with a permuted copy, where rows along an inner dimension would be many.",
		FunctionPass: true,
		Options: []passes.Option{
			{Name: "rows", Kind: passes.KindInt, Default: "64", Doc: "of one tensor, so many are left to devices"},
		},
		Stats: []passes.Stat{{Name: "dense", Doc: "collectives that moved to dimension 0"}},
		Run: func(ctx *passes.Context, f *ir.Func) error {
			b := &blocker{f: f, writes: ir.FindWrites(f)}
			for _, n := range slices.Clone(f.Order()) {
				if d := int(n.Attrs().Int("dim", 0)); b.scattered(n, d, ctx.Int("rows")) && ctx.Enable(n.Name()) {
					b.move(n, d)
					ctx.Count("dense", 1)
				}
			}
			return b.err
		},
	}
}

// reduced reports whether v comes out of a reduction over ranks; sums of sums have no proof in another order of
// elements, and few programs have them.
func reduced(v *ir.Value) bool {
	n := v.Def()
	for passesOn(n) {
		n = n.Arg(0).Def()
	}
	return n.Op() == ir.OpWaitTensor && n.Arg(0).Def().Op().Info().Reduces
}

// reducedAgain reports whether v is reduced over ranks, as it is or converted.
func reducedAgain(v *ir.Value) bool {
	return slices.ContainsFunc(v.Uses(), func(u ir.Use) bool {
		return u.Node.Op().Info().Reduces || passesOn(u.Node) && slices.ContainsFunc(u.Node.Results(), reducedAgain)
	})
}

// passesOn reports whether n gives its operand's elements, in whatever type.
func passesOn(n *ir.Node) bool { return n.Op().IsView() || n.Op() == ir.OpConvert }

// blocker makes collectives of blocks.
type blocker struct {
	f      *ir.Func
	writes *ir.Writes
	err    error // the first
}

// scattered reports whether n gathers or scatters along inner dimension d tensors of more than so many rows,
// and may do it along another.
func (b *blocker) scattered(n *ir.Node, d int, rows int64) bool {
	if n.Op() != ir.OpAllGather && n.Op() != ir.OpReduceScatter || d == 0 || n.Group().Size() < 2 || !onlyAwaited(n) {
		return false
	}
	if n.Ordered() || slices.ContainsFunc(n.Args(), b.writes.Written) {
		return false
	}
	for _, u := range n.Result(0).Uses() {
		if u.Node.Ordered() || slices.ContainsFunc(u.Node.Results(), b.writes.Written) || n.Op() == ir.OpReduceScatter && slices.ContainsFunc(u.Node.Results(), reducedAgain) {
			return false
		}
	}
	if n.Op() == ir.OpReduceScatter && slices.ContainsFunc(n.Args(), reduced) {
		return false
	}
	many := false
	for i, v := range n.Args() {
		shape, ok := v.Type().Shape().Static()
		if !ok || !v.Type().Contiguous() || !n.Result(0).Type().Elems()[i].Contiguous() || shape[0] == 0 {
			return false
		}
		count := int64(1)
		for _, size := range shape[:d] {
			count *= size
		}
		many = many || count > rows
	}
	return many
}

// move has n gather or scatter along dimension 0 instead of d.
func (b *blocker) move(n *ir.Node, d int) {
	ranks := ir.D(int64(n.Group().Size()))
	gathers := n.Op() == ir.OpAllGather
	b.f.SetAttrs(n, n.Attrs().With("dim", attr.Int(0)))
	types := slices.Clone(n.Result(0).Type().Elems())
	for i, v := range n.Args() {
		shape := slices.Clone(types[i].Shape()) // a scattered part, or what is gathered
		if gathers {
			shape = slices.Clone(v.Type().Shape())
		}
		whole := slices.Clone(shape)
		whole[0] = whole[0].Mul(ranks)
		if gathers {
			types[i] = ir.TensorOf(v.Type().DType(), whole)
			continue
		}
		blocks := b.copied(n, n, v, slices.Insert(shape, d, ranks), func(dims []int64) []int64 {
			return slices.Insert(slices.Delete(dims, d, d+1), 0, int64(d))
		})
		b.f.SetArg(n, i, b.view(n, n, blocks, whole))
	}
	b.f.SetType(n.Result(0), ir.Async(types...))
	for _, u := range n.Result(0).Uses() {
		for i, r := range u.Node.Results() {
			want, users, after := r.Type(), slices.Clone(r.Uses()), u.Node.Next()
			b.f.SetType(r, types[i])
			if !gathers || len(users) == 0 {
				continue
			}
			blocks := slices.Insert(slices.Clone(n.Arg(i).Type().Shape()), 0, ranks)
			rows := b.copied(after, u.Node, r, blocks, func(dims []int64) []int64 { return slices.Insert(dims[1:], d, 0) })
			whole := b.view(after, u.Node, rows, want.Shape())
			for _, use := range users {
				b.f.SetArg(use.Node, use.Index, whole)
			}
		}
	}
}

// copied is v in another shape, its dimensions in the order that order makes of theirs, as a copy.
func (b *blocker) copied(at, from *ir.Node, v *ir.Value, shape ir.Shape, order func([]int64) []int64) *ir.Value {
	dims := make([]int64, len(shape))
	for i := range dims {
		dims[i] = int64(i)
	}
	p := b.derive(at, from, ir.OpPermute, ir.A("dims", order(dims)), b.view(at, from, v, shape))
	return b.derive(at, from, ir.OpClone, ir.Attrs{}, p, ir.TensorOf(v.Type().DType(), p.Type().Shape()))
}

func (b *blocker) view(at, from *ir.Node, v *ir.Value, shape ir.Shape) *ir.Value {
	return b.derive(at, from, ir.OpView, ir.Attrs{}, v, ir.TensorOf(v.Type().DType(), shape))
}

// derive inserts an operation on v in front of at, which does a part of what from did.
func (b *blocker) derive(at, from *ir.Node, op ir.Op, attrs ir.Attrs, v *ir.Value, want ...ir.Type) *ir.Value {
	types, err := ir.Infer(op, nil, attrs, []ir.Type{v.Type()}, want...)
	if err != nil {
		b.err = cmp.Or(b.err, err)
		return v
	}
	return b.f.InsertBefore(at, ir.NodeSpec{Op: op, Name: from.Name() + "_" + op.Name(), Args: []*ir.Value{v}, Attrs: attrs, Results: types, Pos: from.Pos(), From: []*ir.Node{from}}).Result(0)
}
