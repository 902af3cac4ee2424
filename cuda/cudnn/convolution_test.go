package cudnn

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/seed-ee968945/concert/cuda/library"
	"github.com/seed-ee968945/concert/internal/attr"
	"github.com/seed-ee968945/concert/internal/dtype"
	"github.com/seed-ee968945/concert/internal/hostops"
	"github.com/seed-ee968945/concert/internal/intmath"
)

// slide computes a convolution or a gradient: every product of a place of the filter with an
// element of the image, by the rule that cuDNN documents for the forward operation.
func (n *node) slide(vals map[*tensor]*value, out *value) {
	x, w, y := out, out, out
	switch n.kind {
	case convForward:
		x, w = vals[n.ins[0]], vals[n.ins[1]]
	case convData:
		y, w = vals[n.ins[0]], vals[n.ins[1]]
	case convFilter:
		x, y = vals[n.ins[0]], vals[n.ins[1]]
	}
	at := func(v *value, idx []int64) *float64 {
		off := int64(0)
		for i, d := range v.dims {
			off = off*d + idx[i]
		}
		return &v.at[off]
	}
	per, rank := w.dims[1], len(w.dims)
	in, row := make([]int64, rank), make([]int64, rank)
	each(y.dims, func(_ int64, o []int64) {
		row[0] = o[1]
		each(w.dims[1:], func(_ int64, p []int64) {
			copy(row[1:], p)
			in[0], in[1] = o[0], o[1]/(y.dims[1]/(x.dims[1]/per))*per+p[0]
			for d := 2; d < rank; d++ {
				k := row[d]
				if n.win.flip {
					k = w.dims[d] - 1 - k
				}
				in[d] = o[d]*n.win.stride[d-2] + k*n.win.dilation[d-2] - n.win.pre[d-2]
				if in[d] < 0 || in[d] >= x.dims[d] {
					return
				}
			}
			switch n.kind {
			case convForward:
				*at(y, o) += *at(x, in) * *at(w, row)
			case convData:
				*at(x, in) += *at(y, o) * *at(w, row)
			case convFilter:
				*at(w, row) += *at(x, in) * *at(y, o)
			}
		})
	})
}

// convCase is a convolution as PyTorch has it: sizes of the image [n, c, ...], rows and sizes of
// the filter, and how the window moves.
type convCase struct {
	name                              string
	image                             []int64
	rows                              int64
	filter, stride, padding, dilation []int64
	groups                            int64
	last                              bool   // channels last
	plain                             bool   // but of the filter
	odd                               bool   // an element more of padding behind, as by SAME
	moves                             [4]int // tensors that are copied, by calls
}

