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

func parsed(t *testing.T, text string) *ir.Module {
	t.Helper()
	m, err := ir.Parse("t.ir", text)
	if err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	return m
}
