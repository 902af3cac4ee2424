package mesh

import (
	"slices"

	"github.com/seed-ee968945/concert/equiv/mesh/internal/digits"
	"github.com/seed-ee968945/concert/equiv/mesh/internal/normal"
	winattr "github.com/seed-ee968945/concert/internal/window"
	"github.com/seed-ee968945/concert/ir"
)

// This file has windows that slide: what they see are views, and convolutions are products of
// these, summed over places in the window, folds of windows folds.

// or is what f makes, or what else does where digits are uneven or f makes nothing.
func or(f, other func() *normal.Tensor) (p *normal.Tensor) {
	if digits.Attempt(func() bool {
		p = f()
		return p != nil
	}) {
		return p
	}
	return other()
}

// opaque is an operation of one result that sees its operands whole.
func (s *step) opaque() *normal.Tensor { return s.alone()[0] }

// windows folds what windows see.
func (s *step) windows() *normal.Tensor { return or(s.folds, s.opaque) }

func (s *step) folds() *normal.Tensor {
	a, dt := s.n.Attrs(), s.dtype()
	how := map[string]string{"sum": normal.Sum, "max": normal.Max, "min": normal.Min, "product": normal.Prod}[a.Str("reduce", "")]
	dims, err := winattr.Parse(a.Ints, a.Ints("window"))
	if err != nil || len(s.in) > 1 || how == "" || dt != s.n.Arg(0).Type().DType() || dt == ir.Bool {
		return nil
	}
	p, k := s.in[0], 0
	var places []int
	for d, w := range dims {
		if w.Size == 1 && w.Stride == 1 && w.Low == 0 && w.High == 0 && w.Base == 1 {
			k++
			continue
		}
		p = s.m.Windows(p, k, w, s.result(0)[d], s.neutral(how))
		places = append(places, k+1)
		k += 2
	}
	return s.m.Reduce(how, p, places, nil)
}

// runningSum is a sum of windows over all that is in front of each place.
func (s *step) runningSum() *normal.Tensor {
	return or(func() *normal.Tensor {
		if s.dtype() == ir.Bool {
			return nil
		}
		d := s.dim()
		n := s.sizes(0)[d]
		p := s.m.Windows(s.in[0], d, winattr.Dim{Size: n, Stride: 1, Low: n - 1, Base: 1, Dilation: 1}, n, s.t.Real(0))
		return s.m.Reduce(normal.Sum, p, []int{d + 1}, nil)
	}, s.along)
}

// convolution is a sum over channels and windows of products; batches and rows are loops,
// and groups, of the channels or of the batch, are one of both operands.
func (s *step) convolution() *normal.Tensor {
	if s.int("batch_groups", 1) != 1 {
		return or(s.products, s.opaque)
	}
	return or(s.products, s.convolved)
}

func (s *step) products() *normal.Tensor {
	dims, err := winattr.Parse(s.n.Attrs().Ints, s.sizes(1)[2:])
	if err != nil {
		return nil
	}
	p := s.in[0]
	var at []int // by dimension: where windows stand
	for d, w := range dims {
		k := 2 + 2*d
		p = s.m.Windows(p, k, w, s.result(0)[2+d], s.t.Real(0))
		at = append(at, k)
	}
	x := s.m.Op(p, s.in[1])
	groups, batches := s.int("groups", 1), s.int("batch_groups", 1)
	group, channels, ok := digits.Minor(p.Dims[1], s.sizes(1)[1])
	major, batch, ok2 := digits.Minor(p.Dims[0], s.sizes(0)[0]/batches)
	group2, rows, ok3 := digits.Minor(s.in[1].Dims[0], s.sizes(1)[0]/(groups*batches))
	if !ok || !ok2 || !ok3 {
		return nil
	}
	list := func(l []digits.Digit) []digits.Digit { return append([]digits.Digit{}, l...) }
	out := [][]int{x.Loops([][]digits.Digit{list(batch), nil}, false), nil}
	g := x.Loops([][]digits.Digit{append(list(major), group...), list(group2)}, false)
	out[1] = append(g, x.Loops([][]digits.Digit{nil, list(rows)}, false)...)
	x.Loops([][]digits.Digit{list(channels), list(s.in[1].Dims[1])}, true)
	for d, k := range at {
		out = append(out, x.Parallel(0, k))
		x.Align([]int{k + 1, 2 + d}, true)
	}
	return x.Contract(out)
}

// convolved is a convolution of which no more is known than what it sees.
func (s *step) convolved() *normal.Tensor {
	sizes, x := s.result(0), s.m.Op(s.in...)
	dims := [][]int{x.Parallel(0, 0)}
	name, more := normal.Convolution, []int64(nil)
	if s.int("groups", 1) == 1 {
		dims = append(dims, x.Parallel(1, 0))
		x.Align([]int{1, 1}, true)
	} else {
		name = normal.GroupedConvolution
		x.Inner(0, s.in[0].Dims[1])
		x.Inner(1, s.in[1].Dims[0])
		x.Inner(1, s.in[1].Dims[1])
		dims, more = append(dims, []int{normal.Own(len(sizes) - 2)}), sizes[1:2]
	}
	for d := 2; d < len(sizes); d++ {
		x.Inner(0, s.in[0].Dims[d])
		x.Inner(1, s.in[1].Dims[d])
		dims = append(dims, []int{normal.Own(d - 2)})
	}
	return x.Generic(name+" "+s.n.Attrs().String(), dims, slices.Concat(sizes[2:], more))
}
