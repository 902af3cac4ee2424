package hostops

import "github.com/seed-ee968945/concert/internal/dtype"

// runFull writes attribute value (int, float or bool) to every element.
func runFull(c *call) (job, error) {
	v := c.numAttr("value")
	if c.bad != nil {
		return nil, c.bad
	}
	if !v.Set {
		return nil, c.fail(ErrAttr, "no attribute value")
	}
	if v.IsFloat && c.outs[0].DType == dtype.F32 {
		return repeat(c, float32(v.F)), nil // copied, not rounded one by one
	}
	if v.IsFloat {
		return repeat(c, v.F), nil
	}
	return repeat(c, v.I), nil
}

// repeat writes one number to every element.
func repeat[T num](c *call, v T) job {
	out := &c.outs[0]
	w := newNest(out.Shape, true, cursorOf(out))
	part := func(m *memory, lo, hi int64) {
		buf := take[T](m, min(hi-lo, chunk))
		for i := range buf {
			buf[i] = v
		}
		k := w.walk(m, chunk)
		for k.from(lo, hi); k.next(); {
			store(out, k.off[0], w.inner(0), buf[:k.n])
		}
	}
	return func() error { parallel(w.size(), 1, part); return nil }
}

// runIota writes start, start+step, ... to a tensor of rank 1.
func runIota(c *call) error {
	start, step := c.numAttr("start").Or(0), c.numAttr("step").Or(1)
	if c.bad != nil {
		return c.bad
	}
	if len(c.outs[0].Shape) != 1 {
		return c.outErr(0, ErrShape, "%v, want one dimension", c.outs[0].Shape)
	}
	if start.IsFloat || step.IsFloat {
		return fill(c, func(i int64) float64 { return start.F + float64(float64(i)*step.F) })
	}
	return fill(c, func(i int64) int64 { return start.I + i*step.I })
}

// runConstant copies the data that the attribute holds.
func runConstant(c *call) (job, error) {
	data, err := c.attrs.Bytes("data")
	if err != nil {
		return nil, c.fail(ErrAttr, "%v", err)
	}
	out := &c.outs[0]
	if want := out.NumElems() * int64(out.DType.Size()); int64(len(data)) != want {
		return nil, c.outErr(0, ErrShape, "%d bytes of data, %d are to fill", len(data), want)
	}
	return copying(out, &Tensor{DType: out.DType, Shape: out.Shape, Strides: RowMajor(out.Shape), Data: data}), nil
}

// fill writes f(row-major index) to every element of the result.
func fill[T num](c *call, f func(i int64) T) error {
	out := &c.outs[0]
	w := newNest(out.Shape, false, cursorOf(out))
	buf := make([]T, chunk)
	i := int64(0)
	w.each(0, w.size(), chunk, func(off []int64, n int64) {
		for k := range buf[:n] {
			buf[k] = f(i)
			i++
		}
		store(out, off[0], w.inner(0), buf[:n])
	})
	return nil
}

// runRand writes uniform numbers in [0, 1), 24 bits each. The kernel is a pure
// function of attribute seed and the element's index: whoever runs a graph draws a
// new seed for every rank and replay and passes it, so the attribute is required
// here although the graph may leave it out.
//
// The generator is the counter form of SplitMix64 (Steele, Lea, Flood: Fast
// splittable pseudorandom number generators, 2014).
func runRand(c *call) error {
	seed := c.intAttr("seed", 0)
	if c.bad != nil {
		return c.bad
	}
	if !c.attrs.Has("seed") {
		return c.fail(ErrAttr, "no attribute seed: the caller draws one for each rank and run")
	}
	if !c.outs[0].DType.IsFloat() {
		return c.outErr(0, ErrDType, "random numbers are floats, not %v", c.outs[0].DType)
	}
	// bfloat16 keeps 8 significant bits: rounding to nearest could give 1.
	bits := min(uint(24), uint(c.outs[0].DType.Mantissa())+1)
	return fill(c, func(i int64) float64 {
		z := SplitMix(SplitMix(uint64(seed)) + uint64(i)*0x9e3779b97f4a7c15)
		return float64(z>>(64-bits)) / float64(uint64(1)<<bits)
	})
}

// SplitMix is a step of SplitMix64.
func SplitMix(z uint64) uint64 {
	z += 0x9e3779b97f4a7c15
	z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
	z = (z ^ z>>27) * 0x94d049bb133111eb
	return z ^ z>>31
}
