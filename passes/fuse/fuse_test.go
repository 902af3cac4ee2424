package fuse_test

import (
	"testing"

	"github.com/seed-ee968945/concert/cost"
	"github.com/seed-ee968945/concert/internal/attr"
	"github.com/seed-ee968945/concert/internal/golden/gen"
	"github.com/seed-ee968945/concert/ir"
	"github.com/seed-ee968945/concert/ir/fx"
	"github.com/seed-ee968945/concert/passes"
	"github.com/seed-ee968945/concert/passes/internal/passestest"
	"github.com/seed-ee968945/concert/passes/passtest"
	"github.com/seed-ee968945/concert/passes/standard"
	"github.com/seed-ee968945/concert/sim"
)

// measure is the timeline of a function as it stands, with the costs of a model.
func measure(t *testing.T, f *ir.Func, costs passes.CostModel) *sim.Timeline {
	t.Helper()
	m, err := sim.FromFunc(f, sim.FuncOptions{Ms: func(n *ir.Node) float64 {
		if ms, ok := n.Cost(); ok {
			return ms
		}
		ms, _ := costs.NodeMs(n)
		return ms
	}})
	if err != nil {
		t.Fatal(err)
	}
	tl, err := sim.Evaluate(m, m.InputOrder(), nil)
	if err != nil {
		t.Fatal(err)
	}
	return tl
}

// contracted is a copy of f in which every region is one opaque call that takes
// the region's operands and gives what others read of it.
func contracted(t *testing.T, f *ir.Func) *ir.Func {
	t.Helper()
	f = f.Module().Clone().Func(f.Name)
	at := map[int64][]*ir.Node{}
	last := int64(-1)
	var ids []int64
	for _, n := range f.Order() {
		id := n.Meta().Int(passes.FusionKey, -1)
		if id >= 0 && id != last {
			if at[id] != nil {
				t.Fatalf("region %d is not consecutive", id)
			}
			ids = append(ids, id)
		}
		if id >= 0 {
			at[id] = append(at[id], n)
		}
		last = id
	}
	for _, id := range ids {
		contract(f, at[id])
	}
	if err := f.Module().Verify(); err != nil {
		t.Fatal(err)
	}
	return f
}

func contract(f *ir.Func, nodes []*ir.Node) {
	in := map[*ir.Node]bool{}
	ms := 0.0
	for _, n := range nodes {
		in[n] = true
		if c, ok := n.Cost(); ok {
			ms += c
		}
	}
	s := ir.NodeSpec{Op: ir.OpCall, Name: "region", Cost: ms, HasCost: true}
	s.Attrs = s.Attrs.With("target", attr.String("region")).With("class", attr.String("memory"))
	var outs []*ir.Value
	for _, n := range nodes {
		for _, a := range n.Args() {
			if !in[a.Def()] {
				s.Args = append(s.Args, a)
			}
		}
		for _, r := range n.Results() {
			if !n.Op().IsView() && escapes(r, in) {
				outs = append(outs, r)
				s.Results = append(s.Results, r.Type())
			}
		}
	}
	call := f.InsertBefore(nodes[0], s)
	now := map[*ir.Value]*ir.Value{}
	for i, v := range outs {
		now[v] = call.Result(i)
	}
	for _, n := range nodes {
		if n.Op().IsView() && now[n.Arg(0)] != nil { // views of what remains
			c := ir.NodeSpec{Op: n.Op(), Name: "view", Args: []*ir.Value{now[n.Arg(0)]}, Attrs: n.Attrs()}
			for _, r := range n.Results() {
				c.Results = append(c.Results, r.Type())
			}
			v := f.InsertBefore(nodes[0], c)
			for i, r := range n.Results() {
				now[r] = v.Result(i)
			}
		}
	}
	for _, n := range nodes {
		for _, r := range n.Results() {
			if now[r] != nil {
				f.ReplaceUses(r, now[r])
			}
		}
	}
	for i := len(nodes) - 1; i >= 0; i-- {
		f.Remove(nodes[i])
	}
}

// escapes reports whether v or a view of it in the region is read outside.
func escapes(v *ir.Value, in map[*ir.Node]bool) bool {
	for _, u := range v.Uses() {
		if !in[u.Node] {
			return true
		}
		if u.Node.Op().IsView() {
			for _, r := range u.Node.Results() {
				if escapes(r, in) {
					return true
				}
			}
		}
	}
	return false
}

