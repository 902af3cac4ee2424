package domain

import (
	"fmt"
	"reflect"
	"testing"

	"github.com/seed-ee968945/concert/cuda/topo"
	rt "github.com/seed-ee968945/concert/runtime"
)

// machines are hosts of so many GPUs each, all of which reach each other but for the pairs
// of ranks given.
func machines(hosts, gpus int, apart ...[2]int) *topo.Layout {
	l := &topo.Layout{Version: topo.Version}
	for h := range hosts {
		m := topo.Machine{Version: topo.Version, Host: topo.Host{ID: fmt.Sprint(h), Name: fmt.Sprint("host", h)}}
		for g := range gpus {
			m.GPUs = append(m.GPUs, topo.GPU{Index: g, UUID: fmt.Sprint(h, " ", g)})
			for k := range g {
				p := topo.Pair{A: k, B: g, Way: topo.WaySwitch, Read: topo.OK, Write: topo.OK, Atomics: topo.OK}
				for _, x := range apart {
					if x == [2]int{h*gpus + k, h*gpus + g} {
						p.Read = "not supported"
					}
				}
				m.Pairs = append(m.Pairs, p)
			}
			l.Ranks = append(l.Ranks, topo.Place{Machine: h, GPU: g})
		}
		l.Machines = append(l.Machines, m)
	}
	return l
}

// Groups go over symmetric memory where they can, and ranks share it where groups want.
func TestRoute(t *testing.T) {
	world := func(n int) rt.Group {
		g := rt.Group{Name: "world", Ranks: [][]int{{}}}
		for r := range n {
			g.Ranks[0] = append(g.Ranks[0], r)
		}
		return g
	}
	in, across := rt.Group{Name: "in", Ranks: [][]int{{0, 1}, {2, 3}}}, rt.Group{Name: "across", Ranks: [][]int{{0, 2}, {1, 3}}}
	chain := rt.Group{Name: "chain", Ranks: [][]int{{0, 1}, {2}, {3}}}
	chain2 := rt.Group{Name: "chain2", Ranks: [][]int{{1, 2}, {0}, {3}}}
	for name, tc := range map[string]struct {
		l       *topo.Layout
		groups  []rt.Group
		want    topo.Transport
		domains [][]int
		nccl    string // by subgroup: s or n
	}{
		"one host":          {machines(1, 4), []rt.Group{world(4), in}, "", [][]int{{0, 1, 2, 3}}, "sss"},
		"asked for":         {machines(1, 4), []rt.Group{world(4), in}, topo.NCCL, [][]int{{0}, {1}, {2}, {3}}, "nnn"},
		"two hosts":         {machines(2, 2), []rt.Group{world(4), in, across}, "", [][]int{{0, 1}, {2, 3}}, "nssnn"},
		"hosts of one":      {machines(4, 1), []rt.Group{world(4), in}, "", [][]int{{0}, {1}, {2}, {3}}, "nnn"},
		"not all pairs":     {machines(1, 4, [2]int{0, 2}), []rt.Group{world(4), in}, "", [][]int{{0, 1}, {2, 3}}, "nss"},
		"a chain":           {machines(1, 4, [2]int{0, 2}), []rt.Group{world(4), chain, chain2}, "", [][]int{{0, 1, 3}, {2}}, "nsssnss"},
		"no group of all":   {machines(2, 2), []rt.Group{in}, "", [][]int{{0, 1}, {2, 3}}, "ss"},
		"more than kernels": {machines(1, 17), []rt.Group{world(17)}, "", nil, "n"},
		"alone":             {machines(1, 1), []rt.Group{world(1)}, topo.NCCL, [][]int{{0}}, "s"},
	} {
		spec := &rt.Spec{World: len(tc.l.Ranks), Groups: tc.groups}
		r, err := Route(spec, false, tc.want, tc.l)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		got := ""
		for _, g := range tc.groups {
			row, err := r.Of(g)
			if err != nil {
				t.Errorf("%s: %v", name, err)
			}
			for _, d := range row {
				got += string(d.Transport)[:1]
			}
		}
		if got != tc.nccl || tc.domains != nil && !reflect.DeepEqual(r.Domains, tc.domains) {
			t.Errorf("%s: %s %v, want %s %v", name, got, r.Domains, tc.nccl, tc.domains)
		}
	}
}
