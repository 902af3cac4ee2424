package passes_test

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/seed-ee968945/concert/ir"
	"github.com/seed-ee968945/concert/passes"
	"github.com/seed-ee968945/concert/passes/internal/passestest"
	"github.com/seed-ee968945/concert/passes/passtest"
	"github.com/seed-ee968945/concert/passes/standard"
)

// layersOf is forward and backward of some layers whose weights are sharded, with views made in
// either, and readers more than these two.
func layersOf(t *testing.T, r *rand.Rand) *ir.Module {
	t.Helper()
	n := 2 + r.IntN(5)
	var b strings.Builder
	line := func(format string, args ...any) { fmt.Fprintf(&b, "  "+format+"\n", args...) }
	b.WriteString("world 2\ngroup @g = [[0, 1]]\nfunc @f(%y0: f32[16,16], %d: f32[16,16]")
	for l := range n {
		fmt.Fprintf(&b, ", %%w%d: f32[8,16]", l)
	}
	b.WriteString(") -> (" + strings.Repeat("f32[8,16], ", n-1) + "f32[8,16]) {\n")
	early := make([]bool, n)
	for l := range n {
		line("%%g%d = all_gather %%w%d on @g {dim=0} : async f32[16,16]", l, l)
		line("%%a%d = wait_tensor %%g%d : f32[16,16]", l, l)
		if early[l] = r.IntN(2) == 0; early[l] {
			line("%%t%d = permute %%a%d {dims=[1, 0]} : f32[16,16:1,16]", l, l)
		}
		if r.IntN(4) == 0 {
			line("%%unread%d = sigmoid %%a%d : f32[16,16]", l, l)
		}
		line("%%x%d = matmul %%y%d, %%a%d : f32[16,16]", l, l, l)
		line("%%y%d = sigmoid %%x%d : f32[16,16]", l+1, l)
	}
	d, outs := "d", make([]string, n)
	for l := n - 1; l >= 0; l-- {
		line("%%v%d = permute %%y%d {dims=[1, 0]} : f32[16,16:1,16]", l, l)
		line("%%dw%d = matmul %%v%d, %%%s : f32[16,16]", l, l, d)
		line("%%r%d = reduce_scatter.sum %%dw%d on @g {dim=0} : async f32[8,16]", l, l)
		line("%%o%d = wait_tensor %%r%d : f32[8,16]", l, l)
		if !early[l] {
			line("%%t%d = permute %%a%d {dims=[1, 0]} : f32[16,16:1,16]", l, l)
		}
		line("%%e%d = matmul %%%s, %%t%d : f32[16,16]", l, d, l)
		d, outs[l] = fmt.Sprint("e", l), fmt.Sprintf("%%o%d", l)
	}
	line("return %s\n}", strings.Join(outs, ", "))
	m, err := ir.Parse("layers.ir", b.String())
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// Under any cap results stay as they are, a weight is gathered at most twice, and the peak is what the pass
// says, which is the cap where gathering again can do it.
func TestRegather(t *testing.T) {
	repeated, within := 0.0, 0
	for seed := range uint64(60) {
		r := rand.New(rand.NewPCG(seed, 3))
		m := layersOf(t, r)
		was := passestest.Evaluate(t, m).Peak
		most := was * int64(60+r.IntN(45)) / 100
		p, err := standard.Table().Parse(fmt.Sprintf("regather{cap=%d}", most))
		if err != nil {
			t.Fatal(err)
		}
		after := m.Clone()
		report, err := (&passes.Manager{Validate: passes.ValidateAlways, Repeat: true}).Run(after, p)
		if err == nil {
			err = passtest.SameResults(m, after, seed, 0)
		}
		if err != nil {
			t.Fatalf("seed %d: %v\nbefore:\n%s\nafter:\n%s", seed, err, m, after)
		}
		gathers := map[string]int{}
		for _, n := range after.Funcs()[0].Order() {
			if n.Op() == ir.OpAllGather {
				gathers[n.Arg(0).Name()]++
			}
		}
		for w, n := range gathers {
			if n > 2 {
				t.Errorf("seed %d: %s is gathered %d times", seed, w, n)
			}
		}
		s := report.Steps[0]
		if now := passestest.Evaluate(t, after).Peak; float64(now) != s.Stat("peak-after-bytes") || was <= most && s.Changed {
			t.Errorf("seed %d: a peak of %d bytes instead of %d, the cap %d, said %.0f", seed, now, was, most, s.Stat("peak-after-bytes"))
		} else if was > most && now <= most {
			within++
		}
		repeated += s.Stat("repeated")
	}
	if repeated < 60 || within < 15 {
		t.Errorf("%.0f gathers are repeated, %d of 60 programs brought under the cap", repeated, within)
	}
	t.Log(repeated, within)
}
