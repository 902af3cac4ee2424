package windows

import (
	"cmp"
	"encoding/base64"
	bits "encoding/binary"
	"math"
	"slices"
	"strings"

	"github.com/seed-ee968945/concert/internal/attr"
	"github.com/seed-ee968945/concert/ir"
	"github.com/seed-ee968945/concert/ir/fx/internal/pytext"
	"github.com/seed-ee968945/concert/ir/fx/internal/traced"
)

// resampleOps read elements at other places: paddings by what lies inside, and tensors made
// larger or smaller. Along each dimension an element of the result is a sum of elements of
// the operand with factors that depend on its index alone; gradients go the same ways back.
var resampleOps = []row{
	{"aten.reflection_pad1d.default aten.reflection_pad2d.default aten.reflection_pad3d.default", "self padding", resampled(padded(reflect), "self", false)},
	{"aten.replication_pad1d.default aten.replication_pad2d.default aten.replication_pad3d.default", "self padding", resampled(padded(replicate), "self", false)},
	{"aten.reflection_pad1d_backward.default aten.reflection_pad2d_backward.default aten.reflection_pad3d_backward.default", "grad_output self padding", resampled(padded(reflect), "grad_output", true)},
	{"aten.replication_pad1d_backward.default aten.replication_pad2d_backward.default aten.replication_pad3d_backward.default", "grad_output self padding", resampled(padded(replicate), "grad_output", true)},
	{"aten.upsample_nearest1d.vec aten.upsample_nearest2d.vec aten.upsample_nearest3d.vec", "input output_size scale_factors", resampled(nearestAt(0), "input", false)},
	{"aten._upsample_nearest_exact1d.vec aten._upsample_nearest_exact2d.vec aten._upsample_nearest_exact3d.vec", "input output_size scale_factors", resampled(nearestAt(0.5), "input", false)},
	{"aten.upsample_nearest1d.default", "input output_size scales", resampled(nearestAt(0), "input", false)},
	{"aten.upsample_nearest2d.default", "input output_size scales_h scales_w", resampled(nearestAt(0), "input", false)},
	{"aten.upsample_nearest3d.default", "input output_size scales_d scales_h scales_w", resampled(nearestAt(0), "input", false)},
	{"aten.upsample_nearest1d_backward.default", "grad_output output_size input_size scales", resampled(nearestAt(0), "grad_output", true)},
	{"aten.upsample_nearest2d_backward.default", "grad_output output_size input_size scales_h scales_w", resampled(nearestAt(0), "grad_output", true)},
	{"aten.upsample_nearest3d_backward.default", "grad_output output_size input_size scales_d scales_h scales_w", resampled(nearestAt(0), "grad_output", true)},
	{"aten._upsample_nearest_exact1d_backward.default", "grad_output output_size input_size scales", resampled(nearestAt(0.5), "grad_output", true)},
	{"aten._upsample_nearest_exact2d_backward.default", "grad_output output_size input_size scales_h scales_w", resampled(nearestAt(0.5), "grad_output", true)},
	{"aten._upsample_nearest_exact3d_backward.default", "grad_output output_size input_size scales_d scales_h scales_w", resampled(nearestAt(0.5), "grad_output", true)},
	{"aten.upsample_linear1d.vec aten.upsample_bilinear2d.vec aten.upsample_trilinear3d.vec", "input output_size align_corners scale_factors", resampled(linear, "input", false)},
	{"aten.upsample_linear1d.default", "input output_size align_corners scales", resampled(linear, "input", false)},
	{"aten.upsample_bilinear2d.default", "input output_size align_corners scales_h scales_w", resampled(linear, "input", false)},
	{"aten.upsample_trilinear3d.default", "input output_size align_corners scales_d scales_h scales_w", resampled(linear, "input", false)},
	{"aten.upsample_linear1d_backward.default", "grad_output output_size input_size align_corners scales", resampled(linear, "grad_output", true)},
	{"aten.upsample_bilinear2d_backward.default", "grad_output output_size input_size align_corners scales_h scales_w", resampled(linear, "grad_output", true)},
	{"aten.upsample_trilinear3d_backward.default", "grad_output output_size input_size align_corners scales_d scales_h scales_w", resampled(linear, "grad_output", true)},
	{"aten.upsample_bicubic2d.vec", "input output_size align_corners scale_factors", resampled(cubic, "input", false)},
	{"aten.upsample_bicubic2d.default", "input output_size align_corners scales_h scales_w", resampled(cubic, "input", false)},
	{"aten.upsample_bicubic2d_backward.default", "grad_output output_size input_size align_corners scales_h scales_w", resampled(cubic, "grad_output", true)},
	{"aten._upsample_bilinear2d_aa.vec", "input output_size align_corners scale_factors", resampled(antialiased(1, tent), "input", false)},
	{"aten._upsample_bilinear2d_aa.default", "input output_size align_corners scales_h scales_w", resampled(antialiased(1, tent), "input", false)},
	{"aten._upsample_bilinear2d_aa_backward.default", "grad_output output_size input_size align_corners scales_h scales_w", resampled(antialiased(1, tent), "grad_output", true)},
	{"aten._upsample_bicubic2d_aa.vec", "input output_size align_corners scale_factors", resampled(antialiased(2, cubicFilter), "input", false)},
	{"aten._upsample_bicubic2d_aa.default", "input output_size align_corners scales_h scales_w", resampled(antialiased(2, cubicFilter), "input", false)},
	{"aten._upsample_bicubic2d_aa_backward.default", "grad_output output_size input_size align_corners scales_h scales_w", resampled(antialiased(2, cubicFilter), "grad_output", true)},
}

