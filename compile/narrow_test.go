package compile_test

import (
	"strings"
	"testing"

	"github.com/seed-ee968945/concert/compile"
	"github.com/seed-ee968945/concert/ir"
)

// With narrow sums 16-bit floats travel where the program rounds a gradient, and the ranks are
// proved to compute it all the same; without, it is rounded once.
func TestNarrowSums(t *testing.T) {
	const step = `world 2

func @f(%x: f32[8,16] !{sharding=["<mesh<['fsdp'=2]>, [{'fsdp'}, {}]>"]}, %g: f32[8,32] !{sharding=["<mesh<['fsdp'=2]>, [{'fsdp'}, {}]>"]}) -> (bf16[16,32]) {
  %xt = permute %x {dims=[1,0]} : f32[16,8:1,16]
  %sum = matmul %xt, %g : f32[16,32]
  %grad = convert %sum : bf16[16,32]
  return %grad !{sharding=["<mesh<['fsdp'=2]>, [{'fsdp'}, {}]>"]}
}
`
	for narrow, want := range map[bool]string{false: "async f32[8,32]", true: "async bf16[8,32]"} {
		m, err := ir.Parse("step.ir", step)
		if err != nil {
			t.Fatal(err)
		}
		if err := compile.PartitionProved(m, compile.PartitionOptions{NarrowSums: narrow}); err != nil {
			t.Error(err)
		}
		if text := m.String(); !strings.Contains(text, want) {
			t.Errorf("narrow=%v: no %q in\n%s", narrow, want, text)
		}
	}
}
