package mesh

import (
	"slices"
	"strconv"

	"github.com/seed-ee968945/concert/equiv/mesh/internal/digits"
	"github.com/seed-ee968945/concert/equiv/mesh/internal/normal"
	"github.com/seed-ee968945/concert/ir"
)

// step is a node with the tensors that its operands are.
type step struct {
	t  *normal.Table
	m  *normal.Mesh
	n  *ir.Node
	in []*normal.Tensor
}

// sizes are those of operand k.
func (s *step) sizes(k int) []int64 { return sizes(s.n.Arg(k))[0] }

// result are the sizes of result i.
func (s *step) result(i int) []int64 { return sizes(s.n.Result(i))[0] }

// dtype is the element type of the first result.
func (s *step) dtype() ir.DType { return s.n.Result(0).Type().DType() }

// int is an attribute.
func (s *step) int(key string, def int64) int64 { return s.n.Attrs().Int(key, def) }

// dim is the dimension that an attribute says.
func (s *step) dim() int { return int(s.int("dim", 0)) }

// results are the tensors that a node's results are.
type results = []*normal.Tensor

// rule are the results of an operation that does not communicate.
func (s *step) rule() results {
	op := s.n.Op()
	switch {
	case op.Info().Elementwise:
		return results{s.pointwise()}
	case op == ir.OpCall || op == ir.OpAsyncCall || op == ir.OpAsStrided || op.Info().Bodies != nil:
		normal.Unsupported("no rule says what %s does", op)
	}
	if rule, ok := rules[op]; ok {
		return results{rule(s)}
	}
	if rule, ok := several[op]; ok {
		return rule(s)
	}
	return s.alone()
}

// rules are those of operations of one result that are not elementwise; what has none sees its operands whole.
var rules = map[ir.Op]func(s *step) *normal.Tensor{
	ir.OpFull: (*step).full, ir.OpConstant: (*step).source, ir.OpIota: (*step).source, ir.OpRand: (*step).source,
	ir.OpClone: (*step).same, ir.OpAlias: (*step).same,
	ir.OpView: (*step).view, ir.OpSqueeze: (*step).view, ir.OpUnsqueeze: (*step).view, ir.OpPermute: (*step).permute, ir.OpExpand: (*step).expand,
	ir.OpSlice: (*step).slice, ir.OpSelect: (*step).selected, ir.OpCat: (*step).cat,
	ir.OpSum: (*step).reduce, ir.OpMean: (*step).reduce, ir.OpAmax: (*step).reduce, ir.OpAmin: (*step).reduce, ir.OpProd: (*step).reduce,
	ir.OpMatmul: (*step).matmul, ir.OpAddmm: (*step).addmm, ir.OpConvolution: (*step).convolution,
	ir.OpSoftmax: (*step).softmax, ir.OpLogSoftmax: (*step).softmax, ir.OpCumsum: (*step).runningSum, ir.OpReduceWindow: (*step).windows,
	ir.OpScatter: (*step).scatter, ir.OpSliceScatter: (*step).sliceScatter, ir.OpIndexAdd: (*step).scatterAdd, ir.OpIndexPut: (*step).scatterAdd,
	ir.OpEmbedding: (*step).lookup, ir.OpIndex: (*step).lookup, ir.OpGather: (*step).gather, ir.OpArgmax: (*step).argmax,
}

// several are the rules of operations of several results.
var several = map[ir.Op]func(s *step) results{
	ir.OpSplit: (*step).split, ir.OpTopk: (*step).topk, ir.OpAttention: (*step).attention, ir.OpAttentionBackward: (*step).attention,
}

// name is the operation with its attributes and the type of result i.
func (s *step) name(i int) string {
	return s.n.Op().Name() + " " + s.n.Attrs().String() + " " + s.n.Result(i).Type().DType().String()
}

// alone sees all dimensions of all operands at once: on each place of the mesh by itself.
func (s *step) alone() (out results) {
	for i := range s.n.Results() {
		x := s.m.Op(s.in...)
		for k, p := range s.in {
			for _, l := range p.Dims {
				x.Inner(k, l)
			}
		}
		sizes := s.result(i)
		dims := make([][]int, len(sizes))
		for d := range sizes {
			dims[d] = []int{normal.Own(d)}
		}
		out = append(out, x.Generic(s.name(i)+" result "+strconv.Itoa(i), dims, sizes))
	}
	return out
}

func (s *step) full() *normal.Tensor {
	return s.m.Full(s.number("value", s.dtype()), s.result(0)...)
}

// number is the number of an element type that an attribute says.
func (s *step) number(key string, dt ir.DType) normal.Operand {
	v, _ := s.n.Attrs().Get(key)
	if n, ok := v.AsInt(); ok && !dt.IsFloat() {
		return s.t.Integer(n)
	}
	return s.t.Float(s.n.Attrs().Float(key, 0), dt)
}

// source is a tensor that its attributes say.
func (s *step) source() *normal.Tensor {
	name, sizes := s.name(0), s.result(0)
	switch s.n.Op() {
	case ir.OpRand:
		name += " %" + s.n.Name()
	case ir.OpIota:
		least, largest := s.dtype().Range()
		start, by := s.int("start", 0), s.int("step", 1)
		last := float64(start) + float64(by)*float64(sizes[0]-1)
		if by != 0 && (s.dtype().IsFloat() || last >= float64(least) && last <= float64(largest)) {
			return s.m.Iota(start, by, sizes[0])
		}
	}
	return s.m.Leaf(name, sizes...)
}

func (s *step) same() *normal.Tensor { return s.in[0] }

