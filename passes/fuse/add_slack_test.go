package fuse_test

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/seed-ee968945/concert/cost"
	"github.com/seed-ee968945/concert/ir"
	"github.com/seed-ee968945/concert/ir/fx"
	"github.com/seed-ee968945/concert/passes"
	"github.com/seed-ee968945/concert/passes/fuse"
	"github.com/seed-ee968945/concert/passes/internal/deps"
	"github.com/seed-ee968945/concert/passes/standard"
	"github.com/seed-ee968945/concert/sim"
)

// tracedT is a traced graph, and the model of its launches.
type tracedT struct {
	*testing.T
	g     passes.Manager
	m     *ir.Module
	d     *deps.Func
	model *sim.Model
	units [][]*ir.Node // by launch
}

func newTracedT(t *testing.T, file string) *tracedT {
	t.Helper()
	src, err := fx.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	r, err := src.Import()
	if err != nil {
		t.Fatal(err)
	}
	return &tracedT{T: t, m: r.Module, g: passes.Manager{Costs: cost.TracedH200(), Verify: passes.VerifyEnd}}
}

// run runs passes, and models the launches of the function as it is then.
func (x *tracedT) run(text string) *passes.Report {
	x.Helper()
	p, err := standard.Table().Parse(text)
	if err != nil {
		x.Fatal(err)
	}
	rep, err := x.g.Run(x.m, p)
	if err != nil {
		x.Fatal(err)
	}
	if x.d, err = deps.AnalyzeWith(x.m.Funcs()[0], sim.FuncOptions{}); err != nil {
		x.Fatal(err)
	}
	if x.model, x.units, err = fuse.LaunchModel(x.d); err != nil {
		x.Fatal(err)
	}
	return rep
}

// checkModel compares the model with what fusion counts by.
func (x *tracedT) checkModel() {
	x.Helper()
	tl, err := sim.Evaluate(x.model, x.model.InputOrder(), nil)
	if err != nil {
		x.Fatal(err)
	}
	order, unit := make([]int32, len(x.d.Nodes)), make([]int32, len(x.d.Nodes))
	for i, n := range x.d.Nodes {
		order[i], unit[i] = int32(i), -1
		if n.Meta().Has(passes.FusionKey) {
			unit[i] = int32(n.Meta().Int(passes.FusionKey, 0))
		}
	}
	if want := fuse.RegionsPeak(x.d, order, unit); tl.Peak != want {
		x.Errorf("launches have a peak of %d bytes, regions of %d", tl.Peak, want)
	}
	if got, want := x.model.ComputeTime(), x.d.ComputeTime(); got < want*(1-1e-12) || got > want*(1+1e-12) {
		x.Errorf("launches take %v ms, nodes %v", got, want)
	}
}

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
			x := newTracedT(t, file)
			x.run("canonicalize,simplify-collectives,overlap,fuse{kernels=true}")
			x.checkModel()
			members := map[string]int{}
			for _, u := range x.units {
				for _, n := range u {
					members[n.Name()] = len(u)
				}
			}
			st := x.run("add-slack").Steps[0]
			if now, was := st.Stat("makespan-after-ms"), st.Stat("makespan-before-ms"); now > was*(1+1e-12) {
				t.Errorf("%v ms instead of %v", now, was)
			}
			if now, was := st.Stat("peak-after-bytes"), st.Stat("peak-before-bytes"); now > was*1.1 {
				t.Errorf("a peak of %.0f bytes instead of %.0f", now, was)
			}
			for _, u := range x.units {
				for _, n := range u {
					if members[n.Name()] != len(u) {
						t.Errorf("%s: a launch of %d nodes instead of %d", n.Name(), len(u), members[n.Name()])
					}
				}
			}
		})
	}
}
