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
	if lo >= hi {
		return
	}
	last := len(w.dims) - 1
	idx := make([]int64, len(w.dims))
	off := slices.Clone(w.base)
	for d, rest := last, lo; d >= 0; d-- {
		idx[d] = rest % w.dims[d]
		rest /= w.dims[d]
		for k := range off {
			off[k] += idx[d] * w.stride[k][d]
		}
	}
	for pos := lo; ; {
		n := min(w.dims[last]-idx[last], hi-pos, maxRun)
		fn(off, n)
		pos += n
		if pos >= hi {
			return
		}
		idx[last] += n
		for k := range off {
			off[k] += n * w.stride[k][last]
		}
		for d := last; d > 0 && idx[d] == w.dims[d]; d-- {
			idx[d] = 0
			idx[d-1]++
			for k := range off {
				off[k] += w.stride[k][d-1] - w.dims[d]*w.stride[k][d]
			}
		}
	}
}

// parallelWork is the number of elementary steps under which starting a goroutine
// costs more than it gains.
const parallelWork = 1 << 18

// parallel splits 0 <= i < n into contiguous ranges and calls fn once for each, on
// several goroutines if n items of the given work are worth it. fn must not panic
// and its effect must not depend on the split.
func parallel(n, workPerItem int64, fn func(lo, hi int64)) {
	parts := min(int64(runtime.GOMAXPROCS(0)), n)
	if workPerItem < parallelWork {
		parts = min(parts, n/(parallelWork/max(workPerItem, 1)))
	}
	if parts <= 1 {
		if n > 0 {
			fn(0, n)
		}
		return
	}
	var wg sync.WaitGroup
	for p := range parts {
		lo, hi := n/parts*p+min(p, n%parts), n/parts*(p+1)+min(p+1, n%parts)
		wg.Go(func() { fn(lo, hi) })
	}
	wg.Wait()
}
