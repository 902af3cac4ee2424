package simplify_test

import (
	"flag"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/seed-ee968945/concert/internal/golden/gen"
	"github.com/seed-ee968945/concert/ir"
	"github.com/seed-ee968945/concert/passes"
	"github.com/seed-ee968945/concert/passes/internal/passestest"
	"github.com/seed-ee968945/concert/passes/passtest"
	"github.com/seed-ee968945/concert/passes/simplify"
	"github.com/seed-ee968945/concert/passes/standard"
)

// simplifyRandomly runs simplify-collectives with some rules off on a random
// module and compares the results on all ranks: bit by bit, or, where rewrites may
// round differently, closely, on programs that do not magnify errors.
func simplifyRandomly(t *testing.T, seed uint64, report func(*passes.Report)) {
	t.Helper()
	table := standard.Table()
	r := rand.New(rand.NewPCG(seed, 11))
	c := gen.AlgebraConfig{Nodes: 3 + r.IntN(22), Smooth: r.IntN(3) == 0, Writes: r.IntN(8) == 0, Grown: r.IntN(3) == 0}
	m, err := gen.Algebra(seed, c)
	if err != nil {
		t.Fatalf("seed %d: %v", seed, err)
	}
	text, sep, tolerance := "simplify-collectives", "{", 0.0
	some := r.IntN(3) > 0
	for _, o := range table.Lookup("simplify-collectives").Options {
		switch {
		case o.Name == "reassociate" && c.Smooth:
			text, tolerance = text+sep+"reassociate=true", 1e-9
		case o.Name == "reassociate":
			continue
		case o.Name == "keep-distance":
			text += sep + "keep-distance=" + strconv.Itoa(r.IntN(6))
		case o.Name == "split-bytes":
			text += sep + "split-bytes=0"
		case o.Kind == passes.KindBool && (o.Default == "false" && r.IntN(2) == 0):
			text += sep + o.Name + "=true"
		case o.Kind == passes.KindBool && some && r.IntN(5) == 0:
			text += sep + o.Name + "=false"
		default:
			continue
		}
		sep = ","
	}
	p, err := table.Parse(text + "}")
	if err != nil {
		t.Fatal(err)
	}
	after := m.Clone()
	g := passes.Manager{Validate: passes.ValidateAlways, Repeat: true, Input: "random"}
	if r.IntN(2) == 0 {
		g.Costs = passestest.Bandwidth{}
	}
	rep, err := g.Run(after, p)
	if err != nil {
		t.Fatalf("seed %d: %v\n%s", seed, err, m)
	}
	if err := passtest.SameResults(m, after, seed, tolerance); err != nil {
		t.Fatalf("seed %d, %s: %v\nbefore:\n%s\nafter:\n%s", seed, p, err, m, after)
	}
	report(rep)
}

var simplifySeeds = flag.Uint64("simplify.seeds", 1200, "random programs for simplify-collectives")

// Random programs keep their numbers on all ranks under random selections of
// rules, and every rule fires somewhere.
func TestSimplifyProperty(t *testing.T) {
	seeds := *simplifySeeds
	if testing.Short() {
		seeds = min(seeds, 300)
	}
	fired := map[string]float64{}
	for seed := range seeds {
		simplifyRandomly(t, seed, func(rep *passes.Report) {
			for _, s := range rep.Steps[0].Stats {
				fired[s.Name] += s.Value
			}
		})
	}
	for _, o := range standard.Table().Lookup("simplify-collectives").Options {
		if o.Kind == passes.KindBool && o.Name != "reassociate" && o.Name != "gather-sums" { // rules only
			t.Logf("%6.0f %s", fired[o.Name], o.Name)
			if fired[o.Name] == 0 && !testing.Short() {
				t.Errorf("%s never fired", o.Name)
			}
		}
	}
}

// FuzzSimplify is the property test with seeds by the fuzzer.
func FuzzSimplify(f *testing.F) {
	for seed := range uint64(20) {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, seed uint64) { simplifyRandomly(t, seed, func(*passes.Report) {}) })
}

