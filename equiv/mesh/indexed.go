package mesh

import (
	"slices"
	"strconv"

	"github.com/seed-ee968945/concert/equiv/mesh/internal/digits"
	"github.com/seed-ee968945/concert/equiv/mesh/internal/normal"
	"github.com/seed-ee968945/concert/ir"
)

// lookup takes places of one dimension of operand 0 by the numbers in operand 1.
func (s *step) lookup() *normal.Tensor {
	d := 0
	if s.n.Op() == ir.OpIndex {
		l := s.n.Attrs().Ints("dims")
		if len(l) != 1 || len(s.in) != 2 {
			return s.opaque()
		}
		d = int(l[0])
	}
	x := s.m.Op(s.in...)
	var dims [][]int
	for e := range s.in[0].Dims {
		if e != d {
			dims = append(dims, x.Parallel(0, e))
			continue
		}
		for k := range s.in[1].Dims {
			dims = append(dims, x.Parallel(1, k))
		}
	}
	x.Inner(0, s.in[0].Dims[d])
	return x.Generic(normal.Lookup, dims, nil)
}

// gather takes elements along a dimension by the numbers in operand 1, in the same place of
// the others.
func (s *step) gather() *normal.Tensor {
	d := s.dim()
	if !slices.Equal(slices.Delete(slices.Clone(s.sizes(0)), d, d+1), slices.Delete(slices.Clone(s.sizes(1)), d, d+1)) {
		return s.opaque()
	}
	return s.m.Gather(s.in[0], s.in[1], d)
}

// scatterAdd adds rows to operand 0 at places of one dimension.
func (s *step) scatterAdd() *normal.Tensor {
	a, alpha := s.n.Attrs(), 1.0
	l, to, vals, ids := a.Ints("dims"), 0, 1, 2
	adds := a.Bool("accumulate", false)
	if s.n.Op() == ir.OpIndexAdd {
		l, vals, ids, alpha, adds = []int64{s.int("dim", 0)}, 2, 1, a.Float("alpha", 1), true
	}
	if len(l) != 1 || len(s.in) != 3 || !adds || !s.dtype().IsFloat() {
		return s.opaque()
	}
	d, size := int(l[0]), s.sizes(to)
	if !slices.Equal(s.sizes(vals), slices.Concat(size[:d], s.sizes(ids), size[d+1:])) { // broadcast
		return s.opaque()
	}
	return s.m.Add([]float64{1, alpha}, s.in[to], s.m.ScatterAdd(s.in[vals], s.in[ids], d, size[d]))
}

// scatter sees one dimension of all operands whole, and the others place by place where all
// have them.
func (s *step) scatter() *normal.Tensor {
	d := s.dim()
	if s.n.Op() == ir.OpScatter {
		if p := s.marks(d); p != nil {
			return p
		}
	}
	var sizes []int64
	x := s.m.Op(s.in...)
	dims := make([][]int, len(s.in[0].Dims))
	for e, n := range s.sizes(0) {
		same := true
		for k := range s.in {
			same = same && s.sizes(k)[e] == n
		}
		if e != d && same {
			dims[e] = x.Align(slices.Repeat([]int{e}, len(s.in)), false)
			continue
		}
		for k, p := range s.in {
			x.Inner(k, p.Dims[e])
		}
		dims[e], sizes = []int{normal.Own(len(sizes))}, append(sizes, s.result(0)[e])
	}
	return x.Generic(s.name(0), dims, sizes)
}

// sliceScatter is operand 0 with operand 1 in the place of some of its rows.
func (s *step) sliceScatter() *normal.Tensor {
	d := s.dim()
	n, count, start := s.sizes(0)[d], s.sizes(1)[d], s.int("start", 0)
	if s.int("step", 1) != 1 || start < 0 || start+count > n {
		return s.scatter()
	}
	var in []*normal.Tensor
	if start > 0 {
		in = append(in, s.m.Slice(s.in[0], d, 0, start, 1))
	}
	if in = append(in, s.in[1]); start+count < n {
		in = append(in, s.m.Slice(s.in[0], d, start+count, n-start-count, 1))
	}
	if len(in) == 1 {
		return in[0]
	}
	return s.m.Concat(d, in...)
}

// marks is a scatter of one element of each row, which is the one whose place is its index.
func (s *step) marks(d int) *normal.Tensor {
	size, dt := s.sizes(0), s.dtype()
	row := slices.Clone(size)
	row[d] = 1
	if s.n.Attrs().Has("reduce") || !dt.IsFloat() || !slices.Equal(s.sizes(1), row) || len(s.in) > 2 && !slices.Equal(s.sizes(2), row) {
		return nil
	}
	at := s.m.Iota(0, 1, size[d])
	at.Dims = append(at.Dims, make([][]digits.Digit, len(size)-d-1)...)
	it := s.n.Arg(1).Type().DType().String()
	cond := s.m.Pointwise("eq  bool "+it+" "+it, at, s.in[1])
	value := s.m.Full(s.t.Real(s.n.Attrs().Float("value", 0)))
	if len(s.in) > 2 {
		value = s.in[2]
	}
	return s.m.Select(dt.String(), cond, value, s.in[0])
}

// attention is one of each batch and head; several heads may have keys in common.
func (s *step) attention() (out results) {
	q := 0
	if s.n.Op() == ir.OpAttentionBackward {
		q = 1
	}
	batch, heads, groups := s.sizes(q)[0], s.sizes(q)[1], s.sizes(q + 1)[1]
	if heads%groups != 0 {
		return s.alone()
	}
	if s.n.Attrs().Float("dropout", 0) != 0 {
		normal.Unsupported("dropout is random")
	}
	for i := range s.n.Results() {
		sizes := s.result(i)
		if len(sizes) != 4 { // what dropout would need
			out = append(out, s.m.Full(s.t.Real(0), sizes...))
			continue
		}
		x := s.m.Op(s.in...)
		by := make([][]digits.Digit, len(s.in))    // batches
		group := make([][]digits.Digit, len(s.in)) // of heads
		each := make([][]digits.Digit, len(s.in))  // head of a group
		for k, p := range s.in {
			if len(p.Dims) != 4 {
				continue
			}
			if s.sizes(k)[0] == batch {
				by[k] = append([]digits.Digit{}, p.Dims[0]...)
			}
			var ok bool
			switch s.sizes(k)[1] {
			case heads:
				group[k], each[k], ok = digits.Minor(p.Dims[1], heads/groups)
			case groups:
				group[k], ok = append([]digits.Digit{}, p.Dims[1]...), true
			default:
				ok = s.sizes(k)[1] == 1
			}
			if !ok {
				panic(digits.Uneven{})
			}
			for _, l := range p.Dims[2:] {
				x.Inner(k, l)
			}
		}
		summed := sizes[1] != heads // over the heads of each group
		b, h := x.Loops(by, false), x.Loops(group, false)
		if e := x.Loops(each, summed); !summed {
			h = append(h, e...)
		}
		dims := [][]int{b, h, {normal.Own(0)}, {normal.Own(1)}}
		out = append(out, x.Generic(s.n.Op().Name()+" "+s.n.Attrs().String()+" "+strconv.Itoa(i), dims, sizes[2:]))
	}
	return out
}
