package pack

import "slices"

// A spanTree is a segment tree over columns that answers which addresses are
// occupied anywhere in a range of columns.
type spanTree struct {
	size  int
	cover [][]span // by node: union of what was added for the whole node
	below [][]span // by node: union of what was added for any part of it
}

func (t *spanTree) init(cols int) {
	t.size = 1
	for t.size < cols {
		t.size *= 2
	}
	t.cover = make([][]span, 2*t.size)
	t.below = make([][]span, 2*t.size)
}

func (t *spanTree) clear() {
	for i := range t.cover {
		t.cover[i] = t.cover[i][:0]
		t.below[i] = t.below[i][:0]
	}
}

// collect appends the lists whose union is what is occupied in [l, r).
func (t *spanTree) collect(lists [][]span, l, r int) [][]span {
	add := func(s []span) {
		if len(s) > 0 {
			lists = append(lists, s)
		}
	}
	a, b := l+t.size, r-1+t.size
	for u, v := a, b+1; u < v; u, v = u/2, v/2 {
		if u&1 == 1 {
			add(t.below[u])
			u++
		}
		if v&1 == 1 {
			v--
			add(t.below[v])
		}
	}
	// Whatever covers an ancestor of either end covers a column of the
	// range; ancestors of other columns are ancestors of these or inside.
	for a /= 2; a > 0; a /= 2 {
		add(t.cover[a])
	}
	for b /= 2; b > 0; b /= 2 {
		if t.shared(l, b) {
			break // from here on the two paths are one
		}
		add(t.cover[b])
	}
	return lists
}

// shared reports whether node is an ancestor of column l.
func (t *spanTree) shared(l, node int) bool {
	a := l + t.size
	for a > node {
		a /= 2
	}
	return a == node
}

// add marks s as occupied in columns [l, r) and returns the work it took.
func (t *spanTree) add(l, r int, s span) int {
	work := 0
	a, b := l+t.size, r-1+t.size
	for u, v := a, b+1; u < v; u, v = u/2, v/2 {
		if u&1 == 1 {
			t.cover[u] = insert(t.cover[u], s)
			t.below[u] = insert(t.below[u], s)
			work += 2
			u++
		}
		if v&1 == 1 {
			v--
			t.cover[v] = insert(t.cover[v], s)
			t.below[v] = insert(t.below[v], s)
			work += 2
		}
	}
	for k := 1; a>>k > 0; k++ {
		x, y := a>>k, b>>k
		// Nodes inside the range are covered, or below a covered one.
		if x<<k-t.size < l || (x+1)<<k-t.size > r {
			t.below[x] = insert(t.below[x], s)
			work++
		}
		if y != x && (y<<k-t.size < l || (y+1)<<k-t.size > r) {
			t.below[y] = insert(t.below[y], s)
			work++
		}
	}
	return work
}

// insert adds s to a sorted list of disjoint spans that do not touch.
func insert(l []span, s span) []span {
	// The first span that ends at or above the start of s.
	i, j := 0, len(l)
	for i < j {
		if h := int(uint(i+j) / 2); l[h].hi < s.lo {
			i = h + 1
		} else {
			j = h
		}
	}
	for j < len(l) && l[j].lo <= s.hi {
		s.lo, s.hi = min(s.lo, l[j].lo), max(s.hi, l[j].hi)
		j++
	}
	if i == j {
		return slices.Insert(l, i, s)
	}
	l[i] = s
	if i+1 < j {
		l = append(l[:i+1], l[j:]...)
	}
	return l
}
