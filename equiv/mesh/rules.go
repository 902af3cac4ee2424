package mesh

import (
	"slices"
	"strconv"

	"github.com/seed-ee968945/concert/equiv/mesh/internal/digits"
	"github.com/seed-ee968945/concert/ir"
)

// apply states the results of an operation that does not communicate.
func (u *use) apply() {
	op := u.n.Op()
	switch {
	case op.Info().Elementwise:
		u.set(u.pointwise())
	case op == ir.OpCall || op == ir.OpAsyncCall || op == ir.OpAsStrided || op.Info().Bodies != nil:
		refuse("no rule says what %s does", op)
	default:
		if rule, ok := rules[op]; ok {
			rule(u)
		} else {
			u.alone()
		}
	}
}

// rules are those of operations that are not elementwise; what has none sees its operands whole.
var rules = map[ir.Op]func(u *use){
	ir.OpFull: (*use).full, ir.OpConstant: (*use).source, ir.OpIota: (*use).source, ir.OpRand: (*use).source,
	ir.OpClone: (*use).same, ir.OpAlias: (*use).same,
	ir.OpView: (*use).view, ir.OpSqueeze: (*use).view, ir.OpUnsqueeze: (*use).view, ir.OpPermute: (*use).permute, ir.OpExpand: (*use).expand,
	ir.OpSlice: (*use).slice, ir.OpSelect: (*use).slice, ir.OpSplit: (*use).split, ir.OpCat: (*use).cat,
	ir.OpSum: (*use).reduce, ir.OpMean: (*use).reduce, ir.OpAmax: (*use).reduce, ir.OpAmin: (*use).reduce, ir.OpProd: (*use).reduce,
	ir.OpMatmul: (*use).matmul, ir.OpAddmm: (*use).matmul, ir.OpConvolution: (*use).convolution,
	ir.OpSoftmax: (*use).softmax, ir.OpLogSoftmax: (*use).softmax, ir.OpCumsum: (*use).runningSum, ir.OpArgmax: (*use).ranked, ir.OpTopk: (*use).ranked,
	ir.OpScatter: (*use).scatter, ir.OpSliceScatter: (*use).scatter, ir.OpIndexAdd: (*use).put, ir.OpReduceWindow: (*use).windows,
	ir.OpEmbedding: (*use).lookup, ir.OpIndex: (*use).lookup, ir.OpGather: (*use).gather, ir.OpIndexPut: (*use).put,
	ir.OpAttention: (*use).attention, ir.OpAttentionBackward: (*use).attention,
}

// name is the operation with its attributes and the type of result i.
func (u *use) name(i int) string {
	return u.n.Op().Name() + " " + u.n.Attrs().String() + " " + u.n.Result(i).Type().DType().String()
}

// alone sees all dimensions of all operands at once: on each place of the mesh by itself.
func (u *use) alone() {
	for k, p := range u.in {
		for _, l := range p.dims {
			u.inner(k, l)
		}
	}
	u.held = make([]int, u.s.atoms())
	var out []*piece
	for i := range u.n.Results() {
		x := *u
		x.held = slices.Clone(u.held)
		x.loops = slices.Clone(u.loops)
		sizes := u.result(i)
		dims := make([][]int, len(sizes))
		for d := range sizes {
			dims[d] = []int{ownSize(d)}
		}
		out = append(out, x.block(u.name(i)+" result "+strconv.Itoa(i), dims, sizes))
	}
	u.set(out...)
}

func (u *use) full() {
	x := u.number64("value", u.n.Result(0).Type().DType())
	p := &piece{base: x.base, coef: x.coef, held: u.everywhere()}
	for _, n := range u.result(0) {
		p.dims = append(p.dims, digits.Add(nil, digits.Repeated(n)))
	}
	u.set(p)
}

// everywhere are the digits of a tensor that is the same on all ranks.
func (u *use) everywhere() []digits.Digit {
	out := make([]digits.Digit, u.s.atoms())
	for a := range out {
		out[a] = digits.Repeated(u.s.g.Atoms[a].Size)
	}
	return out
}

// plainIota is 0, 1, ... of any integer type.
const plainIota = "iota"

