package hostops

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/seed-ee968945/concert/internal/attr"
	"github.com/seed-ee968945/concert/internal/dtype"
)

// shape makes the type cases below readable: shape{2, 3}.
type shape []int64

// mk makes a dense tensor; without values it is zero.
func mk(d dtype.DType, s shape, vals ...float64) Tensor {
	x, err := New(d, s...)
	if err != nil {
		panic(err)
	}
	if len(vals) > 0 {
		if int64(len(vals)) != x.NumElems() {
			panic(fmt.Sprintf("%d values for %v", len(vals), s))
		}
		storeAll(&x, vals)
	}
	return x
}

func f32(s shape, vals ...float64) Tensor  { return mk(dtype.F32, s, vals...) }
func bf16(s shape, vals ...float64) Tensor { return mk(dtype.BF16, s, vals...) }
func i64(s shape, vals ...float64) Tensor  { return mk(dtype.I64, s, vals...) }
func flags(s shape, vals ...float64) Tensor {
	return mk(dtype.Bool, s, vals...)
}

func attrs(t testing.TB, text string) attr.List {
	t.Helper()
	if text == "" {
		return nil
	}
	l, n, err := attr.Scan(text)
	if err != nil || n != len(text) {
		t.Fatalf("attributes %s: %v", text, err)
	}
	return l
}

// like returns a zero tensor of the same type, dense.
func like(x Tensor) Tensor { return mk(x.DType, x.Shape) }

// relayout copies x into a buffer with permuted dimensions, gaps and an offset, with
// one stride negative now and then.
func relayout(t testing.TB, rng *rand.Rand, x Tensor) Tensor {
	t.Helper()
	y := Tensor{DType: x.DType, Shape: x.Shape, Strides: make([]int64, len(x.Shape))}
	n := int64(1 + rng.IntN(2))
	for _, d := range rng.Perm(len(x.Shape)) {
		y.Strides[d] = n
		n = n*max(x.Shape[d], 1) + int64(rng.IntN(3))
	}
	y.Offset = int64(rng.IntN(4))
	if len(x.Shape) > 0 && rng.IntN(3) == 0 {
		if d := rng.IntN(len(x.Shape)); x.Shape[d] > 0 {
			y.Offset += y.Strides[d] * (x.Shape[d] - 1)
			y.Strides[d] = -y.Strides[d]
		}
	}
	y.Data = make([]byte, (n+y.Offset+1)*int64(x.DType.Size()))
	for i := range y.Data {
		y.Data[i] = 0xa5 // what lies in the gaps must not matter
	}
	if err := Copy(y, x); err != nil {
		t.Fatal(err)
	}
	return y
}

// rawBits returns the elements in row-major order as raw bytes.
func rawBits(t testing.TB, x Tensor) []byte {
	t.Helper()
	y := like(x)
	if err := Copy(y, x); err != nil {
		t.Fatal(err)
	}
	return y.Data
}

func equalValues(a, b []float64) bool {
	return slices.EqualFunc(a, b, func(x, y float64) bool {
		return x == y && math.Signbit(x) == math.Signbit(y) || x != x && y != y
	})
}

// random fills a dense tensor: normal floats, integers in [0, limit).
func random(rng *rand.Rand, d dtype.DType, limit int, s shape) Tensor {
	x := mk(d, s)
	v := make([]float64, x.NumElems())
	for i := range v {
		if d.IsFloat() {
			v[i] = rng.NormFloat64()
		} else {
			v[i] = float64(rng.IntN(limit))
		}
	}
	storeAll(&x, v)
	return x
}

// values reads a tensor as float64 in row-major order.
func values(t testing.TB, x Tensor) []float64 {
	t.Helper()
	if msg, kind := x.check(); kind != nil {
		t.Fatal(kind, msg)
	}
	v := make([]float64, x.NumElems())
	loadInto(v, &x)
	return v
}
