package mesh

import (
	"slices"
	"strconv"

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
	ir.OpSoftmax: (*use).along, ir.OpLogSoftmax: (*use).along, ir.OpCumsum: (*use).along, ir.OpArgmax: (*use).along, ir.OpTopk: (*use).along,
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
	x := u.n.Attrs().Float("value", 0)
	p := &piece{base: u.t.one, coef: x, held: u.everywhere()}
	if x-x != 0 { // not finite
		p.base, p.coef = u.t.leaf("number "+strconv.FormatFloat(x, 'g', -1, 64)), 1
	}
	for _, n := range u.result(0) {
		p.dims = append(p.dims, add(nil, repeated(n)))
	}
	u.set(p)
}

// everywhere are the digits of a tensor that is the same on all ranks.
func (u *use) everywhere() []digit {
	out := make([]digit, u.s.atoms())
	for a := range out {
		out[a] = repeated(u.s.g.atoms[a].size)
	}
	return out
}

// source is a tensor that its attributes say.
func (u *use) source() {
	name := u.name(0)
	if u.n.Op() == ir.OpRand {
		name += " %" + u.n.Name()
	}
	p := u.t.whole(name, u.result(0))
	p.held = u.everywhere()
	u.set(p)
}

func (u *use) same() { u.set(u.in[0]) }

// moved is an operand whose digits lie in other dimensions.
func (u *use) moved(dims [][]digit) {
	p := *u.in[0]
	p.dims = dims
	u.set(&p)
}

func (u *use) view() {
	dims, ok := reshape(u.in[0].dims, u.result(0))
	if !ok {
		panic(uneven{})
	}
	u.moved(dims)
}

func (u *use) permute() {
	var dims [][]digit
	for _, d := range u.n.Attrs().Ints("dims") {
		dims = append(dims, u.in[0].dims[d])
	}
	u.moved(dims)
}

