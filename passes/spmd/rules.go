package spmd

import (
	"math"
	"slices"

	"github.com/seed-ee968945/concert/ir"
	"github.com/seed-ee968945/concert/sharding"
)

// row says what an operation can do with the factors of its rule. Its zero value is that of
// one that is computed on pieces as it is on the whole, if nothing but what passes through
// is cut.
type row struct {
	// reduce is the reduction that makes a result of what ranks have along factors that are
	// reduced; empty where these are wanted whole.
	reduce ir.Reduction

	// whole reports further factors that cannot be sharded.
	whole func(n *ir.Node, r *sharding.Rule, f int) bool

	// inner reports factors that are wanted whole and cut nevertheless, as emit knows how.
	inner func(n *ir.Node, r *sharding.Rule, f int) bool

	// extra is the cost of emit besides the operation.
	extra func(p *partitioner, c *choice) int64

	// even reports factors whose pieces must divide them.
	even func(n *ir.Node, r *sharding.Rule, f int) bool

	// linear reports whether an operation of sums may be computed on their parts.
	linear func(n *ir.Node) bool

	// parts says that factors of one dimension may be cut each by itself.
	parts bool

	// emit makes the results' pieces of operands' where the operation alone does not.
	emit func(p *partitioner, c *choice, args []*ir.Value, types []ir.Type) []*ir.Value
}

// cuts reports whether a factor may be cut.
func (w row) cuts(n *ir.Node, r *sharding.Rule, f int) bool {
	switch r.Factors[f].Kind {
	case sharding.PassThrough:
	case sharding.Reduction:
		if w.reduction(n) == "" {
			return false
		}
	default:
		if w.inner == nil || !w.inner(n, r, f) {
			return false
		}
	}
	return r.Factors[f].Size > 1 && (w.whole == nil || !w.whole(n, r, f))
}

// reduction is the reduction over cut factors; booleans have none, nor have sums of a type without zero,
// which see whatever stands for what is not there.
func (w row) reduction(n *ir.Node) string {
	if len(n.Results()) > 0 && n.Result(0).Type().DType() == ir.Bool {
		return ""
	}
	if w.reduce == ir.Sum && slices.ContainsFunc(n.Args(), func(a *ir.Value) bool { return !a.Type().DType().HasZero() }) {
		return ""
	}
	return string(w.reduce)
}

// neutral is the number that a reduction does not see.
func neutral(reduce string, dt ir.DType) any {
	var low, high any
	if dt.IsFloat() {
		low, high = dt.Ends()
	} else {
		low, high = dt.Range()
	}
	switch ir.Reduction(reduce) {
	case ir.Product:
		return 1.0
	case ir.Max:
		return low
	case ir.Min:
		return high
	}
	return 0.0
}

// always is linear as long as integers stay of their type.
func always(n *ir.Node) bool { return distributes(n) }

// scaled is linear where the second operand is a number.
func scaled(n *ir.Node) bool {
	x := n.Attrs().Float("scalar", 0)
	finite := !math.IsInf(x, 0) && x == x && (n.Op() != ir.OpDiv || x != 0)
	return len(n.Args()) == 1 && !n.Attrs().Bool("reverse", false) && finite && distributes(n)
}

// both is linear where there are two operands.
func both(n *ir.Node) bool { return len(n.Args()) == 2 && distributes(n) }

// distributes reports whether an operation makes of a sum what it makes of its parts, but for how floats
// round. Integers wrap around in their type, so that a wider one has another sum of the same parts, and
// what is no whole number of times a part is cut off in each.
func distributes(n *ir.Node) bool {
	dt := n.Result(0).Type().DType()
	for _, v := range n.Args() {
		if of := v.Type().DType(); of.IsFloat() != dt.IsFloat() || !of.IsFloat() && of != dt {
			return false
		}
	}
	if dt.IsFloat() {
		return true
	}
	for _, key := range []string{"scalar", "alpha"} {
		if v, ok := n.Attrs().Get(key); ok {
			if _, whole := v.AsInt(); !whole {
				return false
			}
		}
	}
	return n.Op() != ir.OpDiv
}

// all says that every factor is wanted whole.
func all(*ir.Node, *sharding.Rule, int) bool { return true }

// only says that factors of a kind are wanted whole.
func only(k sharding.Kind) func(*ir.Node, *sharding.Rule, int) bool {
	return func(_ *ir.Node, r *sharding.Rule, f int) bool { return r.Factors[f].Kind == k }
}

// along reports factors of a dimension of an operand.
func along(r *sharding.Rule, operand, d, f int) bool {
	for _, g := range r.Operands[operand][d] {
		if g == f {
			return true
		}
	}
	return false
}

// attrDim is the factor of the dimension that an attribute names, of operand 0.
func attrDim(n *ir.Node, r *sharding.Rule, f int) bool {
	return along(r, 0, int(n.Attrs().Int("dim", 0)), f)
}

// attrDims are those of a list of dimensions.
func attrDims(n *ir.Node, r *sharding.Rule, f int) bool {
	for _, d := range n.Attrs().Ints("dims") {
		if along(r, 0, int(d), f) {
			return true
		}
	}
	return false
}

