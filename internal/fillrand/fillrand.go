// Package fillrand fills tensors with random numbers that any program in any language
// can reproduce: element e of input k on rank r is a hash of (seed, k, r, e), so
// that two runtimes can get gigabytes of equal random inputs without a file
// between them. bench/peer_step.py has the same generator.
//
// With Mix a bijection of 32-bit words (two rounds of multiply and xor-shift,
// constants by C. Wellons' search for low bias), the hash is
//
//	a = Mix(Mix(seed) ^ (k + 1))
//	b = Mix(a + 0x9e3779b9 * (r + 1))
//	h(e) = Mix(Mix(e mod 2^32 ^ a) + b + e div 2^32)
//
// and the element's value is
//
//	floats:   (h/256 - 2^23) * scale, rounded to float32 once and then to the
//	          element type, ties to even: uniform, of mean zero
//	integers: h mod 256
//	bool:     h mod 2
//
// where h/256 drops the remainder, and scale is the float32 next to sqrt(3) * 2^-23
// (a standard deviation of 1) for tensors of fewer than two dimensions, and 0.02 times
// that for the others. A tensor shared by all ranks is generated with r = 0. Elements are
// counted in row-major order of the shape, whatever the strides.
package fillrand

import (
	"encoding/binary"
	"fmt"
	"math"
	"runtime"
	"sync"

	"github.com/seed-ee968945/concert/internal/dtype"
)

// Scales of float elements, as float32 bits: sqrt(3) * 2^-23, and 0.02 times that.
const (
	scaleOne   = 0x345db3d7
	scaleSmall = 0x318de3bd
)

// Source is the numbers of one input of one rank.
type Source struct {
	a, b  uint32
	scale float32
}

// New is the source of input number index, counted from 0, on a rank, for a
// tensor with that many dimensions.
func New(seed uint32, index, rank, dims int) Source {
	a := Mix(Mix(seed) ^ uint32(index+1))
	s := Source{a: a, b: Mix(a + 0x9e3779b9*uint32(rank+1)), scale: math.Float32frombits(scaleOne)}
	if dims > 1 {
		s.scale = math.Float32frombits(scaleSmall)
	}
	return s
}

// Mix is the bijection of 32-bit words that the hash is made of.
func Mix(x uint32) uint32 {
	x ^= x >> 16
	x *= 0x7feb352d
	x ^= x >> 15
	x *= 0x846ca68b
	x ^= x >> 16
	return x
}

// Hash is h(e).
func (s Source) Hash(e uint64) uint32 {
	return Mix(Mix(uint32(e)^s.a) + s.b + uint32(e>>32))
}

// Float is element e of a float tensor before it is rounded to the element type.
func (s Source) Float(e uint64) float32 {
	return float32(int32(s.Hash(e)>>8)-1<<23) * s.scale
}

// Fill writes elements 0, 1, ... of a tensor of type d to data, little-endian and
// dense, on all cores. It fails if data does not hold whole elements.
func (s Source) Fill(data []byte, d dtype.DType) error {
	size := d.Size()
	if size == 0 || len(data)%size != 0 {
		return fmt.Errorf("fillrand: %d bytes are not whole elements of %v", len(data), d)
	}
	n := len(data) / size
	const chunk = 1 << 18
	var wg sync.WaitGroup
	next := make(chan int)
	for range min(runtime.GOMAXPROCS(0), (n+chunk-1)/chunk) {
		wg.Go(func() {
			for at := range next {
				end := min(at+chunk, n)
				s.fill(data[at*size:end*size], d, uint64(at))
			}
		})
	}
	for at := 0; at < n; at += chunk {
		next <- at
	}
	close(next)
	wg.Wait()
	return nil
}

// fill writes the elements from number e on.
func (s Source) fill(data []byte, d dtype.DType, e uint64) {
	switch d {
	case dtype.BF16:
		for ; len(data) > 0; data, e = data[2:], e+1 {
			binary.LittleEndian.PutUint16(data, dtype.BF16FromF32(s.Float(e)))
		}
	case dtype.F16:
		for ; len(data) > 0; data, e = data[2:], e+1 {
			binary.LittleEndian.PutUint16(data, dtype.F16FromF32(s.Float(e)))
		}
	case dtype.F32:
		for ; len(data) > 0; data, e = data[4:], e+1 {
			binary.LittleEndian.PutUint32(data, math.Float32bits(s.Float(e)))
		}
	case dtype.F64:
		for ; len(data) > 0; data, e = data[8:], e+1 {
			binary.LittleEndian.PutUint64(data, math.Float64bits(float64(s.Float(e))))
		}
	case dtype.I64, dtype.U64:
		for ; len(data) > 0; data, e = data[8:], e+1 {
			binary.LittleEndian.PutUint64(data, uint64(s.Hash(e)%256))
		}
	case dtype.I32, dtype.U32:
		for ; len(data) > 0; data, e = data[4:], e+1 {
			binary.LittleEndian.PutUint32(data, s.Hash(e)%256)
		}
	case dtype.I16, dtype.U16:
		for ; len(data) > 0; data, e = data[2:], e+1 {
			binary.LittleEndian.PutUint16(data, uint16(s.Hash(e)%256))
		}
	case dtype.Bool:
		for i := range data {
			data[i] = byte(s.Hash(e+uint64(i)) % 2)
		}
	case dtype.I8, dtype.U8:
		for i := range data {
			data[i] = byte(s.Hash(e+uint64(i)) % 256)
		}
	case dtype.F8E8M0FNU: // which has no sign
		for i := range data {
			data[i] = dtype.F8FromF32(d, max(s.Float(e+uint64(i)), -s.Float(e+uint64(i))))
		}
	default:
		for i := range data {
			data[i] = dtype.F8FromF32(d, s.Float(e+uint64(i)))
		}
	}
}
