package decompose_test

import (
	"math"
	"testing"

	"github.com/seed-ee968945/concert/interp"
	"github.com/seed-ee968945/concert/ir"
	"github.com/seed-ee968945/concert/ir/internal/decompose"
)

// The exponential of a skew matrix is a rotation, whose error grows with the angle; angles that would
// have to be halved more often than is done give no number.
func TestMatrixExp(t *testing.T) {
	for _, angle := range []float64{0, 1e-3, 1, -30, 1e4, 1e7, 1e8, math.Inf(1), math.NaN()} {
		got := run(t, []interp.Tensor{floats(t, ir.F64, []float64{0, -angle, angle, 0}, 2, 2)}, func(f *ir.FuncBuilder, in []*ir.Value) ([]*ir.Value, error) {
			y, err := decompose.MatrixExp(f, in[0])
			return []*ir.Value{y}, err
		})[0].Float64s()
		cos, sin := math.Cos(angle), math.Sin(angle)
		if math.Abs(angle) > 2e7 {
			cos, sin = math.NaN(), math.NaN()
		}
		for i, want := range []float64{cos, -sin, sin, cos} {
			if d := math.Abs(got[i] - want); !(d <= 1e-15*max(1, math.Abs(angle))) && !(got[i] != got[i] && want != want) {
				t.Errorf("angle %v: element %d is %v, want %v", angle, i, got[i], want)
			}
		}
	}
}
