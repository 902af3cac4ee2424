//go:build linux

package fake

import (
	"encoding/binary"
	"math"

	"github.com/seed-ee968945/concert/internal/dtype"
	"github.com/seed-ee968945/concert/kernels"
)

// Element arithmetic of the fake kernels: narrow floats in float32, NaN wins in
// min and max, integers wrap.

//go:norace
func getFloat(t dtype.DType, b []byte) float32 {
	switch t {
	case dtype.BF16:
		return dtype.BF16ToF32(binary.LittleEndian.Uint16(b))
	case dtype.F16:
		return dtype.F16ToF32(binary.LittleEndian.Uint16(b))
	}
	return math.Float32frombits(binary.LittleEndian.Uint32(b))
}

// putFloat rounds to t; a NaN takes the one form that the device gives it.
//
//go:norace
func putFloat(t dtype.DType, b []byte, v float32) {
	nan := v != v
	switch {
	case t == dtype.F32 && nan:
		binary.LittleEndian.PutUint32(b, 0x7fffffff)
	case t == dtype.F32:
		binary.LittleEndian.PutUint32(b, math.Float32bits(v))
	case nan:
		binary.LittleEndian.PutUint16(b, 0x7fff)
	case t == dtype.BF16:
		binary.LittleEndian.PutUint16(b, dtype.BF16FromF32(v))
	default:
		binary.LittleEndian.PutUint16(b, dtype.F16FromF32(v))
	}
}

// fold combines two operands; an average is a sum that is divided at the end.
func fold[T float32 | float64 | int64](op kernels.Reduction, a, b T) T {
	switch op {
	case kernels.Prod:
		return a * b
	case kernels.Min:
		return min(a, b)
	case kernels.Max:
		return max(a, b)
	}
	return a + b
}