var convCases = []convCase{
	{"1d", []int64{2, 8, 19}, 16, []int64{3}, []int64{1}, []int64{1}, []int64{1}, 1, false, false, false, [4]int{}},
	{"1d/stride", []int64{2, 8, 20}, 16, []int64{4}, []int64{3}, []int64{2}, []int64{2}, 1, false, false, false, [4]int{}},
	{"1d/groups", []int64{3, 8, 16}, 16, []int64{3}, []int64{1}, []int64{0}, []int64{1}, 8, false, false, false, [4]int{}},
	{"2d", []int64{2, 8, 9, 7}, 8, []int64{3, 3}, []int64{1, 1}, []int64{1, 1}, []int64{1, 1}, 1, false, false, false, [4]int{}},
	{"2d/last", []int64{2, 8, 9, 7}, 8, []int64{3, 3}, []int64{1, 1}, []int64{1, 1}, []int64{1, 1}, 1, true, false, false, [4]int{}},
	{"2d/1x1", []int64{2, 16, 7, 7}, 24, []int64{1, 1}, []int64{1, 1}, []int64{0, 0}, []int64{1, 1}, 1, false, false, false, [4]int{}},
	{"2d/1x1/stride", []int64{2, 16, 8, 8}, 24, []int64{1, 1}, []int64{2, 2}, []int64{0, 0}, []int64{1, 1}, 1, false, false, false, [4]int{}},
	{"2d/stem", []int64{1, 3, 16, 16}, 8, []int64{7, 7}, []int64{2, 2}, []int64{3, 3}, []int64{1, 1}, 1, false, false, false, [4]int{}},
	{"2d/patches", []int64{2, 3, 16, 16}, 16, []int64{4, 4}, []int64{4, 4}, []int64{0, 0}, []int64{1, 1}, 1, false, false, false, [4]int{}},
	{"2d/all", []int64{2, 8, 7, 7}, 16, []int64{7, 7}, []int64{1, 1}, []int64{0, 0}, []int64{1, 1}, 1, false, false, false, [4]int{0, 0, 0, 1}},
	{"2d/uneven", []int64{1, 8, 11, 10}, 16, []int64{3, 5}, []int64{2, 3}, []int64{0, 2}, []int64{2, 1}, 1, false, false, false, [4]int{}},
	{"2d/dilated", []int64{2, 8, 15, 15}, 8, []int64{3, 3}, []int64{1, 1}, []int64{2, 2}, []int64{2, 2}, 1, true, false, false, [4]int{}},
	{"2d/filter first", []int64{2, 8, 8, 8}, 16, []int64{2, 2}, []int64{2, 2}, []int64{0, 0}, []int64{1, 1}, 1, true, true, false, [4]int{1, 1, 1, 1}},
	{"2d/groups/filter first", []int64{2, 8, 8, 8}, 16, []int64{3, 3}, []int64{1, 1}, []int64{1, 1}, []int64{1, 1}, 2, true, true, false, [4]int{1, 1, 1}},
	{"2d/groups", []int64{2, 16, 9, 9}, 32, []int64{3, 3}, []int64{2, 2}, []int64{1, 1}, []int64{1, 1}, 4, false, false, false, [4]int{0, 1, 0}},
	{"2d/depthwise", []int64{1, 16, 8, 8}, 16, []int64{7, 7}, []int64{1, 1}, []int64{3, 3}, []int64{1, 1}, 16, false, false, false, [4]int{}},
	{"2d/depthwise/last", []int64{1, 16, 8, 8}, 16, []int64{3, 3}, []int64{2, 2}, []int64{1, 1}, []int64{1, 1}, 16, true, false, false, [4]int{}},
	{"2d/depthwise/stride", []int64{1, 4, 12, 12}, 4, []int64{3, 3}, []int64{2, 2}, []int64{1, 1}, []int64{1, 1}, 4, false, false, false, [4]int{0, 2, 0}},
	{"3d", []int64{1, 8, 5, 6, 7}, 8, []int64{3, 3, 3}, []int64{1, 1, 1}, []int64{1, 1, 1}, []int64{1, 1, 1}, 1, false, false, false, [4]int{}},
	{"3d/stride/last", []int64{2, 8, 5, 8, 7}, 16, []int64{1, 3, 2}, []int64{1, 2, 2}, []int64{0, 1, 0}, []int64{1, 1, 1}, 1, true, false, false, [4]int{}},
	{"2d/same", []int64{2, 8, 16, 16}, 16, []int64{3, 3}, []int64{2, 2}, []int64{0, 0}, []int64{1, 1}, 1, false, false, true, [4]int{}},
	{"2d/same/last", []int64{4, 16, 16, 16}, 8, []int64{3, 3}, []int64{2, 2}, []int64{0, 0}, []int64{1, 1}, 1, true, false, true, [4]int{}},
}

// behind is the padding behind the image's elements.
func (c *convCase) behind(d int) int64 {
	if c.odd {
		return c.padding[d] + 1
	}
	return c.padding[d]
}

// result is how many windows there are along each dimension.
func (c *convCase) result() []int64 {
	var out []int64
	for d, n := range c.image[2:] {
		out = append(out, (n+c.padding[d]+c.behind(d)-(c.filter[d]-1)*c.dilation[d]-1)/c.stride[d]+1)
	}
	return out
}

// convCall is a call of the IR's operation that the importer makes for a convolution or one of
// its gradients; the tensors have no addresses.
type convCall struct {
	name  string
	attrs attr.List
	ins   [2]library.Tensor
	out   library.Tensor
}

