package aten

import (
	"cmp"
	"math"
	"slices"

	"github.com/seed-ee968945/concert/internal/attr"
	"github.com/seed-ee968945/concert/ir"
	"github.com/seed-ee968945/concert/ir/fx/internal/traced"
)

// placeOps look elements up where indices say, under a mask, and take gradients back there;
// and products of three tensors and gradients of distances, which are sums over what is
// broadcast.
var placeOps = []row{
	{"aten._unsafe_masked_index.default", "self mask indices fill", maskedIndex},
	{"aten._unsafe_masked_index_put_accumulate.default", "self mask indices values", maskedAccumulate},
	{"aten.median.default aten.median.dim", "self dim keepdim", median},
	{"aten.nanmedian.default aten.nanmedian.dim", "self dim keepdim", nanMedian},
	{"aten.mode.default", "self dim keepdim", mode},
	{"aten._trilinear.default", "i1 i2 i3 expand1 expand2 expand3 sumdim unroll_dim", trilinear},
	{"aten._cdist_backward.default", "grad x1 x2 p cdist", distancesBackward},
	{"aten._pdist_backward.default", "grad self p pdist", pairDistancesBackward},
}

// within are the indices of a list, moved into self's dimensions: what lies outside is masked.
func (c *call) within() (x, mask *ir.Value, dims attr.List, idx []*ir.Value, err error) {
	x, mask = c.Tensor("self"), c.Tensor("mask")
	ds, idx, err := c.indices(nil)
	if err = cmp.Or(err, c.Err); err != nil {
		return nil, nil, nil, nil, err
	}
	shape := x.Type().Shape()
	if traced.Empty(x) || len(idx) == 0 || int(ds[len(ds)-1]) >= len(shape) {
		return nil, nil, nil, nil, traced.ErrForm
	}
	for k, d := range ds {
		n, ok := shape[d].Const()
		if !ok {
			idx[k] = c.By(ir.OpMinimum, c.With(ir.OpMaximum, idx[k], 0), shape[d].Sub(ir.D(1)))
			continue
		}
		idx[k] = c.Make(ir.OpClamp, attr.Make(attr.Attr{Key: "max", Val: attr.Int(n - 1)}, attr.Attr{Key: "min", Val: attr.Int(0)}), idx[k])
	}
	return x, mask, attr.Make(attr.Attr{Key: "dims", Val: attr.Ints(ds...)}), idx, c.Err
}

// maskedIndex is index where the mask is true, and a number elsewhere.
func maskedIndex(c *call) error {
	x, mask, dims, idx, err := c.within()
	fill, ok := c.Num("fill")
	if err = cmp.Or(err, c.Err); err != nil {
		return err
	}
	if !ok {
		return traced.ErrForm
	}
	y := c.Make(ir.OpIndex, dims, append([]*ir.Value{x}, idx...)...)
	return c.Settle(c.Make(ir.OpWhere, nil, mask, y, c.Filled(fill, x.Type().DType())))
}

// maskedAccumulate adds values at indices where the mask is true.
func maskedAccumulate(c *call) error {
	x, mask, dims, idx, err := c.within()
	values := c.Tensor("values")
	if err = cmp.Or(err, c.Err); err != nil {
		return err
	}
	acc := traced.AccType(x.Type().DType())
	values = c.Make(ir.OpWhere, nil, mask, c.In(acc, values), c.Filled(attr.Int(0), acc))
	return c.Settle(c.Make(ir.OpIndexPut, dims.With("accumulate", attr.Bool(true)), append([]*ir.Value{c.In(acc, x), values}, idx...)...))
}

// kthValue is the last of the k smallest elements along a dimension, and its place.
func kthValue(c *call) error {
	x, d, err := c.SelfAlong(-1)
	k, keep := c.Need("k"), c.Bool("keepdim", false)
	if err = cmp.Or(err, c.Err); err != nil {
		return err
	}
	shape := slices.Clone(x.Type().Shape())
	if k < 1 || int(d) >= len(shape) {
		c.Reject("k", c.Arg("k"), "the %d smallest of %v along dimension %d", k, shape, d)
		return c.Err
	}
	if n, ok := shape[d].Const(); ok && k > n {
		c.Reject("k", c.Arg("k"), "the %d smallest of %v along dimension %d", k, shape, d)
		return c.Err
	}
	c.Trace.Require(shape[d].Sub(ir.D(k)))
	shape[d] = ir.D(k)
	least := c.Helpers(ir.OpTopk, traced.DimAttr(d).With("k", attr.Int(k)).With("largest", attr.Bool(false)), []ir.Type{ir.TensorOf(x.Type().DType(), shape), ir.TensorOf(ir.I64, shape)}, x)
	var last []*ir.Value
	for _, y := range least {
		if y = c.Slice(y, int(d), k-1, k); !keep {
			y = c.Reshaped(y, slices.Delete(slices.Clone(shape), int(d), int(d)+1))
		}
		last = append(last, y)
	}
	return c.Settle(last...)
}

