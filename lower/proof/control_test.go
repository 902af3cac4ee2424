package proof_test

import (
	"strings"
	"testing"

	"github.com/seed-ee968945/concert/ir"
	"github.com/seed-ee968945/concert/lower"
	"github.com/seed-ee968945/concert/lower/proof"
	"github.com/seed-ee968945/concert/passes"
	"github.com/seed-ee968945/concert/passes/standard"
	"github.com/seed-ee968945/concert/program"
)

const nested = `world 2
group @all = [[0, 1]]
func @f(%n: i64[] {uniform=true}, %x: f32[4,4], %w: f32[4,4]) -> (f32[4,4], f32[4,4], i64[]) {
  %v = slice %w {dim=0, end=3, start=1} : f32[2,4]
  %h = neg %x : f32[4,4]
  %r:3 = while %h, %x, %n, %v, %w {body="round", cond="more"} : f32[4,4], f32[4,4], i64[]
  %y = add %r#0, %h : f32[4,4]
  return %y, %r#1, %r#2
}

func @more(%x: f32[4,4], %y: f32[4,4], %n: i64[], %v: f32[2,4], %w: f32[4,4]) -> (bool[]) {
  %c = gt %n {scalar=0.0} : bool[]
  return %c
}

func @round(%x: f32[4,4], %y: f32[4,4], %n: i64[], %v: f32[2,4], %w: f32[4,4]) -> (f32[4,4], f32[4,4], i64[]) {
  %a = all_reduce.sum %x on @all : async f32[4,4]
  %u = matmul %y, %w : f32[4,4]
  %b = wait_tensor %a : f32[4,4]
  %odd = bitwise_and %n {scalar=1} : i64[]
  %d = case %odd, %b, %u, %v {branches=["plus", "less"]} : f32[4,4]
  %i:2 = while %d, %n, %u {body="inner", cond="low"} : f32[4,4], i64[]
  %m = sub %n {scalar=1.0} : i64[]
  return %y, %i#0, %m
}

func @plus(%x: f32[4,4], %u: f32[4,4], %v: f32[2,4]) -> (f32[4,4]) {
  %z = add %x, %u : f32[4,4]
  %e = exp %z : f32[4,4]
  return %e
}

func @less(%x: f32[4,4], %u: f32[4,4], %v: f32[2,4]) -> (f32[4,4]) {
  %s = select %v {dim=0, index=1} : f32[4]
  %z = sub %u, %s : f32[4,4]
  return %z
}

func @low(%x: f32[4,4], %n: i64[], %u: f32[4,4]) -> (bool[]) {
  %c = lt %n {scalar=5.0} : bool[]
  return %c
}

func @inner(%x: f32[4,4], %n: i64[], %u: f32[4,4]) -> (f32[4,4], i64[]) {
  %y = mul %x, %u : f32[4,4]
  %k = add %n {scalar=2.0} : i64[]
  return %y, %k
}
`

// Branches that look at parts of what is copied for them, since no kernel could read it where
// it is.
const copied = `world 1
func @f(%k: i64[], %x: f32[9]) -> (f32[1,2], f32[1]) {
  %y = neg %x : f32[9]
  %a = as_strided %y {offset=1} : f32[2,4]
  %b = as_strided %y {offset=1} : f32[2,2:4,2]
  %r = case %k, %a {branches=["first", "second"]} : f32[1,2]
  %s = case %k, %b {branches=["third", "fourth"]} : f32[1]
  return %r, %s
}

func @first(%a: f32[2,4]) -> (f32[1,2]) {
  %s = slice %a {dim=1, end=3, start=1} : f32[2,2:4,1]
  %t = slice %s {dim=0, end=2, start=1} : f32[1,2:4,1]
  %n = exp %t : f32[1,2]
  return %n
}

func @second(%a: f32[2,4]) -> (f32[1,2]) {
  %t = as_strided %a {offset=4} : f32[1,2:4,2]
  %n = exp %t : f32[1,2]
  return %n
}

func @third(%b: f32[2,2:4,2]) -> (f32[1]) {
  %s = select %b {dim=1, index=1} : f32[2:4]
  %t = slice %s {dim=0, end=2, start=1} : f32[1:4]
  %n = exp %t : f32[1]
  return %n
}

func @fourth(%b: f32[2,2:4,2]) -> (f32[1]) {
  %s = select %b {dim=0, index=1} : f32[2:2]
  %t = slice %s {dim=0, end=1, start=0} : f32[1:2]
  %n = exp %t : f32[1]
  return %n
}
`

// Programs of loops in loops and branches are proved in all forms.
func TestControl(t *testing.T) {
	for _, text := range []string{nested, copied} {
		for _, form := range forms {
			f, p := controlled(t, text, form)
			if err := proof.Check(f, p); err != nil {
				t.Errorf("%s: %v\n%s", form.name, err, p)
			}
		}
	}
}

