package aten

import (
	"fmt"
	"math"
	"slices"

	"github.com/seed-ee968945/concert/internal/attr"
	"github.com/seed-ee968945/concert/internal/dtype"
	"github.com/seed-ee968945/concert/internal/intmath"
	"github.com/seed-ee968945/concert/ir"
	"github.com/seed-ee968945/concert/ir/fx/internal/traced"
)

// fourierOps are discrete Fourier transforms. Each is linear, so along one dimension it is a
// product with a matrix; with pairs for complex numbers, one of real numbers.
var fourierOps = []row{
	{"aten._fft_c2c.default", "self dim normalization forward", func(c *call) error { return c.fourier(fourier{in: 2, out: 2}) }},
	{"aten._fft_r2c.default", "self dim normalization onesided", func(c *call) error { return c.fourier(fourier{in: 1, out: 2}) }},
	{"aten._fft_c2r.default", "self dim normalization last_dim_size", func(c *call) error { return c.fourier(fourier{in: 2, out: 1}) }},
}

// Points up to maxWhole are transformed by one matrix, more by a rows of b points: along one and
// the other, with turns between. That takes fewer products, and the sums are shorter. Where no
// such a is there, as for primes, points up to maxTransformed have one matrix as well.
const (
	maxWhole       = 64
	maxTransformed = 2048
	maxPoints      = 1 << 24
)

// rowsOf is the largest divisor of n up to its root, or 1 where points are transformed as a whole.
func rowsOf(n int64) int64 {
	if n <= maxWhole {
		return 1
	}
	a := int64(math.Sqrt(float64(n)))
	for n%a != 0 {
		a--
	}
	return a
}

// matrixes is how many transform n points, 0 if that would take a large one.
func matrixes(n int64) int {
	a := rowsOf(n)
	if a == 1 {
		if n > maxTransformed {
			return 0
		}
		return 1
	}
	one, other := matrixes(a), matrixes(n/a)
	if one*other == 0 {
		return 0
	}
	return one + other
}

// fourier is a transform of n points, of which there are from and of which to are asked for; in
// and out are the numbers of each, 1 if they are real.
type fourier struct {
	n, from, to, in, out int64
	sign                 int64 // of the exponent
	scale                float64
}

// fourier transforms dimension by dimension: real numbers the last of the list first, which
// real results have last.
func (c *call) fourier(f fourier) error {
	x := c.Tensor("self")
	if c.Err != nil {
		return c.Err
	}
	ts, err := c.Types()
	if err != nil {
		return err
	}
	numbers := func(t ir.Type, parts int64) []int64 { s := traced.SizesOf(t); return s[:len(s)-int(parts-1)] }
	if x.Type().Rank() < int(f.in-1) || ts[0].Rank() < int(f.out-1) {
		return traced.ErrForm
	}
	from, to := numbers(x.Type(), f.in), numbers(ts[0], f.out)
	dims := c.Dims("dim", len(from))
	mode := c.Need("normalization")
	if c.Err != nil {
		return c.Err
	}
	if d := slices.Sorted(slices.Values(dims)); len(d) == 0 || len(slices.Compact(d)) < len(dims) || len(from) != len(to) || slices.Contains(from, 0) || slices.Contains(to, 0) || !x.Type().DType().IsFloat() || mode < 0 || mode > 2 {
		return traced.ErrForm
	}
	last := dims[len(dims)-1]
	points := slices.Clone(from)
	if f.sign = -1; f.out == 1 || f.in == 2 && !c.Bool("forward", true) {
		f.sign = 1
	}
	if f.out == 1 {
		points[last] = c.Need("last_dim_size")
	}
	all := 1.0
	for _, d := range dims {
		if points[d] < 1 || points[d] > maxPoints || matrixes(points[d]) == 0 {
			return traced.Unknown(fmt.Errorf("transforms of %d points need matrices of more than %d", points[d], maxTransformed))
		}
		c.Shares += matrixes(points[d])
		all *= float64(points[d])
	}
	if f.in != f.out && (f.in == 2 && (from[last] != points[last]/2+1 || to[last] != points[last]) ||
		f.in == 1 && to[last] != points[last] && to[last] != points[last]/2+1) {
		return traced.ErrForm
	}
	x = c.In(traced.AccType(x.Type().DType()), x)
	order := slices.Clone(dims)
	if f.in == 1 {
		slices.Reverse(order)
	}
	for k, d := range order {
		g := fourier{n: points[d], from: points[d], to: points[d], in: 2, out: 2, sign: f.sign, scale: 1}
		if d == last && f.in != f.out {
			g.from, g.to, g.in, g.out = from[d], to[d], f.in, f.out
		}
		if k == len(order)-1 {
			g.scale = []float64{1, 1 / math.Sqrt(all), 1 / all}[mode]
		}
		y, shape, back := c.transformed(x, d, g)
		if k == len(order)-1 && slices.IsSorted(back) && ts[0].Equal(ir.Tensor(y.Type().DType(), shape...)) && c.Err == nil {
			c.Charged = true
			err := c.Finish(ir.OpView, nil, []*ir.Value{y})
			c.View = false
			return err
		}
		x = c.Permuted(c.Shaped(y, shape...), back...)
	}
	return c.Settle(x)
}

