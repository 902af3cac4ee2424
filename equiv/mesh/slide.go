package mesh

import (
	"math"
	"slices"

	"github.com/seed-ee968945/concert/equiv/mesh/internal/digits"
	winattr "github.com/seed-ee968945/concert/internal/window"
	"github.com/seed-ee968945/concert/ir"
)

// This file has windows that slide: what they see are views, and convolutions are products of
// these, summed over places in the window, folds of windows folds.

// laidOver is a tensor with a dimension for where a window stands and one for the place in it, in
// the place of dimension d.
func (u *use) laidOver(p *piece, d int, w winattr.Dim, count int64, fill arg) *piece {
	l := digits.Joined(p.dims[d])
	if len(l) > 1 {
		panic(digits.Uneven{})
	}
	v := view{arg: arg{base: p.base, coef: p.coef}, inner: append(l, digits.Repeated(1))[0], off: -w.Low, dil: w.Base, fill: &fill}
	at, in := axis{count, digits.Repeated(count), w.Stride}, axis{w.Size, digits.Repeated(w.Size), w.Dilation}
	if w.Reverse {
		v.off, in.coef = v.off+(w.Size-1)*w.Dilation, -w.Dilation
	}
	v.axes = []axis{at, in}
	for e, ds := range p.dims {
		for _, y := range ds {
			if e != d {
				v.axes = append(v.axes, axis{y.Size, y, 0})
			}
		}
	}
	for _, y := range p.held {
		v.axes = append(v.axes, axis{y.Size, y, 0})
	}
	c, e, where := u.t.view(v)
	out := &piece{base: e, coef: c}
	k := 2
	for f, ds := range p.dims {
		if f == d {
			out.dims = append(out.dims, digits.Joined(where[0]), digits.Joined(where[1]))
			continue
		}
		out.dims = append(out.dims, digits.Flat(where[k:k+len(ds)]))
		k += len(ds)
	}
	out.held = digits.Singles(where[k:])
	out.check()
	return out
}

// windows folds what windows see.
func (u *use) windows() {
	if !digits.Attempt(u.folds) {
		u.alone()
	}
}

func (u *use) folds() bool {
	a, dt := u.n.Attrs(), u.n.Result(0).Type().DType()
	how := a.Str("reduce", "")
	dims, err := winattr.Parse(a.Ints, a.Ints("window"))
	if err != nil || len(u.in) > 1 || how == "argmax" || dt != u.n.Arg(0).Type().DType() || dt == ir.Bool {
		return false
	}
	fill := arg{base: u.t.one, coef: 0}
	if how == "product" {
		fill.coef = 1
	}
	if how == "max" || how == "min" {
		least, largest := u.t.extremes(dt)
		if fill = least; how == "min" {
			fill = largest
		}
	}
	p, k := u.in[0], 0
	x := u.of(p)
	var summed []int
	for d, w := range dims {
		if w.Size == 1 && w.Stride == 1 && w.Low == 0 && w.High == 0 && w.Base == 1 {
			k++
			continue
		}
		p = x.laidOver(p, k, w, u.result(0)[d], fill)
		summed = append(summed, k+1)
		k += 2
	}
	x = u.of(p)
	var out [][]int
	for d := range p.dims {
		if slices.Contains(summed, d) {
			x.align([]int{d}, true)
		} else {
			out = append(out, x.one(0, d))
		}
	}
	x.ranks()
	if how == "sum" {
		coef, base, where := u.t.multiply(x.operands(), x.loops)
		u.set(x.finish(coef, base, where, out))
		return true
	}
	name := map[string]string{"max": "amax", "min": "amin", "product": "prod"}[how]
	coef, base, where := u.t.folded(name, x.operands()[0], x.loops)
	u.set(x.finish(coef, base, where, out))
	return true
}

// runningSum is a sum of windows over all that is in front of each place.
func (u *use) runningSum() {
	if !digits.Attempt(func() bool {
		d := int(u.int("dim", 0))
		n := u.sizes(0)[d]
		p := u.laidOver(u.in[0], d, winattr.Dim{Size: n, Stride: 1, Low: n - 1, Base: 1, Dilation: 1}, n, arg{base: u.t.one})
		u.set(u.summed(p, d+1))
		return u.n.Result(0).Type().DType() != ir.Bool
	}) {
		u.along()
	}
}

// extremes are the numbers of a type that no maximum and no minimum sees.
func (t *table) extremes(dt ir.DType) (arg, arg) {
	if dt.IsFloat() {
		if lo, hi := dt.Ends(); !math.IsInf(hi, 1) {
			return arg{base: t.one, coef: lo}, arg{base: t.one, coef: hi}
		}
		return arg{base: t.leaf(least), coef: 1}, arg{base: t.leaf(largest), coef: 1}
	}
	lo, hi := dt.Range()
	return t.integer(lo), t.integer(hi)
}

// convolution is a sum over channels and windows of products; batches and rows are loops,
// and groups, of the channels or of the batch, are one of both operands.
func (u *use) convolution() {
	switch {
	case digits.Attempt(u.products):
	case u.int("batch_groups", 1) != 1:
		u.alone()
	default:
		u.convolved()
	}
}

func (u *use) products() bool {
	a := u.n.Attrs()
	dims, err := winattr.Parse(a.Ints, u.sizes(1)[2:])
	if err != nil {
		return false
	}
	p := u.in[0]
	var at []int // by dimension: where windows stand
	for d, w := range dims {
		k := 2 + 2*d
		p = u.of(p).laidOver(p, k, w, u.result(0)[2+d], arg{base: u.t.one})
		at = append(at, k)
	}
	x := u.of(p, u.in[1])
	groups, batches := u.int("groups", 1), u.int("batch_groups", 1)
	group, channels, ok := digits.Minor(p.dims[1], u.sizes(1)[1])
	major, batch, ok2 := digits.Minor(p.dims[0], u.sizes(0)[0]/batches)
	group2, rows, ok3 := digits.Minor(u.in[1].dims[0], u.sizes(1)[0]/(groups*batches))
	if !ok || !ok2 || !ok3 {
		return false
	}
	list := func(l []digits.Digit) []digits.Digit { return append([]digits.Digit{}, l...) }
	out := [][]int{x.loopsOf([][]digits.Digit{list(batch), nil}, false), nil}
	g := x.loopsOf([][]digits.Digit{append(list(major), group...), list(group2)}, false)
	out[1] = append(g, x.loopsOf([][]digits.Digit{nil, list(rows)}, false)...)
	x.loopsOf([][]digits.Digit{list(channels), list(u.in[1].dims[1])}, true)
	for d, k := range at {
		out = append(out, x.one(0, k))
		x.align([]int{k + 1, 2 + d}, true)
	}
	x.ranks()
	coef, base, where := u.t.multiply(x.operands(), x.loops)
	u.set(x.finish(coef, base, where, out))
	return true
}

// convolved is a convolution of which no more is known than what it sees.
func (u *use) convolved() {
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
