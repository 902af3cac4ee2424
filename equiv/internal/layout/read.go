package layout

import (
	"fmt"
	"strings"

	"github.com/seed-ee968945/concert/internal/intmath"
)

// Counted is how far digits count, 0 where that is not known or too far for a table.
func Counted(digits []Digit) int64 {
	n := int64(1)
	for _, d := range digits {
		if n *= d.N; d.N < 1 || n > MaxTable {
			return 0
		}
	}
	return n
}

// Each lists the ranks and indices that a layout reads on rank r.
func (l *Layout) Each(r int, f func(rank int32, at int64)) {
	n, entries := int64(1), l.Entries()
	for _, d := range l.Digits {
		n *= d.N
	}
	for i := range n {
		at, k, left := l.Off, 0, n
		for _, d := range l.Digits {
			left /= d.N
			v := i / left % d.N
			if at += v * d.Stride; d.Table {
				k = k*int(d.N) + int(v)
			}
		}
		rank := int32(r)
		if l.Rank != nil {
			rank = l.Rank[r*entries+k]
			at += l.Add[r*entries+k]
		}
		f(rank, at)
	}
}

// Whole reports whether l takes runs of that length whole and in order.
func (l *Layout) Whole(run int64) bool {
	if run == 1 {
		return true
	}
	if len(l.Digits) == 0 || l.Off%run != 0 {
		return false
	}
	last := l.Digits[len(l.Digits)-1]
	if last.Table || last.Stride != 1 || last.N%run != 0 {
		return false
	}
	for _, d := range l.Digits[:len(l.Digits)-1] {
		if d.Stride%run != 0 {
			return false
		}
	}
	for _, v := range l.Add {
		if v%run != 0 {
			return false
		}
	}
	return true
}

// String is the layout as [size:stride ...]+offset, a star behind table digits.
func (l *Layout) String() string {
	var b strings.Builder
	for i, d := range l.Digits {
		if i > 0 {
			b.WriteByte(' ')
		}
		fmt.Fprintf(&b, "%s:%d", d.Size(), d.Stride)
		if d.Table {
			b.WriteByte('*')
		}
	}
	s := "[" + b.String() + "]"
	if l.Off != 0 {
		s += fmt.Sprintf("+%d", l.Off)
	}
	if l.Rank != nil {
		n := min(l.Entries(), 4)
		s += fmt.Sprintf("{rank 0: from %v at %v}", l.Rank[:n], l.Add[:n])
	}
	return s
}

// Run is the longest length of runs, of which the given one is a multiple, that the layout does not take apart.
func (l *Layout) Run(run int64) int64 {
	n := len(l.Digits)
	if n == 0 || l.Digits[n-1].Table {
		return run
	}
	if run = intmath.GCD(run, l.Digits[n-1].N); l.Digits[n-1].Stride == 0 {
		return run
	}
	for _, d := range l.Digits[:n-1] {
		run = intmath.GCD(run, d.Stride)
	}
	run = intmath.GCD(run, l.Off)
	for _, v := range l.Add {
		run = intmath.GCD(run, v)
	}
	return run
}

// ByRuns is the layout between runs of such lengths: of the result, and of the operand.
func (l *Layout) ByRuns(run, from int64) Layout {
	out := Layout{Off: l.Off / from, Rank: l.Rank}
	for i, d := range l.Digits {
		if i == len(l.Digits)-1 {
			d.N /= run
		} else {
			d.Stride /= from
		}
		out.Digits = append(out.Digits, d)
	}
	for _, v := range l.Add {
		out.Add = append(out.Add, v/from)
	}
	return out
}