// source says from which elements along one dimension those of the result are made: taps
// elements each, taps*o+t with a factor.
type source struct {
	taps   int
	at     []int64
	factor []float64 // nil where all are 1
	beyond bool      // at may be the size: a zero
}

// sources finds the sources along dimension d of n with so many elements before and behind.
type sources func(c *call, d, n int, in, out int64) source

// maxTaps bounds the positions along a dimension: they are a constant.
const maxTaps = 8000

// resampled imports an operator by its sources along the last dimensions; back goes from
// gradients of the result to those of the operand.
func resampled(of sources, operand string, back bool) func(c *call) error {
	return func(c *call) error {
		x := c.Tensor(operand)
		t, err := c.Trace.TypeOf(0)
		if c.Err != nil || err != nil {
			return cmp.Or(c.Err, err)
		}
		n := c.resampledDims()
		less, more := x.Type().Shape(), t.Shape()
		if back {
			less, more = more, less
		}
		if c.Err != nil {
			return c.Err
		}
		front := len(less) - n
		if front < 0 || len(more) != len(less) || !less[:front].Equal(more[:front]) || none(less) || none(more) {
			return traced.ErrForm
		}
		small, large := sizes(less[front:]), sizes(more[front:])
		dt := t.DType()
		var from []source
		plain := true
		for d := range n {
			if large[d] > maxTaps {
				return traced.ErrForm
			}
			s := of(c, d, n, small[d], large[d])
			if c.Err != nil {
				return c.Err
			}
			if len(s.at) > maxTaps {
				return traced.ErrForm
			}
			from, plain = append(from, s), plain && s.factor == nil && !back
		}
		if !plain { // sums are kept in single precision at least, and rounded once
			if !dt.IsFloat() {
				return traced.ErrForm
			}
			x = c.In(traced.AccType(dt), x)
		}
		for d := n - 1; d >= 0; d-- {
			if back {
				x = c.scattered(x, front+d, small[d], from[d])
			} else {
				x = c.gathered(x, front+d, from[d])
			}
		}
		return c.Settle(c.In(dt, x))
	}
}

// resampledDims is over how many dimensions the operator at hand goes, by its name.
func (c *call) resampledDims() int {
	for n, s := range []string{"1d", "2d", "3d"} {
		if strings.Contains(c.Target, s) {
			return n + 1
		}
	}
	return 0
}

// numbers is a constant of integers or of floats of single precision.
func (c *call) numbers(dt ir.DType, v []float64, shape ...int64) *ir.Value {
	var b []byte
	for _, x := range v {
		switch dt {
		case ir.I64:
			b = bits.LittleEndian.AppendUint64(b, uint64(int64(x)))
		case ir.F64:
			b = bits.LittleEndian.AppendUint64(b, math.Float64bits(x))
		default:
			b = bits.LittleEndian.AppendUint32(b, math.Float32bits(float32(x)))
		}
	}
	l := attr.Make(attr.Attr{Key: "data", Val: attr.String(base64.StdEncoding.EncodeToString(b))})
	return c.Helper(ir.OpConstant, l, ir.Tensor(dt, shape...))
}

// positions are where tap t of each element comes from.
func (c *call) positions(s source, t int) *ir.Value {
	var v []float64
	for i := t; i < len(s.at); i += s.taps {
		v = append(v, float64(s.at[i]))
	}
	return c.numbers(ir.I64, v, int64(len(v)))
}

