package normal

import (
	"math"
	"slices"
	"strconv"

	"github.com/seed-ee968945/concert/equiv/mesh/internal/digits"
	winattr "github.com/seed-ee968945/concert/internal/window"
)

// Slices, windows that slide, and what ranks take of their neighbours' rows are all one: a tensor
// that is read at a place that is affine in some digits, and a number where there is no such
// place. A window of a window is one, rows that come from several ranks and are concatenated are one,
// and so a window that each rank lays over the rows that it took is the window over all. What is
// read at all of its places in order is no window, and what a digit only carries along is a loop.

// view is a tensor read at places of one of its digits: at (off + the sum of coef * loop) / dilation.
type view struct {
	arg   arg
	inner digits.Digit // the places; none if the tensor is the same at all of them
	off   int64
	dil   int64
	fill  *arg // what it is elsewhere, and between places that are dilated
	axes  []axis
	part  bool // what it was before has been cut, so that it may read less than there is
}

// axis is a loop of a view: the tensor has a digit of it, or the place depends on it.
type axis struct {
	size int64
	at   digits.Digit
	coef int64
}

// window is what tells a base that is a view from others.
type window struct {
	off, dil int64
	fill     *arg
	coefs    []int64 // by size of its own
}

// mulExact is a product; numbers too large for places are none.
func mulExact(a, b int64) int64 {
	if x := float64(a) * float64(b); x > 1<<60 || x < -1<<60 {
		panic(digits.Uneven{})
	}
	return a * b
}

// span is the least and the largest place of a view.
func (v *view) span() (lo, hi int64) {
	lo, hi = v.off, v.off
	for _, a := range v.axes {
		if d := mulExact(a.coef, a.size-1); d < 0 {
			lo += d
		} else {
			hi += d
		}
	}
	return lo, hi
}

// overruns report whether places lie in front of the first one, or after the last one.
func (v *view) overruns() (low, high bool) {
	lo, hi := v.span()
	return lo < 0, hi > (v.inner.Size-1)*v.dil
}

func (v *view) isPadded() bool {
	low, high := v.overruns()
	return low || high || v.dil > 1
}

// viewResult is what a view was found to be, nothing while it is looked for or where it is none.
type viewResult struct {
	coef  float64
	base  *expr
	where [][]digits.Digit
}

// view is the base of a view: a factor, and for each axis the digits that are it, major first.
// Views are found once: of what is computed of several views of one tensor, and so on, there
// are twice as many ways down with each step. One that leads to itself is none.
func (t *Table) view(v view) (float64, *expr, [][]digits.Digit) {
	key := v.key()
	x, ok := t.views[key]
	if !ok {
		t.views[key] = x
		x.coef, x.base, x.where = t.normalizeView(v)
		t.views[key] = x
	}
	if x.base == nil {
		panic(digits.Uneven{})
	}
	where := make([][]digits.Digit, len(x.where))
	for i, l := range x.where {
		where[i] = slices.Clone(l)
	}
	return x.coef, x.base, where
}

// key is what tells views apart.
func (v *view) key() string {
	b := strconv.AppendInt(nil, int64(v.arg.base.id), 10)
	put := func(l ...int64) {
		for _, n := range l {
			b = strconv.AppendInt(append(b, ' '), n, 10)
		}
	}
	put(int64(math.Float64bits(v.arg.coef)), int64(v.inner.Dim), v.inner.Stride, v.inner.Size, v.off, v.dil)
	if v.fill != nil {
		put(int64(v.fill.base.id), int64(math.Float64bits(v.fill.coef)))
	}
	b = strconv.AppendBool(append(b, ' '), v.part)
	for _, a := range v.axes {
		put(a.size, int64(a.at.Dim), a.at.Stride, a.at.Size, a.coef)
	}
	return string(b)
}

// normalizeView finds the base of a view.
func (t *Table) normalizeView(v view) (float64, *expr, [][]digits.Digit) {
	defer func(depth int) { t.depth = depth }(t.depth)
	t.depth++
	v.axes = slices.Clone(v.axes)
	were := map[string]bool{} // two may each want to be within the other
	for again := true; again; again = t.compose(&v) || t.reorder(&v) || t.dropUnread(&v) || v.onlyAxis() < 0 && t.padToView(&v) {
		t.spend(t.depth)
		key := v.key()
		if were[key] {
			panic(digits.Uneven{})
		}
		were[key] = true
		if !v.isPadded() {
			v.fill = nil
		} else if v.fill == nil {
			panic(digits.Uneven{})
		}
		v.toWholeDim()
	}
	for i := range v.axes {
		if a := &v.axes[i]; a.size == 1 {
			a.coef, a.at = 0, digits.Repeated(1)
		} else if a.coef != 0 && a.at.Dim != digits.None {
			panic(digits.Uneven{})
		}
	}
	if v.fill == nil && (v.arg.base == t.one || v.inner.Dim == digits.None) {
		where := make([][]digits.Digit, len(v.axes))
		for i, a := range v.axes {
			where[i] = []digits.Digit{a.at}
			if a.coef != 0 {
				where[i] = []digits.Digit{digits.Repeated(a.size)}
			}
		}
		return v.arg.coef, v.arg.base, where
	}
	if v.fill != nil && v.arg.coef != 1 && !t.is(*v.fill, 0) {
		panic(digits.Uneven{})
	}
	if c, e, where, ok := t.mergeAxes(&v); ok {
		return c, e, where
	}
	if c, e, where, ok := t.sliceOperands(&v); ok {
		return c, e, where
	}
	if c, e, where, ok := t.sliceAcross(&v); ok {
		return c, e, where
	}
	if v.part {
		t.trimOperands(&v)
	}
	return t.buildView(&v)
}

