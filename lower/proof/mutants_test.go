package proof_test

import (
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/seed-ee968945/concert/internal/golden/gen"
	"github.com/seed-ee968945/concert/ir"
	"github.com/seed-ee968945/concert/lower"
	"github.com/seed-ee968945/concert/lower/proof"
	"github.com/seed-ee968945/concert/passes"
	"github.com/seed-ee968945/concert/passes/standard"
	"github.com/seed-ee968945/concert/program"
	"github.com/seed-ee968945/concert/program/progtest"
)

// subject is a program that mutants are made of.
type subject struct {
	name string
	f    *ir.Func
	p    *program.Program
}

// score counts mutants of one kind.
type score struct {
	made, refused, harmful, proof, checker, alarms, equivalent int
}

// mutants scores mutants by mutation, and lists those that were refused without harm, and those
// that do the same as their subject.
type mutants struct {
	*testing.T
	scores             []score
	alarms, equivalent []string
}

// original is a subject that has run.
type original struct {
	subject
	inputs progtest.Inputs
	result *progtest.Outcome
}

func (x *mutants) add(s *original, r *rand.Rand) {
	var at []int
	for i := range s.p.Instrs {
		if computes(&s.p.Instrs[i]) {
			at = append(at, i)
		}
	}
	for k, m := range mutations {
		for range 3 {
			q := cloned(s.p)
			i := at[r.IntN(len(at))]
			if m.apply(r, q, i) {
				x.judge(&x.scores[k], s, q, fmt.Sprintf("%s: %s of %s", s.name, m.name, s.p.AppendInstr(nil, &s.p.Instrs[i])))
			}
		}
	}
}

// judge scores mutant q of s.
func (x *mutants) judge(c *score, s *original, q *program.Program, what string) {
	x.Helper()
	c.made++
	if q.Validate() != nil {
		c.refused++
		return
	}
	unproved := proof.Check(s.f, q)
	got, err := progtest.Run(q, s.inputs, progtest.Schedule{}, 1)
	harm := err != nil || got.Digest != s.result.Digest || !slices.EqualFunc(orders(q, got), orders(s.p, s.result), slices.Equal)
	rep, cerr := program.CheckWith(q, lower.CheckOptions())
	unsafe := cerr != nil || rep.Err() != nil
	switch {
	case harm && unproved != nil:
		c.harmful++
		c.proof++
	case harm && unsafe:
		c.harmful++
		c.checker++
	case harm:
		c.harmful++
		x.Errorf("%s passes, and goes wrong: %v", what, err)
	case unproved != nil:
		c.alarms++
		x.alarms = append(x.alarms, what+": "+strings.SplitN(unproved.Error(), "\n", 2)[0])
	case q.Digest() != s.p.Digest():
		c.equivalent++
		x.equivalent = append(x.equivalent, what)
	}
}

// report logs the scores and gives their sum.
func (x *mutants) report() (sum score) {
	x.Helper()
	for k, c := range x.scores {
		x.Logf("%-36s %4d made, %4d malformed, %4d harmful, %4d unproved, %3d races, %3d unproved without harm, %3d equivalent", mutations[k].name, c.made, c.refused, c.harmful, c.proof, c.checker, c.alarms, c.equivalent)
		sum.made, sum.refused, sum.harmful = sum.made+c.made, sum.refused+c.refused, sum.harmful+c.harmful
		sum.proof, sum.checker, sum.alarms = sum.proof+c.proof, sum.checker+c.checker, sum.alarms+c.alarms
		sum.equivalent += c.equivalent
	}
	x.Logf("all: %+v", sum)
	for _, e := range x.alarms {
		x.Log("unproved without harm: ", e)
	}
	for _, e := range x.equivalent {
		x.Log("equivalent: ", e)
	}
	return sum
}

// Every mutant of a program that gives other bytes, takes part in other communication or fails
// is refused: by the proof, or by the checker of programs where only one of several
// schedules goes wrong.
func TestMutants(t *testing.T) {
	x := &mutants{T: t, scores: make([]score, len(mutations))}
	ran := 0
	for n, s := range subjects(t) {
		o := &original{subject: s}
		var err error
		if o.inputs, err = progtest.RandomInputs(s.p, uint64(n)); err != nil {
			t.Fatal(err)
		}
		if o.result, err = progtest.Run(s.p, o.inputs, progtest.Schedule{}, 1); err != nil {
			t.Logf("%s: %v", s.name, err) // random numbers, which the simulator has not
			continue
		}
		ran++
		x.add(o, rand.New(rand.NewPCG(uint64(n), 11)))
	}
	sum := x.report()
	if ran < 50 && !testing.Short() {
		t.Errorf("only %d programs ran", ran)
	}
	if sum.harmful < 200 {
		t.Errorf("only %d mutants do harm", sum.harmful)
	}
}

// orders is what ran in each group, in order.
func orders(p *program.Program, o *progtest.Outcome) [][]string {
	out := make([][]string, len(o.Orders))
	for g, list := range o.Orders {
		for _, i := range list {
			member, _, _ := strings.Cut(p.Instrs[i].Node, "_flat") // members of a bucket have no order
			out[g] = append(out[g], p.Instrs[i].Op+" "+member)
		}
	}
	return out
}

func cloned(p *program.Program) *program.Program {
	q := *p
	q.Instrs = slices.Clone(p.Instrs)
	q.Kernels = slices.Clone(p.Kernels)
	for i := range q.Instrs {
		q.Instrs[i].Ins, q.Instrs[i].Outs = slices.Clone(q.Instrs[i].Ins), slices.Clone(q.Instrs[i].Outs)
	}
	return &q
}

// subjects are programs of random functions and of traced graphs.
func subjects(t *testing.T) []subject {
	t.Helper()
	var out []subject
	seeds := uint64(120)
	if testing.Short() {
		seeds = 30
	}
	for seed := range seeds {
		m, err := gen.Module(seed, gen.Config{Nodes: 25, World: 2, Effects: seed%2 == 1, Units: seed%3 == 0, Flights: seed%4 == 1, Alike: seed%5 == 0, Kinds: seed%10 == 0})
		if err != nil {
			t.Fatal(err)
		}
		pipeline := pipelines[seed%uint64(len(pipelines))]
		o := lower.Options{Kernels: seed%2 == 0}
		if seed%5 == 0 {
			pipeline, o = "", lower.Options{}
		}
		if pipeline != "" {
			p, err := standard.Table().Parse(pipeline)
			if err != nil {
				t.Fatal(err)
			}
			r := passes.Manager{}
			if _, err := r.Run(m, p); err != nil {
				t.Fatal(err)
			}
		}
		f := m.Funcs()[0]
		if p, err := lower.FuncWith(f, o); err == nil && len(p.Outputs) > 0 {
			out = append(out, subject{fmt.Sprintf("seed %d", seed), f, p})
		}
	}
	for _, name := range []string{"tiny_fsdp2.fw", "tiny_tpsp2.fw", "tiny_moe2.fw"} {
		f := scheduled(t, filepath.Join("../../testdata/graphs", name+".graph.json.gz"), "cuda")
		p, err := lower.FuncWith(f, lower.Options{Kernels: true})
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, subject{name, f, p})
	}
	return out
}
