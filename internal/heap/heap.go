// Package heap has generic binary heaps. Those of container/heap box their elements and need five
// methods from each user.
package heap

import "slices"

// Heap is a binary heap, the least element first.
type Heap[T any] struct {
	// Less must be a strict weak order that does not change for elements in the heap.
	Less func(a, b T) bool
	a    []T
}

// Len is how many elements there are.
func (h *Heap[T]) Len() int { return len(h.a) }

// Top is the least one. There must be one, as for Pop.
func (h *Heap[T]) Top() T { return h.a[0] }

// Clear removes all.
func (h *Heap[T]) Clear() { h.a = h.a[:0] }

// Push adds one. O(log n).
func (h *Heap[T]) Push(x T) {
	h.a = append(h.a, x)
	i := len(h.a) - 1
	for i > 0 {
		up := (i - 1) / 2
		if !h.Less(x, h.a[up]) {
			break
		}
		h.a[i] = h.a[up]
		i = up
	}
	h.a[i] = x
}

// Pop removes the least one and returns it. O(log n).
func (h *Heap[T]) Pop() T {
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
		if c+1 < n && h.Less(h.a[c+1], h.a[c]) {
			c++
		}
		if !h.Less(h.a[c], x) {
			break
		}
		h.a[i] = h.a[c]
		i = c
	}
	h.a[i] = x
	return out
}

// Ints is a binary heap of integers, smallest first, which it compares without a call.
type Ints []int32

// Push adds one. O(log n).
func (h *Ints) Push(x int32) {
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

// Pop removes the smallest one, which there must be, and returns it. O(log n).
func (h *Ints) Pop() int32 {
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

// Queue is a heap of numbers of which the smallest are looked at again and again.
type Queue struct {
	front []int32 // the smallest, ascending
	rest  Ints
}

// Clear removes all.
func (q *Queue) Clear() { q.front, q.rest = q.front[:0], q.rest[:0] }

// Push adds a number.
func (q *Queue) Push(x int32) {
	n := len(q.front)
	if n == 0 || x > q.front[n-1] {
		q.rest.Push(x)
		return
	}
	if n >= queueFront {
		n--
		q.rest.Push(q.front[n])
		q.front = q.front[:n]
	}
	i, _ := slices.BinarySearch(q.front, x)
	q.front = slices.Insert(q.front, i, x)
}

// queueFront is how many numbers may stand in front before Push moves them behind.
const queueFront = 16

// Scan looks at the smallest numbers of a heap in ascending order until take accepts one of
// them, or has refused so many, and returns it; -1 if there is none. Numbers for which gone
// holds are removed and do not count. Those that it looked at stay in front, so that to look
// again costs nothing.
func (q *Queue) Scan(most int, gone, take func(x int32) bool) int32 {
	for i := 0; i < most; {
		if i == len(q.front) {
			if len(q.rest) == 0 {
				return -1
			}
			q.front = append(q.front, q.rest.Pop())
		}
		switch x := q.front[i]; {
		case gone(x):
			q.front = append(q.front[:i], q.front[i+1:]...)
		case take(x):
			return x
		default:
			i++
		}
	}
	return -1
}
