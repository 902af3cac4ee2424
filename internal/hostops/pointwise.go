package hostops

import (
	"github.com/seed-ee968945/concert/internal/attr"
	"github.com/seed-ee968945/concert/internal/dtype"
)

// chunk is the number of elements a pointwise kernel handles at once: its buffers
// stay in the first-level cache, and the cost of choosing loops by element type is
// spread over them.
const chunk = 512

// elementwise computes out = f(operands...) elementwise in the domain T. Every operand of
// a chunk is loaded before its results are stored, and f reads elements before it writes
// those of the same index, which is what makes exact aliases of an operand safe.
type elementwise[T num] struct {
	*nest
	out elements[T]
	ins []elements[T]
	f   func(dst, a, b, c []T)
}

// elements is a tensor whose elements are computed with as T.
type elements[T num] struct {
	*Tensor
	flat   []T   // all of its memory, nil where that does not hold such numbers
	stride int64 // along a run
}

func elementsOf[T num](t *Tensor, stride int64) elements[T] {
	return elements[T]{t, view[T](t, 0, int64(len(t.Data)/t.DType.Size())), stride}
}

// at is n elements from number off on: where they are, or in buf.
func (e *elements[T]) at(off, n int64, buf []T) []T {
	if e.flat != nil && e.stride == 1 {
		return e.flat[off : off+n]
	}
	load(buf[:n], e.Tensor, off, e.stride)
	return buf[:n]
}

func pointwise[T num](c *call, ins []*Tensor, f func(dst, a, b, c []T)) (*elementwise[T], error) {
	out := &c.outs[0]
	cur := []cursor{cursorOf(out)}
	for i, t := range ins {
		s, ok := t.broadcast(out.Shape)
		if !ok {
			return nil, c.inErr(i, ErrShape, "%v does not broadcast to the result's %v", t.Shape, out.Shape)
		}
		cur = append(cur, cursor{t.Offset, s})
	}
	p := &elementwise[T]{nest: newNest(out.Shape, true, cur...), f: f}
	p.out = elementsOf[T](out, p.inner(0))
	for i, t := range ins {
		p.ins = append(p.ins, elementsOf[T](t, p.inner(i+1)))
	}
	return p, nil
}

// job is the computation; a kernel may pass on the error of pointwise.
func (p *elementwise[T]) job(err error) (job, error) {
	if err != nil {
		return nil, err
	}
	part, n := p.part, p.size()
	return func() error { parallel(n, 4, part); return nil }, nil
}

// part computes elements lo to hi.
func (p *elementwise[T]) part(m *memory, lo, hi int64) {
	n := min(hi-lo, chunk)
	var bufs, src [3][]T
	var full [3]struct{ at, n int64 } // the buffer has n times the element at-1
	for i := range p.ins {
		if e := &p.ins[i]; e.flat == nil || e.stride != 1 {
			bufs[i] = take[T](m, n)
		}
	}
	var dst []T
	direct := p.out.flat != nil && p.out.stride == 1
	if !direct {
		dst = take[T](m, n)
	}
	k := p.walk(m, chunk)
	for k.from(lo, hi); k.next(); {
		for i := range p.ins {
			e, at := &p.ins[i], k.off[i+1]
			if e.stride != 0 {
				src[i] = e.at(at, k.n, bufs[i])
				continue
			}
			if full[i].at != at+1 || full[i].n < k.n {
				load(bufs[i][:k.n], e.Tensor, at, 0)
				full[i].at, full[i].n = at+1, k.n
			}
			src[i] = bufs[i][:k.n]
		}
		if direct {
			p.f(p.out.flat[k.off[0]:k.off[0]+k.n], src[0], src[1], src[2])
			continue
		}
		p.f(dst[:k.n], src[0], src[1], src[2])
		store(p.out.Tensor, k.off[0], p.out.stride, dst[:k.n])
	}
}

