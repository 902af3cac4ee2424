package cost

import (
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/seed-ee968945/concert/ir"
)

// group is subgroups of that many ranks, each rank that far from the one before.
func group(world, size, stride int) [][]int {
	var out [][]int
	for base := 0; base < world; base += size * stride {
		for first := range stride {
			var ranks []int
			for i := range size {
				ranks = append(ranks, base+first+i*stride)
			}
			out = append(out, ranks)
		}
	}
	return out
}

func TestSpan(t *testing.T) {
	for _, c := range []struct {
		perDomain, rails int
		ranks            [][]int
		want             Span
	}{
		{0, 0, group(16, 8, 1), Span{8, 1, 8, 1, 0, 1, 1}},
		{0, 0, group(16, 2, 8), Span{2, 2, 1, 1, 0, 1, 1}},
		{0, 2, group(16, 2, 8), Span{2, 2, 1, 0.25, 0, 1, 1}}, // eight ranks leave by two adapters
		{0, 2, [][]int{{0, 8}}, Span{2, 2, 1, 1, 0, 1, 1}},
		{0, 4, group(16, 16, 1), Span{16, 2, 8, 0.5, 0, 1, 1}},
		{0, 0, [][]int{{0, 1, 2, 8}}, Span{4, 2, 1, 1, 0, 1, 1}},
		{16, 0, group(16, 2, 8), Span{2, 1, 2, 1, 0, 1, 1}}, // NVLink joins both hosts
		{4, 0, group(16, 8, 1), Span{8, 2, 4, 1, 0, 1, 1}},
		{4, 4, group(16, 8, 1), Span{8, 2, 4, 0.5, 0, 1, 1}}, // two adapters for four ranks
	} {
		m := &Machine{RanksPerHost: 8, RanksPerDomain: c.perDomain, RailsPerHost: c.rails}
		if got := m.Span(c.ranks); got != c.want {
			t.Errorf("%v in domains of %d with %d rails: %+v, want %+v", c.ranks, c.perDomain, c.rails, got, c.want)
		}
	}
}

// A collective costs what the slowest link carries: 64 MiB between hosts at 45 GB/s take
// 0.75 ms, whatever a table of one host says; what subgroups share takes longer.
func TestPlacement(t *testing.T) {
	h200, err := LookupMachine("h200")
	if err != nil {
		t.Fatal(err)
	}
	rails := *h200
	rails.RailsPerHost = 2
	one := *h200
	one.RanksPerDomain = 16
	thin := *h200
	thin.HostsPerLeaf, thin.Oversubscription = 2, 4
	const size = 64 << 20
	for _, c := range []struct {
		name     string
		m        *Machine
		op       ir.Op
		ranks    [][]int
		min, max float64
		from     Source
	}{
		{"within hosts", h200, ir.OpAllGather, group(16, 2, 1), 0.15, 0.2, Tabled},
		{"between hosts", h200, ir.OpAllGather, group(16, 2, 8), 0.745, 0.80, Modelled},
		{"one subgroup has the adapters alone", &rails, ir.OpAllGather, [][]int{{0, 8}}, 0.745, 0.80, Modelled},
		{"eight share two adapters", &rails, ir.OpAllGather, group(16, 2, 8), 2.98, 3.1, Modelled},
		{"NVLink joins the hosts", &one, ir.OpAllGather, group(16, 2, 8), 0.15, 0.2, Tabled},
		{"both hosts whole", h200, ir.OpAllGather, group(16, 16, 1), 0.17, 0.35, Modelled},
		{"eight rings leave a switch by four links", &thin, ir.OpAllGather, group(32, 4, 8), 2.23, 2.4, Modelled},
		{"a ring of all leaves it once", &thin, ir.OpAllGather, group(32, 32, 1), 0.36, 0.5, Modelled},
		{"within a switch", &thin, ir.OpAllGather, group(32, 2, 8), 0.745, 0.80, Modelled},
		{"half of an all_to_all leaves a switch", &thin, ir.OpAllToAll, group(32, 32, 1), 1.53, 1.7, Modelled},
		{"half of an all_to_all leaves the host", h200, ir.OpAllToAll, group(16, 16, 1), 0.745, 0.85, Modelled},
	} {
		model := &Model{Table: H200(), Machine: c.m}
		ms, from := model.comm(c.op, &ir.Group{Name: "g", Ranks: c.ranks}, size)
		if !(ms >= c.min && ms <= c.max) || from != c.from {
			t.Errorf("%s: %.4f ms by %v, want %v to %v by %v", c.name, ms, from, c.min, c.max, c.from)
		}
	}
	// A table with groups that fit into no host was measured between hosts.
	wide := H200()
	wide.Add("all_gather", "nccl", 16, Point{size, 777})
	if ms, from := (&Model{Table: wide, Machine: h200}).comm(ir.OpAllGather, &ir.Group{Name: "g", Ranks: group(16, 16, 1)}, size); ms != 0.777 || from != Tabled {
		t.Errorf("a measured group of 16: %v ms by %v", ms, from)
	}
	// Collectives of hosts and between hosts use different links.
	in := h200.LinkShare(ir.OpAllGather, h200.Span(group(16, 2, 1)), size, 150)
	out := h200.LinkShare(ir.OpAllGather, h200.Span(group(16, 2, 8)), size, 750)
	if in[0] < 0.4 || in[1] != 0 || out[0] > 0.2 || out[1] < 0.9 {
		t.Errorf("shares within %v and between %v", in, out)
	}
}

