package export

import (
	"fmt"
	"math"
	"slices"

	"github.com/seed-ee968945/concert/internal/intmath"
	"github.com/seed-ee968945/concert/internal/window"
	"github.com/seed-ee968945/concert/ir"
)

// This file writes folds: of dimensions, of windows, and along a dimension. Sums of floats
// below float32 are made in float32.

// dims are the dimensions that the node folds.
func (e *emitter) dims(rank int) []int64 {
	l := e.node.Attrs().Ints("dims")
	if len(l) == 0 {
		for d := range rank {
			l = append(l, int64(d))
		}
	}
	return l
}

// folded folds dimensions and gives the result's type and shape.
func (e *emitter) folded(op string, x, init val) val {
	return e.reshape(e.to(e.reduce(op, x, init, e.dims(len(x.shape))), e.dtype(0)), e.shape(0))
}

// summed is the type to add up numbers of some types in.
func summed(out ir.DType, x val) ir.DType {
	if dt := domain(out, x.dt); dt.IsFloat() {
		return dt
	}
	if out == ir.Bool {
		return ir.I64
	}
	return out
}

func sum(mean bool) func(*emitter, []val) val {
	return func(e *emitter, vs []val) val {
		dt := summed(e.dtype(0), vs[0])
		x := e.to(vs[0], dt)
		r := e.reduce("stablehlo.add", x, e.whole(0, dt, nil), e.dims(len(x.shape)))
		if mean {
			n := intmath.Product(x.shape) / max(intmath.Product(r.shape), 1)
			if intmath.Product(r.shape) == 0 {
				n = 1
			}
			r = e.simple("stablehlo.divide", r, e.whole(n, dt, r.shape))
		}
		return e.reshape(e.to(r, e.dtype(0)), e.shape(0))
	}
}

func product(e *emitter, vs []val) val {
	dt := summed(e.dtype(0), vs[0])
	return e.folded("stablehlo.multiply", e.to(vs[0], dt), e.whole(1, dt, nil))
}

// extreme is the largest or the smallest; of none it is what every other is better than.
func extreme(largest bool) func(*emitter, []val) val {
	return func(e *emitter, vs []val) val {
		x := vs[0]
		if x.dt == ir.Bool {
			x = e.to(x, ir.U8)
		}
		op := "stablehlo.minimum"
		if largest {
			op = "stablehlo.maximum"
		}
		r := e.reduce(op, x, e.worst(x.dt, largest, vs[0].dt), e.dims(len(x.shape)))
		if vs[0].dt == ir.Bool {
			r = e.to(r, ir.Bool)
		}
		return e.reshape(e.to(r, e.dtype(0)), e.shape(0))
	}
}

// worst is the number that no other is below, or above; of holds what a type is in the
// place of.
func (e *emitter) worst(dt ir.DType, largest bool, of ir.DType) val {
	if dt.IsFloat() {
		least, greatest := dt.Ends()
		if largest {
			return e.number(least, dt, nil)
		}
		return e.number(greatest, dt, nil)
	}
	low, high := of.Range()
	if largest {
		return e.whole(low, dt, nil)
	}
	return e.whole(high, dt, nil)
}

