package gomlx

import (
	"encoding/binary"
	"fmt"
	"math/bits"
	"slices"

	"github.com/gomlx/compute"
	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/compute/shapes"
	"github.com/pkg/errors"
)

// The random bits are those of GoMLX's Go backend for the same state: PCG-DXSM of
// math/rand/v2, seeded with two words of the state, its numbers cut into bytes. A step of the
// generator is s*multiplier + increment in 128 bits, and so are k steps at once: every element
// computes its own, in a jump for each dimension, from tables of multipliers and increments. So a
// device that has a piece computes this piece only, whichever dimension is cut.

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

// longest is how many jumps a table has at most.
const longest = 4096

// factors are numbers whose product is n, or somewhat more where n has no good divisors: a
// dimension of n takes a jump of each. The first keeps what n has in common with the number of
// devices, so that the dimension can be cut.
func factors(n, devices int) []int {
	if n <= longest {
		return []int{n}
	}
	common := gcd(n, devices)
	for f := longest; f > longest/16; f-- {
		if n/common%f == 0 {
			return append(factors(n/f, devices), f)
		}
	}
	return append(factors((n+longest-1)/longest, devices), longest)
}

func gcd(a, b int) int {
	for b > 0 {
		a, b = b, a%b
	}
	return a
}

// words emits operations on unsigned 64-bit tensors; the first error stays. Constants are
// emitted once in a function.
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

// once gives the value that the function has of that key, or makes it.
func (w *words) once(key string, make func() *value) *value {
	v := w.f.drawn[key]
	if v == nil {
		if v = make(); w.f.drawn == nil {
			w.f.drawn = map[string]*value{}
		}
		w.f.drawn[key] = v
	}
	return v
}

// number is a number as often as v has elements.
func (w *words) number(x uint64, v *value) *value {
	return w.once(fmt.Sprint(x, v.shape.Dimensions), func() *value {
		scalar := w.once(fmt.Sprint(x), func() *value {
			return w.f.constant(binary.LittleEndian.AppendUint64(nil, x), shapes.Make(dtypes.Uint64))
		})
		return w.broadcast(scalar, v.shape.Dimensions)
	})
}

// broadcast brings a value to the dimensions, of which its own are those given.
func (w *words) broadcast(v *value, dims []int, axes ...int) *value {
	return w.do(w.f.BroadcastInDim(v, shapes.Make(dtypes.Uint64, dims...), axes))
}

func (w *words) add(x, y *value) *value              { return w.do(w.f.Add(x, y)) }
func (w *words) mul(x, y *value) *value              { return w.do(w.f.Mul(x, y)) }
func (w *words) low(x *value) *value                 { return w.do(w.f.BitwiseAnd(x, w.number(1<<32-1, x))) }
func (w *words) xor(x, y *value) *value              { return w.do(w.f.BitwiseXor(x, y)) }
func (w *words) shr(x *value, n uint64) *value       { return w.do(w.f.ShiftRightLogical(x, w.number(n, x))) }
func (w *words) reshape(x *value, dims []int) *value { return w.do(w.f.Reshape(x, dims...)) }

// table is n jumps as vectors of their words; of the lower ones of multipliers, halves, too.
type table struct {
	mul, inc  u128[*value]
	low, high *value
}

func (w *words) table(first, by jump, n int) table {
	js := jumps(first, by, n)
	at := func(word string, of func(jump) uint64) *value {
		return w.once(fmt.Sprint(word, first, by, n), func() *value {
			var data []byte
			for _, j := range js {
				data = binary.LittleEndian.AppendUint64(data, of(j))
			}
			return w.f.constant(data, shapes.Make(dtypes.Uint64, n))
		})
	}
	return table{
		mul:  u128[*value]{at("mul.hi", func(j jump) uint64 { return j.mul.hi }), at("mul.lo", func(j jump) uint64 { return j.mul.lo })},
		inc:  u128[*value]{at("inc.hi", func(j jump) uint64 { return j.inc.hi }), at("inc.lo", func(j jump) uint64 { return j.inc.lo })},
		low:  at("low", func(j jump) uint64 { return j.mul.lo & (1<<32 - 1) }),
		high: at("high", func(j jump) uint64 { return j.mul.lo >> 32 }),
	}
}

