package fx_test

import (
	"encoding/json"
	"fmt"
	"math"
	"testing"
)

// denseTensor is a recorded tensor without data, row-major.
func denseTensor(dt string, shape ...int64) recordedTensor {
	r := recordedTensor{DType: dt, Shape: shape, Stride: make([]int64, len(shape))}
	step := int64(1)
	for d := len(shape) - 1; d >= 0; d-- {
		r.Stride[d] = step
		step *= max(shape[d], 1)
	}
	return r
}

// TestSVD holds singular values and vectors against what defines them, as their signs are free: columns
// and rows at right angles, which together are the matrix.
func TestSVD(t *testing.T) {
	for _, s := range [][2]int64{{4, 3}, {3, 5}, {2, 2}, {0, 2}} {
		m, n := s[0], s[1]
		k := min(m, n)
		x := denseTensor("float32", 2, m, n)
		var a []float64
		for i := range 2 * m * n {
			v := float32(math.Sin(float64(i*i + 1)))
			a = append(a, float64(v))
			x.Data = append(x.Data, json.RawMessage(fmt.Sprintf("%q", fmt.Sprintf("%08x", math.Float32bits(v)))))
		}
		in := []recordedTensor{x}
		values := denseTensor("float32", 2, k)
		alone, msg := recorded{Target: "aten.linalg_svdvals.default", Args: "(x0,)", Kwargs: "{'driver': 'gesvd'}", In: in, Out: []recordedTensor{values}}.run(t)
		if msg != "" {
			t.Fatal(msg)
		}
		none := denseTensor("float32", 0)
		got, msg := recorded{Target: "aten._linalg_svd.default", Args: "(x0, True, False)", In: in, Out: []recordedTensor{none, values, none}}.run(t)
		if msg != "" {
			t.Fatal(msg)
		}
		if d := distance(got[1].Float64s(), alone[0].Float64s()); d != 0 {
			t.Errorf("%dx%d: values %v and %v", m, n, got[1], alone[0])
		}
		for _, full := range []bool{false, true} {
			columns, rows, args := k, k, "(x0,)"
			if full {
				columns, rows, args = m, n, "(x0, True)"
			}
			u, vt := denseTensor("float32", 2, m, columns), denseTensor("float32", 2, rows, n)
			u.Stride = []int64{m * columns, 1, max(m, 1)} // as LAPACK has it
			got, msg := recorded{Target: "aten._linalg_svd.default", Args: args, In: in, Out: []recordedTensor{u, values, vt}}.run(t)
			if msg != "" {
				t.Fatal(msg)
			}
			if d := distance(got[1].Float64s(), alone[0].Float64s()); d > 1e-6 {
				t.Errorf("%dx%d, full %v: values are %v, by themselves %v", m, n, full, got[1], alone[0])
			}
			uu, ss, vv := got[0].Float64s(), got[1].Float64s(), got[2].Float64s()
			for b := range int64(2) {
				at := func(x []float64, rows, columns, i, j int64) float64 { return x[(b*rows+i)*columns+j] }
				sum := func(n int64, f func(i int64) float64) (s float64) {
					for i := range n {
						s += f(i)
					}
					return s
				}
				near := func(what string, got, want float64) {
					if !(math.Abs(got-want) < 2e-6) {
						t.Errorf("%dx%d, full %v: %s is %v, want %v", m, n, full, what, got, want)
					}
				}
				for i := range m {
					for j := range n {
						near("an element", sum(k, func(l int64) float64 { return at(uu, m, columns, i, l) * ss[b*k+l] * at(vv, rows, n, l, j) }), at(a, m, n, i, j))
					}
				}
				for i := range columns {
					for j := range i + 1 {
						near("a product of columns", sum(m, func(l int64) float64 { return at(uu, m, columns, l, i) * at(uu, m, columns, l, j) }), float64((j+1)/(i+1)))
					}
				}
				for i := range rows {
					for j := range i + 1 {
						near("a product of rows", sum(n, func(l int64) float64 { return at(vv, rows, n, i, l) * at(vv, rows, n, j, l) }), float64((j+1)/(i+1)))
					}
				}
			}
		}
	}
}

// distance is the largest of two lists.
func distance(a, b []float64) float64 {
	d := 0.0
	for i := range a {
		d = max(d, math.Abs(a[i]-b[i]))
	}
	return d
}