// unaryOp gives an operation of one operand in each domain. A nil i64 means that
// integers are computed as floats, a nil u64 that the bits are those of i64.
type unaryOp struct {
	f32 func(dst, a []float32)
	f64 func(dst, a []float64)
	i64 func(dst, a []int64)
	u64 func(dst, a []uint64)
}

func runUnary(c *call, op unaryOp) (job, error) {
	out, x := &c.outs[0], &c.ins[0]
	dom := domainOf(out.DType, x.DType)
	if dom.isInt() && op.i64 == nil {
		dom = domF64
	}
	switch dom {
	case domU64:
		if op.u64 != nil {
			return runUnaryIn(c, op.u64)
		}
	case domF64:
		return runUnaryIn(c, op.f64)
	case domF32:
		return runUnaryIn(c, op.f32)
	}
	return runUnaryIn(c, op.i64)
}

func runUnaryIn[T num](c *call, f func(dst, a []T)) (job, error) {
	p, err := pointwise(c, []*Tensor{&c.ins[0]}, func(d, a, _, _ []T) { f(d, a) })
	return p.job(err)
}

// binaryOp gives an operation of two operands in each domain. A nil i64 means that
// integers are computed as floats, a nil u64 that the bits are those of i64.
type binaryOp struct {
	f32   func(dst, a, b []float32)
	f64   func(dst, a, b []float64)
	i64   func(dst, a, b []int64)
	u64   func(dst, a, b []uint64)
	alpha bool // the second term is multiplied by attribute alpha
	// scalar, if set, may offer a faster or more exact form for a constant second operand.
	scalar func(b float64) (unaryOp, bool)
}

// runBinary reads the attributes scalar, reverse and alpha. With one operand the
// other is the scalar: op(x, scalar), or op(scalar, x) if reverse is set; with two
// operands reverse swaps them.
func runBinary(c *call, op binaryOp) (job, error) {
	out := &c.outs[0]
	scalar, alpha, reverse := c.numAttr("scalar"), c.numAttr("alpha").Or(1), c.boolAttr("reverse", false)
	if c.bad != nil {
		return nil, c.bad
	}
	if len(c.ins) == 1 && !scalar.Set {
		return nil, c.fail(ErrArity, "got one operand and no attribute scalar for the other")
	}
	if len(c.ins) == 2 && scalar.Set {
		return nil, c.fail(ErrArity, "got two operands and attribute scalar as well")
	}
	if !op.alpha {
		alpha = attr.Number{}.Or(1)
	}
	dom := operandDomain(c, out.DType, scalar, alpha)
	if dom.isInt() && op.i64 == nil {
		dom = domF64
	}
	if scalar.Set && !reverse && op.scalar != nil && !dom.isInt() {
		if u, ok := op.scalar(scalar.F); ok {
			return runUnary(c, u)
		}
	}
	switch dom {
	case domF64:
		return runBinaryIn(c, op.f64, scalar, alpha, reverse)
	case domF32:
		return runBinaryIn(c, op.f32, scalar, alpha, reverse)
	case domU64:
		if op.u64 != nil {
			return runBinaryIn(c, op.u64, scalar, alpha, reverse)
		}
	}
	return runBinaryIn(c, op.i64, scalar, alpha, reverse)
}

// operandDomain is the domain of a pointwise operation: the operands decide, a
// float scalar makes integers floats, and a float result makes integers floats.
func operandDomain(c *call, out dtype.DType, scalars ...attr.Number) domain {
	ts := []dtype.DType{out}
	for i := range c.ins {
		ts = append(ts, c.ins[i].DType)
	}
	dom := domainOf(ts...)
	for _, s := range scalars {
		if dom.isInt() && s.IsFloat {
			dom = domF32
		}
	}
	return dom
}

