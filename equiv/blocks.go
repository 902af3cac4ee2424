package equiv

import (
	"slices"

	"github.com/seed-ee968945/concert/equiv/internal/layout"
	"github.com/seed-ee968945/concert/ir"
)

// Parts of a tensor that are moves, put together.

// blocks cuts the digits of a layout where blocks begin. False if that is within a step.
func blocks(digits []layout.Digit, outer int64) (out, in []layout.Digit, ok bool) {
	for i, d := range digits {
		switch {
		case outer == 1:
			return out, digits[i:], true
		case d.N <= 0:
			return nil, nil, false
		case outer%d.N == 0:
			outer /= d.N
			out = append(out, d)
		case d.N%outer == 0 && !d.Table:
			rest := d.N / outer
			out = append(out, layout.Digit{N: outer, Stride: d.Stride * rest})
			return out, append([]layout.Digit{{N: rest, Stride: d.Stride}}, digits[i+1:]...), true
		default:
			return nil, nil, false
		}
	}
	return out, nil, outer == 1
}

// whole makes the term of a layout whose digits are put together.
func (p *parted) whole(l layout.Layout, out, in []layout.Digit, x termID) (termID, bool) {
	l.Digits = slices.Concat(out, in)
	l.Rank, l.Add = slices.Clone(l.Rank), slices.Clone(l.Add)
	l.Canonical(p.z.p.world)
	return p.z.move(l, ir.D(p.n), x), true
}

// adjacent are elements of one tensor: each part begins where the one before it ends.
func (p *parted) adjacent() (termID, bool) {
	var whole layout.Layout
	var out, in []layout.Digit
	next, rows := int64(0), int64(0)
	for i, t := range p.terms {
		l := p.z.layouts.all[t.layout]
		o, n, ok := blocks(l.Digits, p.outer)
		if !ok || len(n) == 0 || n[0].Table || n[0].N < 1 {
			return 0, false
		}
		if i == 0 {
			whole, out, in, next = l, o, slices.Clone(n), l.Off
		}
		if !slices.Equal(o, out) || !slices.Equal(n[1:], in[1:]) || n[0].Stride != in[0].Stride || l.Off != next || !slices.Equal(l.Rank, whole.Rank) || !slices.Equal(l.Add, whole.Add) {
			return 0, false
		}
		next += n[0].N * n[0].Stride
		rows += n[0].N
	}
	in[0].N = rows
	return p.whole(whole, out, in, p.terms[0].args[0])
}

// maxListed bounds the table of listed: to find what is regular in one, factor tries its orders.
const maxListed = 1 << 14

// listed are elements of one tensor whose rows are listed one by one, as where heads of
// attention, or the pieces of ranks, are rows, and chunks end within them.
func (p *parted) listed() (termID, bool) {
	fronts := make([]layout.Layout, len(p.terms))
	for i, t := range p.terms {
		fronts[i] = p.z.layouts.all[t.layout]
	}
	var lead, rest []layout.Digit // that parts have in common, from the outermost and from the innermost
	outer := p.outer              // blocks in each step of lead
	for len(fronts[0].Digits) > 0 {
		d := fronts[0].Digits[0]
		if d.Table || d.N < 1 || outer%d.N != 0 || slices.ContainsFunc(fronts, func(f layout.Layout) bool { return len(f.Digits) == 0 || f.Digits[0] != d }) {
			break
		}
		lead, outer = append(lead, d), outer/d.N
		for i := range fronts {
			fronts[i].Digits = fronts[i].Digits[1:]
		}
	}
	for i, f := range fronts {
		in := f.Digits
		if i == 0 {
			rest = in
		}
		n := 0
		for n < min(len(in), len(rest)) && in[len(in)-1-n] == rest[len(rest)-1-n] && !in[len(in)-1-n].Table {
			n++
		}
		rest = rest[len(rest)-n:]
	}
	for front := fronts[0].Digits[:len(fronts[0].Digits)-len(rest)]; len(rest) > 0 && layout.Counted(front)%outer != 0; rest = rest[1:] {
		front = fronts[0].Digits[:len(front)+1] // blocks begin within what parts have in common
	}
	rows := int64(0)
	for i := range fronts {
		l := &fronts[i]
		l.Digits = l.Digits[:len(l.Digits)-len(rest)]
		n := layout.Counted(l.Digits)
		if rows += n; n < 1 || n%outer != 0 || rows*int64(p.z.p.world) > maxListed {
			return 0, false
		}
	}
	var l layout.Layout
	for r := range p.z.p.world {
		var ranks [][]int32
		var adds [][]int64
		for _, f := range fronts {
			var rank []int32
			var add []int64
			f.Each(r, func(q int32, at int64) { rank, add = append(rank, q), append(add, at) })
			ranks, adds = append(ranks, rank), append(adds, add)
		}
		for o := range int(outer) {
			for i := range fronts {
				n := len(ranks[i]) / int(outer)
				l.Rank, l.Add = append(l.Rank, ranks[i][o*n:(o+1)*n]...), append(l.Add, adds[i][o*n:(o+1)*n]...)
			}
		}
	}
	return p.whole(l, append(lead, layout.Digit{N: rows, Table: true}), rest, p.terms[0].args[0])
}

