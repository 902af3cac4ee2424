package terms

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/seed-ee968945/concert/equiv/internal/layout"
	"github.com/seed-ee968945/concert/internal/attr"
	"github.com/seed-ee968945/concert/internal/intmath"
	"github.com/seed-ee968945/concert/ir"
)

// value makes the term of a value whose operands have terms.
func (z *Normalizer) value(v *Value) TermID {
	if t, ok := z.overlaid(v); ok {
		return t
	}
	if len(v.Args) > 0 && v.Tag == "" {
		if t, ok := z.moved(v); ok {
			return t
		}
	}
	switch {
	case v.Tag != "" || v.Result < 0:
	case v.Op == ir.OpFull:
		return z.make(term{kind: kindFull, op: v.Op, dt: v.Type.DType(), n: v.Type.Shape().NumElems(), text: number(v.Attrs, "value")})
	case v.Op == ir.OpIota && v.Type.DType().IsInt() && v.Type.DType().Size() >= 4:
		start, step := v.Attrs.Int("start", 0), v.Attrs.Int("step", 1)
		return z.make(term{kind: kindIota, op: v.Op, dt: v.Type.DType(), n: v.Type.Shape().NumElems(), base: start, scale: step})
	case v.Op.Info().Elementwise:
		return z.pointwise(v)
	case v.Op == ir.OpAllReduce:
		return z.reduceOver(z.memo[v.Args[0]], ir.Reduction(v.Attrs.Str("reduce", "")), z.vals.groups[v.Group].List)
	case v.Op == ir.OpReduceScatter:
		sum := z.reduceOver(z.memo[v.Args[0]], ir.Reduction(v.Attrs.Str("reduce", "")), z.vals.groups[v.Group].List)
		return z.shard(sum, z.vals.all[v.Args[0]].Type.Shape(), int(v.Attrs.Int("dim", 0)), v.Group, v.Type.Shape())
	case v.Op == ir.OpIndexPut:
		if t, ok := z.scatter(v); ok {
			return t
		}
		if t, ok := z.rowPut(v); ok {
			return t
		}
	case v.Op == ir.OpEmbedding, v.Op == ir.OpIndex:
		if t, ok := z.lookup(v); ok {
			return t
		}
	}
	return z.opaque(v)
}

// number is a constant's text, equal for equal numbers of one kind.
func number(l attr.List, key string) string {
	a, _ := l.Get(key)
	if i, ok := a.AsInt(); ok && int64(float64(i)) == i {
		return strconv.FormatFloat(float64(i), 'g', -1, 64)
	}
	if f, ok := a.AsFloat(); ok && a.Kind() == attr.KindFloat {
		return strconv.FormatFloat(f, 'g', -1, 64)
	}
	return a.String()
}

// opaque is an operation that is only itself: types of operands and result count.
func (z *Normalizer) opaque(v *Value) TermID {
	t := term{kind: kindOpaque, op: v.Op, dt: v.Type.DType(), n: v.Type.Shape().NumElems(), attrs: v.Attrs,
		head: fmt.Sprintf("%s|%d|%d|%s", v.Tag, v.Result, v.Group, v.Attrs)}
	types := []ir.Type{v.Type}
	for _, a := range v.Args {
		typ := z.vals.all[a].Type // layouts that matter are in self
		types = append(types, ir.TensorOf(typ.DType(), typ.Shape()))
		t.args = append(t.args, z.memo[a])
	}
	t.text = opaqueText(t.head, types)
	if v.Tag == "" && v.Result == 0 && v.Group < 0 && v.Op.Info().Effects == 0 {
		t.types = types
	}
	return z.make(t)
}

// opaqueText tells opaque operations apart.
func opaqueText(head string, types []ir.Type) string {
	for _, t := range types {
		head += "|" + t.String()
	}
	return head
}

// operation is an opaque operation of tensors of other types than it was made for.
func (z *Normalizer) operation(t term) TermID {
	t.text = opaqueText(t.head, t.types)
	return z.make(t)
}

