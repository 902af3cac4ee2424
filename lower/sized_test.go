package lower_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"testing"

	"github.com/rogpeppe/go-internal/txtar"

	"github.com/seed-ee968945/concert/internal/hostrun"
	"github.com/seed-ee968945/concert/interp"
	"github.com/seed-ee968945/concert/ir"
	"github.com/seed-ee968945/concert/lower"
	rt "github.com/seed-ee968945/concert/runtime"
)

// A mixture of experts whose rows are known at run time only gives the interpreter's
// bits whatever ranks send each other, nothing and the bounds among it.
func TestRunTimeRows(t *testing.T) {
	data, err := os.ReadFile(testdata + "golden/emit/moe_uneven.txtar")
	if err != nil {
		t.Fatal(err)
	}
	m, err := ir.Parse("moe_uneven", string(txtar.Parse(data).Files[1].Data))
	if err != nil {
		t.Fatal(err)
	}
	before := m.Funcs()[0]
	after := forCUDA(t, m).Funcs()[0]
	if n := fusedLaunches(t, after); n > 10 {
		t.Errorf("%d launches of kernels: regions of rows are not formed", n)
	}
	most := m.Symbol("a").Max
	ctx := context.Background()
	run := hostrun.GoroutinesWith(rt.Config{}, lower.Options{Kernels: true})
	rng := rand.New(rand.NewPCG(3, 4))
	for round := range 12 {
		sent := [2][2]int64{} // by sender and receiver
		for i := range 4 {
			switch {
			case round == 0:
			case round == 1 || rng.IntN(4) == 0:
				sent[i/2][i%2] = most * int64(rng.IntN(2)|round&1)
			default:
				sent[i/2][i%2] = rng.Int64N(most + 1)
			}
		}
		var syms []map[string]int64
		for r := range 2 {
			syms = append(syms, map[string]int64{"a": sent[r][0], "b": sent[r][1], "c": sent[0][r], "d": sent[1][r]})
		}
		in, err := interp.RandomInputs(before, uint64(round), interp.RandomOptions{Symbols: syms})
		if err != nil {
			t.Fatal(err)
		}
		want, err := interp.Run(ctx, before, in, interp.Options{Symbols: syms})
		if err != nil {
			t.Fatal(err)
		}
		got, err := run(ctx, after, in)
		if err != nil {
			t.Fatal(fmt.Errorf("%v: %w", sent, err))
		}
		for r := range want {
			for k := range want[r] {
				if !interp.Equal(got[r][k], want[r][k]) {
					t.Errorf("%v: rank %d output %d differs from the interpreter's", sent, r, k)
				}
			}
		}
	}
}

// fusedLaunches counts the launches of kernels; all others have to be products.
func fusedLaunches(t *testing.T, f *ir.Func) int {
	t.Helper()
	p := lowerWith(t, f, lower.Options{Kernels: true})
	n := 0
	for i := range p.Instrs {
		in := &p.Instrs[i]
		switch {
		case p.Kernel(in) != nil:
			n++
		case in.Kind.String() == "launch" && in.Op != "matmul":
			t.Errorf("%%%s = %s has no kernel", in.Node, in.Op)
		}
	}
	return n
}
