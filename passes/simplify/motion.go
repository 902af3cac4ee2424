package simplify

import (
	"math"

	"github.com/seed-ee968945/concert/internal/attr"
	"github.com/seed-ee968945/concert/ir"
)

// Rules that move operations past collectives, to the side where they are cheaper.
func motionRules() []simplifyRule {
	wait := isOp(ir.OpWaitTensor)
	return []simplifyRule{
		{name: "convert-after-transport", doc: "a conversion to a wider type before communication: after it",
			legal: "the collective only moves elements, or takes the min or max of floats, and only it reads the converted tensor",
			gate:  "always: fewer bytes travel", special: ordered, exact: exact, anchor: wait, apply: atMembers(convertAfterTransport)},
		{name: "convert-before-transport", doc: "a conversion to a narrower type after communication: before it",
			legal: "the collective only moves elements, or takes the min or max of floats (a sum of rounded numbers is another number), and only the conversion reads the result",
			gate:  "always: fewer bytes travel", special: ordered, exact: exact, anchor: isOp(ir.OpConvert), apply: convertBeforeTransport},
		{name: "pointwise-before-gather", doc: "an elementwise operation on gathered tensors: on the pieces, and its result is gathered",
			legal:   "every operand comes out of an all_gather of one group and dimension that nothing else reads, or is replicated and broadcasts along the dimension",
			gate:    "the elements that travel do not get wider; the work shrinks by the number of ranks, and several gathers become one",
			special: sameNumbers, exact: exact, anchor: elementwise, apply: pointwiseBeforeGather},
		{name: "reduce-in-narrow", doc: "16-bit floats widened, summed over ranks and rounded back: summed as they are",
			legal: "the sum is of f32 and nothing else reads the wide tensors; the IR sums 16-bit floats in f32 and rounds once",
			gate:  "always: half the bytes", special: sameNumbers, exact: narrowRounded, off: true, anchor: isOp(ir.OpConvert), apply: reduceInNarrow},
		{name: "pointwise-after-scatter", doc: "an elementwise operation before a reduce_scatter: on the piece that comes out",
			legal:   "negation and scaling of a sum; for min and max, what does not decrease: relu, floor, clamp, a positive factor, a summand; constants are finite in the type of the arithmetic",
			special: "relu, and clamp at a zero, are rewritten under min and max of floats only with reassociate: they change the sign of zeros; so does the negation of a sum",
			gate:    "always: the work shrinks by the number of ranks", exact: reassociates, anchor: wait, apply: atMembers(pointwiseAfterScatter)},
		{name: "slice-before-collective", doc: "a part of what a collective gives: the collective of the part",
			legal: "the part is not cut along the dimension that the collective gathers, scatters or exchanges, nothing else reads the result, and no view relies on gaps between the part's rows",
			gate:  "at most half of the bytes remain, or the part needs no copy", special: sameNumbers, exact: exact, anchor: isOp(ir.OpSlice, ir.OpSelect), apply: sliceBeforeCollective},
	}
}

func pointwiseBeforeGather(s *simplifier, n *ir.Node) bool {
	t := n.Result(0).Type()
	var first member
	for _, a := range n.Args() {
		if m, ok := s.from(a); ok && m.is(ir.OpAllGather) && a.Type().Shape().Equal(t.Shape()) {
			first = m
			break
		}
	}
	if first.start == nil {
		return false
	}
	d, at := first.dim(), first.start
	args := make([]*ir.Value, len(n.Args()))
	size := 0
	for i, a := range n.Args() {
		m, ok := s.from(a)
		switch {
		case ok && m.is(ir.OpAllGather) && a.Type().Shape().Equal(t.Shape()) && m.dim() == d && s.groups.equal(m.group(), first.group()):
			if !only(a, n) {
				return false
			}
			if !s.beside(first.start, m.start) {
				return false
			}
			at = s.later(at, m.start)
			args[i] = m.operand()
			if i == 0 || m.value() != unalias(n.Arg(0)) {
				size += a.Type().DType().Size()
			}
		case spans(a.Type(), t.Rank(), d) || !s.replicated(a, first.group()):
			return false
		default:
			args[i] = a
		}
	}
	for _, a := range args {
		if s.later(a.Def(), at) == a.Def() {
			at = n
		}
	}
	if t.DType().Size() > size || !s.beside(first.start, at) || !s.fire(n) {
		return false
	}
	part := first.operand().Type().Shape()
	v := s.compute(at, n.Op(), nil, n.Attrs(), n, args, ir.TensorOf(t.DType(), part))
	if v == nil {
		return s.undo()
	}
	start := s.communicate(at, ir.OpAllGather, first.group(), dimAttrs(d), v, first.start)
	return s.replace(n.Result(0), s.finish(n, start))
}

