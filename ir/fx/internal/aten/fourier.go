package aten

import (
	"fmt"
	"math"
	"slices"

	"github.com/seed-ee968945/concert/internal/dtype"
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

// maxTransformed is how many elements a transformed dimension has at most: the matrix has the
// square of it.
const maxTransformed = 2048

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
	if len(dims) == 0 || len(from) != len(to) || slices.Contains(from, 0) || slices.Contains(to, 0) || !x.Type().DType().IsFloat() || mode < 0 || mode > 2 {
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
		if points[d] < 1 || points[d] > maxTransformed {
			return traced.Unknown(fmt.Errorf("%d points, at most %d are transformed", points[d], maxTransformed))
		}
		all *= float64(points[d])
	}
	if f.in != f.out && (f.in == 2 && (from[last] != points[last]/2+1 || to[last] != points[last]) ||
		f.in == 1 && to[last] != points[last] && to[last] != points[last]/2+1) {
		return traced.ErrForm
	}
	x = c.In(accType(x.Type().DType()), x)
	order := slices.Clone(dims)
	if f.in == 1 {
		slices.Reverse(order)
	}
	c.Shares = len(order)
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
	rows := traced.Count(s) / f.from
	y = c.Make(ir.OpMatmul, nil, c.Shaped(c.Permuted(x, there...), rows, f.from*f.in), c.wave(f, x.Type().DType()))
	if shape[len(shape)-1] = f.to; f.out == 2 {
		shape, back = append(shape, 2), append(back, pair)
	}
	return y, shape, back
}

// wave is the matrix of a transform, [from * in, to * out]. Part q of the number that part p of
// number j gives to number k is a cosine: of j k turns of n, and a quarter more or less between
// the parts. Angles are whole numbers, of which 4 n are a turn, and are brought into a quarter to
// both sides of where the cosine is 0, so that it is a sine of a small number. Real results have
// the numbers that are not there from their conjugates.
func (c *call) wave(f fourier, dt ir.DType) *ir.Value {
	j, p := c.Shaped(c.Counting(f.from), f.from, 1, 1, 1), c.Shaped(c.Counting(f.in), f.in, 1, 1)
	k, q := c.Shaped(c.Counting(f.to), f.to, 1), c.Counting(f.out)
	turns := c.With(ir.OpMul, c.With(ir.OpRemainder, c.mul(j, k), float64(f.n)), 4)
	turns = c.With(ir.OpRemainder, c.add(turns, c.With(ir.OpMul, c.sub(p, q), float64(f.sign*f.n))), float64(4*f.n))
	quarter := c.With(ir.OpSub, c.Make(ir.OpAbs, nil, c.With(ir.OpSub, turns, float64(2*f.n))), float64(f.n))
	w := c.Make(ir.OpSin, nil, c.With(ir.OpMul, c.In(dtype.F64, quarter), math.Pi/float64(2*f.n)))
	if f.out == 1 {
		twice := c.With(ir.OpNe, c.With(ir.OpRemainder, c.With(ir.OpMul, j, 2), float64(f.n)), 0)
		w = c.Make(ir.OpWhere, nil, twice, c.With(ir.OpMul, w, 2), w)
	}
	if f.scale != 1 {
		w = c.With(ir.OpMul, w, f.scale)
	}
	return c.Shaped(c.In(dt, w), f.from*f.in, f.to*f.out)
}
