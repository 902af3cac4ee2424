package compile_test

import (
	"context"
	"fmt"
	"strings"
	"syscall"
	"testing"

	"github.com/seed-ee968945/concert/compile"
	"github.com/seed-ee968945/concert/cost"
	"github.com/seed-ee968945/concert/ir"
	"github.com/seed-ee968945/concert/passes"
	"github.com/seed-ee968945/concert/passes/standard"
)

// hosts is a machine of many hosts of eight H200s, by which a rank's collectives are priced.
func hosts(t testing.TB) *cost.Model {
	t.Helper()
	m, err := cost.LookupMachine("h200")
	if err != nil {
		t.Fatal(err)
	}
	m.HostsPerLeaf, m.Oversubscription = 32, 2
	return &cost.Model{Machine: m}
}

// llama405b is a training step of a Llama of 405 billion parameters (hidden size 16384, of the
// MLP 53248, 128 heads) with that many of its 126 layers: tensors and sequences in parallel within
// hosts of eight, parameters sharded over eight hosts and replicated over the rest (HSDP).
// Attention is a call, as its library is not the matter here.
func llama405b(layers, world int) (*ir.Module, error) {
	const seq, hidden, heads, mlp, tp, shards = 8192, 16384, 2304, 6656, 8, 8 // of a rank: heads are q, k and v
	b := ir.NewBuilder(world)
	strided := func(size, stride int) (out [][]int) {
		for base := 0; base < world; base += size * stride {
			for first := range stride {
				var l []int
				for i := range size {
					l = append(l, base+first+i*stride)
				}
				out = append(out, l)
			}
		}
		return out
	}
	tps, shard := b.Group("tp", strided(tp, 1)), b.Group("shard", strided(shards, tp))
	copies := b.Group("replicas", strided(world/tp/shards, tp*shards))
	f := b.Func("step")
	t2 := func(r, c int64) ir.Type { return ir.Tensor(ir.BF16, r, c) }
	x := f.InputRole("x", t2(seq/tp, hidden), ir.RoleData)
	type layer struct{ qkv, out, gate, up, down *ir.Value }
	var ws []layer
	for i := range layers {
		p := func(name string, r, c int64) *ir.Value {
			return f.Parameter(fmt.Sprintf("%s%d", name, i), t2(r/shards, c))
		}
		ws = append(ws, layer{p("qkv", heads, hidden), p("out", hidden, 2048), p("gate", mlp, hidden), p("up", mlp, hidden), p("down", hidden, mlp)})
	}
	whole := func(w *ir.Value) *ir.Value { return f.Wait1(f.AllGather(shard, 0, w)) }
	all := func(v *ir.Value) *ir.Value { return f.Wait1(f.AllGather(tps, 0, v)) }
	sum := func(v *ir.Value) *ir.Value { return f.Wait1(f.ReduceScatter(ir.Sum, tps, 0, v)) }
	tr := func(v *ir.Value) *ir.Value { return f.Permute(v, 1, 0) }
	attend := func(cost float64, target string, rows, cols int64, vs ...*ir.Value) *ir.Value {
		return f.Cost(cost).Call(target, "compute", nil, vs, t2(rows, cols))[0]
	}
	type saved struct{ in, qkv, att, mid, gate, up *ir.Value }
	var kept []saved
	for _, w := range ws {
		s := saved{in: x}
		s.qkv = f.MatMul(all(x), tr(whole(w.qkv)))
		s.att = attend(0.6, "attention", seq, 2048, s.qkv)
		x = f.Add(x, sum(f.MatMul(s.att, tr(whole(w.out)))))
		s.mid = x
		h := all(x)
		s.gate, s.up = f.MatMul(h, tr(whole(w.gate))), f.MatMul(h, tr(whole(w.up)))
		x = f.Add(x, sum(f.MatMul(f.Mul(f.Unary(ir.OpSilu, s.gate), s.up), tr(whole(w.down)))))
		kept = append(kept, s)
	}
	loss, dx := x, x
	var grads []*ir.Value
	grad := func(left, right *ir.Value) {
		g := f.Wait1(f.ReduceScatter(ir.Avg, shard, 0, f.MatMul(tr(left), right)))
		grads = append(grads, f.Wait1(f.AllReduce(ir.Avg, copies, g)))
	}
	for i := layers - 1; i >= 0; i-- {
		w, s := ws[i], kept[i]
		d := all(dx)
		act := f.Unary(ir.OpSilu, s.gate)
		grad(d, f.Mul(act, s.up))
		dm := f.MatMul(d, whole(w.down))
		dg, du := f.Mul(dm, s.up), f.Mul(dm, act)
		h := all(s.mid)
		grad(dg, h)
		grad(du, h)
		dx = f.Add(dx, sum(f.Add(f.MatMul(dg, whole(w.gate)), f.MatMul(du, whole(w.up)))))
		d = all(dx)
		grad(d, s.att)
		dq := attend(1.5, "attention_backward", seq, heads, f.MatMul(d, whole(w.out)), s.qkv)
		grad(dq, all(s.in))
		dx = f.Add(dx, sum(f.MatMul(dq, whole(w.qkv))))
	}
	f.Return(append(grads, loss, dx)...)
	return b.Finish()
}

