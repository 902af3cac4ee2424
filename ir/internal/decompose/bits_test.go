package decompose_test

import (
	"encoding/binary"
	"math"
	"math/bits"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/seed-ee968945/concert/internal/dtype"
	"github.com/seed-ee968945/concert/interp"
	"github.com/seed-ee968945/concert/ir"
	"github.com/seed-ee968945/concert/ir/internal/decompose"
)

// of is a vector of elements of a Go type.
func of[T interp.Element](t *testing.T, vals ...T) interp.Tensor {
	t.Helper()
	x, err := interp.FromSlice(vals, int64(len(vals)))
	if err != nil {
		t.Fatal(err)
	}
	return x
}

// one is a computation of one result.
func one(v *ir.Value, err error) ([]*ir.Value, error) { return []*ir.Value{v}, err }

func TestCountBits(t *testing.T) {
	r := rand.New(rand.NewPCG(11, 12))
	for _, dt := range []ir.DType{ir.I8, ir.U8, ir.I16, ir.U16, ir.I32, ir.U32, ir.I64, ir.U64} {
		x, err := interp.NewTensor(dt, 64)
		if err != nil {
			t.Fatal(err)
		}
		width := 8 * dt.Size()
		var patterns []uint64
		for i := range 64 {
			p := r.Uint64() >> r.IntN(64)
			if i < 2 {
				p = -uint64(i)
			}
			patterns = append(patterns, p&(1<<(width-1)<<1-1))
			dtype.StoreInt(dt, x.Data[i*dt.Size():], int64(p))
		}
		got := run(t, []interp.Tensor{x}, func(f *ir.FuncBuilder, in []*ir.Value) ([]*ir.Value, error) {
			return []*ir.Value{decompose.PopulationCount(f, in[0]), decompose.CountLeadingZeros(f, in[0])}, nil
		})
		for i, p := range patterns {
			if n, want := got[0].Int64s()[i], bits.OnesCount64(p); n != int64(want) {
				t.Errorf("%v: %#x has %d bits, want %d", dt, p, n, want)
			}
			if n, want := got[1].Int64s()[i], bits.LeadingZeros64(p)-(64-width); n != int64(want) {
				t.Errorf("%v: %#x has %d zeros, want %d", dt, p, n, want)
			}
		}
	}
}

func TestMulHigh(t *testing.T) {
	r := rand.New(rand.NewPCG(13, 14))
	var a, b, high []uint64
	var sa, sb, shigh []int64
	for i := range 60 {
		x, y := r.Uint64(), r.Uint64()
		if i < 6 {
			x, y = []uint64{0, 1, math.MaxUint64, 1 << 63, 1<<63 - 1, 1 << 32}[i], math.MaxUint64
		}
		h, _ := bits.Mul64(x, y)
		a, b, high = append(a, x), append(b, y), append(high, h)
		sa, sb = append(sa, int64(x)), append(sb, int64(y))
		// The signed product is that of the magnitudes, negated with a borrow.
		mh, ml := bits.Mul64(uint64(max(int64(x), -int64(x))), uint64(max(int64(y), -int64(y))))
		if (int64(x) < 0) != (int64(y) < 0) {
			var borrow uint64
			_, borrow = bits.Sub64(0, ml, 0)
			mh, _ = bits.Sub64(0, mh, borrow)
		}
		shigh = append(shigh, int64(mh))
	}
	mul := func(f *ir.FuncBuilder, in []*ir.Value) ([]*ir.Value, error) {
		return []*ir.Value{decompose.MulHigh(f, in[0], in[1])}, nil
	}
	if got := run(t, []interp.Tensor{of(t, a...), of(t, b...)}, mul)[0]; !slices.Equal(got.Data, of(t, high...).Data) {
		t.Errorf("u64: %v", got)
	}
	if got := run(t, []interp.Tensor{of(t, sa...), of(t, sb...)}, mul)[0]; !slices.Equal(got.Data, of(t, shigh...).Data) {
		t.Errorf("i64: got %v, want %v", got, shigh)
	}
	if got := run(t, []interp.Tensor{of[int8](t, -128, 127, -1, 100), of[int8](t, -128, 127, 1, 3)}, mul)[0]; !slices.Equal(got.Int64s(), []int64{64, 63, -1, 1}) {
		t.Errorf("i8: %v", got)
	}
	if got := run(t, []interp.Tensor{of[uint32](t, math.MaxUint32, 1<<16), of[uint32](t, math.MaxUint32, 1<<17)}, mul)[0]; !slices.Equal(got.Int64s(), []int64{math.MaxUint32 - 1, 2}) {
		t.Errorf("u32: %v", got)
	}
}

