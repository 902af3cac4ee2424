package hostops

import (
	"encoding/binary"
	"math"
	"unsafe"

	"github.com/seed-ee968945/concert/internal/dtype"
)

// num is the set of domains in which kernels compute.
type num interface {
	float32 | float64 | int64 | uint64
}

// real is the set of floating-point domains.
type real interface{ float32 | float64 }

var le = binary.LittleEndian

// inMemory are the bytes of numbers that lie in memory as those of an f32 tensor do, nil of
// others.
func inMemory[T num](s []T) []byte {
	var zero T
	if _, ok := any(zero).(float32); !ok || binary.NativeEndian.Uint16([]byte{1, 0}) != 1 {
		return nil
	}
	return unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(s))), 4*len(s))
}

// load fills dst with len(dst) elements of t, the first at element number off and
// the rest stride elements apart. The caller has checked the bounds.
func load[T num](dst []T, t *Tensor, off, stride int64) {
	if len(dst) == 0 { // off may be anything then
		return
	}
	if stride == 0 && len(dst) > 1 {
		load(dst[:1], t, off, 1)
		v := dst[0]
		for i := range dst {
			dst[i] = v
		}
		return
	}
	size := t.DType.Size()
	step := int(stride) * size
	b, p := t.Data, int(off)*size
	switch t.DType {
	case dtype.F32:
		if stride == 1 {
			b = b[p : p+4*len(dst)]
			if in := inMemory(dst); in != nil {
				copy(in, b)
				return
			}
			for i := range dst {
				dst[i] = T(math.Float32frombits(le.Uint32(b[4*i:])))
			}
			return
		}
		for i := range dst {
			dst[i] = T(math.Float32frombits(le.Uint32(b[p:])))
			p += step
		}
	case dtype.BF16:
		if stride == 1 {
			b = b[p : p+2*len(dst)]
			for i := range dst {
				dst[i] = T(math.Float32frombits(uint32(le.Uint16(b[2*i:])) << 16))
			}
			return
		}
		for i := range dst {
			dst[i] = T(math.Float32frombits(uint32(le.Uint16(b[p:])) << 16))
			p += step
		}
	case dtype.F16:
		for i := range dst {
			dst[i] = T(dtype.F16ToF32(le.Uint16(b[p:])))
			p += step
		}
	case dtype.F64:
		for i := range dst {
			dst[i] = T(math.Float64frombits(le.Uint64(b[p:])))
			p += step
		}
	case dtype.I64:
		for i := range dst {
			dst[i] = T(int64(le.Uint64(b[p:])))
			p += step
		}
	case dtype.U64:
		for i := range dst {
			dst[i] = T(le.Uint64(b[p:]))
			p += step
		}
	case dtype.Bool:
		for i := range dst {
			dst[i] = 0
			if b[p] != 0 {
				dst[i] = 1
			}
			p += step
		}
	default:
		loadNarrow(dst, t.DType, b, p, step)
	}
}

// loadNarrow loads narrow integers and floats of a byte, the first at b[p] and the rest step
// bytes apart.
func loadNarrow[T num](dst []T, dt dtype.DType, b []byte, p, step int) {
	float := dt.IsFloat()
	for i := range dst {
		if float {
			dst[i] = T(dtype.F8ToF32(dt, b[p]))
		} else {
			dst[i] = T(dtype.LoadInt(dt, b[p:]))
		}
		p += step
	}
}

// store writes src to t, rounding or converting each element once. The caller has
// checked the bounds.
func store[T num](t *Tensor, off, stride int64, src []T) {
	if len(src) == 0 {
		return
	}
	if !t.DType.IsFloat() {
		storeInts(t, off, stride, src)
		return
	}
	size := t.DType.Size()
	step := int(stride) * size
	b, p := t.Data, int(off)*size
	switch t.DType {
	case dtype.F32:
		if stride == 1 {
			b = b[p : p+4*len(src)]
			if in := inMemory(src); in != nil {
				copy(b, in)
				return
			}
			for i, v := range src {
				le.PutUint32(b[4*i:], math.Float32bits(float32(v)))
			}
			return
		}
		for _, v := range src {
			le.PutUint32(b[p:], math.Float32bits(float32(v)))
			p += step
		}
	case dtype.BF16:
		if stride == 1 {
			b = b[p : p+2*len(src)]
			for i, v := range src {
				le.PutUint16(b[2*i:], dtype.BF16FromF32(float32(v)))
			}
			return
		}
		for _, v := range src {
			le.PutUint16(b[p:], dtype.BF16FromF32(float32(v)))
			p += step
		}
	case dtype.F16:
		for _, v := range src {
			le.PutUint16(b[p:], dtype.F16FromF32(float32(v)))
			p += step
		}
	case dtype.F64:
		for _, v := range src {
			le.PutUint64(b[p:], math.Float64bits(float64(v)))
			p += step
		}
	default:
		for _, v := range src {
			b[p] = dtype.F8FromF32(t.DType, float32(v))
			p += step
		}
	}
}

