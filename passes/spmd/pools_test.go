package spmd

import (
	"fmt"
	"testing"

	"github.com/seed-ee968945/concert/equiv/mesh"
	"github.com/seed-ee968945/concert/ir"
)

// Pools whose rows and columns are sharded, evenly or not, take halos along both, and are proved; what is
// proved of a changed program computes that, too.
func TestPools(t *testing.T) {
	tried, proved := 0, 0
	for _, how := range []string{"max", "min", "sum"} {
		for _, size := range [][2]int64{{8, 8}, {9, 8}, {8, 9}, {9, 11}} {
			for _, w := range []struct {
				text string
				out  func(n int64) int64
			}{
				{"padding=[1, 1, 1, 1], reduce=%q, window=[3, 3]", func(n int64) int64 { return n }},
				{"padding=[1, 0, 1, 0], reduce=%q, strides=[2, 2], window=[3, 3]", func(n int64) int64 { return (n-2)/2 + 1 }},
			} {
				const at = `!{sharding=["<mesh<['x'=2, 'y'=2]>, [{'x'}, {'y'}]>"]}`
				out := fmt.Sprintf("f32[%d,%d]", w.out(size[0]), w.out(size[1]))
				text := fmt.Sprintf("world 4\n\nfunc @f(%%x: f32[%d,%d] %s) -> (%s) {\n  %%y = reduce_window %%x {%s} : %s\n  return %%y %s\n}", size[0], size[1], at, out, fmt.Sprintf(w.text, how), out, at)
				m, err := ir.Parse("f.ir", text)
				if err != nil {
					t.Fatal(err)
				}
				device := m.Clone().Funcs()[0]
				p, err := try(m, 1, true)
				if err != nil {
					t.Fatal(err)
				}
				if err := p.agrees(1e-5); err != nil {
					t.Fatalf("%v\n%s\n%s", err, text, m)
				}
				o, err := mesh.Annotated(device, p.to)
				if err == nil {
					_, err = mesh.Check(device, p.to, o)
				}
				if err != nil {
					t.Fatalf("%v\n%s\n%s", err, text, m)
				}
				a, b := survivors(t, p, device, o, uint64(size[0]), *mutants/2)
				tried, proved = tried+a, proved+b
			}
		}
	}
	t.Logf("%d of %d mutants are proved, and equal", proved, tried)
}