func TestBitcast(t *testing.T) {
	x := of(t, 1.5, math.Inf(-1), 3e-300)
	for _, dt := range []ir.DType{ir.U8, ir.BF16, ir.F32, ir.I64, ir.Bool} {
		got := run(t, []interp.Tensor{x}, func(f *ir.FuncBuilder, in []*ir.Value) ([]*ir.Value, error) {
			y, err := decompose.Bitcast(f, in[0], dt)
			if err != nil {
				return nil, err
			}
			back, err := decompose.Bitcast(f, y, ir.F64)
			return []*ir.Value{y, back}, err
		})
		if dt == ir.Bool {
			for i, bit := range got[0].Data {
				if bit != x.Data[i/8]>>(i%8)&1 {
					t.Errorf("bit %d is %d", i, bit)
				}
			}
		} else if !slices.Equal(got[0].Data, x.Data) || got[0].DType != dt {
			t.Errorf("%v: %v", dt, got[0])
		}
		if !slices.Equal(got[1].Data, x.Data) || !slices.Equal(got[1].Shape, x.Shape) {
			t.Errorf("%v and back: %v", dt, got[1])
		}
	}
}

// specials are numbers at which floats change their ways.
func specials() []float32 {
	f := func(b uint32) float32 { return math.Float32frombits(b) }
	var out []float32
	for _, v := range []float32{0, f(1), f(2), f(0x7fffff), f(0x800000), f(0x800001), 1e-5, 0.1, 1, f(0x3f800001), f(0x3f7fffff), 1.00390625, 1.01171875, 65504, 65519.99, 65520, 1e30, f(0x7f7fffff), f(0x7f7f8000), float32(math.Inf(1))} {
		out = append(out, v, -v)
	}
	return append(out, float32(math.NaN()))
}

func TestNextAfter(t *testing.T) {
	var x, y, want []float32
	for _, a := range specials() {
		for _, b := range specials() {
			x, y, want = append(x, a), append(y, b), append(want, math.Nextafter32(a, b))
			if a == b { // Go's gives a, even of another zero
				want[len(want)-1] = b
			}
			if a == 0 && b != 0 && b == b {
				want[len(want)-1] = float32(math.Copysign(float64(math.SmallestNonzeroFloat32), float64(b)))
			}
		}
	}
	got := run(t, []interp.Tensor{of(t, x...), of(t, y...)}, func(f *ir.FuncBuilder, in []*ir.Value) ([]*ir.Value, error) {
		return []*ir.Value{decompose.NextAfter(f, in[0], in[1])}, nil
	})[0]
	for i, w := range want {
		g := math.Float32frombits(binary.LittleEndian.Uint32(got.Data[4*i:]))
		if math.Float32bits(g) != math.Float32bits(w) && !(g != g && w != w) {
			t.Errorf("from %v to %v: %v, want %v", x[i], y[i], g, w)
		}
	}
}

func TestTotalKey(t *testing.T) {
	nan := math.Float32frombits(0x7fc00000)
	x := []float32{math.Float32frombits(0xffc00000), float32(math.Inf(-1)), -1, -math.SmallestNonzeroFloat32, float32(math.Copysign(0, -1)), 0, math.SmallestNonzeroFloat32, 2, float32(math.Inf(1)), nan}
	got := run(t, []interp.Tensor{of(t, x...)}, func(f *ir.FuncBuilder, in []*ir.Value) ([]*ir.Value, error) {
		return []*ir.Value{decompose.TotalKey(f, in[0])}, nil
	})[0].Int64s()
	for i := range got[1:] {
		if got[i] >= got[i+1] {
			t.Errorf("%v has %d, %v has %d", x[i], got[i], x[i+1], got[i+1])
		}
	}
}

