//go:build linux

package cuda

import (
	"encoding/binary"
	"math"

	"github.com/seed-ee968945/concert/internal/dtype"
	"github.com/seed-ee968945/concert/kernels"
)

// Element arithmetic of the fake kernels: narrow floats in float32, NaN wins in
// min and max, integers wrap.

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

func foldFloat(op kernels.Reduction, a, b float32) float32 {
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

func foldDouble(op kernels.Reduction, a, b float64) float64 {
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

func getInt(t dtype.DType, b []byte) int64 {
	switch t {
	case dtype.I64:
		return int64(binary.LittleEndian.Uint64(b))
	case dtype.I32:
		return int64(int32(binary.LittleEndian.Uint32(b)))
	case dtype.I8:
		return int64(int8(b[0]))
	}
	return int64(b[0])
}

func putInt(t dtype.DType, b []byte, v int64) {
	switch t {
	case dtype.I64:
		binary.LittleEndian.PutUint64(b, uint64(v))
	case dtype.I32:
		binary.LittleEndian.PutUint32(b, uint32(v))
	default:
		b[0] = byte(v)
	}
}

func foldInt(op kernels.Reduction, a, b int64) int64 {
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