// fromIota begins the name of numbers that begin elsewhere, or go on in other steps.
const fromIota = "iota from "

// source is a tensor that its attributes say.
func (u *use) source() {
	name := u.name(0)
	switch u.n.Op() {
	case ir.OpRand:
		name += " %" + u.n.Name()
	case ir.OpIota:
		dt := u.n.Result(0).Type().DType()
		least, largest := dt.Range()
		start, step := u.int("start", 0), u.int("step", 1)
		last := float64(start) + float64(step)*float64(u.result(0)[0]-1)
		switch {
		case step == 0 || !dt.IsFloat() && (last < float64(least) || last > float64(largest)): // it does not count
		case start == 0 && step == 1:
			name = plainIota
		default:
			name = fromIota + u.n.Attrs().String()
		}
	}
	p := u.t.whole(name, u.result(0))
	p.held = u.everywhere()
	u.set(p)
}

func (u *use) same() { u.set(u.in[0]) }

// moved is an operand whose digits lie in other dimensions.
func (u *use) moved(dims [][]digits.Digit) {
	p := *u.in[0]
	p.dims = dims
	u.set(&p)
}

func (u *use) view() {
	dims, ok := digits.Reshape(u.in[0].dims, u.result(0))
	if !ok {
		panic(digits.Uneven{})
	}
	u.moved(dims)
}

func (u *use) permute() {
	var dims [][]digits.Digit
	for _, d := range u.n.Attrs().Ints("dims") {
		dims = append(dims, u.in[0].dims[d])
	}
	u.moved(dims)
}

func (u *use) expand() {
	from, to := u.sizes(0), u.result(0)
	dims := make([][]digits.Digit, len(to))
	for d, n := range to {
		if k := d - (len(to) - len(from)); k >= 0 && from[k] == n {
			dims[d] = u.in[0].dims[k]
		} else {
			dims[d] = digits.Add(nil, digits.Repeated(n))
		}
	}
	u.moved(dims)
}

func (u *use) slice() {
	d := int(u.int("dim", 0))
	n := u.sizes(0)[d]
	if u.n.Op() == ir.OpSelect {
		p := u.sliced(u.in[0], d, u.int("index", 0), 1, 1)
		p.dims = slices.Delete(slices.Clone(p.dims), d, d+1)
		u.set(p)
		return
	}
	step := u.int("step", 1)
	u.set(u.sliced(u.in[0], d, min(u.int("start", 0), n), u.result(0)[d], step))
}

func (u *use) split() {
	start := int64(0)
	d := int(u.int("dim", 0))
	var out []*piece
	for _, n := range u.n.Attrs().Ints("sizes") {
		out = append(out, u.sliced(u.in[0], d, start, n, 1))
		start += n
	}
	u.set(out...)
}

// sliced is count places of a dimension.
func (u *use) sliced(p *piece, d int, start, count, step int64) *piece {
	x := &use{s: u.s, t: u.t, n: u.n, in: []*piece{p}, held: make([]int, u.s.atoms())}
	dims := make([][]int, len(p.dims))
	for k := range dims {
		if k != d {
			dims[k] = x.one(0, k)
		}
	}
	x.ranks()
	coef, base, where, along := u.t.slice(x.operands()[0], p.dims[d], span{start, count, step}, x.loops)
	for i := range along {
		dims[d] = append(dims[d], len(where)+i)
	}
	return x.finish(coef, base, append(where[:len(where):len(where)], along...), dims)
}

// cat joins along a dimension.
func (u *use) cat() {
	d := int(u.int("dim", 0))
	dims := make([][]int, len(u.in[0].dims))
	lists := make([][]digits.Digit, len(u.in))
	for e := range dims {
		if e != d {
			dims[e] = u.align(slices.Repeat([]int{e}, len(u.in)), false)
		}
	}
	for k, p := range u.in {
		lists[k] = p.dims[d]
	}
	u.ranks()
	coef, base, where, along := u.t.join(u.operands(), lists, u.loops)
	for i := range along {
		dims[d] = append(dims[d], len(where)+i)
	}
	u.set(u.finish(coef, base, append(where[:len(where):len(where)], along...), dims))
}

