package gen_test

import (
	"testing"

	"github.com/seed-ee968945/concert/internal/golden/gen"
	"github.com/seed-ee968945/concert/ir"
	"github.com/seed-ee968945/concert/passes/passtest"
)

// legal makes a module, which runs, and is the same when made again.
func legal(t *testing.T, seed uint64, generate func() (*ir.Module, error)) *ir.Module {
	t.Helper()
	m, err := generate()
	if err != nil {
		t.Fatalf("seed %d: %v", seed, err)
	}
	again, err := generate()
	if err != nil || again.String() != m.String() {
		t.Fatalf("seed %d gives two modules", seed)
	}
	if err := passtest.SameResults(m, m, seed, 0); err != nil {
		t.Fatalf("seed %d: %v\n%s", seed, err, m)
	}
	return m
}

// Modules are legal, run, and are the same for the same seed; over some seeds
// they hold everything that the package promises.
func TestModule(t *testing.T) {
	seen := map[ir.Op]int{}
	variadic, asyncIn, asyncOut := 0, 0, 0
	for seed := range uint64(120) {
		c := gen.Config{Flights: seed%2 == 0, Effects: seed%3 == 0, Units: seed%5 == 0, Costs: true, World: 2 + 2*int(seed%2)}
		m := legal(t, seed, func() (*ir.Module, error) { return gen.Module(seed, c) })
		for _, n := range m.Funcs()[0].Order() {
			seen[n.Op()]++
			if n.Op().IsCollective() && len(n.Args()) > 1 {
				variadic++
			}
			if n.Op() == ir.OpInput && n.Result(0).Type().IsAsync() {
				asyncIn++
			}
		}
		for _, v := range m.Funcs()[0].Return().Args() {
			if v.Type().IsAsync() {
				asyncOut++
			}
		}
	}
	for _, op := range []ir.Op{ir.OpAllReduce, ir.OpAllGather, ir.OpReduceScatter, ir.OpAllToAll, ir.OpBroadcast, ir.OpCollectivePermute,
		ir.OpMatmul, ir.OpView, ir.OpSplit, ir.OpPermute, ir.OpSlice, ir.OpAlias, ir.OpClone, ir.OpCall, ir.OpRand, ir.OpRelu} {
		if seen[op] == 0 {
			t.Errorf("no %s in 120 modules", op)
		}
	}
	if variadic == 0 || asyncIn == 0 || asyncOut == 0 {
		t.Errorf("%d variadic collectives, %d async inputs, %d async outputs", variadic, asyncIn, asyncOut)
	}
}

// Modules of the algebra are legal, run, are the same for the same seed, and read
// or return all that they make.
func TestAlgebra(t *testing.T) {
	seen := map[ir.Op]int{}
	for seed := range uint64(150) {
		c := gen.AlgebraConfig{Smooth: seed%3 == 0, Writes: seed%2 == 0, Grown: seed%5 == 0}
		m := legal(t, seed, func() (*ir.Module, error) { return gen.Algebra(seed, c) })
		for _, n := range m.Funcs()[0].Order() {
			seen[n.Op()]++
			for _, v := range n.Results() {
				if len(v.Uses()) == 0 {
					t.Fatalf("seed %d: nobody reads %s", seed, v)
				}
			}
		}
	}
	for _, op := range []ir.Op{ir.OpAllReduce, ir.OpAllGather, ir.OpReduceScatter, ir.OpAllToAll, ir.OpBroadcast, ir.OpCollectivePermute,
		ir.OpShard, ir.OpConvert, ir.OpClamp, ir.OpFloor, ir.OpIndex, ir.OpView, ir.OpPermute, ir.OpSlice, ir.OpAlias, ir.OpFull, ir.OpCall} {
		if seen[op] == 0 {
			t.Errorf("no %s in 150 modules", op)
		}
	}
}
