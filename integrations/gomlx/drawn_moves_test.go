package gomlx

import (
	"fmt"
	"slices"

	"github.com/gomlx/compute"
	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/compute/shapes"
)

type values = []compute.Value

// axis is one of a shape's, of which there is one.
func (d *drawing) axis(s shapes.Shape) int { return d.IntN(max(1, s.Rank())) }

// ints are n numbers from low to high.
func (d *drawing) ints(n, low, high int) []int {
	out := make([]int, n)
	for i := range out {
		out[i] = low + d.IntN(high-low+1)
	}
	return out
}

// some are some axes, in order, at least one.
func (d *drawing) some(rank int) []int {
	axes := d.Perm(rank)[:1+d.IntN(max(rank, 1))%max(rank, 1)]
	slices.Sort(axes)
	return axes
}

// moves are operations that compute nothing.
var moves = []drawer{
	func(d *drawing, k int) { // Reshape
		n, dims := d.nodes[k].shape.Size(), []int{}
		for n > 1 && len(dims) < 3 {
			a := 1 + d.IntN(n)
			for n%a != 0 {
				a--
			}
			dims, n = append(dims, a), n/a
		}
		dims = append(dims, n)
		d.op(fmt.Sprint("Reshape", dims), exact, func(f compute.Function, in values) (compute.Value, error) { return f.Reshape(in[0], dims...) }, k)
	},
	func(d *drawing, k int) {
		p := d.Perm(d.nodes[k].shape.Rank())
		d.op(fmt.Sprint("Transpose", p), exact, func(f compute.Function, in values) (compute.Value, error) { return f.Transpose(in[0], p...) }, k)
	},
	func(d *drawing, k int) {
		if s := d.nodes[k].shape; s.Rank() > 0 {
			axes := d.some(s.Rank())
			d.op(fmt.Sprint("Reverse", axes), exact, func(f compute.Function, in values) (compute.Value, error) { return f.Reverse(in[0], axes...) }, k)
		}
	},
	func(d *drawing, k int) { // Slice
		s := d.nodes[k].shape
		var from, to, by []int
		for _, n := range s.Dimensions {
			a := d.IntN(n)
			from, to, by = append(from, a), append(to, a+1+d.IntN(n-a)), append(by, 1+d.IntN(2))
		}
		d.op(fmt.Sprint("Slice", from, to, by), exact, func(f compute.Function, in values) (compute.Value, error) { return f.Slice(in[0], from, to, by) }, k)
	},
	func(d *drawing, k int) { // Concatenate
		s := d.nodes[k].shape
		if s.Rank() == 0 {
			return
		}
		a, dims := d.axis(s), slices.Clone(s.Dimensions)
		dims[a] = 1 + d.IntN(3)
		d.op(fmt.Sprint("Concatenate ", a), exact, func(f compute.Function, in values) (compute.Value, error) { return f.Concatenate(a, in...) }, k, d.parameter(s.DType, dims), k)
	},
	func(d *drawing, k int) { // Pad
		s := d.nodes[k].shape
		pads := make([]compute.PadAxis, s.Rank())
		for i := range pads {
			pads[i] = compute.PadAxis{Start: d.IntN(3), End: d.IntN(3), Interior: d.IntN(3) / 2}
		}
		d.op(fmt.Sprint("Pad", pads), exact, func(f compute.Function, in values) (compute.Value, error) { return f.Pad(in[0], in[1], pads...) }, k, d.parameter(s.DType, nil))
	},
	func(d *drawing, k int) { // BroadcastInDim
		s := d.nodes[k].shape
		var dims, axes []int
		for _, n := range s.Dimensions {
			if d.IntN(3) == 0 {
				dims = append(dims, 1+d.IntN(3))
			}
			if axes = append(axes, len(dims)); n == 1 {
				n = 1 + d.IntN(3)
			}
			dims = append(dims, n)
		}
		dims = append(dims, d.dims(d.IntN(2))...)
		d.op(fmt.Sprint("BroadcastInDim", dims, axes), exact, func(f compute.Function, in values) (compute.Value, error) {
			return f.BroadcastInDim(in[0], shapes.Make(s.DType, dims...), axes)
		}, k)
	},
	func(d *drawing, k int) { // Where
		s := d.nodes[k].shape
		d.op("Where", exact, func(f compute.Function, in values) (compute.Value, error) { return f.Where(in[0], in[1], in[2]) }, d.parameter(dtypes.Bool, s.Dimensions), k, d.mate(k))
	},
	func(d *drawing, k int) { // Clamp
		if s := d.nodes[k].shape; is(s.DType, ofNumbers) {
			d.op("Clamp", exact, func(f compute.Function, in values) (compute.Value, error) { return f.Clamp(in[0], in[1], in[2]) }, d.among(s.DType, nil, 1, 2, 1), k, d.among(s.DType, nil, 4, 2, 1))
		}
	},
	func(d *drawing, k int) { // Iota
		s := shapes.Make(drawnFrom[d.IntN(len(drawnFrom))], d.dims(1+d.IntN(3))...)
		a := d.axis(s)
		if s.DType != dtypes.Bool {
			d.op(fmt.Sprint("Iota ", s, a), exact, func(f compute.Function, in values) (compute.Value, error) { return f.Iota(s, a) })
		}
	},
	func(d *drawing, k int) { // ConvertDType: what is not in the other type is nobody's business
		from, to := d.nodes[k], drawnFrom[d.IntN(len(drawnFrom))]
		how := smooth
		if !to.IsFloat() {
			how = sharp
		}
		if is(from.shape.DType, ofFloats) && is(to, ofInts) && (is(to, ofUnsigned) || from.build != nil) {
			return
		}
		d.op(fmt.Sprint("ConvertDType ", to), how, func(f compute.Function, in values) (compute.Value, error) { return f.ConvertDType(in[0], to) }, k)
	},
	func(d *drawing, k int) { // Bitcast
		to := integers[d.IntN(len(integers))]
		d.op(fmt.Sprint("Bitcast ", to), sharp, func(f compute.Function, in values) (compute.Value, error) { return f.Bitcast(in[0], to) }, k)
	},
	func(d *drawing, k int) { // DynamicSlice
		s := d.nodes[k].shape
		ins, sizes := []int{k}, []int{}
		for _, n := range s.Dimensions {
			ins, sizes = append(ins, d.among(dtypes.Int32, nil, -1, 5, 1)), append(sizes, 1+d.IntN(n))
		}
		d.op(fmt.Sprint("DynamicSlice", sizes), exact, func(f compute.Function, in values) (compute.Value, error) {
			return f.DynamicSlice(in[0], in[1:], sizes)
		}, ins...)
	},
	func(d *drawing, k int) { // Gather of rows, columns and such
		s := d.nodes[k].shape
		if s.Rank() == 0 {
			return
		}
		places := d.dims(1 + d.IntN(2))
		mapped := d.Perm(s.Rank())[:1+d.IntN(s.Rank())]
		vector := d.IntN(len(places) + 1)
		at := d.among(integers[d.IntN(4)], slices.Insert(slices.Clone(places), vector, len(mapped)), -1, 6, 1)
		var sizes, collapsed, offsets []int
		for a, n := range s.Dimensions {
			switch {
			case slices.Contains(mapped, a) && d.IntN(2) == 0:
				sizes, collapsed = append(sizes, 1), append(collapsed, a)
				continue
			case slices.Contains(mapped, a):
				n = 1 + d.IntN(n)
			}
			sizes, offsets = append(sizes, n), append(offsets, 0)
		}
		offsets = d.Perm(len(offsets) + len(places))[:len(offsets)]
		slices.Sort(offsets)
		d.op(fmt.Sprint("Gather ", vector, offsets, collapsed, mapped, sizes), exact, func(f compute.Function, in values) (compute.Value, error) {
			return f.Gather(in[0], in[1], vector, offsets, collapsed, mapped, sizes, false)
		}, k, at)
	},
	func(d *drawing, k int) { // scatters
		s := d.nodes[k].shape
		if s.Rank() == 0 || s.DType == dtypes.Bool {
			return
		}
		n, row := 1+d.IntN(4), s.Dimensions[1:]
		at, window := d.among(dtypes.Int32, []int{n, 1}, -1, 6, 1), make([]int, len(row))
		for i := range window {
			window[i] = 1 + i
		}
		with := d.parameter(s.DType, append([]int{n}, row...))
		scatter := []func(compute.Function, compute.Value, compute.Value, compute.Value, int, []int, []int, []int, bool, bool) (compute.Value, error){
			compute.Function.ScatterSum, compute.Function.ScatterMax, compute.Function.ScatterMin}
		which := d.IntN(3)
		d.op([]string{"ScatterSum", "ScatterMax", "ScatterMin"}[which], []steepness{sums, exact, exact}[which], func(f compute.Function, in values) (compute.Value, error) {
			return scatter[which](f, in[0], in[1], in[2], 1, window, []int{0}, []int{0}, false, false)
		}, k, at, with)
	},
}

