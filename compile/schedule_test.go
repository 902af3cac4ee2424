package compile_test

import (
	"context"
	"fmt"
	"slices"
	"testing"

	"github.com/seed-ee968945/concert/compile"
	"github.com/seed-ee968945/concert/ir"
	"github.com/seed-ee968945/concert/program"
)

// mine is a node of somebody else's graph.
type mine struct{ name string }

// foreign builds a graph of calls only, as a compiler does that has kernels of its own:
// layers whose weights are gathered, and gradients that are summed up. It returns the
// objects by name.
func foreign(t testing.TB, layers int) (*ir.Module, map[string]*mine) {
	t.Helper()
	objects := map[string]*mine{}
	b := ir.NewBuilder(4)
	dp := b.Group("data/parallel", [][]int{{0, 1, 2, 3}})
	f := b.Func("step")
	of := func(name string, ms float64) *ir.FuncBuilder {
		objects[name] = &mine{name}
		fb := f.Named(name).Origin(objects[name])
		if ms > 0 {
			fb = fb.Cost(ms)
		}
		return fb
	}
	x := of("", 0).Input("x", ir.Tensor(ir.F32, 256, 256))
	var out []*ir.Value
	for i := range layers {
		w := of("", 0).Parameter(fmt.Sprintf("w/%d", i), ir.Tensor(ir.F32, 64, 256))
		g := f.Wait1(of(fmt.Sprintf("gather/%d", i), 0.02).AllGather(dp, 0, w))
		x = of(fmt.Sprintf("layer/%d", i), 0.1).CallWith("my.layer", nil, ir.A("class", "compute", "tile", 64), []*ir.Value{x, g}, ir.Tensor(ir.F32, 256, 256))[0]
		r := of(fmt.Sprintf("reduce/%d", i), 0.02).ReduceScatter(ir.Sum, dp, 0, x)
		out = append(out, of(fmt.Sprintf("wait/%d", i), 0).Wait1(r))
	}
	f.Return(append(out, x)...)
	m, err := b.Finish()
	if err != nil {
		t.Fatal(err)
	}
	return m, objects
}

// A schedule speaks of the caller's objects: each of them stands in it once, alone or in
// a bucket, and in an order that the simulated times follow.
func TestSchedule(t *testing.T) {
	m, objects := foreign(t, 6)
	p := pipelineOf(t, "canonicalize,simplify-collectives,overlap{percent=150},reuse-buffers,plan-memory") // memory for buckets
	r, err := compile.Compile(context.Background(), m, compile.Target{}, compile.Options{Pipeline: p})
	if err != nil {
		t.Fatal(err)
	}
	s, err := r.Func("step").Schedule()
	if err != nil {
		t.Fatal(err)
	}
	count := map[string]int{}
	buckets, issue := 0, 0.0
	for i, it := range s.Items {
		if it.IssueMs < issue || it.BeginMs < it.IssueMs || it.EndMs < it.BeginMs {
			t.Errorf("item %d runs from %v (issued %v) to %v", i, it.BeginMs, it.IssueMs, it.EndMs)
		}
		issue = it.IssueMs
		switch it.Kind {
		case compile.Start:
			if it.Group.Name != "data/parallel" {
				t.Errorf("item %d is on %v", i, it.Group)
			}
			operands := 0
			for _, x := range it.Members {
				operands += x.Operands
				if len(x.Origins) != 1 || x.Origins[0] != objects[x.Name] {
					t.Errorf("member %s stands for %v", x.Name, x.Origins)
				}
				count[x.Name]++
			}
			if operands != len(it.Node.Args()) || len(it.Members) != len(it.Origins) {
				t.Errorf("item %d has %d members of %d operands, %d origins", i, len(it.Members), operands, len(it.Origins))
			}
			if len(it.Members) > 1 {
				buckets++
			}
		case compile.Wait:
			if at := it.Started; at < 0 || s.Items[at].Kind != compile.Start || s.Items[at].EndMs > it.EndMs {
				t.Errorf("item %d waits for item %d", i, at)
			}
		default:
			for _, o := range it.Origins {
				count[o.(*mine).name]++
			}
		}
	}
	for i := range 6 {
		for _, name := range []string{"gather", "layer", "reduce"} {
			if name = fmt.Sprintf("%s/%d", name, i); count[name] != 1 {
				t.Errorf("%s stands %d times in the schedule", name, count[name])
			}
		}
	}
	if buckets == 0 || s.Figures.Makespan < s.Items[len(s.Items)-1].EndMs {
		t.Errorf("%d buckets, makespan %v", buckets, s.Figures.Makespan)
	}
}

// Every value has its place, those of views and results in place too, and the program
// whose names are quoted is read back.
func TestPlace(t *testing.T) {
	m, _ := foreign(t, 6)
	f := m.Func("step")
	r, err := compile.Compile(context.Background(), m, compile.Target{}, compile.Options{})
	if err != nil {
		t.Fatal(err)
	}
	c := r.Func("step")
	p, err := c.Program()
	if err != nil {
		t.Fatal(err)
	}
	if again, err := program.Parse("p", p.String()); err != nil || again.Digest() != p.Digest() {
		t.Errorf("the program does not round-trip: %v", err)
	}
	for i, v := range f.Return().Args() {
		at, err := c.Place(v)
		if err != nil {
			t.Fatal(err)
		}
		q := p.Outputs[i].Tensors[0]
		if want := p.Buffers[q.Buffer].Offset + q.Offset; len(at) != 1 || at[0].Offset != want || at[0].Bytes != 4*p.Hint(q.Shape[0])*p.Hint(q.Shape[1]) {
			t.Errorf("output %d lies at %+v, want %d", i, at, want)
		}
	}
	// A wait's result lies where its collective put it, also if that is a bucket now.
	for _, n := range c.Func.Order() {
		if n.Op().IsCollective() {
			whole, err := c.Place(n.Result(0))
			if err != nil {
				t.Fatal(err)
			}
			for _, u := range n.Result(0).Uses() {
				for k, w := range u.Node.Results() {
					if at, err := c.Place(w); err != nil || !slices.Equal(at, whole[k:k+1]) {
						t.Errorf("%s lies at %+v, its collective's tensor at %+v: %v", w, at, whole[k], err)
					}
				}
			}
		}
	}
}
