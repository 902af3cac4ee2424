package equiv

import (
	"slices"

	"github.com/seed-ee968945/concert/ir"
)

// Parts of a tensor that are moves, put together.

// blocks cuts the digits of a layout where blocks begin. False if that is within a step.
func blocks(digits []digit, outer int64) (out, in []digit, ok bool) {
	for i, d := range digits {
		switch {
		case outer == 1:
			return out, digits[i:], true
		case d.n <= 0:
			return nil, nil, false
		case outer%d.n == 0:
			outer /= d.n
			out = append(out, d)
		case d.n%outer == 0 && !d.table:
			rest := d.n / outer
			out = append(out, digit{n: outer, stride: d.stride * rest})
			return out, append([]digit{{n: rest, stride: d.stride}}, digits[i+1:]...), true
		default:
			return nil, nil, false
		}
	}
	return out, nil, outer == 1
}

// whole makes the term of a layout whose digits are put together.
func (p *parted) whole(l layout, out, in []digit, x termID) (termID, bool) {
	l.digits = slices.Concat(out, in)
	l.rank, l.add = slices.Clone(l.rank), slices.Clone(l.add)
	l.canonical(p.z.p.world)
	return p.z.move(l, ir.D(p.n), x), true
}

// adjacent are elements of one tensor: each part begins where the one before it ends.
func (p *parted) adjacent() (termID, bool) {
	var whole layout
	var out, in []digit
	next, rows := int64(0), int64(0)
	for i, t := range p.terms {
		l := p.z.layouts.all[t.layout]
		o, n, ok := blocks(l.digits, p.outer)
		if !ok || len(n) == 0 || n[0].table || n[0].n < 1 {
			return 0, false
		}
		if i == 0 {
			whole, out, in, next = l, o, slices.Clone(n), l.off
		}
		if !slices.Equal(o, out) || !slices.Equal(n[1:], in[1:]) || n[0].stride != in[0].stride || l.off != next || !slices.Equal(l.rank, whole.rank) || !slices.Equal(l.add, whole.add) {
			return 0, false
		}
		next += n[0].n * n[0].stride
		rows += n[0].n
	}
	in[0].n = rows
	return p.whole(whole, out, in, p.terms[0].args[0])
}

// maxListed bounds the table of listed: to find what is regular in one, factor tries its orders.
const maxListed = 1 << 14

// listed are elements of one tensor whose rows are listed one by one, as where heads of
// attention, or the pieces of ranks, are rows, and chunks end within them.
func (p *parted) listed() (termID, bool) {
	var rest []digit // that parts have in common, from the innermost
	fronts := make([]layout, len(p.terms))
	for i, t := range p.terms {
		fronts[i] = p.z.layouts.all[t.layout]
		in := fronts[i].digits
		if i == 0 {
			rest = in
		}
		n := 0
		for n < min(len(in), len(rest)) && in[len(in)-1-n] == rest[len(rest)-1-n] && !in[len(in)-1-n].table {
			n++
		}
		rest = rest[len(rest)-n:]
	}
	for front := fronts[0].digits[:len(fronts[0].digits)-len(rest)]; len(rest) > 0 && counted(front)%p.outer != 0; rest = rest[1:] {
		front = fronts[0].digits[:len(front)+1] // blocks begin within what parts have in common
	}
	rows := int64(0)
	for i := range fronts {
		l := &fronts[i]
		l.digits = l.digits[:len(l.digits)-len(rest)]
		n := counted(l.digits)
		if rows += n; n < 1 || n%p.outer != 0 || rows*int64(p.z.p.world) > maxListed {
			return 0, false
		}
	}
	var l layout
	for r := range p.z.p.world {
		var ranks [][]int32
		var adds [][]int64
		for _, f := range fronts {
			var rank []int32
			var add []int64
			f.each(r, func(q int32, at int64) { rank, add = append(rank, q), append(add, at) })
			ranks, adds = append(ranks, rank), append(adds, add)
		}
		for o := range int(p.outer) {
			for i := range fronts {
				n := len(ranks[i]) / int(p.outer)
				l.rank, l.add = append(l.rank, ranks[i][o*n:(o+1)*n]...), append(l.add, adds[i][o*n:(o+1)*n]...)
			}
		}
	}
	return p.whole(l, nil, append([]digit{{n: rows, table: true}}, rest...), p.terms[0].args[0])
}

// counted is how far digits count, 0 where that is not known or too far for a table.
func counted(digits []digit) int64 {
	n := int64(1)
	for _, d := range digits {
		if n *= d.n; d.n < 1 || n > maxTable {
			return 0
		}
	}
	return n
}

// each lists the ranks and indices that a layout reads on rank r.
func (l *layout) each(r int, f func(rank int32, at int64)) {
	n, entries := int64(1), l.entries()
	for _, d := range l.digits {
		n *= d.n
	}
	for i := range n {
		at, k, left := l.off, 0, n
		for _, d := range l.digits {
			left /= d.n
			v := i / left % d.n
			if at += v * d.stride; d.table {
				k = k*int(d.n) + int(v)
			}
		}
		rank := int32(r)
		if l.rank != nil {
			rank = l.rank[r*entries+k]
			at += l.add[r*entries+k]
		}
		f(rank, at)
	}
}

// level is a layout that takes rows of blocks of its operand: where the blocks are, counted in
// blocks, and what it does within a row.
type level struct {
	outer  int // digits before the row's
	digits []digit
	far    []bool // the digit's stride is in blocks
	rows   int64  // of a block
	width  int64  // of a block of the operand
	off    [2]int64
	rank   []int32
	add    [][2]int64 // in blocks, and the rest, as off
}

// levelOf is false where a layout takes rows apart.
func levelOf(l *layout, outer int64) (level, bool) {
	out, in, ok := blocks(l.digits, outer)
	if !ok || len(in) == 0 || in[0].n < 1 || in[0].stride <= 0 || in[0].table {
		return level{}, false
	}
	row := in[0].stride
	v := level{outer: len(out), digits: slices.Concat(out, in), rows: in[0].n, width: in[0].n * row, rank: l.rank}
	least := int64(0) // what is added to the offset at least
	if l.add != nil {
		least = slices.Min(l.add)
	}
	v.off = [2]int64{(l.off + least) / v.width, (l.off + least) % v.width}
	span, most := v.off[1], int64(0)
	for i := range v.digits {
		d := &v.digits[i]
		if d.n < 1 || d.stride < 0 {
			return level{}, false
		}
		far := d.stride > 0 && d.stride%v.width == 0
		switch v.far = append(v.far, far); {
		case i == v.outer:
			d.n = 1 // is put together
		case far:
			d.stride /= v.width
		default:
			span += (d.n - 1) * d.stride
		}
	}
	for _, a := range l.add {
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
	l := layout{off: first.off[0]*width + first.off[1], rank: first.rank}
	for _, a := range first.add {
		l.add = append(l.add, a[0]*width+a[1])
	}
	digits := slices.Clone(first.digits)
	for i := range digits {
		switch {
		case i == first.outer:
			digits[i].n = rows
		case first.far[i]:
			digits[i].stride *= width
		}
	}
	return p.whole(l, digits, nil, x)
}
