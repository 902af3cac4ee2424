package pipelinecollectives_test

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/seed-ee968945/concert/ir"
	"github.com/seed-ee968945/concert/lower"
	"github.com/seed-ee968945/concert/lower/proof"
	"github.com/seed-ee968945/concert/passes"
	"github.com/seed-ee968945/concert/passes/passtest"
	"github.com/seed-ee968945/concert/passes/standard"
)

var seeds = flag.Uint64("seeds", 40, "random loops of TestRandomLoops")

// loopGen writes a loop that carries a counter, a value and stacks: results that iterations store in
// rows, add up, or replace.
type loopGen struct {
	r       *rand.Rand
	lines   []string
	h       string   // the value that is carried as y
	weights []string // tables whose rows are gathered
	stacks  []string // types
}

func (g *loopGen) say(format string, args ...any) {
	g.lines = append(g.lines, "  "+fmt.Sprintf(format, args...))
}

func (g *loopGen) ms() string { return []string{"", " ms 1", " ms 3"}[g.r.IntN(3)] }

// gather gathers a row of table k by the counter, or by what is computed from it, and combines it with h.
func (g *loopGen) gather(k int) {
	at := "%at"
	if g.r.IntN(2) == 0 {
		g.say("%%back%d = sub %%zero, %%in : i64[]", k)
		g.say("%%low%d = add %%back%d {scalar=8} : i64[]", k, k)
		g.say("%%at%d = view %%low%d : i64[1]", k, k)
		at = fmt.Sprintf("%%at%d", k)
	}
	g.weights = append(g.weights, fmt.Sprintf("%%w%d", k))
	g.say("%%row%d = index %%w%d, %s {dims=[0]} : f32[1,4]", k, k, at)
	g.say("%%part%d = view %%row%d : f32[4]", k, k)
	part := fmt.Sprintf("%%part%d", k)
	if g.r.IntN(3) == 0 {
		g.say("%%m%d = all_reduce.max %s on @g : async f32[4]%s", k, part, g.ms())
		g.say("%%mw%d = wait_tensor %%m%d : f32[4]", k, k)
		part = fmt.Sprintf("%%mw%d", k)
	}
	g.say("%%c%d = all_gather %s on @g {dim=0} : async f32[8]%s", k, part, g.ms())
	g.say("%%g%d = wait_tensor %%c%d : f32[8]", k, k)
	g.say("%%h%d = maximum %s, %%g%d : f32[8]%s", k, g.h, k, g.ms())
	g.h = fmt.Sprintf("%%h%d", k)
}

// stack reduces h into stack k.
func (g *loopGen) stack(k int) {
	s := fmt.Sprintf("%%s%d", k)
	g.say("%%q%d = mul %s {scalar=0.%d} : f32[8]%s", k, g.h, k+2, g.ms())
	switch g.r.IntN(4) {
	case 0: // summed
		g.stacks = append(g.stacks, "f32[8]")
		g.say("%%d%d = all_reduce.sum %%q%d on @g : async f32[8]%s", k, k, g.ms())
		g.say("%%e%d = wait_tensor %%d%d : f32[8]", k, k)
		g.say("%%t%d = add %s, %%e%d : f32[8]", k, s, k)
	case 1: // the last one's
		g.stacks = append(g.stacks, "f32[4]")
		g.say("%%d%d = reduce_scatter.sum %%q%d on @g {dim=0} : async f32[4]%s", k, k, g.ms())
		g.say("%%t%d = wait_tensor %%d%d : f32[4]", k, k)
	default: // stored
		g.stacks = append(g.stacks, "f32[9,4]")
		g.say("%%d%d = reduce_scatter.sum %%q%d on @g {dim=0} : async f32[4]%s", k, k, g.ms())
		g.say("%%e%d = wait_tensor %%d%d : f32[4]", k, k)
		g.say("%%f%d = view %%e%d : f32[1,4]", k, k)
		g.say("%%t%d = index_put %s, %%f%d, %%at {dims=[0]} : f32[9,4]", k, s, k)
		if g.r.IntN(4) == 0 { // and read by who comes next
			g.say("%%last%d = select %s {dim=0, index=%d} : f32[4]", k, s, g.r.IntN(9))
			g.say("%%two%d = cat %%last%d, %%last%d {dim=0} : f32[8]", k, k, k)
			g.say("%%u%d = maximum %s, %%two%d : f32[8]", k, g.h, k)
			g.h = fmt.Sprintf("%%u%d", k)
		}
	}
}

