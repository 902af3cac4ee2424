package fx_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/seed-ee968945/concert/ir"
	"github.com/seed-ee968945/concert/ir/fx"
)

// gatherDocument is a fused gather of f32[4,8] over two ranks with these arguments, read by these
// getitems.
func gatherDocument(scales, target, args string, out int, items ...string) string {
	var b strings.Builder
	b.WriteString(`{"name": "call", "world": 2, "groups": {"g": [[0, 1]]}, "nodes": [`)
	node := func(name, kind, target, inputs, args, out string) {
		fmt.Fprintf(&b, `{"name": %q, "kind": %q, "target": %q, "inputs": [%s], "args": %q, "out": [%s]},`, name, kind, target, inputs, args, out)
	}
	tensor := func(r, c int) string {
		return fmt.Sprintf(`{"shape": [%d, %d], "stride": [%d, 1], "dtype": "float32"}`, r, c, c)
	}
	node("a", "input", "a", "", "()", tensor(4, 8))
	node("b", "input", "b", "", "()", tensor(8, 8))
	node("s", "input", "s", "", "()", `{"shape": [`+scales+`], "stride": [1, 1], "dtype": "float32"}`)
	outs := []string{tensor(8, 8), tensor(8, 8), tensor(8, 8)}
	inputs := `"a", "b"`
	if strings.Contains(args, ", s") {
		inputs += `, "s"`
	}
	node("y", "compute", target, inputs, args, strings.Join(outs[:out], ", "))
	last := "y"
	for i, item := range items {
		from, to := last, fmt.Sprintf("i%d", i)
		n := 1
		if strings.HasPrefix(item, "list ") {
			n, item = out-1, item[5:]
		}
		node(to, "view", "<built-in function getitem>", `"`+from+`"`, fmt.Sprintf("(%s, %s)", from, item), strings.Join(outs[:n], ", "))
		last = to
	}
	fmt.Fprintf(&b, `{"name": "output", "kind": "output", "target": "output", "inputs": [%q], "args": "((%s,),)", "out": []}]}`, last, last)
	return b.String()
}

// What a fused gather's arguments may be, and its pair of a tensor and a list.
func TestFusedGather(t *testing.T) {
	const plain, scaled = "symm_mem.fused_all_gather_matmul.default", "symm_mem.fused_all_gather_scaled_matmul.default"
	for _, c := range []struct {
		what, scales, target, args string
		out                        int
		items                      []string
		want                       string // of the error or, behind opaque, of the warning
	}{
		{"the gathered tensor", "1, 1", plain, "(a, [b, b], 0, 'g')", 3, []string{"0"}, ""},
		{"a product", "1, 1", plain, "(a, [b, b], 0, 'g')", 3, []string{"list 1", "1"}, ""},
		{"no such product", "1, 1", plain, "(a, [b, b], 0, 'g')", 3, []string{"list 1", "2"}, "item 2"},
		{"no such item", "1, 1", plain, "(a, [b, b], 0, 'g')", 3, []string{"2"}, "item 2"},
		{"a dimension that is not there", "1, 1", plain, "(a, [b, b], 2, 'g')", 3, []string{"0"}, "opaque"},
		{"another group", "1, 1", plain, "(a, [b, b], 0, 'h')", 3, []string{"0"}, `group "h" is not declared`},
		{"columns that do not fit", "1, 1", plain, "(a, [b, b], 1, 'g')", 3, []string{"0"}, "opaque"},
		{"scales of rows", "4, 1", scaled, "(a, [b], s, [s], 0, 'g', [None], [None], [None], [False])", 2, []string{"list 1", "0"}, "opaque"}, // s is none of columns
		{"scales of blocks", "2, 2", scaled, "(a, [b], s, [s], 0, 'g', [None], [None], [None], [False])", 2, []string{"list 1", "0"}, "opaque"},
		{"one scale", "1, 1", scaled, "(a, [b], s, [s], 0, 'g', [None], [s], [None], [False])", 2, []string{"list 1", "0"}, ""},
		{"no scale of columns", "1, 1", scaled, "(a, [b], s, [], 0, 'g', [], [], [], [])", 2, []string{"list 1", "0"}, "opaque"},
	} {
		f, err := fx.Read("call.json", strings.NewReader(gatherDocument(c.scales, c.target, c.args, c.out, c.items...)))
		if err != nil {
			t.Fatalf("%s: %v", c.what, err)
		}
		res, err := f.Import()
		if c.want != "" && c.want != "opaque" {
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%s: %v", c.what, err)
			}
			continue
		}
		if err != nil {
			if c.want != "opaque" { // getitems of an opaque call's list do not fit its results
				t.Errorf("%s: %v", c.what, err)
			}
			continue
		}
		if opaque := len(res.Warnings) > 0; opaque != (c.want == "opaque") {
			t.Errorf("%s: warnings %v", c.what, res.Warnings)
		}
		collectives := 0
		for _, n := range res.Func.Order() {
			if n.Op() == ir.OpAllGather {
				collectives++
			}
		}
		if want := map[bool]int{true: 0, false: 1}[c.want == "opaque"]; collectives != want {
			t.Errorf("%s: %d collectives", c.what, collectives)
		}
	}
}
