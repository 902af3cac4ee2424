package cudagen_test

import (
	"errors"
	"flag"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"testing"

	"github.com/seed-ee968945/concert/cost"
	"github.com/seed-ee968945/concert/internal/golden/gen"
	"github.com/seed-ee968945/concert/ir"
	"github.com/seed-ee968945/concert/ir/fx"
	"github.com/seed-ee968945/concert/lower/cudagen"
	"github.com/seed-ee968945/concert/passes"
	"github.com/seed-ee968945/concert/passes/standard"
)

// regions lists the runs of nodes that pass fuse marked.
func regions(t *testing.T, f *ir.Func) [][]*ir.Node {
	t.Helper()
	var out [][]*ir.Node
	seen := map[int64]bool{}
	last := int64(-1)
	for _, n := range f.Order() {
		id := n.Meta().Int(passes.FusionKey, -1)
		switch {
		case id < 0:
		case id == last:
			out[len(out)-1] = append(out[len(out)-1], n)
		case seen[id]:
			t.Fatalf("@%s: region %d is not consecutive: %%%s stands apart", f.Name, id, n.Name())
		default:
			seen[id] = true
			out = append(out, []*ir.Node{n})
		}
		last = id
	}
	return out
}

// singles lists the launches of one node, but for shards: what those copy depends on the rank.
func singles(f *ir.Func) (out []*ir.Node) {
	for _, n := range f.Order() {
		if n.Op().Class() == ir.ClassMemory && !n.Meta().Has(passes.FusionKey) && n.Op() != ir.OpShard {
			out = append(out, n)
		}
	}
	return out
}

func fused(t *testing.T, m *ir.Module, pipeline string) *passes.Report {
	t.Helper()
	p, err := standard.Table().Parse(pipeline)
	if err != nil {
		t.Fatal(err)
	}
	g := passes.Manager{Costs: cost.TracedH200()}
	rep, err := g.Run(m, p)
	if err != nil {
		t.Fatal(err)
	}
	return rep
}

// alone is a module whose one function is the given nodes: their operands are its
// inputs, dense, and every result that the kernel writes is returned.
func alone(nodes []*ir.Node, outs []*ir.Value) *ir.Func {
	m := ir.NewModule(1)
	for _, s := range nodes[0].Func().Module().Symbols() {
		m.AddSymbol(s.Name, s.Hint, s.Min, s.Max)
	}
	f := m.AddFunc("f")
	vals := map[*ir.Value]*ir.Value{}
	for _, n := range nodes {
		for _, a := range n.Args() {
			if vals[a] == nil && !slices.Contains(nodes, a.Def()) {
				in := f.Append(ir.NodeSpec{Op: ir.OpInput, Name: "in", Results: []ir.Type{a.Type()}})
				vals[a] = in.Result(0)
			}
		}
	}
	for _, n := range nodes {
		s := ir.NodeSpec{Op: n.Op(), Name: n.Name(), Attrs: n.Attrs()}
		for _, a := range n.Args() {
			s.Args = append(s.Args, vals[a])
		}
		for _, r := range n.Results() {
			s.Results = append(s.Results, r.Type())
		}
		c := f.Append(s)
		for i, r := range n.Results() {
			vals[r] = c.Result(i)
		}
	}
	ret := ir.NodeSpec{Op: ir.OpReturn, Name: "return"}
	for _, v := range outs {
		ret.Args = append(ret.Args, vals[v])
	}
	f.Append(ret)
	return f
}

// Every region that the pass forms in random programs becomes a kernel, and the
// kernel gives the bits that the host's kernels give node by node.
func TestRandomRegions(t *testing.T) {
	seeds := uint64(60)
	if testing.Short() {
		seeds = 15
	}
	var trials []*trial
	skipped := 0
	for seed := range seeds {
		m, err := gen.Module(seed, gen.Config{Nodes: 60, World: 2, Effects: seed%2 == 0})
		if err != nil {
			t.Fatal(err)
		}
		fused(t, m, []string{"fuse", "fuse{kernels=true}"}[seed/2%2])
		for _, f := range m.Funcs() {
			st, err := ir.ComputeStorages(f)
			if err != nil {
				t.Fatal(err)
			}
			for _, nodes := range regions(t, f) {
				name := fmt.Sprintf("r%d", len(trials))
				k, err := cudagen.Generate(name, st, nodes)
				if err != nil {
					t.Errorf("seed %d: %v\n%s", seed, err, m)
					continue
				}
				g := alone(nodes, k.Outs)
				if g.Module().Verify() != nil {
					skipped++ // a view of an operand that has other strides there
					continue
				}
				tr, err := newTrial(name, g, 0, seed, nil)
				if err != nil {
					t.Errorf("seed %d: %v", seed, err)
					continue
				}
				trials = append(trials, tr)
			}
		}
	}
	t.Logf("%d regions, %d more were not run", len(trials), skipped)
	if len(trials) < int(seeds) || skipped > len(trials)/4 {
		t.Fatalf("%d regions of %d programs were run, %d were not", len(trials), seeds, skipped)
	}
	compare(t, trials, runOnHost(t, trials, "-DEXACT_MATH"), true)
	together(t, trials, "-DEXACT_MATH")
}