func fitModule(t *testing.T, ranks, costs string) *ir.Module {
	t.Helper()
	text := "world 16\ngroup @g = " + ranks + "\nfunc @f(%x: f32[65536], %y: f32[131072]) -> (async f32[131072], async f32[262144], async f32[65536]) {\n" +
		"  %a = all_gather %x on @g {dim=0} : async f32[131072]" + strings.Split(costs, ",")[0] + "\n" +
		"  %b = all_gather %y on @g {dim=0} : async f32[262144]" + strings.Split(costs, ",")[1] + "\n" +
		"  %c = all_reduce.sum %x on @g : async f32[65536]\n  return %a, %b, %c\n}\n"
	m, err := ir.Parse("t.ir", text)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// What a model says of collectives is on the scale of the costs that are attached to the
// graph.
func TestScaledTo(t *testing.T) {
	h200, err := LookupMachine("h200")
	if err != nil {
		t.Fatal(err)
	}
	model := &Model{Table: H200(), Machine: h200}
	says := func(m *Model, mod *ir.Module, op ir.Op, size int64) float64 {
		ms, ok := m.CommMs(op, mod.Groups()[0], ir.Sum, size)
		if !ok {
			t.Fatal("no price")
		}
		return ms
	}
	const inHosts, between = "[[0, 1], [2, 3], [4, 5], [6, 7], [8, 9], [10, 11], [12, 13], [14, 15]]", "[[0, 8], [1, 9], [2, 10], [3, 11], [4, 12], [5, 13], [6, 14], [7, 15]]"
	near := func(name string, got, want float64) {
		t.Helper()
		if math.Abs(got/want-1) > 1e-9 {
			t.Errorf("%s: %v, want %v", name, got, want)
		}
	}

	// Twice and three times as dear as the table: so are buckets and other collectives.
	bare := fitModule(t, inHosts, ",")
	table := func(op ir.Op, size int64) float64 { return says(model, bare, op, size) }
	mod := fitModule(t, inHosts, fmt.Sprintf(" ms %v, ms %v", 2*table(ir.OpAllGather, 1<<19), 3*table(ir.OpAllGather, 1<<20)))
	fitted := model.ScaledTo(mod)
	near("small", says(fitted, mod, ir.OpAllGather, 1<<16), 2*table(ir.OpAllGather, 1<<16))
	near("as there is", says(fitted, mod, ir.OpAllGather, 1<<19), 2*table(ir.OpAllGather, 1<<19))
	near("large", says(fitted, mod, ir.OpAllGather, 1<<24), 3*table(ir.OpAllGather, 1<<24))
	near("another op", says(fitted, mod, ir.OpAllReduce, 1<<24), 3*table(ir.OpAllReduce, 1<<24))
	if ms, from := fitted.CostOf(mod.Funcs()[0].Lookup("c")); from != Tabled || math.Abs(ms/(2*table(ir.OpAllReduce, 1<<18))-1) > 1e-9 {
		t.Errorf("a node without a cost: %v by %v", ms, from)
	}
	middle := says(fitted, mod, ir.OpAllGather, 3<<18) / table(ir.OpAllGather, 3<<18)
	if middle <= 2 || middle >= 3 {
		t.Errorf("between the sizes that there are: %v times the table, want 2 to 3", middle)
	}

	// Costs that are the model's, to their digits, change nothing.
	mod = fitModule(t, inHosts, fmt.Sprintf(" ms %.4f, ms %.4f", table(ir.OpAllGather, 1<<19), table(ir.OpAllGather, 1<<20)))
	if got := says(model.ScaledTo(mod), mod, ir.OpAllGather, 1<<21); got != table(ir.OpAllGather, 1<<21) {
		t.Errorf("rounded costs of the table: %v, want %v", got, table(ir.OpAllGather, 1<<21))
	}

	// A graph whose costs come from a table of one host goes on with that table, though the
	// group is between hosts; one without costs does not.
	mod = fitModule(t, between, fmt.Sprintf(" ms %.4f, ms %.4f", table(ir.OpAllGather, 1<<19), table(ir.OpAllGather, 1<<20)))
	near("the table's graph", says(model.ScaledTo(mod), mod, ir.OpAllGather, 1<<26), table(ir.OpAllGather, 1<<26))
	mod = fitModule(t, between, ",")
	if got := says(model.ScaledTo(mod), mod, ir.OpAllGather, 1<<26); got < 0.74 {
		t.Errorf("between hosts: %v ms", got)
	}
}

// Rows without an implementation serve all that have none of their own.
func TestTableWithoutImpl(t *testing.T) {
	tab := &Table{}
	tab.Add("all_reduce", "", 8, Point{1024, 33})
	if us, ok := tab.Micros("all_reduce", "nccl", 8, 1024); !ok || us != 33 {
		t.Errorf("%v us, %v", us, ok)
	}
	tab.Add("all_reduce", "nccl", 8, Point{1024, 22})
	if us, ok := tab.Micros("all_reduce", "nccl", 8, 1024); !ok || us != 22 {
		t.Errorf("%v us, %v: rows of the implementation come first", us, ok)
	}
}

// Repricing gives what the model says to what has a cost, and says where it is from.
func TestReprice(t *testing.T) {
	model := Default()
	mod := fitModule(t, "[[0, 1, 2, 3, 4, 5, 6, 7], [8, 9, 10, 11, 12, 13, 14, 15]]", ",")
	f := mod.Funcs()[0]
	a := f.Lookup("a")
	f.SetCost(a, 5)
	from := map[*ir.Node]Source{}
	model.Reprice(f, false, from)
	want, _ := model.CommMs(a.Op(), a.Group(), "", CommBytes(a))
	if ms, _ := a.Cost(); ms != want || from[a] != Tabled || len(from) != 1 {
		t.Errorf("%v ms from %v, want %v", ms, from, want)
	}
}
