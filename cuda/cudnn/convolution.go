package cudnn

import (
	"fmt"
	"slices"

	"github.com/seed-ee968945/concert/cuda/library"
	"github.com/seed-ee968945/concert/internal/dtype"
	"github.com/seed-ee968945/concert/internal/intmath"
	"github.com/seed-ee968945/concert/internal/window"
)

const opConvolution = "convolution"

// convolutionWorkspace bounds what a convolution may ask for: engines that want more are
// passed over, however much there is.
const convolutionWorkspace = 1 << 30

// slide is how the window of a convolution moves, a number for each dimension.
type slide struct {
	pre, post, stride, dilation []int64
	flip                        bool // the filter's places are counted from their end
}

// convolution is one as cuDNN sees it: an image [n, c, ...], a filter [k, c/groups, ...] and a
// result [n, k, ...], one of which is computed from the others. The IR has one operation for
// all three: gradients are convolutions of elements that stand apart, or with the gradient of
// the result as their window.
type convolution struct {
	kind    nodeKind
	x, w, y operand
	slide
	last  bool // channels are last, once arrange has said so
	moved int  // tensors that have to be copied for that
}

// operand is a tensor in cuDNN's order of dimensions. The first one of a filter may be made
// of groups that are apart elements from each other.
type operand struct {
	library.Tensor
	groups, apart int64
	move          bool
}

func whole(t library.Tensor) operand { return operand{Tensor: t, groups: 1} }

// newConvolution reads a call. Of several forms that it has it takes the one in which least
// has to be copied, and which fits best.
func newConvolution(c *library.Call) (*convolution, error) {
	not := func(format string, args ...any) error {
		return fmt.Errorf("%w: cuDNN: %s: %s", library.ErrNotServed, c.Op, fmt.Sprintf(format, args...))
	}
	if len(c.Ins) != 2 || len(c.Outs) != 1 {
		return nil, not("%d operands, %d results", len(c.Ins), len(c.Outs))
	}
	x, w, y := c.Ins[0], c.Ins[1], c.Outs[0]
	if _, ok := convolutionTypes[x.DType]; !ok || w.DType != x.DType || y.DType != x.DType {
		return nil, not("%v and %v to %v", x.DType, w.DType, y.DType)
	}
	for _, t := range []library.Tensor{x, w, y} {
		if rank := len(t.Shape); rank < 3 || rank > 5 || rank != len(x.Shape) {
			return nil, not("a tensor of shape %v", t.Shape)
		}
		if intmath.Product(t.Shape) == 0 {
			return nil, not("nothing to compute")
		}
	}
	dims, err := window.Parse(c.Attrs.Ints, w.Shape[2:])
	if err != nil {
		return nil, not("%v", err)
	}
	r := reading{x, w, y, dims, c.Attrs.Int("groups", 1), c.Attrs.Int("batch_groups", 1)}
	var best *convolution
	for _, form := range r.forms() {
		if v := form(); v != nil {
			if v.arrange(); best == nil || v.moved < best.moved {
				best = v
			}
		}
	}
	if best == nil {
		return nil, not("its padding, strides and dilation are those of no convolution, nor of a gradient")
	}
	return best, nil
}

// convolutionTypes are cuDNN's names of the types.
var convolutionTypes = map[dtype.DType]dataType{dtype.F32: typeF32, dtype.F16: typeF16, dtype.BF16: typeBF16}

// reading is a call of the IR's operation.
type reading struct {
	x, w, y         library.Tensor
	dims            []window.Dim
	groups, batches int64
}

// forms lists how a call may be read, what fits best first: a window of more places than
// there are windows is a gradient's, and so is one that is read from its end. The former is not
// read as the gradient of an image: an H200's cuDNN 9 had a wrong result for windows of 16 x 16
// with a base dilation of 2, 13 elements of padding in front and 14 behind.
func (r *reading) forms() []func() *convolution {
	switch {
	case intmath.Product(r.w.Shape[2:]) > intmath.Product(r.y.Shape[2:]):
		return []func() *convolution{r.filter, r.transposedFilter, r.forward}
	case !r.every(crossCorrelation):
		return []func() *convolution{r.data, r.forward}
	}
	return []func() *convolution{r.forward, r.data, r.filter}
}

// every says that a property holds for all dimensions.
func (r *reading) every(p func(d window.Dim) bool) bool {
	return !slices.ContainsFunc(r.dims, func(d window.Dim) bool { return !p(d) })
}

func undilatedBase(d window.Dim) bool    { return d.Base == 1 }
func unitStride(d window.Dim) bool       { return d.Stride == 1 }
func crossCorrelation(d window.Dim) bool { return !d.Reverse || d.Size == 1 }
func trueConvolution(d window.Dim) bool  { return d.Reverse || d.Size == 1 }

