package hostops

import (
	"slices"

	"github.com/seed-ee968945/concert/internal/attr"
)

// Block sizes of the matrix product. A panel of operand a (mBlock x kBlock), one of
// b (kBlock x nBlock) and the accumulators stay in the second-level cache of one
// core together (320 KiB in float32).
const (
	mBlock = 128
	kBlock = 256
	nBlock = 128
	mTile  = 4 // rows of the register tile
	nTile  = 2 // columns: 8 accumulators, 6 operands and a product fill 15 registers; see vectorTile
)

func runMatmul(c *call) (job, error) {
	return matmul(c, &c.ins[0], &c.ins[1], 0, nil, attr.Number{}.Or(1), attr.Number{}.Or(0))
}

// runAddmm computes beta*c + alpha*(a@b); c broadcasts to the result, and is not
// read if beta is 0.
func runAddmm(c *call) (job, error) {
	alpha, beta := c.numAttr("alpha").Or(1), c.numAttr("beta").Or(1)
	if c.bad != nil {
		return nil, c.bad
	}
	return matmul(c, &c.ins[1], &c.ins[2], 1, &c.ins[0], alpha, beta)
}

// matmul multiplies the last two dimensions of a and b, operands first and
// first+1; leading dimensions are batches and must be equal.
func matmul(c *call, a, b *Tensor, first int, bias *Tensor, alpha, beta attr.Number) (job, error) {
	out := &c.outs[0]
	r := len(a.Shape)
	if r < 2 {
		return nil, c.inErr(first, ErrShape, "%v, want at least two dimensions", a.Shape)
	}
	if len(b.Shape) != r || !slices.Equal(a.Shape[:r-2], b.Shape[:r-2]) || a.Shape[r-1] != b.Shape[r-2] {
		return nil, c.inErr(first+1, ErrShape, "%v does not multiply with %v", b.Shape, a.Shape)
	}
	want := append(slices.Clone(a.Shape[:r-1]), b.Shape[r-1])
	if !slices.Equal(out.Shape, want) {
		return nil, c.outErr(0, ErrShape, "%v, want %v", out.Shape, want)
	}
	if bias != nil {
		s, ok := bias.broadcast(out.Shape)
		if !ok {
			return nil, c.inErr(0, ErrShape, "%v does not broadcast to the result's %v", bias.Shape, out.Shape)
		}
		bias = &Tensor{DType: bias.DType, Shape: out.Shape, Strides: s, Offset: bias.Offset, Data: bias.Data}
	} else {
		bias, beta = out, attr.Number{}.Or(0) // unread
	}
	switch operandDomain(c, out.DType, alpha, beta) {
	case domF64:
		return multiply(&product[float64]{out, a, b, bias, alpha.F, beta.F}), nil
	case domF32:
		return multiply(&product[float32]{out, a, b, bias, float32(alpha.F), float32(beta.F)}), nil
	}
	return multiply(&product[int64]{out, a, b, bias, alpha.I, beta.I}), nil
}

// product is out = beta*bias + alpha*(a@b) on checked tensors; bias has the shape
// of out and is not read if beta is 0.
type product[T num] struct {
	out, a, b, bias *Tensor
	alpha, beta     T
}

// multiply computes every batch in panels of mBlock rows. Each element is the sum
// over ascending k, one rounded multiplication and one rounded addition at a time,
// whatever the strides, the block sizes and the number of goroutines.
func multiply[T num](p *product[T]) job {
	r := len(p.out.Shape)
	m, n, k := p.a.Shape[r-2], p.b.Shape[r-1], p.a.Shape[r-1]
	var cur []cursor
	for _, t := range []*Tensor{p.out, p.a, p.b, p.bias} {
		cur = append(cur, cursor{t.Offset, t.Strides[:r-2]})
	}
	batches := newNest(p.out.Shape[:r-2], false, cur...)
	panels := (m + mBlock - 1) / mBlock
	items := batches.size() * panels
	if n == 0 {
		items = 0
	}
	width, tile := tileOf[T]()
	part := func(mem *memory, lo, hi int64) {
		w := panel[T]{p: p, n: n, k: k, width: width, tile: tile}
		w.room(mem, m)
		batch := batches.walk(mem, 1)
		for item := lo; item < hi; {
			end := min(hi, (item/panels+1)*panels)
			batch.from(item/panels, item/panels+1)
			batch.next()
			for ; item < end; item++ {
				row := item % panels * mBlock
				w.rows(batch.off, row, min(mBlock, m-row))
			}
		}
	}
	return func() error { parallel(items, min(m, mBlock)*n*max(k, 1)/2, part); return nil }
}

// panel holds the buffers with which one goroutine multiplies.
type panel[T num] struct {
	p       *product[T]
	n, k    int64
	a, b    []T // packed operands
	sum     []T // accumulators, rows of bufN
	bufN    int64
	scratch []T
	width   int64 // columns of the register tile
	tile    func(sum []T, stride int64, a, b []T)
}

