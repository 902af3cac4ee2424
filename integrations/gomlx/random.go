package gomlx

import (
	"encoding/binary"
	"math/bits"

	"github.com/gomlx/compute"
	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/compute/shapes"
	"github.com/pkg/errors"
)

// The random bits are those of GoMLX's Go backend for the same state: PCG-DXSM of
// math/rand/v2, seeded with two words of the state, its numbers cut into bytes. A step of the
// generator is s*multiplier + increment in 128 bits, and so are k steps at once: every element
// computes its own, in three jumps, from tables of multipliers and increments.

// u128 is a number, or with emitted values a tensor of them.
type u128[T any] struct{ hi, lo T }

// jump is k steps of the generator: s*mul + inc.
type jump struct{ mul, inc u128[uint64] }

var (
	stay = jump{mul: u128[uint64]{0, 1}} // no step
	step = jump{u128[uint64]{2549297995355413924, 4865540595714422341}, u128[uint64]{6364136223846793005, 1442695040888963407}}
)

func mul(a, b u128[uint64]) u128[uint64] {
	hi, lo := bits.Mul64(a.lo, b.lo)
	return u128[uint64]{hi + a.hi*b.lo + a.lo*b.hi, lo}
}

// after is j and then k.
func (j jump) after(k jump) jump {
	inc := mul(j.inc, k.mul)
	lo, carry := bits.Add64(inc.lo, k.inc.lo, 0)
	return jump{mul(j.mul, k.mul), u128[uint64]{inc.hi + k.inc.hi + carry, lo}}
}

// times is j done n times, by squaring.
func (j jump) times(n int) jump {
	out := stay
	for ; n > 0; n /= 2 {
		if n%2 == 1 {
			out = out.after(j)
		}
		j = j.after(j)
	}
	return out
}

// jumps are n jumps, the first and then each the one before it and by.
func jumps(first, by jump, n int) []jump {
	out := make([]jump, n)
	for i := range out {
		out[i] = first
		first = first.after(by)
	}
	return out
}

// words emits operations on unsigned 64-bit tensors; the first error stays.
type words struct {
	f   *function
	err error
}

func (w *words) do(v compute.Value, err error) *value {
	if err != nil {
		if w.err == nil {
			w.err = err
		}
		return &value{f: w.f, shape: shapes.Make(dtypes.Uint64)}
	}
	return v.(*value)
}

func (w *words) table(js []jump, of func(jump) uint64) *value {
	var data []byte
	for _, j := range js {
		data = binary.LittleEndian.AppendUint64(data, of(j))
	}
	return w.f.constant(data, shapes.Make(dtypes.Uint64, len(js)))
}

func (w *words) number(x uint64) *value {
	return w.f.constant(binary.LittleEndian.AppendUint64(nil, x), shapes.Make(dtypes.Uint64))
}

func (w *words) add(x, y *value) *value { return w.do(w.f.Add(x, y)) }
func (w *words) mul(x, y *value) *value { return w.do(w.f.Mul(x, y)) }
func (w *words) low(x *value) *value    { return w.do(w.f.BitwiseAnd(x, w.number(1<<32-1))) }
func (w *words) xor(x, y *value) *value { return w.do(w.f.BitwiseXor(x, y)) }
func (w *words) shr(x *value, n uint64) *value {
	return w.do(w.f.ShiftRightLogical(x, w.number(n)))
}

// high is the upper word of a product, from products of half words.
func (w *words) high(x, y *value) *value {
	x0, x1, y0, y1 := w.low(x), w.shr(x, 32), w.low(y), w.shr(y, 32)
	a, b := w.mul(x0, y1), w.mul(x1, y0)
	middle := w.add(w.add(w.shr(w.mul(x0, y0), 32), w.low(a)), w.low(b))
	return w.add(w.add(w.mul(x1, y1), w.add(w.shr(a, 32), w.shr(b, 32))), w.shr(middle, 32))
}

