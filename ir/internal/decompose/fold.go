package decompose

import (
	"fmt"
	"math"
	"slices"

	"github.com/seed-ee968945/concert/internal/intmath"
	"github.com/seed-ee968945/concert/ir"
)

// Reduce folds xs, which have one shape, along dims, in order, by a body of two parameters for
// each of them, beginning with inits.
func Reduce(to Emitter, xs, inits []*ir.Value, dims []int64, body Body) ([]*ir.Value, error) {
	e := emit{to}
	p, err := foldable("reduce", xs, inits, body)
	if err != nil {
		return nil, err
	}
	shape := sizes(xs[0])
	if err := distinct("reduce", len(shape), dims); err != nil {
		return nil, err
	}
	dims = slices.Sorted(slices.Values(dims))
	var front, rest []int
	var left []int64
	length := int64(1)
	for d, n := range shape {
		if slices.Contains(dims, int64(d)) {
			front = append(front, d)
			length *= n
		} else {
			rest, left = append(rest, d), append(left, n)
		}
	}
	out := make([]*ir.Value, len(xs))
	if length == 0 {
		for i := range inits {
			out[i] = e.dense(e.expand(inits[i], left))
		}
		return out, nil
	}
	known := true
	for i := range xs {
		_, ok := reductions[p.kind(i)]
		known = known && (ok || len(dims) == 0)
	}
	largest, extreme := p.extreme()
	if extreme && len(dims) == 1 && counted(xs[1], int(dims[0])) {
		out = e.extreme(xs[0], xs[1], dims[0], largest)
	} else if known {
		for i := range xs {
			out[i] = xs[i]
			if len(dims) > 0 {
				out[i] = e.one(reductions[p.kind(i)], ir.A("dims", dims), xs[i:i+1])
			}
		}
	} else {
		for i, x := range xs {
			out[i] = e.view(e.permute(x, slices.Concat(front, rest)), append([]int64{length}, left...))
		}
		if out, err = tree(e, body, out); err != nil {
			return nil, fmt.Errorf("reduce: %w", err)
		}
	}
	return begin(e, "reduce", body, p, inits, out)
}

var reductions = map[kind]ir.Op{kindAdd: ir.OpSum, kindMul: ir.OpProd, kindMax: ir.OpAmax, kindMin: ir.OpAmin}

// foldable checks the operands of a fold.
func foldable(what string, xs, inits []*ir.Value, body Body) (*probed, error) {
	if err := check(what, slices.Concat(xs, inits)...); err != nil {
		return nil, err
	}
	if len(xs) == 0 || len(xs) != len(inits) {
		return nil, fmt.Errorf("%s: %d operands and %d initial values", what, len(xs), len(inits))
	}
	for i, x := range xs {
		if !slices.Equal(sizes(x), sizes(xs[0])) {
			return nil, fmt.Errorf("%s: operand %d is %s, operand 0 is %s", what, i, x.Type(), xs[0].Type())
		}
		if t := inits[i].Type(); t.Rank() != 0 || t.DType() != x.Type().DType() {
			return nil, fmt.Errorf("%s: initial value %d is %s, want a scalar of type %s", what, i, t, x.Type().DType())
		}
	}
	p, err := probe(body, xs, xs)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", what, err)
	}
	return p, p.gives(what, xs)
}

// tree folds the first dimension of xs: neighbours first, so that the order stays.
func tree(e emit, body Body, xs []*ir.Value) ([]*ir.Value, error) {
	xs = slices.Clone(xs)
	n := sizes(xs[0])[0]
	for n > 1 {
		even := n / 2 * 2
		first, second := make([]*ir.Value, len(xs)), make([]*ir.Value, len(xs))
		for i, x := range xs {
			first[i], second[i] = e.slice(x, 0, 0, even, 2), e.slice(x, 0, 1, even, 2)
		}
		got, err := apply(e, body, first, second)
		if err != nil {
			return nil, err
		}
		for i, x := range xs {
			if even < n {
				got[i] = e.cat(0, got[i], e.slice(x, 0, even, n, 1))
			}
		}
		xs, n = got, n/2+n%2
	}
	for i, x := range xs {
		xs[i] = e.view(x, sizes(x)[1:])
	}
	return xs, nil
}

// begin folds the initial values before what is folded already. One that changes nothing
// is left out.
func begin(e emit, what string, body Body, p *probed, inits, folded []*ir.Value) ([]*ir.Value, error) {
	needed := false
	for i, v := range inits {
		needed = needed || !neutral(p.kind(i), v)
	}
	if !needed {
		return folded, nil
	}
	first := make([]*ir.Value, len(inits))
	for i, v := range inits {
		first[i] = e.expand(v, sizes(folded[i]))
	}
	got, err := apply(e, body, first, folded)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", what, err)
	}
	for i, v := range got {
		if neutral(p.kind(i), inits[i]) {
			got[i] = folded[i]
		} else {
			got[i] = v
		}
	}
	return got, nil
}

