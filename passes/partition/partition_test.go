package partition_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/seed-ee968945/concert/cost"
	"github.com/seed-ee968945/concert/internal/attr"
	"github.com/seed-ee968945/concert/internal/golden/gen"
	"github.com/seed-ee968945/concert/internal/joint"
	"github.com/seed-ee968945/concert/interp"
	"github.com/seed-ee968945/concert/interp/step"
	"github.com/seed-ee968945/concert/ir"
	"github.com/seed-ee968945/concert/passes"
	"github.com/seed-ee968945/concert/passes/partition"
	"github.com/seed-ee968945/concert/passes/passtest"
	"github.com/seed-ee968945/concert/passes/standard"
)

var tiny = []string{"tiny_fsdp2", "tiny_tp2", "tiny_tpsp2", "tiny_ddp2", "tiny_moe2"}

var budgets = []float64{0, 0.01, 0.5, 1}

func loadJoint(t testing.TB, name string) (*ir.Func, *step.Pair) {
	t.Helper()
	f, p, err := joint.Load("../../testdata/graphs", name)
	if err != nil {
		t.Fatal(err)
	}
	return f, p
}

// split runs the pass on a copy of f's module, twice, and verifies.
func split(t testing.TB, f *ir.Func, budget float64) (fw, bw *ir.Func, rep *passes.StepReport) {
	t.Helper()
	p, err := standard.Table().Parse(fmt.Sprintf("partition{budget=%g}", budget))
	if err != nil {
		t.Fatal(err)
	}
	m := f.Module().Clone()
	g := passes.Manager{Validate: passes.ValidateAlways, Costs: cost.TracedH200(), Repeat: true}
	r, err := g.Run(m, p)
	if err != nil {
		t.Fatal(err)
	}
	fw, bw = m.Func(f.Name+".fw"), m.Func(f.Name+".bw")
	if fw == nil || bw == nil || len(m.Funcs()) != 2 {
		t.Fatalf("%s was not split", f.Name)
	}
	return fw, bw, &r.Steps[0]
}

func collectives(f *ir.Func) int {
	n := 0
	for _, x := range f.Order() {
		if x.Op().IsCollective() {
			n++
		}
	}
	return n
}

// At every budget forward and backward run exactly the collectives that were traced, the
// saved bytes stay within the budget, and more budget never costs time.
func TestPartitionNeverRepeatsCollectives(t *testing.T) {
	names := append([]string{"mixtral_l2_ep4_fsdp4", "llama8b_l4_tpsp4"}, tiny...)
	if !testing.Short() {
		names = append(names, "llama8b_fsdp8")
	}
	for _, name := range names {
		f, p := loadJoint(t, name)
		ms := 0.0
		for i, b := range budgets {
			fw, bw, s := split(t, f, b)
			if got, want := collectives(fw), collectives(p.Forward); got != want {
				t.Errorf("%s at %g: %d collectives in forward, %d were traced", name, b, got, want)
			}
			if got, want := collectives(bw), collectives(p.Backward); got != want {
				t.Errorf("%s at %g: %d collectives in backward, %d were traced", name, b, got, want)
			}
			saved := int64(0)
			for _, n := range bw.Inputs() {
				if n.Role() == ir.RoleSaved {
					saved += n.Func().Module().Bound(n.Result(0).Type().Bytes())
				}
			}
			if float64(saved) != s.Stat("saved-bytes") || s.Stat("saved-bytes") > s.Stat("limit-bytes") {
				t.Errorf("%s at %g: saves %d bytes, says %g, the budget allows %g", name, b, saved, s.Stat("saved-bytes"), s.Stat("limit-bytes"))
			}
			if got := s.Stat("recompute-ms"); i > 0 && got > ms || b == 1 && got > 0 {
				t.Errorf("%s at %g: repeats %g ms, %g with less", name, b, got, ms)
			}
			ms = s.Stat("recompute-ms")
			if b == 0 && s.Stat("recomputed") == 0 {
				t.Errorf("%s at 0 repeats nothing", name)
			}
			t.Logf("%s at %g: saves %s of %s, repeats %g operations, %.3f ms", name, b, passes.Bytes(saved), passes.Bytes(int64(s.Stat("most-bytes"))), s.Stat("recomputed"), ms)
		}
	}
}

// runJoint gives the results of the halves and of the whole.
func runJoint(t *testing.T, f, fw, bw *ir.Func, in [][]interp.Tensor) (got, want [][]interp.Tensor) {
	t.Helper()
	run := step.Interpret(interp.Options{Poison: true})
	want, err := run(context.Background(), f, in)
	if err != nil {
		t.Fatal(err)
	}
	if got, err = joint.Run(context.Background(), run, f, fw, bw, in); err != nil {
		t.Fatal(err)
	}
	return got, want
}