func planned(t testing.TB, layers, world int) *compile.Function {
	t.Helper()
	return plannedBy(t, layers, world, "default").Funcs[0]
}

// plannedBy is the plan by a pipeline.
func plannedBy(t testing.TB, layers, world int, pipeline string) *compile.Result {
	t.Helper()
	m, err := llama405b(layers, world)
	if err != nil {
		t.Fatal(err)
	}
	p, err := standard.Table().Parse(pipeline)
	if err != nil {
		t.Fatal(err)
	}
	r, err := compile.Compile(context.Background(), m, compile.Target{Costs: hosts(t)}, compile.Options{Pipeline: p})
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// A step over 64 hosts is planned by where its groups are: gathers of weights go over the
// network, the report says how much of them is not hidden, and that a faster network would help most
// where it does.
func TestPlanOverHosts(t *testing.T) {
	f := planned(t, 3, 512)
	before, err := f.Before()
	if err != nil {
		t.Fatal(err)
	}
	after, err := f.After()
	if err != nil {
		t.Fatal(err)
	}
	if after.Makespan >= before.Makespan || after.Exposed >= before.Exposed {
		t.Errorf("%+v before, %+v after", before, after)
	}
	helps, err := f.Bottlenecks()
	if err != nil {
		t.Fatal(err)
	}
	domains, exposed := map[string]int{}, 0.0 // look-up only
	for i, h := range helps {
		domains[h.Group] = h.Domains
		exposed += h.Exposed
		if i > 0 && h.Gain > helps[i-1].Gain || h.Gain < 0 || h.Gain > h.Busy {
			t.Errorf("%+v behind %+v", h, helps[max(i-1, 0)])
		}
	}
	if domains["shard"] != 8 || domains["replicas"] != 8 || len(helps) < 2 || !strings.Contains(helps[0].String(), "@shard") {
		t.Errorf("helps: %+v", helps)
	}
	if exposed < 0.9*after.Exposed || exposed > 1.01*after.Exposed {
		t.Errorf("%.3f ms exposed by group, %.3f in all", exposed, after.Exposed)
	}
}

// Stages of such a step: what would help says what waiting for other stages costs, besides the
// groups within each.
func TestPlanStages(t *testing.T) {
	r := plannedBy(t, 4, 64, "pipeline{stages=4,micro-batches=4}")
	s := r.Module.Stages()[0]
	m, err := compile.MeasureStages(r.Module, s, r.Costs())
	if err != nil {
		t.Fatal(err)
	}
	helps, err := r.StageBottlenecks(s)
	if err != nil {
		t.Fatal(err)
	}
	seen := map[string]bool{} // look-up only
	for i, h := range helps {
		seen[fmt.Sprint(h.Group, h.Stages)] = true
		if i > 0 && h.Gain > helps[i-1].Gain || h.Gain <= 0 || h.Gain > m.Step/2 {
			t.Errorf("%+v behind %+v, of a step of %v ms", h, helps[max(i-1, 0)], m.Step)
		}
		if h.Stages > 0 && (h.Collectives != 16 || h.Exposed <= 0 || !strings.Contains(h.String(), "transfers between 4 stages (16)")) {
			t.Errorf("transfers: %+v, %v", h, h)
		}
	}
	if !seen["0"] || !seen["4"] || !seen["shard0"] || !seen["tp0"] {
		t.Errorf("helps: %v", helps)
	}
	if len(m.Lines) != 4 || len(m.Models) != 4 || m.Lines[0].Makespan > m.Step || m.Step <= 0 {
		t.Errorf("%d timelines of a step of %v", len(m.Lines), m.Step)
	}
}

// Stages that go through passes side by side come out as one after the other, and so does what is
// reported of them.
func TestSideBySide(t *testing.T) {
	m, err := llama405b(4, 64)
	if err != nil {
		t.Fatal(err)
	}
	p, err := standard.Table().Parse("pipeline{stages=4,micro-batches=4},default")
	if err != nil {
		t.Fatal(err)
	}
	var said []string
	for _, enable := range []func(string) bool{func(string) bool { return true }, nil} { // who is asked is asked in order
		r, err := compile.Compile(t.Context(), m, compile.Target{Costs: hosts(t)}, compile.Options{Pipeline: p, Manager: passes.Manager{Enable: enable}})
		if err != nil {
			t.Fatal(err)
		}
		said = append(said, fmt.Sprintf("%s%+v", r.Module, r.Report.Steps))
	}
	if said[0] != said[1] {
		t.Error("stages side by side are not what they are one after the other")
	}
}

// BenchmarkPlanAtSize plans all 126 layers; see BENCHMARKS.md. It reports the processor's time, which no other process
// on the machine changes.
func BenchmarkPlanAtSize(b *testing.B) {
	for _, world := range []int{512, 4096} {
		b.Run(fmt.Sprint(world), func(b *testing.B) {
			defer userTime(b)()
			for b.Loop() {
				f := planned(b, 126, world)
				after, err := f.After()
				if err != nil {
					b.Fatal(err)
				}
				b.ReportMetric(after.Exposed/after.Makespan, "exposed/makespan")
			}
		})
	}
}

// BenchmarkPlanStages cuts the same step, of 64 ranks, into eight stages that take turns with
// micro-batches: pipeline, tensors, sequences and data in parallel on 512 ranks.
func BenchmarkPlanStages(b *testing.B) {
	for _, size := range []struct{ ranks, stages, micro int }{{64, 8, 8}, {64, 8, 16}, {256, 16, 16}} {
		b.Run(fmt.Sprintf("%dx%d", size.ranks*size.stages, size.micro), func(b *testing.B) {
			defer userTime(b)()
			for b.Loop() {
				r := plannedBy(b, 126, size.ranks, fmt.Sprintf("pipeline{stages=%d,micro-batches=%d},default", size.stages, size.micro))
				m, err := compile.MeasureStages(r.Module, r.Module.Stages()[0], r.Costs())
				if err != nil {
					b.Fatal(err)
				}
				helps, err := r.StageBottlenecks(r.Module.Stages()[0])
				if err != nil {
					b.Fatal(err)
				}
				for _, h := range helps {
					b.Log(h)
				}
				b.ReportMetric(m.Bubble, "waits/step")
				b.ReportMetric(m.Step, "step-ms")
			}
		})
	}
}

// userTime reports the processor's time from now on.
func userTime(b *testing.B) func() {
	var a, z syscall.Rusage
	syscall.Getrusage(syscall.RUSAGE_SELF, &a)
	return func() {
		syscall.Getrusage(syscall.RUSAGE_SELF, &z)
		b.ReportMetric(float64(z.Utime.Nano()-a.Utime.Nano())/float64(b.N)/1e9, "user-s/op")
	}
}