// sorted takes all elements in order. The order of equal elements is that of the operand,
// so that a stable sort is the same.
func sorted(c *call) error {
	x, d, err := c.SelfAlong(-1)
	if err != nil {
		return err
	}
	descending := c.Bool("descending", false)
	if n := x.Type().Shape()[d]; !known(ir.Shape{n}) && c.Err == nil {
		return c.Settle(c.firstSorted(x, d, n, descending)...)
	}
	l := traced.DimAttr(d).With("k", attr.Int(traced.SizeAt(x, d)))
	if !descending {
		l = l.With("largest", attr.Bool(false))
	}
	return c.EmitErr(ir.OpTopk, l, x)
}

// firstSorted are the first n of all elements in order, where that number or theirs is known at run time only. Behind
// them stand, as many as there may be, elements that come last: of equal ones the first goes first.
func (c *call) firstSorted(x *ir.Value, d int64, n ir.Dim, descending bool) []*ir.Value {
	dt := x.Type().DType()
	lowest, last, ok := extremesOf(dt)
	switch {
	case !ok:
		c.Err = cmp.Or(c.Err, traced.ErrForm)
	case descending:
		last = lowest
	case dt.IsFloat():
		last = attr.Float(math.NaN())
	}
	x = c.Padded(x, d, last)
	shape := slices.Clone(x.Type().Shape())
	k, ok := n.Const()
	if !ok {
		k = traced.SizeAt(x, d)
	}
	shape[d] = ir.D(k)
	l := traced.DimAttr(d).With("k", attr.Int(k))
	if !descending {
		l = l.With("largest", attr.Bool(false))
	}
	all := c.Helpers(ir.OpTopk, l, []ir.Type{ir.TensorOf(dt, shape), ir.TensorOf(ir.I64, shape)}, x)
	return []*ir.Value{c.First(all[0], d, n), c.First(all[1], d, n)}
}

// median is the lower of the elements in the middle, and where it is; not a number if one is
// none: then the first of those.
func median(c *call) error {
	x, d, whole, err := c.line()
	if err != nil {
		return err
	}
	at := traced.DimAttr(d).With("keepdim", attr.Bool(true))
	n := x.Type().Shape()[d]
	k := n.Sub(ir.D(1)).Div(2)
	got := c.firstSorted(x, d, k.Add(ir.D(1)), false)
	middle, where := c.Piece(got[0], d, k, ir.D(1)), c.Piece(got[1], d, k, ir.D(1))
	if x.Type().DType().IsFloat() {
		top := c.Over(ir.OpAmax, x, true, d)
		none := c.Make(ir.OpNe, nil, top, top)
		middle, where = c.Make(ir.OpWhere, nil, none, top, middle), c.Make(ir.OpWhere, nil, none, c.Make(ir.OpArgmax, at, x), where)
	}
	return c.settleLine(d, whole, middle, where)
}

// nanMedian is the median of those elements that are numbers, which are sorted before the others.
func nanMedian(c *call) error {
	x, d, whole, err := c.line()
	if err != nil {
		return err
	}
	got := c.firstSorted(x, d, x.Type().Shape()[d], false)
	count := c.Over(ir.OpSum, c.In(ir.I64, c.Make(ir.OpEq, nil, x, x)), true, d)
	at := c.With(ir.OpFloorDivide, c.With(ir.OpMaximum, c.With(ir.OpSub, count, 1), 0), 2)
	return c.settleLine(d, whole, c.Make(ir.OpGather, traced.DimAttr(d), got[0], at), c.Make(ir.OpGather, traced.DimAttr(d), got[1], at))
}

