package interp

import (
	"cmp"
	"fmt"
	"hash/fnv"
	"math"
	"math/rand/v2"
	"slices"

	"github.com/seed-ee968945/concert/internal/dtype"
	"github.com/seed-ee968945/concert/internal/hostops"
	"github.com/seed-ee968945/concert/ir"
)

// RandomOptions steer RandomInputs.
type RandomOptions struct {
	// Symbols are the run-time sizes, as in Options; absent ones are the hints.
	Symbols []map[string]int64

	// Shared says which inputs hold the same numbers on several ranks: it returns
	// the group within whose subgroups the input is replicated, or nil if it
	// differs on every rank. A nil Shared makes all inputs differ.
	Shared func(input *ir.Node) *ir.Group

	// Next, if not nil, is a function that takes results of f: its input k is output Feeds[k]
	// of f, none if that is negative. What it reads them for counts as a use.
	Next  *ir.Func
	Feeds []int

	// Skip, if not nil, says which inputs to make nothing of: their tensors have a
	// type and a shape, and no data.
	Skip func(input *ir.Node) bool
}

// World returns a group of all ranks of m, for RandomOptions.Shared. It is not
// added to the module.
func World(m *ir.Module) *ir.Group {
	g := &ir.Group{Name: "world", Ranks: [][]int{make([]int, max(m.World, 0))}}
	for i := range g.Ranks[0] {
		g.Ranks[0][i] = i
	}
	return g
}

// RandomInputs makes inputs for Run from a seed: equal arguments give equal bytes
// on every machine.
//
// Floats are normal numbers; parameters of two and more dimensions are scaled by one over the
// root of their last size, or of what a convolution sums with them, and parameters of one dimension
// lie around 1, so that activations keep their magnitude. Integers that serve as indices, directly or behind views, copies,
// selections, communication and added constants, stay within what they index, and are distinct
// along their last dimension where they say which elements are replaced (scatter, index_put),
// so that the result does not depend on an order. Other integers are small. What a root or a
// logarithm is taken of, in the same manner, is positive, as variances are. What an input's
// layout has in one place (expanded dimensions, windows that overlap) has one number. The error
// is a *SymbolError for a symbol without a value, or names an input that its sizes make too
// large.
func RandomInputs(f *ir.Func, seed uint64, o RandomOptions) ([][]Tensor, error) {
	m := &machine{f: f, world: f.Module().World, ranks: ranksOf(f)}
	slots := InputSlots(f)
	var err error
	if m.syms, err = resolveSymbols(f, m.ranks, slots, nil, o.Symbols); err != nil {
		return nil, err
	}
	need := m.demands(o.ofNext(m))
	out := make([][]Tensor, m.world)
	for _, r := range m.ranks {
		for _, s := range slots {
			who := r
			if o.Shared != nil {
				if g := o.Shared(s.Value.Def()); g != nil {
					if sub, _ := g.Of(r); sub != nil {
						who = sub[0]
					}
				}
			}
			h := fnv.New64a()
			fmt.Fprintf(h, "%d %d %s", who, s.Index, s.Value.Name())
			shape, err := m.shape(s.Type.Shape(), r)
			if err != nil {
				return nil, fmt.Errorf("interp: input %%%s: %w", s.Name, err)
			}
			if o.Skip != nil && o.Skip(s.Value.Def()) {
				out[r] = append(out[r], Tensor{DType: s.Type.DType(), Shape: shape})
				continue
			}
			t, err := NewTensor(s.Type.DType(), shape...)
			if err != nil {
				return nil, err
			}
			rng := rand.New(rand.NewPCG(seed, h.Sum64()))
			vals := randomValues(rng, t, s.Value.Def().Role(), need[s.Value.ID()][s.Index])
			src, err := FromFloats(t.DType, vals, shape...)
			if err != nil {
				return nil, err
			}
			if !s.Type.Contiguous() {
				strides, err := m.shape(s.Type.SymbolicStrides(), r)
				if err != nil {
					return nil, fmt.Errorf("interp: input %%%s: %w", s.Name, err)
				}
				hostops.Agree(src.host(), strides)
			}
			out[r] = append(out[r], src)
		}
	}
	return out, nil
}

