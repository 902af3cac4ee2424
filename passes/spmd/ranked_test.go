package spmd

import (
	"fmt"
	"strings"
	"testing"

	"github.com/seed-ee968945/concert/equiv/mesh"
	"github.com/seed-ee968945/concert/ir"
)

// equals are elements of which many are equal, or no numbers.
var equals = map[string]string{
	"numbers":  "%y = neg %x : f32[N,3]",
	"ties":     "%s = mul %x {scalar=2.0} : f32[N,3]\n  %y = floor %s : f32[N,3]",
	"none":     "%y = log %x : f32[N,3]",
	"infinite": "%s = floor %x : f32[N,3]\n  %y = reciprocal %s : f32[N,3]",
	"lowest":   "%s = floor %x : f32[N,3]\n  %r = reciprocal %s : f32[N,3]\n  %y = neg %r : f32[N,3]",
	"whole":    "%s = mul %x {scalar=300.0} : f32[N,3]\n  %y = convert %s : i8[N,3]",
}

// The best of a dimension that is cut are those of all, in their order, where all of what a rank has is
// behind the end, too; moved are the best of each piece; and what is proved of a changed program
// computes that.
func TestBest(t *testing.T) {
	proved, tried := 0, 0
	for name, body := range equals {
		for n := int64(4); n < 14; n++ {
			for k := int64(0); k < min(n, 5); k++ {
				m, err := ir.Parse("f.ir", bestText(body, n, k, n%2 == 0))
				if err != nil {
					t.Fatal(err)
				}
				device := m.Clone().Funcs()[0]
				p, err := try(m, uint64(n), true)
				if err != nil {
					t.Fatal(err)
				}
				if strings.Count(m.String(), "all_gather %") != 2 {
					t.Fatalf("%s: %d of %d are not found where they are:\n%s", name, k, n, m)
				}
				if err := p.agrees(0); err != nil {
					t.Fatalf("%s: %d of %d: %v\n%s\n%s", name, k, n, err, device.Module(), m)
				}
				o, err := mesh.Annotated(device, p.to)
				if err != nil {
					t.Fatal(err)
				}
				if _, err := mesh.Check(device, p.to, o); err != nil {
					t.Fatalf("%s: %d of %d: %v\n%s", name, k, n, err, m)
				}
				a, b := survivors(t, p, device, o, uint64(n), *mutants/5)
				tried, proved = tried+a, proved+b
			}
		}
	}
	t.Logf("%d of %d mutants are proved, and equal", proved, tried)
}

// bestText has the k best of N, or the place of the best one, on four ranks.
func bestText(body string, n, k int64, largest bool) string {
	const at = `!{sharding=["<mesh<['x'=4]>, [{'x'}, {}]>"]}`
	dt := "f32"
	if strings.Contains(body, "i8") {
		dt = "i8"
	}
	out, ret := fmt.Sprintf("%s[%d,3], i64[%d,3]", dt, k, k), "%b#0, %b#1"
	op := fmt.Sprintf("%%b:2 = topk %%y {dim=0, k=%d, largest=%v} : %s", k, largest, out)
	if k == 0 {
		out, ret = "i64[3]", "%b"
		op = "%b = argmax %y {dim=0} : i64[3]"
	}
	text := "world 4\n\nfunc @f(%x: f32[N,3] " + at + ") -> (" + out + ") {\n  " + body + "\n  " + op + "\n  return " + ret + "\n}"
	return strings.ReplaceAll(text, "N", fmt.Sprint(n))
}
