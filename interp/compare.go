package interp

import (
	"bytes"
	"fmt"
	"math"
	"slices"
)

// Diff is how far a tensor is from the one that was wanted.
type Diff struct {
	Error   float64 // 2-norm of got-want
	Rel     float64 // the same over the 2-norm of want; over 1 where want is all zeros
	MaxAbs  float64 // largest magnitude of a difference
	At      int64   // row-major index of that element, else of the first that has other bits; -1 if there is none
	Bitwise bool    // every byte is equal
	Exact   bool    // every element has the same bits, or is NaN in both
}

// String returns the figures on one line.
func (d Diff) String() string {
	if d.Bitwise {
		return "equal"
	}
	return fmt.Sprintf("relative error %.3g, largest difference %.3g at element %d", d.Rel, d.MaxAbs, d.At)
}

// Compare measures the distance of got from want. An element that is NaN, or
// infinite in one only, makes Rel and MaxAbs infinite, unless both are NaN or the
// same infinity. It fails if element types or shapes differ.
func Compare(got, want Tensor) (Diff, error) {
	for _, t := range []Tensor{got, want} {
		if err := t.Check(); err != nil {
			return Diff{}, err
		}
	}
	if got.DType != want.DType || !slices.Equal(got.Shape, want.Shape) {
		return Diff{}, fmt.Errorf("interp: got %s, want %s", got.typeText(), want.typeText())
	}
	d := Diff{At: -1, Bitwise: bytes.Equal(got.Data, want.Data), Exact: true}
	if d.Bitwise {
		return d, nil
	}
	g, w := got.Float64s(), want.Float64s()
	var sum, norm float64
	size := got.DType.Size()
	for i := range g {
		if !bytes.Equal(got.Data[i*size:(i+1)*size], want.Data[i*size:(i+1)*size]) && !(math.IsNaN(g[i]) && math.IsNaN(w[i])) {
			if d.Exact {
				d.At = int64(i)
			}
			d.Exact = false
		}
		e := math.Abs(g[i] - w[i])
		switch {
		case g[i] == w[i] || math.IsNaN(g[i]) && math.IsNaN(w[i]):
			e = 0
		case math.IsNaN(e):
			e = math.Inf(1)
		}
		if e > d.MaxAbs {
			d.MaxAbs, d.At = e, int64(i)
		}
		sum += e * e
		if !math.IsNaN(w[i]) && !math.IsInf(w[i], 0) {
			norm += w[i] * w[i]
		}
	}
	d.Error = math.Sqrt(sum)
	if d.Rel = d.Error; norm > 0 {
		d.Rel = d.Error / math.Sqrt(norm)
	}
	return d, nil
}

// Equal reports whether both tensors have one type and the same bytes.
func Equal(a, b Tensor) bool {
	return a.DType == b.DType && slices.Equal(a.Shape, b.Shape) && bytes.Equal(a.Data, b.Data)
}
