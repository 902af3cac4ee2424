package mesh

import (
	"slices"
	"strconv"

	"github.com/seed-ee968945/concert/equiv/mesh/internal/digits"
	"github.com/seed-ee968945/concert/ir"
)

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
	u.set(u.taken(d))
}

// taken are elements of operand 0 along a dimension, by the numbers in operand 1.
func (u *use) taken(d int) *piece {
	dims := make([][]int, len(u.in[0].dims))
	for e := range dims {
		if e == d {
			dims[e] = u.one(1, e)
		} else {
			dims[e] = u.align([]int{e, e}, false)
		}
	}
	u.inner(0, u.in[0].dims[d])
	return u.block(nameLookup, dims, nil)
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
	added := func(vals, at *piece, n int64) *piece {
		rows := slices.Clone(rows)
		for k := len(rows) - 1; k >= 0; k-- { // what goes to one place is summed before
			if rows[k] > 1 && !slices.ContainsFunc(at.dims[k], func(g digits.Digit) bool { return g.Dim != digits.None }) {
				vals, at = u.summed(vals, d+k), &piece{base: at.base, coef: at.coef, held: at.held, dims: slices.Delete(slices.Clone(at.dims), k, k+1)}
				rows = slices.Delete(rows, k, k+1)
			}
		}
		x := u.of(vals, at)
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
		coef := vals.coef
		x.operands()[0].coef = 1
		p := x.block(namePut, dims, []int64{n})
		p.coef *= coef
		return p
	}
	p := u.ownRows(u.in[vals], u.in[ids], d, size[d], added)
	if p == nil {
		p = added(u.in[vals], u.in[ids], size[d])
	}
	u.set(u.of(u.in[to], p).sum(1, alpha))
}

// summed is a tensor without a dimension, over which it is summed.
func (u *use) summed(p *piece, d int) *piece {
	x := u.of(p)
	var dims [][]int
	for e := range p.dims {
		if e == d {
			x.align([]int{e}, true)
		} else {
			dims = append(dims, x.one(0, e))
		}
	}
	x.ranks()
	coef, base, where := u.t.multiply(x.operands(), x.loops)
	return x.finish(coef, base, where, dims)
}

// scatter sees one dimension of all operands whole, and the others place by place where all
// have them.
func (u *use) scatter() {
	d := int(u.int("dim", 0))
	if u.n.Op() == ir.OpSliceScatter && u.replaced(d) || u.n.Op() == ir.OpScatter && u.marks(d) {
		return
	}
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

// replaced is operand 0 with operand 1 in the place of some of its rows, one after the other.
func (u *use) replaced(d int) bool {
	n, count, start := u.sizes(0)[d], u.sizes(1)[d], u.int("start", 0)
	if u.int("step", 1) != 1 || start < 0 || start+count > n {
		return false
	}
	var in []*piece
	if start > 0 {
		in = append(in, u.sliced(u.in[0], d, 0, start, 1))
	}
	if in = append(in, u.in[1]); start+count < n {
		in = append(in, u.sliced(u.in[0], d, start+count, n-start-count, 1))
	}
	if len(in) == 1 {
		u.set(in[0])
		return true
	}
	u.of(in...).cat()
	return true
}

// marks is a scatter of one element of each row, which is the one whose place is its index.
func (u *use) marks(d int) bool {
	size := u.sizes(0)
	row := slices.Clone(size)
	row[d] = 1
	dt := u.n.Result(0).Type().DType()
	if u.n.Attrs().Has("reduce") || !dt.IsFloat() || !slices.Equal(u.sizes(1), row) || len(u.in) > 2 && !slices.Equal(u.sizes(2), row) {
		return false
	}
	at := u.t.whole(plainIota, size[d:d+1])
	at.held = u.everywhere()
	at.dims = append(at.dims, make([][]digits.Digit, len(size)-d-1)...)
	it := u.n.Arg(1).Type().DType().String()
	cond := u.of(at, u.in[1]).real("eq  bool " + it + " " + it)
	value := u.number(u.in[1], u.n.Attrs().Float("value", 0))
	if len(u.in) > 2 {
		value = u.in[2]
	}
	u.set(u.of(cond, value, u.in[0]).chosen(dt))
	return true
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
			out = append(out, &piece{base: u.t.one, held: u.everywhere(), dims: make([][]digits.Digit, len(sizes))})
			continue
		}
		x := &use{s: u.s, t: u.t, n: u.n, in: u.in, held: make([]int, u.s.atoms())}
		by := make([][]digits.Digit, len(u.in))    // batches
		group := make([][]digits.Digit, len(u.in)) // of heads
		each := make([][]digits.Digit, len(u.in))  // head of a group
		for k, p := range u.in {
			if len(p.dims) != 4 {
				continue
			}
			if u.sizes(k)[0] == batch {
				by[k] = append([]digits.Digit{}, p.dims[0]...)
			}
			var ok bool
			switch u.sizes(k)[1] {
			case heads:
				group[k], each[k], ok = digits.Minor(p.dims[1], heads/groups)
			case groups:
				group[k], ok = append([]digits.Digit{}, p.dims[1]...), true
			default:
				ok = u.sizes(k)[1] == 1
			}
			if !ok {
				panic(digits.Uneven{})
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