func same(t *testing.T, what string, got, want [][]interp.Tensor) {
	t.Helper()
	if len(got) != len(want) {
		t.Fatalf("%s: %d ranks, want %d", what, len(got), len(want))
	}
	for r := range want {
		if len(got[r]) != len(want[r]) || len(want[r]) == 0 {
			t.Fatalf("%s: rank %d has %d results, want %d", what, r, len(got[r]), len(want[r]))
		}
		for k := range want[r] {
			if !interp.Equal(got[r][k], want[r][k]) {
				t.Errorf("%s: rank %d, result %d differs", what, r, k)
			}
		}
	}
}

// The joint function computes what the traced pair computes, bit for bit.
func TestJointIsThePair(t *testing.T) {
	for _, name := range tiny {
		f, p := loadJoint(t, name)
		in, err := interp.RandomInputs(p.Forward, 1, interp.RandomOptions{})
		if err != nil {
			t.Fatal(err)
		}
		fw, bw, err := p.Run(context.Background(), step.Interpret(interp.Options{}), in)
		if err != nil {
			t.Fatal(err)
		}
		whole := jointInputs(t, f, in)
		got, err := interp.Run(context.Background(), f, whole, interp.Options{})
		if err != nil {
			t.Fatal(err)
		}
		want := make([][]interp.Tensor, len(fw))
		for r := range fw {
			want[r] = append([]interp.Tensor{fw[r][0]}, bw[r]...)
		}
		same(t, name, got, want)
	}
}

// jointInputs adds tangents of one to forward's inputs.
func jointInputs(t *testing.T, f *ir.Func, in [][]interp.Tensor) [][]interp.Tensor {
	t.Helper()
	out := make([][]interp.Tensor, len(in))
	for r := range in {
		out[r] = append(out[r], in[r]...)
		for _, n := range f.Inputs() {
			if n.Role() == ir.RoleTangent {
				shape, _ := n.Result(0).Type().Shape().Static()
				one, err := interp.Fill(n.Result(0).Type().DType(), 1, shape...)
				if err != nil {
					t.Fatal(err)
				}
				out[r] = append(out[r], one)
			}
		}
	}
	return out
}

// The halves of the tiny steps compute the same bits at every budget, on all
// ranks, and fit together as a traced pair does.
func TestPartitionKeepsResults(t *testing.T) {
	for _, name := range tiny {
		f, p := loadJoint(t, name)
		in, err := interp.RandomInputs(p.Forward, 1, interp.RandomOptions{})
		if err != nil {
			t.Fatal(err)
		}
		whole := jointInputs(t, f, in)
		for _, b := range []float64{0, 0.01, 0.3, 0.5, 1} {
			fw, bw, _ := split(t, f, b)
			got, want := runJoint(t, f, fw, bw, whole)
			same(t, fmt.Sprintf("%s at %g", name, b), got, want)
			if b == 0.5 { // what the halves are for: the passes that follow
				pl, err := standard.Table().Parse("simplify-collectives,overlap")
				if err != nil {
					t.Fatal(err)
				}
				g := passes.Manager{Validate: passes.ValidateAlways, Costs: cost.TracedH200()}
				if _, err := g.Run(fw.Module(), pl); err != nil {
					t.Fatal(err)
				}
				got, want := runJoint(t, f, fw, bw, whole)
				same(t, name+" scheduled", got, want)
			}
			if _, err := step.New(name, fw, bw); err != nil {
				t.Errorf("%s at %g is not a pair: %v", name, b, err)
			}
		}
	}
}

// tag marks the forward nodes from the share lo up to hi of forward as a
// checkpointed region and returns how many collectives it holds.
func tag(f *ir.Func, forward int, lo, hi float64, region int64) int {
	n, order := 0, f.Order()
	in := len(f.Inputs())
	for _, x := range order[in+int(lo*float64(forward)) : in+int(hi*float64(forward))] {
		if x.Op().Class() == ir.ClassWait {
			continue // it follows its collective
		}
		f.SetMeta(x, x.Meta().With(partition.MetaCheckpoint, attr.Int(region)))
		if x.Op().IsCollective() {
			n++
		}
	}
	return n
}

