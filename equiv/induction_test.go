package equiv_test

import (
	"strings"
	"testing"

	"github.com/seed-ee968945/concert/equiv"
	"github.com/seed-ee968945/concert/ir"
)

// Loops of more iterations than are read one by one. Each gathers a row, computes with it, and stores
// the reduced sum.
const longLoop = `world 2
group @g = [[0, 1]]
func @f(%x: f32[8], %w: f32[3000,4], %s: f32[3000,4]) -> (f32[8], f32[3000,4]) {
  %zero = full {value=0} : i64[]
  %r:3 = while %zero, %x, %s, %w {body="round", cond="more", trips=3000, uniform=true} : i64[], f32[8], f32[3000,4]
  return %r#1, %r#2
}
func @more(%i: i64[], %y: f32[8], %s: f32[3000,4], %w: f32[3000,4]) -> (bool[]) {
  %c = lt %i {scalar=3000} : bool[]
  return %c
}
func @round(%i: i64[], %y: f32[8], %s: f32[3000,4], %w: f32[3000,4]) -> (i64[], f32[8], f32[3000,4]) {
  %at = view %i : i64[1]
  %row = index %w, %at {dims=[0]} : f32[1,4]
  %part = view %row : f32[4]
  %a = all_gather %part on @g {dim=0} : async f32[8]
  %whole = wait_tensor %a : f32[8]
  %z = mul %y, %whole : f32[8]
  %d = reduce_scatter.sum %z on @g {dim=0} : async f32[4]
  %sum = wait_tensor %d : f32[4]
  %new = view %sum : f32[1,4]
  %t = index_put %s, %new, %at {dims=[0]} : f32[3000,4]
  %j = add %i {scalar=1} : i64[]
  return %j, %z, %t
}
`

// aheadLoop gathers an iteration ahead.
const aheadLoop = `world 2
group @g = [[0, 1]]
func @f(%x: f32[8], %w: f32[3000,4], %s: f32[3000,4]) -> (f32[8], f32[3000,4]) {
  %zero = full {value=0} : i64[]
  %row0 = slice %w {dim=0, end=1, start=0} : f32[1,4]
  %part0 = view %row0 : f32[4]
  %a0 = all_gather %part0 on @g {dim=0} : async f32[8]
  %whole0 = wait_tensor %a0 : f32[8]
  %r:4 = while %zero, %x, %s, %whole0, %w {body="ahead", cond="more", trips=2999, uniform=true} : i64[], f32[8], f32[3000,4], f32[8]
  %z = mul %r#1, %r#3 : f32[8]
  %d = reduce_scatter.sum %z on @g {dim=0} : async f32[4]
  %sum = wait_tensor %d : f32[4]
  %new = view %sum : f32[1,4]
  %t = slice_scatter %r#2, %new {dim=0, end=3000, start=2999} : f32[3000,4]
  return %z, %t
}
func @more(%i: i64[], %y: f32[8], %s: f32[3000,4], %c: f32[8], %w: f32[3000,4]) -> (bool[]) {
  %j = add %i {scalar=1} : i64[]
  %c2 = lt %j {scalar=3000} : bool[]
  return %c2
}
func @ahead(%i: i64[], %y: f32[8], %s: f32[3000,4], %c: f32[8], %w: f32[3000,4]) -> (i64[], f32[8], f32[3000,4], f32[8]) {
  %j = add %i {scalar=1} : i64[]
  %soon = view %j : i64[1]
  %row = index %w, %soon {dims=[0]} : f32[1,4]
  %part = view %row : f32[4]
  %a = all_gather %part on @g {dim=0} : async f32[8]
  %z = mul %y, %c : f32[8]
  %d = reduce_scatter.sum %z on @g {dim=0} : async f32[4]
  %sum = wait_tensor %d : f32[4]
  %new = view %sum : f32[1,4]
  %at = view %i : i64[1]
  %t = index_put %s, %new, %at {dims=[0]} : f32[3000,4]
  %whole = wait_tensor %a : f32[8]
  return %j, %z, %t, %whole
}
`

