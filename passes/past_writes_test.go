package passes_test

import (
	"errors"
	"testing"

	"github.com/seed-ee968945/concert/equiv"
	"github.com/seed-ee968945/concert/internal/diag"
	"github.com/seed-ee968945/concert/ir"
	"github.com/seed-ee968945/concert/passes"
	"github.com/seed-ee968945/concert/passes/passtest"
)

// pastWrites are programs in which a rule that looks past in-place writes, named by its
// statistic, gives wrong numbers.
var pastWrites = []struct{ rule, pass, text string }{
	{"pointwise-before-gather", "simplify-collectives", `func @f(%x: f32[4]) -> (f32[4]) {
  %c = all_gather %x on @g {dim=0} : async f32[8]
  %w = wait_tensor %c : f32[8]
  %y = relu %w : f32[8]
  call %y {class="memory", effects=["writes"], target="inc"}
  %s = shard %y on @g {dim=0} : f32[4]
  return %s
}`},
	{"shard-of-gather", "simplify-collectives", `func @f(%x: f32[4]) -> (f32[4]) {
  %r = relu %x : f32[4]
  %c = all_gather %r on @g {dim=0} : async f32[8]
  %w = wait_tensor %c : f32[8]
  call %w {class="memory", effects=["writes"], target="inc"}
  %s = shard %w on @g {dim=0} : f32[4]
  return %s
}`},
	{"shard-of-constant", "simplify-collectives", `func @f() -> (f32[4]) {
  %z = full {value=0.0} : f32[8]
  call %z {class="memory", effects=["writes"], target="inc"}
  %s = shard %z on @g {dim=0} : f32[4]
  return %s
}`},
	{"gather-of-shard", "simplify-collectives{shard-before-pointwise=false}", `func @f(%x: f32[8]) -> (f32[8]) {
  %a = all_reduce.sum %x on @g : async f32[8]
  %b = wait_tensor %a : f32[8]
  %n = neg %b : f32[8]
  %s = shard %n on @g {dim=0} : f32[4]
  call %s {class="memory", effects=["writes"], target="inc"}
  %c = all_gather %s on @g {dim=0} : async f32[8]
  %w = wait_tensor %c : f32[8]
  return %w
}`},
	{"own-slice", "simplify-collectives", `func @f(%t: f32[4,2]) -> (f32[2,2]) {
  %i = iota : i64[4]
  %s = shard %i on @g {dim=0} : i64[2]
  call %s {class="memory", effects=["writes"], target="flip"}
  %e = index %t, %s {dims=[0]} : f32[2,2]
  return %e
}`},
	{"combine-before-reduce", "simplify-collectives", `func @f(%v: f32[1,64], %i: i64[1]) -> (f32[128,64]) {
  %z = full {value=0.0} : f32[256,64]
  call %z {class="memory", effects=["writes"], target="inc"}
  %p = index_put %z, %v, %i {accumulate=true, dims=[0]} : f32[256,64]
  %c = reduce_scatter.sum %p on @g {dim=0} : async f32[128,64]
  %w = wait_tensor %c : f32[128,64]
  return %w
}`},
	{"scatter-add-before-reduce", "simplify-collectives{combine-before-reduce=false}", `func @f(%v: i32[1,64], %i: i64[1]) -> (i32[128,64]) {
  %z = full {value=0.0} : i32[256,64]
  call %z {class="memory", effects=["writes"], target="inc"}
  %p = index_put %z, %v, %i {accumulate=true, dims=[0]} : i32[256,64]
  %c = reduce_scatter.sum %p on @g {dim=0} : async i32[128,64]
  %w = wait_tensor %c : i32[128,64]
  return %w
}`},
	{"copied", "fuse", `func @f(%x: f32[8]) -> (f32[8], f32[8]) {
  %z = full {value=0.0} : f32[8]
  %a = add %z, %x : f32[8]
  call %z {class="memory", effects=["writes"], target="inc"}
  %y = neg %z : f32[8]
  return %y, %a
}`},
	{"copied", "fuse", `func @f(%x: f32[8]) -> (f64[8], f64[8]) {
  %h = relu %x : f32[8]
  %c = convert %h : f64[8]
  %a = add %c, %c : f64[8]
  call %h {class="memory", effects=["writes"], target="inc"}
  %b = mul %c, %c : f64[8]
  return %a, %b
}`},
	{"copied", "fuse", `func @f(%x: f32[8]) -> (f64[8], f64[8]) {
  %c = convert %x : f64[8]
  %a = neg %c : f64[8]
  call %c {class="memory", effects=["writes"], target="inc"}
  %b = mul %c, %c : f64[8]
  return %a, %b
}`},
}

// Rules that look past writes are caught by the verifier or by the proof, on programs in
// which they change the numbers; the rules of today keep them.
func TestPastWrites(t *testing.T) {
	table, err := passes.Standard().Extend(passes.PastWrites(), nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range pastWrites {
		t.Run(c.rule, func(t *testing.T) {
			before, err := ir.Parse(c.rule, "world 2\ngroup @g = [[0, 1]]\n"+c.text)
			if err != nil {
				t.Fatal(err)
			}
			run := func(pass string, g passes.Manager) (*ir.Module, *passes.Report, error) {
				p, err := table.Parse(pass)
				if err != nil {
					t.Fatal(err)
				}
				g.Costs = bandwidth{}
				m := before.Clone()
				rep, err := g.Run(m, p)
				return m, rep, err
			}
			sound, _, err := run(c.pass, passes.Manager{Validate: passes.ValidateAlways})
			if err == nil {
				err = passtest.SameResults(before, sound, 1, 0)
			}
			if err != nil {
				t.Fatalf("the rules of today: %v", err)
			}
			broken, rep, err := run("past-"+c.pass, passes.Manager{Verify: passes.VerifyEnd})
			if illegal := (*diag.Error)(nil); errors.As(err, &illegal) {
				t.Logf("refused by the verifier: %v", illegal)
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if rep.Steps[0].Stat(c.rule) == 0 {
				t.Fatalf("the rule did nothing:\n%s", broken)
			}
			if passtest.SameResults(before, broken, 1, 0) == nil {
				t.Fatalf("the numbers are the same:\n%s", broken)
			}
			var unproved *equiv.Error
			if _, _, err = run("past-"+c.pass, passes.Manager{Validate: passes.ValidateAlways}); !errors.As(err, &unproved) {
				t.Fatalf("%v: not caught\n%s", err, broken)
			}
			t.Logf("not proved: %v", unproved.Findings[0])
		})
	}
}