// argmax carries indices along with elements: of equal ones the first counts, and NaN is the largest.
func argmax(e *emitter, vs []val) val {
	x, d := vs[0], e.node.Attrs().Int("dim", 0)
	if x.dt == ir.Bool {
		x = e.to(x, ir.U8)
	}
	if len(x.shape) == 0 {
		return e.whole(0, e.dtype(0), e.shape(0))
	}
	places := e.iota(ir.I64, x.shape, int(d))
	var shape []int64
	for i, n := range x.shape {
		if i != int(d) {
			shape = append(shape, n)
		}
	}
	t, p := typeText(x.dt, nil), typeText(ir.I64, nil)
	kind := e.kind(x.dt)
	region := fmt.Sprintf(`    ^bb0(%%.a: %[1]s, %%.i: %[2]s, %%.b: %[1]s, %%.j: %[2]s):
      %%.gt = stablehlo.compare GT, %%.a, %%.b, %[3]s : (%[1]s, %[1]s) -> tensor<i1>
      %%.nan = stablehlo.compare NE, %%.a, %%.a, %[3]s : (%[1]s, %[1]s) -> tensor<i1>
      %%.better = stablehlo.or %%.gt, %%.nan : tensor<i1>
      %%.eq = stablehlo.compare EQ, %%.a, %%.b, %[3]s : (%[1]s, %[1]s) -> tensor<i1>
      %%.other = stablehlo.compare NE, %%.b, %%.b, %[3]s : (%[1]s, %[1]s) -> tensor<i1>
      %%.both = stablehlo.and %%.nan, %%.other : tensor<i1>
      %%.tie = stablehlo.or %%.eq, %%.both : tensor<i1>
      %%.before = stablehlo.compare LT, %%.i, %%.j, SIGNED : (%[2]s, %[2]s) -> tensor<i1>
      %%.first = stablehlo.and %%.tie, %%.before : tensor<i1>
      %%.one = stablehlo.not %%.both : tensor<i1>
      %%.clear = stablehlo.and %%.better, %%.one : tensor<i1>
      %%.take = stablehlo.or %%.clear, %%.first : tensor<i1>
      %%.v = stablehlo.select %%.take, %%.a, %%.b : tensor<i1>, %[1]s
      %%.k = stablehlo.select %%.take, %%.i, %%.j : tensor<i1>, %[2]s
      stablehlo.return %%.v, %%.k : %[1]s, %[2]s
`, t, p, kind)
	init := e.worst(x.dt, true, vs[0].dt)
	none := e.whole(math.MaxInt64, ir.I64, nil)
	out := e.generic("stablehlo.reduce", "dimensions = array<i64: "+fmt.Sprint(d)+">", region, []val{x, places, init, none},
		[]val{of(x.dt, shape), of(ir.I64, shape)})
	return e.reshape(e.to(out[1], e.dtype(0)), e.shape(0))
}

// kind is how elements of a type are compared.
func (e *emitter) kind(dt ir.DType) string {
	switch {
	case dt.IsFloat():
		return "FLOAT"
	case dt.IsUnsigned() || dt == ir.Bool:
		return "UNSIGNED"
	}
	return "SIGNED"
}

// softmax takes the largest away first.
func softmax(log bool) func(*emitter, []val) val {
	return func(e *emitter, vs []val) val {
		dt := domain(vs[0].dt, e.dtype(0), ir.F32)
		x := e.to(vs[0], dt)
		if len(x.shape) == 0 {
			x = e.reshape(x, []int64{1})
		}
		d := e.node.Attrs().Int("dim", 0)
		rest := []int64{}
		for i := range x.shape {
			if i != int(d) {
				rest = append(rest, int64(i))
			}
		}
		over := func(v val) val { return e.spread(v, rest, x.shape) }
		x = e.simple("stablehlo.subtract", x, over(e.reduce("stablehlo.maximum", x, e.worst(dt, true, dt), []int64{d})))
		p := e.simple("stablehlo.exponential", x)
		s := e.reduce("stablehlo.add", p, e.whole(0, dt, nil), []int64{d})
		if log {
			p = e.simple("stablehlo.subtract", x, over(e.simple("stablehlo.log", s)))
		} else {
			p = e.simple("stablehlo.divide", p, over(s))
		}
		return e.reshape(e.to(p, e.dtype(0)), e.shape(0))
	}
}

// cumsum adds up windows that end at each element.
func cumsum(e *emitter, vs []val) val {
	dt := summed(e.dtype(0), vs[0])
	x, d := e.to(vs[0], dt), e.node.Attrs().Int("dim", 0)
	if intmath.Product(x.shape) == 0 || len(x.shape) == 0 {
		return e.to(x, e.dtype(0))
	}
	w := make([]window.Dim, len(x.shape))
	for i := range w {
		w[i] = window.Dim{Size: 1, Stride: 1, Base: 1, Dilation: 1}
	}
	w[d].Size, w[d].Low = x.shape[d], x.shape[d]-1
	return e.to(e.windows("stablehlo.add", x, e.whole(0, dt, nil), w, x.shape), e.dtype(0))
}

// windows folds windows.
func (e *emitter) windows(op string, x, init val, w []window.Dim, shape []int64) val {
	get := func(f func(window.Dim) int64) []int64 {
		out := make([]int64, len(w))
		for i, d := range w {
			out[i] = f(d)
		}
		return out
	}
	pads := list(w, func(d window.Dim) string { return fmt.Sprintf("[%d, %d]", d.Low, d.High) })
	attrs := fmt.Sprintf("base_dilations = %s, padding = dense<[%s]> : tensor<%dx2xi64>, window_dilations = %s, window_dimensions = %s, window_strides = %s",
		array(get(func(d window.Dim) int64 { return d.Base })), pads, len(w), array(get(func(d window.Dim) int64 { return d.Dilation })),
		array(get(func(d window.Dim) int64 { return d.Size })), array(get(func(d window.Dim) int64 { return d.Stride })))
	return e.generic("stablehlo.reduce_window", attrs, body(op, x.dt), []val{x, init}, []val{of(x.dt, shape)})[0]
}

