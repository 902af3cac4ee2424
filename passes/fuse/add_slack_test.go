package fuse_test

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/seed-ee968945/concert/cost"
	"github.com/seed-ee968945/concert/ir/fx"
	"github.com/seed-ee968945/concert/passes"
	"github.com/seed-ee968945/concert/passes/fuse"
	"github.com/seed-ee968945/concert/passes/internal/deps"
	"github.com/seed-ee968945/concert/passes/standard"
	"github.com/seed-ee968945/concert/sim"
)

// The model of launches has the memory that fusion counts by, the compute of the
// function, and stays legal when its order changes: after the pass the regions are what
// they were, no launch is later and the limit holds.
func TestAddSlackTracedGraphs(t *testing.T) {
	files, err := filepath.Glob("../../testdata/graphs/*_l[24]_*.json.gz")
	if err != nil || len(files) == 0 {
		t.Fatal(files, err)
	}
	for _, file := range files {
		name := strings.TrimSuffix(filepath.Base(file), ".graph.json.gz")
		if testing.Short() && !strings.Contains(name, "mixtral") {
			continue
		}
		t.Run(name, func(t *testing.T) {
			src, err := fx.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			r, err := src.Import()
			if err != nil {
				t.Fatal(err)
			}
			g := passes.Manager{Costs: cost.TracedH200(), Verify: passes.VerifyEnd}
			run := func(text string) *passes.Report {
				p, err := standard.Table().Parse(text)
				if err != nil {
					t.Fatal(err)
				}
				rep, err := g.Run(r.Module, p)
				if err != nil {
					t.Fatal(err)
				}
				return rep
			}
			run("canonicalize,simplify-collectives,overlap,fuse{kernels=true}")
			f := r.Module.Funcs()[0]
			d, err := deps.AnalyzeWith(f, sim.FuncOptions{})
			if err != nil {
				t.Fatal(err)
			}
			m, units, err := fuse.LaunchModel(d)
			if err != nil {
				t.Fatal(err)
			}
			tl, err := sim.Evaluate(m, m.InputOrder(), nil)
			if err != nil {
				t.Fatal(err)
			}
			order, unit, members := make([]int32, len(d.Nodes)), make([]int32, len(d.Nodes)), map[string]int{}
			for i, n := range d.Nodes {
				order[i], unit[i] = int32(i), -1
				if n.Meta().Has(passes.FusionKey) {
					unit[i] = int32(n.Meta().Int(passes.FusionKey, 0))
				}
			}
			for _, u := range units {
				for _, n := range u {
					members[n.Name()] = len(u)
				}
			}
			if want := fuse.RegionsPeak(d, order, unit); tl.Peak != want {
				t.Errorf("launches have a peak of %d bytes, regions of %d", tl.Peak, want)
			}
			if got, want := m.ComputeTime(), d.ComputeTime(); got < want*(1-1e-12) || got > want*(1+1e-12) {
				t.Errorf("launches take %v ms, nodes %v", got, want)
			}
			st := run("add-slack").Steps[0]
			if now, was := st.Stat("makespan-after-ms"), st.Stat("makespan-before-ms"); now > was*(1+1e-12) {
				t.Errorf("%v ms instead of %v", now, was)
			}
			if now, was := st.Stat("peak-after-bytes"), st.Stat("peak-before-bytes"); now > was*1.1 {
				t.Errorf("a peak of %.0f bytes instead of %.0f", now, was)
			}
			if d, err = deps.AnalyzeWith(f, sim.FuncOptions{}); err != nil {
				t.Fatal(err)
			}
			if _, units, err = fuse.LaunchModel(d); err != nil {
				t.Fatal(err)
			}
			for _, u := range units {
				for _, n := range u {
					if members[n.Name()] != len(u) {
						t.Errorf("%s: a launch of %d nodes instead of %d", n.Name(), len(u), members[n.Name()])
					}
				}
			}
		})
	}
}