// overlaid is a tensor whose elements may lie in one place, as what lies there seen through
// its strides: then what changes their places alone is nothing. False of others.
func (z *Normalizer) overlaid(v *Value) (TermID, bool) {
	strides := v.Type.Strides()
	if v.Op != ir.OpInput && v.Op != ir.OpAsStrided || strides == nil || v.Type.NonOverlapping() {
		return 0, false
	}
	l, ok := layout.Plain(digits(v.Type.Shape(), strides), 0)
	lies := *v
	lies.Type = ir.TensorOf(v.Type.DType(), ir.Shape{v.Type.Extent().Div(int64(v.Type.DType().Size()))})
	return z.move(l, v.Type.Shape().NumElems(), z.opaque(&lies)), ok
}

// pointwise makes operands as large as the result, so that the operation is one of
// flat tensors.
func (z *Normalizer) pointwise(v *Value) TermID {
	t := term{kind: kindPoint, op: v.Op, dt: v.Type.DType(), n: v.Type.Shape().NumElems(), attrs: v.Attrs, text: v.Attrs.String()}
	for _, a := range v.Args {
		x, ok := z.expand(z.memo[a], z.vals.all[a].Type.Shape(), v.Type.Shape())
		if !ok {
			return z.opaque(v)
		}
		t.args = append(t.args, x)
	}
	return z.make(t)
}

// expand broadcasts x of one shape to another.
func (z *Normalizer) expand(x TermID, from, to ir.Shape) (TermID, bool) {
	n := to.NumElems()
	if from.Equal(to) || from.NumElems().Equal(n) && len(from) <= len(to) {
		return x, true
	}
	if z.at(x).kind == kindFull {
		return z.full(x, n), true
	}
	strides, ok := rowMajor(from)
	if !ok {
		return z.shuffled(x, n, true, fmt.Sprint("expand ", from, to)), true
	}
	var ds []layout.Digit
	for i, m := range to {
		j := i - len(to) + len(from)
		if j < 0 || from[j].Equal(ir.D(1)) {
			ds = append(ds, layout.Of(m, 0))
		} else {
			ds = append(ds, layout.Of(m, strides[j]))
		}
	}
	l, ok := layout.Plain(ds, 0)
	if !ok {
		return z.shuffled(x, n, true, fmt.Sprint("expand ", from, to)), true
	}
	return z.move(l, n, x), true
}

// full is the constant x with so many elements.
func (z *Normalizer) full(x TermID, n ir.Dim) TermID {
	t := *z.at(x)
	t.n = n
	return z.make(t)
}

// shuffled moves elements in a way that no layout says; text tells it apart.
func (z *Normalizer) shuffled(x TermID, n ir.Dim, local bool, text string) TermID {
	return z.make(term{kind: kindShuffle, dt: z.at(x).dt, n: n, text: text, local: local, args: []TermID{x}})
}

// exchanged is shuffled by a collective or a shard along a dimension.
func (z *Normalizer) exchanged(x TermID, op ir.Op, group int32, dim int, n ir.Dim, text string) TermID {
	return z.make(term{kind: kindShuffle, op: op, base: int64(group), scale: int64(dim), dt: z.at(x).dt, n: n, text: text, args: []TermID{x}})
}

// rowMajor are the strides of a shape without gaps, false where one is symbolic.
func rowMajor(s ir.Shape) ([]int64, bool) {
	out := make([]int64, len(s))
	w := int64(1)
	for i := len(s) - 1; i >= 0; i-- {
		out[i] = w
		n, ok := s[i].Const()
		if !ok {
			for _, m := range s[:i] {
				if !m.Equal(ir.D(1)) {
					return nil, false
				}
			}
			n = 1
		}
		w *= max(n, 1)
	}
	return out, true
}

