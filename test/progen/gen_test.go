package progen

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/seed-ee968945/concert/cost"
	"github.com/seed-ee968945/concert/ir"
	"github.com/seed-ee968945/concert/passes"
	"github.com/seed-ee968945/concert/passes/simplify"
	"github.com/seed-ee968945/concert/passes/standard"
)

// Equal seeds give equal programs, and many programs have everything: each operation
// of the table, each element type, and what is rare.
func TestNew(t *testing.T) {
	all := map[string]int{} // look-up only
	for seed := range uint64(2500) {
		c := New(seed)
		if d := New(seed); d.Text != c.Text || len(d.Symbols) != len(c.Symbols) {
			t.Fatalf("seed %d gives two programs:\n%s\n%s", seed, c.Text, d.Text)
		}
		m, err := ir.Parse("case.ir", c.Text)
		if err == nil {
			err = m.Verify()
		}
		if err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		features(m, all)
	}
	var want []string
	for _, op := range ir.Ops() {
		want = append(want, op.Name())
	}
	for _, dt := range slices.Concat(dtypes, rare) {
		want = append(want, dt.String())
	}
	for _, reduction := range []string{"sum", "avg", "product", "min", "max"} {
		want = append(want, "all_reduce."+reduction, "reduce_scatter."+reduction)
	}
	want = append(want, "inc", "flip", "addto", "twice", "view", "barrier", "writes and aliases", "write to an input", "write to a view", "write to a wait's result",
		"async input", "async output", "returned twice", "input returned", "dead", "bucket", "empty", "scalar", "strided", "symbolic", "falling", "uneven",
		"a collective in a body", "body in a body", "body that writes", "body that donates", "way that a reduction decides", "group of one", "equal groups", "overlapping groups", "view of a view", "joint", "forward", "checkpoint", "order-only edge",
		"rows over rows", "from the end", "long chain of rows")
	for _, w := range want {
		if all[w] == 0 {
			t.Errorf("no program has: %s", w)
		}
	}
}

// features counts what a module has.
func features(m *ir.Module, all map[string]int) {
	groupFeatures(m, all)
	f := m.Funcs()[0]
	returnFeatures(f.Return(), all)
	for _, n := range f.Order() {
		nodeFeatures(n, all)
		for _, r := range n.Results() {
			if len(r.Uses()) == 0 && n.Pure() {
				all["dead"]++
			}
			for _, t := range r.Type().Tensors() {
				typeFeatures(t, all)
			}
			if n.Op() == ir.OpInput && r.Type().IsAsync() {
				all["async input"]++
			}
		}
	}
}

// bodyFeatures counts what a function that a node runs has.
func bodyFeatures(by *ir.Node, b *ir.Func, all map[string]int) {
	if by.Communicates() {
		all["a collective in a body"]++
		if !by.Attrs().Bool(ir.UniformKey, false) {
			all["way that a reduction decides"]++
		}
	}
	for _, n := range b.Order() {
		switch {
		case n.Op().Info().Bodies != nil:
			all["body in a body"]++
		case n.Effects()&ir.EffectWrites != 0:
			all["body that writes"]++
		case n.Op() == ir.OpInput && n.Attrs().Has("donate"):
			all["body that donates"]++
		}
	}
}

func groupFeatures(m *ir.Module, all map[string]int) {
	for i, g := range m.Groups() {
		if g.Size() == 1 {
			all["group of one"]++
		}
		for _, h := range m.Groups()[:i] {
			switch {
			case equalRanks(g.Ranks, h.Ranks):
				all["equal groups"]++
			case g.Size() > 1 && h.Size() > 1:
				all["overlapping groups"]++
			}
		}
	}
}

func returnFeatures(n *ir.Node, all map[string]int) {
	returned := map[*ir.Value]int{} // look-up only
	for _, v := range n.Args() {
		returned[v]++
		if returned[v] > 1 {
			all["returned twice"]++
		}
		if v.Def().Op() == ir.OpInput {
			all["input returned"]++
		}
		if v.Type().IsAsync() {
			all["async output"]++
		}
	}
	if n.Meta().Has("forward") {
		all["forward"]++
	}
}

func nodeFeatures(n *ir.Node, all map[string]int) {
	op := n.Op()
	all[op.Name()]++
	if n.Role() == ir.RoleTangent {
		all["joint"]++
	}
	if n.Meta().Has("checkpoint") {
		all["checkpoint"]++
	}
	if len(n.After()) > 0 {
		all["order-only edge"]++
	}
	if op.Info().Reduces {
		all[op.Name()+"."+string(n.Reduction())]++
	}
	if op.IsCollective() && len(n.Args()) > 1 {
		all["bucket"]++
	}
	if strings.Contains(strings.Join(n.Attrs().Strs("in_splits"), ""), "s") {
		all["uneven"]++
	}
	if op.IsView() && n.Arg(0).Def().Op().IsView() {
		all["view of a view"]++
	}
	for _, b := range n.Bodies() {
		bodyFeatures(n, b, all)
	}
	if op == ir.OpCall {
		callFeatures(n, all)
	}
	if op == ir.OpIota && n.Attrs().Int("step", 1) < 0 {
		all["from the end"]++
	}
	rows := 0
	for v := n; v.Op() == ir.OpSliceScatter; v = v.Arg(0).Def() {
		rows++
	}
	if rows > 1 {
		all["rows over rows"]++
	}
	if rows > 8 {
		all["long chain of rows"]++
	}
}

