package sched

import (
	"math"
	"math/bits"
)

// gone is added, negated, to values that no longer count.
const gone = int64(1) << 61

// rangeMax is a segment tree over int64 values with range addition and maxima of
// ranges; both take O(log n), the overall maximum O(1).
type rangeMax struct {
	leaf int
	top  []int64
	lazy []int64

	dirty []int // leaves whose ancestors are stale
	high  int   // above the level of this node only what is below has changed
}

func newRangeMax(n int) *rangeMax {
	t := &rangeMax{leaf: 1, high: math.MaxInt}
	for t.leaf < n {
		t.leaf *= 2
	}
	t.top = make([]int64, 2*t.leaf)
	t.lazy = make([]int64, t.leaf)
	return t
}

// set replaces all values.
func (t *rangeMax) set(v []int64) {
	clear(t.lazy)
	n := copy(t.top[t.leaf:], v)
	for i := t.leaf + n; i < len(t.top); i++ {
		t.top[i] = -gone
	}
	for i := t.leaf - 1; i > 0; i-- {
		t.top[i] = max(t.top[2*i], t.top[2*i+1])
	}
}

// max returns the largest value.
func (t *rangeMax) max() int64 { return t.top[1] }

// argmax returns the first index of the largest value.
func (t *rangeMax) argmax() int32 {
	i := 1
	for i < t.leaf {
		if i *= 2; t.top[i] < t.top[i+1] {
			i++
		}
	}
	return int32(i - t.leaf)
}

// maxOf returns the largest value of indices [l, r), of which there must be one.
func (t *rangeMax) maxOf(l, r int32) int64 {
	a, b := int(l)+t.leaf, int(r)-1+t.leaf
	left, right := t.top[a], t.top[b]
	for ; a/2 != b/2; left, right = left+t.lazy[a], right+t.lazy[b] {
		if a&1 == 0 {
			left = max(left, t.top[a+1])
		}
		if b&1 == 1 {
			right = max(right, t.top[b-1])
		}
		a, b = a/2, b/2
	}
	top := max(left, right)
	for a /= 2; a > 0; a /= 2 {
		top += t.lazy[a]
	}
	return top
}

// add adds d to indices [l, r).
func (t *rangeMax) add(l, r int32, d int64) {
	t.stage(l, r, d)
	t.commit()
}

// stage is add without its effect on max, which commit brings up to date for all
// that was staged; additions that share ends share most of that work.
func (t *rangeMax) stage(l, r int32, d int64) {
	if l >= r || d == 0 {
		return
	}
	a, b := int(l)+t.leaf, int(r)+t.leaf
	t.touch(a)
	t.touch(b - 1)
	for ; a < b; a, b = a/2, b/2 {
		if a&1 == 1 {
			t.apply(a, d)
			a++
		}
		if b&1 == 1 {
			b--
			t.apply(b, d)
		}
	}
}

// touch marks the ancestors of node i for commit.
func (t *rangeMax) touch(i int) {
	for _, j := range t.dirty {
		if j == i {
			return
		}
	}
	t.dirty = append(t.dirty, i)
}

// commit recomputes the maxima above all that was staged, level by level.
func (t *rangeMax) commit() {
	d := t.dirty
	above := 1 << (bits.Len(uint(t.high)) - 1) // nodes in front stand above
	for len(d) > 0 && d[0] > 1 {
		k := 0
	next:
		for _, i := range d {
			i /= 2
			for _, j := range d[:k] {
				if j == i {
					continue next
				}
			}
			top := max(t.top[2*i], t.top[2*i+1]) + t.lazy[i]
			if i < above && t.top[i] == top {
				continue
			}
			d[k] = i
			k++
			t.top[i] = top
		}
		d = d[:k]
	}
	t.dirty, t.high = t.dirty[:0], math.MaxInt
}

func (t *rangeMax) apply(i int, d int64) {
	t.top[i] += d
	t.high = min(t.high, i)
	if i < t.leaf {
		t.lazy[i] += d
	}
}
