package decompose_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"gonum.org/v1/gonum/mat"

	"github.com/seed-ee968945/concert/internal/intmath"
	"github.com/seed-ee968945/concert/interp"
	"github.com/seed-ee968945/concert/ir"
	"github.com/seed-ee968945/concert/ir/internal/decompose"
)

// looper appends to a function of a module that takes more.
type looper struct {
	*ir.FuncBuilder
	b     *ir.Builder
	names *int
}

func (l looper) Body(what string, types []ir.Type) (decompose.Looper, []*ir.Value, func([]*ir.Value) *ir.Func) {
	*l.names++
	f := l.b.Func(fmt.Sprint(what, *l.names))
	in := make([]*ir.Value, len(types))
	for i, t := range types {
		in[i] = f.Input("x", t)
	}
	return looper{f, l.b, l.names}, in, func(outs []*ir.Value) *ir.Func {
		f.Return(outs...)
		return f.Func()
	}
}

// runLoops is run of what has loops.
func runLoops(t *testing.T, x interp.Tensor, build func(to decompose.Looper, x *ir.Value) ([]*ir.Value, error)) []interp.Tensor {
	t.Helper()
	return runOn(t, []interp.Tensor{x}, func(b *ir.Builder, f *ir.FuncBuilder, in []*ir.Value) ([]*ir.Value, error) {
		return build(looper{f, b, new(int)}, in[0])
	})
}

// dense is matrix i of a batch.
func dense(x interp.Tensor, i int) *mat.Dense {
	r := len(x.Shape)
	m, n := int(x.Shape[r-2]), int(x.Shape[r-1])
	return mat.NewDense(m, n, x.Float64s()[i*m*n:(i+1)*m*n])
}

// orthonormal is how far the columns of q are from length 1 and right angles.
func orthonormal(q mat.Matrix) float64 {
	_, n := q.Dims()
	var g mat.Dense
	g.Mul(q.T(), q)
	for i := range n {
		g.Set(i, i, g.At(i, i)-1)
	}
	return mat.Norm(&g, math.Inf(1))
}

// svdCases are matrices [2, m, n] of each shape, by what is hard about them.
func svdCases(m, n int) map[string][]float64 {
	r := rand.New(rand.NewPCG(uint64(m), uint64(n)))
	cases := map[string][]float64{"random": nil, "graded": nil, "equal columns": nil, "first rows": nil, "zeros": nil, "one": nil, "far from 1": nil, "powers": nil}
	for name := range cases {
		l := make([]float64, 2*m*n)
		for k := range l {
			row, column := k/n%m, k%n
			x := r.NormFloat64()
			switch name {
			case "graded":
				x *= math.Pow(10, -float64(row+column))
			case "equal columns":
				x = math.Sin(float64(row)) * float64(1+column%2)
			case "first rows":
				x *= max(0, float64(2-row))
			case "zeros":
				x = 0
			case "one":
				x = float64((row % n / (column + 1)) * ((column + 1) / (row%n + 1)))
			case "far from 1":
				x *= 1e300
				if k >= m*n {
					x = math.Ldexp(x, -1900)
				}
			case "powers":
				x = math.Pow(float64(row+1)/float64(m), float64(column))
			}
			l[k] = x
		}
		cases[name] = l
	}
	return cases
}

// Values are those of gonum, factors have columns at right angles, and together they are the matrix: of
// tall, wide, square and singular matrices.
func TestSVD(t *testing.T) {
	const eps = 0x1p-52
	for _, s := range [][2]int{{1, 1}, {3, 1}, {1, 4}, {2, 2}, {5, 5}, {9, 4}, {3, 8}, {12, 12}, {7, 6}, {64, 64}} {
		m, n := s[0], s[1]
		k := min(m, n)
		for name, l := range svdCases(m, n) {
			if m > 12 && name != "graded" { // which is what is hard about large ones
				continue
			}
			a := floats(t, ir.F64, l, 2, int64(m), int64(n))
			for _, full := range []bool{false, true} {
				got := runLoops(t, a, func(to decompose.Looper, x *ir.Value) ([]*ir.Value, error) {
					u, s, vt, err := decompose.SVD(to, x, true, full)
					if err != nil {
						return nil, err
					}
					_, alone, _, err := decompose.SVD(to, x, false, full)
					return []*ir.Value{u, s, vt, alone}, err
				})
				for i := range 2 {
					where := fmt.Sprintf("%s %dx%d, full %v, matrix %d", name, m, n, full, i)
					u, vt, x := dense(got[0], i), dense(got[2], i), dense(a, i)
					values, alone := got[1].Float64s()[i*k:(i+1)*k], got[3].Float64s()[i*k:(i+1)*k]
					largest := mat.Max(x)
					largest = max(largest, -mat.Min(x))
					if largest == 0 {
						largest = 1
					}
					bound := 4 * eps * math.Sqrt(float64(m*n)) * float64(k)
					if d, e := orthonormal(u), orthonormal(vt.T()); !(d <= bound && e <= bound) {
						t.Errorf("%s: u is off by %.2g, v by %.2g, bound %.2g", where, d, e, bound)
					}
					x.Scale(1/largest, x)
					var ref mat.SVD
					if !ref.Factorize(x, mat.SVDNone) {
						t.Fatal(where)
					}
					sigma := mat.NewDense(u.RawMatrix().Cols, vt.RawMatrix().Rows, nil)
					for j, w := range ref.Values(nil) {
						sigma.Set(j, j, values[j]/largest)
						if d, e := math.Abs(values[j]/largest-w), math.Abs(alone[j]/largest-w); !(d <= bound && e <= bound) || j > 0 && values[j] > values[j-1] {
							t.Errorf("%s: value %d is %v and %v, want %v", where, j, values[j]/largest, alone[j]/largest, w)
						}
					}
					var back mat.Dense
					back.Product(u, sigma, vt)
					back.Sub(&back, x)
					if d := mat.Norm(&back, math.Inf(1)); !(d <= bound) {
						t.Errorf("%s: the product is off by %.2g, bound %.2g", where, d, bound)
					}
				}
			}
		}
	}
}