// reductions are operations that combine elements along axes.
var reductions = []drawer{
	func(d *drawing, k int) {
		type reduce = func(compute.Function, compute.Value, ...int) (compute.Value, error)
		s := d.nodes[k].shape
		o := []struct {
			name  string
			op    reduce
			class int
			how   steepness
		}{
			{"ReduceSum", compute.Function.ReduceSum, ofNumbers, sums}, {"ReduceProduct", compute.Function.ReduceProduct, ofNumbers, sharp},
			{"ReduceMax", compute.Function.ReduceMax, ofNumbers, exact}, {"ReduceMin", compute.Function.ReduceMin, ofNumbers, exact},
			{"ReduceBitwiseAnd", compute.Function.ReduceBitwiseAnd, ofInts, exact}, {"ReduceBitwiseOr", compute.Function.ReduceBitwiseOr, ofInts, exact},
			{"ReduceBitwiseXor", compute.Function.ReduceBitwiseXor, ofInts, exact}, {"ReduceLogicalAnd", compute.Function.ReduceLogicalAnd, ofBools, exact},
			{"ReduceLogicalOr", compute.Function.ReduceLogicalOr, ofBools, exact}, {"ReduceLogicalXor", compute.Function.ReduceLogicalXor, ofBools, exact},
		}[d.IntN(10)]
		if is(s.DType, o.class) && s.Rank() > 0 {
			axes := d.some(s.Rank())
			d.op(fmt.Sprint(o.name, axes), o.how, func(f compute.Function, in values) (compute.Value, error) { return o.op(f, in[0], axes...) }, k)
		}
	},
	func(d *drawing, k int) { // ReduceWindow
		s := d.nodes[k].shape
		if s.Rank() == 0 || s.DType == dtypes.Bool {
			return
		}
		by := []compute.ReduceOpType{compute.ReduceOpSum, compute.ReduceOpMax, compute.ReduceOpMin, compute.ReduceOpProduct}[d.IntN(4)]
		how := map[compute.ReduceOpType]steepness{compute.ReduceOpSum: sums, compute.ReduceOpProduct: sharp}[by]
		n := s.Rank()
		window, strides, base, dilations, pads := d.ints(n, 1, 3), d.ints(n, 1, 2), d.ints(n, 1, 2), d.ints(n, 1, 2), make([][2]int, n)
		for i := range pads {
			pads[i] = [2]int{d.IntN(2), d.IntN(3)}
		}
		d.op(fmt.Sprint("ReduceWindow ", by, window, strides, base, dilations, pads), how, func(f compute.Function, in values) (compute.Value, error) {
			return f.ReduceWindow(in[0], by, window, strides, base, dilations, pads)
		}, k)
	},
	func(d *drawing, k int) { // CumSum
		s, o := d.nodes[k].shape, compute.CumSumOptions{Exclusive: d.IntN(2) == 0, Reverse: d.IntN(2) == 0}
		if a := d.axis(s); s.Rank() > 0 && s.DType != dtypes.Bool {
			d.op(fmt.Sprint("CumSum ", a, o), sums, func(f compute.Function, in values) (compute.Value, error) { return f.CumSum(in[0], a, o) }, k)
		}
	},
	func(d *drawing, k int) { // ArgMinMax
		s, to, least := d.nodes[k].shape, integers[d.IntN(len(integers))], d.IntN(2) == 0
		if a := d.axis(s); s.Rank() > 0 && s.DType != dtypes.Bool {
			d.op(fmt.Sprint("ArgMinMax ", a, to, least), sharp, func(f compute.Function, in values) (compute.Value, error) { return f.ArgMinMax(in[0], a, to, least) }, k)
		}
	},
	func(d *drawing, k int) { // FusedSoftmax
		s := d.nodes[k].shape
		if a := d.axis(s); s.Rank() > 0 && s.DType.IsFloat() {
			d.op(fmt.Sprint("FusedSoftmax ", a), sums, func(f compute.Function, in values) (compute.Value, error) { return f.FusedSoftmax(in[0], a) }, k)
		}
	},
	func(d *drawing, k int) { // FusedLayerNorm
		if s := d.nodes[k].shape; s.Rank() > 0 && s.DType.IsFloat() {
			axes := d.some(s.Rank())
			d.op(fmt.Sprint("FusedLayerNorm", axes), sharp, func(f compute.Function, in values) (compute.Value, error) {
				return f.FusedLayerNorm(in[0], axes, 0.125, nil, nil)
			}, k)
		}
	},
}

