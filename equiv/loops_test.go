package equiv_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/seed-ee968945/concert/equiv"
	"github.com/seed-ee968945/concert/ir"
)

// looped computes so much of a tensor and x in so many iterations.
func looped(t *testing.T, iterations, ops int, op string) *ir.Func {
	t.Helper()
	var body strings.Builder
	for k := range ops {
		fmt.Fprintf(&body, "  %%s%d = %s %%s%d, %%x : f32[4]\n", k+1, op, k)
	}
	return parsedLoop(t, fmt.Sprintf(`world 1
func @f(%%x: f32[4]) -> (f32[4]) {
  %%zero = full {value=0} : i64[]
  %%r:2 = while %%zero, %%x, %%x {body="round", cond="more"} : i64[], f32[4]
  return %%r#1
}
func @more(%%i: i64[], %%s: f32[4], %%x: f32[4]) -> (bool[]) {
  %%c = lt %%i {scalar=%d} : bool[]
  return %%c
}
func @round(%%i: i64[], %%s0: f32[4], %%x: f32[4]) -> (i64[], f32[4]) {
  %%j = add %%i {scalar=1} : i64[]
%s  return %%j, %%s%d
}
`, iterations, body.String(), ops))
}

func parsedLoop(t *testing.T, text string) *ir.Func {
	t.Helper()
	m, err := ir.Parse("loop.ir", text)
	if err == nil {
		err = m.Verify()
	}
	if err != nil {
		t.Fatal(err)
	}
	return m.Funcs()[0]
}

// A loop of known length is its iterations, no more and no fewer, and no others.
func TestLoops(t *testing.T) {
	three := parsedLoop(t, "world 1\nfunc @f(%x: f32[4]) -> (f32[4]) {\n  %a = add %x, %x : f32[4]\n  %b = add %a, %x : f32[4]\n  %c = add %b, %x : f32[4]\n  return %c\n}\n")
	for _, c := range []struct {
		iterations int
		op         string
		equal      bool
	}{{3, "add", true}, {2, "add", false}, {4, "add", false}, {3, "mul", false}} {
		_, err := equiv.Check(looped(t, c.iterations, 1, c.op), three, equiv.Options{})
		if (err == nil) != c.equal {
			t.Errorf("%d iterations of %s: %v", c.iterations, c.op, err)
		}
	}
}

// However often a prover has read a long loop, it reads it in one way.
func TestLoopReadAgain(t *testing.T) {
	f := looped(t, 200, 100, "add")
	p := equiv.NewProver(1, equiv.Options{})
	first := p.Read(f)
	for range 2 {
		if _, err := p.Compare(first, p.Read(f)); err != nil {
			t.Fatal(err)
		}
	}
}

// What runs collectives is what it computes, as they are: it may go where nothing needs it, or
// where its bodies no longer communicate, and keeps its side of calls that do. What runs such a
// call stays.
func TestBodiesThatCommunicate(t *testing.T) {
	program := func(branch, body string) *ir.Func {
		return parsedLoop(t, strings.ReplaceAll(fmt.Sprintf(`world 2
group @g = [[0, 1]]
func @f(%%x: f32[2], %%k: i64[]) -> (f32[2], f32[2]) {
  %%h = broadcast %%x on @g {root=0} : async f32[2]
  %%z = wait_tensor %%h : f32[2]
%s  return %%y, %%x
}
func @one(%%x: f32[2]) -> (f32[2]) {
%s}
func @two(%%x: f32[2]) -> (f32[2]) {
  %%y = neg %%x : f32[2]
  return %%y
}
`, body, branch), "CASE", `case %k, %x {branches=["one", "two"], uniform=true} : f32[2]`))
	}
	const (
		sum   = "  %h = all_reduce.max %x on @g : async f32[2]\n  %y = wait_tensor %h : f32[2]\n  return %y\n"
		twice = "  %h = all_reduce.max %x on @g : async f32[2]\n  %m = wait_tensor %h : f32[2]\n  %i = all_reduce.max %m on @g : async f32[2]\n  %y = wait_tensor %i : f32[2]\n  return %y\n"
		own   = "  %h = all_reduce.max %x on @g : async f32[2]\n  %y = wait_tensor %h : f32[2]\n  return %x\n"
		none  = "  %y = clone %x : f32[2]\n  return %y\n"
		calls = "  %y = call %x {class=\"memory\", effects=[\"communicates\"], target=\"exchange\"} : f32[2]\n  return %y\n"

		call  = "  %c = call %x {class=\"memory\", effects=[\"communicates\"], target=\"exchange\"} : f32[2]\n"
		needs = "  %y = CASE\n"
		dead  = "  %d = CASE\n  %y = neg %x : f32[2]\n"
		gone  = "  %y = neg %x : f32[2]\n"
		root  = "  %i = broadcast %y0 on @g {root=0} : async f32[2]\n  %y = wait_tensor %i : f32[2]\n"
		of    = `  %y0 = case %k, OF {branches=["one", "two"], uniform=true} : f32[2]` + "\n"
	)
	for _, c := range []struct {
		name          string
		before, after *ir.Func
		equal         bool
	}{
		{"dropped", program(sum, dead), program(sum, gone), true},
		{"of other operations", program(sum, needs), program(twice, needs), true},
		{"no longer communicates", program(own, needs), program(none, needs), true},
		{"of another value", program(sum, needs), program(none, needs), false},
		{"a call dropped", program(calls, dead), program(calls, gone), false},
		{"moved across a call", program(sum, needs+call), program(sum, call+needs), false},
		// Only rank 0 has the same operand, and only its result is read.
		{"operand of another rank", program(sum, strings.ReplaceAll(of, "OF", "%x")+root), program(sum, strings.ReplaceAll(of, "OF", "%z")+root), false},
	} {
		if _, err := equiv.Check(c.before, c.after, equiv.Options{}); (err == nil) != c.equal {
			t.Errorf("%s: %v", c.name, err)
		}
	}
}

// A collective keeps its side of a call that communicates, unless it brings nothing.
func TestSides(t *testing.T) {
	for size, equal := range map[string]bool{"0": true, "2": false} {
		program := func(before, behind string) *ir.Func {
			return parsedLoop(t, strings.NewReplacer("[N", "["+size, "[M", "["+map[string]string{"0": "0", "2": "4"}[size]).Replace(`world 2
group @g = [[0, 1]]
func @f(%x: i32[N]) -> (f32[M], f32[M]) {
  %f = convert %x : f32[N]
`+before+`  %c:0 = call on @g {class="memory", effects=["communicates"], target="barrier"}
`+behind+`  return %y, %z
}
`))
		}
		before := program("  %a = all_gather %x on @g {dim=0} : async i32[M]\n  %b = wait_tensor %a : i32[M]\n  %y = convert %b : f32[M]\n", "  %h = all_gather %f on @g {dim=0} : async f32[M]\n  %z = wait_tensor %h : f32[M]\n")
		after := program("  %h = all_gather %f on @g {dim=0} : async f32[M]\n  %z = wait_tensor %h : f32[M]\n  %y = clone %z : f32[M]\n", "")
		if _, err := equiv.Check(before, after, equiv.Options{}); (err == nil) != equal {
			t.Errorf("of %s elements: %v", size, err)
		}
	}
}
