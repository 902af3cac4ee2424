package spmd

import (
	"strings"
	"testing"

	"github.com/seed-ee968945/concert/ir"
)

// A result of which nothing is said lies as the input whose place it takes; one that lies otherwise takes
// none; and what was a copy of an input does not become the input itself.
func TestDonated(t *testing.T) {
	const rows, columns, all = `"<mesh<['x'=4]>, [{'x'}, {}]>"`, `"<mesh<['x'=4]>, [{}, {'x'}]>"`, `"<mesh<['x'=4]>, [{}, {}]>"`
	for name, c := range map[string]struct {
		x, y, results, body string
		kept                bool
	}{
		"follows":   {rows, columns, "%n", "%n = neg %y : f32[8,6]", true},
		"otherwise": {rows, columns, "%n !{sharding=[" + columns + "]}", "%n = neg %y : f32[8,6]", false},
		"whole":     {rows, rows, "%n !{sharding=[" + all + "]}", "%n = neg %y : f32[8,6]", false},
		"uneven":    {all, columns, "%n !{sharding=[" + all + "]}", "%n = neg %y : f32[8,6]", true},
		"copied":    {rows, rows, "%n, %r", "%n = neg %y : f32[8,6]\n  %i = iota {start=0} : i64[8]\n  %r = index %x, %i {dims=[0]} : f32[8,6]", true},
		"another":   {rows, rows, "%r", "%i = iota {start=0} : i64[8]\n  %r = index %y, %i {dims=[0]} : f32[8,6]", true},
	} {
		out := "f32[8,6]"
		if strings.Contains(c.results, ", %") {
			out += ", f32[8,6]"
		}
		text := "world 4\n\nfunc @f(%x: f32[8,6] {donate=0} !{sharding=[" + c.x + "]}, %y: f32[8,6] !{sharding=[" + c.y + "]}) -> (" + out + ") {\n  " + c.body + "\n  return " + c.results + "\n}"
		m, err := ir.Parse("f.ir", text)
		if err != nil {
			t.Fatal(err)
		}
		got, err := agree(m, 1, false, 0)
		if err != nil {
			t.Errorf("%s: %v\n%s", name, err, got)
		}
		if kept := strings.Contains(got, "donate=0"); kept != c.kept {
			t.Errorf("%s: donated: %v, want %v\n%s", name, kept, c.kept, got)
		}
	}
}
