package hostops

import "slices"

// Reduce combines ins element by element into out in the order in which they are
// given: reduce is sum, avg, product, min or max. All tensors have one shape and
// element type. bf16 and f16 are combined in float32 and rounded once, f32 in
// float32, f64 in float64, integers in int64; avg divides before that rounding, and
// truncates for integers. out may be one of ins.
func Reduce(reduce string, out Tensor, ins []Tensor) error {
	return ReduceRange(reduce, out, ins, 0, out.NumElems())
}

// ReduceRange is Reduce for the row-major element indices lo <= i < hi only; the
// other elements of out stay as they are.
func ReduceRange(reduce string, out Tensor, ins []Tensor, lo, hi int64) error {
	c := &call{op: "reduce " + reduce, outs: []Tensor{out}, ins: ins}
	if len(ins) == 0 {
		return c.fail(ErrArity, "no operands")
	}
	if err := c.validate(); err != nil {
		return err
	}
	for i := range ins {
		if err := c.sameType(i); err != nil {
			return err
		}
		if !slices.Equal(out.Shape, ins[i].Shape) {
			return c.inErr(i, ErrShape, "%v, but the result is %v", ins[i].Shape, out.Shape)
		}
	}
	if lo < 0 || hi < lo || hi > out.NumElems() {
		return c.outErr(0, ErrBounds, "no range [%d, %d) in %v", lo, hi, out.Shape)
	}
	switch domainOf(out.DType) {
	case domF64:
		return reduceRanks(c, reduce, lo, hi, func(v, n float64) float64 { return v / n })
	case domF32:
		return reduceRanks(c, reduce, lo, hi, func(v, n float32) float32 { return v / n })
	case domU64:
		return reduceRanks(c, reduce, lo, hi, func(v, n uint64) uint64 { return v / n })
	}
	return reduceRanks(c, reduce, lo, hi, func(v, n int64) int64 { return v / n })
}

func reduceRanks[T num](c *call, reduce string, lo, hi int64, divide func(v, n T) T) error {
	var f func(dst, a, b []T)
	switch reduce {
	case "sum", "avg":
		f = add[T]
	case "product":
		f = mul[T]
	case "min":
		f = minimum[T]
	case "max":
		f = maximum[T]
	default:
		return c.fail(ErrAttr, "reduce=%q, want sum, avg, product, min or max", reduce)
	}
	out := &c.outs[0]
	cur := []cursor{cursorOf(out)}
	for i := range c.ins {
		cur = append(cur, cursorOf(&c.ins[i]))
	}
	w := newNest(out.Shape, false, cur...)
	n := T(len(c.ins))
	parallel(hi-lo, int64(4*len(c.ins)), func(mem *memory, a, b int64) {
		sum, x := take[T](mem, min(b-a, chunk)), take[T](mem, min(b-a, chunk))
		w.each(lo+a, lo+b, chunk, func(off []int64, m int64) {
			load(sum[:m], &c.ins[0], off[1], w.inner(1))
			for i := 1; i < len(c.ins); i++ {
				load(x[:m], &c.ins[i], off[i+1], w.inner(i+1))
				f(sum[:m], sum[:m], x[:m])
			}
			if reduce == "avg" {
				for i, v := range sum[:m] {
					sum[i] = divide(v, n)
				}
			}
			store(out, off[0], w.inner(0), sum[:m])
		})
	})
	return nil
}
