//go:build linux

package fake

import (
	"encoding/binary"
	"fmt"
	"math"
	"time"

	"github.com/seed-ee968945/concert/cuda/driver"
	"github.com/seed-ee968945/concert/internal/dtype"
	"github.com/seed-ee968945/concert/kernels"
)

// The Go forms of what kernels/src/bench.cu has for tools: inputs that differ by rank, and a check
// of results.

// benchKernel gives the work of one of those kernels, or false.
func benchKernel(name string, buf []byte) (func() error, error, bool) {
	words, ok := map[string]int{"empty": 0, "delay": 8, "fill": 28, "check": 56}[name]
	if !ok {
		return nil, nil, false
	}
	if len(buf) < words {
		return nil, fmt.Errorf("%s: parameters of %d bytes, %d are needed", name, len(buf), words), true
	}
	u64 := func(at int) uint64 { return binary.LittleEndian.Uint64(buf[at:]) }
	u32 := func(at int) uint32 { return binary.LittleEndian.Uint32(buf[at:]) }
	switch name {
	case "delay":
		d := time.Duration(u64(0))
		return func() error { time.Sleep(d); return nil }, nil, true
	case "fill":
		return func() error { return fill(u64(0), u64(8), dtype.DType(u32(16)), u32(20), u32(24)) }, nil, true
	case "check":
		c := checker{t: dtype.DType(u32(16)), seed: u32(20), rank: u32(24), n: u32(28), kind: u32(32), shard: u64(40)}
		return func() error { return c.run(u64(0), u64(8), u64(48)) }, nil, true
	}
	return func() error { return nil }, nil, true
}

// benchValue is element i of a rank's input.
func benchValue(seed, rank uint32, i uint64) float32 {
	x := uint64(seed)<<48 ^ uint64(rank)<<40 ^ i
	for _, m := range []uint64{0xff51afd7ed558ccd, 0xc4ceb9fe1a85ec53, 1} {
		x ^= x >> 33
		x *= m
	}
	h := uint32(x)
	return float32(int32(h&0xff)-128) * math.Float32frombits((118+(h>>8&7))<<23)
}

func fill(at, count uint64, t dtype.DType, seed, rank uint32) error {
	size := uint64(t.Size())
	b := bytesAt(driver.Ptr(at), count*size)
	for i := range count {
		putFloat(t, b[i*size:], benchValue(seed, rank, i))
	}
	return nil
}

// checker says what results must be; kinds are those of kernels/src/bench.cu.
type checker struct {
	t                   dtype.DType
	seed, rank, n, kind uint32
	shard               uint64
}

func (c *checker) run(at, count, wrong uint64) error {
	size, bad := uint64(c.t.Size()), uint32(0)
	b, want := bytesAt(driver.Ptr(at), count*size), make([]byte, size)
	for i := range count {
		c.want(want, i)
		if string(want) != string(b[i*size:][:size]) {
			bad++
		}
	}
	if bad > 0 {
		addWord(wrong, bad)
	}
	return nil
}

func (c *checker) want(out []byte, i uint64) {
	switch c.kind {
	case 1:
		putFloat(c.t, out, benchValue(c.seed, uint32(i/c.shard), i%c.shard))
		return
	case 3:
		putFloat(c.t, out, benchValue(c.seed, uint32(i/c.shard), uint64(c.rank)*c.shard+i%c.shard))
		return
	case 2:
		i += uint64(c.rank) * c.shard
	}
	sum := float32(0)
	for r := range c.n {
		putFloat(c.t, out, benchValue(c.seed, r, i))
		if v := getFloat(c.t, out); r == 0 {
			sum = v
		} else {
			sum = fold(kernels.Sum, sum, v)
		}
	}
	putFloat(c.t, out, sum)
}