// behindLoop reduces and stores an iteration behind.
const behindLoop = `world 2
group @g = [[0, 1]]
func @f(%x: f32[8], %w: f32[3000,4], %s: f32[3000,4]) -> (f32[8], f32[3000,4]) {
  %one = full {value=1} : i64[]
  %at0 = full {value=0} : i64[1]
  %row0 = slice %w {dim=0, end=1, start=0} : f32[1,4]
  %part0 = view %row0 : f32[4]
  %a0 = all_gather %part0 on @g {dim=0} : async f32[8]
  %whole0 = wait_tensor %a0 : f32[8]
  %z0 = mul %x, %whole0 : f32[8]
  %r:5 = while %one, %z0, %s, %z0, %at0, %w {body="behind", cond="more", trips=2999, uniform=true} : i64[], f32[8], f32[3000,4], f32[8], i64[1]
  %d = reduce_scatter.sum %r#3 on @g {dim=0} : async f32[4]
  %sum = wait_tensor %d : f32[4]
  %new = view %sum : f32[1,4]
  %t = slice_scatter %r#2, %new {dim=0, end=3000, start=2999} : f32[3000,4]
  return %r#1, %t
}
func @more(%i: i64[], %y: f32[8], %s: f32[3000,4], %left: f32[8], %was: i64[1], %w: f32[3000,4]) -> (bool[]) {
  %c = lt %i {scalar=3000} : bool[]
  return %c
}
func @behind(%i: i64[], %y: f32[8], %s: f32[3000,4], %left: f32[8], %was: i64[1], %w: f32[3000,4]) -> (i64[], f32[8], f32[3000,4], f32[8], i64[1]) {
  %d = reduce_scatter.sum %left on @g {dim=0} : async f32[4]
  %at = view %i : i64[1]
  %row = index %w, %at {dims=[0]} : f32[1,4]
  %part = view %row : f32[4]
  %a = all_gather %part on @g {dim=0} : async f32[8]
  %whole = wait_tensor %a : f32[8]
  %z = mul %y, %whole : f32[8]
  %j = add %i {scalar=1} : i64[]
  %sum = wait_tensor %d : f32[4]
  %new = view %sum : f32[1,4]
  %t = index_put %s, %new, %was {dims=[0]} : f32[3000,4]
  %k = clone %z : f32[8]
  %l = clone %at : i64[1]
  return %j, %z, %t, %k, %l
}
`

// A loop of thousands of iterations is proved equal to one that starts or ends collectives an iteration away,
// and not to one that does so wrong.
func TestLoopsByInduction(t *testing.T) {
	p := equiv.NewProver(2, equiv.Options{})
	plain := p.Read(parsedLoop(t, longLoop))
	for _, c := range []struct {
		name, text, from, to string
		equal                bool
	}{
		{"itself", longLoop, "", "", true},
		{"ahead", aheadLoop, "", "", true},
		{"behind", behindLoop, "", "", true},
		{"other names", longLoop, "round", "turn", true},
		{"an iteration less", longLoop, "scalar=3000", "scalar=2999", false},
		{"another operation", longLoop, "mul %y", "add %y", false},
		{"another begin", longLoop, "full {value=0}", "full {value=1}", false},
		{"stale value", aheadLoop, "return %j, %z, %t, %whole", "%old = clone %c : f32[8]\n  return %j, %z, %t, %old", false},
		{"row off by one", aheadLoop, "%soon = view %j", "%soon = view %i", false},
		{"first row off by one", aheadLoop, "{dim=0, end=1, start=0}", "{dim=0, end=2, start=1}", false},
		{"an iteration too many", aheadLoop, "lt %j {scalar=3000}", "lt %j {scalar=3001}", false},
		{"an iteration too few", aheadLoop, "lt %j {scalar=3000}", "lt %j {scalar=2999}", false},
		{"no epilogue", aheadLoop, "return %z, %t\n", "return %r#1, %r#2\n", false},
		{"started twice", aheadLoop, "  %z = mul %y, %c", "  %b = all_gather %part on @g {dim=0} : async f32[8]\n  %twice = wait_tensor %b : f32[8]\n  %z = mul %y, %c", true},
		{"read before it is there", aheadLoop, "%z = mul %y, %c : f32[8]\n", "%now = wait_tensor %a : f32[8]\n  %z = mul %y, %now : f32[8]\n", false},
		{"last not stored", behindLoop, "return %r#1, %t\n", "return %r#1, %r#2\n", false},
		{"last stored elsewhere", behindLoop, "{dim=0, end=3000, start=2999}", "{dim=0, end=2999, start=2998}", false},
		{"stored a row late", behindLoop, "%new, %was", "%new, %at", false},
		{"stale gradient", behindLoop, "%k = clone %z", "%k = clone %left", false},
		{"first gradient of another", behindLoop, "while %one, %z0, %s, %z0", "while %one, %z0, %s, %x", false},
		{"reduced otherwise", behindLoop, "%d = reduce_scatter.sum %left", "%d = reduce_scatter.max %left", false},
	} {
		text := strings.ReplaceAll(c.text, c.from, c.to)
		if c.from == "" {
			text = c.text
		} else if text == c.text {
			t.Fatalf("%s: nothing to replace", c.name)
		}
		if strings.Contains(c.name, "read before") {
			text = strings.Replace(text, "  %whole = wait_tensor %a : f32[8]\n", "  %whole = clone %now : f32[8]\n", 1)
		}
		_, err := p.Compare(plain, p.Read(parsedLoop(t, text)))
		if (err == nil) != c.equal {
			t.Errorf("%s: %v", c.name, err)
		}
	}
}

// What has been read of a loop stays as it was when its functions change.
func TestReadLoopsStay(t *testing.T) {
	p := equiv.NewProver(2, equiv.Options{})
	f := parsedLoop(t, longLoop)
	was := p.Read(f)
	body := f.Module().Func("round")
	for _, n := range body.Order() {
		if n.Op() == ir.OpMul {
			body.SetOp(n, ir.OpAdd)
		}
	}
	if _, err := p.Compare(was, p.Read(f)); err == nil {
		t.Error("a loop that multiplies is proved equal to itself when it adds")
	}
}