// Reduced to the bits of another type, numbers are what that type rounds them to, but for
// its subnormal ones.
func TestReducePrecision(t *testing.T) {
	r := rand.New(rand.NewPCG(15, 16))
	x := specials()
	for range 500 {
		x = append(x, math.Float32frombits(r.Uint32()))
	}
	for _, c := range []struct {
		exponent, digits int
		round            func(float32) float32
		least            float32
	}{
		{8, 23, func(v float32) float32 { return v }, 0},
		{8, 7, func(v float32) float32 { return dtype.BF16ToF32(dtype.BF16FromF32(v)) }, 0},
		{5, 10, func(v float32) float32 { return dtype.F16ToF32(dtype.F16FromF32(v)) }, 0x1p-14},
	} {
		got := run(t, []interp.Tensor{of(t, x...)}, func(f *ir.FuncBuilder, in []*ir.Value) ([]*ir.Value, error) {
			return one(decompose.ReducePrecision(f, in[0], c.exponent, c.digits))
		})[0]
		for i, v := range x {
			want := c.round(v)
			if want > -c.least && want < c.least {
				want = float32(math.Copysign(0, float64(v)))
			}
			g := math.Float32frombits(binary.LittleEndian.Uint32(got.Data[4*i:]))
			if v != v && g != g {
				continue
			}
			// Rounding has no bounds on the exponent: just below the least normal number it may reach it.
			if math.Float32bits(g) != math.Float32bits(want) && !(float32(math.Abs(float64(g))) == c.least && math.Abs(float64(v)) > 0.99*float64(c.least)) {
				t.Errorf("e%dm%d of %x: %x, want %x", c.exponent, c.digits, v, g, want)
			}
		}
	}
}

// Known answers of the article's authors, each as key, count and bits.
func TestRandomBits(t *testing.T) {
	for _, c := range []struct {
		philox bool
		state  []uint64
		want   []uint64
		next   []uint64
	}{
		{false, []uint64{0, 0}, []uint64{0x99ba4efe6b200159}, []uint64{0, 1}},
		{false, []uint64{math.MaxUint64, math.MaxUint64}, []uint64{0xbb002be71cb996fc, 0}, []uint64{math.MaxUint64, 1}},
		{false, []uint64{0x0370734413198a2e, 0x85a308d3243f6a88}, []uint64{0x483df7a0c4923a9c}, []uint64{0x0370734413198a2e, 0x85a308d3243f6a89}},
		{true, []uint64{0, 0, 0}, []uint64{0xe169c58d6627e8d5, 0x9b00dbd8bc57ac4c}, []uint64{0, 1, 0}},
		{true, []uint64{math.MaxUint64, math.MaxUint64, math.MaxUint64}, []uint64{0x41c83b0e408f276d, 0x6d5451fda20bc7c6, 0}, []uint64{math.MaxUint64, 1, 0}},
		{true, []uint64{0x299f31d0a4093822, 0x85a308d3243f6a88, 0x0370734413198a2e}, []uint64{0x94fdccebd16cfe09, 0x24126ea15001e420}, []uint64{0x299f31d0a4093822, 0x85a308d3243f6a89, 0x0370734413198a2e}},
	} {
		got := run(t, []interp.Tensor{of(t, c.state...)}, func(f *ir.FuncBuilder, in []*ir.Value) ([]*ir.Value, error) {
			next, out, err := decompose.RandomBits(f, in[0], c.philox, ir.Tensor(ir.U64, int64(len(c.want))))
			return []*ir.Value{next, out}, err
		})
		known := len(c.want)
		if c.want[known-1] == 0 { // the last one is drawn for the count alone
			known--
		}
		if !slices.Equal(got[1].Data[:8*known], of(t, c.want...).Data[:8*known]) || !slices.Equal(got[0].Data, of(t, c.next...).Data) {
			t.Errorf("%+v: %x, then %v", c, got[1].Data, got[0])
		}
		// Numbers of 32 bits of one line stand in the order in which those of 64 bits hold them.
		if c.philox || known == len(c.want) {
			narrow := run(t, []interp.Tensor{of(t, c.state...)}, func(f *ir.FuncBuilder, in []*ir.Value) ([]*ir.Value, error) {
				_, out, err := decompose.RandomBits(f, in[0], c.philox, ir.Tensor(ir.U32, int64(2*known-1)))
				return one(out, err)
			})[0]
			if !slices.Equal(narrow.Data, of(t, c.want...).Data[:len(narrow.Data)]) {
				t.Errorf("%+v in 32 bits: %x", c, narrow.Data)
			}
		}
	}
}