// reduce sums over dimensions, or takes the largest or the like.
func (u *use) reduce() {
	dims := u.n.Attrs().Ints("dims")
	all := !u.n.Attrs().Has("dims")
	n := 1.0
	var out [][]int
	for d, size := range u.sizes(0) {
		if all || slices.Contains(dims, int64(d)) {
			n *= float64(size)
			u.align([]int{d}, true)
			if u.n.Attrs().Bool("keepdim", false) {
				out = append(out, nil)
			}
		} else {
			out = append(out, u.one(0, d))
		}
	}
	u.ranks()
	float := u.n.Result(0).Type().DType().IsFloat()
	switch {
	case u.n.Op() == ir.OpSum, u.n.Op() == ir.OpMean && float:
		coef, base, where := u.t.multiply(u.operands(), u.loops)
		if u.n.Op() == ir.OpMean {
			coef /= n
		}
		u.set(u.finish(coef, base, where, out))
	case u.n.Op() == ir.OpMean:
		refuse("a mean of integers")
	default:
		coef, base, where := u.t.folded(u.n.Op().Name(), u.operands()[0], u.loops)
		u.set(u.finish(coef, base, where, out))
	}
}

// matmul is a sum of products over the inner dimension.
func (u *use) matmul() {
	i := len(u.in) - 2
	a, b := i, i+1
	rank := len(u.in[a].dims)
	dims := func(l, m int) []int {
		out := slices.Repeat([]int{digits.None}, len(u.in))
		out[a], out[b] = l, m
		return out
	}
	var out [][]int
	for d := range rank - 2 {
		out = append(out, u.align(dims(d, d), false))
	}
	out = append(out, u.one(a, rank-2), u.one(b, rank-1))
	u.align(dims(rank-1, rank-2), true)
	x := *u
	if i == 1 { // without the addend
		x.in = u.in[1:]
		x.loops = picked(u.loops, []int{1, 2})
	}
	x.held = slices.Clone(u.held)
	x.ranks()
	coef, base, where := u.t.multiply(x.operands(), x.loops)
	p := x.finish(coef, base, where, out)
	if i == 1 {
		p.coef *= u.n.Attrs().Float("alpha", 1)
		y := &use{s: u.s, t: u.t, n: u.n, in: []*piece{u.in[0], p}, held: make([]int, u.s.atoms())}
		p = y.sum(u.n.Attrs().Float("beta", 1), 1)
	}
	u.set(p)
}

// sum adds operands that are broadcast to the result, each with a factor.
func (u *use) sum(factors ...float64) *piece {
	dims := u.broadcast()
	u.ranks()
	args := slices.Clone(u.operands())
	for k := range args {
		args[k].coef *= factors[k]
	}
	coef, base, where := u.t.add(args, u.loops)
	return u.finish(coef, base, where, dims)
}

// broadcast makes loops of the result's dimensions, counted from the last one.
func (u *use) broadcast() [][]int {
	sizes := u.result(0)
	out := make([][]int, len(sizes))
	for d, n := range sizes {
		dims := make([]int, len(u.in))
		for k, p := range u.in {
			e := d - (len(sizes) - len(p.dims))
			if dims[k] = digits.None; e >= 0 && digits.Places(p.dims[e]) == n {
				dims[k] = e
			}
		}
		out[d] = u.align(dims, false)
	}
	return out
}

// along sees one dimension whole.
func (u *use) along() {
	d := int(u.int("dim", 0))
	var out []*piece
	for i := range u.n.Results() {
		x := &use{s: u.s, t: u.t, n: u.n, in: u.in, held: make([]int, u.s.atoms())}
		sizes := u.result(i)
		var dims [][]int
		n := int64(1)
		for e := range u.in[0].dims {
			switch {
			case e != d:
				dims = append(dims, x.one(0, e))
			case len(sizes) == len(u.in[0].dims):
				dims, n = append(dims, []int{ownSize(0)}), sizes[d]
			}
		}
		x.inner(0, u.in[0].dims[d])
		attrs := u.n.Attrs().Without("dim").Without("keepdim").String()
		out = append(out, x.block(u.n.Op().Name()+" "+attrs+" "+strconv.Itoa(i), dims, []int64{n}))
	}
	u.set(out...)
}
