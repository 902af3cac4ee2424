package equiv_test

import (
	"strings"
	"testing"

	"github.com/seed-ee968945/concert/equiv"
	"github.com/seed-ee968945/concert/ir"
)

// TestStageAlone changes a stage: what it sends and the order of its transfers are kept, and what
// it receives is not what it brings.
func TestStageAlone(t *testing.T) {
	const text = `world 4
group @pp = [[0, 2], [1, 3]]
group @up = [[0, 2], [1, 3]]
group @down = [[0, 2], [1, 3]]
group @tp = [[2, 3]]
stages @step on @pp = @first, @second

func @first(%x: f32[4], %y: f32[4]) -> (f32[4]) {
  %z = full {value=0} : f32[4]
  %a = add %x, %y : f32[4]
  %s = collective_permute %a on @up {pairs=[0, 1]} : async f32[4]
  %sw = wait_tensor %s : f32[4]
  %u = collective_permute %x on @up {pairs=[0, 1]} : async f32[4]
  %uw = wait_tensor %u : f32[4]
  %r = collective_permute %z on @down {pairs=[1, 0]} : async f32[4]
  %rw = wait_tensor %r : f32[4]
  %q = collective_permute %z on @down {pairs=[1, 0]} : async f32[4]
  %qw = wait_tensor %q : f32[4]
  return %rw
}

func @second(%z: f32[4]) -> () {
  %s = collective_permute %z on @up {pairs=[0, 1]} : async f32[4]
  %sw = wait_tensor %s : f32[4]
  %u = collective_permute %z on @up {pairs=[0, 1]} : async f32[4]
  %uw = wait_tensor %u : f32[4]
  %g = all_gather %uw on @tp {dim=0} : async f32[8]
  %gw = wait_tensor %g : f32[8]
  %h = slice %gw {dim=0, end=4, start=0} : f32[4]
  %m = add %sw, %h : f32[4]
  %r = collective_permute %m on @down {pairs=[1, 0]} : async f32[4]
  %rw = wait_tensor %r : f32[4]
  %q = collective_permute %sw on @down {pairs=[1, 0]} : async f32[4]
  %qw = wait_tensor %q : f32[4]
  return
}
`
	before := parsed(t, text)
	for _, c := range []struct{ name, was, is, want string }{
		{"nothing", "", "", ""},
		{"a copy", "%a = add %x, %y", "%c = clone %x : f32[4]\n  %a = add %c, %y", ""},
		{"another tensor for a receive", "permute %z on @down", "permute %x on @down", ""},
		{"zeros for what is received", "return %rw", "return %z", "result 0"},
		{"the second receive for the first", "return %rw", "return %qw", "result 0"},
		{"another tensor sent", "permute %a on", "permute %y on", "operand 0 of %s"},
		{"a piece of another rank sent", "{dim=0, end=4, start=0} : f32[4]", "{dim=0, end=8, start=4} : f32[4]", "operand 0 of %r"},
		{"sends exchanged", "permute %a on @up {pairs=[0, 1]} : async f32[4]\n  %sw = wait_tensor %s : f32[4]\n  %u = collective_permute %x on", "permute %x on @up {pairs=[0, 1]} : async f32[4]\n  %sw = wait_tensor %s : f32[4]\n  %u = collective_permute %a on", "operand 0 of %s"},
	} {
		after := parsed(t, strings.Replace(text, c.was, c.is, 1))
		all := ""
		for _, f := range before.Funcs() {
			if _, err := equiv.Check(f, after.Func(f.Name), equiv.Options{}); err != nil {
				all += err.Error()
			}
		}
		if c.want == "" && all != "" || !strings.Contains(all, c.want) {
			t.Errorf("%s: got %q, want %q", c.name, all, c.want)
		}
	}
	// A send that is gone is gone from both stages, or the module is none.
	after := parsed(t, strings.ReplaceAll(strings.ReplaceAll(text, "  %u = collective_permute %x on @up {pairs=[0, 1]} : async f32[4]\n  %uw = wait_tensor %u : f32[4]\n", ""),
		"  %u = collective_permute %z on @up {pairs=[0, 1]} : async f32[4]\n  %uw = wait_tensor %u : f32[4]\n  %g = all_gather %uw", "  %g = all_gather %sw"))
	if _, err := equiv.Check(before.Func("first"), after.Func("first"), equiv.Options{}); err == nil || !strings.Contains(err.Error(), "what stages bring to the collectives of @up is kept") {
		t.Errorf("a send that is gone: %v", err)
	}
}