// products are matrix products and convolutions.
var products = []drawer{
	dot, dot, dot, convolution, convolution,
	func(d *drawing, k int) { // FusedDense
		s := d.nodes[k].shape
		if s.Rank() < 2 || !s.DType.IsFloat() {
			return
		}
		n, by := 1+d.IntN(4), []compute.ActivationType{compute.ActivationNone, compute.ActivationRelu, compute.ActivationTanh, compute.ActivationHardSwish, compute.ActivationSilu}[d.IntN(5)]
		d.op(fmt.Sprint("FusedDense ", by), times, func(f compute.Function, in values) (compute.Value, error) {
			return f.FusedDense(in[0], in[1], in[2], compute.DenseConfig{Activation: by})
		}, k, d.parameter(s.DType, []int{s.Dimensions[s.Rank()-1], n}), d.parameter(s.DType, []int{n}))
	},
}

func dot(d *drawing, k int) {
	s := d.nodes[k].shape
	if s.DType == dtypes.Bool {
		return
	}
	// Each axis is contracted, or of the batch, or the left operand's.
	var axes [3][]int
	for _, a := range d.Perm(s.Rank()) {
		i := d.IntN(3)
		axes[i] = append(axes[i], a)
	}
	order := append(slices.Concat(axes[0], axes[1]), slices.Repeat([]int{-1}, d.IntN(3))...)
	d.Shuffle(len(order), func(i, j int) { order[i], order[j] = order[j], order[i] })
	var dims []int
	for _, a := range order {
		if a < 0 {
			dims = append(dims, 1+d.IntN(4))
		} else {
			dims = append(dims, s.Dimensions[a])
		}
	}
	var right [2][]int
	for i := range right {
		for _, a := range axes[i] {
			right[i] = append(right[i], slices.Index(order, a))
		}
	}
	c := compute.DotGeneralConfig{}
	if is(s.DType, ofFloats) && s.DType != dtypes.Float64 && d.IntN(3) == 0 {
		c.AccumulatorDType = dtypes.Float32
		if d.IntN(2) == 0 {
			c.OutputDType = floats[d.IntN(len(floats))]
		}
	}
	d.op(fmt.Sprint("DotGeneral ", axes[0], axes[1], right, c), times, func(f compute.Function, in values) (compute.Value, error) {
		return f.DotGeneral(in[0], axes[0], axes[1], in[1], right[0], right[1], c)
	}, k, d.parameter(s.DType, dims))
}