// moved makes terms of operations that only move elements.
func (z *Normalizer) moved(v *Value) (TermID, bool) {
	x, to := z.memo[v.Args[0]], v.Type.Shape()
	from := z.vals.all[v.Args[0]].Type
	n := to.NumElems()
	switch v.Op {
	case ir.OpView, ir.OpSqueeze, ir.OpUnsqueeze, ir.OpAlias:
		return x, true
	case ir.OpClone:
		if v.Type.DType() == from.DType() {
			return x, true
		}
		t := term{kind: kindPoint, op: ir.OpConvert, dt: v.Type.DType(), n: n, args: []TermID{x}, text: noAttrs}
		return z.make(t), true
	case ir.OpExpand:
		return z.expand(x, from.Shape(), to)
	case ir.OpPermute:
		return z.permuted(x, from.Shape(), v.Attrs.Ints("dims")), true
	case ir.OpSlice, ir.OpSplit, ir.OpSelect:
		if n.Equal(from.Shape().NumElems()) { // a selection of all of them
			return x, true
		}
		if l, ok := viewLayout(v, from.Shape()); ok {
			return z.move(l, n, x), true
		}
		return z.shuffled(x, n, true, fmt.Sprint(v.Op, v.Result, v.Attrs, from.Shape(), to)), true
	case ir.OpShard:
		return z.shard(x, from.Shape(), int(v.Attrs.Int("dim", 0)), v.Group, to), true
	case ir.OpAllGather, ir.OpAllToAll, ir.OpBroadcast, ir.OpCollectivePermute:
		self := v.Op != ir.OpCollectivePermute || len(v.Attrs.Ints("pairs")) > 0 // over one rank
		if self && z.vals.groups[v.Group].Size == 1 && n.Equal(from.Shape().NumElems()) {
			return x, true
		}
		l, ok := z.transport(v, from.Shape())
		if v.Op == ir.OpCollectivePermute && ok {
			return z.receive(&l, n, x), true
		}
		if ok && int64(len(l.Rank)) <= layout.MaxTable {
			l.Canonical(z.vals.world)
			return z.move(l, n, x), true
		}
		return z.exchanged(x, v.Op, v.Group, int(v.Attrs.Int("dim", 0)), n, fmt.Sprint(v.Attrs, from.Shape(), to)), true
	}
	return 0, false
}

// permuted is x, of a shape, with its dimensions in another order.
func (z *Normalizer) permuted(x TermID, from ir.Shape, dims []int64) TermID {
	if slices.IsSorted(moving(from, dims)) {
		return x // in order, whatever the symbols are
	}
	if l, ok := permutation(from, dims); ok {
		return z.move(l, from.NumElems(), x)
	}
	dt := z.at(x).dt
	return z.make(term{kind: kindShuffle, op: ir.OpPermute, dt: dt, n: from.NumElems(), text: fmt.Sprint("permute ", dims, from), local: true,
		attrs: attr.Make(attr.Attr{Key: "dims", Val: attr.Ints(dims...)}), types: []ir.Type{ir.TensorOf(dt, picked(from, dims)), ir.TensorOf(dt, from)}, args: []TermID{x}})
}

// moving are those of dims that are not one element long.
func moving(from ir.Shape, dims []int64) []int64 {
	return slices.DeleteFunc(slices.Clone(dims), func(d int64) bool { return from[d].Equal(ir.D(1)) })
}

// picked are the dimensions of a shape in an order.
func picked(from ir.Shape, dims []int64) ir.Shape {
	to := make(ir.Shape, len(dims))
	for i, d := range dims {
		to[i] = from[d]
	}
	return to
}

// permutation is the layout of permuted, false where symbols leave none.
func permutation(from ir.Shape, dims []int64) (layout.Layout, bool) {
	strides, ok := rowMajor(from)
	if !ok {
		return layout.Layout{}, false
	}
	var by []int64
	for _, d := range dims {
		by = append(by, strides[d])
	}
	return layout.Plain(digits(picked(from, dims), by), 0)
}