// TestStagesTogether holds stages of two micro-batches against the step of one.
func TestStagesTogether(t *testing.T) {
	const step = `world 2
func @step(%x: f32[2,4] !{role="data"}, %w: f32[4]) -> (f32[4]) {
  %p = mul %x, %w : f32[2,4]
  %r = sum %p {dims=[0]} : f32[4]
  return %r
}
`
	const stages = `world 4
group @pp = [[0, 2], [1, 3]]
group @up = [[0, 2], [1, 3]]
stages @step on @pp = @first, @second

func @first(%x: f32[4,4] !{role="data"}, %w: f32[4]) -> () {
  %x0 = slice %x {dim=0, end=2, start=0} : f32[2,4]
  %p0 = mul %x0, %w : f32[2,4]
  %s0 = collective_permute %p0 on @up {pairs=[0, 1]} : async f32[2,4]
  %w0 = wait_tensor %s0 : f32[2,4]
  %x1 = slice %x {dim=0, end=4, start=2} : f32[2,4]
  %p1 = mul %x1, %w : f32[2,4]
  %s1 = collective_permute %p1 on @up {pairs=[0, 1]} : async f32[2,4]
  %w1 = wait_tensor %s1 : f32[2,4]
  return
}

func @second(%w: f32[4]) -> (f32[4]) {
  %z = full {value=0} : f32[2,4]
  %s0 = collective_permute %z on @up {pairs=[0, 1]} : async f32[2,4]
  %w0 = wait_tensor %s0 : f32[2,4]
  %r0 = sum %w0 {dims=[0]} : f32[4]
  %s1 = collective_permute %z on @up {pairs=[0, 1]} : async f32[2,4]
  %w1 = wait_tensor %s1 : f32[2,4]
  %r1 = sum %w1 {dims=[0]} : f32[4]
  %c = add %r0, %r1 : f32[4]
  %m = mul %c {scalar=0.5} : f32[4]
  return %m
}
`
	const alone = `world 4
group @pp = [[0, 2], [1, 3]]
stages @step on @pp = @first, @second
func @first(%x: f32[0,4] !{role="data"}) -> (f32[4]) {
  %r = sum %x {dims=[0]} : f32[4]
  return %r
}
func @second() -> () {
  return
}
`
	replaced := func(text string, pairs ...string) string { return strings.NewReplacer(pairs...).Replace(text) }
	for _, c := range []struct{ name, step, stages, want string }{
		{"as they are", step, stages, ""},
		{"the first twice", step, replaced(stages, "sum %w1", "sum %w0"), "result 0 of @second"},
		{"no scale", step, replaced(stages, "return %m", "return %c"), "result 0 of @second"},
		{"rows of the first twice", step, replaced(stages, "end=4, start=2", "end=2, start=0"), "result 0 of @second"},
		{"what the receiver brings", step, replaced(stages, "sum %w1", "sum %z"), "result 0 of @second"},
		{"draws, which are new in each micro-batch", replaced(step, "%p = mul %x, %w", "%e = rand : f32[4]\n  %p = mul %x, %e"),
			replaced(stages, "%x0 = ", "%e = rand : f32[4]\n  %x0 = ", "%x0, %w", "%x0, %e", "%x1, %w", "%x1, %e"), "a step that is repeated for each micro-batch has none"},
		{"data of no rows", replaced(step, "  %p = mul %x, %w : f32[2,4]\n", "", "%p", "%x"), alone, "want the rows of all micro-batches"},
		{"data that no stage takes", replaced(step, ", %w:", ", %n: f32[] !{role=\"data\"}, %w:", "mul %x, %w", "mul %x, %n"), stages, "result 0 of @second"},
		{"a result in flight", replaced(step, "func", "group @all = [[0, 1]]\n\nfunc", "(f32[4])", "(async(f32[4], f32[4]), f32[4])", "return %r", "%a = all_reduce %r, %w on @all {reduce=\"sum\"} : async(f32[4], f32[4])\n  return %a, %r"),
			replaced(stages, "return %m", "return %m !{places=[2]}"), "@step returns %a in flight"},
		{"an index among stages", step, replaced(stages, "%c = ", "%q = shard %w on @up {dim=0} : f32[2]\n  %c = "), "%q depends on a rank's index among ranks of other stages in @up"},
	} {
		m := parsed(t, c.stages)
		_, err := equiv.CheckStages(parsed(t, c.step).Func("step"), m, m.Stages()[0], equiv.Options{})
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: got %v, want %q", c.name, err, c.want)
		}
	}
}

func parsed(t *testing.T, text string) *ir.Module {
	t.Helper()
	m, err := ir.Parse("t.ir", text)
	if err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	return m
}