// reduceWindow folds windows. What says which elements count, or gives places, goes through
// the places of a window one after the other.
func reduceWindow(e *emitter, vs []val) val {
	attrs, shape := e.node.Attrs(), e.shape(0)
	if intmath.Product(shape) == 0 {
		return e.whole(0, e.dtype(0), shape)
	}
	w, err := window.Parse(attrs.Ints, attrs.Ints("window"))
	if err != nil {
		e.failf("%v", err)
		return val{}
	}
	how := attrs.Str("reduce", "")
	x := vs[0]
	dt := x.dt
	if how == "sum" || how == "product" {
		dt = summed(e.dtype(0), x)
	} else if dt == ir.Bool {
		dt = ir.U8
	}
	ops := map[string]string{"sum": "stablehlo.add", "product": "stablehlo.multiply", "min": "stablehlo.minimum", "max": "stablehlo.maximum"}
	inits := map[string]func() val{"sum": func() val { return e.whole(0, dt, nil) }, "product": func() val { return e.whole(1, dt, nil) },
		"min": func() val { return e.worst(dt, false, x.dt) }, "max": func() val { return e.worst(dt, true, x.dt) }, "argmax": func() val { return e.worst(dt, true, x.dt) }}
	init := inits[how]()
	y := e.to(x, dt)
	if how != "argmax" && len(vs) == 1 {
		if len(shape) == 0 { // a window of the only element
			return e.to(x, e.dtype(0))
		}
		return e.to(e.windows(ops[how], y, init, w, e.shape(0)), e.dtype(0))
	}
	acc := e.broadcast(init, shape)
	if how == "argmax" {
		return e.to(e.placesOfLargest(y, init, w, shape), e.dtype(0))
	}
	for place, at := range taps(w) {
		px := e.tap(y, init, w, at, shape)
		pp := e.tap(e.to(vs[1], ir.I64), e.whole(-1, ir.I64, nil), w, at, shape)
		hit := e.compare("EQ", pp, e.whole(int64(place), ir.I64, shape))
		acc = e.simple(ops[how], acc, e.choose(hit, px, e.broadcast(init, shape)))
	}
	return e.to(acc, e.dtype(0))
}

// placesOfLargest is the place of each window's first largest element, of the last that is no number, 0 where it has none.
func (e *emitter) placesOfLargest(x, init val, w []window.Dim, shape []int64) val {
	best, at := e.broadcast(init, shape), e.whole(0, ir.I64, shape)
	found := e.whole(0, ir.Bool, shape)
	there := e.whole(1, ir.Bool, x.shape)
	for place, tap := range taps(w) {
		v := e.tap(x, init, w, tap, shape)
		is := e.tap(there, e.whole(0, ir.Bool, nil), w, tap, shape)
		better := e.simple("stablehlo.or", e.compare("GT", v, best), e.simple("stablehlo.not", found))
		if x.dt.IsFloat() {
			better = e.simple("stablehlo.or", better, e.compare("NE", v, v))
		}
		take := e.simple("stablehlo.and", is, better)
		best, at = e.choose(take, v, best), e.choose(take, e.whole(int64(place), ir.I64, shape), at)
		found = e.simple("stablehlo.or", found, is)
	}
	return at
}

// taps lists the places of a window in row-major order.
func taps(w []window.Dim) [][]int64 {
	out := [][]int64{nil}
	for _, d := range w {
		var next [][]int64
		for _, at := range out {
			for k := range d.Size {
				next = append(next, append(slices.Clone(at), k))
			}
		}
		out = next
	}
	return out
}

// tap is what each window has at one of its places.
func (e *emitter) tap(x, with val, w []window.Dim, at, shape []int64) val {
	low, high, between := make([]int64, len(w)), make([]int64, len(w)), make([]int64, len(w))
	for i, d := range w {
		low[i], high[i], between[i] = d.Low, d.High, d.Base-1
	}
	y := e.pad(x, with, low, high, between)
	for i, d := range w {
		start := d.Tap(at[i]) * d.Dilation
		y = e.slice(y, i, start, start+(shape[i]-1)*d.Stride+1, d.Stride)
	}
	return y
}