// A checkpointed region is repeated with all of its collectives and no other, at
// every budget, and nothing changes in the results.
func TestPartitionCheckpoint(t *testing.T) {
	names := append([]string{"mixtral_l2_ep4_fsdp4"}, tiny...)
	if !testing.Short() {
		names = append(names, "llama8b_fsdp8")
	}
	for _, name := range names {
		f, p := loadJoint(t, name)
		forward := len(p.Forward.Order()) - len(p.Forward.Inputs()) - 1
		extra := tag(f, forward, 0.15, 0.45, 1) + tag(f, forward, 0.55, 0.8, 2)
		if extra == 0 && name != "tiny_ddp2" {
			t.Fatalf("%s: the regions hold no collective", name)
		}
		var whole [][]interp.Tensor
		if f.Module().World == 2 {
			in, err := interp.RandomInputs(p.Forward, 1, interp.RandomOptions{})
			if err != nil {
				t.Fatal(err)
			}
			whole = jointInputs(t, f, in)
		}
		for _, b := range budgets {
			fw, bw, s := split(t, f, b)
			if got, want := collectives(fw), collectives(p.Forward); got != want {
				t.Errorf("%s at %g: %d collectives in forward, %d were traced", name, b, got, want)
			}
			if got, want := collectives(bw), collectives(p.Backward)+extra; got != want {
				t.Errorf("%s at %g: %d collectives in backward, want %d: %d traced and %d of the regions", name, b, got, want, want-extra, extra)
			}
			if int(s.Stat("recomputed-collectives")) != extra {
				t.Errorf("%s at %g: says that %g collectives are repeated, want %d", name, b, s.Stat("recomputed-collectives"), extra)
			}
			if whole != nil {
				got, want := runJoint(t, f, fw, bw, whole)
				same(t, fmt.Sprintf("%s at %g", name, b), got, want)
			}
		}
	}
}

// asJoint gives the functions of a random module a tangent, backward readers of
// arbitrary values, and checkpointed regions.
func asJoint(r *rand.Rand, m *ir.Module) {
	for _, f := range m.Funcs() {
		region := int64(0)
		var read []*ir.Value
		for _, n := range f.Order() {
			if r.IntN(8) == 0 {
				region = int64(r.IntN(3))
			}
			if n.Op() != ir.OpInput && n.Op() != ir.OpReturn && region > 0 {
				f.SetMeta(n, n.Meta().With(partition.MetaCheckpoint, attr.Int(region)))
			}
			for _, v := range n.Results() {
				if !v.Type().IsAsync() && r.IntN(3) == 0 {
					read = append(read, v)
				}
			}
		}
		ins := f.Inputs()
		for _, n := range ins {
			if n.Role() == ir.RoleSaved || n.Role() == ir.RoleTangent {
				f.SetMeta(n, n.Meta().Without("role"))
			}
		}
		typ := ir.Tensor(ir.F32, 2)
		tan := f.InsertAfter(ins[len(ins)-1], ir.NodeSpec{Op: ir.OpInput, Name: "tangent", Results: []ir.Type{typ},
			Meta: attr.Make(attr.Attr{Key: "role", Val: attr.String("tangent")})}).Result(0)
		outs := append([]*ir.Value(nil), f.Return().Args()...)
		for _, v := range read {
			flat := ir.TensorOf(v.Type().DType(), v.Type().Shape())
			g := f.InsertBefore(f.Return(), ir.NodeSpec{Op: ir.OpCall, Name: "grad", Args: []*ir.Value{tan, v}, Results: []ir.Type{typ, flat},
				Attrs: attr.Make(attr.Attr{Key: "target", Val: attr.String("twice")})})
			outs = append(outs, g.Result(1))
			if r.IntN(2) == 0 {
				tan = g.Result(0)
			}
		}
		f.SetArgs(f.Return(), outs...)
		f.ResolveVersions()
	}
}

// once checks that every operation with effects runs in one half, and in both only
// if it communicates and belongs to a checkpointed region.
func once(t *testing.T, f *ir.Func, halves ...*ir.Func) {
	t.Helper()
	for _, n := range f.Order() {
		e := n.Effects() &^ ir.EffectAlias
		if e == 0 && n.Op().Class() != ir.ClassWait {
			continue
		}
		runs := 0
		for _, h := range halves {
			if x := h.Lookup(n.Name()); x != nil && x.Op() == n.Op() { // not the input that it is saved as
				runs++
			}
		}
		region := n.Meta().Int(partition.MetaCheckpoint, 0) > 0
		if n.Op().Class() == ir.ClassWait && n.Arg(0).Def().Op().IsCollective() {
			region = n.Arg(0).Def().Meta().Int(partition.MetaCheckpoint, 0) > 0
		}
		if runs != 1 && !(runs == 2 && region && e&^ir.EffectCommunicates == 0) {
			t.Errorf("%s with effects runs in %d halves, region %v", n, runs, region)
		}
	}
}