// spans reports whether an operand of type t, broadcast to rank dimensions, has
// more than one element along dimension d of the result.
func spans(t ir.Type, rank, d int) bool {
	d -= rank - t.Rank()
	return d >= 0 && !t.Shape()[d].Equal(ir.D(1))
}

// carries reports whether conversions of floats, or any if the collective only
// moves elements, commute with it bit by bit. Rounding does not decrease, so it
// commutes with min and max, but in floats of a byte, which make NaN of large numbers.
func carries(m member, from, to ir.DType) bool {
	switch m.op() {
	case ir.OpAllGather, ir.OpAllToAll, ir.OpBroadcast:
		return true
	case ir.OpCollectivePermute: // a rank may receive zeros
		return from.HasZero() && to.HasZero()
	}
	return m.reduces() && (m.reduction() == ir.Min || m.reduction() == ir.Max) && from.IsFloat() && to.IsFloat() && !from.IsFloat8() && !to.IsFloat8()
}

// attrs are the attributes of a collective that carries the member alone.
func (m member) attrs() attr.List {
	l := m.start.Attrs()
	for _, key := range []string{"in_splits", "out_splits"} {
		if l.Has(key) {
			l = l.With(key, attr.Strings(pick(l.Strs(key), []int{m.k})...))
		}
	}
	return l
}

func convertAfterTransport(s *simplifier, m member) bool {
	c := unalias(m.operand()).Def()
	if c.Op() != ir.OpConvert {
		return false
	}
	x, dt := c.Arg(0), m.value().Type().DType()
	if dt.Size() <= x.Type().DType().Size() || !carries(m, x.Type().DType(), dt) || !only(m.operand(), m.start) || !s.fire(m.wait) {
		return false
	}
	start := s.communicate(m.start, m.op(), m.group(), m.attrs(), x, m.start)
	if start == nil {
		return s.undo()
	}
	v := s.finish(m.wait, start)
	return s.replace(m.value(), s.compute(m.wait, ir.OpConvert, nil, nil, c, []*ir.Value{v}, ir.TensorOf(dt, v.Type().Shape())))
}

func convertBeforeTransport(s *simplifier, n *ir.Node) bool {
	m, ok := s.from(n.Arg(0))
	if !ok {
		return false
	}
	x, dt := m.operand(), n.Result(0).Type().DType()
	if dt.Size() >= x.Type().DType().Size() || !carries(m, x.Type().DType(), dt) || !only(n.Arg(0), n) || !s.fire(n) {
		return false
	}
	v := s.compute(m.start, ir.OpConvert, nil, nil, n, []*ir.Value{x}, ir.TensorOf(dt, x.Type().Shape()))
	start := s.communicate(m.start, m.op(), m.group(), m.attrs(), v, m.start)
	if start == nil {
		return s.undo()
	}
	return s.replace(n.Result(0), s.finish(m.wait, start))
}

func reduceInNarrow(s *simplifier, n *ir.Node) bool {
	m, ok := s.from(n.Arg(0))
	if !ok || !m.reduces() || m.reduction() != ir.Sum && m.reduction() != ir.Avg {
		return false
	}
	c, dt := unalias(m.operand()).Def(), n.Result(0).Type().DType()
	if c.Op() != ir.OpConvert || c.Arg(0).Type().DType() != dt || m.value().Type().DType() != ir.F32 || dt != ir.BF16 && dt != ir.F16 ||
		!only(n.Arg(0), n) || !only(m.operand(), m.start) || !s.fire(n) {
		return false
	}
	start := s.communicate(m.start, m.op(), m.group(), m.attrs(), c.Arg(0), m.start)
	if start == nil {
		return s.undo()
	}
	return s.replace(n.Result(0), s.finish(m.wait, start))
}

func pointwiseAfterScatter(s *simplifier, m member) bool {
	p := unalias(m.operand()).Def()
	if !m.is(ir.OpReduceScatter) || m.group().Size() < 2 || !elementwise(p) || len(p.Args()) != 1 || !p.Arg(0).Type().SameTensor(m.operand().Type()) ||
		!s.commutes(p, m.reduction()) || !only(m.operand(), m.start) || !s.fire(m.wait) {
		return false
	}
	start := s.communicate(m.start, ir.OpReduceScatter, m.group(), m.attrs(), p.Arg(0), m.start)
	if start == nil {
		return s.undo()
	}
	v := s.finish(m.wait, start)
	return s.replace(m.value(), s.compute(m.wait, p.Op(), nil, p.Attrs(), p, []*ir.Value{v}, v.Type()))
}

