package sched

// gone is added, negated, to values that no longer count.
const gone = int64(1) << 61

// rangeMax is a segment tree over int64 values with range addition and overall
// maximum; both take O(log n).
type rangeMax struct {
	leaf int
	top  []int64
	lazy []int64
}

func newRangeMax(n int) *rangeMax {
	t := &rangeMax{leaf: 1}
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

// add adds d to positions [l, r).
func (t *rangeMax) add(l, r int32, d int64) {
	if l >= r || d == 0 {
		return
	}
	a, b := int(l)+t.leaf, int(r)+t.leaf
	a0, b0 := a, b-1
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
	t.rebuild(a0)
	t.rebuild(b0)
}

func (t *rangeMax) apply(i int, d int64) {
	t.top[i] += d
	if i < t.leaf {
		t.lazy[i] += d
	}
}

func (t *rangeMax) rebuild(i int) {
	for i /= 2; i > 0; i /= 2 {
		t.top[i] = max(t.top[2*i], t.top[2*i+1]) + t.lazy[i]
	}
}