// module is the text of a module that runs the body, from begin on, that often.
func (g *loopGen) module(begin, trips int) string {
	inputs, types, args := []string{"%i: i64[]", "%y: f32[8]"}, []string{"i64[]", "f32[8]"}, []string{"%begin", "%x"}
	main := []string{"%x: f32[8]"}
	rets := []string{"%next", g.h}
	for k, t := range g.stacks {
		donate := ""
		if g.r.IntN(2) == 0 {
			donate = fmt.Sprintf(" {donate=%d}", k+2)
		}
		inputs, types = append(inputs, fmt.Sprintf("%%s%d: %s%s", k, t, donate)), append(types, t)
		args, main = append(args, fmt.Sprintf("%%s%d", k)), append(main, fmt.Sprintf("%%s%d: %s", k, t))
		rets = append(rets, fmt.Sprintf("%%t%d", k))
	}
	var outs []string
	for k := range types {
		outs = append(outs, fmt.Sprintf("%%r#%d", k))
	}
	for _, w := range g.weights {
		main, inputs = append(main, w+": f32[9,4]"), append(inputs, w+": f32[9,4]")
	}
	list := func(s []string) string { return strings.Join(s, ", ") }
	plain := strings.NewReplacer(" {donate=2}", "", " {donate=3}", "", " {donate=4}", "").Replace(list(inputs))
	return fmt.Sprintf(`world 2
group @g = [[0, 1]]
func @main(%s) -> (%s) {
  %%begin = full {value=%d} : i64[]
  %%r:%d = while %s {body="round", cond="more", trips=%d, uniform=true} : %s
  return %s
}
func @more(%s) -> (bool[]) {
  %%lt = lt %%i {scalar=%d} : bool[]
  return %%lt
}
func @round(%s) -> (%s) {
%s
  return %s
}
`, list(main), list(types), begin, len(types), list(append(args, g.weights...)), trips, list(types), list(outs),
		plain, begin+trips, list(inputs), list(types), strings.Join(g.lines, "\n"), list(rets))
}

// randomLoop is a loop of two to five rounds: rows of tables are gathered by the counter, or by
// what is computed from it, chains of them, too; values are reduced and stored in rows or added up, and
// some are only read an iteration later, so that they may not move.
func randomLoop(r *rand.Rand) string {
	g := &loopGen{r: r, h: "%y"}
	trips, begin := 2+r.IntN(4), r.IntN(3)
	g.say("%%zero = full {value=0} : i64[]")
	g.say("%%in = clamp %%i {max=8, min=0} : i64[]")
	g.say("%%at = view %%in : i64[1]")
	g.say("%%next = add %%i {scalar=1} : i64[]")
	for k := range 1 + r.IntN(3) {
		g.gather(k)
	}
	for k := range 1 + r.IntN(3) {
		g.stack(k)
	}
	return g.module(begin, trips)
}

// Whatever can move keeps bits on all ranks, is proved, twice the same, and lowered right.
func TestRandomLoops(t *testing.T) {
	moved := map[string]float64{}
	for seed := range *seeds {
		text := randomLoop(rand.New(rand.NewPCG(seed, 3)))
		before, err := ir.Parse("random.ir", text)
		if err == nil {
			err = before.Verify()
		}
		if err != nil {
			t.Fatalf("%v\n%s", err, text)
		}
		for _, pipeline := range []string{"pipeline-collectives{when=always}", "pipeline-collectives{percent=300,min-gain=0},overlap,reuse-buffers,plan-memory"} {
			p, err := standard.Table().Parse(pipeline)
			if err != nil {
				t.Fatal(err)
			}
			after := before.Clone()
			g := passes.Manager{Validate: passes.ValidateAlways, Repeat: true}
			rep, err := g.Run(after, p)
			if err != nil {
				t.Fatalf("seed %d, %s: %v\n%s", seed, pipeline, err, text)
			}
			for _, s := range []string{"ahead", "behind", "stay"} {
				moved[s] += rep.Steps[0].Stat(s)
			}
			if err := passtest.SameResults(before, after, seed, 0); err != nil {
				t.Fatalf("seed %d, %s: %v\nbefore:\n%s\nafter:\n%s", seed, pipeline, err, text, after)
			}
			prog, err := lower.Func(after.Funcs()[0])
			if err == nil {
				err = proof.Check(after.Funcs()[0], prog)
			}
			if err != nil {
				t.Fatalf("seed %d, %s: %v\n%s", seed, pipeline, err, after)
			}
		}
	}
	t.Log(moved)
	if moved["ahead"] < float64(*seeds) || moved["behind"] < float64(*seeds) {
		t.Errorf("of %d loops: %v", *seeds, moved)
	}
}
