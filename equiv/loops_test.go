package equiv_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/seed-ee968945/concert/equiv"
	"github.com/seed-ee968945/concert/ir"
)

// looped computes so much of a tensor and x in so many rounds.
func looped(t *testing.T, rounds, ops int, op string) *ir.Func {
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
`, rounds, body.String(), ops))
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

// A loop of known length is its rounds, no more and no fewer, and no others.
func TestLoops(t *testing.T) {
	three := parsedLoop(t, "world 1\nfunc @f(%x: f32[4]) -> (f32[4]) {\n  %a = add %x, %x : f32[4]\n  %b = add %a, %x : f32[4]\n  %c = add %b, %x : f32[4]\n  return %c\n}\n")
	for _, c := range []struct {
		rounds int
		op     string
		equal  bool
	}{{3, "add", true}, {2, "add", false}, {4, "add", false}, {3, "mul", false}} {
		_, err := equiv.Check(looped(t, c.rounds, 1, c.op), three, equiv.Options{})
		if (err == nil) != c.equal {
			t.Errorf("%d rounds of %s: %v", c.rounds, c.op, err)
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
