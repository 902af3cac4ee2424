package equiv

import (
	"fmt"
	"slices"
	"strings"

	"github.com/seed-ee968945/concert/equiv/internal/scalar"
	"github.com/seed-ee968945/concert/internal/dim"
	"github.com/seed-ee968945/concert/ir"
)

// Where sizes are symbols, layouts say only what moves along the first dimension. Tensors
// that are not equal in normal form are then compared at an index that stands for all:
// expressions of elements at indices that are sums of variables, each of which counts
// from 0 to its size. Where a gather lets the rank depend on a variable, the proof goes by
// cases: the variable is cut, and counts within each rank's piece from then on.

// index is off plus multiples of variables.
type index struct {
	off ir.Dim
	of  []count // by ascending variable
}

type count struct {
	v    int // its number
	coef int64
}

// indexed is a proof at an index for all.
type indexed struct {
	e      *elements
	z      *normalizer
	vars   []ir.Dim             // what the variables count to
	labels []string             // and what they are called
	names  map[string]int       // look-up only, as are the following
	memo   map[string]scalar.ID // by value, rank and index
	cuts   map[int][]ir.Dim     // variables that count in pieces of sizes
	cut    int                  // the variable that has to be cut before the proof can go on, -1 for none
	budget int
}

// maxIndexed bounds the elements that a proof looks at, maxCuts how many variables it cuts.
const (
	maxIndexed = 1 << 14
	maxCuts    = 16
)

// unknown is no element.
const unknown = scalar.ID(-1)

// everywhere proves that two values are equal on all ranks and at every index.
func (z *normalizer) everywhere(x, y valueID) bool {
	if !z.p.values[x].typ.Shape().Equal(z.p.values[y].typ.Shape()) {
		return false
	}
	for _, lines := range []bool{false, true} {
		p := &indexed{e: newElements(z), z: z, names: map[string]int{}, cuts: map[int][]ir.Dim{}}
		p.e.lines = lines
		if p.proved(x, y) {
			z.count[z.element]++
			return true
		}
	}
	return false
}

// proved compares two values, and cuts variables until that can be told.
func (p *indexed) proved(x, y valueID) bool {
	for len(p.cuts) <= maxCuts {
		p.memo, p.budget, p.cut = map[string]scalar.ID{}, maxIndexed, -1
		if p.equal(x, y) {
			return true
		}
		if p.cut < 0 {
			return false
		}
	}
	return false
}

// equal compares two values at all indices on all ranks.
func (p *indexed) equal(x, y valueID) bool {
	for _, at := range p.generic(p.shape(x)) {
		for r := range p.z.p.world {
			if a := p.at(x, r, at); a == unknown || a != p.at(y, r, at) {
				return false
			}
		}
	}
	return true
}

// generic lists indices that stand for every element of a shape: one, and more where
// variables were cut.
func (p *indexed) generic(s ir.Shape) [][]index {
	all := [][]index{nil}
	for d, n := range s {
		var next [][]index
		for _, at := range all {
			for _, i := range p.counting(fmt.Sprint(d), n) {
				next = append(next, append(slices.Clip(at), i))
			}
		}
		all = next
	}
	return all
}

// counting is the index that counts to n, in pieces if its variable was cut; none counts to 0.
func (p *indexed) counting(name string, n ir.Dim) []index {
	switch {
	case n.Equal(ir.D(0)):
		return nil
	case n.Equal(ir.D(1)):
		return []index{{}}
	}
	key := name + ":" + n.String()
	v, ok := p.names[key]
	if !ok {
		v = len(p.vars)
		p.vars, p.labels, p.names[key] = append(p.vars, n), append(p.labels, name), v
	}
	if p.cuts[v] == nil {
		return []index{{of: []count{{v, 1}}}}
	}
	var out []index
	var from ir.Dim
	for _, size := range p.cuts[v] {
		for _, i := range p.counting(name+"'", size) {
			out = append(out, i.add(from))
		}
		from = from.Add(size)
	}
	return out
}