// transformed is x after a transform along d, as a matrix; in shape, it has its dimensions where
// they were once they are permuted back.
func (c *call) transformed(x *ir.Value, d int64, f fourier) (y *ir.Value, shape, back []int64) {
	if c.Err != nil {
		return c.None(), nil, nil
	}
	s := traced.Static(x)
	if f.in == 2 {
		s = s[:len(s)-1]
	}
	// The dimension goes to the end, where its pairs are.
	var there []int64
	shape, back = make([]int64, len(s)), make([]int64, len(s))
	for k := range s {
		if int64(k) != d {
			there = append(there, int64(k))
		}
	}
	there = append(there, d)
	for k, e := range there {
		back[e], shape[k] = int64(k), s[e]
	}
	pair := int64(len(s))
	if f.in == 2 {
		there = append(there, pair)
	}
	rows := intmath.Product(s) / f.from
	y = c.inRows(c.Shaped(c.Permuted(x, there...), rows, f.from*f.in), rows, f)
	if shape[len(shape)-1] = f.to; f.out == 2 {
		shape, back = append(shape, 2), append(back, pair)
	}
	return y, shape, back
}

// inRows transforms each row of x.
func (c *call) inRows(x *ir.Value, rows int64, f fourier) *ir.Value {
	dt, a := x.Type().DType(), rowsOf(f.n)
	if a == 1 || c.Err != nil {
		return c.Make(ir.OpMatmul, nil, x, c.wave(f, dt))
	}
	if f.from < f.n { // twice the numbers whose conjugates are not there
		x = c.Mul(c.Shaped(x, rows, f.from, f.in), c.In(dt, c.Shaped(c.weights(c.Counting(f.from), f.n), f.from, 1)))
		x = c.Make(ir.OpCat, traced.DimAttr(1), x, c.Filled(attr.Int(0), dt, rows, f.n-f.from, f.in))
	}
	b := f.n / a
	exchanged := func(x *ir.Value, m, n, parts int64) *ir.Value {
		return c.Permuted(c.Shaped(x, rows, m, n, parts), 0, 2, 1, 3)
	}
	x = c.inRows(c.Shaped(exchanged(x, a, b, f.in), rows*b, a*f.in), rows*b, fourier{n: a, from: a, to: a, in: f.in, out: 2, sign: f.sign, scale: 1})
	x = c.turned(c.Shaped(x, rows, b, a, 2), f)
	x = c.inRows(c.Shaped(exchanged(x, b, a, 2), rows*a, b*2), rows*a, fourier{n: b, from: b, to: b, in: 2, out: f.out, sign: f.sign, scale: f.scale})
	return c.Shaped(c.Slice(c.Shaped(exchanged(x, a, b, f.out), rows, f.n, f.out), 1, 0, f.to), rows, f.to*f.out)
}

// turned is x, [rows, b, a, 2], with number k in row j of each turned by j k of n turns.
func (c *call) turned(x *ir.Value, f fourier) *ir.Value {
	s, dt := traced.Static(x), x.Type().DType()
	angle := c.With(ir.OpMul, c.Mul(c.Shaped(c.Counting(s[1]), s[1], 1), c.Counting(s[2])), 4)
	part := func(i int64) *ir.Value {
		return c.Make(ir.OpSelect, traced.DimAttr(3).With("index", attr.Int(i)), x)
	}
	z := c.times(pair{part(0), part(1)}, pair{c.In(dt, c.cosine(angle, f.n)), c.In(dt, c.cosine(c.With(ir.OpAdd, angle, float64(-f.sign*f.n)), f.n))})
	return c.Make(ir.OpCat, traced.DimAttr(3), c.Unsqueezed(z.re, 3), c.Unsqueezed(z.im, 3))
}

// weights are 2 for those of the numbers j of n whose conjugate is another, else 1.
func (c *call) weights(j *ir.Value, n int64) *ir.Value {
	return c.With(ir.OpAdd, c.In(dtype.F64, c.With(ir.OpNe, c.With(ir.OpRemainder, c.With(ir.OpMul, j, 2), float64(n)), 0)), 1)
}

// cosine is that of angles of which 4 n are a turn, as whole numbers. They are brought into a
// quarter to both sides of where it is 0, so that it is a sine of a small number.
func (c *call) cosine(angle *ir.Value, n int64) *ir.Value {
	angle = c.With(ir.OpRemainder, angle, float64(4*n))
	angle = c.With(ir.OpSub, c.Make(ir.OpAbs, nil, c.With(ir.OpSub, angle, float64(2*n))), float64(n))
	return c.Make(ir.OpSin, nil, c.With(ir.OpMul, c.In(dtype.F64, angle), math.Pi/float64(2*n)))
}

// wave is the matrix of a transform, [from * in, to * out]. Part q of the number that part p of
// number j gives to number k is a cosine: of j k turns of n, and a quarter more or less between
// the parts. Real results have the numbers that are not there from their conjugates.
func (c *call) wave(f fourier, dt ir.DType) *ir.Value {
	j, p := c.Shaped(c.Counting(f.from), f.from, 1, 1, 1), c.Shaped(c.Counting(f.in), f.in, 1, 1)
	k, q := c.Shaped(c.Counting(f.to), f.to, 1), c.Counting(f.out)
	turns := c.With(ir.OpMul, c.With(ir.OpRemainder, c.Mul(j, k), float64(f.n)), 4)
	w := c.cosine(c.Add(turns, c.With(ir.OpMul, c.Sub(p, q), float64(f.sign*f.n))), f.n)
	if f.from < f.n {
		w = c.Mul(w, c.weights(j, f.n))
	}
	if f.scale != 1 {
		w = c.With(ir.OpMul, w, f.scale)
	}
	return c.Shaped(c.In(dt, w), f.from*f.in, f.to*f.out)
}