// Every region that the pass forms in traced steps becomes a kernel, and so does
// every launch that is alone, but for what libraries compute.
func TestTracedRegions(t *testing.T) {
	files, err := filepath.Glob("../../testdata/graphs/tiny_*.graph.json.gz")
	if err != nil || len(files) == 0 {
		t.Fatalf("%d graphs, %v", len(files), err)
	}
	if !testing.Short() {
		for _, name := range append(slices.Clone(fourGPU), "gpt_ddp8.bw", "gpt_ddp8.fw", "llama8b_tpsp8.bw", "mixtral_ep8_fsdp8.fw") {
			files = append(files, "../../testdata/graphs/"+name+".graph.json.gz")
		}
	}
	for _, file := range files {
		for _, pipeline := range []string{"fuse", "canonicalize,simplify-collectives,overlap,fuse{kernels=true}"} {
			g, err := fx.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			res, err := g.Import()
			if err != nil {
				t.Fatal(err)
			}
			rep := fused(t, res.Module, pipeline)
			for _, f := range res.Module.Funcs() {
				generates(t, filepath.Base(file), f, rep.Steps[len(rep.Steps)-1])
			}
		}
	}
}

// generates makes the kernel of every launch of f.
func generates(t *testing.T, file string, f *ir.Func, s passes.StepReport) {
	t.Helper()
	st, err := ir.ComputeStorages(f)
	if err != nil {
		t.Fatal(err)
	}
	all := regions(t, f)
	for i, r := range all {
		if _, err := cudagen.Generate(fmt.Sprintf("r%d", i), st, r); err != nil {
			t.Errorf("%s: %v", file, err)
		}
	}
	one := singles(f)
	for _, n := range one {
		if _, err := cudagen.Generate("one", st, []*ir.Node{n}); err != nil {
			t.Errorf("%s: %v", file, err)
		}
	}
	t.Logf("%s: %d launches in %d regions, %d alone; saved %.1f MiB, refused for time %v, for memory %v", file,
		int(s.Stat("fused")), len(all), len(one), s.Stat("saved-bytes")/(1<<20), s.Stat("refused-time"), s.Stat("refused-memory"))
}

// tracedTrials are the regions of traced steps, each by itself, under names that begin with a
// prefix; sizes that are dynamic have their hints.
func tracedTrials(t *testing.T, prefix string, files ...string) []*trial {
	t.Helper()
	var trials []*trial
	seen := map[string]bool{}
	for _, file := range files {
		g, err := fx.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		res, err := g.Import()
		if err != nil {
			t.Fatal(err)
		}
		fused(t, res.Module, "canonicalize,simplify-collectives,overlap,fuse{kernels=true}")
		hints := map[string]int64{}
		for _, s := range res.Module.Symbols() {
			hints[s.Name] = s.Hint
		}
		for _, f := range res.Module.Funcs() {
			for _, nodes := range runs(f) {
				tr, err := regionTrial(fmt.Sprintf("%s%d", prefix, len(trials)), nodes, hints, seen)
				if err != nil {
					t.Fatalf("%s: %v", file, err)
				}
				if tr != nil {
					trials = append(trials, tr)
				}
			}
		}
	}
	return trials
}

// regionTrial is that of a region, nil where a kernel of its text has been seen, or where what it
// copies depends on the rank.
func regionTrial(name string, nodes []*ir.Node, hints map[string]int64, seen map[string]bool) (*trial, error) {
	st, err := ir.ComputeStorages(nodes[0].Func())
	if err != nil {
		return nil, err
	}
	k, err := cudagen.Generate("k", st, nodes)
	if errors.Is(err, cudagen.ErrUnsupported) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	g := alone(nodes, k.Outs)
	key := comments.ReplaceAllString(k.Body, "")
	if g.Module().Verify() != nil || seen[key] {
		return nil, nil
	}
	seen[key] = true
	for _, n := range g.SizeReads() { // they have the values that the trial's tensors give
		hints = maps.Clone(hints)
		maps.DeleteFunc(hints, func(name string, _ int64) bool { return slices.Contains(n.Attrs().Strs(ir.SymbolsKey), name) })
	}
	return newTrial(name, g, -1, 7, hints)
}

// tinySteps are small traced steps whose regions together have most of what regions can have.
var tinySteps = traced("graphs/tiny_fsdp2.fw", "graphs/tiny_fsdp2.bw", "graphs/tiny_moe2.fw", "graphs/tiny_moe2.bw", "graphs/tiny_tpsp2.bw",
	"models/gpt_any.fw", "models/gpt_any.bw", "models/convnet_any.fw", "models/convnet_any.bw")

// traced are files of testdata.
func traced(names ...string) []string {
	for i, name := range names {
		names[i] = "../../testdata/" + name + ".graph.json.gz"
	}
	return names
}

var models = flag.String("models", "", "TestTracedNumbers: the kernels of these traced steps, too, such as ../../testdata/models/*.gz, which takes minutes")

// The regions of small traced steps give the bits that the host's kernels give
// node by node, and with the default functions numbers as close as their types allow.
func TestTracedNumbers(t *testing.T) {
	files := slices.Clone(tinySteps)
	if *models != "" {
		more, err := filepath.Glob(*models)
		if err != nil || len(more) == 0 {
			t.Fatalf("%d models, %v", len(more), err)
		}
		files = append(files, more...)
	}
	trials := tracedTrials(t, "t", files...)
	t.Logf("%d kernels", len(trials))
	if len(trials) < 50 {
		t.Fatal("too few")
	}
	compiles(t, trials)
	compare(t, trials, runOnHost(t, trials, "-DEXACT_MATH"), true)
	together(t, trials, "-DEXACT_MATH")
	compare(t, trials, runOnHost(t, trials), false)
}
