package decompose

import (
	"fmt"
	"slices"

	"github.com/seed-ee968945/concert/internal/intmath"
	"github.com/seed-ee968945/concert/ir"
)

// RandomBits returns random bits by ThreeFry or Philox, and the state behind them, to the bit
// as XLA makes them: element 0 of the state, of type u64, is the key, the others count.
func RandomBits(to Emitter, state *ir.Value, philox bool, t ir.Type) (next, out *ir.Value, err error) {
	if err := check("rng_bit_generator", state); err != nil {
		return nil, nil, err
	}
	shape, ok := t.Shape().Static()
	words := sizes(state)
	if state.Type().DType() != ir.U64 || len(words) != 1 || words[0] < 2 || words[0] > 3 || words[0] == 3 && !philox {
		return nil, nil, fmt.Errorf("rng_bit_generator: a state of type %s, want u64[2], or u64[3] of Philox", state.Type())
	}
	if !ok || t.DType() == ir.Bool {
		return nil, nil, fmt.Errorf("rng_bit_generator: a result of type %s, want integers or floats of constant sizes", t)
	}
	g := &random{emit: emit{to}, state: state}
	wide := t.DType().Size() == 8
	switch {
	case philox:
		next, out = g.philox(shape, wide)
	case wide:
		next, out = g.threeFry64(shape)
	default:
		next, out = g.threeFry32(shape)
	}
	if t.DType().IsFloat() { // which the bits are
		return next, g.bits(g.convert(out, unsigned[t.DType().Size()]), t.DType()), nil
	}
	return next, g.convert(out, t.DType()), nil
}

// random draws numbers.
type random struct {
	emit
	state *ir.Value
}

// word is element i of the state.
func (g *random) word(i int64) *ir.Value { return g.slice(g.state, 0, i, i+1, 1) }

// halves are the lower and the upper half of numbers of 64 bits.
func (g *random) halves(x *ir.Value) [2]*ir.Value {
	return [2]*ir.Value{g.convert(x, ir.U32), g.convert(g.with(ir.OpShiftRight, x, 32), ir.U32)}
}

// joined is the inverse of halves.
func (g *random) joined(low, high *ir.Value) *ir.Value {
	return g.binary(ir.OpBitwiseOr, g.convert(low, ir.U64), g.with(ir.OpShiftLeft, g.convert(high, ir.U64), 32))
}

// counters are n numbers from the one that the state has on.
func (g *random) counters(n int64) (*ir.Value, *ir.Value) {
	from := g.word(1)
	all := g.binary(ir.OpAdd, g.convert(g.count(n, 1, 0), ir.U64), from)
	return all, g.cat(0, g.word(0), g.with(ir.OpAdd, from, n))
}

// threeFry is Threefry-2x32 of 20 rounds (Salmon et al., Parallel random numbers: as easy as
// 1, 2, 3, 2011).
func (g *random) threeFry(x, key [2]*ir.Value) [2]*ir.Value {
	keys := [3]*ir.Value{key[0], key[1], g.with(ir.OpBitwiseXor, g.binary(ir.OpBitwiseXor, key[0], key[1]), 0x1bd11bda)}
	rotations := [2][4]int64{{13, 15, 26, 6}, {17, 29, 16, 24}}
	add := func(a, b *ir.Value) *ir.Value { return g.binary(ir.OpAdd, a, b) }
	x = [2]*ir.Value{add(x[0], keys[0]), add(x[1], keys[1])}
	for group := range 5 {
		for _, by := range rotations[group%2] {
			x[0] = add(x[0], x[1])
			turned := g.binary(ir.OpBitwiseOr, g.with(ir.OpShiftLeft, x[1], by), g.with(ir.OpShiftRight, x[1], 32-by))
			x[1] = g.binary(ir.OpBitwiseXor, x[0], turned)
		}
		x[0] = add(x[0], keys[(group+1)%3])
		x[1] = g.with(ir.OpAdd, add(x[1], keys[(group+2)%3]), int64(group+1))
	}
	return x
}