func controlled(t *testing.T, text string, in form) (*ir.Func, *program.Program) {
	t.Helper()
	m, err := ir.Parse("t.ir", text)
	if err == nil {
		err = m.Verify()
	}
	if err != nil {
		t.Fatal(err)
	}
	pipeline, err := standard.Table().Parse(in.pipeline)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := (&passes.Manager{}).Run(m, pipeline); err != nil {
		t.Fatal(err)
	}
	p, err := lower.FuncWith(m.Func("f"), in.o)
	if err != nil {
		t.Fatal(err)
	}
	return m.Func("f"), p
}

// Each mutant of a lowered loop is refused, with what is wrong in it.
func TestControlMutants(t *testing.T) {
	f, p := controlled(t, nested, forms[0])
	text := p.String()
	const roundCopy = "@compute copy (%\"r/round/i.0\": f32[4,4]) -> (%r.1: f32[4,4]) from %r\n"
	for _, c := range []struct{ name, from, to, want string }{
		{"stale carry buffer", "copy (%r.copy: f32[4,4])", "copy (%r.0: f32[4,4])", "carries, at the end of an iteration"},
		{"skipped copy of what is carried", roundCopy, "", "carries, at the end of an iteration"},
		{"copied from the iteration before", "copy (%\"r/round/i.0\": f32[4,4]) -> (%r.1", "copy (%\"r/round/d\": f32[4,4]) -> (%r.1", "carries, at the end of an iteration"},
		{"carried before the other is saved", "@compute copy (%r.1: f32[4,4]) -> (%r.copy: f32[4,4]) from %r\n", roundCopy + "@compute copy (%r.1: f32[4,4]) -> (%r.copy: f32[4,4]) from %r\n", "carries, at the end of an iteration"},
		{"skipped copy in front of a loop", "@compute copy (%x: f32[4,4]) -> (%r.1: f32[4,4]) from %r\n", "", "carries, in front of it"},
		{"a loop in an iteration begins with the last one's end", "@compute copy (%\"r/round/d\": f32[4,4]) -> (%\"r/round/i.0\": f32[4,4]) from %\"r/round/i\"\n", "", "carries, in front of it"},
		{"wrong buffer in one branch", "sub (%\"r/round/u\"", "sub (%\"r/round/a\"", "operand 0"},
		{"skipped copy in one branch", "@compute copy (%\"r/round/d/plus/e\": f32[4,4]) -> (%\"r/round/d\": f32[4,4]) from %\"r/round/d\"\n", "", "a result of branch 0"},
		{"a branch reads what the other has written", "-> (%\"r/round/d/less/z\"", "-> (%\"r/round/d\"", "a result of branch 1"},
		{"branches by another number", "case (%\"r/round/odd\"", "case (%r.2", "which branch runs"},
		{"body reads a released value", "%\"r/round/u\" at 1536", "%\"r/round/u\" at 512", "operand"},
		{"a round writes over what is the same in all", "%\"r/round/m\" at 512", "%\"r/round/m\" at 4608", "operand"},
		{"an iteration writes over what is read behind the loop", "%h at 5120", "%h at 1536", "operand"},
		{"read behind the loop, computed in a round", "add (%r.0", "add (%\"r/round/i.0\"", "operand 0"},
		{"read in an iteration, computed in the one before", "all (%r.0", "all (%\"r/round/i.0\"", "operand 0"},
		{"the test asks something else", "{scalar=5.0}", "{scalar=4.0}", "attributes"},
		{"the test asks of another round", "lt (%\"r/round/i.1\"", "lt (%r.2", "operand 0"},
		{"the test writes over what is carried", "%\"r/more/c\" at 512", "%\"r/more/c\" at 5632", "at its test"},
		{"another result of the loop", "output r.1 = %r.1", "output r.1 = %r.0", "a result is what the function returns"},
		{"a loop of its own", "loop () -> (%\"r/round/i.0\": f32[4,4], %\"r/round/i.1\": i64[]) from %\"r/round/i\"", "loop () -> (%\"r/round/i.0\": f32[4,4], %\"r/round/i.1\": i64[]) from %\"r/round/j\"", "no such loop"},
		{"a result less", "loop () -> (%r.0: f32[4,4], %r.1: f32[4,4], %r.2: i64[])", "loop () -> (%r.0: f32[4,4], %r.1: f32[4,4])", "other results"},
		{"a collective more, in front of the loop", "@compute loop () -> (%r.0", "@comm.all all_reduce on @all (%h: f32[4,4]) -> (%\"r/round/a\": f32[4,4]) {reduce=\"sum\"} from %\"r/round/a\"\n@compute loop () -> (%r.0", "communication"},
	} {
		if strings.Count(text, c.from) != 1 {
			t.Fatalf("%s: %q stands %d times in\n%s", c.name, c.from, strings.Count(text, c.from), text)
		}
		q, err := program.Parse("t.prog", strings.Replace(text, c.from, c.to, 1))
		if err != nil {
			t.Errorf("%s: %v", c.name, err)
			continue
		}
		if err := proof.Check(f, q); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: want %q, got %v", c.name, c.want, err)
		}
	}
}