// mergeAxes is a view in which several axes count on as one.
func (t *Table) mergeAxes(v *view) (float64, *expr, [][]digits.Digit, bool) {
	rs := runs(v.terms())
	if len(rs) != 1 || len(rs[0]) < 2 {
		return 0, nil, nil, false
	}
	out := *v
	out.axes = []axis{{total(rs[0]), digits.Repeated(1), rs[0][len(rs[0])-1].coef}}
	for _, a := range v.axes {
		if a.coef == 0 {
			out.axes = append(out.axes, a)
		}
	}
	c, e, w := t.view(out)
	where, k := make([][]digits.Digit, len(v.axes)), 1
	for i, a := range v.axes {
		if a.coef == 0 {
			where[i], k = w[k], k+1
		}
	}
	rest := w[0]
	for _, x := range slices.Backward(rs[0]) {
		var ok bool
		if rest, where[x.axis], ok = digits.Minor(rest, x.size); !ok {
			panic(digits.Uneven{})
		}
		if where[x.axis] = digits.Joined(where[x.axis]); len(where[x.axis]) == 0 {
			where[x.axis] = []digits.Digit{digits.Repeated(1)}
		}
	}
	return c, e, where, true
}

// onlyAxis is the only axis on which the place depends, -1 if there are others or none.
func (v *view) onlyAxis() int {
	k := slices.IndexFunc(v.axes, func(a axis) bool { return a.coef != 0 })
	if k >= 0 && slices.ContainsFunc(v.axes[k+1:], func(a axis) bool { return a.coef != 0 }) {
		return -1
	}
	return k
}

// toWholeDim takes a place among all of the dimension that it is in, or if there are places outside
// among all that is minor to what bounds them.
func (v *view) toWholeDim() {
	d := v.inner
	n := d.Stride * d.Size
	if d.Dim == digits.None || v.dil > 1 {
		return
	}
	for _, a := range v.axes {
		if a.at.Dim == d.Dim && v.fill == nil {
			n = max(n, a.at.Stride*a.at.Size)
		}
	}
	v.off = mulExact(v.off, d.Stride)
	for i := range v.axes {
		a := &v.axes[i]
		if a.coef = mulExact(a.coef, d.Stride); a.at.Dim == d.Dim && a.at.Stride < n {
			a.coef, a.at = a.coef+a.at.Stride, digits.Repeated(a.size)
		}
	}
	v.inner = digits.Of(d.Dim, 1, n)
}

func (a *arg) equal(b *arg) bool { return b != nil && a.base == b.base && a.coef == b.coef }

// size is how many places there are in what a window is of.
func (w *window) size(e *expr) int64 { return digits.Places(e.args[0].inner) }

// restrict makes a view one of some places, from one to less than another, of what it is of.
func (t *Table) restrict(v *view, from, to int64) {
	x := view{arg: v.arg, inner: v.inner, off: from, dil: 1, axes: []axis{{to - from, digits.Repeated(1), 1}}}
	for _, a := range v.axes {
		x.axes = append(x.axes, axis{a.size, a.at, 0})
	}
	c, e, where := t.view(x)
	at := digits.Singles(where)
	v.arg, v.inner, v.off = arg{base: e, coef: c}, at[0], v.off-from*v.dil
	for i := range v.axes {
		v.axes[i].at = at[1+i]
	}
}

// Windows is a tensor with a dimension for where a window stands and one for the place in it, in
// the place of dimension d, and a number around it.
func (m *Mesh) Windows(p *Tensor, d int, w winattr.Dim, count int64, fill Operand) *Tensor {
	l := digits.Joined(p.Dims[d])
	if len(l) > 1 {
		panic(digits.Uneven{})
	}
	v := view{arg: arg{base: p.base, coef: p.coef}, inner: append(l, digits.Repeated(1))[0], off: -w.Low, dil: w.Base, fill: &fill}
	at, in := axis{count, digits.Repeated(count), w.Stride}, axis{w.Size, digits.Repeated(w.Size), w.Dilation}
	if w.Reverse {
		v.off, in.coef = v.off+(w.Size-1)*w.Dilation, -w.Dilation
	}
	held := make([]axis, len(p.Atoms))
	for a, y := range p.Atoms {
		held[a] = axis{y.Size, y, 0}
	}
	return m.t.viewOf(p, v, d, []axis{at, in}, held)
}

// viewOf is a view of a tensor, whose dimension d becomes those of some axes, and the atoms others.
func (t *Table) viewOf(p *Tensor, v view, d int, in, held []axis) *Tensor {
	v.axes = in
	for e, ds := range p.Dims {
		for _, y := range ds {
			if e != d {
				v.axes = append(v.axes, axis{y.Size, y, 0})
			}
		}
	}
	c, e, where := t.view(view{v.arg, v.inner, v.off, v.dil, v.fill, slices.Concat(v.axes, held), v.part})
	out := &Tensor{base: e, coef: c}
	k := len(in)
	for f, ds := range p.Dims {
		if f == d {
			for i := range in {
				out.Dims = append(out.Dims, digits.Joined(where[i]))
			}
			continue
		}
		out.Dims = append(out.Dims, digits.Flat(where[k:k+len(ds)]))
		k += len(ds)
	}
	out.Atoms = digits.Singles(where[k:])
	out.check()
	return out
}
