package hostops

import "github.com/seed-ee968945/concert/internal/dtype"

// chunk is the number of elements a pointwise kernel handles at once: its buffers
// stay in the first-level cache, and the cost of choosing loops by element type is
// spread over them.
const chunk = 512

// pointwise computes out = f(ins...) elementwise in the domain T. Every operand of
// a chunk is loaded before its results are stored, which is what makes exact
// aliases of an operand safe.
func pointwise[T num](c *call, out *Tensor, ins []*Tensor, f func(dst []T, src [][]T)) error {
	cur := []cursor{cursorOf(out)}
	for i, t := range ins {
		s, ok := t.broadcast(out.Shape)
		if !ok {
			return c.inErr(i, ErrShape, "%v does not broadcast to the result's %v", t.Shape, out.Shape)
		}
		cur = append(cur, cursor{t.Offset, s})
	}
	w := newNest(out.Shape, true, cur...)
	parallel(w.size(), 4, func(lo, hi int64) {
		n := min(hi-lo, chunk)
		dst := make([]T, n)
		bufs := make([][]T, len(ins))
		src := make([][]T, len(ins))
		for i := range bufs {
			bufs[i] = make([]T, n)
		}
		repeats := make([]int64, len(ins)) // the element that bufs[i] is full of, plus one
		w.each(lo, hi, chunk, func(off []int64, n int64) {
			for i, t := range ins {
				at, stride := off[i+1], w.inner(i+1)
				if stride == 1 {
					if src[i] = view[T](t, at, n); src[i] != nil {
						continue
					}
				}
				src[i] = bufs[i][:n]
				if stride != 0 {
					load(src[i], t, at, stride)
				} else if repeats[i] != at+1 {
					load(bufs[i], t, at, 0)
					repeats[i] = at + 1
				}
			}
			f(dst[:n], src)
			store(out, off[0], w.inner(0), dst[:n])
		})
	})
	return nil
}

// unaryOp gives an operation of one operand in each domain. A nil i64 means that
// integers are computed as floats, a nil u64 that the bits are those of i64.
type unaryOp struct {
	f32 func(dst, a []float32)
	f64 func(dst, a []float64)
	i64 func(dst, a []int64)
	u64 func(dst, a []uint64)
}

func runUnary(c *call, op unaryOp) error {
	out, x := &c.outs[0], &c.ins[0]
	dom := domainOf(out.DType, x.DType)
	if dom.isInt() && op.i64 == nil {
		dom = domF64
	}
	ins := []*Tensor{x}
	switch dom {
	case domU64:
		if op.u64 != nil {
			return pointwise(c, out, ins, func(d []uint64, s [][]uint64) { op.u64(d, s[0]) })
		}
	case domF64:
		return pointwise(c, out, ins, func(d []float64, s [][]float64) { op.f64(d, s[0]) })
	case domF32:
		return pointwise(c, out, ins, func(d []float32, s [][]float32) { op.f32(d, s[0]) })
	}
	return pointwise(c, out, ins, func(d []int64, s [][]int64) { op.i64(d, s[0]) })
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
func runBinary(c *call, op binaryOp) error {
	out := &c.outs[0]
	scalar, alpha, reverse := c.numAttr("scalar"), c.numAttr("alpha").or(1), c.boolAttr("reverse", false)
	if c.bad != nil {
		return c.bad
	}
	if len(c.ins) == 1 && !scalar.set {
		return c.fail(ErrArity, "got one operand and no attribute scalar for the other")
	}
	if len(c.ins) == 2 && scalar.set {
		return c.fail(ErrArity, "got two operands and attribute scalar as well")
	}
	if !op.alpha {
		alpha = number{}.or(1)
	}
	dom := operandDomain(c, out.DType, scalar, alpha)
	if dom.isInt() && op.i64 == nil {
		dom = domF64
	}
	if scalar.set && !reverse && op.scalar != nil && !dom.isInt() {
		if u, ok := op.scalar(scalar.f); ok {
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
func operandDomain(c *call, out dtype.DType, scalars ...number) domain {
	ts := []dtype.DType{out}
	for i := range c.ins {
		ts = append(ts, c.ins[i].DType)
	}
	dom := domainOf(ts...)
	for _, s := range scalars {
		if dom.isInt() && s.isFloat {
			dom = domF32
		}
	}
	return dom
}

func runBinaryIn[T num](c *call, f func(dst, a, b []T), scalar, alpha number, reverse bool) error {
	al := as[T](alpha)
	var fixed []T
	ins := []*Tensor{&c.ins[0]}
	if scalar.set {
		fixed = make([]T, chunk)
		for i := range fixed {
			fixed[i] = as[T](scalar)
		}
	} else {
		ins = append(ins, &c.ins[1])
	}
	return pointwise(c, &c.outs[0], ins, func(d []T, s [][]T) {
		a, b := s[0], fixed[:min(len(d), len(fixed))]
		if len(s) == 2 {
			b = s[1]
		}
		if reverse {
			a, b = b, a
		}
		if al != 1 {
			// d is free until f writes it, and f reads element i before writing it.
			for i := range d {
				d[i] = al * b[i]
			}
			b = d
		}
		f(d, a, b)
	})
}

func runClamp(c *call) error {
	lo, hi := c.numAttr("min"), c.numAttr("max")
	if c.bad != nil {
		return c.bad
	}
	if !lo.set && !hi.set {
		return c.fail(ErrAttr, "neither min nor max is given")
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
func clampIn[T num](c *call, lo, hi number) error {
	l, h := as[T](lo), as[T](hi)
	return pointwise(c, &c.outs[0], []*Tensor{&c.ins[0]}, func(d []T, s [][]T) {
		for i, v := range s[0] {
			if lo.set && v < l {
				v = l
			}
			if hi.set && v > h {
				v = h
			}
			d[i] = v
		}
	})
}

func runWhere(c *call) error {
	if t := c.ins[0].DType; t != dtype.Bool && t != dtype.U8 {
		return c.inErr(0, ErrDType, "the condition is %v, want bool", t)
	}
	switch operandDomain(c, c.outs[0].DType) {
	case domF64:
		return whereIn[float64](c)
	case domF32:
		return whereIn[float32](c)
	}
	return whereIn[int64](c)
}

func whereIn[T num](c *call) error {
	return pointwise(c, &c.outs[0], []*Tensor{&c.ins[0], &c.ins[1], &c.ins[2]}, func(d []T, s [][]T) {
		for i, cond := range s[0] {
			d[i] = s[2][i]
			if cond != 0 {
				d[i] = s[1][i]
			}
		}
	})
}

func runFma(c *call) error {
	switch operandDomain(c, c.outs[0].DType) {
	case domF64:
		return fmaIn[float64](c, fma64)
	case domF32:
		return fmaIn[float32](c, fma32)
	}
	return fmaIn[int64](c, func(a, b, z int64) int64 { return a*b + z })
}

func fmaIn[T num](c *call, f func(a, b, z T) T) error {
	return pointwise(c, &c.outs[0], []*Tensor{&c.ins[0], &c.ins[1], &c.ins[2]}, func(d []T, s [][]T) {
		for i, a := range s[0] {
			d[i] = f(a, s[1][i], s[2][i])
		}
	})
}

func runGelu(c *call) error {
	switch approx := c.strAttr("approximate", "none"); {
	case c.bad != nil:
		return c.bad
	case approx == "none":
		return runUnary(c, opGelu)
	case approx == "tanh":
		return runUnary(c, opGeluTanh)
	default:
		return c.fail(ErrAttr, "approximate=%q, want \"none\" or \"tanh\"", approx)
	}
}
