package hostops

import (
	"cmp"
	"runtime"
	"slices"
	"sync"
)

// nest is a loop nest over one index space with one cursor per operand. Adjacent
// dimensions that every operand walks as one are merged, so that dense operands
// become a single long run.
type nest struct {
	dims   []int64
	stride [][]int64 // [operand][dimension], elements
	base   []int64   // element number of index 0 for each operand
}

// cursor is one operand of a nest: strides over the nest's full shape.
type cursor struct {
	base   int64
	stride []int64
}

func cursorOf(t *Tensor) cursor { return cursor{t.Offset, t.Strides} }

// newNest builds the nest. If anyOrder is set the dimensions are walked in the
// order in which operand 0 lies in memory, which is right for operations whose
// elements do not depend on each other; otherwise in row-major order of shape.
func newNest(shape []int64, anyOrder bool, ops ...cursor) *nest {
	w := &nest{stride: make([][]int64, len(ops)), base: make([]int64, len(ops))}
	var order []int
	for d, n := range shape {
		if n != 1 {
			order = append(order, d)
		}
	}
	if anyOrder && len(ops) > 0 {
		slices.SortStableFunc(order, func(a, b int) int {
			return cmp.Compare(absU(ops[0].stride[b]), absU(ops[0].stride[a]))
		})
	}
	for i, op := range ops {
		w.base[i] = op.base
	}
	for _, d := range order {
		w.push(shape[d], d, ops)
	}
	if len(w.dims) == 0 {
		w.dims = []int64{1}
		for i := range ops {
			w.stride[i] = []int64{0}
		}
	}
	return w
}

// push appends dimension d as the innermost one, merged with the last if possible.
func (w *nest) push(n int64, d int, ops []cursor) {
	last := len(w.dims) - 1
	merge := last >= 0
	for i := 0; merge && i < len(ops); i++ {
		merge = w.stride[i][last] == ops[i].stride[d]*n
	}
	if merge {
		w.dims[last] *= n
		for i := range ops {
			w.stride[i][last] = ops[i].stride[d]
		}
		return
	}
	w.dims = append(w.dims, n)
	for i := range ops {
		w.stride[i] = append(w.stride[i], ops[i].stride[d])
	}
}

// size is the number of index tuples.
func (w *nest) size() int64 {
	n := int64(1)
	for _, d := range w.dims {
		n *= d
	}
	return n
}

// inner is the stride of operand op along a run.
func (w *nest) inner(op int) int64 { return w.stride[op][len(w.dims)-1] }

// each calls fn for consecutive runs of the index tuples lo <= i < hi. A run has at
// most maxRun tuples; off holds each operand's element number at its start and is
// reused between calls.
func (w *nest) each(lo, hi, maxRun int64, fn func(off []int64, n int64)) {
	k := w.walk(nil, maxRun)
	for k.from(lo, hi); k.next(); {
		fn(k.off, k.n)
	}
}

// walk goes through a nest run by run.
type walk struct {
	*nest
	off     []int64 // each operand's element number at the start of the run
	n       int64   // tuples of the run
	idx     []int64
	left    int64 // tuples from the start of the run on
	longest int64
}

// walk makes one of runs of at most longest tuples. It begins with from.
func (w *nest) walk(m *memory, longest int64) walk {
	return walk{nest: w, off: take[int64](m, int64(len(w.base))), idx: take[int64](m, int64(len(w.dims))), longest: longest}
}

// from makes the index tuples lo <= i < hi the next ones.
func (k *walk) from(lo, hi int64) {
	k.n, k.left = 0, max(hi-lo, 0)
	copy(k.off, k.base)
	if lo == 0 || k.left == 0 {
		clear(k.idx)
		return
	}
	for d, rest := len(k.dims)-1, lo; d >= 0; d-- {
		k.idx[d] = rest % k.dims[d]
		rest /= k.dims[d]
		for i := range k.off {
			k.off[i] += k.idx[d] * k.stride[i][d]
		}
	}
}

// next goes on to the next run, false if there is none.
func (k *walk) next() bool {
	k.left -= k.n
	if k.left <= 0 {
		return false
	}
	last := len(k.dims) - 1
	if k.n > 0 {
		k.idx[last] += k.n
		for i := range k.off {
			k.off[i] += k.n * k.stride[i][last]
		}
		for d := last; d > 0 && k.idx[d] == k.dims[d]; d-- {
			k.idx[d] = 0
			k.idx[d-1]++
			for i := range k.off {
				k.off[i] += k.stride[i][d-1] - k.dims[d]*k.stride[i][d]
			}
		}
	}
	k.n = min(k.dims[last]-k.idx[last], k.left, k.longest)
	return true
}

// parallelWork is the number of elementary steps under which starting a goroutine
// costs more than it gains.
const parallelWork = 1 << 18

// parallel splits 0 <= i < n into contiguous ranges and calls fn once for each, on
// several goroutines, each with memory of its own, if n items of the given work are
// worth it. fn must not panic and its effect must not depend on the split.
func parallel(n, workPerItem int64, fn func(m *memory, lo, hi int64)) {
	parts := min(int64(runtime.GOMAXPROCS(0)), n)
	if workPerItem < parallelWork {
		parts = min(parts, n/(parallelWork/max(workPerItem, 1)))
	}
	if parts <= 1 {
		if n > 0 {
			within(fn, 0, n)
		}
		return
	}
	var wg sync.WaitGroup
	for p := range parts {
		lo, hi := n/parts*p+min(p, n%parts), n/parts*(p+1)+min(p+1, n%parts)
		wg.Go(func() { within(fn, lo, hi) })
	}
	wg.Wait()
}