// tileOf is the width of the register tile, and what computes one.
func tileOf[T num]() (int64, func(sum []T, stride int64, a, b []T)) {
	f := tile[T]
	if v, ok := any(&f).(*func([]float32, int64, []float32, []float32)); ok && vectorTile() > 0 {
		*v = tileVector
		return vectorTile(), f
	}
	return nTile, f
}

// room takes the buffers for products of m rows.
func (w *panel[T]) room(mem *memory, m int64) {
	mb, nb, kb := roundUp(min(m, mBlock), mTile), roundUp(min(w.n, nBlock), w.width), min(w.k, kBlock)
	w.bufN = nb
	w.a, w.b, w.sum, w.scratch = take[T](mem, mb*kb), take[T](mem, nb*kb), take[T](mem, mb*nb), take[T](mem, max(mb, nb, kb))
}

func roundUp(v, to int64) int64 { return (v + to - 1) / to * to }

// rows computes rows row..row+m of one batch; off holds the batch's first element
// of out, a, b and bias.
func (w *panel[T]) rows(off []int64, row, m int64) {
	a, b := w.p.a, w.p.b
	r := len(a.Shape)
	sam, sak := a.Strides[r-2], a.Strides[r-1]
	sbk, sbn := b.Strides[r-2], b.Strides[r-1]
	for col := int64(0); col < w.n; col += nBlock {
		n := min(nBlock, w.n-col)
		clear(w.sum)
		for k := int64(0); k < w.k; k += kBlock {
			depth := min(kBlock, w.k-k)
			pack(w.a, w.scratch, a, off[1]+row*sam+k*sak, sam, sak, m, depth, mTile)
			pack(w.b, w.scratch, b, off[2]+k*sbk+col*sbn, sbn, sbk, n, depth, w.width)
			for i := int64(0); i < m; i += mTile {
				for j := int64(0); j < n; j += w.width {
					w.tile(w.sum[i*w.bufN+j:], w.bufN, w.a[i*depth:(i+mTile)*depth], w.b[j*depth:(j+w.width)*depth])
				}
			}
		}
		w.finish(off, row, m, col, n)
	}
}

// pack widens an n x depth block into strips of the given width: strip s holds, for
// each k, elements s*width ... of the first dimension side by side, zeros beyond n.
// It reads along the dimension in which the operand is denser.
func pack[T num](dst, buf []T, t *Tensor, off, sn, sk, n, depth, width int64) {
	full := roundUp(n, width)
	if full != n {
		clear(dst[(full-width)*depth : full*depth])
	}
	if absU(sk) <= absU(sn) {
		for i := range n {
			load(buf[:depth], t, off+i*sn, sk)
			d := dst[i/width*width*depth+i%width:]
			for k, v := range buf[:depth] {
				d[int64(k)*width] = v
			}
		}
		return
	}
	for k := range depth {
		load(buf[:n], t, off+k*sk, sn)
		for i := int64(0); i < n; i += width {
			d := dst[i*depth+k*width:]
			for j, v := range buf[i:min(i+width, n)] {
				d[j] = v
			}
		}
	}
}

// tile adds the product of a packed strip of mTile rows and one of nTile columns to
// the accumulators at sum. The conversions forbid fused multiply-add, which Go would
// use on some machines only.
func tile[T num](sum []T, stride int64, a, b []T) {
	r0 := sum[0:2]
	r1 := sum[stride : stride+2]
	r2 := sum[2*stride : 2*stride+2]
	r3 := sum[3*stride : 3*stride+2]
	c00, c01 := r0[0], r0[1]
	c10, c11 := r1[0], r1[1]
	c20, c21 := r2[0], r2[1]
	c30, c31 := r3[0], r3[1]
	for len(a) >= mTile && len(b) >= nTile {
		b0, b1 := b[0], b[1]
		x := a[0]
		c00 += T(x * b0)
		c01 += T(x * b1)
		x = a[1]
		c10 += T(x * b0)
		c11 += T(x * b1)
		x = a[2]
		c20 += T(x * b0)
		c21 += T(x * b1)
		x = a[3]
		c30 += T(x * b0)
		c31 += T(x * b1)
		a, b = a[mTile:], b[nTile:]
	}
	r0[0], r0[1] = c00, c01
	r1[0], r1[1] = c10, c11
	r2[0], r2[1] = c20, c21
	r3[0], r3[1] = c30, c31
}

// finish scales, adds the bias and rounds a block of accumulators into the result.
func (w *panel[T]) finish(off []int64, row, m, col, n int64) {
	p := w.p
	r := len(p.out.Strides)
	for i := range m {
		sum := w.sum[i*w.bufN : i*w.bufN+n]
		if p.alpha != 1 {
			for j := range sum {
				sum[j] *= p.alpha
			}
		}
		if p.beta != 0 {
			bias := w.scratch[:n]
			load(bias, p.bias, off[3]+(row+i)*p.bias.Strides[r-2]+col*p.bias.Strides[r-1], p.bias.Strides[r-1])
			for j, v := range bias {
				sum[j] += T(p.beta * v)
			}
		}
		store(p.out, off[0]+(row+i)*p.out.Strides[r-2]+col*p.out.Strides[r-1], p.out.Strides[r-1], sum)
	}
}