func storeInts[T num](t *Tensor, off, stride int64, src []T) {
	size := t.DType.Size()
	step := int(stride) * size
	b, p := t.Data, int(off)*size
	switch t.DType {
	case dtype.I64:
		for _, v := range src {
			le.PutUint64(b[p:], uint64(toInt64(v)))
			p += step
		}
	case dtype.Bool:
		for _, v := range src {
			b[p] = 0
			if v != 0 { // NaN is true, as in PyTorch
				b[p] = 1
			}
			p += step
		}
	default:
		to := toInt64[T]
		switch t.DType {
		case dtype.U64:
			to = func(v T) int64 { return int64(toUint64(v)) }
		case dtype.I32:
			to = func(v T) int64 { return int64(toInt32(v)) }
		case dtype.U32:
			to = func(v T) int64 { return int64(toUint32(v)) }
		}
		for _, v := range src {
			dtype.StoreInt(t.DType, b[p:], to(v))
			p += step
		}
	}
}

// toInt64 wraps integers and saturates floats.
func toInt64[T num](v T) int64 {
	switch n := any(v).(type) {
	case int64:
		return n
	case uint64:
		return int64(n)
	}
	return dtype.TruncInt64(float64(v))
}

// toUint64 wraps integers and saturates floats.
func toUint64[T num](v T) uint64 {
	switch n := any(v).(type) {
	case int64:
		return uint64(n)
	case uint64:
		return n
	}
	f := float64(v)
	switch {
	case !(f > 0): // NaN too
		return 0
	case f >= 1<<64:
		return math.MaxUint64
	}
	return uint64(f)
}

func isInteger[T num](v T) bool {
	switch any(v).(type) {
	case int64, uint64:
		return true
	}
	return false
}

// toInt32 wraps integers and saturates floats, as the conversions of CUDA do.
func toInt32[T num](v T) int32 {
	if isInteger(v) {
		return int32(toInt64(v))
	}
	return int32(max(math.MinInt32, min(math.MaxInt32, toInt64(v))))
}

// toUint32 wraps integers and saturates floats, as the conversions of CUDA do.
func toUint32[T num](v T) uint32 {
	if isInteger(v) {
		return uint32(toInt64(v))
	}
	return uint32(max(0, min(math.MaxUint32, toInt64(v))))
}

// domain is the type in which a kernel computes.
type domain uint8

const (
	domI64 domain = iota
	domU64
	domF32
	domF64
)

// isInt reports whether the domain holds integers. Both hold the same bits: sums,
// products and equality are those of int64 in either, order and quotients are not.
func (d domain) isInt() bool { return d <= domU64 }

// domainOf chooses the domain for the given element types: f64 if one is f64, else
// f32 if one is a float, else u64 if one is u64, else i64. Only bools mix with u64.
func domainOf(ts ...dtype.DType) domain {
	d := domI64
	for _, t := range ts {
		switch {
		case t == dtype.F64:
			return domF64
		case t.IsFloat():
			d = domF32
		case t == dtype.U64:
			d = max(d, domU64)
		}
	}
	return d
}

// scratchLimit bounds the elements of one temporary buffer, so that a tensor that
// is small in memory but broadcast to an enormous shape gives an error instead of
// exhausting memory.
const scratchLimit = 1 << 31

// scratch makes a temporary buffer of n elements.
func scratch[T any](c *call, n int64) ([]T, error) {
	if n < 0 || n > scratchLimit {
		return nil, c.fail(ErrUnsupported, "needs a temporary of %d elements, more than %d", n, int64(scratchLimit))
	}
	return make([]T, n), nil
}
