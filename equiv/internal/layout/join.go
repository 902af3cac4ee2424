package layout

import "slices"

// Parts of a tensor that are moves, put together: they lie side by side in blocks, of which the first ones are as long
// as part 0, in each of them part 1 follows, and so on.

// Join puts together parts of one tensor, in so many blocks. False where nothing regular comes of that.
func Join(parts []Layout, outer int64, world int) (Layout, bool) {
	l, ok := adjacent(parts, outer)
	if !ok {
		l, ok = listed(parts, outer, world)
	}
	if ok {
		l.Rank, l.Add = slices.Clone(l.Rank), slices.Clone(l.Add)
		l.Canonical(world)
	}
	return l, ok
}

// blocks cuts the digits of a layout where blocks begin. False if that is within a step.
func blocks(digits []Digit, outer int64) (out, in []Digit, ok bool) {
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
			out = append(out, Digit{N: outer, Stride: d.Stride * rest})
			return out, append([]Digit{{N: rest, Stride: d.Stride}}, digits[i+1:]...), true
		default:
			return nil, nil, false
		}
	}
	return out, nil, outer == 1
}

// adjacent joins parts of which each begins where the one before it ends.
func adjacent(parts []Layout, outer int64) (Layout, bool) {
	var whole Layout
	var out, in []Digit
	next, rows := int64(0), int64(0)
	for i, l := range parts {
		o, n, ok := blocks(l.Digits, outer)
		if !ok || len(n) == 0 || n[0].Table || n[0].N < 1 {
			return whole, false
		}
		if i == 0 {
			whole, out, in, next = l, o, slices.Clone(n), l.Off
		}
		if !slices.Equal(o, out) || !slices.Equal(n[1:], in[1:]) || n[0].Stride != in[0].Stride || l.Off != next || !slices.Equal(l.Rank, whole.Rank) || !slices.Equal(l.Add, whole.Add) {
			return whole, false
		}
		next += n[0].N * n[0].Stride
		rows += n[0].N
	}
	in[0].N = rows
	whole.Digits = slices.Concat(out, in)
	return whole, true
}

// maxListed bounds the table of listed: to find what is regular in one, factor tries its orders.
const maxListed = 1 << 14

// listed joins parts whose rows are listed one by one, as where heads of
// attention, or the pieces of ranks, are rows, and chunks end within them.
func listed(parts []Layout, outer int64, world int) (l Layout, ok bool) {
	fronts := slices.Clone(parts)
	var lead, rest []Digit // that parts have in common, from the outermost and from the innermost
	for len(fronts[0].Digits) > 0 {
		d := fronts[0].Digits[0]
		if d.Table || d.N < 1 || outer%d.N != 0 || slices.ContainsFunc(fronts, func(f Layout) bool { return len(f.Digits) == 0 || f.Digits[0] != d }) {
			break
		}
		lead, outer = append(lead, d), outer/d.N // blocks in each step of lead
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
	for front := fronts[0].Digits[:len(fronts[0].Digits)-len(rest)]; len(rest) > 0 && Counted(front)%outer != 0; rest = rest[1:] {
		front = fronts[0].Digits[:len(front)+1] // blocks begin within what parts have in common
	}
	rows := int64(0)
	for i := range fronts {
		f := &fronts[i]
		f.Digits = f.Digits[:len(f.Digits)-len(rest)]
		n := Counted(f.Digits)
		if rows += n; n < 1 || n%outer != 0 || rows*int64(world) > maxListed {
			return l, false
		}
	}
	for r := range world {
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
	l.Digits = slices.Concat(append(lead, Digit{N: rows, Table: true}), rest)
	return l, true
}

// level is a layout that takes rows of blocks of its operand: where the blocks are, counted in
// blocks, and what it does within a row.
type level struct {
	outer  int // digits before the row's
	digits []Digit
	far    []bool // the digit's stride is in blocks
	rows   int64  // of a block
	width  int64  // of a block of the operand
	off    [2]int64
	rank   []int32
	add    [][2]int64 // in blocks, and the rest, as off
}

// levelOf is false where a layout takes rows apart.
func levelOf(l *Layout, outer int64) (level, bool) {
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

// JoinRows puts together moves of tensors of such sizes that are parts of one themselves, of which each takes whole rows
// alike: the move of that one, and in how many blocks the parts lie there.
func JoinRows(parts []Layout, sizes []int64, outer int64, world int) (l Layout, count int64, ok bool) {
	var first level
	rows, width := int64(0), int64(0)
	for i := range parts {
		v, ok := levelOf(&parts[i], outer)
		if !ok || sizes[i]%v.width != 0 || i > 0 && sizes[i]/v.width != count {
			return l, 0, false
		}
		if count = sizes[i] / v.width; i == 0 {
			first = v
		}
		if v.outer != first.outer || !slices.Equal(v.digits, first.digits) || !slices.Equal(v.far, first.far) || v.off != first.off || !slices.Equal(v.rank, first.rank) || !slices.Equal(v.add, first.add) {
			return l, 0, false
		}
		rows, width = rows+v.rows, width+v.width
	}
	l = Layout{Off: first.off[0]*width + first.off[1], Rank: slices.Clone(first.rank), Digits: slices.Clone(first.digits)}
	for _, a := range first.add {
		l.Add = append(l.Add, a[0]*width+a[1])
	}
	for i := range l.Digits {
		switch {
		case i == first.outer:
			l.Digits[i].N = rows
		case first.far[i]:
			l.Digits[i].Stride *= width
		}
	}
	l.Canonical(world)
	return l, count, true
}
