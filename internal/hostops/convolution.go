package hostops

import (
	"slices"

	"github.com/seed-ee968945/concert/internal/attr"
	"github.com/seed-ee968945/concert/internal/window"
)

// windowAttrs reads a window of the given sizes.
func (c *call) windowAttrs(sizes []int64) []window.Dim {
	dims, err := window.Parse(c.intsAttr, sizes)
	if err != nil && c.bad == nil {
		c.bad = c.fail(ErrAttr, "%v", err)
	}
	return dims
}

// runConvolution computes, for operands [n, c, ...] and [o, c/groups, ...], sums over
// channels and places of the window of products. Each sum takes the channels in order and
// within each the places of the window in memory order of operand 1's indices, one rounded
// product and one rounded sum at a time, as matmul does. Padding counts as zeros; what lies
// between the elements of a dilated operand is not there.
func runConvolution(c *call) error {
	x, w, out := &c.ins[0], &c.ins[1], &c.outs[0]
	r := len(x.Shape)
	if r < 2 || len(w.Shape) != r || len(out.Shape) != r {
		return c.inErr(1, ErrShape, "%v is not a window for %v", w.Shape, x.Shape)
	}
	dims := c.windowAttrs(w.Shape[2:])
	groups, batches := c.intAttr("groups", 1), c.intAttr("batch_groups", 1)
	if c.bad != nil {
		return c.bad
	}
	if groups < 1 || batches < 1 || groups > 1 && batches > 1 || w.Shape[0]%(groups*batches) != 0 || x.Shape[0]%batches != 0 {
		return c.fail(ErrAttr, "groups=%d and batch_groups=%d of %v and %v", groups, batches, x.Shape, w.Shape)
	}
	if x.Shape[1] != groups*w.Shape[1] {
		return c.inErr(1, ErrShape, "%v takes %d channels in %d groups, not %d", w.Shape, w.Shape[1], groups, x.Shape[1])
	}
	want := []int64{x.Shape[0] / batches, w.Shape[0]}
	for d := range dims {
		want = append(want, dims[d].Count(x.Shape[2+d]))
	}
	if !slices.Equal(out.Shape, want) {
		return c.outErr(0, ErrShape, "%v, want %v", out.Shape, want)
	}
	switch operandDomain(c, out.DType, attr.Number{}.Or(1), attr.Number{}.Or(0)) {
	case domF64:
		convolve[float64](out, x, w, dims, groups, batches)
	case domF32:
		convolve[float32](out, x, w, dims, groups, batches)
	default:
		convolve[int64](out, x, w, dims, groups, batches)
	}
	return nil
}

// convolve computes each group and each phase of windows by itself: within them it is a
// matrix product of operand 1's rows with columns of windows.
func convolve[T num](out, x, w *Tensor, dims []window.Dim, groups, batches int64) {
	k := groups * batches
	n, o := out.Shape[0], w.Shape[0]/k
	size, _ := numel(w.Shape[1:])
	parallel(k, out.NumElems()/k*size/2, func(_ *memory, lo, hi int64) {
		for g := lo; g < hi; g++ {
			y, a, b := *out, *w, *x
			y.Shape, y.Strides = slices.Clone(out.Shape), slices.Clone(out.Strides)
			a.Shape, a.Strides = slices.Clone(w.Shape), slices.Clone(w.Strides)
			y.Shape[1], a.Shape[0] = o, o
			y.Offset += g * o * y.Strides[1]
			a.Offset += g * o * a.Strides[0]
			if groups > 1 {
				b.Offset += g * w.Shape[1] * b.Strides[1]
			} else {
				b.Offset += g * n * b.Strides[0]
			}
			eachPhase(&y, &a, dims, make([]window.Phase, len(dims)), 0, func(y, a *Tensor, at []window.Phase) {
				multiplyWindows[T](y, a, &b, at)
			})
		}
	})
}

// eachPhase calls fn for each phase of windows with the part of the result that belongs
// to it and the part of the window that meets elements.
func eachPhase(y, a *Tensor, dims []window.Dim, at []window.Phase, d int, fn func(y, a *Tensor, at []window.Phase)) {
	if d == len(dims) {
		fn(y, a, at)
		return
	}
	for _, p := range dims[d].Phases(y.Shape[2+d]) {
		ys, as := *y, *a
		ys.Shape, ys.Strides = slices.Clone(y.Shape), slices.Clone(y.Strides)
		as.Shape, as.Strides = slices.Clone(a.Shape), slices.Clone(a.Strides)
		ys.Offset += p.First * ys.Strides[2+d]
		ys.Shape[2+d], ys.Strides[2+d] = p.Count, ys.Strides[2+d]*p.Step
		step := as.Strides[2+d] * p.TapStep
		if p.Taps > 0 {
			// In the order of operand 1's indices, which a reversed window turns round.
			first := dims[d].Tap(p.Tap)
			if dims[d].Reverse {
				first = dims[d].Tap(p.Tap + (p.Taps-1)*p.TapStep)
				p.Start, p.TapMove = p.Start+(p.Taps-1)*p.TapMove, -p.TapMove
			}
			as.Offset += first * as.Strides[2+d]
		}
		as.Shape[2+d], as.Strides[2+d] = p.Taps, step
		at[d] = p
		eachPhase(&ys, &as, dims, at, d+1, fn)
	}
}