// Of matrices without elements there are no values, and full vectors are those of nothing; where an
// element is no number none of its matrix's results is.
func TestSVDOfNothing(t *testing.T) {
	for _, shape := range [][]int64{{0, 3}, {3, 0}, {2, 0, 2}, {0, 2, 2}} {
		for _, full := range []bool{false, true} {
			x := floats(t, ir.F32, nil, shape...)
			got := runLoops(t, x, func(to decompose.Looper, x *ir.Value) ([]*ir.Value, error) {
				u, s, vt, err := decompose.SVD(to, x, true, full)
				return []*ir.Value{u, s, vt}, err
			})
			for _, k := range []int{0, 2} {
				q, r := got[k], len(shape)
				if n := q.Shape[r-2]; full && n != q.Shape[r-1] || !full && q.NumElems() > 0 {
					t.Errorf("%v, full %v: factor %v", shape, full, q.Shape)
				}
				for i := range intmath.Product(q.Shape[:r-2]) {
					if q.NumElems() > 0 && orthonormal(dense(q, int(i))) != 0 {
						t.Errorf("%v: %v is not the unit matrix", shape, q)
					}
				}
			}
		}
	}
	bad := floats(t, ir.F32, []float64{math.NaN(), 1, 1, 2, 1, 0, 0, 1}, 2, 2, 2)
	got := runLoops(t, bad, func(to decompose.Looper, x *ir.Value) ([]*ir.Value, error) {
		u, s, vt, err := decompose.SVD(to, x, true, true)
		return []*ir.Value{u, s, vt}, err
	})
	for k, x := range got {
		l := x.Float64s()
		for i, v := range l {
			if (v != v) != (i < len(l)/2) {
				t.Errorf("result %d: %v, want no numbers for the first matrix only", k, l)
				break
			}
		}
	}
}

// Eigenvalues are gonum's, and of vectors at right angles.
func TestEigh(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for _, n := range []int{0, 1, 2, 3, 8, 17} {
		l := make([]float64, 2*n*n)
		for k := range l {
			l[k] = r.NormFloat64()
		}
		for _, lower := range []bool{false, true} {
			a := floats(t, ir.F64, l, 2, int64(n), int64(n))
			got := runLoops(t, a, func(to decompose.Looper, x *ir.Value) ([]*ir.Value, error) {
				values, v, err := decompose.Eigh(to, x, lower)
				return []*ir.Value{values, v}, err
			})
			for i := range 2 {
				if n == 0 {
					continue
				}
				s := mat.NewSymDense(n, nil)
				for row := range n {
					for column := range row + 1 {
						at := row*n + column
						if !lower {
							at = column*n + row
						}
						s.SetSym(row, column, l[i*n*n+at])
					}
				}
				var ref mat.EigenSym
				if !ref.Factorize(s, false) {
					t.Fatal(n)
				}
				v, bound := dense(got[1], i), 0x1p-52*float64(8*n)
				if d := orthonormal(v); !(d <= bound) {
					t.Errorf("%d rows: vectors are off by %.2g", n, d)
				}
				var back mat.Dense
				d := mat.NewDiagDense(n, got[0].Float64s()[i*n:(i+1)*n])
				back.Product(v, d, v.T())
				back.Sub(&back, s)
				if e := mat.Norm(&back, math.Inf(1)); !(e <= 4*bound) {
					t.Errorf("%d rows: the product is off by %.2g", n, e)
				}
				for j, w := range ref.Values(nil) {
					if g := d.At(j, j); !(math.Abs(g-w) <= 2*bound) {
						t.Errorf("%d rows: value %d is %v, want %v", n, j, g, w)
					}
				}
			}
		}
	}
}