func (i index) plus(o index, times int64) index {
	out := index{i.off.Add(o.off.Mul(ir.D(times))), slices.Clone(i.of)}
	for _, c := range o.of {
		k, ok := slices.BinarySearchFunc(out.of, c.v, func(a count, v int) int { return a.v - v })
		if !ok {
			out.of = slices.Insert(out.of, k, count{c.v, 0})
		}
		out.of[k].coef += c.coef * times
	}
	return out
}

func (i index) add(n ir.Dim) index { return index{i.off.Add(n), i.of} }

func (i index) text() string {
	var b strings.Builder
	b.WriteString(i.off.String())
	for _, c := range i.of {
		fmt.Fprintf(&b, "+%d#%d", c.coef, c.v)
	}
	return b.String()
}

// notNegative reports whether d is at least 0 for all values of its symbols.
func (p *indexed) notNegative(d ir.Dim) bool {
	r, ok := d.Bounds(func(s string) (dim.Range, bool) {
		most, ok := p.z.p.symbols[s]
		return dim.Range{Max: most}, ok
	})
	return ok && r.Min >= 0
}

// piece says in which of several pieces that follow each other an index lies, and where
// there. False where that depends on a variable, which is then to be cut, or cannot be told.
func (p *indexed) piece(i index, sizes []ir.Dim) (int, index, bool) {
	most := i.off // of what the index counts to
	for _, c := range i.of {
		if c.coef < 0 {
			return 0, i, false
		}
		most = most.Add(p.vars[c.v].Sub(ir.D(1)).Mul(ir.D(c.coef)))
	}
	var from ir.Dim
	for k, size := range sizes {
		if in := i.add(from.Mul(ir.D(-1))); p.notNegative(in.off) && p.notNegative(from.Add(size).Sub(most).Sub(ir.D(1))) {
			return k, in, true
		}
		from = from.Add(size)
	}
	if len(i.of) == 1 && i.of[0].coef == 1 {
		p.split(i.of[0].v, i.off, sizes)
	}
	return 0, i, false
}

// split asks for a variable that counts from an offset to be cut where pieces end.
func (p *indexed) split(v int, off ir.Dim, sizes []ir.Dim) {
	n := p.vars[v]
	var parts []ir.Dim
	var from, end ir.Dim // of the part and of the piece
	end = end.Sub(off)
	for _, size := range sizes {
		end = end.Add(size)
		part := end.Sub(from)
		if !end.Equal(n) && !part.Equal(ir.D(0)) && p.notNegative(part) && p.notNegative(n.Sub(end)) {
			parts, from = append(parts, part), end
		}
	}
	if parts != nil {
		p.cuts[v], p.cut = append(parts, n.Sub(from)), v
	}
}

// at is the element of a value on a rank at an index.
func (p *indexed) at(id valueID, r int, at []index) scalar.ID {
	var key strings.Builder
	fmt.Fprintf(&key, "%d %d", id, r)
	for _, i := range at {
		key.WriteString(" " + i.text())
	}
	if x, ok := p.memo[key.String()]; ok {
		return x
	}
	if p.budget--; p.budget < 0 {
		return unknown
	}
	x := p.compute(id, r, at)
	p.memo[key.String()] = x
	return x
}

func (p *indexed) compute(id valueID, r int, at []index) scalar.ID {
	v := &p.z.p.values[id]
	if v.self == "" && v.index >= 0 {
		switch {
		case v.op == ir.OpFull:
			return p.e.Number(v.typ.DType(), number(v.attrs, "value"))
		case v.op == ir.OpIota && v.typ.DType().IsInt():
			i := index{off: ir.D(v.attrs.Int("start", 0))}.plus(at[0], v.attrs.Int("step", 1))
			return p.e.Intern(p.e.Head(v.op, v.typ.DType(), i.text()))
		case v.op.Info().Elementwise:
			return p.point(v, r, at)
		case v.op == ir.OpAllReduce:
			return p.reduce(v, r, at)
		case v.op == ir.OpReduceScatter:
			g := p.z.p.groups[v.group]
			return p.reduce(v, r, shifted(v, at, int64(g.at[r])))
		case p.e.lines && madeOfLines(v.op):
			if x := p.line(v, r, at); x != unknown {
				return x
			}
		case len(v.args) > 0:
			if x, ok := p.moved(v, r, at); ok {
				return x
			}
		}
	}
	if p.cut >= 0 {
		return unknown
	}
	return p.leaf(id, v, r, at)
}