// advance makes jumps: s and the jumps have shapes that broadcast.
func (w *words) advance(s u128[*value], mul, inc u128[*value]) u128[*value] {
	lo := w.mul(s.lo, mul.lo)
	hi := w.add(w.high(s.lo, mul.lo), w.add(w.mul(s.hi, mul.lo), w.mul(s.lo, mul.hi)))
	sum := w.add(lo, inc.lo)
	carry := w.do(w.f.ConvertDType(w.do(w.f.LessThan(sum, lo)), dtypes.Uint64))
	return u128[*value]{w.add(w.add(hi, inc.hi), carry), sum}
}

// along puts tables of jumps along a dimension of rank 2.
func (w *words) along(js []jump, dims ...int) (mul, inc u128[*value]) {
	at := func(of func(jump) uint64) *value { return w.do(w.f.Reshape(w.table(js, of), dims...)) }
	return u128[*value]{at(func(j jump) uint64 { return j.mul.hi }), at(func(j jump) uint64 { return j.mul.lo })},
		u128[*value]{at(func(j jump) uint64 { return j.inc.hi }), at(func(j jump) uint64 { return j.inc.lo })}
}

// RNGBitGenerator gives random bits and the state behind them.
func (f *function) RNGBitGenerator(state compute.Value, shape shapes.Shape) (compute.Value, compute.Value, error) {
	in, err := f.values([]compute.Value{state})
	if err != nil {
		return nil, nil, err
	}
	if !in[0].shape.Equal(compute.RNGStateShape) {
		return nil, nil, errors.Errorf("concert: the state of RNGBitGenerator is %s, not %s", in[0].shape, compute.RNGStateShape)
	}
	if err := errors.WithMessage(supported(shape), "RNGBitGenerator"); err != nil {
		return nil, nil, err
	}
	if err := f.open(); err != nil {
		return nil, nil, err
	}
	const row = 256
	size := int(shape.DType.Size())
	n := (shape.Size()*size + 7) / 8 // words
	rows := max(1, (n+row-1)/row)
	blocks := 1 // of rows, so that the tables stay small
	if rows > row {
		blocks, rows = (rows+row-1)/row, row
	}
	defer f.n.sites.once()()
	w := &words{f: f}
	word := func(i int) *value { return w.do(f.Slice(in[0], []int{i}, []int{i + 1}, nil)) }
	seed := u128[*value]{w.do(f.Reshape(word(0), 1, 1)), w.do(f.Reshape(word(1), 1, 1))}

	s := seed
	for _, level := range []struct {
		first, by jump
		n         int
	}{{stay, step.times(row * rows), blocks}, {stay, step.times(row), rows}, {step, step, row}} {
		mul, inc := w.along(jumps(level.first, level.by, level.n), 1, level.n)
		s = w.advance(s, mul, inc)
		size := s.lo.shape.Size()
		s = u128[*value]{w.do(f.Reshape(s.hi, size, 1)), w.do(f.Reshape(s.lo, size, 1))}
	}

	// DXSM: the output permutation.
	x := w.mul(w.xor(s.hi, w.shr(s.hi, 32)), w.number(0xda942042e4dd58b5))
	x = w.mul(w.xor(x, w.shr(x, 48)), w.do(f.BitwiseOr(s.lo, w.number(1))))
	x = w.do(f.Reshape(x, blocks*rows*row))
	if size < 8 {
		x = w.do(f.Reshape(w.do(f.Bitcast(x, shape.DType)), blocks*rows*row*8/size))
	} else if shape.DType != dtypes.Uint64 {
		x = w.do(f.Bitcast(x, shape.DType))
	}
	x = w.do(f.Reshape(w.do(f.Slice(x, []int{0}, []int{shape.Size()}, nil)), shape.Dimensions...))

	mul, inc := w.along([]jump{step.times(n)}, 1, 1)
	s = w.advance(seed, mul, inc)
	swapped := func(v *value) *value { // the Go backend stores it with its bytes reversed
		b := w.do(f.Reverse(w.do(f.Bitcast(w.do(f.Reshape(v, 1)), dtypes.Uint8)), 1))
		return w.do(f.Bitcast(b, dtypes.Uint64))
	}
	next := w.do(f.Concatenate(0, swapped(s.hi), swapped(s.lo), word(2)))
	return next, x, w.err
}