// commutes reports whether the operation of one operand commutes with a reduction
// as far as the options allow. Under min and max that is what does not decrease in
// the order -inf ... -0, +0 ... +inf, and neither takes NaN for a number nor makes
// one. A constant added to or multiplied with floats rounds without decreasing; on
// integers it may wrap around, which does decrease, and floats of a byte may turn into NaN.
func (s *simplifier) commutes(p *ir.Node, r ir.Reduction) bool {
	dt := p.Result(0).Type().DType()
	if dt.IsFloat8() {
		return false
	}
	ordered := dt.IsFloat() || dt.IsInt()
	switch r {
	case ir.Sum, ir.Avg:
		switch p.Op() {
		case ir.OpNeg:
			return s.may(r, dt) // the sum of opposites is +0, its negation -0
		case ir.OpMul, ir.OpDiv:
			return finiteScalar(p, dt) && s.may(r, dt)
		}
	case ir.Min, ir.Max:
		switch p.Op() {
		case ir.OpFloor:
			return ordered
		case ir.OpRelu: // of floats: -1 becomes +0, but -0 stays, which is less
			return dt.IsInt() || dt.IsFloat() && s.reassoc
		case ir.OpClamp:
			return ordered && (!swapsZeros(p, dt) || s.reassoc)
		case ir.OpMul, ir.OpDiv:
			return finiteScalar(p, dt) && p.Attrs().Float("scalar", 0) > 0
		case ir.OpAdd, ir.OpSub:
			return finiteScalar(p, dt)
		}
	}
	return false
}

// held is a constant as operations on floats of type dt have it: in f32, or f64.
func held(c float64, dt ir.DType) float64 {
	if dt == ir.F64 {
		return c
	}
	return float64(float32(c))
}

// finiteScalar reports whether p takes floats as first operand and a constant as second that
// is finite and, where it is a factor or divisor, not 0: then it makes NaN of NaN only.
func finiteScalar(p *ir.Node, dt ir.DType) bool {
	c := held(p.Attrs().Float("scalar", 0), dt)
	factor := p.Op() == ir.OpMul || p.Op() == ir.OpDiv
	return dt.IsFloat() && !p.Attrs().Bool("reverse", false) && !p.Attrs().Has("alpha") && c-c == 0 && !(factor && c == 0)
}

// swapsZeros reports whether a clamp may put a zero of one sign in place of
// numbers beyond it and leave the other zero where it is: relu does.
func swapsZeros(clamp *ir.Node, dt ir.DType) bool {
	low, high := held(clamp.Attrs().Float("min", 1), dt), held(clamp.Attrs().Float("max", 1), dt)
	return dt.IsFloat() && (low == 0 && !math.Signbit(low) || high == 0 && math.Signbit(high))
}

func sliceBeforeCollective(s *simplifier, n *ir.Node) bool {
	m, ok := s.from(n.Arg(0))
	if !ok || !only(n.Arg(0), n) {
		return false
	}
	d, attrs := int(n.Attrs().Int("dim", 0)), m.attrs()
	switch m.op() {
	case ir.OpAllGather, ir.OpReduceScatter, ir.OpAllToAll:
		if d == m.dim() {
			return false
		}
		if n.Op() == ir.OpSelect && d < m.dim() {
			attrs = attrs.With("dim", attr.Int(int64(m.dim()-1)))
		}
	}
	_, static := m.operand().Type().Shape().Static()
	t := n.Result(0).Type()
	before, after := s.bytes(m.value().Type()), s.bytes(t)
	if !static || after >= before || !t.Contiguous() && (2*after > before || !dense(t) && !anyLayout(n.Result(0))) || !s.fire(n) {
		return false
	}
	x := s.compute(m.start, n.Op(), nil, n.Attrs(), nil, []*ir.Value{m.operand()})
	if x == nil {
		return s.undo()
	}
	start := s.communicate(m.start, m.op(), m.group(), attrs, x, m.start)
	if start == nil {
		return s.undo()
	}
	return s.replace(n.Result(0), s.finish(m.wait, start))
}
