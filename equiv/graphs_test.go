package equiv_test

import (
	"flag"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/seed-ee968945/concert/cost"
	"github.com/seed-ee968945/concert/equiv"
	"github.com/seed-ee968945/concert/ir"
	"github.com/seed-ee968945/concert/ir/fx"
	"github.com/seed-ee968945/concert/lower"
	"github.com/seed-ee968945/concert/passes"
)

var large = flag.Bool("large", false, "prove the passes on traced graphs of whole models, too")

// Every pass of every pipeline is proved on the traced graphs. With -v the log says what
// that takes beside the passes themselves.
func TestGraphs(t *testing.T) {
	var files []string
	for _, d := range []string{"../testdata/graphs", "../../shared/graphs"} {
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
		for _, pipeline := range []string{"default", "cuda", "order-only"} {
			t.Run(filepath.Base(file)+"/"+pipeline, func(t *testing.T) { prove(t, file, pipeline) })
		}
	}
}

// prove runs a pipeline with a proof of every pass and compares what both take.
func prove(t *testing.T, file, pipeline string) {
	g, err := fx.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	in, err := g.Import()
	if err != nil {
		t.Fatal(err)
	}
	m := in.Module
	p, err := passes.Standard().Parse(pipeline)
	if err != nil {
		t.Fatal(err)
	}
	prover := equiv.NewProver(m.World, equiv.Options{})
	read := func() []*equiv.Meaning {
		var out []*equiv.Meaning
		for _, f := range m.Funcs() {
			out = append(out, prover.Read(f))
		}
		return out
	}
	begin := time.Now()
	before := read()
	proofs := time.Since(begin)
	hook := passes.Hook{Name: "proof", After: func(*passes.StepReport, *ir.Module) error {
		begin := time.Now()
		defer func() { proofs += time.Since(begin) }()
		now := read()
		for i := range now {
			if _, err := prover.Compare(before[i], now[i]); err != nil {
				return err
			}
		}
		before = now
		return nil
	}}
	clock := time.Now()
	r := passes.Manager{Costs: cost.Arena(), Fusable: lower.Fusable, Hooks: []passes.Hook{hook}, Clock: func() int64 { return int64(time.Since(clock)) }}
	rep, err := r.Run(m, p)
	if err != nil {
		t.Fatal(err)
	}
	spent, nodes := time.Duration(0), 0
	for _, s := range rep.Steps {
		spent += time.Duration(s.Nanos)
	}
	begin = time.Now()
	for _, f := range m.Funcs() {
		nodes += len(f.Order())
		if err := equiv.CheckMemory(f); err != nil {
			t.Error(err)
		}
	}
	proofs += time.Since(begin)
	t.Logf("%d nodes, passes %v, proofs %v", nodes, spent.Round(time.Millisecond), proofs.Round(time.Millisecond))
}
