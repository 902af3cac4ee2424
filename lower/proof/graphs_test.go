package proof_test

import (
	"flag"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/seed-ee968945/concert/cost"
	"github.com/seed-ee968945/concert/ir"
	"github.com/seed-ee968945/concert/ir/fx"
	"github.com/seed-ee968945/concert/lower"
	"github.com/seed-ee968945/concert/lower/proof"
	"github.com/seed-ee968945/concert/passes"
	"github.com/seed-ee968945/concert/passes/standard"
)

var large = flag.Bool("large", false, "prove the programs of traced graphs of whole models, too")

// form is a way to lower a function.
type form struct {
	name     string
	pipeline string
	o        lower.Options
}

// forms are those of programs that are run.
var forms = []form{
	{"as traced", "", lower.Options{}},
	{"host", "default", lower.Options{}},
	{"gpu", "cuda", lower.Options{Kernels: true}},
	{"buckets", "overlap", lower.Options{}},
}

// The programs of traced graphs are proved. With -v the log says what that takes beside
// lowering.
func TestGraphs(t *testing.T) {
	var files []string
	for _, d := range []string{"../../testdata/graphs", "../../../shared/graphs"} {
		found, err := filepath.Glob(filepath.Join(d, "*.graph.json.gz"))
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range found {
			if !slices.ContainsFunc(files, func(g string) bool { return filepath.Base(g) == filepath.Base(f) }) {
				files = append(files, f)
			}
		}
	}
	const small = 20_000
	for _, file := range files {
		if s, err := os.Stat(file); err != nil || s.Size() > small && !*large {
			continue
		}
		for _, form := range forms {
			t.Run(filepath.Base(file)+"/"+form.name, func(t *testing.T) {
				f := scheduled(t, file, form.pipeline)
				begin := time.Now()
				p, err := lower.FuncWith(f, form.o)
				if err != nil {
					t.Fatal(err)
				}
				lowering := time.Since(begin)
				begin = time.Now()
				if err := proof.Check(f, p); err != nil {
					t.Error(err)
				}
				t.Logf("%d nodes, lowering %v, proof %v", len(f.Order()), lowering.Round(time.Millisecond), time.Since(begin).Round(time.Millisecond))
			})
		}
	}
}

// scheduled reads a traced graph and runs a pipeline.
func scheduled(t testing.TB, file, pipeline string) *ir.Func {
	t.Helper()
	g, err := fx.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	in, err := g.Import()
	if err != nil {
		t.Fatal(err)
	}
	m := in.Module
	if pipeline != "" {
		p, err := standard.Table().Parse(pipeline)
		if err != nil {
			t.Fatal(err)
		}
		r := passes.Manager{Costs: cost.TracedH200()}
		if _, err := r.Run(m, p); err != nil {
			t.Fatal(err)
		}
	}
	return m.Funcs()[0]
}

// BenchmarkProof is what a proof takes beside lowering.
func BenchmarkProof(b *testing.B) {
	const file = "../../testdata/graphs/llama70b_fsdp8_tp8.bw.graph.json.gz"
	if _, err := os.Stat(file); err != nil {
		b.Skip(err)
	}
	for _, form := range forms {
		f := scheduled(b, file, form.pipeline)
		p, err := lower.FuncWith(f, form.o)
		if err != nil {
			b.Fatal(err)
		}
		b.Run(form.name+"/lowering", func(b *testing.B) {
			for b.Loop() {
				if _, err := lower.FuncWith(f, form.o); err != nil {
					b.Fatal(err)
				}
			}
		})
		b.Run(form.name+"/proof", func(b *testing.B) {
			for b.Loop() {
				if err := proof.Check(f, p); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
