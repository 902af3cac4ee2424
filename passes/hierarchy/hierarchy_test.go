package hierarchy_test

import (
	"fmt"
	"testing"

	"github.com/seed-ee968945/concert/cost"
	"github.com/seed-ee968945/concert/ir"
	"github.com/seed-ee968945/concert/passes"
	"github.com/seed-ee968945/concert/passes/standard"
)

// module is one collective of 48 rows on each rank, or as many as there are in all for those that give pieces.
func module(t *testing.T, op string, domains, ranks int) *ir.Module {
	t.Helper()
	world, rows, out := domains*ranks, 48, 48
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
	p, err := standard.Table().Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	rep, err := (&passes.Manager{Costs: costs, Validate: passes.ValidateAlways}).Run(m, p)
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
