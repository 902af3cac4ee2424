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

// inMemory are the bytes of numbers that lie in memory as those of a tensor of this type do, nil
// of others.
func inMemory[T num](s []T, dt dtype.DType) []byte {
	var same bool
	switch any(s).(type) {
	case []float32:
		same = dt == dtype.F32
	case []float64:
		same = dt == dtype.F64
	default:
		same = dt == dtype.I64 || dt == dtype.U64
	}
	if !same || binary.NativeEndian.Uint16([]byte{1, 0}) != 1 {
		return nil
	}
	size := int(unsafe.Sizeof(s[0]))
	return unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(s))), size*len(s))
}

// view is n elements of t from element number off on where they lie as numbers do in memory,
// else nil.
func view[T num](t *Tensor, off, n int64) []T {
	var none [1]T
	b := t.Data
	size := int64(unsafe.Sizeof(none[0]))
	if n == 0 || inMemory(none[:], t.DType) == nil {
		return nil
	}
	p := unsafe.Pointer(unsafe.SliceData(b[off*size : (off+n)*size]))
	if uintptr(p)%uintptr(size) != 0 {
		return nil
	}
	return unsafe.Slice((*T)(p), n)
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
	if in := inMemory(dst, t.DType); in != nil && stride == 1 {
		copy(in, b[p:p+len(in)])
		return
	}
	switch t.DType {
	case dtype.F32:
		if stride == 1 {
			b = b[p : p+4*len(dst)]
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
			dst[i] = T(bit(b[p] != 0))
			p += step
		}
	default:
		loadNarrow(dst, t.DType, b, p, step)
	}
}

// loadNarrow loads narrow integers and floats of a byte, the first at b[p] and the rest step
// bytes apart.
func loadNarrow[T num](dst []T, dt dtype.DType, b []byte, p, step int) {
	switch dt {
	case dtype.I32:
		for i := range dst {
			dst[i] = T(int32(le.Uint32(b[p:])))
			p += step
		}
	case dtype.U32:
		for i := range dst {
			dst[i] = T(le.Uint32(b[p:]))
			p += step
		}
	case dtype.I16:
		for i := range dst {
			dst[i] = T(int16(le.Uint16(b[p:])))
			p += step
		}
	case dtype.U16:
		for i := range dst {
			dst[i] = T(le.Uint16(b[p:]))
			p += step
		}
	case dtype.I8:
		for i := range dst {
			dst[i] = T(int8(b[p]))
			p += step
		}
	case dtype.U8:
		for i := range dst {
			dst[i] = T(b[p])
			p += step
		}
	default:
		for i := range dst {
			dst[i] = T(dtype.F8ToF32(dt, b[p]))
			p += step
		}
	}
}

// store writes src to t, rounding or converting each element once. The caller has
// checked the bounds.
func store[T num](t *Tensor, off, stride int64, src []T) {
	if len(src) == 0 {
		return
	}
	size := t.DType.Size()
	step := int(stride) * size
	b, p := t.Data, int(off)*size
	if in := inMemory(src, t.DType); in != nil && stride == 1 {
		copy(b[p:p+len(in)], in)
		return
	}
	if !t.DType.IsFloat() {
		storeInts(t.DType, b, p, step, src)
		return
	}
	switch t.DType {
	case dtype.F32:
		if stride == 1 {
			b = b[p : p+4*len(src)]
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

// storeInts stores integers, the first at b[p] and the rest step bytes apart.
func storeInts[T num](dt dtype.DType, b []byte, p, step int, src []T) {
	if dt == dtype.Bool {
		for _, v := range src {
			b[p] = byte(bit(v != 0)) // NaN is true, as in PyTorch
			p += step
		}
		return
	}
	switch s := any(src).(type) {
	case []int64:
		storeWords(dt.Size(), b, p, step, s)
	case []uint64:
		storeWords(dt.Size(), b, p, step, s)
	case []float32:
		storeCut(dt, b, p, step, s)
	case []float64:
		storeCut(dt, b, p, step, s)
	}
}

// storeWords stores the low bytes of integers.
func storeWords[T int64 | uint64](size int, b []byte, p, step int, src []T) {
	switch size {
	case 8:
		for _, v := range src {
			le.PutUint64(b[p:], uint64(v))
			p += step
		}
	case 4:
		for _, v := range src {
			le.PutUint32(b[p:], uint32(v))
			p += step
		}
	case 2:
		for _, v := range src {
			le.PutUint16(b[p:], uint16(v))
			p += step
		}
	default:
		for _, v := range src {
			b[p] = byte(v)
			p += step
		}
	}
}

// storeCut stores floats without their fractions, saturated: those of 32 bits as CUDA converts
// them, and the low bytes of others.
func storeCut[T real](dt dtype.DType, b []byte, p, step int, src []T) {
	to := dtype.TruncInt64
	switch dt {
	case dtype.U64:
		to = truncUint64
	case dtype.I32:
		to = func(v float64) int64 { return max(math.MinInt32, min(math.MaxInt32, dtype.TruncInt64(v))) }
	case dtype.U32:
		to = func(v float64) int64 { return max(0, min(math.MaxUint32, dtype.TruncInt64(v))) }
	}
	for _, v := range src {
		dtype.StoreInt(dt, b[p:], to(float64(v)))
		p += step
	}
}

// truncUint64 is the bits of a number from 0 to 1<<64 - 1.
func truncUint64(f float64) int64 {
	switch {
	case !(f > 0): // NaN too
		return 0
	case f >= 1<<64:
		return -1
	}
	return int64(uint64(f))
}

func isInteger[T num](v T) bool {
	switch any(v).(type) {
	case int64, uint64:
		return true
	}
	return false
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