// Every rule says what it does, when it is right and when it pays, and has a
// golden case in which it fires and one in which it must not.
func TestSimplifyRules(t *testing.T) {
	var cases strings.Builder
	err := filepath.WalkDir("../../testdata/golden/simplify-collectives", func(path string, d os.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			var data []byte
			data, err = os.ReadFile(path)
			cases.Write(data)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	stat := func(name, value string) bool {
		return strings.Contains(cases.String(), "\nsimplify-collectives."+name+" "+value+"\n")
	}
	p := standard.Table().Lookup("simplify-collectives")
	for _, r := range simplify.Rules() {
		if r.Doc == "" || r.Legal == "" || r.Gate == "" || r.Exact == "" || r.Special == "" {
			t.Errorf("%+v lacks a sentence", r)
		}
		if !stat(r.Name, "0") || !stat(r.Name, "1") && !stat(r.Name, "2") && !stat(r.Name, "3") {
			t.Errorf("no golden case in which %s fires, or none in which it must not", r.Name)
		}
		if !slices.ContainsFunc(p.Options, func(o passes.Option) bool { return o.Name == r.Name && strings.Contains(o.Doc, r.Exact) }) ||
			!slices.ContainsFunc(p.Stats, func(s passes.Stat) bool { return s.Name == r.Name }) {
			t.Errorf("%s has no option or no statistic", r.Name)
		}
	}
}

// A pass that may decide nothing changes nothing, and one decision can be
// selected alone.
func TestSimplifyBisects(t *testing.T) {
	m, err := gen.Algebra(5, gen.AlgebraConfig{Nodes: 30})
	if err != nil {
		t.Fatal(err)
	}
	p, err := standard.Table().Parse("simplify-collectives")
	if err != nil {
		t.Fatal(err)
	}
	var sites []string
	g := passes.Manager{Validate: passes.ValidateAlways, Enable: func(site string) bool {
		sites = append(sites, site)
		return false
	}}
	off := m.Clone()
	if _, err := g.Run(off, p); err != nil || off.String() != m.String() {
		t.Fatalf("%v: with every site off the module became\n%s", err, off)
	}
	if len(sites) == 0 {
		t.Fatal("the pass asks for no site")
	}
	for _, site := range sites {
		g := passes.Manager{Validate: passes.ValidateAlways, Bisect: "=" + site}
		one := m.Clone()
		rep, err := g.Run(one, p)
		if err != nil || rep.Steps[0].Stat("fired") != 1 {
			t.Fatalf("%s: %v, %v", site, err, rep.Steps)
		}
	}
}

// steps is a program of n repeated pieces in which most rules have work.
func steps(n int) *ir.Module {
	b := ir.NewBuilder(4)
	row, col := b.Group("row", [][]int{{0, 1}, {2, 3}}), b.Group("col", [][]int{{0, 2}, {1, 3}})
	f := b.Func("f")
	x, w := f.Input("x", ir.Tensor(ir.BF16, 256, 256)), f.Parameter("w", ir.Tensor(ir.BF16, 128, 256))
	for range n {
		full := f.Wait(f.AllGather(row, 0, w))[0]
		y := f.MatMul(x, full)
		sum := f.Wait(f.AllReduce(ir.Sum, row, y))[0]
		sum = f.Wait(f.AllReduce(ir.Sum, col, sum))[0]
		piece := f.Shard(row, 0, f.Unary(ir.OpRelu, f.Add(sum, x)))
		x = f.Wait(f.AllGather(row, 0, f.Unary(ir.OpTanh, piece)))[0]
		x = f.Unary(ir.OpNeg, x)
	}
	f.Return(x)
	m, err := b.Finish()
	if err != nil {
		panic(err)
	}
	return m
}

// Time per node must not grow with the program.
func BenchmarkSimplify(b *testing.B) {
	for _, n := range []int{100, 1000, 10000} {
		m := steps(n)
		nodes := len(m.Funcs()[0].Order())
		p, err := standard.Table().Parse("simplify-collectives{reassociate=true,keep-distance=0}")
		if err != nil {
			b.Fatal(err)
		}
		b.Run(strconv.Itoa(nodes)+" nodes", func(b *testing.B) {
			g := passes.Manager{Verify: passes.VerifyEnd}
			for range b.N {
				b.StopTimer()
				c := m.Clone()
				b.StartTimer()
				rep, err := g.Run(c, p)
				if err != nil {
					b.Fatal(err)
				}
				b.ReportMetric(rep.Steps[0].Stat("fired"), "rewrites")
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*nodes), "ns/node")
		})
	}
}
