package spmd

import (
	"strings"
	"testing"

	"github.com/seed-ee968945/concert/ir"
)

// The parts of a contraction that is cut are added up, and the bias is added once: neither the operands nor the
// weights move. A factor stays with its addmm.
func TestAddmm(t *testing.T) {
	const text = `world 4

func @f(%x: f32[8,16] !{sharding=["<mesh<['h'=4]>, [{}, {'h'}]>"]}, %w: f32[16,12] !{sharding=["<mesh<['h'=4]>, [{'h'}, {}]>"]}, %b: f32[12]) -> (f32[8,12]) {
  %a = addmm %b, %x, %w {FACTOR} : f32[8,12] !{sharding=["<mesh<['h'=4]>, [{}, {}]>"]}
  %c = relu %a : f32[8,12]
  return %c !{sharding=["<mesh<['h'=4]>, [{}, {}]>"]}
}`
	for factor, moves := range map[string]string{"alpha=1.0": "all_reduce.sum", "beta=1.0": "all_reduce.sum", "alpha=2.0": "all_gather"} {
		m, err := ir.Parse("f.ir", strings.Replace(text, "FACTOR", factor, 1))
		if err != nil {
			t.Fatal(err)
		}
		got, err := agree(m, 1, false, 1e-5)
		if err != nil {
			t.Errorf("%s: %v", factor, err)
		}
		split := moves == "all_reduce.sum"
		if !strings.Contains(got, moves) || strings.Contains(got, "addmm") == split || split && strings.Count(got, "async") != 1 {
			t.Errorf("%s:\n%s", factor, got)
		}
	}
}