// forward is the call as a convolution.
func (r *reading) forward() *convolution {
	if r.batches > 1 || !r.every(undilatedBase) || !r.every(crossCorrelation) && !r.every(trueConvolution) {
		return nil
	}
	v := &convolution{kind: convForward, x: whole(r.x), w: whole(r.w), y: whole(r.y), slide: slide{flip: !r.every(crossCorrelation)}}
	for i, d := range r.dims {
		if !v.add(r.x.Shape[2+i], d.Size, r.y.Shape[2+i], d.Low, d.Stride, d.Dilation) {
			return nil
		}
	}
	return v
}

// data is the call as the gradient of the image, which reads the filter from its end.
func (r *reading) data() *convolution {
	if r.batches > 1 || !r.every(unitStride) || !r.every(crossCorrelation) && !r.every(trueConvolution) {
		return nil
	}
	v := &convolution{kind: convData, x: whole(r.y), w: perResult(r.w, r.groups), y: whole(r.x), slide: slide{flip: !r.every(trueConvolution)}}
	for i, d := range r.dims {
		if !v.add(r.y.Shape[2+i], d.Size, r.x.Shape[2+i], d.Reach()-1-d.Low, d.Base, d.Dilation) {
			return nil
		}
	}
	return v
}

// filter is the call as the gradient of the filter: batch and channels are exchanged, and
// windows are as far apart as the filter's places.
func (r *reading) filter() *convolution {
	if r.groups > 1 || !r.every(undilatedBase) || !r.every(crossCorrelation) {
		return nil
	}
	v := &convolution{kind: convFilter, x: whole(swapFirstTwo(r.x)), w: whole(swapFirstTwo(r.y)), y: whole(swapFirstTwo(r.w))}
	for i, d := range r.dims {
		if !v.add(r.x.Shape[2+i], r.y.Shape[2+i], d.Size, d.Low, d.Dilation, d.Stride) {
			return nil
		}
	}
	return v
}

// transposedFilter is the call as the gradient of a transposed convolution's filter, whose places
// are counted from their end: the window is the image, over which the dilated operand slides.
func (r *reading) transposedFilter() *convolution {
	if r.groups > 1 || r.batches > 1 || !r.every(crossCorrelation) {
		return nil
	}
	v := &convolution{kind: convFilter, x: whole(swapFirstTwo(r.w)), w: whole(r.y), y: whole(swapFirstTwo(r.x)), slide: slide{flip: true}}
	for i, d := range r.dims {
		n := r.y.Shape[2+i]
		if d.Dilation > 1 && d.Size > 1 || !v.add(d.Size, n, r.x.Shape[2+i], (n-1)*d.Stride-d.Low, d.Base, d.Stride) {
			return nil
		}
	}
	return v
}

// add adds a dimension: elements of the image, places of the filter, elements of the result.
// cuDNN counts the windows, so the padding behind is what gives as many: that in front where
// it does, as engines like it best.
func (s *slide) add(image, places, result, pre, stride, dilation int64) bool {
	if places == 1 {
		dilation = 1
	}
	least := (result-1)*stride + (places-1)*dilation + 1 - image - pre
	post := max(least, 0)
	if most := least + stride - 1; pre >= least && pre <= most {
		post = pre
	} else if post > most {
		return false
	}
	s.pre, s.post = append(s.pre, pre), append(s.post, post)
	s.stride, s.dilation = append(s.stride, stride), append(s.dilation, dilation)
	return pre >= 0
}

// swapFirstTwo is a tensor with its first two dimensions exchanged.
func swapFirstTwo(t library.Tensor) library.Tensor {
	t.Shape, t.Strides = slices.Clone(t.Shape), slices.Clone(t.Strides)
	t.Shape[0], t.Shape[1] = t.Shape[1], t.Shape[0]
	t.Strides[0], t.Strides[1] = t.Strides[1], t.Strides[0]
	return t
}

// perResult turns a filter [c, k/groups, ...], whose rows are those of the groups one after
// the other, into [k, c/groups, ...].
func perResult(t library.Tensor, groups int64) operand {
	c, k := t.Shape[0]/groups, t.Shape[1]
	v := operand{Tensor: swapFirstTwo(t), groups: groups, apart: c * t.Strides[0]}
	v.Shape[0], v.Shape[1] = k*groups, c
	if k == 1 {
		v.Strides[0] = v.apart
	}
	if v.apart == k*v.Strides[0] || k == 1 {
		v.groups = 1
	}
	return v
}

// arrange gives all tensors at least two spatial dimensions, and one layout.
func (v *convolution) arrange() {
	if len(v.stride) == 1 {
		for _, l := range []*[]int64{&v.pre, &v.post} {
			*l = slices.Insert(*l, 0, 0)
		}
		for _, l := range []*[]int64{&v.stride, &v.dilation} {
			*l = slices.Insert(*l, 0, 1)
		}
		for _, t := range []*operand{&v.x, &v.y, &v.w} {
			t.Shape, t.Strides = slices.Insert(slices.Clone(t.Shape), 2, 1), slices.Insert(slices.Clone(t.Strides), 2, 0)
		}
	}
	v.in(v.channelsLast())
}