// calls are the convolution and the gradients of its image and filter, and that of the filter of
// the transposed convolution, whose gradient is this one, over tensors of the
// numbers that the cuDNN's ports name.
func (c *convCase) calls(typ dtype.DType) []convCall {
	tensor := func(shape ...int64) library.Tensor {
		return library.Tensor{DType: typ, Shape: shape, Strides: denseStrides(shape, c.last)}
	}
	q := c.result()
	x, y := tensor(c.image...), tensor(append([]int64{c.image[0], c.rows}, q...)...)
	w := tensor(append([]int64{c.rows, c.image[1] / c.groups}, c.filter...)...)
	w.Strides = denseStrides(w.Shape, c.last && !c.plain)
	list := func(kv ...any) (l attr.List) {
		for i := 0; i < len(kv); i += 2 {
			l = l.With(kv[i].(string), attr.Ints(kv[i+1].([]int64)...))
		}
		return l
	}
	var plain, data, filter, transposed []int64
	for d, p := range c.padding {
		reach := (c.filter[d] - 1) * c.dilation[d]
		low := reach - p
		plain = append(plain, p, c.behind(d))
		data = append(data, low, c.image[2+d]+reach-(q[d]-1)*c.stride[d]-1-low)
		filter = append(filter, p, reach+(q[d]-1)*c.stride[d]+1-c.image[2+d]-p)
		transposed = append(transposed, low, reach+c.image[2+d]-(q[d]-1)*c.stride[d]-1-low)
	}
	turn := slices.Repeat([]int64{1}, len(q))
	per := swapFirstTwo(w) // rows are channels: [c, k/groups, ...]
	if g := c.groups; g > 1 {
		k := c.rows / g
		per.Shape = append([]int64{c.image[1], k}, c.filter...)
		per.Strides = denseStrides(per.Shape, false) // a copy
		if k == 1 {
			per.Strides = slices.Clone(w.Strides)
			per.Strides[0] = w.Strides[0] / (c.image[1] / g)
		}
	}
	calls := []convCall{
		{"forward", list("strides", c.stride, "padding", plain, "window_dilation", c.dilation).With("groups", attr.Int(c.groups)), [2]library.Tensor{x, w}, y},
		{"image", list("base_dilation", c.stride, "padding", data, "window_dilation", c.dilation, "reverse", turn).With("groups", attr.Int(c.groups)), [2]library.Tensor{y, per}, x},
		{"filter", list("strides", c.dilation, "padding", filter, "window_dilation", c.stride).With("batch_groups", attr.Int(c.groups)), [2]library.Tensor{swapFirstTwo(x), swapFirstTwo(y)}, swapFirstTwo(w)},
	}
	if c.groups == 1 {
		calls = append(calls, convCall{"transposed filter", list("strides", c.dilation, "base_dilation", c.stride, "padding", transposed), [2]library.Tensor{swapFirstTwo(y), swapFirstTwo(x)}, w})
	}
	return calls
}

// held gives a tensor memory and a call's operand.
func held(rng *rand.Rand, t library.Tensor) hostops.Tensor {
	h := hostops.Tensor{DType: t.DType, Shape: t.Shape, Strides: t.Strides, Data: make([]byte, intmath.Product(t.Shape)*int64(t.DType.Size()))}
	for i := range intmath.Product(t.Shape) {
		dtype.StoreFloat(t.DType, h.Data[i*int64(t.DType.Size()):], rng.NormFloat64())
	}
	return h
}

// hostMoved is a tensor as the graph finds it: its copy, if it has one.
func hostMoved(moves []move, x *tensor, t hostops.Tensor) hostops.Tensor {
	for _, m := range moves {
		if m.port != x.port {
			continue
		}
		from, to := m.from, m.to
		if m.back { // what would be copied back from
			from, to = to, from
		}
		c := t
		c.Data = make([]byte, len(t.Data))
		size := int64(m.size)
		each(m.shape, func(_ int64, idx []int64) {
			var a, b int64
			for d, i := range idx {
				a, b = a+i*from[d], b+i*to[d]
			}
			copy(c.Data[b*size:][:size], t.Data[a*size:])
		})
		return c
	}
	return t
}

// TestConvolutionGraphs reads calls as convolutions and gradients and compares what these are
// defined to be with the host's kernel for the call.
func TestConvolutionGraphs(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	for _, c := range convCases {
		for i, call := range c.calls(dtype.F32) {
			t.Run(c.name+"/"+call.name, func(t *testing.T) {
				ins := []hostops.Tensor{held(rng, call.ins[0]), held(rng, call.ins[1])}
				out := held(rng, call.out)
				if err := hostops.Run(opConvolution, call.attrs, []hostops.Tensor{out}, ins); err != nil {
					t.Fatal(err)
				}
				v, err := newConvolution(&library.Call{Op: opConvolution, Attrs: call.attrs, Ins: call.ins[:], Outs: []library.Tensor{call.out}})
				if err != nil {
					t.Fatal(err)
				}
				want := []nodeKind{convForward, convData, convFilter, convFilter}[i]
				if i == 3 && slices.Equal(c.image[2:], c.filter) { // as many windows as places
					want = convData
				}
				if v.kind != want {
					t.Errorf("is read as kind %d, want %d", v.kind, want)
				}
				g, moves := v.graph(false)
				if len(moves) != c.moves[i] {
					t.Errorf("%d tensors are copied, want %d", len(moves), c.moves[i])
				}
				ports := map[port]hostops.Tensor{}
				if i == 3 && want == convFilter { // the window is the image
					slices.Reverse(ins)
				}
				for k, x := range g.nodes[0].ins {
					ports[x.port] = hostMoved(moves, x, ins[k])
				}
				got := evaluate(t, g, ports)[g.nodes[0].out.port]
				at := hostMoved(moves, g.nodes[0].out, out)
				each(g.nodes[0].out.dims, func(i int64, idx []int64) {
					off := int64(0)
					for k := range idx {
						off += idx[k] * g.nodes[0].out.strides[k]
					}
					if a, w := got.at[i], hostAt(at, off); a-w > 1e-3 || w-a > 1e-3 {
						t.Fatalf("element %v is %g, want %g", idx, a, w)
					}
				})
			})
		}
	}
}
