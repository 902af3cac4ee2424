package layout

import (
	"cmp"
	"slices"

	"github.com/seed-ee968945/concert/internal/intmath"
	"github.com/seed-ee968945/concert/ir"
)

// Window takes a layout apart: it reads by w what q, which is the same on all ranks,
// selects, in order, of the n source elements. q has the digits that count within blocks in
// which the table does not tell ranks apart, w the rest. False if there is no such q but
// the identity.
func (l *Layout) Window(n int64, world int) (w, q Layout, ok bool) {
	block := int64(0)
	for _, v := range l.Add {
		block = intmath.GCD(block, v)
	}
	for _, d := range l.Digits {
		if d.Table {
			block = intmath.GCD(block, d.Stride)
		}
	}
	if block == 0 {
		block = n
	}
	if block <= 1 || n%block != 0 {
		return w, q, false
	}
	// The blocks are one digit, what is within them the other.
	ps, ok := Radix{[]int64{n / block, block}, []int64{block, 1}}.Cut(l.Digits)
	if !ok {
		return w, q, false
	}
	low := l.Off % block
	var inner []Digit
	for _, p := range ps {
		if p.Level == 1 {
			inner = append(inner, Digit{N: p.N, Stride: p.Coef})
			low += (p.N - 1) * p.Coef
		}
	}
	if low >= block {
		return w, q, false
	}
	slices.SortStableFunc(inner, func(a, b Digit) int { return cmp.Compare(b.Stride, a.Stride) })
	weights, width := map[int64]int64{}, int64(1) // by stride; look-up only
	for i := len(inner) - 1; i >= 0; i-- {
		if _, twice := weights[inner[i].Stride]; twice {
			return w, q, false
		}
		weights[inner[i].Stride] = width
		width *= inner[i].N
	}
	first, step, count := l.blocks(ps, block, n)
	q, _ = Plain(append([]Digit{{N: count, Stride: step * block}}, inner...), first*block+l.Off%block)
	if q.IsIdentity(ir.D(n)) {
		return w, q, false
	}
	w = Layout{Off: (l.Off/block - first) / step * width, Rank: slices.Clone(l.Rank), Add: slices.Clone(l.Add)}
	for k := range w.Add {
		w.Add[k] = w.Add[k] / block / step * width
	}
	for _, p := range ps {
		d := p.Digit
		switch p.Level {
		case 0:
			d.Stride = p.Coef / step * width
		case 1:
			d.Stride = weights[p.Coef]
		}
		w.Digits = append(w.Digits, d)
	}
	w.Canonical(world)
	return w, q, true
}

// blocks are those that some rank reads: count of them from the first on, step apart; all n
// if they do not follow each other like that.
func (l *Layout) blocks(ps []piece, block, n int64) (first, step, count int64) {
	all := n / block
	adds := l.Add
	if adds == nil {
		adds = []int64{0}
	}
	read := make([]bool, all)
	var visit func(i int, at int64)
	visit = func(i int, at int64) {
		for ; i < len(ps) && (ps[i].Level != 0 || ps[i].Table); i++ {
		}
		if i == len(ps) {
			read[at] = true
			return
		}
		for v := range ps[i].N {
			visit(i+1, at+v*ps[i].Coef)
		}
	}
	work := all
	for _, p := range ps {
		if p.Level == 0 && !p.Table {
			work *= p.N
		}
		if p.Level == 0 && p.Table {
			return 0, 1, all // its stride is zero in canonical form
		}
	}
	if work > MaxTable {
		return 0, 1, all
	}
	seen := map[int64]bool{} // look-up only
	for _, v := range adds {
		if !seen[v] {
			seen[v] = true
			visit(0, (l.Off+v)/block)
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

// Selects reports whether l only selects elements, in their order and on all ranks alike.
func (l *Layout) Selects() bool {
	for i, d := range l.Digits {
		if d.Stride == 0 || i > 0 && d.Stride >= l.Digits[i-1].Stride {
			return false
		}
	}
	return l.Rank == nil
}