// in sets the layout; what is otherwise is to be copied.
func (v *convolution) in(last bool) {
	v.last, v.moved = last, 0
	for _, t := range []*operand{&v.x, &v.y, &v.w} {
		if t.move = !t.fits(v.last) || t.At%tensorAlign != 0; t.move {
			v.moved++
		}
		t.settle(v.last)
	}
}

// channelsLast says which layout a convolution is done in: that of its tensors, and where
// they differ the image's. Engines do without our copies in either, but for gradients of the
// image of single channels, of f32 or with windows apart: with channels first, those take 2 to
// 3 times as long as with copies (BENCHMARKS.md).
func (v *convolution) channelsLast() bool {
	if v.kind == convData && v.w.Shape[1] == 1 && v.x.Shape[1] > 1 && intmath.Product(v.x.Shape[2:]) >= 128 && (v.x.DType == dtype.F32 || slices.Max(v.stride) > 1) {
		return true
	}
	for _, t := range []*operand{&v.x, &v.y, &v.w} {
		if first, last := t.fits(false), t.fits(true); first != last {
			return last
		}
	}
	return false
}

// order lists dimensions from the innermost, channels first or last.
func order(rank int, last bool) []int {
	var o []int
	for d := rank - 1; d >= 2; d-- {
		o = append(o, d)
	}
	if last {
		return append([]int{1}, append(o, 0)...)
	}
	return append(o, 1, 0)
}

// fits says that a tensor has its channels first or last, without gaps but between
// elements of dimension 0.
func (t *operand) fits(last bool) bool {
	want := int64(1)
	for _, d := range order(len(t.Shape), last) {
		if n := t.Shape[d]; n != 1 && t.Strides[d] != want && (d != 0 || t.Strides[d] < want) {
			return false
		}
		want *= t.Shape[d]
	}
	return t.groups == 1
}

// settle gives dimensions of one element the strides of a layout.
func (t *operand) settle(last bool) {
	t.Strides = slices.Clone(t.Strides)
	for d, n := range denseStrides(t.Shape, last) {
		if t.Shape[d] == 1 {
			t.Strides[d] = n
		}
	}
}

// denseStrides gives strides without gaps.
func denseStrides(shape []int64, last bool) []int64 {
	s, n := make([]int64, len(shape)), int64(1)
	for _, d := range order(len(shape), last) {
		s[d] = n
		n *= shape[d]
	}
	return s
}

// graph is the operation with its tensors, and what has to be copied. Sums are f32, in any
// engine.
func (v *convolution) graph(tf32 bool) (*graph, []move) {
	g := &graph{modes: []int32{heurA, heurFallback}, never: []int32{noteReduced, noteNarrowed}, most: convolutionWorkspace}
	if v.x.DType == dtype.F32 {
		if g.never = []int32{noteReduced, noteNarrowed, noteTensorCore}; tf32 {
			g.never = []int32{noteReduced}
		}
	}
	n := &node{kind: v.kind, name: "convolution", prec: typeF32, win: &v.slide}
	var moves []move
	for i, t := range []*operand{&v.x, &v.w, &v.y} {
		result := i == map[nodeKind]int{convData: 0, convFilter: 1, convForward: 2}[v.kind]
		x := g.add([]string{"image", "filter", "result"}[i], convolutionTypes[t.DType], external, t.Shape, t.Strides)
		x.port = portImage + port(i)
		if t.move {
			moves = append(moves, t.moved(g, x, v.last, result))
		}
		if result {
			n.out = x
		} else {
			n.ins = append(n.ins, x)
		}
	}
	switch v.kind {
	case convData:
		n.name, n.ins = "gradient of the image", []*tensor{n.ins[1], n.ins[0]}
	case convFilter:
		n.name = "gradient of the filter"
	}
	g.into(n, n.out)
	return g, moves
}

// moved puts a tensor in the workspace, and gives what copies it there or back.
func (t *operand) moved(g *graph, x *tensor, last, back bool) move {
	x.role, x.strides = moved, denseStrides(t.Shape, last)
	g.place(x, uint64(intmath.Product(t.Shape))*uint64(t.DType.Size()))
	m := move{port: x.port, back: back, offset: x.offset, size: t.DType.Size(), shape: t.Shape, from: t.Strides, to: x.strides}
	if t.groups > 1 {
		k := t.Shape[0] / t.groups
		m.shape = append([]int64{t.groups, k}, t.Shape[1:]...)
		m.from, m.to = append([]int64{t.apart}, t.Strides...), append([]int64{k * x.strides[0]}, x.strides...)
	}
	if back {
		m.from, m.to = m.to, m.from
	}
	return m
}

func (v *convolution) addresses() (a [numPorts]uintptr) {
	a[portImage], a[portFilter], a[portResult] = uintptr(v.x.At), uintptr(v.w.At), uintptr(v.y.At)
	return a
}
