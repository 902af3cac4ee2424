package cli

import (
	"bytes"
	"context"
	"path/filepath"
	"strings"
	"testing"

	"github.com/seed-ee968945/concert/compile"
)

// openSizes are values for the four ranks of the sizes with which models are traced open: batch and
// length of tokens and of labels, or batch, height and width of images.
var openSizes = map[string]string{
	"convnet_any": "s0=5/1/8/2,s1=20/9/33/64,s2=9/28/20/5",
	"decoder_any": "s0=5/1/8/2,s1=7/3/16/2,s2=5/1/8/2,s3=7/3/16/2",
	"encoder_any": "s0=5/1/8/2,s1=7/3/16/2,s2=5/1/8/2,s3=7/3/16/2",
	"gpt_any":     "s0=7/1/0/32",
	"unet_any":    "s0=5/1/8/2",
}

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
				if strings.HasSuffix(name, "_any") {
					args = append(args, "-sizes="+openSizes[name])
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
