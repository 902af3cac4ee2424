package terms

import (
	"encoding/binary"
	"slices"

	"github.com/seed-ee968945/concert/equiv/internal/layout"
	"github.com/seed-ee968945/concert/internal/intmath"
	"github.com/seed-ee968945/concert/ir"
)

// Tensors that are computed in parts of their rows and put together: the whole is made anew
// of what the parts are made of. Parts lie side by side in blocks: of outer blocks, the first
// ones are as long as part 0, in each of them part 1 follows, and so on.

// catOfParts makes the whole of what was computed in parts.
func catOfParts(z *Normalizer, t *term) (TermID, bool) {
	if t.op != ir.OpCat || t.types == nil {
		return 0, false
	}
	shape, ok := t.types[0].Shape().Static()
	if !ok {
		return 0, false
	}
	return z.joined(intmath.Product(shape[:t.attrs.Int("dim", 0)]), t.args)
}

// maxWholes bounds the parts that are tried. Parts of parts of parts, as the stages of a sorting
// network are, have exponentially many; those past the bound stay concatenations.
const maxWholes = 1 << 16

// joined is the term whose blocks are those of the parts, one after the other; false where
// none is known but their concatenation.
func (z *Normalizer) joined(outer int64, parts []TermID) (TermID, bool) {
	if len(parts) == 1 {
		return parts[0], true
	}
	key := binary.AppendVarint(nil, outer)
	for _, p := range parts {
		key = binary.AppendUvarint(key, uint64(p))
	}
	id, known := z.wholes[string(key)]
	if !known {
		z.deep++
		id = -1
		if z.deep < maxDeep && len(z.wholes) < maxWholes {
			if whole, ok := z.together(outer, parts); ok {
				id = whole
			}
		}
		z.deep--
		z.wholes[string(key)] = id
	}
	return id, id >= 0
}

// parted are parts of a kind.
type parted struct {
	z     *Normalizer
	outer int64
	terms []term
	width []int64 // of a part's blocks
	n     int64   // elements of all
}

func (z *Normalizer) together(outer int64, parts []TermID) (TermID, bool) {
	p := parted{z: z, outer: outer}
	for _, id := range parts {
		p.terms = append(p.terms, *z.at(id))
	}
	p.turn()
	first := p.terms[0]
	for _, t := range p.terms {
		n, ok := t.n.Const()
		if !ok || outer <= 0 || n == 0 || n%outer != 0 || t.kind != first.kind || t.dt != first.dt || len(t.args) != len(first.args) {
			return 0, false
		}
		p.width, p.n = append(p.width, n/outer), p.n+n
	}
	alike := func(same func(t *term) bool) bool {
		return !slices.ContainsFunc(p.terms, func(t term) bool { return !same(&t) })
	}
	switch first.kind {
	case kindFull:
		if alike(func(t *term) bool { return t.text == first.text }) {
			return z.full(parts[0], ir.D(p.n)), true
		}
	case kindPoint:
		if alike(func(t *term) bool { return t.op == first.op && t.text == first.text }) {
			return p.operands(first, outer)
		}
	case kindReduce:
		if alike(func(t *term) bool { return t.rows == first.rows && t.red == first.red }) {
			return p.operands(first, outer)
		}
	case kindMove:
		if alike(func(t *term) bool { return t.args[0] == first.args[0] }) {
			l, ok := layout.Join(p.layouts(), outer, z.vals.world)
			if !ok {
				return 0, false
			}
			return z.move(l, ir.D(p.n), first.args[0]), true
		}
		return p.moves()
	case kindLookup:
		if alike(func(t *term) bool { return t.args[0] == first.args[0] && t.scale == first.scale && t.op == first.op }) && first.scale > 0 {
			return p.rows()
		}
	case kindOpaque:
		if alike(func(t *term) bool { return t.types != nil && t.head == first.head && t.op == first.op }) {
			return p.operation()
		}
	}
	return 0, false
}

// turn makes the parts that are transposes of matmuls, where others are matmuls, matmuls as well.
func (p *parted) turn() {
	if !slices.ContainsFunc(p.terms, func(t term) bool { return t.op == ir.OpMatmul }) {
		return
	}
	for i := range p.terms {
		if t := &p.terms[i]; t.kind == kindMove {
			x := p.z.at(t.args[0])
			if u, ok := p.z.turned(x); ok && p.z.transposes(t, x) {
				*t = u
			}
		}
	}
}

// operands puts each operand together, and makes of them what t makes of its own.
func (p *parted) operands(t term, outer int64) (TermID, bool) {
	t.args = slices.Clone(t.args)
	for i := range t.args {
		a, ok := p.operand(i, outer)
		if !ok {
			return 0, false
		}
		t.args[i] = a
	}
	t.n = ir.D(p.n)
	return p.z.make(t), true
}