// identity is the number that changes no other, of floats or of integers; false if k has none.
func identity(k kind, dt ir.DType) (f float64, i int64, ok bool) {
	low, high := dt.Range()
	least, largest := dt.Ends()
	switch k {
	case kindAdd:
		return math.Copysign(0, -1), 0, true // +0 would change -0
	case kindMul:
		return 1, 1, true
	case kindMax:
		return least, low, true
	case kindMin:
		return largest, high, true
	}
	return 0, 0, false
}

// nothing is the identity of k, which has one.
func (e emit) nothing(k kind, dt ir.DType) *ir.Value {
	f, i, _ := identity(k, dt)
	if dt.IsFloat() {
		return e.full(dt, f)
	}
	return e.integer(dt, i)
}

// neutral reports whether a fold by k may leave the initial value out: it is the identity, or
// +0 in a sum, as which nobody means to change -0.
func neutral(k kind, init *ir.Value) bool {
	f, i, ok := identity(k, init.Type().DType())
	init = init.Viewed()
	v, there := init.Def().Attrs().Get("value")
	if !ok || !there || init.Def().Op() != ir.OpFull {
		return false
	}
	if n, is := v.AsInt(); is && !init.Type().DType().IsFloat() {
		return n == i
	}
	c, is := v.AsFloat()
	if !init.Type().DType().IsFloat() {
		f = float64(i)
		is = is && (i <= 1<<53 && i >= -1<<53)
	}
	return is && c == f
}

// Window says which elements a window has and where windows lie, by StableHLO's names; nil
// stands for ones, or no padding.
type Window struct {
	Dimensions, Strides, BaseDilations, WindowDilations []int64
	Padding                                             [][2]int64
}

// ReduceWindow folds the elements of each window of xs, in row-major order, by a body of two
// parameters for each of them, beginning with inits, which are the elements around xs, too.
func ReduceWindow(to Emitter, xs, inits []*ir.Value, w Window, body Body) ([]*ir.Value, error) {
	e := emit{to}
	p, err := foldable("reduce_window", xs, inits, body)
	if err != nil {
		return nil, err
	}
	shape := sizes(xs[0])
	if w, err = w.complete("reduce_window", len(shape)); err != nil {
		return nil, err
	}
	out := make([]*ir.Value, len(xs))
	if d, back, ok := w.running(shape); ok && p.sums(xs, inits) && (shape[d] > maxSteps || !xs[0].Type().DType().IsFloat()) { // else see steps
		for i, x := range xs {
			if out[i], err = e.runningSum(x, d, back); err != nil {
				return nil, fmt.Errorf("reduce_window: %w", err)
			}
		}
		return out, nil
	}
	for i, x := range xs {
		low, high, inner := make([]int64, len(shape)), make([]int64, len(shape)), make([]int64, len(shape))
		for d := range shape {
			low[d], high[d], inner[d] = w.Padding[d][0], w.Padding[d][1], w.BaseDilations[d]-1
		}
		if out[i], err = Pad(to, x, inits[i], low, high, inner); err != nil {
			return nil, fmt.Errorf("reduce_window: %w", err)
		}
	}
	counts := make([]int64, len(shape))
	for d := range counts {
		counts[d] = w.count(out[0], d)
	}
	if slices.Contains(counts, 0) {
		for i, x := range out {
			out[i] = e.full(x.Type().DType(), 0, counts...)
		}
		return out, nil
	}
	if intmath.Product(w.Dimensions) <= maxSteps {
		return w.steps(e, body, p, inits, out, counts)
	}
	for d := len(shape) - 1; d >= 0; d-- { // the innermost first, which is row-major order
		if out, err = slide(e, body, out, d, w.Dimensions[d], w.WindowDilations[d]); err != nil {
			return nil, fmt.Errorf("reduce_window: %w", err)
		}
		for i, x := range out {
			out[i] = e.slice(x, d, 0, (counts[d]-1)*w.Strides[d]+1, w.Strides[d])
		}
	}
	for i, x := range out {
		out[i] = e.dense(x)
	}
	return begin(e, "reduce_window", body, p, inits, out)
}

// running is the one dimension along which each window has all that is before a place, or
// behind it (back), and the place.
func (w Window) running(shape []int64) (dim int64, back, ok bool) {
	for d, n := range shape {
		low, high := w.Padding[d][0], w.Padding[d][1]
		switch {
		case w.Strides[d] != 1 || w.BaseDilations[d] != 1 || w.WindowDilations[d] != 1 || w.Dimensions[d] > 1 && (ok || w.Dimensions[d] != n):
			return 0, false, false
		case n > 1 && low+high == n-1 && low*high == 0 && w.Dimensions[d] == n:
			dim, back, ok = int64(d), high > 0, true
		case low != 0 || high != 0 || w.Dimensions[d] != 1:
			return 0, false, false
		}
	}
	return dim, back, ok
}

