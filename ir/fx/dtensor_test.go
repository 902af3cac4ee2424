package fx_test

import (
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/txtar"

	"github.com/seed-ee968945/concert/interp"
	"github.com/seed-ee968945/concert/ir/fx"
)

// The exchange of testdata/dtensor.txtar gives what gathering and cutting do, and back what there was:
// the graph subtracts one from the other.
func TestShardAlongOther(t *testing.T) {
	a, err := txtar.ParseFile("testdata/dtensor.txtar")
	if err != nil {
		t.Fatal(err)
	}
	f, err := fx.Read("graph.json", strings.NewReader(string(a.Files[0].Data)))
	if err != nil {
		t.Fatal(err)
	}
	res, err := f.Import()
	if err != nil || len(res.Warnings) > 0 {
		t.Fatal(err, res.Warnings)
	}
	in := make([][]interp.Tensor, 4)
	for r := range in {
		rng, xs := rand.New(rand.NewPCG(1, uint64(r))), make([]float32, 4*3*8)
		for i := range xs {
			xs[i] = rng.Float32()
		}
		x, err := interp.FromSlice(xs, 4, 3, 8)
		if err != nil {
			t.Fatal(err)
		}
		in[r] = []interp.Tensor{x}
	}
	out, err := interp.Run(t.Context(), res.Func, in, interp.Options{})
	if err != nil {
		t.Fatal(err)
	}
	for r := range out {
		for k, y := range out[r] {
			for i, v := range y.Float64s() {
				if v != 0 {
					t.Fatalf("rank %d: element %d of result %d differs by %g", r, i, k, v)
				}
			}
		}
	}
}
