package cli

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/seed-ee968945/concert/compile"
)

// layouts are operands of every layout: the node that makes it of an input, and its type
// without the element type.
var layouts = []struct {
	input, node string
	sizes       [3]int
	strides     string
}{
	{"[8,4,12]", "", [3]int{8, 4, 12}, ""},
	{"[8,4,12]", "permute %s {dims=[2, 0, 1]}", [3]int{12, 8, 4}, ":1,48,12"},
	{"[8,4,12]", "slice %s {dim=2, start=2, end=10}", [3]int{8, 4, 8}, ":48,12,1"},
	{"[8,4,12]", "slice %s {dim=0, step=2}", [3]int{4, 4, 12}, ":96,12,1"},
	{"[1,4,12]", "expand %s", [3]int{8, 4, 12}, ":0,12,1"},
}

// everyCollective is a function of collectives of each kind, along each dimension, out of
// each layout, on every group; element types take turns.
func everyCollective() string {
	groups := map[string]int{"g": 4, "h": 2}
	text := "world 4\ngroup @g = [[0, 1, 2, 3]]\ngroup @h = [[0, 2], [1, 3]]\n\nfunc @f("
	var ins, body, types, outs []string
	for _, group := range []string{"g", "h"} {
		ranks := groups[group]
		for _, l := range layouts {
			for _, kind := range []string{"all_gather", "reduce_scatter.sum", "reduce_scatter.max", "all_to_all", "all_reduce.avg", "all_reduce.min", "broadcast", "collective_permute"} {
				for d := range 3 {
					sizes, attrs := l.sizes, fmt.Sprintf("{dim=%d}", d)
					op, reduces, _ := strings.Cut(kind, ".")
					switch {
					case op == "all_gather":
						sizes[d] *= ranks
					case op == "reduce_scatter":
						sizes[d] /= ranks
					case d > 0:
						continue
					case op == "all_to_all" || op == "all_reduce":
						attrs = ""
					case op == "broadcast":
						attrs = fmt.Sprintf("{root=%d}", ranks-1)
					case op == "collective_permute":
						pairs := []string{}
						for r := range ranks {
							pairs = append(pairs, fmt.Sprintf("%d, %d", r, (r+1)%ranks))
						}
						attrs = "{pairs=[" + strings.Join(pairs, ", ") + "]}"
					}
					dts := []string{"f32", "bf16", "i64", "u8", "f64", "i32", "bool", "f16"}
					dt := dts[len(outs)%len(dts)]
					if dt == "bool" && reduces != "" || dt != "f32" && reduces == "avg" {
						dt = "f32"
					}
					x := fmt.Sprintf("%%x%d", len(outs))
					ins = append(ins, x+": "+dt+l.input)
					if l.node != "" {
						shape := strings.ReplaceAll(strings.Trim(fmt.Sprint(l.sizes), "[]"), " ", ",")
						body = append(body, fmt.Sprintf("%%v%d = %s : %s[%s%s]", len(outs), fmt.Sprintf(l.node, x), dt, shape, l.strides))
						x = fmt.Sprintf("%%v%d", len(outs))
					}
					t := dt + strings.ReplaceAll(fmt.Sprint(sizes), " ", ",")
					body = append(body, fmt.Sprintf("%%c%d = %s %s on @%s %s : async %s", len(outs), strings.TrimSuffix(op+"."+reduces, "."), x, group, attrs, t),
						fmt.Sprintf("%%w%d = wait_tensor %%c%d : %s", len(outs), len(outs), t))
					types, outs = append(types, t), append(outs, fmt.Sprintf("%%w%d", len(outs)))
				}
			}
		}
	}
	return text + strings.Join(ins, ", ") + ") -> (" + strings.Join(types, ", ") + ") {\n  " + strings.Join(body, "\n  ") + "\n  return " + strings.Join(outs, ", ") + "\n}\n"
}

// Collectives of every kind, among two and four ranks, along every dimension and out of every layout give on GPUs what
// the interpreter gives.
func TestEveryCollective(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("GPUs that are not there need Linux")
	}
	path := filepath.Join(t.TempDir(), "collectives.ir")
	if err := os.WriteFile(path, []byte(everyCollective()), 0o666); err != nil {
		t.Fatal(err)
	}
	var out, errs bytes.Buffer
	args := []string{"run", "-random=valid", "-expect=interp", "-timeline=false", "-device=cuda", "-fake-gpus=4", path}
	none := func(string) string { return "" }
	if code := run(context.Background(), args, tool{compiler: compile.Compile, out: &out, err: &errs, env: none}); code != 0 || !strings.Contains(out.String(), "\nok: all ") {
		t.Errorf("exit status %d\n%s\n%s", code, errs.String(), out.String())
	}
}
