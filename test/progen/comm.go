package progen

import (
	"fmt"
	"slices"
	"strings"

	"github.com/seed-ee968945/concert/internal/attr"
	"github.com/seed-ee968945/concert/ir"
)

func uniform(v *value) bool { return !v.varying }

// collective starts a collective of one to three tensors.
func (g *gen) collective() bool {
	if len(g.flights) > 5 {
		return g.wait()
	}
	gr := g.pickGroup()
	if g.r.IntN(10) == 0 {
		x := g.pick(uniform)
		return x != nil && g.emit(ir.OpAsyncCall, gr, list("target", "twice"), []*value{x}, ir.Async(ir.TensorOf(x.typ.DType(), x.typ.Shape()))) != nil
	}
	op := g.one([]ir.Op{ir.OpAllReduce, ir.OpAllReduce, ir.OpAllGather, ir.OpAllGather, ir.OpReduceScatter, ir.OpReduceScatter, ir.OpAllToAll, ir.OpBroadcast, ir.OpCollectivePermute})
	var l attr.List
	dim := g.r.IntN(2)
	switch op {
	case ir.OpAllReduce:
		l = list("reduce", g.reduction())
	case ir.OpReduceScatter:
		l = list("reduce", g.reduction(), "dim", dim)
	case ir.OpAllGather:
		l = list("dim", dim)
	case ir.OpBroadcast:
		l = list("root", g.r.IntN(gr.size()))
	case ir.OpCollectivePermute:
		l = list("pairs", g.pairs(gr.size()))
	}
	var args []*value
	for range []int{1, 1, 1, 2, 3}[g.r.IntN(5)] {
		x := g.pick(func(v *value) bool {
			_, err := ir.Infer(op, gr.ir(), l, []ir.Type{v.typ})
			if op == ir.OpAllToAll && err == nil { // equal pieces of a size that a symbol decides may not exist
				_, static := v.typ.Shape()[0].Const()
				return static && uniform(v)
			}
			return err == nil && uniform(v)
		})
		if x != nil {
			args = append(args, x)
		}
	}
	return len(args) > 0 && g.emit(op, gr, l, args) != nil
}

// chain follows one tensor through collectives, shards and what computes element by
// element, most of them of one group and along one dimension, each awaited at once: what
// becomes of it cancels, merges or changes places.
func (g *gen) chain() bool {
	x := g.pick(uniform)
	if x == nil || len(g.flights) > 3 {
		return false
	}
	gr, dim, red, any := g.pickGroup(), g.r.IntN(2), g.reduction(), false
	for range 2 + g.r.IntN(4) {
		if g.r.IntN(4) == 0 {
			gr = g.pickGroup()
		}
		if g.r.IntN(6) == 0 {
			dim, red = g.r.IntN(2), g.reduction()
		}
		if y := g.link(x, gr, dim, red); y != nil {
			x, any = y, true
		}
	}
	return any
}

// link is one operation of a chain, nil if it does not fit.
func (g *gen) link(x *value, gr *group, dim int, red string) *value {
	op := g.one([]ir.Op{ir.OpAllReduce, ir.OpAllGather, ir.OpReduceScatter, ir.OpShard, ir.OpAllReduce, ir.OpAllGather, ir.OpReduceScatter, ir.OpShard, ir.OpNeg, ir.OpMul, ir.OpConvert, ir.OpAdd})
	var out []*value
	switch op {
	case ir.OpNeg:
		out = g.emit(op, nil, nil, []*value{x})
	case ir.OpMul:
		out = g.emit(op, nil, list("scalar", 2), []*value{x})
	case ir.OpConvert:
		out = g.emit(op, nil, nil, []*value{x}, ir.TensorOf(g.dtype(), x.typ.Shape()))
	case ir.OpAdd:
		if y := g.like(x); y != nil && uniform(y) {
			out = g.emit(op, nil, nil, []*value{x, y})
		}
	case ir.OpShard:
		out = g.emit(op, gr, list("dim", dim), []*value{x})
	default:
		return g.through(op, gr, dim, red, x)
	}
	if len(out) == 0 {
		return nil
	}
	return out[0]
}

// through is x behind a collective that is awaited at once, nil if it does not fit.
func (g *gen) through(op ir.Op, gr *group, dim int, red string, x *value) *value {
	l := list("dim", dim, "reduce", red)
	switch op {
	case ir.OpAllReduce:
		l = l.Without("dim")
	case ir.OpAllGather:
		l = l.Without("reduce")
	case ir.OpAllToAll:
		l = nil
	}
	if x == nil || x.varying || g.emit(op, gr, l, []*value{x}) == nil {
		return nil
	}
	return g.await(len(g.flights) - 1)[0]
}

func (g *gen) reduction() string {
	return []string{"sum", "sum", "sum", "avg", "product", "min", "max"}[g.r.IntN(7)]
}

// pairs draws who sends to whom: each rank sends and receives at most once.
func (g *gen) pairs(n int) []int64 {
	to := g.r.Perm(n)
	var out []int64
	for from := range n {
		if g.r.IntN(4) > 0 {
			out = append(out, int64(from), int64(to[from]))
		}
	}
	return out
}

