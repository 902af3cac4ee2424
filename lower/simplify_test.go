package lower_test

import (
	"context"
	"testing"

	"github.com/seed-ee968945/concert/internal/golden/gen"
	"github.com/seed-ee968945/concert/internal/hostrun"
	"github.com/seed-ee968945/concert/interp"
	"github.com/seed-ee968945/concert/passes"
	"github.com/seed-ee968945/concert/passes/standard"
	rt "github.com/seed-ee968945/concert/runtime"
)

// Random programs of collectives, rewritten by algebra, give on the host device
// the bits that the interpreter gives of what they were before.
func TestSimplifiedProgramsRun(t *testing.T) {
	p, err := standard.Table().Parse("canonicalize,simplify-collectives")
	if err != nil {
		t.Fatal(err)
	}
	ctx := context.Background()
	rewrites := 0.0
	for seed := range uint64(60) {
		m, err := gen.Algebra(seed, gen.AlgebraConfig{Nodes: 16})
		if err != nil {
			t.Fatal(err)
		}
		f := m.Funcs()[0]
		in, err := interp.RandomInputs(f, seed, interp.RandomOptions{})
		if err != nil {
			t.Fatal(err)
		}
		want, err := interp.Run(ctx, f, in, interp.Options{Poison: true})
		if err != nil {
			t.Fatal(err)
		}
		g := passes.Manager{}
		rep, err := g.Run(m, p)
		if err != nil {
			t.Fatal(err)
		}
		rewrites += rep.Steps[1].Stat("fired")
		got, err := hostrun.Goroutines(rt.Config{})(ctx, f, in)
		if err != nil {
			t.Fatalf("seed %d: %v\n%s", seed, err, m)
		}
		for r := range want {
			for k := range want[r] {
				if !interp.Equal(got[r][k], want[r][k]) {
					t.Fatalf("seed %d: rank %d output %d differs\n%s", seed, r, k, m)
				}
			}
		}
	}
	if rewrites == 0 {
		t.Error("nothing was rewritten")
	}
}
