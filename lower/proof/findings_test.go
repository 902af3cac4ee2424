package proof_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/seed-ee968945/concert/equiv"
	"github.com/seed-ee968945/concert/ir"
	"github.com/seed-ee968945/concert/lower"
	"github.com/seed-ee968945/concert/lower/proof"
	"github.com/seed-ee968945/concert/program"
)

// step is a function with what programs are made of: views, a bucket, a call that writes in
// place, a copy for a collective, an async result, dynamic sizes.
const step = `world 2
group @g = [[0, 1]]
group @h = [[0, 1]]
sym n hint 2 max 4

func @step(%x: f32[4,8] !{role="parameter"}, %w: f32[8,4] !{role="parameter"}, %y: f32[n,4] !{role="saved"}) -> (f32[4,4], f32[4,8], f32[2,4], async(f32[8,8])) {
  %t = permute %x {dims=[1, 0]} : f32[8,4:1,8]
  %m = matmul %x, %w : f32[4,4]
  %r = all_reduce.sum %m, %t on @g : async(f32[4,4], f32[8,4])
  %a:2 = wait_tensor %r : f32[4,4], f32[8,4]
  %s = sub %a#0, %m : f32[4,4]
  call %s {effects=["writes"], target="inc"}
  call %s {effects=["random"], target="note"}
  %v = slice %x {dim=0, start=1, end=3} : f32[2,8]
  %b = broadcast %v on @h {root=1} : async f32[2,8]
  %c = wait_tensor %b : f32[2,8]
  %d = cat %c, %v {dim=0} : f32[4,8]
  %f = slice %y {dim=0, start=0, end=2} : f32[2,4]
  %e = neg %f : f32[2,4] after %d
  %z = all_gather %d on @g {dim=0} : async f32[8,8]
  return %s, %d, %e, %z
}
`

// What cannot be proved is said with the instruction, the node and the range.
func TestFindings(t *testing.T) {
	m, err := ir.Parse("step.ir", step)
	if err == nil {
		err = m.Verify()
	}
	if err != nil {
		t.Fatal(err)
	}
	f := m.Funcs()[0]
	p, err := lower.Func(f)
	if err != nil {
		t.Fatal(err)
	}
	text := p.String()
	if err := proof.Check(f, p); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ name, old, new, want string }{
		{"operands swapped", "sub (%r.0: f32[4,4], %m: f32[4,4])", "sub (%m: f32[4,4], %r.0: f32[4,4])", "operand 0 at bytes 2048..2112 holds %m and not %r"},
		{"one element further", "neg (%y: f32[2,4])", "neg (%y+4: f32[2,4])", "operand 0 at bytes 1028..1060 holds f32[2,4] from byte 4 of input 2"},
		{"wrong strides", "(%x: f32[8,4:1,8])", "(%x: f32[8,4:4,1])", "and not f32[8,4:1,8] from byte 0 of input 0"},
		{"no copy", "@compute copy (%x: f32[8,4:1,8]) -> (%r.operand1: f32[8,4]) from %r\n", "", "operand 1 at bytes 3072..3200 holds nothing at 3072..3200"},
		{"a copy of another shape", "(%r.operand1: f32[8,4]) from", "(%r.operand1: f32[4,8]) from", "a copy of f32[8,4:1,8] to f32[4,8]"},
		{"several tensors", "neg (%y: f32[2,4])", "neg (%z+32: f32[2,4:8,1])", "input 2 at 1056..1088, nothing at 1088..1104"},
		{"another operation", "launch neg", "launch abs", "it is abs and not neg"},
		{"no operation", "launch neg", "launch frobnicate", "frobnicate is not an operation"},
		{"another group", "broadcast on @h", "broadcast on @g", "it has another group"},
		{"another order of ranks", "@h = [[0, 1]]", "@h = [[1, 0]]", "it has another group"},
		{"another attribute", "{root=1}", "{root=0}", "its attributes are {root=0} and not {root=1}"},
		{"another type", "cat (%b: f32[2,8], %x+32: f32[2,8]) -> (%d: f32[4,8])", "cat (%b: f32[2,8], %x+32: f32[1,8]) -> (%d: f32[3,8])", "and not f32[2,8] from byte 32 of input 0"},
		{"elements on each other", "(%s: f32[4,4]) from %s", "(%s: f32[4,4:3,1]) from %s", "its elements do not lie as results may"},
		{"no call", "@compute launch call (%s: f32[4,4]) -> () {effects=[\"random\"], target=\"note\"} from %call_1\n", "", "the program does not do it"},
		{"a call too many", "@compute record 4", "@compute launch call () -> () {effects=[\"random\"], target=\"more\"}\n@compute record 4", "the function does not do it"},
		{"a call behind another", "{effects=[\"writes\"], target=\"inc\"}", "{effects=[\"random\"], target=\"inc\"}", "they keep their order"},
		{"a write elsewhere", "call (%s: f32[4,4]) -> () {effects=[\"writes\"]", "call (%m: f32[4,4]) -> () {effects=[\"writes\"]", "operand 0 of %call"},
		{"a write to nothing", "call (%s: f32[4,4]) -> () {effects=[\"writes\"]", "call (%z+64: f32[4,4]) -> () {effects=[\"writes\"]", "writes operand 0 in place, whose bytes hold"},
		{"a write to an input", "launch neg (%y: f32[2,4]) -> (%e: f32[2,4])", "launch neg (%y: f32[2,4]) -> (%w: f32[2,4])", "input 1, %w, at the end"},
		{"another result", "output d = %d: f32[4,8]", "output d = %z: f32[4,8]", "result 1, %d"},
		{"a result of another type", "output d = %d: f32[4,8]", "output d = %d: f32[8,4]", "a program keeps its function's signature"},
		{"a result that is there", "output z async 5 = %z: f32[8,8]", "output z = %z: f32[8,8]", "a program keeps its function's signature"},
		{"an input of another role", "input w {parameter}", "input w {saved}", "a program keeps its function's signature"},
		{"inputs exchanged", "input x {parameter} = %x: f32[4,8]\ninput w {parameter} = %w: f32[8,4]", "input w {parameter} = %w: f32[8,4]\ninput x {parameter} = %x: f32[4,8]", "a program keeps its function's signature"},
		{"in another order", "@compute launch cat (%b: f32[2,8], %x+32: f32[2,8]) -> (%d: f32[4,8]) {dim=0} from %d\n@compute launch neg (%y: f32[2,4]) -> (%e: f32[2,4]) from %e\n",
			"@compute launch neg (%y: f32[2,4]) -> (%e: f32[2,4]) from %e\n@compute launch cat (%b: f32[2,8], %x+32: f32[2,8]) -> (%d: f32[4,8]) {dim=0} from %d\n", "the node comes after %d"},
		{"a size that is not checked", "need n-2 from %f\n", "", "the program does not check that n-2 is not negative"},
		{"another bound", "sym n hint 2 max 4", "sym n hint 2 max 3", "a program has its function's symbols"},
		{"a world of other ranks", "world 2", "world 4", "2 ranks became 4"},
	} {
		t.Run(c.name, func(t *testing.T) {
			if !strings.Contains(text, c.old) {
				t.Fatalf("%q is not in the program:\n%s", c.old, text)
			}
			q, err := program.Parse("p", strings.Replace(text, c.old, c.new, 1))
			if err != nil {
				t.Fatal(err)
			}
			err = proof.Check(f, q)
			var e *equiv.Error
			if !errors.As(err, &e) || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v, want %q", err, c.want)
			}
		})
	}
}