// multiplyWindows is y[n, o, j] = sum over c and i of a[o, c, i] * b[n, c, start + i*tapMove + j*move].
func multiplyWindows[T num](y, a, b *Tensor, at []window.Phase) {
	m := a.Shape[0]
	cols := []int64{y.Shape[0]}
	cols = append(cols, y.Shape[2:]...)
	n, _ := numel(cols)
	k, _ := numel(a.Shape[1:])
	if m == 0 || n == 0 {
		return
	}
	blocks := (n + nBlock - 1) / nBlock
	parallel(blocks, min(n, nBlock)*m*max(k, 1)/2, func(_ *memory, lo, hi int64) {
		w := newWindows[T](y, a, b, at, m, n, k)
		for i := lo; i < hi; i++ {
			w.block(i*nBlock, min(nBlock, n-i*nBlock))
		}
	})
}

// windows holds what one goroutine needs to multiply windows.
type windows[T num] struct {
	y, a, b    *Tensor
	at         []window.Phase
	m, k       int64
	cols       *nest // over windows of the whole result
	rowA       *nest // one row of a
	pa, pb     []T
	sum        []T
	bufN       int64
	scratch    []T
	coordinate []int64
}

func newWindows[T num](y, a, b *Tensor, at []window.Phase, m, n, k int64) *windows[T] {
	mb, nb, kb := roundUp(min(m, mBlock), mTile), roundUp(min(n, nBlock), nTile), min(k, kBlock)
	w := &windows[T]{y: y, a: a, b: b, at: at, m: m, k: k, bufN: nb,
		pa: make([]T, mb*kb), pb: make([]T, nb*kb), sum: make([]T, mb*nb), scratch: make([]T, max(mb, nb, kb)),
		coordinate: make([]int64, len(at))}
	w.rowA = newNest(a.Shape[1:], false, cursor{0, a.Strides[1:]})
	w.cols = newNest(append([]int64{y.Shape[0]}, y.Shape[2:]...), false, cursor{y.Offset, append([]int64{y.Strides[0]}, y.Strides[2:]...)})
	return w
}

// block computes n columns of all rows.
func (w *windows[T]) block(col, n int64) {
	for row := int64(0); row < w.m; row += mBlock {
		m := min(mBlock, w.m-row)
		clear(w.sum)
		for k := int64(0); k < w.k; k += kBlock {
			depth := min(kBlock, w.k-k)
			w.packRows(row, m, k, depth)
			w.packWindows(col, n, k, depth)
			for i := int64(0); i < m; i += mTile {
				for j := int64(0); j < n; j += nTile {
					tile(w.sum[i*w.bufN+j:], w.bufN, w.pa[i*depth:(i+mTile)*depth], w.pb[j*depth:(j+nTile)*depth])
				}
			}
		}
		for i := range m {
			from := int64(0)
			w.cols.each(col, col+n, n, func(off []int64, run int64) {
				store(w.y, off[0]+(row+i)*w.y.Strides[1], w.cols.inner(0), w.sum[i*w.bufN+from:i*w.bufN+from+run])
				from += run
			})
		}
	}
}

// packRows is pack of rows of operand 1.
func (w *windows[T]) packRows(row, m, k, depth int64) {
	clear(w.pa)
	for i := range m {
		dst := w.pa[i/mTile*mTile*depth+i%mTile:]
		at := int64(0)
		w.rowA.each(k, k+depth, depth, func(off []int64, run int64) {
			load(w.scratch[:run], w.a, w.a.Offset+(row+i)*w.a.Strides[0]+off[0], w.rowA.inner(0))
			for _, v := range w.scratch[:run] {
				dst[at*mTile] = v
				at++
			}
		})
	}
}

// packWindows packs the elements under places k, k+1, ... of windows col, col+1, ...,
// zeros where there is none.
func (w *windows[T]) packWindows(col, n, k, depth int64) {
	clear(w.pb)
	rank := len(w.at)
	taps := slices.Clone(w.a.Shape[2:])
	inner := int64(1) // windows of a run along the last dimension
	if rank > 0 {
		inner = w.y.Shape[1+rank]
	}
	for p := range depth {
		channel := k + p
		for d := rank - 1; d >= 0; d-- {
			w.coordinate[d] = w.at[d].Start + channel%taps[d]*w.at[d].TapMove
			channel /= taps[d]
		}
		for j := int64(0); j < n; {
			window := col + j
			first := window % inner
			run := min(inner-first, n-j)
			window /= inner
			off, inside := w.b.Offset+channel*w.b.Strides[1], true
			for d := rank - 2; d >= 0; d-- {
				i := w.coordinate[d] + window%w.y.Shape[2+d]*w.at[d].Move
				window /= w.y.Shape[2+d]
				inside = inside && i >= 0 && i < w.b.Shape[2+d]
				off += i * w.b.Strides[2+d]
			}
			if inside {
				w.line(p, j, run, off+window*w.b.Strides[0], first, depth)
			}
			j += run
		}
	}
}

// line packs the elements of windows first, first+1, ... along the last dimension.
func (w *windows[T]) line(p, j, run, off, first, depth int64) {
	stride, lo, hi := int64(0), int64(0), run
	if d := len(w.at) - 1; d >= 0 {
		move, size := w.at[d].Move, w.b.Shape[2+d]
		begin := w.coordinate[d] + first*move
		if begin < 0 {
			lo = min(run, (-begin+move-1)/move)
		}
		hi = lo
		if begin+lo*move < size {
			hi = min(run, (size-1-begin)/move+1)
		}
		stride = move * w.b.Strides[2+d]
		off += begin * w.b.Strides[2+d]
	}
	v := w.scratch[:hi-lo]
	load(v, w.b, off+lo*stride, stride)
	for i := range v {
		at := j + lo + int64(i)
		w.pb[at/nTile*nTile*depth+p*nTile+at%nTile] = v[i]
	}
}
