package lower_test

import (
	"testing"

	"github.com/seed-ee968945/concert/ir"
	"github.com/seed-ee968945/concert/lower"
)

// A region that no kernel can compute is taken apart by the lowering, after its memory
// was planned; the rest keeps its kernels.
func TestTakenApart(t *testing.T) {
	m, err := ir.Parse("f.ir", `world 1

func @f(%x: f32[8,8], %y: f32[8,8]) -> (f32[8,8], f32[8]) {
  %a = neg %x : f32[8,8] !{fusion=0}
  %b = sum %a {dims=[0]} : f32[8] !{fusion=0}
  %c = sum %a {dims=[1]} : f32[8] !{fusion=0}
  %d = add %b, %c : f32[8] !{fusion=0}
  %e = neg %y : f32[8,8] !{fusion=1}
  %g = exp %e : f32[8,8] !{fusion=1}
  return %g, %d
}
`)
	if err != nil {
		t.Fatal(err)
	}
	f := optimised(t, m, "reuse-buffers,plan-memory").Funcs()[0]
	var before, after tally
	p, err := lower.Func(f)
	if err != nil {
		t.Fatal(err)
	}
	before.add(p)
	after.add(withKernels(t, f))
	if before.launches != 2 || after.launches != 5 || after.fused != 5 {
		t.Errorf("%+v with regions, %+v with one taken apart", before, after)
	}
}