// advance makes jumps of a table along the last dimension of s, which is 1 there.
func (w *words) advance(s u128[*value], first, by jump, n int) u128[*value] {
	t, dims := w.table(first, by, n), slices.Clone(s.lo.shape.Dimensions)
	last, all := len(dims)-1, make([]int, len(dims))
	for i := range all {
		all[i] = i
	}
	dims[last] = n
	from := func(v *value) *value { return w.broadcast(v, dims, all...) }
	by128 := func(v *value) *value { return w.broadcast(v, dims, last) }
	x0, x1, y0, y1 := from(w.low(s.lo)), from(w.shr(s.lo, 32)), by128(t.low), by128(t.high)
	hi, lo, m := from(s.hi), from(s.lo), by128(t.mul.lo)

	// The product of the lower words in 128 bits is of products of half words.
	a := w.add(w.mul(x1, y0), w.shr(w.mul(x0, y0), 32))
	b := w.add(w.low(a), w.mul(x0, y1))
	high := w.add(w.add(w.mul(x1, y1), w.shr(a, 32)), w.shr(b, 32))

	low, inc := w.mul(lo, m), by128(t.inc.lo)
	high = w.add(high, w.add(w.mul(hi, m), w.mul(lo, by128(t.mul.hi))))
	sum := w.add(low, inc)
	carry := w.do(w.f.ConvertDType(w.do(w.f.LessThan(sum, low)), dtypes.Uint64))
	return u128[*value]{w.add(w.add(high, by128(t.inc.hi)), carry), sum}
}

// states are the generator's states behind the numbers of dimensions dims, of which the last may be longer.
func (w *words) states(s u128[*value], dims []int) u128[*value] {
	of := func(f func(*value) *value) { s = u128[*value]{f(s.hi), f(s.lo)} }
	for i, n := range dims {
		stride, fs := product(dims[i+1:]), factors(n, w.f.n.b.devices)
		for k, f := range fs {
			first := stay
			if i == len(dims)-1 && k == len(fs)-1 {
				first = step
			}
			if i+k > 0 {
				of(func(v *value) *value { return w.reshape(v, append(slices.Clone(v.shape.Dimensions), 1)) })
			}
			s = w.advance(s, first, step.times(stride*product(fs[k+1:])), f)
		}
		merged := append(slices.Clone(dims[:i]), product(fs))
		if len(fs) > 1 {
			of(func(v *value) *value { return w.reshape(v, merged) })
		}
		if product(fs) > n && i < len(dims)-1 {
			of(func(v *value) *value { return w.cut(v, n) })
		}
	}
	return s
}

// cut is the first n of the last dimension.
func (w *words) cut(v *value, n int) *value {
	to := slices.Clone(v.shape.Dimensions)
	to[len(to)-1] = n
	return w.do(w.f.Slice(v, make([]int, len(to)), to, nil))
}

// swapped reverses the bytes of words: so the Go backend stores its state.
func (w *words) swapped(x *value) *value {
	for _, half := range []struct{ bits, mask uint64 }{{8, 0x00ff00ff00ff00ff}, {16, 0x0000ffff0000ffff}, {32, 1<<32 - 1}} {
		m := w.number(half.mask, x)
		down, up := w.do(w.f.BitwiseAnd(w.shr(x, half.bits), m)), w.do(w.f.BitwiseAnd(x, m))
		x = w.do(w.f.BitwiseOr(down, w.do(w.f.ShiftLeft(up, w.number(half.bits, up)))))
	}
	return x
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
	size := int(shape.DType.Size())
	n := (shape.Size()*size + 7) / 8 // words
	dims, whole := slices.Clone(shape.Dimensions), []int{shape.Size()}
	if last := len(dims) - 1; n > 0 && last > 0 && dims[last]*size%8 == 0 {
		dims[last], whole = dims[last]*size/8, shape.Dimensions
	} else {
		dims = []int{max(1, n)}
	}
	defer f.n.sites.once()()
	w := &words{f: f}
	word := func(i int) *value { return w.do(f.Slice(in[0], []int{i}, []int{i + 1}, nil)) }
	seed := u128[*value]{word(0), word(1)}

	// DXSM: the output permutation.
	s := w.states(seed, dims)
	x := w.xor(s.hi, w.shr(s.hi, 32))
	x = w.mul(x, w.number(0xda942042e4dd58b5, x))
	x = w.mul(w.xor(x, w.shr(x, 48)), w.do(f.BitwiseOr(s.lo, w.number(1, x))))
	if shape.DType != dtypes.Uint64 {
		x = w.do(f.Bitcast(x, shape.DType))
	}
	if size < 8 {
		pair := x.shape.Dimensions
		x = w.reshape(x, append(slices.Clone(pair[:len(pair)-2]), pair[len(pair)-2]*8/size))
	}
	if last := whole[len(whole)-1]; x.shape.Dimensions[len(whole)-1] != last {
		x = w.cut(x, last)
	}
	if !slices.Equal(whole, shape.Dimensions) {
		x = w.reshape(x, shape.Dimensions)
	}

	s = w.advance(seed, step.times(n), stay, 1)
	next := w.do(f.Concatenate(0, w.swapped(w.do(f.Concatenate(0, s.hi, s.lo))), word(2)))
	return next, x, w.err
}