// ofNext is what Next reads the outputs of m's function for.
func (o RandomOptions) ofNext(m *machine) []demand {
	if o.Next == nil {
		return nil
	}
	next := &machine{f: o.Next, world: m.world, ranks: m.ranks, syms: m.syms}
	need := next.demands(nil)
	out := make([]demand, len(OutputSlots(m.f)))
	for k, s := range InputSlots(o.Next) {
		if from := o.Feeds[k]; from >= 0 {
			out[from] = out[from].intersect(need[s.Value.ID()][s.Index])
		}
	}
	return out
}

// randomValues draws the elements of t, exact in float64.
func randomValues(rng *rand.Rand, t Tensor, role ir.Role, need demand) []float64 {
	vals := make([]float64, t.NumElems())
	switch {
	case t.DType.IsFloat():
		shift, scale := 0.0, 1.0
		if role == ir.RoleParameter && len(t.Shape) == 1 {
			shift, scale = 1, 0.1
		} else if role == ir.RoleParameter && len(t.Shape) > 1 {
			scale = 1 / math.Sqrt(float64(max(cmp.Or(need.terms, t.Shape[len(t.Shape)-1]), 1)))
		}
		for i := range vals {
			vals[i] = shift + scale*rng.NormFloat64()
			if need.positive {
				vals[i] = 0.5 + math.Abs(vals[i])
			}
		}
	case t.DType == dtype.Bool:
		for i := range vals {
			vals[i] = float64(rng.IntN(2))
		}
	default:
		lo, hi := int64(-8), int64(8)
		if t.DType.IsUnsigned() {
			lo = 0
		}
		if need.set {
			lo, hi = need.lo, max(need.hi, need.lo+1)
		} else if need.positive {
			lo = 1
		}
		randomInts(rng, vals, lo, hi, need.distinct)
		if need.sorted {
			slices.Sort(vals)
		}
	}
	return vals
}

// randomInts draws from lo <= n < hi. distinct deals them like cards: a number
// comes again only after all others.
func randomInts(rng *rand.Rand, vals []float64, lo, hi int64, distinct bool) {
	if !distinct {
		for i := range vals {
			vals[i] = float64(lo + rng.Int64N(hi-lo))
		}
		return
	}
	// A full deck costs memory in the size of the range; a range far beyond the
	// count is cut to its start.
	deck := rng.Perm(int(min(hi-lo, max(int64(len(vals)), 1)*4)))
	for i := range vals {
		vals[i] = float64(lo + int64(deck[i%len(deck)]))
	}
}

// demand is what the uses of a value ask for: of an integer, if set, lo <= n < hi.
type demand struct {
	set      bool
	lo, hi   int64
	distinct bool
	sorted   bool  // in ascending order: where groups end
	positive bool  // set or not
	terms    int64 // of each sum of products with this, 0 if not known
}

// intersect joins two demands. If they exclude each other (a masked lookup, whose
// out-of-range results are not used) the one that is already there stays.
func (a demand) intersect(b demand) demand {
	a.positive, a.terms = a.positive || b.positive, max(a.terms, b.terms)
	if !b.set {
		return a
	}
	if !a.set {
		b.positive, b.terms = a.positive, a.terms
		return b
	}
	if lo, hi := max(a.lo, b.lo), min(a.hi, b.hi); lo < hi {
		a.lo, a.hi = lo, hi
	}
	a.distinct, a.sorted = a.distinct || b.distinct, a.sorted || b.sorted
	return a
}

func (a demand) shift(by int64) demand {
	if a.set {
		a.lo, a.hi = a.lo+by, a.hi+by
		if a.lo < 0 && a.hi > 0 { // stay clear of indices that count from the end
			a.lo = 0
		}
	}
	return a
}

