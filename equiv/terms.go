package equiv

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
func (z *normalizer) value(v *value) termID {
	if t, ok := z.overlaid(v); ok {
		return t
	}
	if len(v.args) > 0 && v.self == "" {
		if t, ok := z.moved(v); ok {
			return t
		}
	}
	switch {
	case v.self != "" || v.index < 0:
	case v.op == ir.OpFull:
		return z.make(term{kind: kindFull, op: v.op, dt: v.typ.DType(), n: v.typ.Shape().NumElems(), text: number(v.attrs, "value")})
	case v.op == ir.OpIota && v.typ.DType().IsInt() && v.typ.DType().Size() >= 4:
		start, step := v.attrs.Int("start", 0), v.attrs.Int("step", 1)
		return z.make(term{kind: kindIota, op: v.op, dt: v.typ.DType(), n: v.typ.Shape().NumElems(), base: start, scale: step})
	case v.op.Info().Elementwise:
		return z.pointwise(v)
	case v.op == ir.OpAllReduce:
		return z.reduceOver(z.memo[v.args[0]], ir.Reduction(v.attrs.Str("reduce", "")), z.p.groups[v.group].List)
	case v.op == ir.OpReduceScatter:
		sum := z.reduceOver(z.memo[v.args[0]], ir.Reduction(v.attrs.Str("reduce", "")), z.p.groups[v.group].List)
		return z.shard(sum, z.p.values[v.args[0]].typ.Shape(), int(v.attrs.Int("dim", 0)), v.group, v.typ.Shape())
	case v.op == ir.OpIndexPut:
		if t, ok := z.scatter(v); ok {
			return t
		}
		if t, ok := z.rowPut(v); ok {
			return t
		}
	case v.op == ir.OpEmbedding, v.op == ir.OpIndex:
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
func (z *normalizer) opaque(v *value) termID {
	t := term{kind: kindOpaque, op: v.op, dt: v.typ.DType(), n: v.typ.Shape().NumElems(), attrs: v.attrs,
		head: fmt.Sprintf("%s|%d|%d|%s", v.self, v.index, v.group, v.attrs)}
	types := []ir.Type{v.typ}
	for _, a := range v.args {
		typ := z.p.values[a].typ // layouts that matter are in self
		types = append(types, ir.TensorOf(typ.DType(), typ.Shape()))
		t.args = append(t.args, z.memo[a])
	}
	t.text = opaqueText(t.head, types)
	if v.self == "" && v.index == 0 && v.group < 0 && v.op.Info().Effects == 0 {
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
func (z *normalizer) operation(t term) termID {
	t.text = opaqueText(t.head, t.types)
	return z.make(t)
}

// overlaid is a tensor whose elements may lie in one place, as what lies there seen through
// its strides: then what changes their places alone is nothing. False of others.
func (z *normalizer) overlaid(v *value) (termID, bool) {
	strides := v.typ.Strides()
	if v.op != ir.OpInput && v.op != ir.OpAsStrided || strides == nil || v.typ.NonOverlapping() {
		return 0, false
	}
	l, ok := layout.Plain(digits(v.typ.Shape(), strides), 0)
	lies := *v
	lies.typ = ir.TensorOf(v.typ.DType(), ir.Shape{v.typ.Extent().Div(int64(v.typ.DType().Size()))})
	return z.move(l, v.typ.Shape().NumElems(), z.opaque(&lies)), ok
}

// pointwise makes operands as large as the result, so that the operation is one of
// flat tensors.
func (z *normalizer) pointwise(v *value) termID {
	t := term{kind: kindPoint, op: v.op, dt: v.typ.DType(), n: v.typ.Shape().NumElems(), attrs: v.attrs, text: v.attrs.String()}
	for _, a := range v.args {
		x, ok := z.expand(z.memo[a], z.p.values[a].typ.Shape(), v.typ.Shape())
		if !ok {
			return z.opaque(v)
		}
		t.args = append(t.args, x)
	}
	return z.make(t)
}

// expand broadcasts x of one shape to another.
func (z *normalizer) expand(x termID, from, to ir.Shape) (termID, bool) {
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
func (z *normalizer) full(x termID, n ir.Dim) termID {
	t := *z.at(x)
	t.n = n
	return z.make(t)
}

// shuffled moves elements in a way that no layout says; text tells it apart.
func (z *normalizer) shuffled(x termID, n ir.Dim, local bool, text string) termID {
	return z.make(term{kind: kindShuffle, dt: z.at(x).dt, n: n, text: text, local: local, args: []termID{x}})
}

// exchanged is shuffled by a collective or a shard along a dimension.
func (z *normalizer) exchanged(x termID, op ir.Op, group int32, dim int, n ir.Dim, text string) termID {
	return z.make(term{kind: kindShuffle, op: op, base: int64(group), scale: int64(dim), dt: z.at(x).dt, n: n, text: text, args: []termID{x}})
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
func (z *normalizer) moved(v *value) (termID, bool) {
	x, to := z.memo[v.args[0]], v.typ.Shape()
	from := z.p.values[v.args[0]].typ
	n := to.NumElems()
	switch v.op {
	case ir.OpView, ir.OpSqueeze, ir.OpUnsqueeze, ir.OpAlias:
		return x, true
	case ir.OpClone:
		if v.typ.DType() == from.DType() {
			return x, true
		}
		t := term{kind: kindPoint, op: ir.OpConvert, dt: v.typ.DType(), n: n, args: []termID{x}, text: noAttrs}
		return z.make(t), true
	case ir.OpExpand:
		return z.expand(x, from.Shape(), to)
	case ir.OpPermute, ir.OpSlice, ir.OpSplit, ir.OpSelect:
		if keepsOrder(v, from.Shape()) {
			return x, true
		}
		if l, ok := viewLayout(v, from.Shape()); ok {
			return z.move(l, n, x), true
		}
		return z.shuffled(x, n, true, fmt.Sprint(v.op, v.index, v.attrs, from.Shape(), to)), true
	case ir.OpShard:
		return z.shard(x, from.Shape(), int(v.attrs.Int("dim", 0)), v.group, to), true
	case ir.OpAllGather, ir.OpAllToAll, ir.OpBroadcast, ir.OpCollectivePermute:
		self := v.op != ir.OpCollectivePermute || len(v.attrs.Ints("pairs")) > 0 // over one rank
		if self && z.p.groups[v.group].Size == 1 && n.Equal(from.Shape().NumElems()) {
			return x, true
		}
		l, ok := z.transport(v, from.Shape())
		if v.op == ir.OpCollectivePermute && ok {
			return z.received(&l, n, x), true
		}
		if ok && int64(len(l.Rank)) <= layout.MaxTable {
			l.Canonical(z.p.world)
			return z.move(l, n, x), true
		}
		return z.exchanged(x, v.op, v.group, int(v.attrs.Int("dim", 0)), n, fmt.Sprint(v.attrs, from.Shape(), to)), true
	}
	return 0, false
}

// keepsOrder reports whether a view that is not a reshape has all elements of its operand,
// in order, whatever the symbols are.
func keepsOrder(v *value, from ir.Shape) bool {
	if v.op != ir.OpPermute {
		return v.typ.Shape().NumElems().Equal(from.NumElems()) // a selection of all of them
	}
	last := int64(-1)
	for _, d := range v.attrs.Ints("dims") {
		if from[d].Equal(ir.D(1)) {
			continue
		}
		if d < last {
			return false
		}
		last = d
	}
	return true
}

// viewLayout is the layout of a view that is not a reshape.
func viewLayout(v *value, from ir.Shape) (layout.Layout, bool) {
	strides, ok := rowMajor(from)
	if !ok {
		return layout.Layout{}, false
	}
	to, off := v.typ.Shape(), int64(0)
	if v.op == ir.OpPermute {
		var by []int64
		for _, d := range v.attrs.Ints("dims") {
			by = append(by, strides[d])
		}
		return layout.Plain(digits(to, by), 0)
	}
	d := int(v.attrs.Int("dim", 0))
	switch v.op {
	case ir.OpSlice:
		off = v.attrs.Int("start", 0) * strides[d]
		strides[d] *= v.attrs.Int("step", 1)
	case ir.OpSplit:
		for _, n := range v.attrs.Ints("sizes")[:v.index] {
			off += n * strides[d]
		}
	case ir.OpSelect:
		off = v.attrs.Int("index", 0) * strides[d]
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
func (z *normalizer) shard(x termID, from ir.Shape, d int, group int32, to ir.Shape) termID {
	if z.p.groups[group].Size == 1 {
		return x
	}
	strides, ok := rowMajor(from)
	piece, static := to[d].Const()
	var l layout.Layout
	if ok {
		l, ok = layout.Plain(digits(to, strides), 0)
	}
	g := z.p.groups[group]
	if !ok || !static {
		return z.exchanged(x, ir.OpShard, group, d, to.NumElems(), fmt.Sprint(from))
	}
	l.Rank, l.Add = make([]int32, z.p.world), make([]int64, z.p.world)
	for r := range z.p.world {
		l.Rank[r], l.Add[r] = int32(r), int64(g.At[r])*piece*strides[d]
	}
	l.Canonical(z.p.world)
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
func (z *normalizer) transport(v *value, from ir.Shape) (layout.Layout, bool) {
	g, world := z.p.groups[v.group], z.p.world
	strides, ok := rowMajor(from)
	if !ok || v.attrs.Has("in_splits") && !evenSplits(v.attrs) {
		return layout.Layout{}, false
	}
	l := layout.Layout{Digits: digits(from, strides)}
	d := int(v.attrs.Int("dim", 0))
	places := 1 // table entries of a rank
	switch v.op {
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
	if v.op == ir.OpCollectivePermute {
		for i := range source {
			source[i] = -1
		}
		pairs := v.attrs.Ints("pairs")
		for i := 0; i+1 < len(pairs); i += 2 {
			source[pairs[i+1]] = pairs[i]
		}
	}
	l.Rank, l.Add = make([]int32, world*places), make([]int64, world*places)
	for r := range world {
		for k := range places {
			from := int64(k)
			switch v.op {
			case ir.OpBroadcast:
				from = v.attrs.Int("root", 0)
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

// received is what a permute brings: zeros where a layout reads from rank -1.
func (z *normalizer) received(l *layout.Layout, n ir.Dim, x termID) termID {
	gets := layout.Layout{Digits: []layout.Digit{layout.Of(n, 0)}, Rank: make([]int32, z.p.world), Add: make([]int64, z.p.world)}
	some := false
	for r, from := range l.Rank {
		gets.Rank[r] = int32(r)
		if from >= 0 {
			gets.Add[r] = 1
		} else {
			l.Rank[r], some = int32(r), true // anything
		}
	}
	l.Canonical(z.p.world)
	t := z.move(*l, n, x)
	if !some {
		return t
	}
	gets.Canonical(z.p.world)
	mask := z.move(gets, n, z.make(term{kind: kindIota, op: ir.OpIota, dt: ir.I64, n: ir.D(2), scale: 1}))
	zero := z.make(term{kind: kindFull, op: ir.OpFull, dt: z.at(x).dt, n: n, text: "0"})
	return z.make(term{kind: kindPoint, op: ir.OpWhere, dt: z.at(x).dt, n: n, text: noAttrs, args: []termID{mask, t, zero}})
}

// reduceOver is the reduction of x over a list of ranks for each rank.
func (z *normalizer) reduceOver(x termID, red ir.Reduction, lists [][]int32) termID {
	t := z.at(x)
	return z.make(term{kind: kindReduce, op: ir.OpAllReduce, dt: t.dt, n: t.n, red: red, rows: z.lists(lists), args: []termID{x}})
}

// lookup is rows of a table at positions: the indexed dimension is the first.
func (z *normalizer) lookup(v *value) (termID, bool) {
	table, ok := z.p.values[v.args[0]].typ.Shape().Static()
	dims := v.attrs.Ints("dims")
	if !ok || len(v.args) != 2 || len(table) == 0 || v.op == ir.OpIndex && (len(dims) != 1 || dims[0] != 0) {
		return 0, false
	}
	return z.make(term{kind: kindLookup, op: v.op, dt: v.typ.DType(), n: v.typ.Shape().NumElems(), base: table[0], scale: intmath.Product(table[1:]),
		args: []termID{z.memo[v.args[0]], z.memo[v.args[1]]}}), true
}

// scatter is rows added to a table at positions: its first dimension is indexed, and
// nothing is broadcast.
func (z *normalizer) scatter(v *value) (termID, bool) {
	dims := v.attrs.Ints("dims")
	table, ok := v.typ.Shape().Static()
	if !ok || !v.attrs.Bool("accumulate", false) || len(v.args) != 3 || len(dims) != 1 || dims[0] != 0 || len(table) == 0 {
		return 0, false
	}
	start, vals, ids := z.p.values[v.args[0]].typ, z.p.values[v.args[1]].typ, z.p.values[v.args[2]].typ
	if !start.Shape().Equal(v.typ.Shape()) || !vals.Shape().Equal(append(slices.Clone(ids.Shape()), v.typ.Shape()[1:]...)) {
		return 0, false
	}
	return z.make(term{kind: kindScatter, op: v.op, dt: v.typ.DType(), n: v.typ.Shape().NumElems(), base: table[0], scale: intmath.Product(table[1:]),
		args: []termID{z.memo[v.args[0]], z.memo[v.args[1]], z.memo[v.args[2]]}}), true
}