// viewLayout is the layout of a view that selects.
func viewLayout(v *Value, from ir.Shape) (layout.Layout, bool) {
	strides, ok := rowMajor(from)
	if !ok {
		return layout.Layout{}, false
	}
	to, off := v.Type.Shape(), int64(0)
	d := int(v.Attrs.Int("dim", 0))
	switch v.Op {
	case ir.OpSlice:
		off = v.Attrs.Int("start", 0) * strides[d]
		strides[d] *= v.Attrs.Int("step", 1)
	case ir.OpSplit:
		for _, n := range v.Attrs.Ints("sizes")[:v.Result] {
			off += n * strides[d]
		}
	case ir.OpSelect:
		off = v.Attrs.Int("index", 0) * strides[d]
		strides = slices.Delete(strides, d, d+1)
	}
	return layout.Plain(digits(to, strides), off)
}

// digits are those that count through a shape by strides.
func digits(s ir.Shape, strides []int64) []layout.Digit {
	ds := make([]layout.Digit, len(s))
	for i, n := range s {
		ds[i] = layout.Of(n, strides[i])
	}
	return ds
}

// shard is each rank's piece of x along dimension d by its place in a group.
func (z *Normalizer) shard(x TermID, from ir.Shape, d int, group int32, to ir.Shape) TermID {
	if z.vals.groups[group].Size == 1 {
		return x
	}
	strides, ok := rowMajor(from)
	piece, static := to[d].Const()
	var l layout.Layout
	if ok {
		l, ok = layout.Plain(digits(to, strides), 0)
	}
	g := z.vals.groups[group]
	if !ok || !static {
		return z.exchanged(x, ir.OpShard, group, d, to.NumElems(), fmt.Sprint(from))
	}
	l.Rank, l.Add = make([]int32, z.vals.world), make([]int64, z.vals.world)
	for r := range z.vals.world {
		l.Rank[r], l.Add[r] = int32(r), int64(g.At[r])*piece*strides[d]
	}
	l.Canonical(z.vals.world)
	return z.move(l, to.NumElems(), x)
}

// evenSplits reports whether an exchange says of its pieces that they are equal, as
// they are where it says nothing.
func evenSplits(l attr.List) bool {
	in, out := l.Strs("in_splits"), l.Strs("out_splits")
	if len(in) != 1 || !slices.Equal(in, out) {
		return false
	}
	parts := strings.Split(in[0], ",")
	return !slices.ContainsFunc(parts, func(s string) bool { return s != parts[0] })
}

// transport is the layout of a collective that only moves elements, not yet
// canonical; false where it cannot be said: symbolic pieces, and ranks that
// receive nothing.
func (z *Normalizer) transport(v *Value, from ir.Shape) (layout.Layout, bool) {
	g, world := z.vals.groups[v.Group], z.vals.world
	strides, ok := rowMajor(from)
	if !ok || v.Attrs.Has("in_splits") && !evenSplits(v.Attrs) {
		return layout.Layout{}, false
	}
	l := layout.Layout{Digits: digits(from, strides)}
	d := int(v.Attrs.Int("dim", 0))
	places := 1 // table entries of a rank
	switch v.Op {
	case ir.OpAllToAll:
		n, ok := from[0].Const()
		if !ok {
			return l, false
		}
		d, places = 0, g.Size
		l.Digits[0].N = n / int64(g.Size)
		l.Digits = slices.Insert(l.Digits, 0, layout.Digit{N: int64(g.Size), Table: true})
	case ir.OpAllGather:
		places = g.Size
		l.Digits = slices.Insert(l.Digits, d, layout.Digit{N: int64(g.Size), Table: true})
	}
	for i, e := range l.Digits {
		for _, o := range l.Digits[:i] {
			if e.N < 0 && o.N != 1 {
				return l, false
			}
		}
	}
	if places*world > layout.MaxTable {
		return l, false
	}
	source := make([]int64, g.Size) // of a permute: by destination
	if v.Op == ir.OpCollectivePermute {
		for i := range source {
			source[i] = -1
		}
		pairs := v.Attrs.Ints("pairs")
		for i := 0; i+1 < len(pairs); i += 2 {
			source[pairs[i+1]] = pairs[i]
		}
	}
	l.Rank, l.Add = make([]int32, world*places), make([]int64, world*places)
	for r := range world {
		for k := range places {
			from := int64(k)
			switch v.Op {
			case ir.OpBroadcast:
				from = v.Attrs.Int("root", 0)
			case ir.OpCollectivePermute:
				from = source[g.At[r]]
			case ir.OpAllToAll:
				l.Add[r*places+k] = int64(g.At[r]) * l.Digits[1].N * l.Digits[1].Stride
			}
			l.Rank[r*places+k] = -1
			if from >= 0 {
				l.Rank[r*places+k] = g.List[r][from]
			}
		}
	}
	return l, true
}

