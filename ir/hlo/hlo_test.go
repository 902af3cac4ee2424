package hlo

import (
	"compress/gzip"
	"flag"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/txtar"
	"github.com/seed-ee968945/concert/internal/text/texttest"
	"github.com/seed-ee968945/concert/ir"
	"github.com/seed-ee968945/concert/ir/stablehlo"
)

var update = flag.Bool("update", false, "rewrite the expectations in testdata")

// program reads a text as a program.
func program(name, text string) (*stablehlo.Program, error) {
	m, err := Parse(name, text)
	if err != nil {
		return nil, err
	}
	return m.Program()
}

// Modules become functions, and broken ones are refused with the place and a caret.
func TestModules(t *testing.T) {
	for _, path := range []string{"testdata/modules.txtar", "testdata/errors.txtar"} {
		texttest.Wants(t, path, *update, func(name, text string) string {
			p, err := program(name, text)
			if err != nil {
				return err.Error() + "\n"
			}
			return p.Module.String()
		})
	}
}

// beside has modules that others published.
const beside = "../../../shared/hlo"

// What XLA's partitioner made of a large step: sums that are only sliced are seen as such.
func TestPublished(t *testing.T) {
	f, err := os.Open(filepath.Join(beside, "llama31_8b_bf16_1x8.hlo.gz"))
	if err != nil {
		t.Skip(err)
	}
	defer f.Close()
	z, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	text, err := io.ReadAll(z)
	if err != nil {
		t.Fatal(err)
	}
	p, err := program("llama.hlo", string(text))
	if err != nil {
		t.Fatal(err)
	}
	count := map[string]int{}
	for _, n := range p.Module.Funcs()[0].Order() {
		count[n.Op().Name()]++
		if n.Op() != ir.OpWaitTensor || n.Arg(0).Def().Op() != ir.OpAllReduce {
			continue
		}
		if uses := n.Result(0).Uses(); len(uses) == 1 && uses[0].Node.Op() == ir.OpShard {
			count["sliced"]++
		}
	}
	for what, n := range map[string]int{"all_reduce": 1197, "all_gather": 450, "attention": 32, "attention_backward": 32, "call": 0, "sliced": 226} {
		if count[what] != n {
			t.Errorf("%d of %s, want %d", count[what], what, n)
		}
	}
	if n := len(p.Module.Funcs()[0].Donations()); n == 0 {
		t.Error("nothing is donated")
	}
}

// FuzzParse: whatever a text is, it is imported or refused.
func FuzzParse(f *testing.F) {
	for _, path := range []string{"testdata/modules.txtar", "testdata/errors.txtar"} {
		a, err := txtar.ParseFile(path)
		if err != nil {
			f.Fatal(err)
		}
		for _, file := range a.Files {
			if strings.HasSuffix(file.Name, ".hlo") {
				f.Add(string(file.Data))
			}
		}
	}
	f.Fuzz(func(t *testing.T, text string) {
		if len(text) > 1<<16 {
			return
		}
		if _, err := program("fuzz", text); err != nil {
			_ = err.Error()
		}
	})
}