func (p *parted) operand(i int, outer int64) (TermID, bool) {
	var list []TermID
	for _, t := range p.terms {
		list = append(list, t.args[i])
	}
	return p.z.joined(outer, list)
}

// rows are rows of one table at indices.
func (p *parted) rows() (TermID, bool) {
	t := p.terms[0]
	for _, w := range p.width {
		if w%t.scale != 0 {
			return 0, false
		}
	}
	ids, ok := p.operand(1, p.outer)
	if !ok {
		return 0, false
	}
	t.args, t.n = []TermID{t.args[0], ids}, ir.D(p.n)
	return p.z.make(t), true
}

func (p *parted) layouts() []layout.Layout {
	var list []layout.Layout
	for _, t := range p.terms {
		list = append(list, p.z.layouts.All[t.layout])
	}
	return list
}

// moves are elements of parts of a tensor, of which each takes whole rows alike.
func (p *parted) moves() (TermID, bool) {
	var sizes []int64
	for _, t := range p.terms {
		n, ok := p.z.at(t.args[0]).n.Const()
		if !ok {
			return 0, false
		}
		sizes = append(sizes, n)
	}
	l, blocks, ok := layout.JoinRows(p.layouts(), sizes, p.outer, p.z.vals.world)
	if !ok {
		return 0, false
	}
	x, ok := p.operand(0, blocks)
	if !ok {
		return 0, false
	}
	return p.z.move(l, ir.D(p.n), x), true
}

// operation is one of which a row of the result is made of a row of each operand that has
// rows, and of all of the others.
func (p *parted) operation() (TermID, bool) {
	for _, result := range p.cuts() {
		if t, ok := p.rowsAlong(result); ok {
			return t, true
		}
	}
	return 0, false
}

// rowsAlong is operation for one way in which the result may be cut.
func (p *parted) rowsAlong(result cut) (TermID, bool) {
	t := p.terms[0]
	u := t
	u.types, u.args, u.n = slices.Clone(t.types), slices.Clone(t.args), ir.D(p.n)
	u.types[0] = p.grown(0, result)
	for i := range t.args {
		d := t.operation().RowsOf(i, result.d)
		if d < 0 { // all of it
			for _, o := range p.terms {
				if o.args[i] != t.args[i] {
					return 0, false
				}
			}
			continue
		}
		a, ok := p.at(i+1, d, result)
		if !ok {
			return 0, false
		}
		if u.args[i], ok = p.operand(i, a.outer); !ok {
			return 0, false
		}
		u.types[i+1] = p.grown(i+1, a)
	}
	return p.z.operation(u), true
}

// cut says that parts of a tensor lie side by side along a dimension, in so many runs of it
// and of the dimensions before it.
type cut struct {
	d     int
	runs  int64 // of dimension d
	outer int64
	rows  []int64 // of a run, by part
}

// cuts are those that the blocks may be of, along dimensions of the result that rows may be taken of:
// where each block is one row, they are also runs of the next dimension.
func (p *parted) cuts() []cut {
	var out []cut
	shape, _ := p.terms[0].types[0].Shape().Static()
	before, behind := int64(1), intmath.Product(shape)
	for d, n := range shape {
		behind /= n
		if p.terms[0].operation().ByRows(d) && p.outer%before == 0 && n%(p.outer/before) == 0 && behind*(n/(p.outer/before)) == p.width[0] {
			if c, ok := p.at(0, d, cut{runs: p.outer / before}); ok {
				out = append(out, c)
			}
		}
		before *= n
	}
	return out
}

// at is the cut of the tensor k of the terms along d that has as many runs, and as many rows.
func (p *parted) at(k, d int, like cut) (cut, bool) {
	c := cut{d: d, runs: like.runs, outer: like.runs}
	first, ok := p.terms[0].types[k].Shape().Static()
	if !ok {
		return c, false
	}
	for _, n := range first[:d] {
		c.outer *= n
	}
	for i, t := range p.terms {
		shape, ok := t.types[k].Shape().Static()
		if !ok || len(shape) != len(first) || shape[d]%c.runs != 0 || like.rows != nil && shape[d]/c.runs != like.rows[i] {
			return c, false
		}
		for j, n := range shape {
			if j != d && n != first[j] {
				return c, false
			}
		}
		c.rows = append(c.rows, shape[d]/c.runs)
	}
	return c, true
}

// grown is the type of tensor k with the rows of all parts.
func (p *parted) grown(k int, c cut) ir.Type {
	t := p.terms[0].types[k]
	shape := slices.Clone(t.Shape())
	n := int64(0)
	for _, r := range c.rows {
		n += r * c.runs
	}
	shape[c.d] = ir.D(n)
	return ir.TensorOf(t.DType(), shape)
}
