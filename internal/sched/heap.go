package sched

// minHeap is a binary heap, the least element first. less must be a strict weak
// order that does not change for elements in the heap.
type minHeap[T any] struct {
	less func(a, b T) bool
	a    []T
}

func (h *minHeap[T]) len() int { return len(h.a) }
func (h *minHeap[T]) top() T   { return h.a[0] }

func (h *minHeap[T]) push(x T) {
	h.a = append(h.a, x)
	i := len(h.a) - 1
	for i > 0 {
		up := (i - 1) / 2
		if !h.less(x, h.a[up]) {
			break
		}
		h.a[i] = h.a[up]
		i = up
	}
	h.a[i] = x
}

func (h *minHeap[T]) pop() T {
	out := h.a[0]
	x := h.a[len(h.a)-1]
	h.a = h.a[:len(h.a)-1]
	n := len(h.a)
	if n == 0 {
		return out
	}
	i := 0
	for {
		c := 2*i + 1
		if c >= n {
			break
		}
		if c+1 < n && h.less(h.a[c+1], h.a[c]) {
			c++
		}
		if !h.less(h.a[c], x) {
			break
		}
		h.a[i] = h.a[c]
		i = c
	}
	h.a[i] = x
	return out
}

// ranks is a binary heap of distinct small integers, smallest first.
type ranks []int32

func (h *ranks) push(x int32) {
	a := append(*h, x)
	i := len(a) - 1
	for i > 0 {
		up := (i - 1) / 2
		if a[up] <= x {
			break
		}
		a[i] = a[up]
		i = up
	}
	a[i] = x
	*h = a
}

func (h *ranks) pop() int32 {
	a := *h
	out, x := a[0], a[len(a)-1]
	a = a[:len(a)-1]
	*h = a
	n := len(a)
	if n == 0 {
		return out
	}
	i := 0
	for {
		c := 2*i + 1
		if c >= n {
			break
		}
		if c+1 < n && a[c+1] < a[c] {
			c++
		}
		if a[c] >= x {
			break
		}
		a[i] = a[c]
		i = c
	}
	a[i] = x
	return out
}
