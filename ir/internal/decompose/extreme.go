package decompose

import (
	"slices"

	"github.com/seed-ee968945/concert/internal/intmath"
	"github.com/seed-ee968945/concert/ir"
)

// extreme reports whether a body of pairs of a number and a place keeps the larger number, or
// the smaller, of equals that of the lower place, and the first NaN: as frontends write
// argmax and argmin.
func (p *probed) extreme() (largest, ok bool) {
	if p.n != 2 || len(p.results) != 2 {
		return false, false
	}
	a, i, b, j := p.inputs[0], p.inputs[1], p.inputs[2], p.inputs[3]
	pick, ok1 := chosen(p.results[0], a, b)
	place, ok2 := chosen(p.results[1], i, j)
	if !ok1 || !ok2 {
		return false, false
	}
	better := pick
	for _, s := range sides(pick, ir.OpLogicalOr, ir.OpBitwiseOr) {
		if is(s[1], ir.OpNe, a, a) {
			better = s[0]
		}
	}
	if better == pick && a.Type().DType().IsFloat() { // what becomes of NaN is another matter
		return false, false
	}
	largest = is(better, ir.OpGt, a, b) || is(better, ir.OpLt, b, a)
	if !largest && !is(better, ir.OpLt, a, b) && !is(better, ir.OpGt, b, a) {
		return false, false
	}
	for _, s := range sides(place, ir.OpLogicalOr, ir.OpBitwiseOr) {
		if s[0] != pick {
			continue
		}
		for _, s := range sides(s[1], ir.OpLogicalAnd, ir.OpBitwiseAnd) {
			if (is(s[0], ir.OpEq, a, b) || is(s[0], ir.OpEq, b, a)) && (is(s[1], ir.OpLt, i, j) || is(s[1], ir.OpGt, j, i)) {
				return largest, true
			}
		}
	}
	return false, false
}

// is reports whether v is op of x and y.
func is(v *ir.Value, op ir.Op, x, y *ir.Value) bool {
	n := v.Def()
	return n.Op() == op && len(n.Args()) == 2 && n.Arg(0) == x && n.Arg(1) == y
}

// sides are both orders of the operands of v, if it is one of ops.
func sides(v *ir.Value, ops ...ir.Op) [][2]*ir.Value {
	n := v.Def()
	if !slices.Contains(ops, n.Op()) || len(n.Args()) != 2 {
		return nil
	}
	return [][2]*ir.Value{{n.Arg(0), n.Arg(1)}, {n.Arg(1), n.Arg(0)}}
}

// chosen is the condition on which v is x and not y.
func chosen(v, x, y *ir.Value) (*ir.Value, bool) {
	n := v.Def()
	if n.Op() != ir.OpWhere || n.Arg(1) != x || n.Arg(2) != y {
		return nil, false
	}
	return n.Arg(0), true
}

// counted reports whether v counts from 0 along a dimension.
func counted(v *ir.Value, dim int) bool {
	n := sizes(v)[dim]
	for {
		def := v.Def()
		switch def.Op() {
		case ir.OpIota:
			return def.Attrs().Int("start", 0) == 0 && def.Attrs().Int("step", 1) == 1 && v.Type().DType().IsInt()
		case ir.OpConvert, ir.OpClone, ir.OpAlias:
		case ir.OpExpand:
			dim -= v.Type().Rank() - def.Arg(0).Type().Rank()
			if dim < 0 || sizes(def.Arg(0))[dim] != n {
				return false
			}
		case ir.OpView: // of a line
			from := sizes(def.Arg(0))
			at := slices.Index(from, n)
			if intmath.Product(from) != n || sizes(v)[dim] != n || at < 0 {
				return false
			}
			dim = at
		default:
			return false
		}
		v = def.Arg(0)
	}
}

// extreme is the extremes of lines and where they stand.
func (e emit) extreme(x, places *ir.Value, dim int64, largest bool) []*ir.Value {
	op, key := ir.OpAmax, x
	if key.Type().DType() == ir.Bool {
		key = e.convert(key, ir.U8)
	}
	if !largest { // the largest of what falls where x rises
		op = ir.OpAmin
		if key.Type().DType().IsFloat() {
			key = e.unary(ir.OpNeg, key)
		} else {
			key = e.unary(ir.OpBitwiseNot, key)
		}
	}
	at := e.one(ir.OpArgmax, ir.A("dim", dim), []*ir.Value{key})
	return []*ir.Value{e.one(op, ir.A("dims", []int64{dim}), []*ir.Value{x}), e.convert(at, places.Type().DType())}
}
