package expect

import (
	"fmt"
	"math"
	"slices"

	"github.com/seed-ee968945/concert/internal/dtype"
	"github.com/seed-ee968945/concert/ir"
	"github.com/seed-ee968945/concert/ir/stablehlo"
	"github.com/seed-ee968945/concert/ir/stablehlo/mlir"
)

// Verify holds two tensors against an expectation. The error says where they differ.
func Verify(c *stablehlo.Check, actual, expected *mlir.Literal) error {
	if actual.DType != expected.DType || !slices.Equal(actual.Shape, expected.Shape) {
		return fmt.Errorf("expect_%s: %s%v, expected %s%v", c.Kind, actual.DType, actual.Shape, expected.DType, expected.Shape)
	}
	a, e, size := actual.Expand(), expected.Expand(), actual.DType.Size()
	bad, first := 0, -1
	for i := 0; i < len(a); i += size {
		if !equal(c, actual.DType, a[i:i+size], e[i:i+size]) {
			if bad++; first < 0 {
				first = i
			}
		}
	}
	if bad == 0 {
		return nil
	}
	return fmt.Errorf("expect_%s: %d of %d elements differ, the first at %v: %s, expected %s", c.Kind, bad, len(a)/size, index(first/size, actual.Shape),
		show(actual.DType, a[first:]), show(actual.DType, e[first:]))
}

// index is the place of element i in a shape.
func index(i int, shape []int64) []int64 {
	out := make([]int64, len(shape))
	for d := len(shape) - 1; d >= 0; d-- {
		out[d] = int64(i) % shape[d]
		i /= int(shape[d])
	}
	return out
}

// show prints an element.
func show(dt ir.DType, b []byte) string {
	switch {
	case dt.IsFloat():
		return fmt.Sprint(dtype.LoadFloat(dt, b))
	case dt == ir.U64:
		return fmt.Sprint(uint64(dtype.LoadInt(dt, b)))
	}
	return fmt.Sprint(dtype.LoadInt(dt, b))
}

// equal compares two elements as the operation of package check does.
func equal(c *stablehlo.Check, dt ir.DType, a, e []byte) bool {
	if !dt.IsFloat() {
		return slices.Equal(a, e)
	}
	x, y := dtype.LoadFloat(dt, a), dtype.LoadFloat(dt, e)
	switch c.Kind {
	case "almost_eq", "almost_eq_const":
		if x == y || math.IsNaN(x) && math.IsNaN(y) {
			return true
		}
		return !math.IsInf(x, 0) && !math.IsInf(y, 0) && math.Abs(x-y) <= c.Tolerance+c.Relative*math.Abs(y)
	case "close":
		d := ulps(dt, a, e)
		return d >= c.MinULP && d <= c.MaxULP
	}
	return x == y
}

// ulps is how many numbers of the type lie between two elements.
func ulps(dt ir.DType, a, e []byte) uint64 {
	x, y := dtype.LoadFloat(dt, a), dtype.LoadFloat(dt, e)
	switch {
	case slices.Equal(a, e) || math.IsNaN(x) && math.IsNaN(y):
		return 0
	case math.IsNaN(x) || math.IsNaN(y) || math.IsInf(x, 0) || math.IsInf(y, 0):
		return math.MaxUint64
	}
	m, n := magnitude(a), magnitude(e)
	switch {
	case math.Signbit(x) != math.Signbit(y):
		return m + n
	case m > n:
		return m - n
	}
	return n - m
}

// magnitude is the bits of a float without its sign: its place among those from zero on.
func magnitude(b []byte) uint64 {
	n := uint64(0)
	for i, c := range b {
		n |= uint64(c) << (8 * i)
	}
	return n &^ (1 << (8*len(b) - 1))
}