func runBinaryIn[T num](c *call, f func(dst, a, b []T), scalar, alpha attr.Number, reverse bool) (job, error) {
	ins := []*Tensor{&c.ins[0]}
	var fixed []T
	if scalar.Set {
		fixed = make([]T, min(c.outs[0].NumElems(), chunk))
		for i := range fixed {
			fixed[i] = as[T](scalar)
		}
	} else {
		ins = append(ins, &c.ins[1])
	}
	al := as[T](alpha)
	p, err := pointwise(c, ins, func(d, a, b, _ []T) {
		if fixed != nil {
			b = fixed[:len(d)]
		}
		if reverse {
			a, b = b, a
		}
		if al != 1 {
			for i := range d {
				d[i] = al * b[i]
			}
			b = d
		}
		f(d, a, b)
	})
	if err == nil && al != 1 {
		p.out.flat = nil // f needs a result that is no operand
	}
	return p.job(err)
}

func runClamp(c *call) (job, error) {
	lo, hi := c.numAttr("min"), c.numAttr("max")
	if c.bad != nil {
		return nil, c.bad
	}
	if !lo.Set && !hi.Set {
		return nil, c.fail(ErrAttr, "neither min nor max is given")
	}
	switch operandDomain(c, c.outs[0].DType, lo, hi) {
	case domF64:
		return clampIn[float64](c, lo, hi)
	case domF32:
		return clampIn[float32](c, lo, hi)
	case domU64:
		return clampIn[uint64](c, lo, hi)
	}
	return clampIn[int64](c, lo, hi)
}

// clampIn keeps NaN; where min exceeds max the result is max, as in PyTorch.
func clampIn[T num](c *call, lo, hi attr.Number) (job, error) {
	l, h := as[T](lo), as[T](hi)
	p, err := pointwise(c, []*Tensor{&c.ins[0]}, func(d, a, _, _ []T) {
		for i, v := range a {
			if lo.Set && v < l {
				v = l
			}
			if hi.Set && v > h {
				v = h
			}
			d[i] = v
		}
	})
	return p.job(err)
}

func runWhere(c *call) (job, error) {
	if t := c.ins[0].DType; t != dtype.Bool && t != dtype.U8 {
		return nil, c.inErr(0, ErrDType, "the condition is %v, want bool", t)
	}
	switch operandDomain(c, c.outs[0].DType) {
	case domF64:
		return whereIn[float64](c)
	case domF32:
		return whereIn[float32](c)
	}
	return whereIn[int64](c)
}

func whereIn[T num](c *call) (job, error) {
	p, err := pointwise(c, []*Tensor{&c.ins[0], &c.ins[1], &c.ins[2]}, func(d, cond, yes, no []T) {
		yes, no = yes[:len(cond)], no[:len(cond)]
		for i, v := range cond {
			x := no[i]
			if v != 0 {
				x = yes[i]
			}
			d[i] = x
		}
	})
	return p.job(err)
}

func runFma(c *call) (job, error) {
	switch operandDomain(c, c.outs[0].DType) {
	case domF64:
		return fmaIn[float64](c, fma64)
	case domF32:
		return fmaIn[float32](c, fma32)
	}
	return fmaIn[int64](c, func(a, b, z int64) int64 { return a*b + z })
}

func fmaIn[T num](c *call, f func(a, b, z T) T) (job, error) {
	p, err := pointwise(c, []*Tensor{&c.ins[0], &c.ins[1], &c.ins[2]}, func(d, a, b, z []T) {
		for i, v := range a {
			d[i] = f(v, b[i], z[i])
		}
	})
	return p.job(err)
}

func runGelu(c *call) (job, error) {
	switch approx := c.strAttr("approximate", "none"); {
	case c.bad != nil:
		return nil, c.bad
	case approx == "none":
		return runUnary(c, opGelu)
	case approx == "tanh":
		return runUnary(c, opGeluTanh)
	default:
		return nil, c.fail(ErrAttr, "approximate=%q, want \"none\" or \"tanh\"", approx)
	}
}
