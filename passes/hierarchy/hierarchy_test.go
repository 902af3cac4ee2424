package hierarchy_test

import (
	"fmt"
	"testing"

	"github.com/seed-ee968945/concert/cost"
	"github.com/seed-ee968945/concert/ir"
	"github.com/seed-ee968945/concert/passes"
	"github.com/seed-ee968945/concert/passes/standard"
	"github.com/seed-ee968945/concert/sim"
)

// module is one collective of 48 rows on each rank, or as many as there are in all for those that give pieces.
func module(t *testing.T, op string, domains, ranks int) *ir.Module {
	t.Helper()
	return sized(t, op, domains, ranks, 48)
}

// sized is module with another number of rows.
func sized(t *testing.T, op string, domains, ranks, rows int) *ir.Module {
	t.Helper()
	world, out := domains*ranks, rows
	attrs := " {dim=0}"
	switch op {
	case "all_gather":
		out = rows * world
	case "reduce_scatter.sum":
		rows, out = rows*world, rows
	default:
		rows, out, attrs = rows*world, rows*world, ""
	}
	list := ""
	for r := range world {
		list += fmt.Sprintf(", %d", r)
	}
	m, err := ir.Parse("t.ir", fmt.Sprintf("world %d\ngroup @g = [[%s]]\nfunc @f(%%x: f32[%d]) -> (f32[%d]) {\n  %%a = %s %%x on @g%s : async f32[%d]\n  %%v = wait_tensor %%a : f32[%d]\n  return %%v\n}\n",
		world, list[2:], rows, out, op, attrs, out, out))
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func apply(t *testing.T, m *ir.Module, costs passes.CostModel, text string) *passes.Report {
	t.Helper()
	return run(t, m, passes.Manager{Costs: costs, Validate: passes.ValidateAlways}, text)
}

func run(t *testing.T, m *ir.Module, g passes.Manager, text string) *passes.Report {
	t.Helper()
	p, err := standard.Table().Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	rep, err := g.Run(m, p)
	if err != nil {
		t.Fatal(err)
	}
	return rep
}

// What a domain gets from the others is no more than what it lacks: what it gathers of theirs,
// the sums of theirs that it needs, what they have for its ranks. Of an all_reduce it
// is a ring's share among domains, which is the least for sums that are made once.
func TestBytesBetween(t *testing.T) {
	for _, op := range []string{"all_gather", "reduce_scatter.sum", "all_reduce.sum", "all_to_all"} {
		for domains := 2; domains <= 4; domains++ {
			for ranks := 2; ranks <= 4; ranks++ {
				m := module(t, op, domains, ranks)
				apply(t, m, nil, fmt.Sprintf("hierarchy{domain=%d,reassociate=true,when=always}", ranks))
				piece := int64(48 * 4)
				whole := piece * int64(domains*ranks)
				least := map[string]int64{
					"all_gather":         whole - piece*int64(ranks),
					"reduce_scatter.sum": piece * int64(ranks) * int64(domains-1),
					"all_reduce.sum":     2 * whole * int64(domains-1) / int64(domains),
					"all_to_all":         int64(ranks) * whole * int64(domains-1) / int64(domains),
				}[op]
				got, apart := int64(0), 0
				for _, n := range m.Funcs()[0].Order() {
					if !n.Op().IsCollective() {
						continue
					}
					apart++
					got += received(t, n, ranks)
				}
				if got != least || apart < 2 {
					t.Errorf("%s over %d domains of %d: a domain gets %d bytes in %d collectives, %d would do", op, domains, ranks, got, apart, least)
				}
			}
		}
	}
}

// received is what the ranks of domain 0 get from others' in a collective that has one rank in each
// domain, or lies within them.
func received(t *testing.T, n *ir.Node, ranks int) (sum int64) {
	t.Helper()
	for _, list := range n.Group().Ranks {
		in := map[int]int{}
		for _, r := range list {
			in[r/ranks]++
		}
		if len(in) == 1 || in[0] == 0 {
			continue
		}
		if len(in) != len(list) {
			t.Errorf("%s: several ranks of a domain among %v", n, list)
		}
		size := max(n.Func().Module().Hint(n.Arg(0).Type().Bytes()), n.Func().Module().Hint(n.Result(0).Type().Elems()[0].Bytes()))
		part := size * int64(len(list)-1) / int64(len(list))
		if n.Op() == ir.OpAllReduce {
			part *= 2
		}
		sum += part
	}
	return sum
}

// By the cost model: where the network is slow, hierarchies are taken and said to be; where
// what NVLink adds would take longer than the network, the flat collective stays, and the record says why.
func TestChoice(t *testing.T) {
	slow, err := cost.LookupMachine("h200")
	if err != nil {
		t.Fatal(err)
	}
	fast := *slow
	slow.RanksPerHost, slow.Inter.GBps = 2, 4
	fast.RanksPerHost, fast.Intra.BaseUs, fast.Intra.BarrierUs = 2, 50, 50
	for _, c := range []struct {
		m    *cost.Machine
		want float64
	}{{slow, 1}, {&fast, 0}} {
		m := module(t, "all_gather", 2, 2)
		n := m.Funcs()[0].Lookup("a")
		m.Funcs()[0].SetCost(n, 3)
		rep := apply(t, m, &cost.Model{Machine: c.m}, "hierarchy")
		step := rep.Steps[0]
		if step.Stat("taken-apart") != c.want || step.Stat("kept") != 1-c.want || len(step.Records) != 1 || (step.Records[0].Limit == passes.LimitCost) != (c.want == 0) {
			t.Errorf("%v GB/s: %v, %v", c.m.Inter.GBps, step.Stats, step.Records)
		}
		sum := 0.0
		for _, n := range m.Funcs()[0].Order() {
			ms, _ := n.Cost()
			if n.Op().IsCollective() {
				sum += ms
			}
		}
		if c.want == 1 && !(sum > 0 && sum < 3) || c.want == 0 && sum != 3 {
			t.Errorf("%v GB/s: %v ms attached, of 3", c.m.Inter.GBps, sum)
		}
	}
}

// Whatever the size, the machine and the hosts, what the pass makes takes no longer than the flat
// collective where all parts run one after the other; and between two hosts over a slow network
// gathers and scatters of much data are 1.3 times as fast, since half as many bytes cross.
func TestNeverSlower(t *testing.T) {
	taken, kept, worth := 0, 0, 0
	for name, change := range map[string]func(m *cost.Machine){
		"adapters for all": func(*cost.Machine) {},
		"few adapters":     func(m *cost.Machine) { m.RailsPerHost = max(m.RanksPerHost/4, 1) },
		"slow":             func(m *cost.Machine) { m.Inter.GBps, m.RailsPerHost = 3, 1 },
		"switches":         func(m *cost.Machine) { m.HostsPerLeaf, m.Oversubscription = 2, 4 },
		"racks":            func(m *cost.Machine) { m.RanksPerDomain = 2 * m.RanksPerHost },
	} {
		for _, shape := range [][2]int{{2, 2}, {2, 8}, {4, 4}, {16, 8}} {
			machine, err := cost.LookupMachine("h200")
			if err != nil {
				t.Fatal(err)
			}
			machine.RanksPerHost = shape[1]
			change(machine)
			model := &cost.Model{Machine: machine}
			for _, op := range []string{"all_gather", "reduce_scatter.sum", "all_reduce.sum", "all_to_all"} {
				for _, bytes := range []int{1 << 10, 64 << 10, 1 << 20, 16 << 20, 256 << 20, 1 << 30} {
					m := sized(t, op, shape[0], shape[1], max(bytes/4/shape[0]/shape[1], 1))
					flat := makespan(t, m, model)
					rep := run(t, m, passes.Manager{Costs: model, Validate: passes.ValidateNever}, "hierarchy{reassociate=true}")
					got := makespan(t, m, model)
					if got > flat {
						t.Errorf("%s, %d x %d, %s of %d bytes: %.4f ms, flat %.4f", name, shape[0], shape[1], op, bytes, got, flat)
					}
					taken += int(rep.Steps[0].Stat("taken-apart"))
					kept += int(rep.Steps[0].Stat("kept"))
					if name == "slow" && shape[0] == 2 && bytes >= 16<<20 && (op == "all_gather" || op == "reduce_scatter.sum") && got*1.3 < flat {
						worth++
					}
				}
			}
		}
	}
	if taken < 50 || kept < 50 || worth < 12 {
		t.Errorf("%d taken apart, %d kept, %d of 12 that move much over a slow network 1.3 times as fast", taken, kept, worth)
	}
}

func makespan(t *testing.T, m *ir.Module, model *cost.Model) float64 {
	t.Helper()
	s, err := sim.FromFunc(m.Funcs()[0], sim.FuncOptions{Ms: func(n *ir.Node) float64 { ms, _ := model.NodeMs(n); return ms }})
	if err != nil {
		t.Fatal(err)
	}
	tl, err := sim.Evaluate(s, s.InputOrder(), nil)
	if err != nil {
		t.Fatal(err)
	}
	return tl.Makespan
}
