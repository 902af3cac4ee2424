package equiv

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/seed-ee968945/concert/internal/dim"
	"github.com/seed-ee968945/concert/ir"
)

// Where sizes are symbols, layouts say only what moves along the first dimension. Tensors
// that are not equal in normal form are then compared at an index that stands for all:
// expressions of elements at indices that are sums of variables, each of which counts
// from 0 to its size. Where a gather lets the rank depend on a variable, the proof goes by
// cases: the variable counts within each rank's piece.

// variable is one that an index counts with.
type variable struct {
	name string
	size ir.Dim
}

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
	vars   []variable
	names  map[string]int    // look-up only, as is memo
	memo   map[string]elemID // by value, rank and index
	budget int
	cut    *cutting // the variable that has to be cut, nil for none
}

// cutting asks for a variable in parts pieces of a size.
type cutting struct {
	v     int
	size  ir.Dim
	parts int
}

// maxIndexed bounds the elements that a proof looks at, maxCuts the cases within cases.
const (
	maxIndexed = 1 << 14
	maxCuts    = 6
)

// unknown is no element.
const unknown = elemID(-1)

// everywhere proves that two values are equal on all ranks and at every index.
func (z *normalizer) everywhere(x, y valueID) bool {
	shape := z.p.values[x].typ.Shape()
	if !shape.Equal(z.p.values[y].typ.Shape()) {
		return false
	}
	p := &indexed{e: newElements(z), z: z, names: map[string]int{}, memo: map[string]elemID{}, budget: maxIndexed}
	at := p.generic(shape)
	if !p.equal(x, y, at, maxCuts) {
		return false
	}
	z.count[z.element]++
	return true
}

// generic is the index of every element of a shape.
func (p *indexed) generic(s ir.Shape) []index {
	at := make([]index, len(s))
	for d, n := range s {
		at[d] = p.counting(fmt.Sprint(d), n)
	}
	return at
}

// counting is the index that counts to n.
func (p *indexed) counting(name string, n ir.Dim) index {
	if n.Equal(ir.D(1)) {
		return index{}
	}
	name += ":" + n.String()
	v, ok := p.names[name]
	if !ok {
		v = len(p.vars)
		p.vars, p.names[name] = append(p.vars, variable{name, n}), v
	}
	return index{of: []count{{v, 1}}}
}

