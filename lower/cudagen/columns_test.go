package cudagen_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/seed-ee968945/concert/internal/prelude/clang"
	"github.com/seed-ee968945/concert/ir"
	"github.com/seed-ee968945/concert/lower/cudagen"
)

// Several folds of wide columns have the shared memory that a block has: a machine refuses code that wants more.
func TestColumnsFitSharedMemory(t *testing.T) {
	for i, c := range []struct{ from, to, folds string }{
		{"bf16", "bf16", "sum"}, {"bf16", "bf16", "sum amax amin"}, {"bf16", "f32", "sum amax amin prod"}, {"bf16", "f64", "sum amax"},
		{"u8", "u8", "sum amax amin"}, {"f64", "f64", "sum amax amin prod"}, {"f16", "f16", "mean softmax amin"},
	} {
		for _, columns := range []int{1000, 20000, 1 << 17} {
			var body strings.Builder
			var returns, types []string
			for _, fold := range strings.Fields(c.folds) {
				typ, along := fmt.Sprintf("%s[%d]", c.to, columns), "{dims=[0]}"
				switch {
				case fold == "softmax":
					typ, along = fmt.Sprintf("%s[256,%d]", c.to, columns), "{dim=0}"
				case fold == "sum" && c.to == "u8":
					typ = fmt.Sprintf("i64[%d]", columns)
				}
				fmt.Fprintf(&body, "  %%%s = %s %%y %s : %s\n", fold, fold, along, typ)
				returns, types = append(returns, "%"+fold), append(types, typ)
			}
			m, err := ir.Parse("columns", fmt.Sprintf("world 1\nfunc @f(%%x: %s[256,%d]) -> (%s) {\n  %%y = convert %%x : %s[256,%d]\n%s  return %s\n}\n",
				c.from, columns, strings.Join(types, ", "), c.to, columns, &body, strings.Join(returns, ", ")))
			if err != nil {
				t.Fatal(err)
			}
			f := m.Funcs()[0]
			st, err := ir.ComputeStorages(f)
			if err != nil {
				t.Fatal(err)
			}
			order := f.Order()
			k, err := cudagen.Generate(fmt.Sprintf("k%d", i), st, order[1:len(order)-1])
			if err != nil {
				t.Fatal(err)
			}
			if n := clang.Shared(t, c.folds, k.Source()); n > clang.SharedLimit {
				t.Errorf("%s of %s[256,%d] as %s: %d bytes of shared memory, there are %d", c.folds, c.from, columns, c.to, n, clang.SharedLimit)
			}
		}
	}
}