// weighted is x times the factors of tap t, which lie along dimension d.
func (c *call) weighted(x *ir.Value, d int, s source, t int) *ir.Value {
	if s.factor == nil {
		return x
	}
	var v []float64
	for i := t; i < len(s.factor); i += s.taps {
		v = append(v, s.factor[i])
	}
	shape := slices.Repeat([]int64{1}, x.Type().Rank()-d)
	shape[0] = int64(len(v))
	return c.Make(ir.OpMul, nil, x, c.numbers(x.Type().DType(), v, shape...))
}

// gathered sums the taps of x along d.
func (c *call) gathered(x *ir.Value, d int, s source) *ir.Value {
	var sum *ir.Value
	if s.beyond {
		zero := slices.Clone(x.Type().Shape())
		zero[d] = ir.D(1)
		x = c.Make(ir.OpCat, traced.DimAttr(int64(d)), x, c.Full(attr.Int(0), x.Type().DType(), zero))
	}
	for t := range s.taps {
		y := c.Make(ir.OpIndex, attr.Make(attr.Attr{Key: "dims", Val: attr.Ints(int64(d))}), x, c.positions(s, t))
		y = c.weighted(y, d, s, t)
		if sum != nil {
			y = c.Make(ir.OpAdd, nil, sum, y)
		}
		sum = y
	}
	return sum
}

// scattered adds what gathered would have read of the gradient dy to where it was read.
func (c *call) scattered(dy *ir.Value, d int, n int64, s source) *ir.Value {
	shape := slices.Clone(dy.Type().Shape())
	if shape[d] = ir.D(n); s.beyond {
		shape[d] = ir.D(n + 1)
	}
	sum := c.Full(attr.Int(0), dy.Type().DType(), shape)
	for t := range s.taps {
		sum = c.Make(ir.OpIndexAdd, traced.DimAttr(int64(d)), sum, c.positions(s, t), c.weighted(dy, d, s, t))
	}
	if s.beyond {
		sum = c.Slice(sum, d, 0, n)
	}
	return sum
}

// padded reads paddings, which stand from the last dimension on.
func padded(inside func(i, n int64) int64) sources {
	return func(c *call, d, n int, in, out int64) (s source) {
		pads := c.Ints("padding")
		if c.Err != nil {
			return s
		}
		if len(pads) != 2*n {
			c.Reject("padding", c.Arg("padding"), "%d numbers for %d dimensions", len(pads), n)
			return s
		}
		low, high := pads[2*(n-1-d)], pads[2*(n-1-d)+1]
		if min(low, high) < -in || max(low, high) > maxTaps || in+low+high != out {
			c.Reject("padding", c.Arg("padding"), "%d and %d do not make %d elements of %d", low, high, out, in)
			return s
		}
		s.taps = 1
		for o := range out {
			i := inside(o-low, in)
			if i < 0 || i >= in {
				c.Reject("padding", c.Arg("padding"), "%d and %d reach beyond the %d elements", low, high, in)
				return s
			}
			s.at = append(s.at, i)
		}
		return s
	}
}

func reflect(i, n int64) int64 {
	switch {
	case i < 0:
		return -i
	case i >= n:
		return 2*(n-1) - i
	}
	return i
}

func replicate(i, n int64) int64 { return max(0, min(i, n-1)) }

// single rounds to single precision, in which PyTorch looks for places.
func single(x float64) float64 { return float64(float32(x)) }

// scale is the step of the operand's index for one of the result's: of a factor that was
// given, or of the sizes.
func (c *call) scale(d, n int, in, out int64) float64 {
	if v := c.Arg("scale_factors"); v != nil {
		list := c.ListOf("scale_factors")
		if c.Err == nil && len(list) == n && list[d].Kind == pytext.Float && list[d].Float > 0 {
			return 1 / list[d].Float
		}
	}
	names := []string{"scales_d", "scales_h", "scales_w"}[3-n:]
	if n == 1 {
		names = []string{"scales"}
	}
	if slices.Contains(c.Params, names[d]) {
		if v, ok := c.Num(names[d]); ok {
			if f, _ := v.AsFloat(); f > 0 {
				return 1 / f
			}
		}
	}
	return float64(in) / float64(out)
}