func (u *use) expand() {
	from, to := u.sizes(0), u.result(0)
	dims := make([][]digit, len(to))
	for d, n := range to {
		if k := d - (len(to) - len(from)); k >= 0 && from[k] == n {
			dims[d] = u.in[0].dims[k]
		} else {
			dims[d] = []digit{repeated(n)}
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

// sliced is count places of a dimension. What is minor and taken whole is a loop.
func (u *use) sliced(p *piece, d int, start, count, step int64) *piece {
	l := p.dims[d]
	n := places(l)
	if start == 0 && count == n {
		return p
	}
	out := *p
	out.dims = slices.Clone(p.dims)
	if len(l) == 1 && l[0].dim == none {
		out.dims[d] = add(nil, repeated(count))
		return &out
	}
	whole := int64(1)
	if step == 1 {
		whole = gcd(gcd(n, start), count)
	}
	major, low, ok := minor(l, whole)
	if !ok {
		whole, major, low = 1, l, nil
	}
	x := &use{s: u.s, t: u.t, n: u.n, in: []*piece{{base: p.base, coef: 1, dims: p.dims, held: p.held}}, held: make([]int, u.s.atoms())}
	dims := make([][]int, len(p.dims))
	for k := range dims {
		if k != d {
			dims[k] = x.one(0, k)
		}
	}
	x.inner(0, major)
	x.minor = x.loopsOf([][]digit{low}, false)
	dims[d] = append([]int{ownSize(0)}, x.minor...)
	name := nameSlice + " " + strconv.FormatInt(start/whole, 10) + " " + strconv.FormatInt(step, 10)
	r := x.block(name, dims, []int64{count / whole})
	r.coef *= p.coef
	return r
}

// cat joins along a dimension, of which what is minor and common is a loop.
func (u *use) cat() {
	d := int(u.int("dim", 0))
	whole := int64(0)
	for k := range u.in {
		whole = gcd(whole, u.sizes(k)[d])
	}
	dims := make([][]int, len(u.in[0].dims))
	for e := range dims {
		if e != d {
			dims[e] = u.align(slices.Repeat([]int{e}, len(u.in)), false)
		}
	}
	lists, majors := make([][]digit, len(u.in)), make([][]digit, len(u.in))
	for k, p := range u.in {
		var ok bool
		if majors[k], lists[k], ok = minor(p.dims[d], whole); !ok {
			whole = 1
			break
		}
	}
	n := int64(0)
	for k, p := range u.in {
		if whole == 1 {
			majors[k], lists[k] = p.dims[d], []digit{}
		}
		u.inner(k, majors[k])
		n += places(majors[k])
	}
	u.minor = u.loopsOf(lists, false)
	dims[d] = append([]int{ownSize(0)}, u.minor...)
	u.set(u.block(nameCat, dims, []int64{n}))
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
		base, where := u.t.folded(u.n.Op().Name(), u.operands()[0], u.loops)
		u.set(u.finish(1, base, where, out))
	}
}

// matmul is a sum of products over the inner dimension.
func (u *use) matmul() {
	i := len(u.in) - 2
	a, b := i, i+1
	rank := len(u.in[a].dims)
	dims := func(l, m int) []int {
		out := slices.Repeat([]int{none}, len(u.in))
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
			if dims[k] = none; e >= 0 && places(p.dims[e]) == n {
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

// lookup takes places of one dimension of operand 0 by the numbers in operand 1.
func (u *use) lookup() {
	d := 0
	if u.n.Op() == ir.OpIndex {
		l := u.n.Attrs().Ints("dims")
		if len(l) != 1 || len(u.in) != 2 {
			u.alone()
			return
		}
		d = int(l[0])
	}
	var dims [][]int
	for e := range u.in[0].dims {
		if e != d {
			dims = append(dims, u.one(0, e))
			continue
		}
		for k := range u.in[1].dims {
			dims = append(dims, u.one(1, k))
		}
	}
	u.inner(0, u.in[0].dims[d])
	u.set(u.block(nameLookup, dims, nil))
}

// gather takes elements along a dimension by the numbers in operand 1, in the same place of
// the others.
func (u *use) gather() {
	d := int(u.int("dim", 0))
	if !slices.Equal(slices.Delete(slices.Clone(u.sizes(0)), d, d+1), slices.Delete(slices.Clone(u.sizes(1)), d, d+1)) {
		u.alone()
		return
	}
	dims := make([][]int, len(u.in[0].dims))
	for e := range dims {
		if e == d {
			dims[e] = u.one(1, e)
		} else {
			dims[e] = u.align([]int{e, e}, false)
		}
	}
	u.inner(0, u.in[0].dims[d])
	u.set(u.block(nameLookup, dims, nil))
}

// put adds rows to operand 0 at places of one dimension.
func (u *use) put() {
	l, alpha := u.n.Attrs().Ints("dims"), 1.0
	to, vals, ids := 0, 1, 2
	adds := u.n.Attrs().Bool("accumulate", false)
	if u.n.Op() == ir.OpIndexAdd {
		l, vals, ids, alpha, adds = []int64{u.int("dim", 0)}, 2, 1, u.n.Attrs().Float("alpha", 1), true
	}
	if len(l) != 1 || len(u.in) != 3 || !adds || !u.n.Result(0).Type().DType().IsFloat() {
		u.alone()
		return
	}
	d, rows := int(l[0]), u.sizes(ids)
	size := u.sizes(to)
	if !slices.Equal(u.sizes(vals), slices.Concat(size[:d], rows, size[d+1:])) { // broadcast
		u.alone()
		return
	}
	x := &use{s: u.s, t: u.t, n: u.n, in: []*piece{u.in[vals], u.in[ids]}, held: make([]int, u.s.atoms())}
	for k := range rows {
		x.align([]int{d + k, k}, true)
	}
	var dims [][]int
	for e := range size {
		switch {
		case e < d:
			dims = append(dims, x.one(0, e))
		case e > d:
			dims = append(dims, x.one(0, e-1+len(rows)))
		default:
			dims = append(dims, []int{ownSize(0)})
		}
	}
	coef := u.in[vals].coef
	x.operands()[0].coef = 1
	p := x.block(namePut, dims, []int64{size[d]})
	p.coef *= coef
	y := &use{s: u.s, t: u.t, n: u.n, in: []*piece{u.in[to], p}, held: make([]int, u.s.atoms())}
	u.set(y.sum(1, alpha))
}

// scatter sees one dimension of all operands whole, and the others place by place where all
// have them.
func (u *use) scatter() {
	d := int(u.int("dim", 0))
	var sizes []int64
	dims := make([][]int, len(u.in[0].dims))
	for e, n := range u.sizes(0) {
		same := true
		for k := range u.in {
			same = same && u.sizes(k)[e] == n
		}
		if e != d && same {
			dims[e] = u.align(slices.Repeat([]int{e}, len(u.in)), false)
			continue
		}
		for k, p := range u.in {
			u.inner(k, p.dims[e])
		}
		dims[e], sizes = []int{ownSize(len(sizes))}, append(sizes, u.result(0)[e])
	}
	u.set(u.block(u.name(0), dims, sizes))
}

// windows sees the dimensions whole along which a window is longer than one place, or moves.
func (u *use) windows() {
	window := u.n.Attrs().Ints("window")
	var sizes []int64
	dims := make([][]int, len(u.in[0].dims))
	for e, n := range u.sizes(0) {
		if window[e] == 1 && u.result(0)[e] == n && len(u.in) == 1 && !u.moves(e) {
			dims[e] = u.one(0, e)
			continue
		}
		for k, p := range u.in {
			u.inner(k, p.dims[e])
		}
		dims[e], sizes = []int{ownSize(len(sizes))}, append(sizes, u.result(0)[e])
	}
	u.set(u.block(u.name(0), dims, sizes))
}

// moves reports whether a window's attributes say anything of a dimension.
func (u *use) moves(e int) bool {
	for key, plain := range map[string]int64{"strides": 1, "base_dilation": 1, "window_dilation": 1, "reverse": 0} {
		if l := u.n.Attrs().Ints(key); l != nil && l[e] != plain {
			return true
		}
	}
	l := u.n.Attrs().Ints("padding")
	return l != nil && (l[2*e] != 0 || l[2*e+1] != 0)
}

// convolution is a sum over channels of windows; batches and rows are loops.
func (u *use) convolution() {
	if u.int("batch_groups", 1) != 1 {
		u.alone()
		return
	}
	sizes := u.result(0)
	dims := [][]int{u.one(0, 0)}
	name, more := nameConv, []int64(nil)
	if u.int("groups", 1) == 1 {
		dims = append(dims, u.one(1, 0))
		u.align([]int{1, 1}, true)
	} else {
		name = "grouped " + nameConv
		u.inner(0, u.in[0].dims[1])
		u.inner(1, u.in[1].dims[0])
		u.inner(1, u.in[1].dims[1])
		dims, more = append(dims, []int{ownSize(len(sizes) - 2)}), sizes[1:2]
	}
	for d := 2; d < len(sizes); d++ {
		u.inner(0, u.in[0].dims[d])
		u.inner(1, u.in[1].dims[d])
		dims = append(dims, []int{ownSize(d - 2)})
	}
	coef := 1.0
	for k := range u.operands() {
		coef *= u.args[k].coef
		u.args[k].coef = 1
	}
	p := u.block(name+" "+u.n.Attrs().String(), dims, slices.Concat(sizes[2:], more))
	p.coef *= coef
	u.set(p)
}

// attention is one of each batch and head; several heads may have keys in common.
func (u *use) attention() {
	q := 0
	if u.n.Op() == ir.OpAttentionBackward {
		q = 1
	}
	batch, heads, groups := u.sizes(q)[0], u.sizes(q)[1], u.sizes(q + 1)[1]
	if heads%groups != 0 {
		u.alone()
		return
	}
	if u.n.Attrs().Float("dropout", 0) != 0 {
		refuse("dropout is random")
	}
	var out []*piece
	for i := range u.n.Results() {
		sizes := u.result(i)
		if len(sizes) != 4 { // what dropout would need
			out = append(out, &piece{base: u.t.one, held: u.everywhere(), dims: make([][]digit, len(sizes))})
			continue
		}
		x := &use{s: u.s, t: u.t, n: u.n, in: u.in, held: make([]int, u.s.atoms())}
		by := make([][]digit, len(u.in))    // batches
		group := make([][]digit, len(u.in)) // of heads
		each := make([][]digit, len(u.in))  // head of a group
		for k, p := range u.in {
			if len(p.dims) != 4 {
				continue
			}
			if u.sizes(k)[0] == batch {
				by[k] = append([]digit{}, p.dims[0]...)
			}
			var ok bool
			switch u.sizes(k)[1] {
			case heads:
				group[k], each[k], ok = minor(p.dims[1], heads/groups)
			case groups:
				group[k], ok = append([]digit{}, p.dims[1]...), true
			default:
				ok = u.sizes(k)[1] == 1
			}
			if !ok {
				panic(uneven{})
			}
			for _, l := range p.dims[2:] {
				x.inner(k, l)
			}
		}
		b, g, e := x.loopsOf(by, false), x.loopsOf(group, false), x.loopsOf(each, false)
		h := slices.Concat(g, e)
		if sizes[1] != heads { // summed over the heads of each group
			h = g
			for _, i := range e {
				x.loops[i].summed = true
			}
		}
		dims := [][]int{b, h, {ownSize(0)}, {ownSize(1)}}
		out = append(out, x.block(u.n.Op().Name()+" "+u.n.Attrs().String()+" "+strconv.Itoa(i), dims, sizes[2:]))
	}
	u.set(out...)
}