var rows = map[ir.Op]row{
	ir.OpNeg: {linear: always}, ir.OpMul: {linear: scaled}, ir.OpDiv: {linear: scaled}, ir.OpAdd: {linear: both}, ir.OpSub: {linear: both},

	ir.OpSum: {reduce: ir.Sum, linear: always}, ir.OpAmax: {reduce: ir.Max}, ir.OpAmin: {reduce: ir.Min}, ir.OpProd: {reduce: ir.Product},
	ir.OpMean: {reduce: ir.Avg, even: only(sharding.Reduction)},

	ir.OpMatmul: {reduce: ir.Sum}, ir.OpGroupedMatmul: {reduce: ir.Sum}, ir.OpAttentionBackward: {reduce: ir.Sum},
	ir.OpConvolution: {reduce: ir.Sum, whole: inWindow, inner: sliding, extra: exchanged(windowsOf), emit: convolved}, ir.OpReduceWindow: {whole: pinned, inner: sliding, extra: laidOver, emit: convolved},
	ir.OpCat: {inner: sliding, extra: exchanged(joinedOf), emit: concatenated}, ir.OpSplit: {inner: sliding, extra: exchanged(rowsOf), emit: sliced},

	ir.OpView: {linear: always, parts: true, whole: unaligned, emit: viewed}, ir.OpPermute: {linear: always}, ir.OpSqueeze: {linear: always}, ir.OpUnsqueeze: {linear: always},
	ir.OpSelect: {linear: always}, ir.OpAlias: {linear: always}, ir.OpClone: {linear: always}, ir.OpSlice: {linear: always, parts: true, inner: sliding, extra: exchanged(rowsOf), emit: sliced},

	ir.OpIota: {whole: all}, ir.OpConstant: {whole: all}, ir.OpRand: {whole: all, emit: drawn},
	ir.OpCall: {emit: opaque}, ir.OpAsStrided: {emit: opaque}, ir.OpWhile: {emit: opaque}, ir.OpCase: {emit: opaque}, ir.OpReadSize: {emit: opaque},

	ir.OpSoftmax: {inner: attrDim, emit: normalized, extra: telling}, ir.OpLogSoftmax: {inner: attrDim, emit: normalized, extra: telling},
	ir.OpCumsum: {inner: numbers, emit: summedUp, extra: passing},
	ir.OpTopk:   {inner: few, emit: bestOf, extra: finalists}, ir.OpArgmax: {inner: few, emit: bestOf, extra: finalists},

	ir.OpSliceScatter: {whole: strided, emit: overwritten},
	ir.OpIndex:        {reduce: ir.Sum, inner: sliding, extra: exchanged(countedOf), emit: read}, ir.OpEmbedding: {reduce: ir.Sum, emit: read}, ir.OpGather: {reduce: ir.Sum, emit: read},
	ir.OpIndexPut: {reduce: ir.Sum, whole: replaces(attrDims), emit: added}, ir.OpIndexAdd: {reduce: ir.Sum, emit: added}, ir.OpScatter: {whole: crooked, parts: true, emit: written},
}

func rowOf(o ir.Op) row { return rows[o] }

// grouped are a convolution's attributes: each rank has some of its groups.
func grouped(p *partitioner, c *choice) ir.Attrs {
	a := c.n.Attrs()
	if b := a.Int("batch_groups", 1); b > 1 {
		a = a.With("batch_groups", ir.A("n", b/p.g.size(c.atoms[0]))[0].Val)
	}
	if g := a.Int("groups", 1); g > 1 {
		for f := range c.rule.Factors {
			if along(c.rule, 0, 1, f) && along(c.rule, 1, 0, f) {
				a = a.With("groups", ir.A("n", g/p.g.size(c.atoms[f]))[0].Val)
			}
		}
	}
	return a
}

// unaligned reports factors of a reshape that only one of the two shapes has.
func unaligned(_ *ir.Node, r *sharding.Rule, f int) bool {
	has := func(t sharding.Tensor) bool {
		return slices.ContainsFunc(t, func(l []int) bool { return slices.Contains(l, f) })
	}
	return !has(r.Operands[0]) || !has(r.Results[0])
}

// viewed is a view, of a copy where pieces do not lie so that they can be viewed.
func viewed(p *partitioner, _ *choice, args []*ir.Value, types []ir.Type) []*ir.Value {
	shape, _ := types[0].Shape().Static()
	return []*ir.Value{p.view(args[0], shape...)}
}

// drawn are random numbers: ranks draw their own, and all take those of the first.
func drawn(p *partitioner, c *choice, args []*ir.Value, types []ir.Type) []*ir.Value {
	v := p.op(c.n.Op(), nil, c.n.Attrs(), args, types...)
	if len(p.g.devices) == 1 {
		return v
	}
	return []*ir.Value{p.waited(ir.OpBroadcast, p.group(p.g, p.g.rest(nil)), ir.A("root", int64(0)), v[0])}
}

// opaque gives an operation its operands in the layouts that it had them in.
func opaque(p *partitioner, c *choice, args []*ir.Value, types []ir.Type) []*ir.Value {
	for i, v := range c.n.Args() {
		if p.err == nil && !args[i].Type().Equal(v.Type()) {
			args[i] = p.put(ir.OpClone, nil, nil, args[i:i+1], []ir.Type{v.Type()})[0]
		}
	}
	for i, v := range c.n.Results() {
		types[i] = v.Type()
	}
	return p.op(c.n.Op(), c.n.Group(), c.n.Attrs(), args, types...)
}