// sized tells ranks apart on which what is made of all that lies along some sizes may be made of
// more: symbols differ.
func sized(r int, sizes ...ir.Dim) int64 {
	if slices.ContainsFunc(sizes, func(n ir.Dim) bool { _, ok := n.Const(); return !ok }) {
		return int64(r)
	}
	return -1
}

func (p *indexed) shape(id valueID) ir.Shape { return p.z.p.values[id].typ.Shape() }

// broadcast is the index of an operand of which the result is made by broadcasting.
func broadcast(from ir.Shape, at []index) []index {
	at = slices.Clone(at[len(at)-len(from):])
	for d, n := range from {
		if n.Equal(ir.D(1)) {
			at[d] = index{}
		}
	}
	return at
}

func (p *indexed) point(v *value, r int, at []index) scalar.ID {
	args := make([]scalar.ID, len(v.args))
	for k, a := range v.args {
		if args[k] = p.at(a, r, broadcast(p.shape(a), at)); args[k] == unknown {
			return unknown
		}
	}
	op := scalar.Operation{Op: v.op, DType: v.typ.DType(), Attrs: v.attrs, Text: v.attrs.String()}
	return p.e.Point(op, p.z.p.values[v.args[0]].typ.DType(), args)
}

// shifted is an index behind so many pieces of the size of v's.
func shifted(v *value, at []index, pieces int64) []index {
	at, d := slices.Clone(at), v.attrs.Int("dim", 0)
	at[d] = at[d].add(v.typ.Shape()[d].Mul(ir.D(pieces)))
	return at
}

func (p *indexed) reduce(v *value, r int, at []index) scalar.ID {
	var list []scalar.ID
	for _, q := range p.z.p.groups[v.group].list[r] {
		x := p.at(v.args[0], int(q), at)
		if x == unknown {
			return unknown
		}
		list = append(list, x)
	}
	return p.e.Reduce(ir.Reduction(v.attrs.Str("reduce", "")), v.typ.DType(), list)
}

// moved follows what moves elements to where one comes from.
func (p *indexed) moved(v *value, r int, at []index) (scalar.ID, bool) {
	x, from, g := v.args[0], p.shape(v.args[0]), (*rankGroup)(nil)
	if v.group >= 0 {
		g = p.z.p.groups[v.group]
	}
	d := int(v.attrs.Int("dim", 0))
	switch v.op {
	case ir.OpAllGather, ir.OpAllToAll:
		size := from[min(d, len(from)-1)]
		if v.op == ir.OpAllToAll {
			n, ok := from[0].Const()
			if !ok || v.attrs.Has("in_splits") && !evenSplits(v.attrs) {
				return 0, false
			}
			size = ir.D(n / int64(g.size))
		}
		k, i, ok := p.piece(at[d], slices.Repeat([]ir.Dim{size}, g.size))
		if !ok {
			return 0, false
		}
		at = slices.Clone(at)
		if at[d] = i; v.op == ir.OpAllToAll {
			at[d] = i.add(size.Mul(ir.D(int64(g.at[r]))))
		}
		return p.at(x, int(g.list[r][k]), at), true
	case ir.OpCat:
		var sizes []ir.Dim
		for _, a := range v.args {
			sizes = append(sizes, p.shape(a)[d])
		}
		k, i, ok := p.piece(at[d], sizes)
		if !ok {
			return 0, false
		}
		at = slices.Clone(at)
		at[d] = i
		return p.at(v.args[k], r, at), true
	case ir.OpBroadcast:
		return p.at(x, int(g.list[r][v.attrs.Int("root", 0)]), at), true
	case ir.OpCollectivePermute:
		pairs := v.attrs.Ints("pairs")
		for i := 0; i+1 < len(pairs); i += 2 {
			if pairs[i+1] == int64(g.at[r]) {
				return p.at(x, int(g.list[r][pairs[i]]), at), true
			}
		}
		return p.e.Number(v.typ.DType(), "0"), true
	case ir.OpClone:
		y := p.at(x, r, at)
		if y == unknown {
			return y, true
		}
		return p.e.Converted(v.typ.DType(), y), true
	}
	at, ok := viewed(v, r, g, from, at)
	if !ok {
		return 0, false
	}
	return p.at(x, r, at), true
}