// exchange is an all_to_all of uneven pieces: of the same sizes on all ranks, or of
// sizes that are symbols and differ by rank.
func (g *gen) exchange() bool {
	gr := g.pickGroup()
	n := gr.size()
	if len(g.syms) == 0 && g.r.IntN(3) == 0 && n <= 3 {
		return g.dynamicExchange(gr)
	}
	if len(g.syms) == 0 && !g.joint && g.r.IntN(4) == 0 && n <= 3 {
		return g.countedExchange(gr)
	}
	x := g.pick(func(v *value) bool {
		s, ok := v.typ.Shape().Static()
		return ok && len(s) > 0 && uniform(v)
	})
	if x == nil {
		return false
	}
	// With one text for all ranks, rank i sends a[j] to rank j and gets b[j] from it:
	// a[i] = b[j] for all, so all pieces are of one size.
	size, _ := x.typ.Shape()[0].Const()
	if size%int64(n) != 0 {
		return false
	}
	var parts []string
	for range n {
		parts = append(parts, fmt.Sprint(size/int64(n)))
	}
	text := []string{strings.Join(parts, ",")}
	return g.emit(ir.OpAllToAll, gr, list("in_splits", text, "out_splits", text), []*value{x}) != nil
}

// dynamicExchange declares the sizes of an exchange, makes the tensor that is sent,
// and sends it. What rank i gets from rank j is what rank j sends to rank i.
func (g *gen) dynamicExchange(gr *group) bool {
	n := gr.size()
	const limit = 3
	var in, out []*symbol
	for range n {
		in = append(in, g.symbol(limit, true))
	}
	for range n {
		out = append(out, g.symbol(limit, true))
	}
	for a := range in[0].values {
		for _, sub := range gr.ranks {
			for i, r := range sub {
				for j, q := range sub {
					out[j].values[a][r] = in[i].values[a][q]
				}
			}
		}
	}
	sum := func(ss []*symbol) (ir.Dim, string) {
		d, names := ir.D(0), []string{}
		for _, s := range ss {
			d, names = d.Add(g.parse(s.name)), append(names, s.name)
		}
		return d, strings.Join(names, ",")
	}
	rows, sent := sum(in)
	_, got := sum(out)
	shape := ir.Shape{rows}
	if g.r.IntN(2) == 0 {
		shape = append(shape, ir.D(int64(1+g.r.IntN(3))))
	}
	x := g.given(ir.TensorOf(g.dtype(), shape), "")
	x.varying = true
	args, ins, outs := []*value{x}, []string{sent}, []string{got}
	if g.r.IntN(3) == 0 { // a bucket, whose second tensor is computed
		if rs := g.emit(g.one(anyFuncs), nil, nil, args); rs != nil {
			args, ins, outs = append(args, rs[0]), append(ins, sent), append(outs, got)
		}
	}
	return g.emit(ir.OpAllToAll, gr, list("in_splits", ins, "out_splits", outs), args) != nil
}

// countedExchange is a dynamicExchange of sizes that tensors hold: each rank tells the others
// how many rows it sends them.
func (g *gen) countedExchange(gr *group) bool {
	n := gr.size()
	const limit = 3
	one := func(vs []*value) *value { return vs[0] }
	raw := g.given(ir.Tensor(ir.I64, int64(n)), "")
	sends := one(g.emit(ir.OpRemainder, nil, list("scalar", limit+1), []*value{raw}))
	g.emit(ir.OpAllToAll, gr, nil, []*value{sends})
	gets := g.await(len(g.flights) - 1)[0]
	var pieces [2]string
	var rows [2]ir.Dim
	for k, counts := range []*value{sends, gets} {
		var names []string
		for range n {
			s := &symbol{name: fmt.Sprintf("s%d", len(g.syms)), max: limit, varying: true}
			g.syms = append(g.syms, s)
			names, rows[k] = append(names, s.name), rows[k].Add(g.parse(s.name))
		}
		pieces[k] = strings.Join(names, ",")
		g.emit(ir.OpReadSize, nil, list("symbols", names), []*value{counts})
		g.pool = g.pool[:len(g.pool)-1] // nobody may write the sizes
	}
	at := one(g.emit(ir.OpIota, nil, nil, nil, ir.TensorOf(ir.I64, ir.Shape{rows[0]})))
	own := one(g.emit(ir.OpSum, nil, nil, []*value{raw}, ir.Tensor(ir.I64)))
	mine := one(g.emit(ir.OpAdd, nil, nil, []*value{at, own}))
	x := one(g.emit(ir.OpConvert, nil, nil, []*value{mine}, ir.TensorOf(g.dtype(), ir.Shape{rows[0]})))
	for _, v := range []*value{at, mine, x} {
		v.varying = true
	}
	return g.emit(ir.OpAllToAll, gr, list("in_splits", []string{pieces[0]}, "out_splits", []string{pieces[1]}), []*value{x}) != nil
}