// Random programs with effects, values in flight and regions keep their results
// bit for bit, or are refused.
func TestPartitionProperty(t *testing.T) {
	done, again, refused := 0, 0.0, 0
	seeds := uint64(600)
	if testing.Short() {
		seeds = 150
	}
	for seed := range seeds {
		r := rand.New(rand.NewPCG(seed, 11))
		m, err := gen.Module(seed, gen.Config{Nodes: 15 + r.IntN(60), World: 2, Flights: r.IntN(3) == 0, Effects: r.IntN(2) == 0, Costs: r.IntN(4) > 0})
		if err != nil {
			t.Fatal(err)
		}
		asJoint(r, m)
		p, err := standard.Table().Parse(fmt.Sprintf("partition{budget=%g}", []float64{0, 0.2, 0.6, 1}[r.IntN(4)]))
		if err != nil {
			t.Fatal(err)
		}
		after := m.Clone()
		g := passes.Manager{Validate: passes.ValidateAlways, Repeat: true}
		rep, err := g.Run(after, p)
		if err != nil {
			var pe *partition.Error
			if !asPartitionError(err, &pe) {
				t.Fatalf("seed %d: %v\n%s", seed, err, m)
			}
			refused++
			continue
		}
		if !rep.Steps[0].Changed {
			continue
		}
		done++
		again += rep.Steps[0].Stat("recomputed")
		for _, f := range m.Funcs() {
			once(t, f, after.Func(f.Name+".fw"), after.Func(f.Name+".bw"))
		}
		if err := passtest.SameResults(m, after, seed, 0); err != nil {
			t.Fatalf("seed %d: %v\nbefore:\n%s\nafter:\n%s", seed, err, m, after)
		}
	}
	t.Logf("%d of %d split, %d refused, %g operations repeated", done, seeds, refused, again)
	if done < int(seeds)/3 || again < float64(seeds)/4 {
		t.Errorf("%d of %d programs split, %g operations repeated: the test shows too little", done, seeds, again)
	}
}

// The curve of memory against recomputation of llama8b.
func TestPartitionCurve(t *testing.T) {
	f, _ := loadJoint(t, "llama8b_fsdp8")
	var bs []float64
	for k := range 21 {
		bs = append(bs, float64(k)/20)
	}
	before := f.Module().Digest()
	points, err := partition.Curve(f, cost.TracedH200(), bs)
	if err != nil {
		t.Fatal(err)
	}
	if f.Module().Digest() != before {
		t.Error("the curve changed the module")
	}
	for i, p := range points {
		t.Logf("budget %.2f: limit %9s, saved %9s in %3d values, %4d operations repeated in %7.3f ms, peaks %9s and %9s", p.Budget, passes.Bytes(p.LimitBytes), passes.Bytes(p.SavedBytes), p.Saved, p.Recomputed, p.RecomputeMs, passes.Bytes(p.ForwardPeak), passes.Bytes(p.BackwardPeak))
		if p.SavedBytes > p.LimitBytes {
			t.Errorf("budget %g is exceeded", p.Budget)
		}
		if i > 0 && p.RecomputeMs > points[i-1].RecomputeMs {
			t.Errorf("budget %g costs more time than %g", p.Budget, points[i-1].Budget)
		}
	}
	for _, b := range []float64{-1, 2} {
		if _, err := partition.Curve(f, nil, []float64{b}); err == nil {
			t.Errorf("budget %g is accepted", b)
		}
	}
}

// What is saved is part of the module's digest, and has one of its own.
func TestSavedDigest(t *testing.T) {
	f, _ := loadJoint(t, "tiny_tp2")
	seen := map[string]float64{}
	for _, b := range budgets {
		_, bw, _ := split(t, f, b)
		_, again, _ := split(t, f, b)
		d := partition.SavedDigest(bw)
		if partition.SavedDigest(again) != d {
			t.Errorf("budget %g has two digests", b)
		}
		if other, ok := seen[d]; ok {
			t.Errorf("budgets %g and %g have one digest", other, b)
		}
		seen[d] = b
	}
}

func BenchmarkPartition(b *testing.B) {
	for _, name := range []string{"llama8b_fsdp8", "mixtral_l2_ep4_fsdp4"} {
		f, _ := loadJoint(b, name)
		for _, budget := range []float64{0, 0.3, 1} {
			b.Run(fmt.Sprintf("%s/%g", name, budget), func(b *testing.B) {
				for b.Loop() {
					if _, err := partition.Curve(f, cost.TracedH200(), []float64{budget}); err != nil {
						b.Fatal(err)
					}
				}
			})
		}
	}
}

func asPartitionError(err error, target **partition.Error) bool { return errors.As(err, target) }
