package bench

import (
	"bytes"
	"math"
	"strings"
	"testing"

	"github.com/seed-ee968945/concert/internal/dtype"
	"github.com/seed-ee968945/concert/internal/fillrand"
	"github.com/seed-ee968945/concert/internal/fingerprint"
	"github.com/seed-ee968945/concert/interp"
	"github.com/seed-ee968945/concert/interp/step"
)

// Inputs follow what fingerprints say of routing, those of each rank what its own say;
// what is recorded from them says it again.
func TestRoutedInputs(t *testing.T) {
	f := parsed(t, strings.NewReplacer("8,16", "32,64", "16,8", "64,32", "8,8", "32,32").Replace(overlapped))
	j := &Job{Config: Config{Random: "hash", Seed: 5, Same: "none"}, pair: &step.Pair{Name: "mlp", Forward: f}}
	q := fillrand.Routing{Experts: 4, Width: 64, Tokens: 16, Rows: 128}
	for r := range 4 {
		q := q
		q.Inputs = map[int]fillrand.Part{0: {Role: "table", First: int64(32 * r)}}
		j.prints = append(j.prints, &fingerprint.Set{Routing: map[string]*fillrand.Routing{"mlp.fw": &q}})
	}
	for r := range 4 {
		in, err := j.inputsOf(r)
		if err != nil {
			t.Fatal(err)
		}
		for k, got := range in {
			want, err := interp.NewTensor(dtype.BF16, got.Shape...)
			if err != nil {
				t.Fatal(err)
			}
			s := fillrand.New(5, k, r, 2)
			if k == 0 {
				err = q.Fill(fillrand.Part{Role: "table", First: int64(32 * r)}, s, want.Data, dtype.BF16, want.Shape)
			} else {
				err = s.Fill(want.Data, dtype.BF16)
			}
			if err != nil {
				t.Fatal(err)
			}
			if !bytes.Equal(got.Data, want.Data) {
				t.Errorf("rank %d: input %d is not what it should be", r, k)
			}
		}
	}
}

// Integers must be equal, inputs handed on too, and the loss is closer than the rest. What
// PyTorch's own runs are apart in may be further off, whatever is not chosen or handed on.
func TestPrintLimits(t *testing.T) {
	f := parsed(t, `world 2

func @limits(%x: bf16[8,8], %i: i64[8]) -> (f32[], bf16[8,8], i64[8], bf16[64], bf16[8,8], bool[8,8]) {
	%s = convert %x : f32[8,8]
	%l = mean %s {dims=[0, 1]} : f32[]
	%v = view %x : bf16[64]
	%y = mul %x, %x : bf16[8,8]
	%b = le %y {scalar=0} : bool[8,8]
	return %l, %y, %i, %v, %x, %b
}
`)
	share := math.Sqrt(roundingLimit)
	for _, c := range []struct {
		own               float64
		forward, backward []float64
	}{
		{0, []float64{lossLimit, roundingLimit, 0, inputLimit, inputLimit, share}, []float64{roundingLimit, roundingLimit, 0, roundingLimit, roundingLimit, share}},
		{0.3, []float64{0.9, 0.9, 0, inputLimit, inputLimit, 0.9}, []float64{0.9, 0.9, 0, 0.9, 0.9, 0.9}},
		{1e30, []float64{3, 3, 0, inputLimit, inputLimit, 3}, []float64{3, 3, 0, 3, 3, 3}}, // a run with NaN
	} {
		for half, limits := range [][]float64{c.forward, c.backward} {
			for k, s := range interp.OutputSlots(f) {
				n, _ := s.Type.Shape().Static()
				elems := int64(64)
				if len(n) == 0 {
					elems = 1
				}
				if got := printLimit(s, half > 0, fingerprint.Print{Elems: elems, Own: c.own}); math.Abs(got-limits[k]) > 1e-15 {
					t.Errorf("half %d output %d, PyTorch's own %g: %g, want %g", half, k, c.own, got, limits[k])
				}
			}
		}
	}
}
