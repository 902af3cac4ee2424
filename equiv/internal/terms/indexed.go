package terms

import (
	"fmt"
	"slices"
	"strings"

	"github.com/seed-ee968945/concert/equiv/internal/index"
	"github.com/seed-ee968945/concert/equiv/internal/lines"
	"github.com/seed-ee968945/concert/equiv/internal/ranks"
	"github.com/seed-ee968945/concert/equiv/internal/scalar"
	"github.com/seed-ee968945/concert/internal/dim"
	"github.com/seed-ee968945/concert/ir"
)

// Where sizes are symbols, layouts say only what moves along the first dimension. Tensors
// that are not equal in normal form are then compared at an index that stands for all:
// expressions of elements at indices that are sums of variables, each of which counts
// from 0 to its size. Where a gather lets the rank depend on a variable, the proof goes by
// cases: the variable is cut, and counts within each rank's piece from then on.

// indexed is a proof at an index for all.
type indexed struct {
	index.Space
	e      *elements
	z      *Normalizer
	memo   map[string]scalar.ID // by value, rank and index; look-up only
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
func (z *Normalizer) everywhere(x, y ValueID) bool {
	if !z.vals.all[x].Type.Shape().Equal(z.vals.all[y].Type.Shape()) {
		return false
	}
	for _, lines := range []bool{false, true} {
		p := &indexed{Space: index.Space{NotNegative: z.notNegative}, e: newElements(z), z: z}
		p.e.lines = lines
		if p.proved(x, y) {
			z.count[z.element]++
			return true
		}
	}
	return false
}

// proved compares two values, and cuts variables until that can be told.
func (p *indexed) proved(x, y ValueID) bool {
	for p.Cuts() <= maxCuts {
		p.memo, p.budget, p.Cut = map[string]scalar.ID{}, maxIndexed, false
		if p.equal(x, y) {
			return true
		}
		if !p.Cut {
			return false
		}
	}
	return false
}

// equal compares two values at all indices on all ranks.
func (p *indexed) equal(x, y ValueID) bool {
	for _, at := range p.Generic(p.shape(x)) {
		for r := range p.z.vals.world {
			if a := p.at(x, r, at); a == unknown || a != p.at(y, r, at) {
				return false
			}
		}
	}
	return true
}

// notNegative reports whether d is at least 0 for all values of its symbols.
func (z *Normalizer) notNegative(d ir.Dim) bool {
	r, ok := d.Bounds(func(s string) (dim.Range, bool) {
		most, ok := z.vals.symbols[s]
		return dim.Range{Max: most}, ok
	})
	return ok && r.Min >= 0
}

// at is the element of a value on a rank at an index.
func (p *indexed) at(id ValueID, r int, at []index.Index) scalar.ID {
	var key strings.Builder
	fmt.Fprintf(&key, "%d %d", id, r)
	for _, i := range at {
		key.WriteString(" " + i.String())
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

func (p *indexed) compute(id ValueID, r int, at []index.Index) scalar.ID {
	v := &p.z.vals.all[id]
	if v.Tag == "" && v.Result >= 0 {
		switch {
		case v.Op == ir.OpFull:
			return p.e.Number(v.Type.DType(), number(v.Attrs, "value"))
		case v.Op == ir.OpIota && v.Type.DType().IsInt():
			i := index.At(ir.D(v.Attrs.Int("start", 0))).Plus(at[0], v.Attrs.Int("step", 1))
			return p.e.Intern(p.e.Head(v.Op, v.Type.DType(), i.String()))
		case v.Op.Info().Elementwise:
			return p.point(v, r, at)
		case v.Op == ir.OpAllReduce:
			return p.reduce(v, r, at)
		case v.Op == ir.OpReduceScatter:
			g := p.z.vals.groups[v.Group]
			return p.reduce(v, r, shifted(v, at, int64(g.At[r])))
		case p.e.lines && lines.Made(v.Op):
			if x := p.line(v, r, at); x != unknown {
				return x
			}
		case len(v.Args) > 0:
			if x, ok := p.moved(v, r, at); ok {
				return x
			}
		}
	}
	if p.Cut {
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

func (p *indexed) shape(id ValueID) ir.Shape { return p.z.vals.all[id].Type.Shape() }

func (p *indexed) point(v *Value, r int, at []index.Index) scalar.ID {
	args := make([]scalar.ID, len(v.Args))
	for k, a := range v.Args {
		if args[k] = p.at(a, r, index.Broadcast(p.shape(a), at)); args[k] == unknown {
			return unknown
		}
	}
	op := scalar.Operation{Op: v.Op, DType: v.Type.DType(), Attrs: v.Attrs, Text: v.Attrs.String()}
	return p.e.Point(op, p.z.vals.all[v.Args[0]].Type.DType(), args)
}

// shifted is an index behind so many pieces of the size of v's.
func shifted(v *Value, at []index.Index, pieces int64) []index.Index {
	at, d := slices.Clone(at), v.Attrs.Int("dim", 0)
	at[d] = at[d].Add(v.Type.Shape()[d].Mul(ir.D(pieces)))
	return at
}

func (p *indexed) reduce(v *Value, r int, at []index.Index) scalar.ID {
	var list []scalar.ID
	for _, q := range p.z.vals.groups[v.Group].List[r] {
		x := p.at(v.Args[0], int(q), at)
		if x == unknown {
			return unknown
		}
		list = append(list, x)
	}
	return p.e.Reduce(ir.Reduction(v.Attrs.Str("reduce", "")), v.Type.DType(), list)
}

// moved follows what moves elements to where one comes from.
func (p *indexed) moved(v *Value, r int, at []index.Index) (scalar.ID, bool) {
	x, from, g := v.Args[0], p.shape(v.Args[0]), (*ranks.Group)(nil)
	if v.Group >= 0 {
		g = p.z.vals.groups[v.Group]
	}
	d := int(v.Attrs.Int("dim", 0))
	switch v.Op {
	case ir.OpAllGather, ir.OpAllToAll:
		size := from[min(d, len(from)-1)]
		if v.Op == ir.OpAllToAll {
			n, ok := from[0].Const()
			if !ok || v.Attrs.Has("in_splits") && !evenSplits(v.Attrs) {
				return 0, false
			}
			size = ir.D(n / int64(g.Size))
		}
		k, i, ok := p.Piece(at[d], slices.Repeat([]ir.Dim{size}, g.Size))
		if !ok {
			return 0, false
		}
		at = slices.Clone(at)
		if at[d] = i; v.Op == ir.OpAllToAll {
			at[d] = i.Add(size.Mul(ir.D(int64(g.At[r]))))
		}
		return p.at(x, int(g.List[r][k]), at), true
	case ir.OpCat:
		var sizes []ir.Dim
		for _, a := range v.Args {
			sizes = append(sizes, p.shape(a)[d])
		}
		k, i, ok := p.Piece(at[d], sizes)
		if !ok {
			return 0, false
		}
		at = slices.Clone(at)
		at[d] = i
		return p.at(v.Args[k], r, at), true
	case ir.OpBroadcast:
		return p.at(x, int(g.List[r][v.Attrs.Int("root", 0)]), at), true
	case ir.OpCollectivePermute:
		pairs := v.Attrs.Ints("pairs")
		for i := 0; i+1 < len(pairs); i += 2 {
			if pairs[i+1] == int64(g.At[r]) {
				return p.at(x, int(g.List[r][pairs[i]]), at), true
			}
		}
		return p.e.Number(v.Type.DType(), "0"), true
	case ir.OpClone:
		y := p.at(x, r, at)
		if y == unknown {
			return y, true
		}
		return p.e.Converted(v.Type.DType(), y), true
	}
	at, ok := viewed(v, r, g, from, at)
	if !ok {
		return 0, false
	}
	return p.at(x, r, at), true
}

// viewed is the index of a view's operand.
func viewed(v *Value, r int, g *ranks.Group, from ir.Shape, at []index.Index) ([]index.Index, bool) {
	at, d := slices.Clone(at), int(v.Attrs.Int("dim", 0))
	switch v.Op {
	case ir.OpAlias:
		return at, true
	case ir.OpExpand:
		return index.Broadcast(from, at), true
	case ir.OpPermute:
		out := make([]index.Index, len(at))
		for i, d := range v.Attrs.Ints("dims") {
			out[d] = at[i]
		}
		return out, true
	case ir.OpSlice:
		at[d] = index.At(ir.D(v.Attrs.Int("start", 0))).Plus(at[d], v.Attrs.Int("step", 1))
		return at, true
	case ir.OpSplit:
		for _, n := range v.Attrs.Ints("sizes")[:v.Result] {
			at[d] = at[d].Add(ir.D(n))
		}
		return at, true
	case ir.OpSelect:
		return slices.Insert(at, d, index.At(ir.D(v.Attrs.Int("index", 0)))), true
	case ir.OpShard:
		return shifted(v, at, int64(g.At[r])), true
	case ir.OpView, ir.OpSqueeze, ir.OpUnsqueeze:
		return index.Reshape(from, v.Type.Shape(), at)
	}
	return nil, false
}

// leaf is an element of what is not looked into: of equal operands, or of the value on
// the first of the ranks that are known to have it alike.
func (p *indexed) leaf(id ValueID, v *Value, r int, at []index.Index) scalar.ID {
	t := p.z.Norm(id)
	class := p.z.parts.All[p.z.at(t).same][r]
	head := []int64{-3, int64(t), int64(class)}
	if twins, ok := p.operands(v, r); ok {
		head = twins
	} else if p.Cut {
		return unknown
	}
	for _, i := range at {
		head = append(head, int64(p.e.Text(i.String())))
	}
	return p.e.Intern(p.e.Head(v.Op, v.Type.DType(), fmt.Sprint(v.Result, v.Group, v.Attrs, v.Type)), head...)
}

// operands are those of an operation, at an index for all of them: on the rank alone where each rank
// makes its own result from them, else on all.
func (p *indexed) operands(v *Value, r int) ([]int64, bool) {
	if v.Op == ir.OpInput || len(v.Args) == 0 {
		return nil, false
	}
	sizes := v.Type.Shape()
	for _, a := range v.Args {
		sizes = append(slices.Clip(sizes), p.shape(a)...)
	}
	head, from, to := []int64{-4, sized(r, sizes...)}, r, r
	if v.Tag != "" || v.Result < 0 || v.Group >= 0 || v.Op.IsCollective() || v.Op.Info().Effects != 0 || LayoutMatters(v.Op) {
		head, from, to = []int64{-5, int64(r), int64(p.e.Text(v.Tag))}, 0, p.z.vals.world-1
	}
	for _, a := range v.Args {
		for q := from; q <= to; q++ {
			for _, at := range p.Generic(p.shape(a)) {
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
