package spmd

import (
	"fmt"
	"strings"
	"testing"

	"github.com/seed-ee968945/concert/equiv/mesh"
	"github.com/seed-ee968945/concert/ir"
)

// runs are operations along a dimension of N that is cut. N-1 is written M.
var runs = map[string]string{
	"reverse": `  %i = iota {start=M, step=-1} : i64[N]
  %y = index %x, %i {dims=[0]} : f32[N,C]`,
	"cumsum":  `  %y = cumsum %x {dim=0} : f32[N,C]`,
	"sum":     `  %y = reduce_window %x {padding=[M, 0, 0, 0], reduce="sum", window=[N, 1]} : f32[N,C]`,
	"max":     `  %y = reduce_window %x {padding=[M, 0, 0, 0], reduce="max", window=[N, 1]} : f32[N,C]`,
	"min":     `  %y = reduce_window %x {padding=[0, M, 0, 0], reduce="min", window=[N, 1]} : f32[N,C]`,
	"product": `  %y = reduce_window %x {padding=[0, M, 0, 0], reduce="product", window=[N, 1]} : f32[N,C]`,
	"update":  `  %y = slice_scatter %x, %t {dim=0, end=8, start=5} : f32[N,C]`,
}

func alongText(body string, n, c int) string {
	const at = `!{sharding=["<mesh<['x'=4]>, [{'x'}, {}]>"]}`
	text := "world 4\n\nfunc @f(%x: f32[N,C] " + at + ", %t: f32[3,C]) -> (f32[N,C]) {\n" + body + " " + at + "\n  return %y " + at + "\n}"
	return strings.NewReplacer("M", fmt.Sprint(n-1), "N", fmt.Sprint(n), "C", fmt.Sprint(c)).Replace(text)
}

// What runs along a dimension that is cut moves less than all of it, computes what it does whole,
// and is proved to; what is proved of a changed one computes that, too.
func TestAlong(t *testing.T) {
	for name, body := range runs {
		for _, n := range []int{12, 10, 9} {
			m, err := ir.Parse("f.ir", alongText(body, n, 2))
			if err != nil {
				t.Fatal(err)
			}
			device := m.Clone().Funcs()[0]
			p, err := try(m, 1, true)
			if err != nil {
				t.Fatal(err)
			}
			if err := p.agrees(1e-5); err != nil {
				t.Errorf("%s of %d: %v\n%s", name, n, err, m)
				continue
			}
			o, err := mesh.Annotated(device, p.to)
			if err == nil {
				_, err = mesh.Check(device, p.to, o)
			}
			if err != nil && n != 9 { // of which one rank has nothing
				t.Errorf("%s of %d: %v\n%s", name, n, err, m)
			}
			tried, proved := survivors(t, p, device, o, uint64(n), *mutants)
			t.Logf("%s of %d: %d of %d mutants are proved, and equal", name, n, proved, tried)
		}
		m, err := ir.Parse("f.ir", alongText(body, 1000, 4096))
		if err != nil {
			t.Fatal(err)
		}
		p, err := cheapest(m.Funcs()[0], true, false)
		if err != nil {
			t.Fatal(err)
		}
		p.to = m.AddFunc("f")
		if err := p.run(); err != nil {
			t.Fatal(err)
		}
		if piece := int64(250 * 4096 * 4); p.moved > piece {
			t.Errorf("%s: %d bytes are moved, of a piece of %d\n%s", name, p.moved, piece, p.to.AppendText(nil))
		}
	}
}