// viewed is the index of a view's operand.
func viewed(v *value, r int, g *rankGroup, from ir.Shape, at []index) ([]index, bool) {
	at, d := slices.Clone(at), int(v.attrs.Int("dim", 0))
	switch v.op {
	case ir.OpAlias:
		return at, true
	case ir.OpExpand:
		return broadcast(from, at), true
	case ir.OpPermute:
		out := make([]index, len(at))
		for i, d := range v.attrs.Ints("dims") {
			out[d] = at[i]
		}
		return out, true
	case ir.OpSlice:
		at[d] = index{off: ir.D(v.attrs.Int("start", 0))}.plus(at[d], v.attrs.Int("step", 1))
		return at, true
	case ir.OpSplit:
		for _, n := range v.attrs.Ints("sizes")[:v.index] {
			at[d] = at[d].add(ir.D(n))
		}
		return at, true
	case ir.OpSelect:
		return slices.Insert(at, d, index{off: ir.D(v.attrs.Int("index", 0))}), true
	case ir.OpShard:
		return shifted(v, at, int64(g.at[r])), true
	case ir.OpView, ir.OpSqueeze, ir.OpUnsqueeze:
		return reshaped(from, v.typ.Shape(), at)
	}
	return nil, false
}

// reshaped is the index of what differs in dimensions of size 1 only.
func reshaped(from, to ir.Shape, at []index) ([]index, bool) {
	var sizes []ir.Dim
	var kept []index
	for d, n := range to {
		if !n.Equal(ir.D(1)) {
			sizes, kept = append(sizes, n), append(kept, at[d])
		}
	}
	out := make([]index, len(from))
	for d, n := range from {
		if n.Equal(ir.D(1)) {
			continue
		}
		if len(sizes) == 0 || !n.Equal(sizes[0]) {
			return nil, false
		}
		out[d] = kept[0]
		sizes, kept = sizes[1:], kept[1:]
	}
	return out, len(sizes) == 0
}

// leaf is an element of what is not looked into: of equal operands, or of the value on
// the first of the ranks that are known to have it alike.
func (p *indexed) leaf(id valueID, v *value, r int, at []index) scalar.ID {
	t := p.z.norm(id)
	class := p.z.parts.all[p.z.at(t).same][r]
	head := []int64{-3, int64(t), int64(class)}
	if twins, ok := p.operands(v, r); ok {
		head = twins
	} else if p.cut >= 0 {
		return unknown
	}
	for _, i := range at {
		head = append(head, int64(p.e.Text(i.text())))
	}
	return p.e.Intern(p.e.Head(v.op, v.typ.DType(), fmt.Sprint(v.index, v.group, v.attrs, v.typ)), head...)
}

// operands are those of an operation, at an index for all of them: on the rank alone where each rank
// makes its own result from them, else on all.
func (p *indexed) operands(v *value, r int) ([]int64, bool) {
	if v.op == ir.OpInput || len(v.args) == 0 {
		return nil, false
	}
	sizes := v.typ.Shape()
	for _, a := range v.args {
		sizes = append(slices.Clip(sizes), p.shape(a)...)
	}
	head, from, to := []int64{-4, sized(r, sizes...)}, r, r
	if v.self != "" || v.index < 0 || v.group >= 0 || v.op.IsCollective() || v.op.Info().Effects != 0 || layoutMatters(v.op) {
		head, from, to = []int64{-5, int64(r), int64(p.e.Text(v.self))}, 0, p.z.p.world-1
	}
	for _, a := range v.args {
		for q := from; q <= to; q++ {
			for _, at := range p.generic(p.shape(a)) {
				x := p.at(a, q, at)
				if x == unknown {
					return nil, false
				}
				head = append(head, int64(x))
			}
		}
		head = append(head, int64(p.e.Text(p.shape(a).String())))
	}
	return head, true
}