// demands derives, from the last node to the first, what is demanded of each
// value: by ValueID, per tensor that the value is or carries. outputs, unless nil, is
// what is demanded of the function's outputs.
func (m *machine) demands(outputs []demand) [][]demand {
	need := make([][]demand, m.f.NumValueIDs())
	order := m.f.Order()
	for _, n := range order {
		for _, v := range n.Results() {
			ts, _ := tensorTypes(v)
			need[v.ID()] = make([]demand, len(ts))
		}
	}
	if outputs != nil {
		for k, s := range OutputSlots(m.f) {
			at := &need[s.Value.ID()][s.Index]
			*at = at.intersect(outputs[k])
		}
	}
	for i := len(order) - 1; i >= 0; i-- {
		m.pass(order[i], need)
	}
	return need
}

// pass hands what a node needs of its operands to them.
func (m *machine) pass(n *ir.Node, need [][]demand) {
	args, a := n.Args(), n.Attrs()
	put := func(i, k int, r demand) {
		if i < len(args) {
			v := need[args[i].ID()]
			v[k] = v[k].intersect(r)
		}
	}
	var out demand // the demand on the first result
	if len(n.Results()) > 0 {
		out = need[n.Result(0).ID()][0]
	}
	dim := int(a.Int("dim", 0))
	switch op := n.Op(); op {
	case ir.OpEmbedding:
		put(1, 0, m.within(args[0], 0, false))
		put(0, 0, out)
	case ir.OpGather:
		put(1, 0, m.within(args[0], dim, false))
		put(0, 0, out)
	case ir.OpScatter:
		put(1, 0, m.within(args[0], dim, !a.Has("reduce")))
		put(0, 0, out)
		put(2, 0, out)
	case ir.OpGroupedMatmul:
		put(2, 0, m.ends(args[0], args[1]))
	case ir.OpCumsum:
		if n := m.elems(args[0]); out.sorted && n > 0 { // sizes of groups, of which out are the ends
			put(0, 0, demand{set: true, hi: (out.hi-1)/n + 1})
		}
	case ir.OpReadSize:
		r := demand{set: true, hi: math.MaxInt64}
		for _, s := range a.Strs(ir.SymbolsKey) {
			y := m.f.Module().Symbol(s)
			r.lo, r.hi = max(r.lo, y.Min), min(r.hi, y.Max+1)
		}
		put(0, 0, r)
	case ir.OpIndexAdd:
		put(1, 0, m.within(args[0], dim, false))
	case ir.OpIndex, ir.OpIndexPut:
		first := 1
		put(0, 0, out)
		if op == ir.OpIndexPut {
			first = 2
			put(1, 0, out)
		}
		for k, d := range a.Ints("dims") {
			put(first+k, 0, m.within(args[0], int(d), op == ir.OpIndexPut && !a.Bool("accumulate", false)))
		}
	case ir.OpWhere:
		put(1, 0, out)
		put(2, 0, out)
	case ir.OpCat:
		for i := range args {
			put(i, 0, out)
		}
	case ir.OpConvolution:
		if w, err := m.shape(args[1].Type().Shape(), m.ranks[0]); err == nil {
			put(1, 0, demand{terms: (Tensor{Shape: w[1:]}).NumElems()})
		}
	case ir.OpSqrt, ir.OpRsqrt, ir.OpLog, ir.OpLog2, ir.OpLog10:
		put(0, 0, demand{positive: true})
	case ir.OpMul, ir.OpDiv:
		if out.positive && len(args) == 1 && a.Float("scalar", 0) > 0 {
			put(0, 0, demand{positive: true})
		}
	case ir.OpAdd, ir.OpSub:
		m.demandSum(n, out, put)
	case ir.OpClone, ir.OpConvert, ir.OpShard, ir.OpClamp, ir.OpMaximum, ir.OpMinimum, ir.OpSliceScatter, ir.OpTopk, ir.OpAmax, ir.OpAmin:
		put(0, 0, out)
		put(1, 0, out)
	case ir.OpWaitTensor:
		for k, v := range n.Results() {
			put(0, k, need[v.ID()][0])
		}
	default:
		switch {
		case op.IsCollective():
			for k, r := range need[n.Result(0).ID()] {
				put(k, 0, r)
			}
		case op.IsView():
			for _, v := range n.Results() {
				put(0, 0, need[v.ID()][0])
			}
		}
	}
}

