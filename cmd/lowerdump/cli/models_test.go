package cli

import (
	"bytes"
	"context"
	"path/filepath"
	"strings"
	"testing"

	"github.com/seed-ee968945/concert/compile"
)

// Small models of many kinds, as tools/torch/models.py exports them, give what the reference
// interpreter gives, forward and backward, on the host and by generated kernels, and leave
// no operator to the caller. Those that are traced with a size known at run time only do for
// a size of its own on every rank.
func TestModels(t *testing.T) {
	files, err := filepath.Glob("../../../testdata/models/*.fw.graph.json.gz")
	if err != nil || len(files) < 30 {
		t.Fatal(len(files), err)
	}
	for _, fw := range files {
		name := strings.TrimSuffix(filepath.Base(fw), ".fw.graph.json.gz")
		bw := strings.Replace(fw, ".fw.", ".bw.", 1)
		for _, device := range [][]string{{"-device=host"}, {"-device=cuda", "-fake-gpus=4"}} {
			if testing.Short() && name != "bert" {
				continue
			}
			t.Run(name+"/"+strings.TrimPrefix(device[0], "-device="), func(t *testing.T) {
				var out, errs bytes.Buffer
				args := append([]string{"run", "-random=valid", "-expect=interp"}, device...)
				if strings.HasSuffix(name, "_any") { // traced with a batch of 4, for any
					args = append(args, "-sizes=s0=7/1/0/32")
				}
				args = append(args, fw, bw)
				none := func(string) string { return "" }
				if code := run(context.Background(), args, tool{compiler: compile.Compile, out: &out, err: &errs, env: none}); code != 0 || !strings.Contains(out.String(), "\nok: all ") {
					t.Fatalf("exit status %d\n%s\n%s", code, errs.String(), out.String())
				}
				if strings.Contains(out.String()+errs.String(), "warning[opaque]") {
					t.Errorf("an operator is not known:\n%s%s", out.String(), errs.String())
				}
			})
		}
	}
}
