package passes_test

import (
	"testing"

	"github.com/seed-ee968945/concert/ir"
	"github.com/seed-ee968945/concert/passes"
	"github.com/seed-ee968945/concert/passes/standard"
)

// dear is a model by which every collective costs nearly the most that a node may.
type dear struct{}

func (dear) NodeMs(*ir.Node) (float64, bool) { return 0.9 * ir.MaxCost, true }

func (dear) CommMs(ir.Op, *ir.Group, ir.Reduction, int64) (float64, bool) {
	return 1.5 * ir.MaxCost, true
}

// Buckets, and what algebra makes of collectives, cost no more than the verifier allows.
func TestDear(t *testing.T) {
	const text = `world 2
group @g = [[0, 1]]
func @f(%a: f32[4,4], %b: f32[4,4]) -> (f32[4,4], f32[4,4], f32[8,4]) {
  %s0 = all_reduce.sum %a on @g : async f32[4,4] ms 9e11
  %s1 = all_reduce.sum %b on @g : async f32[4,4] ms 9e11
  %d0 = wait_tensor %s0 : f32[4,4]
  %d1 = wait_tensor %s1 : f32[4,4]
  %p = reduce_scatter.sum %a on @g {dim=0} : async f32[2,4] ms 9e11
  %q = wait_tensor %p : f32[2,4]
  %u = all_gather %q on @g {dim=0} : async f32[4,4] ms 9e11
  %v = wait_tensor %u : f32[4,4]
  %w = cat %v, %d0 {dim=0} : f32[8,4]
  return %d0, %d1, %w
}
`
	for _, pipeline := range []string{"bucket{mode=all}", "simplify-collectives", "overlap", "default", "cuda"} {
		m, err := ir.Parse("dear.ir", text)
		if err != nil {
			t.Fatal(err)
		}
		p, err := standard.Table().Parse(pipeline)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := (&passes.Manager{Costs: dear{}}).Run(m, p); err != nil {
			t.Errorf("%s: %v", pipeline, err)
		}
	}
}