// ends is the demand on the ends of the groups of a grouped matmul of a and b.
func (m *machine) ends(a, b *ir.Value) demand {
	grouped, d := a, 1 // inner indices
	if b.Type().Rank() == 3 {
		d = 0
	} else if a.Type().Rank() == 3 {
		grouped = b
	}
	r := m.within(grouped, d, false)
	r.hi, r.sorted = r.hi+1, true
	return r
}

// elems is how many elements a tensor has on the first rank, 0 if that is not known.
func (m *machine) elems(v *ir.Value) int64 {
	shape, err := m.shape(v.Type().Shape(), m.ranks[0])
	if err != nil {
		return 0
	}
	return Tensor{Shape: shape}.NumElems()
}

// demandSum inverts x + scalar and x - scalar, and the same with positions in place of the
// scalar; other sums of two tensors say nothing about either.
func (m *machine) demandSum(n *ir.Node, out demand, put func(i, k int, r demand)) {
	args := n.Args()
	c := n.Attrs().Float("alpha", 1)
	if out.positive && n.Op() == ir.OpAdd && c > 0 && n.Attrs().Float("scalar", 0) >= 0 {
		put(0, 0, demand{positive: true})
		put(1, 0, demand{positive: true})
	}
	if !out.set || n.Attrs().Bool("reverse", false) {
		return
	}
	if len(args) == 1 {
		c *= n.Attrs().Float("scalar", 0)
	}
	if c != math.Trunc(c) || math.Abs(c) > 1<<53 {
		return
	}
	if n.Op() == ir.OpAdd {
		c = -c
	}
	if len(args) == 1 {
		put(0, 0, out.shift(int64(c)))
		return
	}
	for i, x := range args {
		lo, hi, ok := m.positions(x)
		if !ok || i == 0 && c != -1 || math.Abs(c) != 1 {
			continue // what is subtracted, or multiplied
		}
		if c == -1 {
			lo, hi = -lo, -hi
		} else {
			lo, hi = hi, lo
		}
		if r := (demand{set: true, lo: max(out.lo+lo, 0), hi: out.hi + hi, distinct: out.distinct, sorted: out.sorted}); r.lo < r.hi {
			put(1-i, 0, r)
		}
	}
}

// positions are the smallest and the largest element of an iota, views and multiples of it.
func (m *machine) positions(x *ir.Value) (lo, hi int64, ok bool) {
	d, scale := x.Def(), int64(1)
	for len(d.Args()) == 1 {
		if c := d.Attrs().Float("scalar", 0); d.Op() == ir.OpMul && c == math.Trunc(c) && math.Abs(c) <= 1<<20 && max(scale, -scale) <= 1<<20 {
			scale *= int64(c)
		} else if !d.Op().IsView() && d.Op() != ir.OpConvert && d.Op() != ir.OpClone {
			break
		}
		d = d.Args()[0].Def()
	}
	if d.Op() != ir.OpIota {
		return 0, 0, false
	}
	count := m.within(d.Result(0), 0, false)
	lo = d.Attrs().Int("start", 0) * scale
	hi = lo + d.Attrs().Int("step", 1)*(count.hi-1)*scale
	return min(lo, hi), max(lo, hi), count.hi > 0
}

// within demands indices of a dimension of v: of its smallest size on any rank.
func (m *machine) within(v *ir.Value, dim int, distinct bool) demand {
	s := v.Type().Shape()
	if dim < 0 || dim >= len(s) {
		return demand{}
	}
	size := int64(math.MaxInt64)
	for _, r := range m.ranks {
		if n, err := m.dim(s[dim], r); err == nil {
			size = min(size, n)
		}
	}
	if size == math.MaxInt64 {
		return demand{}
	}
	return demand{set: true, hi: size, distinct: distinct}
}
