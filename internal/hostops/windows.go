package hostops

import (
	"slices"

	"github.com/seed-ee968945/concert/internal/window"
)

// runReduceWindow folds the elements of each window. Padding and what lies between the
// elements of a dilated operand is not there. With operand 1, only those elements count that
// have the place in the window that it says for them.
func runReduceWindow(c *call) error {
	out, x := &c.outs[0], &c.ins[0]
	sizes := c.intsAttr("window")
	if c.bad == nil && len(sizes) != len(x.Shape) {
		c.bad = c.fail(ErrAttr, "a window of %d dimensions for %v", len(sizes), x.Shape)
	}
	dims := c.windowAttrs(sizes)
	how := c.strAttr("reduce", "")
	if c.bad != nil {
		return c.bad
	}
	var want []int64
	for d := range dims {
		want = append(want, dims[d].Count(x.Shape[d]))
	}
	if !slices.Equal(out.Shape, want) {
		return c.outErr(0, ErrShape, "%v, want %v", out.Shape, want)
	}
	if len(c.ins) > 1 && (!slices.Equal(c.ins[1].Shape, x.Shape) || !c.ins[1].DType.IsInt()) {
		return c.inErr(1, ErrShape, "%v is not a place for each element of %v", c.ins[1], x.Shape)
	}
	if out.NumElems() == 0 {
		return nil
	}
	w := &sliding{c: c, dims: dims}
	if how == "argmax" {
		if len(c.ins) > 1 || !out.DType.IsInt() {
			return c.fail(ErrArity, "argmax takes one operand and gives integers")
		}
		switch domainOf(x.DType) {
		case domI64:
			reduceWindows(w, fold[int64]{}, true)
		case domU64:
			reduceWindows(w, fold[uint64]{}, true)
		default:
			reduceWindows(w, fold[float64]{}, true)
		}
		return nil
	}
	r, ok := map[string]reduction{"sum": redSum, "product": redProd, "max": redMax, "min": redMin}[how]
	if !ok {
		return c.fail(ErrAttr, "reduce=%q", how)
	}
	dom := domainOf(out.DType, x.DType)
	r = r.of(x.DType)
	switch {
	case !dom.isInt():
		reduceWindows(w, r.f, false)
	case dom == domU64 && r.u != nil:
		reduceWindows(w, *r.u, false)
	default:
		reduceWindows(w, r.i, false)
	}
	return nil
}

// sliding is windows over a call's operand.
type sliding struct {
	c    *call
	dims []window.Dim
}

// reduceWindows computes rows of windows along the last dimension. argmax is the place of
// the first largest element, of the last that is no number, 0 where there is none; f is not used then.
func reduceWindows[A acc](w *sliding, f fold[A], argmax bool) {
	out, x := atLeast1(w.c.outs[0]), atLeast1(w.c.ins[0])
	dims := w.dims
	if len(dims) == 0 {
		dims = []window.Dim{{Size: 1, Stride: 1, Base: 1, Dilation: 1}}
	}
	last := len(dims) - 1
	phases := dims[last].Phases(out.Shape[last])
	taps := int64(1)
	for _, d := range dims {
		taps *= d.Size
	}
	width := out.Shape[last]
	rows := newNest(out.Shape[:last], false, cursor{out.Offset, out.Strides[:last]})
	parallel(rows.size(), width*taps, func(_ *memory, lo, hi int64) {
		r := &windowRow[A]{x: &x, dims: dims, f: f, argmax: argmax, acc: make([]A, width), at: make([]int64, width), xs: make([]A, width), index: make([]int64, last)}
		if len(w.c.ins) > 1 {
			p := atLeast1(w.c.ins[1])
			r.places, r.ps = &p, make([]int64, width)
		}
		row := lo
		rows.each(lo, hi, 1, func(off []int64, _ int64) {
			rest := row
			for d := last - 1; d >= 0; d-- {
				r.index[d], rest = rest%out.Shape[d], rest/out.Shape[d]
			}
			row++
			for _, p := range phases {
				r.phase(p)
				to, step := off[0]+p.First*out.Strides[last], p.Step*out.Strides[last]
				if argmax {
					for i := range r.at[:p.Count] {
						r.at[i] = max(r.at[i], 0)
					}
					store(&out, to, step, r.at[:p.Count])
				} else {
					store(&out, to, step, r.acc[:p.Count])
				}
			}
		})
	})
}

// windowRow folds one row of windows after the other.
type windowRow[A acc] struct {
	x, places *Tensor
	dims      []window.Dim
	f         fold[A]
	argmax    bool
	index     []int64 // of the row
	acc, xs   []A
	at, ps    []int64
}

// phase folds the windows of a row that meet elements at the same places.
func (r *windowRow[A]) phase(p window.Phase) {
	for i := range p.Count {
		r.acc[i], r.at[i] = r.f.init, -1
	}
	offP := int64(0)
	if r.places != nil {
		offP = r.places.Offset
	}
	r.outer(0, 0, r.x.Offset, offP, p)
}

// outer walks the places of the window along all dimensions but the last.
func (r *windowRow[A]) outer(d int, place, off, offP int64, p window.Phase) {
	w := r.dims[d]
	if d == len(r.dims)-1 {
		for i := range p.Taps {
			r.line(place*w.Size+p.Tap+i*p.TapStep, off, offP, p.Start+i*p.TapMove, p)
		}
		return
	}
	for k := range w.Size {
		at := r.index[d]*w.Stride + k*w.Dilation - w.Low
		if at < 0 || at%w.Base != 0 || at/w.Base >= r.x.Shape[d] {
			continue
		}
		at /= w.Base
		next := offP
		if r.places != nil {
			next += at * r.places.Strides[d]
		}
		r.outer(d+1, place*w.Size+k, off+at*r.x.Strides[d], next, p)
	}
}

// line folds what lies under one place of a row of windows, the first of which meets
// element start there.
func (r *windowRow[A]) line(place, off, offP, start int64, p window.Phase) {
	d := len(r.dims) - 1
	lo, hi := int64(0), int64(0)
	if start < 0 {
		lo = (-start + p.Move - 1) / p.Move
	}
	if end := r.x.Shape[d] - 1 - start; end >= 0 {
		hi = min(p.Count, end/p.Move+1)
	}
	if lo >= hi {
		return
	}
	xs := r.xs[:hi-lo]
	load(xs, r.x, off+(start+lo*p.Move)*r.x.Strides[d], p.Move*r.x.Strides[d])
	acc, at := r.acc[lo:hi], r.at[lo:hi]
	if r.argmax {
		for i, v := range xs {
			if at[i] < 0 || v > acc[i] || v != v {
				acc[i], at[i] = v, place
			}
		}
		return
	}
	if r.places != nil {
		ps := r.ps[:hi-lo]
		load(ps, r.places, offP+(start+lo*p.Move)*r.places.Strides[d], p.Move*r.places.Strides[d])
		for i, q := range ps {
			if q != place {
				xs[i] = r.f.init
			}
		}
	}
	r.f.column(acc, xs)
}
