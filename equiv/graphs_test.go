package equiv_test

import (
	"flag"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/seed-ee968945/concert/cost"
	"github.com/seed-ee968945/concert/ir"
	"github.com/seed-ee968945/concert/ir/fx"
	"github.com/seed-ee968945/concert/passes"
	"github.com/seed-ee968945/concert/passes/standard"
)

var large = flag.Bool("large", false, "prove the passes on traced graphs of whole models, too")

// beside is where the graphs of whole models are.
const beside = "../../shared/graphs"

// graphs lists the traced graphs of files up to a size: a few are in the tree, those of
// whole models lie beside it where it is developed.
func graphs(t testing.TB, size int64) []string {
	var files []string
	for _, d := range []string{"../testdata/graphs", beside} {
		found, err := filepath.Glob(filepath.Join(d, "*.graph.json.gz"))
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range found {
			s, err := os.Stat(f)
			if err != nil {
				t.Fatal(err)
			}
			if s.Size() <= size && !slices.ContainsFunc(files, func(g string) bool { return filepath.Base(g) == filepath.Base(f) }) {
				files = append(files, f)
			}
		}
	}
	return files
}

// pipelines lists the named pipelines, each under one name.
func pipelines() []passes.NamedPipeline {
	var out []passes.NamedPipeline
	for _, p := range standard.Table().Pipelines() {
		if !slices.ContainsFunc(out, func(q passes.NamedPipeline) bool { return q.Text == p.Text }) {
			out = append(out, p)
		}
	}
	return out
}

// Every pass of every named pipeline is proved on the traced graphs.
func TestGraphs(t *testing.T) {
	size := int64(20_000)
	if *large {
		size = math.MaxInt64
	}
	if _, err := os.Stat(beside); err != nil {
		t.Run("whole models", func(t *testing.T) { t.Skipf("their graphs are not here: %v", err) })
	} else if !*large {
		t.Run("whole models", func(t *testing.T) { t.Skip("-large proves them, too") })
	}
	for _, file := range graphs(t, size) {
		in := traced(t, file)
		for _, pipeline := range pipelines() {
			t.Run(filepath.Base(file)+"/"+pipeline.Name, func(t *testing.T) { run(t, in.Clone(), pipeline.Name, passes.ValidateAlways) })
		}
	}
}

// BenchmarkValidate compares pipelines with and without proofs.
func BenchmarkValidate(b *testing.B) {
	for _, file := range graphs(b, math.MaxInt64) {
		in := traced(b, file)
		for _, pipeline := range pipelines() {
			b.Run(strings.TrimSuffix(filepath.Base(file), ".graph.json.gz")+"/"+pipeline.Name, func(b *testing.B) {
				var spent [2]time.Duration
				for range b.N {
					for i, mode := range []passes.ValidateMode{passes.ValidateNever, passes.ValidateAlways} {
						m := in.Clone()
						runtime.GC()
						begin := processor(b)
						run(b, m, pipeline.Name, mode)
						spent[i] += processor(b) - begin
					}
				}
				ms := func(d time.Duration) float64 { return float64(d.Microseconds()) / 1e3 / float64(b.N) }
				b.ReportMetric(0, "ns/op")
				b.ReportMetric(ms(spent[0]), "ms-without")
				b.ReportMetric(ms(spent[1]), "ms-with")
				b.ReportMetric(float64(spent[1])/float64(spent[0]), "x")
			})
		}
	}
}

// processor is the time of processors so far, which other programs do not change.
func processor(t testing.TB) time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		t.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

func traced(t testing.TB, file string) *ir.Module {
	g, err := fx.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	in, err := g.Import()
	if err != nil {
		t.Fatal(err)
	}
	return in.Module
}

func run(t testing.TB, m *ir.Module, pipeline string, mode passes.ValidateMode) {
	p, err := standard.Table().Parse(pipeline)
	if err != nil {
		t.Fatal(err)
	}
	g := passes.Manager{Costs: cost.TracedH200(), Validate: mode}
	if _, err := g.Run(m, p); err != nil {
		t.Fatal(err)
	}
}