// sums reports whether the body adds, and begins with nothing.
func (p *probed) sums(xs, inits []*ir.Value) bool {
	for i, x := range xs {
		if dt := x.Type().DType(); p.kind(i) != kindAdd || dt == ir.Bool || dt.IsFloat8() || !neutral(kindAdd, inits[i]) {
			return false
		}
	}
	return true
}

// runningSum is the sum of what is before a place along dimension d, or behind it, and of the
// place.
func (e emit) runningSum(x *ir.Value, d int64, back bool) (*ir.Value, error) {
	if !back {
		return e.one(ir.OpCumsum, ir.A("dim", d), []*ir.Value{x}), nil
	}
	turned, err := Reverse(e, x, []int64{d})
	if err != nil {
		return nil, err
	}
	return Reverse(e, e.one(ir.OpCumsum, ir.A("dim", d), []*ir.Value{turned}), []int64{d})
}

// maxSteps is how many elements of a window are folded one after the other at most.
const maxSteps = 64

// count is how many windows lie in dimension d of x.
func (w Window) count(x *ir.Value, d int) int64 {
	n, reach := sizes(x)[d], (w.Dimensions[d]-1)*w.WindowDilations[d]+1
	if n < reach {
		return 0
	}
	return (n-reach)/w.Strides[d] + 1
}

// steps folds small windows from the initial values on, in the order of the elements, which
// rounds as the specification's interpreter does.
func (w Window) steps(e emit, body Body, p *probed, inits, xs []*ir.Value, counts []int64) ([]*ir.Value, error) {
	var out []*ir.Value
	for i, v := range inits {
		if !neutral(p.kind(i), v) {
			out = nil
			for _, v := range inits {
				out = append(out, e.dense(e.expand(v, counts)))
			}
			break
		}
	}
	at := make([]int64, len(counts))
	for k := range intmath.Product(w.Dimensions) {
		for d, rest := len(at)-1, k; d >= 0; d-- {
			at[d], rest = rest%w.Dimensions[d]*w.WindowDilations[d], rest/w.Dimensions[d]
		}
		next := make([]*ir.Value, len(xs))
		for i, x := range xs {
			for d, n := range counts {
				x = e.slice(x, d, at[d], at[d]+(n-1)*w.Strides[d]+1, w.Strides[d])
			}
			next[i] = x
		}
		if out == nil {
			out = next
			continue
		}
		var err error
		if out, err = apply(e, body, out, next); err != nil {
			return nil, fmt.Errorf("reduce_window: %w", err)
		}
	}
	for i, v := range out {
		out[i] = e.dense(v)
	}
	return out, nil
}

// complete fills in what is absent and checks the rest.
func (w Window) complete(what string, rank int) (Window, error) {
	for _, l := range []*[]int64{&w.Dimensions, &w.Strides, &w.BaseDilations, &w.WindowDilations} {
		if *l == nil {
			*l = ones(rank)
		}
		if len(*l) != rank {
			return w, fmt.Errorf("%s: %d numbers for %d dimensions", what, len(*l), rank)
		}
		for _, n := range *l {
			if n < 1 || n > 1<<31 {
				return w, fmt.Errorf("%s: a size, stride or dilation of %d", what, n)
			}
		}
	}
	if w.Padding == nil {
		w.Padding = make([][2]int64, rank)
	}
	if len(w.Padding) != rank {
		return w, fmt.Errorf("%s: paddings of %d dimensions, want %d", what, len(w.Padding), rank)
	}
	return w, nil
}

// slide folds width elements of dimension d, step apart, from every element on from which
// there are as many: windows of 1, 2, 4, ... elements are made of two of half the size.
func slide(e emit, body Body, xs []*ir.Value, d int, width, step int64) ([]*ir.Value, error) {
	power := xs // windows of size elements
	var done []*ir.Value
	have := int64(0)
	pair := func(a, b []*ir.Value, apart int64) ([]*ir.Value, error) {
		n := min(sizes(a[0])[d], sizes(b[0])[d]-apart)
		first, second := make([]*ir.Value, len(a)), make([]*ir.Value, len(a))
		for i := range a {
			first[i], second[i] = e.slice(a[i], d, 0, n, 1), e.slice(b[i], d, apart, apart+n, 1)
		}
		return apply(e, body, first, second)
	}
	var err error
	for size := int64(1); ; size *= 2 {
		if width&size != 0 {
			if done == nil {
				done = power
			} else if done, err = pair(done, power, have*step); err != nil {
				return nil, err
			}
			have += size
		}
		if have == width {
			return done, nil
		}
		if power, err = pair(power, power, size*step); err != nil {
			return nil, err
		}
	}
}