func (s *step) view() *normal.Tensor {
	dims, ok := digits.Reshape(s.in[0].Dims, s.result(0))
	if !ok {
		panic(digits.Uneven{})
	}
	return s.in[0].WithDims(dims)
}

func (s *step) permute() *normal.Tensor {
	var dims [][]digits.Digit
	for _, d := range s.n.Attrs().Ints("dims") {
		dims = append(dims, s.in[0].Dims[d])
	}
	return s.in[0].WithDims(dims)
}

func (s *step) expand() *normal.Tensor {
	from, to := s.sizes(0), s.result(0)
	dims := make([][]digits.Digit, len(to))
	for d, n := range to {
		if k := d - (len(to) - len(from)); k >= 0 && from[k] == n {
			dims[d] = s.in[0].Dims[k]
		} else {
			dims[d] = digits.Add(nil, digits.Repeated(n))
		}
	}
	return s.in[0].WithDims(dims)
}

func (s *step) slice() *normal.Tensor {
	d := s.dim()
	return s.m.Slice(s.in[0], d, min(s.int("start", 0), s.sizes(0)[d]), s.result(0)[d], s.int("step", 1))
}

func (s *step) selected() *normal.Tensor {
	d := s.dim()
	p := s.m.Slice(s.in[0], d, s.int("index", 0), 1, 1)
	return p.WithDims(slices.Delete(slices.Clone(p.Dims), d, d+1))
}

func (s *step) split() (out results) {
	start := int64(0)
	for _, n := range s.n.Attrs().Ints("sizes") {
		out = append(out, s.m.Slice(s.in[0], s.dim(), start, n, 1))
		start += n
	}
	return out
}

func (s *step) cat() *normal.Tensor { return s.m.Concat(s.dim(), s.in...) }

// reduce sums over dimensions, or takes the largest or the like.
func (s *step) reduce() *normal.Tensor {
	a, n, how := s.n.Attrs(), 1.0, s.n.Op().Name()
	var dims []int
	for d, size := range s.sizes(0) {
		if !a.Has("dims") || slices.Contains(a.Ints("dims"), int64(d)) {
			dims = append(dims, d)
			n *= float64(size)
		}
	}
	if s.n.Op() == ir.OpMean {
		if how = normal.Sum; !s.dtype().IsFloat() {
			normal.Unsupported("a mean of integers")
		}
	}
	p, of, dt := s.in[0], s.n.Arg(0).Type().DType(), s.dtype()
	if of != dt && !(of.IsFloat() && dt.IsFloat()) { // integers wrap around where their type ends
		p = s.each(ir.OpConvert.Name() + "  " + dt.String())
	}
	p = s.m.Reduce(how, p, dims, nil)
	if a.Bool("keepdim", false) {
		for _, d := range dims {
			p.Dims = slices.Insert(p.Dims, d, nil)
		}
	}
	if s.n.Op() == ir.OpMean {
		return p.Scale(1 / n)
	}
	return p
}

// product is a sum of products over the inner dimension.
func (s *step) product(a, b *normal.Tensor) *normal.Tensor {
	x, rank := s.m.Op(a, b), len(a.Dims)
	var out [][]int
	for d := range rank - 2 {
		out = append(out, x.Align([]int{d, d}, false))
	}
	out = append(out, x.Parallel(0, rank-2), x.Parallel(1, rank-1))
	x.Align([]int{rank - 1, rank - 2}, true)
	return x.Contract(out)
}

func (s *step) matmul() *normal.Tensor { return s.product(s.in[0], s.in[1]) }

func (s *step) addmm() *normal.Tensor {
	a := s.n.Attrs()
	return s.m.Add([]float64{a.Float("beta", 1), a.Float("alpha", 1)}, s.in[0], s.product(s.in[1], s.in[2]))
}

func (s *step) softmax() *normal.Tensor {
	if s.n.Op() == ir.OpSoftmax {
		return s.m.Softmax(s.in[0], s.dim())
	}
	return s.m.LogSoftmax(s.in[0], s.dim())
}

// along sees one dimension whole.
func (s *step) along() *normal.Tensor {
	x, d := s.m.Op(s.in...), s.dim()
	var dims [][]int
	for e := range s.in[0].Dims {
		if e == d {
			dims = append(dims, []int{normal.Own(0)})
		} else {
			dims = append(dims, x.Parallel(0, e))
		}
	}
	x.Inner(0, s.in[0].Dims[d])
	return x.Generic(s.n.Op().Name()+" "+s.n.Attrs().Without("dim").String(), dims, s.result(0)[d:d+1])
}

// order is that of argmax and topk, and the number that comes last in it.
func (s *step) order() (string, normal.Operand) {
	a, dt := s.n.Attrs(), s.n.Arg(0).Type().DType()
	last, high := s.t.Limits(dt)
	largest := a.Bool("largest", true)
	if !largest {
		last = high
	}
	return strconv.FormatBool(largest) + " " + strconv.FormatBool(a.Bool("sorted", true)) + " " + dt.String(), last
}

// argmax is the place of the best element along a dimension.
func (s *step) argmax() *normal.Tensor {
	order, last := s.order()
	p := s.m.TopK(s.in[0], s.dim(), 1, order, last)
	if !s.n.Attrs().Bool("keepdim", false) {
		p.Dims = slices.Delete(p.Dims, s.dim(), s.dim()+1)
	}
	return p
}

// topk are the best elements and their places.
func (s *step) topk() results {
	order, last := s.order()
	p := s.m.TopK(s.in[0], s.dim(), s.int("k", 1), order, last)
	return results{s.m.Gather(s.in[0], p, s.dim()), p}
}