// mode is the smallest of the most frequent elements, and the last place of it. Each is compared
// with each.
func mode(c *call) error {
	const most = 1 << 12 // elements in a line
	x, d, _, err := c.line()
	if err != nil {
		return err
	}
	n := x.Type().Shape()[d]
	if c.Most(n) > most {
		return traced.ErrForm
	}
	same := c.Make(ir.OpEq, nil, c.Unsqueezed(x, d), c.Unsqueezed(x, d+1))
	count := c.Over(ir.OpSum, c.In(ir.I64, same), false, d)
	often := c.Make(ir.OpEq, nil, count, c.Over(ir.OpAmax, count, true, d))
	_, last, ok := extremesOf(x.Type().DType())
	if !ok {
		return traced.ErrForm
	}
	value := c.Over(ir.OpAmin, c.Make(ir.OpWhere, nil, often, x, c.Filled(last, x.Type().DType())), true, d)
	place := c.Places(n)
	for range int64(x.Type().Rank()) - 1 - d {
		place = c.Unsqueezed(place, int64(place.Type().Rank()))
	}
	where := c.Make(ir.OpWhere, nil, c.Make(ir.OpEq, nil, x, value), place, c.Filled(attr.Int(0), ir.I64))
	return c.settleLine(d, false, value, c.Over(ir.OpAmax, where, true, d))
}

// line reads self and the dimension along which one element is chosen: all of self as one
// dimension where the operator has none.
func (c *call) line() (x *ir.Value, d int64, whole bool, err error) {
	x = c.Tensor("self")
	if c.Err != nil {
		return nil, 0, false, c.Err
	}
	rank := x.Type().Rank()
	whole = c.NumResults == 1
	switch {
	case whole:
		x = c.Flat(x)
	case c.Arg("dim") == nil:
		d = int64(rank) - 1
	default:
		d = c.Dim("dim", 0, rank)
	}
	if c.Err != nil {
		return nil, 0, false, c.Err
	}
	if x.Type().Shape()[d].Equal(ir.D(0)) {
		return nil, 0, false, traced.ErrForm
	}
	if x.Type().DType() == ir.Bool { // in the order of numbers
		x = c.In(ir.U8, x)
	}
	return x, d, whole, nil
}

// settleLine gives the element that was chosen, whose dimension was kept, and where it is.
func (c *call) settleLine(d int64, whole bool, value, where *ir.Value) error {
	if c.Err != nil {
		return c.Err
	}
	if whole {
		return c.Settle(c.Shaped(value))
	}
	ts, err := c.Types()
	if err != nil {
		return err
	}
	if s := value.Type().Shape(); len(ts[0].Shape()) < len(s) {
		s = slices.Delete(slices.Clone(s), int(d), int(d)+1)
		value, where = c.Reshaped(value, s), c.Reshaped(where, s)
	}
	return c.Settle(value, where)
}

// trilinear is the product of three tensors, each with dimensions of one element put in,
// summed over some.
func trilinear(c *call) error {
	var product *ir.Value
	for i, name := range []string{"i1", "i2", "i3"} {
		x, ds := c.Tensor(name), slices.Sorted(slices.Values(c.Ints([]string{"expand1", "expand2", "expand3"}[i])))
		if c.Err != nil {
			return c.Err
		}
		x = c.In(traced.AccType(x.Type().DType()), x)
		for _, d := range ds {
			if d < 0 || d > int64(x.Type().Rank()) {
				return traced.ErrForm
			}
			x = c.Unsqueezed(x, d)
		}
		if product == nil {
			product = x
		} else {
			product = c.Mul(product, x)
		}
	}
	if dims := c.Dims("sumdim", product.Type().Rank()); len(dims) > 0 && c.Err == nil {
		product = c.Over(ir.OpSum, product, false, dims...)
	}
	return cmp.Or(c.Err, c.Settle(product))
}