func TestSolve(t *testing.T) {
	r := rand.New(rand.NewPCG(17, 18))
	for i := range 32 {
		left, lower, ones, transpose, n, m := i&1 > 0, i&2 > 0, i&4 > 0, i&8 > 0, 1+r.Int64N(6), 1+r.Int64N(3)
		vals, part := make([]float64, 2*n*n), make([]float64, 2*n*n) // of all, and of what is read
		for k := range vals {
			row, col := int64(k)%(n*n)/n, int64(k)%n
			vals[k] = r.Float64() + 0.5
			switch {
			case row == col && ones:
				vals[k], part[k] = math.NaN(), 1
			case row == col || (row > col) == lower:
				part[k] = vals[k]
			default:
				vals[k] = math.NaN()
			}
		}
		shape := []int64{2, m, n}
		if left {
			shape = []int64{2, n, m}
		}
		b := make([]float64, 2*n*m)
		for k := range b {
			b[k] = r.Float64()
		}
		x := run(t, []interp.Tensor{floats(t, ir.F64, vals, 2, n, n), floats(t, ir.F64, b, shape...)}, func(f *ir.FuncBuilder, in []*ir.Value) ([]*ir.Value, error) {
			return one(decompose.TriangularSolve(f, in[0], in[1], left, lower, ones, transpose))
		})[0].Float64s()
		each(shape, func(at []int64) { // a x, or x a, is b
			sum := 0.0
			for k := range n {
				if left {
					row, col := at[1], k
					if transpose {
						row, col = col, row
					}
					sum += part[flat([]int64{at[0], row, col}, []int64{2, n, n})] * x[flat([]int64{at[0], k, at[2]}, shape)]
				} else {
					row, col := k, at[2]
					if transpose {
						row, col = col, row
					}
					sum += x[flat([]int64{at[0], at[1], k}, shape)] * part[flat([]int64{at[0], row, col}, []int64{2, n, n})]
				}
			}
			if want := b[flat(at, shape)]; !(math.Abs(sum-want) < 1e-7) {
				t.Errorf("left %v lower %v ones %v transpose %v: %v gives %v, want %v", left, lower, ones, transpose, at, sum, want)
			}
		})
	}
}

func TestCholesky(t *testing.T) {
	r := rand.New(rand.NewPCG(19, 20))
	for i := range 12 {
		lower, n := i&1 > 0, 1+r.Int64N(7)
		l, a := make([]float64, n*n), make([]float64, n*n)
		for row := range n {
			for col := range row + 1 {
				l[row*n+col] = r.Float64() + 0.5
			}
		}
		for row := range n {
			for col := range n {
				for k := range n {
					a[row*n+col] += l[row*n+k] * l[col*n+k]
				}
			}
		}
		want := slices.Clone(l)
		for row := range n {
			for col := range n {
				if (row > col) != lower && row != col {
					a[row*n+col] = math.NaN() // is not read
				}
				if !lower {
					want[row*n+col] = l[col*n+row]
				}
			}
		}
		got := run(t, []interp.Tensor{floats(t, ir.F64, a, n, n)}, func(f *ir.FuncBuilder, in []*ir.Value) ([]*ir.Value, error) {
			return one(decompose.Cholesky(f, in[0], lower))
		})[0].Float64s()
		for k, w := range want {
			if !(math.Abs(got[k]-w) < 1e-7) {
				t.Errorf("lower %v: element %d is %v, want %v", lower, k, got[k], w)
			}
		}
	}
}