func (g *gen) waitAny() bool { return len(g.flights) > 0 && g.wait() }

// wait ends one collective; now and then it waits twice.
func (g *gen) wait() bool {
	got := g.await(g.r.IntN(len(g.flights)))
	if g.r.IntN(8) == 0 {
		g.emit(ir.OpAlias, nil, nil, got[:1])
	}
	return true
}

// await ends a collective.
func (g *gen) await(i int) []*value {
	f := g.flights[i]
	g.flights = slices.Delete(g.flights, i, i+1)
	refs := g.write("wait_tensor", nil, nil, []*value{{ref: f.ref}}, f.typ.Elems())
	var got []*value
	for k, t := range f.typ.Elems() {
		got = append(got, &value{ref: refs[k], typ: t, store: g.storage(), varying: f.varying, late: f.late})
	}
	g.pool = append(g.pool, got...)
	return got
}

func (g *gen) shard() bool {
	gr, d := g.pickGroup(), g.r.IntN(2)
	x := g.pick(func(v *value) bool {
		_, err := ir.Infer(ir.OpShard, gr.ir(), list("dim", d), []ir.Type{v.typ})
		return err == nil && uniform(v)
	})
	return x != nil && g.emit(ir.OpShard, gr, list("dim", d), []*value{x}) != nil
}

// busy reports whether something in flight reads a storage.
func (g *gen) busy(store int) bool {
	for _, f := range g.flights {
		if slices.Contains(f.reads, store) {
			return true
		}
	}
	return false
}

// writable reports whether a call may write v.
func (g *gen) writable(v *value) bool {
	fixed := g.prefix != "" && slices.ContainsFunc(g.params, func(p *param) bool { return p.of.store == v.store })
	return !v.overlap && !g.busy(v.store) && !fixed
}

// inPlace writes to one or two tensors: nothing in flight may read them, and no two
// elements of theirs lie in one place.
func (g *gen) inPlace() bool {
	if !g.calls {
		return false
	}
	if g.r.IntN(4) == 0 {
		return g.addTo()
	}
	target := []string{"inc", "inc", "flip"}[g.r.IntN(3)]
	var args []*value
	for range []int{1, 1, 1, 2}[g.r.IntN(4)] {
		x := g.pick(func(v *value) bool {
			return g.writable(v) && !slices.ContainsFunc(args, func(a *value) bool { return a.store == v.store })
		})
		if x != nil {
			args = append(args, x)
		}
	}
	if len(args) == 0 {
		return false
	}
	effects := []string{"writes"}
	var results []ir.Type
	if g.r.IntN(8) == 0 { // gives its operand back, as add_ does
		effects = append(effects, "alias")
		results = []ir.Type{args[0].typ}
	}
	refs := g.write("call", nil, list("class", "memory", "effects", effects, "target", target), args, results)
	for i, t := range results {
		g.pool = append(g.pool, &value{ref: refs[i], typ: t, store: args[0].store, varying: args[0].varying})
	}
	late := slices.ContainsFunc(args, g.isLate)
	for _, a := range args {
		g.dirty[a.store] = late
	}
	return true
}

// addTo writes to one tensor what it has and another, which it reads only.
func (g *gen) addTo() bool {
	x := g.pick(g.writable)
	if x == nil {
		return false
	}
	y := g.pick(func(v *value) bool { return v.store != x.store && v.typ.SameTensor(x.typ) && v.varying == x.varying })
	if y == nil {
		return false
	}
	g.write("call", nil, list("class", "memory", "effects", []string{"writes"}, "target", "addto", "writes", []int64{0}), []*value{x, y}, nil)
	g.dirty[x.store] = g.isLate(x) || g.isLate(y)
	return true
}

// otherCall is a call that computes, aliases or communicates.
func (g *gen) otherCall() bool {
	return g.callAny(g.r.IntN(4))
}

// call is one that computes or aliases.
func (g *gen) call() bool { return g.callAny(1 + g.r.IntN(3)) }

func (g *gen) callAny(kind int) bool {
	x := g.pick(nil)
	if !g.calls || x == nil {
		return false
	}
	switch kind {
	case 0:
		var gr *group
		if g.r.IntN(2) == 0 {
			gr = g.pickGroup()
		}
		g.write("call", gr, list("class", "memory", "effects", []string{"communicates"}, "target", "barrier"), nil, nil)
	case 1:
		if x.overlap {
			return false
		}
		t := x.typ
		refs := g.write("call", nil, list("class", "memory", "effects", []string{"alias"}, "target", "view"), []*value{x}, []ir.Type{t})
		g.pool = append(g.pool, &value{ref: refs[0], typ: t, store: x.store, varying: x.varying, late: x.late})
	default:
		t := g.layout(ir.TensorOf(x.typ.DType(), x.typ.Shape()))
		refs := g.write("call", nil, list("class", "memory", "target", "twice"), []*value{x}, []ir.Type{t})
		g.pool = append(g.pool, &value{ref: refs[0], typ: t, store: g.storage(), varying: x.varying, late: g.isLate(x)})
	}
	return true
}