// equal compares two values at an index on all ranks.
func (p *indexed) equal(x, y valueID, at []index, cuts int) bool {
	for r := range p.z.p.world {
		p.cut = nil
		a := p.at(x, r, at)
		if p.cut == nil {
			b := p.at(y, r, at)
			if p.cut == nil {
				if a != b || a == unknown {
					return false
				}
				continue
			}
		}
		c, whole := *p.cut, p.vars[p.cut.v]
		if cuts == 0 || !whole.size.Equal(c.size.Mul(ir.D(int64(c.parts)))) {
			return false
		}
		piece := p.counting(whole.name, c.size)
		for k := range c.parts {
			part := index{c.size.Mul(ir.D(int64(k))), piece.of}
			sub := make([]index, len(at))
			for d, i := range at {
				sub[d] = i.substitute(c.v, part)
			}
			if !p.equal(x, y, sub, cuts-1) {
				return false
			}
		}
		return true // on all ranks
	}
	return true
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

func (i index) substitute(v int, by index) index {
	k := slices.IndexFunc(i.of, func(c count) bool { return c.v == v })
	if k < 0 {
		return i
	}
	return index{i.off, slices.Delete(slices.Clone(i.of), k, k+1)}.plus(by, i.of[k].coef)
}

func (i index) text() string {
	var b strings.Builder
	b.WriteString(i.off.String())
	for _, c := range i.of {
		fmt.Fprintf(&b, "+%d#%d", c.coef, c.v)
	}
	return b.String()
}

// notNegative reports whether d is at least 0 for all values of its symbols.
func notNegative(d ir.Dim) bool {
	if n, ok := d.Const(); ok {
		return n >= 0
	}
	r, ok := d.Bounds(func(string) (dim.Range, bool) { return dim.Range{Max: math.MaxInt32}, true })
	return ok && r.Min >= 0
}

// piece says in which of so many pieces of a size an index lies, and where there. False
// where that depends on a variable, which is then to be cut, or cannot be told.
func (p *indexed) piece(i index, size ir.Dim, parts int) (int, index, bool) {
	most := i.off // of what the index counts to
	for _, c := range i.of {
		if c.coef < 0 {
			return 0, i, false
		}
		most = most.Add(p.vars[c.v].size.Sub(ir.D(1)).Mul(ir.D(c.coef)))
	}
	for k := range parts {
		from := size.Mul(ir.D(int64(k)))
		if notNegative(i.off.Sub(from)) && notNegative(from.Add(size).Sub(most).Sub(ir.D(1))) {
			return k, i.add(from.Mul(ir.D(-1))), true
		}
	}
	for _, c := range i.of {
		if n := p.vars[c.v].size; c.coef == 1 {
			for m := 2; m <= parts; m++ {
				if n.Equal(size.Mul(ir.D(int64(m)))) {
					p.cut = &cutting{c.v, size, m}
				}
			}
		}
	}
	return 0, i, false
}

// at is the element of a value on a rank at an index.
func (p *indexed) at(id valueID, r int, at []index) elemID {
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
	if p.cut == nil {
		p.memo[key.String()] = x
	}
	return x
}

func (p *indexed) compute(id valueID, r int, at []index) elemID {
	v := &p.z.p.values[id]
	if v.self == "" && v.index >= 0 {
		switch {
		case v.op == ir.OpFull:
			return p.e.number(v.typ.DType(), number(v.attrs, "value"))
		case v.op == ir.OpIota && v.typ.DType().IsInt():
			i := index{off: ir.D(v.attrs.Int("start", 0))}.plus(at[0], v.attrs.Int("step", 1))
			return p.e.intern(element{kind: elemOp, op: v.op, dt: v.typ.DType(), text: p.e.text(i.text())})
		case v.op.Info().Elementwise:
			return p.point(v, r, at)
		case v.op == ir.OpAllReduce:
			return p.reduce(v, r, at)
		case v.op == ir.OpReduceScatter:
			g := p.z.p.groups[v.group]
			return p.reduce(v, r, shifted(v, at, int64(g.at[r])))
		case len(v.args) > 0:
			if x, ok := p.moved(v, r, at); ok {
				return x
			}
		}
	}
	if p.cut != nil {
		return unknown
	}
	return p.leaf(id, v, r, at)
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

func (p *indexed) point(v *value, r int, at []index) elemID {
	args := make([]elemID, len(v.args))
	t := term{kind: kindPoint, op: v.op, dt: v.typ.DType(), attrs: v.attrs, text: v.attrs.String()}
	for k, a := range v.args {
		t.args = append(t.args, p.z.norm(a))
		if args[k] = p.at(a, r, broadcast(p.shape(a), at)); args[k] == unknown {
			return unknown
		}
	}
	return p.e.point(&t, args)
}

// shifted is an index behind so many pieces of the size of v's.
func shifted(v *value, at []index, pieces int64) []index {
	at, d := slices.Clone(at), v.attrs.Int("dim", 0)
	at[d] = at[d].add(v.typ.Shape()[d].Mul(ir.D(pieces)))
	return at
}

func (p *indexed) reduce(v *value, r int, at []index) elemID {
	var list []elemID
	for _, q := range p.z.p.groups[v.group].list[r] {
		x := p.at(v.args[0], int(q), at)
		if x == unknown {
			return unknown
		}
		list = append(list, x)
	}
	return p.e.reduce(ir.Reduction(v.attrs.Str("reduce", "")), v.typ.DType(), list)
}

// moved follows what moves elements to where one comes from.
func (p *indexed) moved(v *value, r int, at []index) (elemID, bool) {
	x, from, g := v.args[0], p.shape(v.args[0]), (*rankGroup)(nil)
	if v.group >= 0 {
		g = p.z.p.groups[v.group]
	}
	d := int(v.attrs.Int("dim", 0))
	switch v.op {
	case ir.OpAllGather, ir.OpAllToAll:
		size, parts := from[min(d, len(from)-1)], g.size
		if v.op == ir.OpAllToAll {
			n, ok := from[0].Const()
			if !ok || v.attrs.Has("in_splits") && !evenSplits(v.attrs) {
				return 0, false
			}
			size = ir.D(n / int64(g.size))
		}
		k, i, ok := p.piece(at[d], size, parts)
		if !ok {
			return unknown, p.cut != nil
		}
		at = slices.Clone(at)
		if at[d] = i; v.op == ir.OpAllToAll {
			at[d] = i.add(size.Mul(ir.D(int64(g.at[r]))))
		}
		return p.at(x, int(g.list[r][k]), at), true
	case ir.OpBroadcast:
		return p.at(x, int(g.list[r][v.attrs.Int("root", 0)]), at), true
	case ir.OpCollectivePermute:
		pairs := v.attrs.Ints("pairs")
		for i := 0; i+1 < len(pairs); i += 2 {
			if pairs[i+1] == int64(g.at[r]) {
				return p.at(x, int(g.list[r][pairs[i]]), at), true
			}
		}
		return p.e.number(v.typ.DType(), "0"), true
	case ir.OpClone:
		y := p.at(x, r, at)
		if y == unknown {
			return y, true
		}
		return p.e.converted(v.typ.DType(), y), true
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
func (p *indexed) leaf(id valueID, v *value, r int, at []index) elemID {
	t := p.z.norm(id)
	class := p.z.parts.list[p.z.at(t).same][r]
	head := []int64{-3, int64(t), int64(class)}
	if twins, ok := p.operands(v, r); ok {
		head = twins
	}
	for _, i := range at {
		head = append(head, int64(p.e.text(i.text())))
	}
	return p.e.intern(element{kind: elemOp, op: v.op, dt: v.typ.DType(), text: p.e.text(fmt.Sprint(v.index, v.group, v.attrs, v.typ))}, head...)
}

// operands are those of an operation of which each rank makes its own result from them
// alone, at an index for all of them.
func (p *indexed) operands(v *value, r int) ([]int64, bool) {
	if v.self != "" || v.index < 0 || v.op == ir.OpInput || v.op == ir.OpCall || v.op.IsCollective() || v.group >= 0 || v.op.Info().Effects != 0 || layoutMatters(v.op) {
		return nil, false
	}
	head := []int64{-4}
	for _, a := range v.args {
		x := p.at(a, r, p.generic(p.shape(a)))
		if x == unknown {
			p.cut = nil
			return nil, false
		}
		head = append(head, int64(x), int64(p.e.text(p.shape(a).String())))
	}
	return head, true
}
