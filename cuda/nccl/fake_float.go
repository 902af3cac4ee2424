package nccl

import (
	"encoding/binary"
	"math"

	"github.com/seed-ee968945/concert/internal/dtype"
)

// getFloat reads one float of type t.
func getFloat(t dtype.DType, b []byte) float64 {
	switch t {
	case dtype.F64:
		return math.Float64frombits(binary.LittleEndian.Uint64(b))
	case dtype.F32:
		return float64(math.Float32frombits(binary.LittleEndian.Uint32(b)))
	case dtype.F16:
		return float64(dtype.F16ToF32(binary.LittleEndian.Uint16(b)))
	}
	return float64(dtype.BF16ToF32(binary.LittleEndian.Uint16(b)))
}

// putFloat writes one float of type t, rounded.
func putFloat(t dtype.DType, b []byte, v float64) {
	switch t {
	case dtype.F64:
		binary.LittleEndian.PutUint64(b, math.Float64bits(v))
	case dtype.F32:
		binary.LittleEndian.PutUint32(b, math.Float32bits(float32(v)))
	case dtype.F16:
		binary.LittleEndian.PutUint16(b, dtype.F16FromF32(float32(v)))
	default:
		binary.LittleEndian.PutUint16(b, dtype.BF16FromF32(float32(v)))
	}
}
