package pipelinecollectives_test

import (
	"fmt"
	"testing"

	"github.com/seed-ee968945/concert/ir"
	"github.com/seed-ee968945/concert/passes"
	"github.com/seed-ee968945/concert/passes/standard"
)

// Collectives keep their side of calls that communicate, and stay where something writes what
// they read or bring.
func TestCallsInRounds(t *testing.T) {
	const program = `world 2
group @g = [[0, 1]]
func @main(%%x: f32[8], %%w: f32[9,4], %%s: f32[9,4]) -> (f32[8], f32[9,4]) {
  %%zero = full {value=0} : i64[]
  %%r:3 = while %%zero, %%x, %%s, %%w {body="round", cond="more", trips=5, uniform=true} : i64[], f32[8], f32[9,4]
  return %%r#1, %%r#2
}
func @more(%%i: i64[], %%y: f32[8], %%s: f32[9,4], %%w: f32[9,4]) -> (bool[]) {
  %%c = lt %%i {scalar=5} : bool[]
  return %%c
}
func @round(%%i: i64[], %%y: f32[8], %%s: f32[9,4], %%w: f32[9,4]) -> (i64[], f32[8], f32[9,4]) {
  %%at = view %%i : i64[1]
  %%row = index %%w, %%at {dims=[0]} : f32[1,4]
  %%part = view %%row : f32[4]
  %%a = all_gather %%part on @g {dim=0} : async f32[8]
  %%whole = wait_tensor %%a : f32[8]
  %%q = mul %%y, %%whole : f32[8]
  %%d = reduce_scatter.sum %%q on @g {dim=0} : async f32[4]
  %%sum = wait_tensor %%d : f32[4]
  %s
  %%z = mul %%y, %%y : f32[8]
  %%new = view %%sum : f32[1,4]
  %%t = index_put %%s, %%new, %%at {dims=[0]} : f32[9,4]
  %%j = add %%i {scalar=1} : i64[]
  return %%j, %%z, %%t
}
`
	for _, c := range []struct {
		call          string
		ahead, behind float64
	}{
		{"", 1, 1},
		{`%inc:0 = call %part {effects=["writes"], target="inc"}`, 0, 1},
		{`%inc:0 = call %whole {effects=["writes"], target="inc"}`, 0, 1},
		{`%inc:0 = call %q {effects=["writes"], target="inc"}`, 1, 0},
		{`%inc:0 = call %sum {effects=["writes"], target="inc"}`, 1, 0},
		{`%k = call %y {effects=["communicates"], target="inc"} : f32[8]`, 0, 0},
	} {
		m, err := ir.Parse("calls.ir", fmt.Sprintf(program, c.call))
		if err != nil {
			t.Fatal(err)
		}
		p, err := standard.Table().Parse("pipeline-collectives{when=always}")
		if err != nil {
			t.Fatal(err)
		}
		g := passes.Manager{Validate: passes.ValidateAlways}
		rep, err := g.Run(m, p)
		if err != nil {
			t.Errorf("%q: %v", c.call, err)
		} else if a, b := rep.Steps[0].Stat("ahead"), rep.Steps[0].Stat("behind"); a != c.ahead || b != c.behind {
			t.Errorf("%q: %v start ahead and %v run behind", c.call, a, b)
		}
	}
}