func callFeatures(n *ir.Node, all map[string]int) {
	all[n.Attrs().Str("target", "")]++
	if n.Effects()&(ir.EffectWrites|ir.EffectAlias) == ir.EffectWrites|ir.EffectAlias {
		all["writes and aliases"]++
	}
	for i, a := range n.DeclaredArgs() {
		if !n.Writes(i) {
			continue
		}
		switch def := a.Base().Def(); {
		case def.Op() == ir.OpInput:
			all["write to an input"]++
		case def.Op().IsView():
			all["write to a view"]++
		case def.Op() == ir.OpWaitTensor:
			all["write to a wait's result"]++
		}
	}
}

func typeFeatures(t ir.Type, all map[string]int) {
	all[t.DType().String()]++
	sizes, static := t.Shape().Static()
	switch {
	case !static:
		all["symbolic"]++
		if strings.Contains(t.String(), "-s") {
			all["falling"]++
		}
	case len(sizes) == 0:
		all["scalar"]++
	case !t.Contiguous():
		all["strided"]++
	}
	for _, n := range sizes {
		if n == 0 {
			all["empty"]++
		}
	}
}

func equalRanks(a, b [][]int) bool {
	if len(a) != len(b) || len(a[0]) != len(b[0]) {
		return false
	}
	for i := range a {
		for k := range a[i] {
			if a[i][k] != b[i][k] {
				return false
			}
		}
	}
	return true
}

// A failure is reduced to what it needs: here the failure of a call that nobody
// implements, in a program and pipeline that have much else.
func TestReduce(t *testing.T) {
	c := Case{Seed: 1, Pipeline: "default", Symbols: [][]map[string]int64{{{"s": 2}, {"s": 2}}, {{"s": 3}, {"s": 3}}}, Text: `world 2
group @g = [[0, 1]]
group @h = [[0], [1]]
sym s hint 2 max 4
func @f(%x: f32[8,4] !{role="param"}, %y: bf16[s], %p: async f32[4]) -> (f32[8,4], f32[16,4], bf16[s]) {
  %a = neg %x : f32[8,4] ms 0.5
  %c = all_gather %a, %a on @g {dim=0} : async(f32[16,4], f32[16,4]) ms 1
  %b = call %a {class="memory", target="missing"} : f32[8,4]
  %w:2 = wait_tensor %c : f32[16,4], f32[16,4]
  %q = wait_tensor %p : f32[4]
  %r = relu %b : f32[8,4]
  return %r, %w#1, %y
}
`}
	f := c.Check(t.Context(), Runs{})
	if f == nil || f.Oracle != "interpreter" {
		t.Fatalf("got %v", f)
	}
	small, why := Reduce(t.Context(), c, f, Runs{}, 1000)
	want := `world 1
func @f() -> () {
  %b = call {target="missing"} : f32[1,1]
  return
}
`
	if small.Text != want || small.Pipeline != "" || len(small.Symbols) != 1 || kindOf(why) != kindOf(f) {
		t.Errorf("-passes=%s, %d assignments, %v\n%s", small.Pipeline, len(small.Symbols), why, small.Text)
	}
}

// Every rule of simplify-collectives fires on some program.
func TestRules(t *testing.T) {
	table, costs, fired := standard.Table(), bandwidth{cost.TracedH200()}, map[string]float64{} // look-up only
	for seed := range uint64(2400) {
		c := New(seed)
		m, err := ir.Parse("case.ir", c.Text)
		if err != nil {
			t.Fatal(err)
		}
		p, err := table.Parse(fmt.Sprintf("simplify-collectives{keep-distance=3,reassociate=%v,reduce-in-narrow=true,split-all-reduce=%v,split-bytes=0}", seed%3 > 0, seed%2 > 0))
		if err != nil {
			t.Fatal(err)
		}
		rep, err := (&passes.Manager{Costs: costs}).Run(m, p)
		if err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		for _, v := range rep.Steps[0].Stats {
			fired[v.Name] += v.Value
		}
	}
	for _, r := range simplify.Rules() {
		t.Logf("%-26s %4.0f", r.Name, fired[r.Name])
		if fired[r.Name] == 0 {
			t.Errorf("rule %s never fired", r.Name)
		}
	}
}

// Collectives are cut into chunks with the products around them, and what comes out is proved.
func TestChunks(t *testing.T) {
	table, cut := standard.Table(), 0.0
	p, err := table.Parse("fuse-collectives{chunks=2},fuse-collectives{chunks=3}")
	if err != nil {
		t.Fatal(err)
	}
	for seed := range uint64(300) {
		m, err := ir.Parse("case.ir", New(seed).Text)
		if err != nil {
			t.Fatal(err)
		}
		rep, err := (&passes.Manager{Verify: passes.VerifyEach, Validate: passes.ValidateAlways}).Run(m, p)
		if err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		cut += rep.Steps[0].Stat("collectives")
	}
	if t.Logf("%.0f collectives were cut", cut); cut < 20 {
		t.Errorf("%.0f collectives were cut", cut)
	}
}