// receive is what a permute brings: zeros where a layout reads from rank -1.
func (z *Normalizer) receive(l *layout.Layout, n ir.Dim, x TermID) TermID {
	gets := layout.Layout{Digits: []layout.Digit{layout.Of(n, 0)}, Rank: make([]int32, z.vals.world), Add: make([]int64, z.vals.world)}
	some := false
	for r, from := range l.Rank {
		gets.Rank[r] = int32(r)
		if from >= 0 {
			gets.Add[r] = 1
		} else {
			l.Rank[r], some = int32(r), true // anything
		}
	}
	l.Canonical(z.vals.world)
	t := z.move(*l, n, x)
	if !some {
		return t
	}
	gets.Canonical(z.vals.world)
	mask := z.move(gets, n, z.make(term{kind: kindIota, op: ir.OpIota, dt: ir.I64, n: ir.D(2), scale: 1}))
	zero := z.make(term{kind: kindFull, op: ir.OpFull, dt: z.at(x).dt, n: n, text: "0"})
	return z.make(term{kind: kindPoint, op: ir.OpWhere, dt: z.at(x).dt, n: n, text: noAttrs, args: []TermID{mask, t, zero}})
}

// reduceOver is the reduction of x over a list of ranks for each rank.
func (z *Normalizer) reduceOver(x TermID, red ir.Reduction, lists [][]int32) TermID {
	t := z.at(x)
	return z.make(term{kind: kindReduce, op: ir.OpAllReduce, dt: t.dt, n: t.n, red: red, rows: z.lists(lists), args: []TermID{x}})
}

// lookup is rows of a table at indices: the indexed dimension is the first.
func (z *Normalizer) lookup(v *Value) (TermID, bool) {
	table, ok := z.vals.all[v.Args[0]].Type.Shape().Static()
	dims := v.Attrs.Ints("dims")
	if !ok || len(v.Args) != 2 || len(table) == 0 || v.Op == ir.OpIndex && (len(dims) != 1 || dims[0] != 0) {
		return 0, false
	}
	return z.make(term{kind: kindLookup, op: v.Op, dt: v.Type.DType(), n: v.Type.Shape().NumElems(), base: table[0], scale: intmath.Product(table[1:]),
		args: []TermID{z.memo[v.Args[0]], z.memo[v.Args[1]]}}), true
}

// scatter is rows added to a table at indices: its first dimension is indexed, and
// nothing is broadcast.
func (z *Normalizer) scatter(v *Value) (TermID, bool) {
	dims := v.Attrs.Ints("dims")
	table, ok := v.Type.Shape().Static()
	if !ok || !v.Attrs.Bool("accumulate", false) || len(v.Args) != 3 || len(dims) != 1 || dims[0] != 0 || len(table) == 0 {
		return 0, false
	}
	start, vals, ids := z.vals.all[v.Args[0]].Type, z.vals.all[v.Args[1]].Type, z.vals.all[v.Args[2]].Type
	if !start.Shape().Equal(v.Type.Shape()) || !vals.Shape().Equal(append(slices.Clone(ids.Shape()), v.Type.Shape()[1:]...)) {
		return 0, false
	}
	return z.make(term{kind: kindScatter, op: v.Op, dt: v.Type.DType(), n: v.Type.Shape().NumElems(), base: table[0], scale: intmath.Product(table[1:]),
		args: []TermID{z.memo[v.Args[0]], z.memo[v.Args[1]], z.memo[v.Args[2]]}}), true
}
