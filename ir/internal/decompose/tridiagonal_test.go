package decompose_test

import (
	"math/rand/v2"
	"testing"

	"gonum.org/v1/gonum/mat"

	"github.com/seed-ee968945/concert/interp"
	"github.com/seed-ee968945/concert/ir"
	"github.com/seed-ee968945/concert/ir/internal/decompose"
)

// Solutions are gonum's of the full matrices, also where pivots would be small or zero without exchanges;
// matrices without an inverse are said to have none.
func TestTridiagonal(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	for _, n := range []int{1, 2, 3, 9, 40} {
		const batch, c = 3, 2
		list := func(n int) []float64 {
			l := make([]float64, n)
			for i := range l {
				l[i] = r.NormFloat64()
			}
			return l
		}
		below, on, above, b := list(batch*n), list(batch*n), list(batch*n), list(batch*n*c)
		for i := range n { // the second matrix has small pivots, the last no inverse
			on[n+i] *= 1e-9
			below[2*n+i] = 0
		}
		if n == 1 {
			on[1] = 1
		}
		on[3*n-1] = 0
		var in []interp.Tensor
		for _, l := range [][]float64{below, on, above} {
			in = append(in, floats(t, ir.F64, l, batch, int64(n)))
		}
		in = append(in, floats(t, ir.F64, b, batch, int64(n), c))
		got := runOn(t, in, func(b *ir.Builder, f *ir.FuncBuilder, in []*ir.Value) ([]*ir.Value, error) {
			x, singular, err := decompose.Tridiagonal(looper{f, b, new(int)}, in[0], in[1], in[2], in[3])
			return []*ir.Value{x, singular}, err
		})
		for i, s := range got[1].Float64s() {
			if want := i == 2; (s == 1) != want {
				t.Errorf("%d rows: matrix %d is singular: %v, want %v", n, i, s, want)
			}
			if i == 2 || i == 1 && n > 1 && n%2 == 1 { // of odd size, next to nothing on the diagonal leaves nearly no inverse
				continue
			}
			a := mat.NewDense(n, n, nil)
			for k := range n {
				a.Set(k, k, on[i*n+k])
				if k > 0 {
					a.Set(k, k-1, below[i*n+k])
					a.Set(k-1, k, above[i*n+k-1])
				}
			}
			var want, d mat.Dense
			if err := want.Solve(a, mat.NewDense(n, c, b[i*n*c:(i+1)*n*c])); err != nil {
				t.Fatal(n, i, err)
			}
			d.Sub(&want, dense(got[0], i))
			if e := mat.Norm(&d, 2); !(e <= 1e-11*mat.Norm(&want, 2)) {
				t.Errorf("%d rows: matrix %d is off by %.2g", n, i, e)
			}
		}
	}
}
