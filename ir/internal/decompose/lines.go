package decompose

import (
	"slices"

	"github.com/seed-ee968945/concert/ir"
)

// lines is a gather or scatter in which every element of a batch looks into a line of its
// own: one dimension is looked up by single positions, and all others that are go with the
// batch. Such are the operations gather and scatter.
type lines struct {
	w     *windows
	dim   int       // the dimension of the lines
	order []int     // dimensions of the tensor: those of the batch, dim, the others
	axes  []int     // dimensions of the batch: those that number lines, then the rest, which number places
	lined []int64   // sizes of the first
	count int64     // places in each line
	at    *ir.Value // the places, [lined..., count]
}

// lines finds the form, nil if it is another one.
func (w *windows) lines() *lines {
	l := &lines{w: w, dim: -1, count: 1}
	for _, d := range w.looked {
		switch {
		case w.batched[d] >= 0:
			l.order, l.axes, l.lined = append(l.order, d), append(l.axes, w.batched[d]), append(l.lined, w.shape[d])
		case l.dim < 0 && w.slices[d] == 1 && w.starts[d] != nil:
			l.dim = d
		default:
			return nil
		}
	}
	if len(l.axes) == 0 || l.dim < 0 {
		return nil
	}
	l.order = slices.Concat(l.order, []int{l.dim}, w.others)
	for i, n := range w.batch {
		if !slices.Contains(l.axes, i) {
			l.axes = append(l.axes, i)
			l.count *= n
		}
	}
	l.at = w.e.view(w.e.permute(w.e.expand(w.starts[l.dim], w.batch), l.axes), append(slices.Clone(l.lined), l.count))
	return l
}

// wide is something of each place over the others, too.
func (l *lines) wide(x *ir.Value) *ir.Value {
	shape := append(sizes(x), ones(len(l.w.others))...)
	return l.w.e.expand(l.w.e.view(x, shape), append(sizes(x), l.w.rest()...))
}

// ordered has the dimensions of (batch, inner, others) in the order of axes: dimension i of
// it is dimension ordered[i] of those.
func (l *lines) ordered(rank int) []int {
	out := slices.Clone(l.axes)
	for f := len(out); f < rank; f++ {
		out = append(out, f)
	}
	return out
}

func (l *lines) gather(x *ir.Value, from []int) *ir.Value {
	e := l.w.e
	at := e.one(ir.OpClamp, ir.A("min", 0, "max", l.w.shape[l.dim]-1), []*ir.Value{l.at})
	got := e.one(ir.OpGather, ir.A("dim", len(l.lined)), []*ir.Value{e.permute(x, l.order), l.wide(at)})
	ordered := l.ordered(len(from))
	shape, back := make([]int64, len(from)), make([]int, len(from))
	for i, f := range ordered {
		shape[i] = l.w.arranged()[f]
	}
	for r, f := range from {
		back[r] = slices.Index(ordered, f)
	}
	return e.permute(e.view(got, shape), back)
}

// joins reports whether scatter does what a body asks for. Of several updates of one place
// none may be left out, hence single ones where they replace.
func (l *lines) joins(p *probed) bool {
	for i := range p.n {
		switch p.kind(i) {
		case kindAdd, kindMul, kindMax, kindMin:
		case kindSecond:
			if l.count > 1 {
				return false
			}
		default:
			return false
		}
	}
	return true
}

func (l *lines) scatter(p *probed, xs, updates []*ir.Value, from []int) []*ir.Value {
	e := l.w.e
	n := l.w.shape[l.dim]
	outside := l.wide(e.outside(l.at, n))
	at := l.wide(e.one(ir.OpClamp, ir.A("min", 0, "max", n-1), []*ir.Value{l.at}))
	places := make([]int, len(from))
	for i, f := range l.ordered(len(from)) {
		places[i] = slices.Index(from, f)
	}
	out := make([]*ir.Value, len(xs))
	for i, x := range xs {
		x = e.permute(x, l.order)
		values := e.view(e.permute(updates[i], places), sizes(at))
		attrs := ir.A("dim", len(l.lined))
		k := p.kind(i)
		if k == kindSecond {
			values = e.where(outside, e.one(ir.OpGather, attrs, []*ir.Value{x, at}), values)
		} else {
			values = e.where(outside, e.nothing(k, x.Type().DType()), values)
			attrs = ir.A("dim", len(l.lined), "reduce", scatterNames[k])
		}
		out[i] = l.w.back(e.one(ir.OpScatter, attrs, []*ir.Value{x, at, values}), l.order)
	}
	return out
}
