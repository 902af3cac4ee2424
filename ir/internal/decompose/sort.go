package decompose

import (
	"fmt"
	"slices"

	"github.com/seed-ee968945/concert/internal/intmath"
	"github.com/seed-ee968945/concert/ir"
)

// maxRanked is how long lines are at most that are sorted by counting, for each element, those
// that come before it; longer ones are faster by a network.
const maxRanked = 1 << 16

// Sort orders the lines of xs, which have one shape, along a dimension, all in the order that
// a comparator asks for: a body of two parameters for each of them, next to each other, that
// reports whether the first elements come before the second ones. What is equal stays in order.
//
// A comparator that goes by one number after the other is found as such. Any other one makes
// a bitonic network: each level exchanges pairs, and a line's positions break ties, so that
// it sorts stably.
func Sort(to Emitter, xs []*ir.Value, dim int64, before Body) ([]*ir.Value, error) {
	if err := check("sort", xs...); err != nil {
		return nil, err
	}
	if len(xs) == 0 {
		return nil, fmt.Errorf("sort: no operands")
	}
	shape := sizes(xs[0])
	for i, x := range xs {
		if !slices.Equal(sizes(x), shape) {
			return nil, fmt.Errorf("sort: operand %d is %s, operand 0 is %s", i, x.Type(), xs[0].Type())
		}
	}
	if dim < 0 || dim >= int64(len(shape)) {
		return nil, fmt.Errorf("sort: dimension %d is outside the %d dimensions", dim, len(shape))
	}
	length := shape[dim]
	if length <= 1 || intmath.Product(shape) == 0 {
		return xs, nil
	}
	p, err := probePairs(before, xs)
	if err != nil {
		return nil, fmt.Errorf("sort: %w", err)
	}
	if len(p.results) != 1 || p.results[0].Type().DType() != ir.Bool {
		return nil, fmt.Errorf("sort: the comparator gives %d results, want one of type bool", len(p.results))
	}
	if keys, ok := sortKeys(p.results[0], p.inputs); ok && length <= maxRanked {
		return emit{to}.byKeys(xs, int(dim), keys, p.inputs), nil
	}
	whole := int64(1)
	for whole < length {
		whole *= 2
	}
	s := &network{e: emit{to}, before: before, length: length, whole: whole, outer: intmath.Product(shape[:dim]), inner: intmath.Product(shape[dim+1:])}
	e := s.e
	lines := []int64{s.outer, length, s.inner}
	var all []*ir.Value
	for _, x := range xs {
		x = e.view(x, lines)
		if whole > length {
			x = e.cat(1, x, e.full(x.Type().DType(), 0, s.outer, whole-length, s.inner))
		}
		all = append(all, x)
	}
	all = append(all, e.expand(e.count(whole, 3, 1), []int64{s.outer, whole, s.inner}))
	for block := int64(2); block <= whole; block *= 2 {
		for apart := block / 2; apart > 0; apart /= 2 {
			if all, err = s.level(all, block, apart); err != nil {
				return nil, fmt.Errorf("sort: %w", err)
			}
		}
	}
	out := make([]*ir.Value, len(xs))
	for i := range xs {
		out[i] = e.view(e.slice(all[i], 1, 0, length, 1), shape)
	}
	return out, nil
}

// network sorts lines [outer, whole, inner] of operands and, last, of positions. Those from
// length on come after all others.
type network struct {
	e                           emit
	before                      Body
	length, whole, outer, inner int64
}

// level orders all pairs that are apart by so much: descending where the position has the
// bit of block.
func (s *network) level(xs []*ir.Value, block, apart int64) ([]*ir.Value, error) {
	e := s.e
	pairs := []int64{s.outer, s.whole / (2 * apart), 2, apart, s.inner}
	first, second := make([]*ir.Value, len(xs)), make([]*ir.Value, len(xs))
	for i, x := range xs {
		x = e.view(x, pairs)
		first[i] = e.one(ir.OpSelect, ir.A("dim", 2, "index", 0), []*ir.Value{x})
		second[i] = e.one(ir.OpSelect, ir.A("dim", 2, "index", 1), []*ir.Value{x})
	}
	n := len(xs) - 1
	ahead, err := s.compare(first[:n], second[:n])
	if err != nil {
		return nil, err
	}
	behind, err := s.compare(second[:n], first[:n])
	if err != nil {
		return nil, err
	}
	p, q := first[n], second[n]
	tie := e.binary(ir.OpLogicalAnd, e.unary(ir.OpLogicalNot, behind), e.binary(ir.OpLt, p, q))
	ordered := e.binary(ir.OpLogicalOr, ahead, tie)
	if s.whole > s.length { // positions behind the line's end order themselves
		real, also := e.with(ir.OpLt, p, s.length), e.with(ir.OpLt, q, s.length)
		ordered = e.where(e.binary(ir.OpLogicalAnd, real, also), ordered, e.binary(ir.OpLt, p, q))
	}
	if block < s.whole {
		number := e.count(pairs[1], 4, 1)
		down := e.with(ir.OpNe, e.with(ir.OpBitwiseAnd, number, block/(2*apart)), 0)
		ordered = e.binary(ir.OpNe, ordered, down)
	}
	out := make([]*ir.Value, len(xs))
	for i := range xs {
		low, high := e.where(ordered, first[i], second[i]), e.where(ordered, second[i], first[i])
		single := []int64{s.outer, pairs[1], 1, apart, s.inner}
		out[i] = e.view(e.cat(2, e.view(low, single), e.view(high, single)), []int64{s.outer, s.whole, s.inner})
	}
	return out, nil
}

// compare applies the comparator, whose parameters are pairs.
func (s *network) compare(first, second []*ir.Value) (*ir.Value, error) {
	var args []*ir.Value
	for i := range first {
		args = append(args, first[i], second[i])
	}
	got, err := s.before(s.e.Emitter, args)
	if err != nil {
		return nil, err
	}
	return got[0], nil
}