// nearestAt takes the element under the result's, shifted by so much of one.
func nearestAt(shift float64) sources {
	return func(c *call, d, n int, in, out int64) source {
		s, scale := source{taps: 1}, single(c.scale(d, n, in, out))
		for o := range out {
			i := int64(math.Floor(single((float64(o) + shift) * scale)))
			s.at = append(s.at, max(0, min(i, in-1)))
		}
		return s
	}
}

// step is how far apart the places of the result's elements lie in the operand, and how numbers
// are rounded on the way: to single precision, unless the result has more.
func (c *call) step(d, n int, in, out int64) (scale float64, align bool, round func(float64) float64) {
	round = single
	if t, err := c.Trace.TypeOf(0); err == nil && t.DType() == ir.F64 {
		round = func(x float64) float64 { return x }
	}
	switch align = c.Bool("align_corners", false); {
	case !align:
		scale = round(c.scale(d, n, in, out))
	case out > 1:
		scale = round(float64(in-1) / float64(out-1))
	}
	return scale, align, round
}

// linear mixes the two elements around the result's place, which lies there in double
// precision where they have it.
func linear(c *call, d, n int, in, out int64) source {
	s := source{taps: 2}
	scale, align, round := c.step(d, n, in, out)
	for o := range out {
		at := round(scale * float64(o))
		if !align {
			at = max(0, round(round(scale*(float64(o)+0.5))-0.5))
		}
		i := min(int64(at), in-1)
		part := min(max(at-float64(i), 0), 1)
		s.at = append(s.at, i, min(i+1, in-1))
		s.factor = append(s.factor, round(1-part), part)
	}
	return s
}

// cubic mixes the four elements around the result's place; what lies outside is the outermost.
func cubic(c *call, d, n int, in, out int64) source {
	s := source{taps: 4}
	scale, align, round := c.step(d, n, in, out)
	weight := keys(-0.75, round)
	for o := range out {
		at := round(scale * float64(o))
		if !align {
			at = round(round(scale*(float64(o)+0.5)) - 0.5)
		}
		first := math.Floor(at)
		part := round(at - first)
		rest := round(1 - part)
		for t, x := range []float64{round(part + 1), part, rest, round(rest + 1)} {
			s.at = append(s.at, max(0, min(int64(first)+int64(t)-1, in-1)))
			s.factor = append(s.factor, weight(x))
		}
	}
	return s
}

// A filter is the weight of an element by its distance.
type filter func(round func(float64) float64) func(x float64) float64

// tent falls from one at zero to zero at one.
func tent(round func(float64) float64) func(x float64) float64 {
	return func(x float64) float64 { return max(0, round(1-math.Abs(x))) }
}

func cubicFilter(round func(float64) float64) func(x float64) float64 { return keys(-0.5, round) }

// keys is Keys' cubic convolution, which ends at two, with slope a at one. Its terms cancel, so that
// it is rounded where PyTorch rounds.
func keys(a float64, round func(float64) float64) func(x float64) float64 {
	return func(x float64) float64 {
		switch x = math.Abs(x); {
		case x < 1:
			return round(round(round(round(round((a+2)*x)-(a+3))*x)*x) + 1)
		case x < 2:
			return round(round(round(round(round(round(a*x)-5*a)*x)+8*a)*x) - 4*a)
		}
		return 0
	}
}

// antialiased averages all elements under a filter that reaches so far, and further where the
// result is smaller than the operand. Places that have fewer elements than others read zeros.
func antialiased(reach float64, of filter) sources {
	return func(c *call, d, n int, in, out int64) source {
		s := source{beyond: true}
		scale, _, round := c.step(d, n, in, out)
		stretch := max(scale, 1)
		support, narrow, weight := round(reach*stretch), round(1/stretch), of(round)
		s.taps = int(min(in, int64(2*math.Ceil(support)+1)))
		if int64(s.taps)*out > maxTaps {
			c.Err = traced.ErrForm
			return s
		}
		for o := range out {
			center := round(scale * (float64(o) + 0.5))
			first := max(0, int64(round(round(center-support)+0.5)))
			last := min(in, int64(round(round(center+support)+0.5)))
			under := make([]float64, s.taps)
			var total float64
			for t := range min(last-first, int64(s.taps)) {
				away := round(round(float64(t)+round(float64(first)-center)) + 0.5)
				under[t] = weight(round(away * narrow))
				total = round(total + under[t])
			}
			for t, w := range under {
				at := first + int64(t)
				if at >= last {
					at = in
				}
				s.at, s.factor = append(s.at, at), append(s.factor, round(w/total))
			}
		}
		return s
	}
}