// distancesBackward is the gradient of distances by their first operand.
func distancesBackward(c *call) error {
	g, a, b, dist, p := c.Tensor("grad"), c.Tensor("x1"), c.Tensor("x2"), c.Tensor("cdist"), c.norm()
	if c.Err != nil {
		return c.Err
	}
	if ra, rb, rg := a.Type().Rank(), b.Type().Rank(), g.Type().Rank(); ra < 2 || rb < 2 || rg != max(ra, rb) || rg != dist.Type().Rank() || !a.Type().DType().IsFloat() {
		return traced.ErrForm
	}
	out := c.drawnTo(g, a, b, dist, p)
	for d := range out.Type().Rank() - 2 {
		if ra := a.Type().Rank(); c.Err == nil && ra == out.Type().Rank() && a.Type().Shape()[d].Equal(ir.D(1)) && !out.Type().Shape()[d].Equal(ir.D(1)) {
			out = c.Over(ir.OpSum, out, true, int64(d))
		}
	}
	return c.Settle(out)
}

// pairDistancesBackward is the same for all pairs of rows, of which the operands have those of
// a row and the later ones.
func pairDistancesBackward(c *call) error {
	g, x, dist, p := c.Tensor("grad"), c.Tensor("self"), c.Tensor("pdist"), c.norm()
	if c.Err != nil {
		return c.Err
	}
	s := traced.Static(x)
	if len(s) == 2 && s[0] == 1 { // no pairs
		return c.Settle(c.Filled(attr.Int(0), x.Type().DType(), s...))
	}
	if len(s) != 2 || s[0] < 2 || s[1] == 0 || !x.Type().DType().IsFloat() || s[0] > 1<<15 {
		return traced.ErrForm
	}
	row, column := c.Unsqueezed(c.Counting(s[0]), 1), c.Unsqueezed(c.Counting(s[0]), 0)
	i, k := c.Make(ir.OpMinimum, nil, row, column), c.Make(ir.OpMaximum, nil, row, column)
	// Pair i, k is number i n - i (i+1) / 2 + k - i - 1; that of a row and itself is none.
	before := c.With(ir.OpFloorDivide, c.Mul(i, c.With(ir.OpAdd, i, 3)), 2)
	at := c.With(ir.OpSub, c.Add(c.Sub(c.With(ir.OpMul, i, float64(s[0])), before), k), 1)
	at = c.Make(ir.OpClamp, attr.Make(attr.Attr{Key: "max", Val: attr.Int(s[0]*(s[0]-1)/2 - 1)}, attr.Attr{Key: "min", Val: attr.Int(0)}), at)
	same := c.Make(ir.OpEq, nil, row, column)
	square := func(pairs *ir.Value) *ir.Value {
		all := c.Make(ir.OpIndex, attr.List(nil).With("dims", attr.Ints(0)), pairs, at)
		return c.Make(ir.OpWhere, nil, same, c.Filled(attr.Int(0), x.Type().DType()), all)
	}
	return c.Settle(c.drawnTo(square(g), x, x, square(dist), p))
}

// drawnTo is the gradient of rows of a by their distances from rows of b.
func (c *call) drawnTo(g, a, b, dist *ir.Value, p float64) *ir.Value {
	ra, rb, rg := int64(a.Type().Rank()), int64(b.Type().Rank()), int64(g.Type().Rank())
	diff := c.Sub(c.Unsqueezed(a, ra-1), c.Unsqueezed(b, rb-2))
	g, dist = c.Unsqueezed(g, rg), c.Unsqueezed(dist, rg)
	sign, size := c.Make(ir.OpSign, nil, diff), c.Make(ir.OpAbs, nil, diff)
	out := c.Mul(sign, g)
	zero := c.With(ir.OpEq, dist, 0)
	switch {
	case p == 0:
		out = c.With(ir.OpMul, out, 0)
	case p == 1:
	case math.IsInf(p, 1):
		out = c.Mul(out, c.In(a.Type().DType(), c.Make(ir.OpEq, nil, size, dist)))
	case p == 2:
		out = c.Make(ir.OpDiv, nil, c.Mul(g, diff), dist)
	default:
		out = c.Make(ir.OpDiv, nil, c.Mul(c.Mul(sign, c.With(ir.OpPow, size, p-1)), g), c.With(ir.OpPow, dist, p-1))
		if p < 1 {
			zero = c.Make(ir.OpLogicalOr, nil, zero, c.With(ir.OpEq, diff, 0))
		}
	}
	if p != 0 && p != 1 && !math.IsInf(p, 1) {
		out = c.Make(ir.OpWhere, nil, zero, c.Filled(attr.Int(0), a.Type().DType()), out)
	}
	return c.Over(ir.OpSum, out, false, rg-1)
}