// Results that the function has apart are apart in the program: the caller may write to
// one of them.
func TestShared(t *testing.T) {
	m, err := ir.Parse("two.ir", `world 1

func @two(%x: f32[4]) -> (f32[4], f32[4]) {
  %a = neg %x : f32[4]
  %b = neg %x : f32[4]
  return %a, %b
}
`)
	if err != nil {
		t.Fatal(err)
	}
	f := m.Funcs()[0]
	p, err := lower.Func(f)
	if err != nil {
		t.Fatal(err)
	}
	if err := proof.Check(f, p); err != nil {
		t.Fatal(err)
	}
	p.Outputs[1].Tensors = p.Outputs[0].Tensors
	if err := proof.Check(f, p); err == nil || !strings.Contains(err.Error(), "shares bytes with result 0") {
		t.Error(err)
	}
}

// A reduce_scatter within a matmul leaves nothing of the product: lowering does not ask for it where
// somebody else reads that, and a program that does is none of the function.
func TestWithinMatmul(t *testing.T) {
	m, err := ir.Parse("f.ir", `world 2
group @g = [[0, 1]]

func @f(%x: bf16[4,8], %w: bf16[8,4]) -> (bf16[2,4], bf16[4,4]) {
  %p = matmul %x, %w : bf16[4,4]
  %s = reduce_scatter.sum %p on @g {dim=0} : async bf16[2,4] !{in_matmul=true}
  %a = wait_tensor %s : bf16[2,4]
  %e = neg %p : bf16[4,4]
  return %a, %e
}
`)
	if err != nil {
		t.Fatal(err)
	}
	f := m.Funcs()[0]
	p, err := lower.Func(f)
	if err != nil {
		t.Fatal(err)
	}
	if err := proof.Check(f, p); err != nil {
		t.Fatal(err)
	}
	const apart = `{dim=0, reduce="sum"}`
	text := p.String()
	if !strings.Contains(text, apart) {
		t.Fatalf("no %s in\n%s", apart, text)
	}
	q, err := program.Parse("p", strings.Replace(text, apart, `{dim=0, in_matmul=true, reduce="sum"}`, 1))
	if err != nil {
		t.Fatal(err)
	}
	const want = "what a reduce_scatter within a matmul leaves of its operand"
	if err := proof.Check(f, q); err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("got %v, want %q", err, want)
	}
}
