package passes_test

import (
	"strings"
	"testing"

	"github.com/seed-ee968945/concert/ir"
	"github.com/seed-ee968945/concert/passes"
)

const two = `world 2
group @g = [[0, 1]]

func @f(%a: f32[4], %b: f32[4]) -> (f32[4], f32[4], f32[4]) {
  %x = neg %a : f32[4] ms 1
  %r1 = all_reduce.sum %a on @g : async f32[4] ms 1
  %r2 = all_reduce.sum %b on @g : async f32[4] ms 1
  %w1 = wait_tensor %r1 : f32[4]
  %w2 = wait_tensor %r2 : f32[4]
  return %x, %w1, %w2
}
`

const bucketed = `world 2
group @g = [[0, 1]]

func @f(%a: f32[4], %b: f32[4]) -> (f32[4], f32[4], f32[4]) {
  %k = all_reduce.sum %a, %b on @g : async(f32[4], f32[4]) ms 1 !{members=["r1", "r2"]}
  %x = neg %a : f32[4] ms 1
  %kw:2 = wait_tensor %k : f32[4], f32[4]
  %w1 = alias %kw#0 : f32[4]
  %w2 = alias %kw#1 : f32[4]
  return %x, %w1, %w2
}
`

func TestCheckOrderOnly(t *testing.T) {
	before := parse(t, two)
	for _, c := range []struct{ name, after, want string }{
		{"same", two, ""},
		{"bucket", bucketed, ""},
		{"members swapped", strings.Replace(bucketed, `"r1", "r2"`, `"r2", "r1"`, 1), "%r1 reads %a, in %k it reads %b"},
		{"waits swapped", strings.NewReplacer("%w1 = alias %kw#0", "%w1 = alias %kw#1", "%w2 = alias %kw#1", "%w2 = alias %kw#0").Replace(bucketed), "%w1 is not the alias of its place"},
		{"a member twice", strings.Replace(bucketed, `"r1", "r2"`, `"r1", "r1"`, 1), "%r1 is a member of two buckets"},
		{"a name too many", strings.Replace(bucketed, `"r1", "r2"`, `"r1", "r2", "r3"`, 1), "names 3 members for 2 operands"},
		{"another reduction", strings.Replace(bucketed, "all_reduce.sum", "all_reduce.max", 1), "%r1 is in bucket %k, which is another operation"},
		{"a node gone", strings.NewReplacer("  %x = neg %a : f32[4] ms 1\n", "", "return %x", "return %a").Replace(two), "%x is gone"},
		{"a node new", strings.Replace(two, "  %r1", "  %z = neg %a : f32[4]\n  %r1", 1), "%z is new"},
		{"rewired", strings.Replace(two, "neg %a", "neg %b", 1), "%x was rewired to: %x = neg %b"},
		{"another op", strings.Replace(two, "neg %a", "exp %a", 1), "%x became: %x = exp"},
		{"another cost", strings.Replace(two, "neg %a : f32[4] ms 1", "neg %a : f32[4] ms 2", 1), "%x changed its cost"},
		{"outputs swapped", strings.Replace(two, "return %x, %w1", "return %w1, %x", 1), "was rewired"},
	} {
		after, err := ir.Parse(c.name, c.after)
		if err != nil {
			t.Fatal(err)
		}
		err = passes.CheckOrderOnly(before, after)
		if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%s: %v, want %q", c.name, err, c.want)
		}
	}
}

const severalBefore = `world 2
group @g = [[0, 1]]

func @f(%a: f32[4], %b: f32[4], %c: f32[4]) -> (f32[4], f32[4], f32[4]) {
  %r1 = all_to_all %a, %b on @g {in_splits=["1,3", "2,2"], out_splits=["1,3", "2,2"]} : async(f32[4], f32[4]) ms 1
  %r2 = all_to_all %c on @g {in_splits=["3,1"], out_splits=["3,1"]} : async f32[4] ms 1
  %w1:2 = wait_tensor %r1 : f32[4], f32[4]
  %w2 = wait_tensor %r2 : f32[4]
  %x = neg %w1#1 : f32[4] ms 1
  return %w1#0, %x, %w2
}
`

const severalAfter = `world 2
group @g = [[0, 1]]

func @f(%a: f32[4], %b: f32[4], %c: f32[4]) -> (f32[4], f32[4], f32[4]) {
  %k = all_to_all %a, %b, %c on @g {in_splits=["1,3", "2,2", "3,1"], out_splits=["1,3", "2,2", "3,1"]} : async(f32[4], f32[4], f32[4]) ms 1 !{members=["r1", "r1", "r2"]}
  %kw:3 = wait_tensor %k : f32[4], f32[4], f32[4]
  %w2 = alias %kw#2 : f32[4]
  %x = neg %kw#1 : f32[4] ms 1
  return %kw#0, %x, %w2
}
`

// Members with several operands and uneven parts are held to their places.
func TestCheckOrderOnlySeveralOperands(t *testing.T) {
	before := parse(t, severalBefore)
	for _, c := range []struct{ name, old, new, want string }{
		{"joined", "", "", ""},
		{"another part of the bucket read", "neg %kw#1", "neg %kw#0", "%x was rewired"},
		{"another output", "return %kw#0", "return %kw#1", "was rewired"},
		{"operands swapped", "all_to_all %a, %b, %c", "all_to_all %b, %a, %c", "%r1 reads %a"},
		{"splits swapped", `in_splits=["1,3", "2,2", "3,1"]`, `in_splits=["2,2", "1,3", "3,1"]`, "%r1 is in bucket %k, which is another operation"},
		{"another member's splits", `"3,1"], out_splits=["1,3", "2,2", "3,1"]`, `"1,3"], out_splits=["1,3", "2,2", "3,1"]`, "%r2 is in bucket %k, which is another operation"},
		{"a member's operand unnamed", `["r1", "r1", "r2"]`, `["r1", "r2", "r2"]`, "%r2 is a member of two buckets"},
		{"members swapped", `["r1", "r1", "r2"]`, `["r2", "r1", "r1"]`, "%r1"},
	} {
		after, err := ir.Parse(c.name, strings.Replace(severalAfter, c.old, c.new, 1))
		if err != nil {
			t.Fatal(err)
		}
		err = passes.CheckOrderOnly(before, after)
		if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%s: %v, want %q", c.name, err, c.want)
		}
	}
}