// noLonger fails if after takes more time than before, or more memory.
func noLonger(t *testing.T, what string, before, after *sim.Timeline) {
	t.Helper()
	if after.Makespan > before.Makespan*(1+1e-9) {
		t.Errorf("%s: the makespan was %v ms and is %v ms", what, before.Makespan, after.Makespan)
	}
	if after.Peak > before.Peak {
		t.Errorf("%s: the peak was %d bytes and is %d bytes", what, before.Peak, after.Peak)
	}
}

// In random programs, as they come and as overlap schedules them, fuse lengthens
// nothing and raises no peak, neither of the nodes nor of the regions as launches,
// and no bit changes.
func TestFuseProperty(t *testing.T) {
	seeds := uint64(120)
	if testing.Short() {
		seeds = 40
	}
	regions, refused := 0.0, 0.0
	for seed := range seeds {
		m, err := gen.Module(seed, gen.Config{Nodes: 70, World: 2, Flights: seed%3 == 0, Effects: seed%2 == 0, Costs: true})
		if err != nil {
			t.Fatal(err)
		}
		if seed%2 == 1 {
			runPasses(t, m, "overlap")
		}
		f := m.Funcs()[0]
		before := measure(t, f, passestest.Latency{})
		original := m.Clone()
		s := runPasses(t, m, "fuse").Steps[0]
		regions += s.Stat("regions")
		refused += s.Stat("refused-time") + s.Stat("refused-memory")
		noLonger(t, "nodes", before, measure(t, f, passestest.Latency{}))
		noLonger(t, "regions", before, measure(t, contracted(t, f), passestest.Latency{}))
		if err := passtest.SameResults(original, m, seed, 0); err != nil {
			t.Errorf("seed %d: %v", seed, err)
		}
		if t.Failed() {
			t.Fatalf("seed %d:\n%s", seed, m)
		}
	}
	if regions < float64(seeds) || refused == 0 {
		t.Errorf("%v regions in %d programs, %v joins refused", regions, seeds, refused)
	}
}

// The same for traced steps after the schedule that they run by.
func TestFuseTraced(t *testing.T) {
	names := []string{"tiny_fsdp2.fw", "tiny_fsdp2.bw", "tiny_moe2.fw"}
	if !testing.Short() {
		names = append(names, "llama8b_l4_fsdp4.bw", "llama8b_l4_tpsp4.bw")
	}
	for _, name := range names {
		g, err := fx.ReadFile("../../testdata/graphs/" + name + ".graph.json.gz")
		if err != nil {
			t.Fatal(err)
		}
		res, err := g.Import()
		if err != nil {
			t.Fatal(err)
		}
		runPasses(t, res.Module, "canonicalize,bucket,sink-waits")
		before := measure(t, res.Func, cost.TracedH200())
		rep := runPasses(t, res.Module, "fuse")
		noLonger(t, name, before, measure(t, res.Func, cost.TracedH200()))
		after := contracted(t, res.Func)
		if got := measure(t, after, cost.TracedH200()); got.Peak > before.Peak {
			t.Errorf("%s: as launches the peak is %d bytes and was %d", name, got.Peak, before.Peak)
		}
		if n := rep.Steps[0].Stat("saved-launches"); n < 20 {
			t.Errorf("%s: %v launches saved", name, n)
		}
	}
}

// runPasses runs a pipeline.
func runPasses(t *testing.T, m *ir.Module, text string) *passes.Report {
	t.Helper()
	p, err := standard.Table().Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	g := passes.Manager{Costs: passestest.Latency{}}
	rep, err := g.Run(m, p)
	if err != nil {
		t.Fatal(err)
	}
	return rep
}

func BenchmarkFuse(b *testing.B) {
	g, err := fx.ReadFile("../../testdata/graphs/llama8b_l4_fsdp4.bw.graph.json.gz")
	if err != nil {
		b.Fatal(err)
	}
	res, err := g.Import()
	if err != nil {
		b.Fatal(err)
	}
	p, err := standard.Table().Parse("fuse")
	if err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		m := res.Module.Clone()
		g := passes.Manager{Costs: cost.TracedH200(), Verify: passes.VerifyEnd}
		if _, err := g.Run(m, p); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(len(res.Func.Order())), "nodes")
}