// level is a layout that takes rows of blocks of its operand: where the blocks are, counted in
// blocks, and what it does within a row.
type level struct {
	outer  int // digits before the row's
	digits []layout.Digit
	far    []bool // the digit's stride is in blocks
	rows   int64  // of a block
	width  int64  // of a block of the operand
	off    [2]int64
	rank   []int32
	add    [][2]int64 // in blocks, and the rest, as off
}

// levelOf is false where a layout takes rows apart.
func levelOf(l *layout.Layout, outer int64) (level, bool) {
	out, in, ok := blocks(l.Digits, outer)
	if !ok || len(in) == 0 || in[0].N < 1 || in[0].Stride <= 0 || in[0].Table {
		return level{}, false
	}
	row := in[0].Stride
	v := level{outer: len(out), digits: slices.Concat(out, in), rows: in[0].N, width: in[0].N * row, rank: l.Rank}
	least := int64(0) // what is added to the offset at least
	if l.Add != nil {
		least = slices.Min(l.Add)
	}
	v.off = [2]int64{(l.Off + least) / v.width, (l.Off + least) % v.width}
	span, most := v.off[1], int64(0)
	for i := range v.digits {
		d := &v.digits[i]
		if d.N < 1 || d.Stride < 0 {
			return level{}, false
		}
		far := d.Stride > 0 && d.Stride%v.width == 0
		switch v.far = append(v.far, far); {
		case i == v.outer:
			d.N = 1 // is put together
		case far:
			d.Stride /= v.width
		default:
			span += (d.N - 1) * d.Stride
		}
	}
	for _, a := range l.Add {
		a -= least
		v.add = append(v.add, [2]int64{a / v.width, a % v.width})
		most = max(most, a%v.width)
	}
	return v, span+most < row
}

// moves are elements of parts of a tensor, of which each takes whole rows alike.
func (p *parted) moves() (termID, bool) {
	var first level
	rows, width := int64(0), int64(0)
	blocks := int64(-1)
	for i, t := range p.terms {
		v, ok := levelOf(&p.z.layouts.all[t.layout], p.outer)
		n, static := p.z.at(t.args[0]).n.Const()
		if !ok || !static || n%v.width != 0 || blocks >= 0 && n/v.width != blocks {
			return 0, false
		}
		if blocks = n / v.width; i == 0 {
			first = v
		}
		if v.outer != first.outer || !slices.Equal(v.digits, first.digits) || !slices.Equal(v.far, first.far) || v.off != first.off || !slices.Equal(v.rank, first.rank) || !slices.Equal(v.add, first.add) {
			return 0, false
		}
		rows, width = rows+v.rows, width+v.width
	}
	x, ok := p.operand(0, blocks)
	if !ok {
		return 0, false
	}
	l := layout.Layout{Off: first.off[0]*width + first.off[1], Rank: first.rank}
	for _, a := range first.add {
		l.Add = append(l.Add, a[0]*width+a[1])
	}
	digits := slices.Clone(first.digits)
	for i := range digits {
		switch {
		case i == first.outer:
			digits[i].N = rows
		case first.far[i]:
			digits[i].Stride *= width
		}
	}
	return p.whole(l, digits, nil, x)
}
