package equiv

import (
	"cmp"
	"slices"

	"github.com/seed-ee968945/concert/ir"
)

// window takes a layout apart: it reads by w what q, which is the same on all ranks,
// selects, in order, of the n source elements. q has the digits that count within blocks in
// which the table does not tell ranks apart, w the rest. False if there is no such q but
// the identity.
func (l *layout) window(n int64, world int) (w, q layout, ok bool) {
	block := int64(0)
	for _, v := range l.add {
		block = gcd(block, v)
	}
	for _, d := range l.digits {
		if d.table {
			block = gcd(block, d.stride)
		}
	}
	if block == 0 {
		block = n
	}
	if block <= 1 || n%block != 0 {
		return w, q, false
	}
	// The blocks are one digit, what is within them the other.
	ps, ok := radix{[]int64{n / block, block}, []int64{block, 1}}.cut(l.digits)
	if !ok {
		return w, q, false
	}
	low := l.off % block
	var inner []digit
	for _, p := range ps {
		if p.level == 1 {
			inner = append(inner, digit{n: p.n, stride: p.coef})
			low += (p.n - 1) * p.coef
		}
	}
	if low >= block {
		return w, q, false
	}
	slices.SortStableFunc(inner, func(a, b digit) int { return cmp.Compare(b.stride, a.stride) })
	weights, width := map[int64]int64{}, int64(1) // by stride; look-up only
	for i := len(inner) - 1; i >= 0; i-- {
		if _, twice := weights[inner[i].stride]; twice {
			return w, q, false
		}
		weights[inner[i].stride] = width
		width *= inner[i].n
	}
	first, step, count := l.blocks(ps, block, n)
	q, _ = plain(append([]digit{{n: count, stride: step * block}}, inner...), first*block+l.off%block)
	if q.isIdentity(ir.D(n)) {
		return w, q, false
	}
	w = layout{off: (l.off/block - first) / step * width, rank: slices.Clone(l.rank), add: slices.Clone(l.add)}
	for k := range w.add {
		w.add[k] = w.add[k] / block / step * width
	}
	for _, p := range ps {
		d := p.digit
		switch p.level {
		case 0:
			d.stride = p.coef / step * width
		case 1:
			d.stride = weights[p.coef]
		}
		w.digits = append(w.digits, d)
	}
	w.canonical(world)
	return w, q, true
}

// blocks are those that some rank reads: count of them from the first on, step apart; all n
// if they do not follow each other like that.
func (l *layout) blocks(ps []piece, block, n int64) (first, step, count int64) {
	all := n / block
	adds := l.add
	if adds == nil {
		adds = []int64{0}
	}
	read := make([]bool, all)
	var visit func(i int, at int64)
	visit = func(i int, at int64) {
		for ; i < len(ps) && (ps[i].level != 0 || ps[i].table); i++ {
		}
		if i == len(ps) {
			read[at] = true
			return
		}
		for v := range ps[i].n {
			visit(i+1, at+v*ps[i].coef)
		}
	}
	work := all
	for _, p := range ps {
		if p.level == 0 && !p.table {
			work *= p.n
		}
		if p.level == 0 && p.table {
			return 0, 1, all // its stride is zero in canonical form
		}
	}
	if work > maxTable {
		return 0, 1, all
	}
	seen := map[int64]bool{} // look-up only
	for _, v := range adds {
		if !seen[v] {
			seen[v] = true
			visit(0, (l.off+v)/block)
		}
	}
	var list []int64
	for i, r := range read {
		if r {
			list = append(list, int64(i))
		}
	}
	step = 1
	if len(list) > 1 {
		step = list[1] - list[0]
	}
	for i, v := range list {
		if v != list[0]+int64(i)*step {
			return 0, 1, all
		}
	}
	return list[0], step, int64(len(list))
}

// selects reports whether l only selects elements, in their order and on all ranks alike.
func (l *layout) selects() bool {
	for i, d := range l.digits {
		if d.stride == 0 || i > 0 && d.stride >= l.digits[i-1].stride {
			return false
		}
	}
	return l.rank == nil
}

func gcd(a, b int64) int64 {
	for b != 0 {
		a, b = b, a%b
	}
	return max(a, -a)
}