// ThreeFry is Threefry-2x32 of counts by keys, element by element.
func ThreeFry(to Emitter, key, x [2]*ir.Value) ([]*ir.Value, error) {
	for _, v := range []*ir.Value{key[1], x[0], x[1]} {
		if key[0].Type().DType() != ir.U32 || v.Type().DType() != ir.U32 || !v.Type().Shape().Equal(key[0].Type().Shape()) {
			return nil, fmt.Errorf("threefry2x32 of %s and %s, want u32 of one shape", key[0].Type(), v.Type())
		}
	}
	g := &random{emit: emit{to}}
	out := g.threeFry(x, key)
	return out[:], nil
}

func (g *random) threeFry64(shape []int64) (next, out *ir.Value) {
	at, next := g.counters(intmath.Product(shape))
	x := g.threeFry(g.halves(at), g.halves(g.word(0)))
	return next, g.view(g.joined(x[0], x[1]), shape)
}

// threeFry32 draws pairs of numbers, which stand next to each other along the first even
// dimension, or else the largest, of which the last pair may lose one.
func (g *random) threeFry32(shape []int64) (next, out *ir.Value) {
	whole := slices.Clone(shape)
	if len(whole) == 0 {
		whole = []int64{1}
	}
	d := slices.IndexFunc(whole, func(n int64) bool { return n%2 == 0 })
	if d < 0 {
		d = slices.Index(whole, slices.Max(whole))
	}
	half := slices.Clone(whole)
	half[d] = (half[d] + 1) / 2
	at, next := g.counters(intmath.Product(half))
	x := g.threeFry(g.halves(at), g.halves(g.word(0)))
	single := slices.Insert(slices.Clone(half), d+1, 1)
	pairs := g.cat(d+1, g.view(x[0], single), g.view(x[1], single))
	both := slices.Clone(half)
	both[d] *= 2
	return next, g.view(g.slice(g.view(pairs, both), d, 0, whole[d], 1), shape)
}

// philox is Philox-4x32 of 10 rounds, from the same article. It draws four numbers of 32 bits
// for each count of 128 bits.
func (g *random) philox(shape []int64, wide bool) (next, out *ir.Value) {
	n := intmath.Product(shape)
	each := int64(4)
	if wide {
		each = 2
	}
	turns := (n + each - 1) / each
	low, high := g.word(1), g.word(0)
	if sizes(g.state)[0] == 3 {
		high = g.word(2)
	}
	count := func(by *ir.Value) (l, h *ir.Value) {
		l = g.binary(ir.OpAdd, low, by)
		return l, g.where(g.binary(ir.OpLt, l, low), g.with(ir.OpAdd, high, 1), high)
	}
	l, h := count(g.convert(g.count(turns, 1, 0), ir.U64))
	lows, highs := g.halves(l), g.halves(g.expand(h, sizes(l)))
	x := [4]*ir.Value{lows[0], lows[1], highs[0], highs[1]}
	key := g.halves(g.word(0))
	xor := func(a, b, c *ir.Value) *ir.Value {
		return g.binary(ir.OpBitwiseXor, g.binary(ir.OpBitwiseXor, a, b), c)
	}
	for round := range 10 {
		if round > 0 {
			key = [2]*ir.Value{g.with(ir.OpAdd, key[0], 0x9e3779b9), g.with(ir.OpAdd, key[1], 0xbb67ae85)}
		}
		a := g.halves(g.with(ir.OpMul, g.convert(x[0], ir.U64), 0xd2511f53))
		b := g.halves(g.with(ir.OpMul, g.convert(x[2], ir.U64), 0xcd9e8d57))
		x = [4]*ir.Value{xor(b[1], x[1], key[0]), b[0], xor(a[1], x[3], key[1]), a[0]}
	}
	parts := x[:]
	if wide {
		parts = []*ir.Value{g.joined(x[0], x[1]), g.joined(x[2], x[3])}
	}
	for i, p := range parts {
		parts[i] = g.view(p, []int64{turns, 1})
	}
	out = g.slice(g.view(g.cat(1, parts...), []int64{turns * each}), 0, 0, n, 1)
	l, h = count(g.integer(ir.U64, turns, 1))
	next = g.cat(0, g.word(0), l)
	if sizes(g.state)[0] == 3 {
		next = g.cat(0, next, h)
	}
	return next, g.view(out, shape)
}
