package passes_test

import (
	"errors"
	"fmt"
	"runtime"
	"strings"
	"testing"

	"github.com/seed-ee968945/concert/ir"
	"github.com/seed-ee968945/concert/passes"
)

// TestFailsAlone fails on some of many functions: the first of them is named, and all that is left
// is the same, however many go side by side.
func TestFailsAlone(t *testing.T) {
	var text strings.Builder
	text.WriteString("world 1\n")
	for i := range 8 {
		fmt.Fprintf(&text, "\nfunc @f%d(%%a: f32[4]) -> (f32[4]) {\n  %%x = neg %%a : f32[4]\n  return %%x\n}\n", i)
	}
	tab := table(t, passes.Pass{Name: "marks", FunctionPass: true, Run: func(_ *passes.Context, f *ir.Func) error {
		if f.Name == "f1" || f.Name == "f5" {
			return errors.New("out of luck")
		}
		f.Rename(f.Lookup("x"), "y")
		return nil
	}})
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(0))
	var first string
	for _, procs := range []int{1, 2, 8} {
		runtime.GOMAXPROCS(procs)
		_, err := run(t, passes.Manager{}, tab, "marks", parse(t, text.String()))
		var failed *passes.PassError
		if !errors.As(err, &failed) || !strings.Contains(err.Error(), "@f1: out of luck") {
			t.Fatalf("on %d processors: %v", procs, err)
		}
		left := err.Error() + "\n" + string(failed.After)
		if first == "" {
			first = left
		}
		if left != first {
			t.Errorf("on %d processors:\n%s\nwant\n%s", procs, left, first)
		}
	}
}