func convolution(d *drawing, k int) {
	s := d.nodes[k].shape
	n := s.Rank() - 2
	if n < 1 || s.DType == dtypes.Bool {
		return
	}
	axes := func() (a, b int, rest []int) { p := d.Perm(n + 2); return p[0], p[1], p[2:] }
	var x compute.ConvolveAxesConfig
	x.InputBatch, x.InputChannels, x.InputSpatial = axes()
	x.KernelInputChannels, x.KernelOutputChannels, x.KernelSpatial = axes()
	x.OutputBatch, x.OutputChannels, x.OutputSpatial = axes()
	channels, batch := s.Dimensions[x.InputChannels], s.Dimensions[x.InputBatch]
	groups, batches := 1, 1
	switch d.IntN(3) {
	case 0:
		groups = channels
	case 1:
		if x.OutputBatch == x.InputBatch { // GoMLX's Go backend takes the groups' size from the wrong axis if not
			batches = batch
		}
	}
	dims := make([]int, n+2)
	dims[x.KernelInputChannels], dims[x.KernelOutputChannels] = channels/groups, groups*batches*(1+d.IntN(2))
	for _, a := range x.KernelSpatial {
		dims[a] = 1 + d.IntN(3)
	}
	strides, base, dilations, pads := d.ints(n, 1, 2), d.ints(n, 1, 2), d.ints(n, 1, 2), make([][2]int, n)
	for i := range pads {
		pads[i] = [2]int{d.IntN(3), d.IntN(3)}
	}
	d.op(fmt.Sprintf("ConvGeneral %+v %v %v %v %v %d %d", x, strides, pads, base, dilations, groups, batches), times, func(f compute.Function, in values) (compute.Value, error) {
		return f.ConvGeneral(in[0], in[1], x, strides, pads, base, dilations, groups, batches)
	}, k, d.parameter(s.DType, dims))
}
