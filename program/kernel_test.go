package program

import (
	"strings"
	"testing"
)

const fused = `program @f world 1
stream @compute
events 0
arena 2048
buffer %a at 0 size 512
buffer %b at 512 size 512
buffer %c at 1024 size 1024
input a = %a: bf16[4,8]
input b = %b: bf16[8]
output c = %c: f32[4,8]
unit {flags=["--fmad=false"], source="00ff"}
kernel k0 {block=256, grid=1, shared=0, source="abcd"}
step add (p0: bf16[4,8], p1: bf16[4,8:0,1]) -> (t0: bf16[4,8]) from %add
step convert (t0+4: bf16[4,6:8,1]) -> (t1: f32[4,6]) {dtype=f32} from %conv
step pad (t1: f32[4,6]) -> (p2: f32[4,8]) from %pad
kernel k1
step neg (p0: f32[4,8]) -> (p1: f32[4,8])
body
@compute launch fused (%a: bf16[4,8], %b: bf16[8]) -> (%c: f32[4,8]) {kernel="k0"} from %pad
@compute launch fused (%c: f32[4,8]) -> (%c: f32[4,8]) {kernel="k1"}
`

func TestKernelRoundTrip(t *testing.T) {
	p, err := Parse("f.prog", fused)
	if err != nil {
		t.Fatal(err)
	}
	if got := p.String(); got != fused {
		t.Fatalf("printed\n%s", got)
	}
	if p.Source() != "" {
		t.Errorf("a text has no source, got %q", p.Source())
	}
	if k := p.Kernel(&p.Instrs[1]); k == nil || k.Name != "k1" {
		t.Errorf("the second launch runs %v", k)
	}
	was := p.Digest()
	p.Kernels[0].Source = "void k0() {}"
	if p.Digest() == was {
		t.Error("the digest does not depend on a kernel's source")
	}
}

// What a reader of kernels relies on is refused where it does not hold.
func TestKernelErrors(t *testing.T) {
	for _, c := range []struct{ old, new, want string }{
		{`{kernel="k1"}`, `{kernel="k7"}`, `instruction 1 (): there is no kernel "k7"`},
		{`kernel k1`, `kernel k0`, `kernel "k0": a kernel has a name of its own`},
		{"step neg (p0: f32[4,8]) -> (p1: f32[4,8])\n", "", "kernel k1: has no operation"},
		{"(t0: bf16[4,8]) from", "(t2: bf16[4,8]) from", "kernel k0: step 1 (conv): operand 0: nothing before has written temporary 0"},
		{"-> (p1: f32[4,8])", "-> (p0: f32[4,8])", "kernel k1: step 0 () writes operand 0"},
		{"-> (p1: f32[4,8])", "-> (p5: f32[4,8])", "parameter 5 of 2"},
		{"-> (p1: f32[4,8])", "-> (p1: f32[4,9])", "parameter 1 of 128 bytes of f32: the body reaches 144 bytes of f32"},
		{"-> (p1: f32[4,8])", "-> (p1: f16[4,8])", "parameter 1 of 128 bytes of f32: the body reaches 64 bytes of f16"},
		{"-> (p1: f32[4,8])", "-> (q1: f32[4,8])", "expected a parameter such as p0 or a temporary such as t0"},
		{"step neg", "step fused", `the operation is "fused"`},
		{"block=256", "block=0", "kernel k0: 1 blocks of 0 threads"},
		{"kernel k0 {", "step neg () -> ()\nkernel k0 {", "a step comes after the kernel"},
	} {
		if !strings.Contains(fused, c.old) {
			t.Fatalf("%q is not in the text", c.old)
		}
		_, err := Parse("f.prog", strings.Replace(fused, c.old, c.new, 1))
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s -> %s: got %v, want %q", c.old, c.new, err, c.want)
		}
	}
}

// A result of several operations may be on an operand only where no thread can read
// it after another has written it.
func TestKernelInPlace(t *testing.T) {
	const text = `program @f world 1
stream @compute
events 0
arena 1024
buffer %a at 0 size 512
buffer %b at 512 size 512
input a {saved} = %a: f32[4,4]
input b = %b: f32[4,4]
output c = %a: f32[4,4]
kernel k0
STEPS
body
@compute launch fused (%a: f32[4,4], %b: f32[4,4]) -> (%a: f32[4,4]) {kernel="k0"}
`
	for _, c := range []struct {
		steps string
		ok    bool
	}{
		{"step add (p0: f32[4,4], p1: f32[4,4]) -> (p2: f32[4,4])", true},
		{"step add (p0: f32[4,4], p0: f32[4,4:1,4]) -> (p2: f32[4,4])", false},
		{"step sum (p0: f32[4,4]) -> (p2: f32[4,4])", false},
		{"step neg (p0: f32[4,4]) -> (t0: f32[4,4])\nstep add (t0: f32[4,4], p1: f32[4,4]) -> (p2: f32[4,4])", true},
		{"step neg (p0: f32[4,4]) -> (t0: f32[4,4])\nstep add (t0: f32[4,4], p0: f32[4,4]) -> (p2: f32[4,4])", true},
		{"step neg (p0: f32[4,4]) -> (t0: f32[4,4])\nstep add (t0: f32[4,4:1,4], p1: f32[4,4]) -> (p2: f32[4,4])", false},
		{"step neg (p0: f32[4:1]) -> (t0: f32[4])\nstep add (t0: f32[4,4:0,1], p0: f32[4,4]) -> (p2: f32[4,4])", false},
		{"step sum (p0: f32[4,4]) -> (t0: f32[4,4])\nstep add (t0: f32[4,4], p1: f32[4,4]) -> (p2: f32[4,4])", false},
		{"step neg (p1: f32[4,4]) -> (p2: f32[4,4])\nstep add (p0: f32[4,4], p1: f32[4,4]) -> (t0: f32[4,4])", false},
		{"step neg (p1: f32[4,4]) -> (t0: f32[4,4])\nstep add (t0: f32[4,4], p1: f32[4,4]) -> (p2: f32[4,4])", false},
		{"step neg (p0: f32[4,4]) -> (p2: f32[4,4])\nstep add (p0: f32[4,4], p1: f32[4,4]) -> (t0: f32[4,4])", false},

		// With another result, that depends on the operand as well.
		{"step neg (p0: f32[4,4]) -> (p2: f32[4,4])\nstep add (p2: f32[4,4], p1: f32[4,4]) -> (p3: f32[4,4])", true},
		{"step neg (p0: f32[4,4]) -> (t0: f32[4,4])\nstep neg (t0: f32[4,4]) -> (p2: f32[4,4])\nstep add (t0: f32[4,4], p1: f32[4,4]) -> (p3: f32[4,4])", true},
		{"step neg (p0: f32[4,4]) -> (p2: f32[4,4])\nstep add (p0: f32[4,4], p1: f32[4,4]) -> (p3: f32[4,4])", false},
		{"step neg (p0: f32[4,4]) -> (p2: f32[4,4])\nstep neg (p2: f32[4,4:1,4]) -> (p3: f32[4,4])", false},
		{"step neg (p0: f32[4,4]) -> (p2: f32[4,4])\nstep sum (p2: f32[4,4]) -> (p3: f32[4,4])", false},
		{"step neg (p1: f32[4,4]) -> (p2: f32[4,4])\nstep neg (p1: f32[4,4]) -> (p3: f32[4,4])", false},
		{"step sum (p1: f32[4,4]) -> (t0: f32[4,4])\nstep neg (t0: f32[4,4]) -> (p3: f32[4,4])\nstep add (t0: f32[4,4], p0: f32[4,4]) -> (p2: f32[4,4])", true},
	} {
		text := text
		if strings.Contains(c.steps, "p3") {
			text = strings.NewReplacer("output c =", "output d = %c: f32[4,4]\noutput c =", "buffer %b", "buffer %c at 1024 size 512\nbuffer %b", "arena 1024", "arena 1536",
				"-> (%a: f32[4,4]) {", "-> (%a: f32[4,4], %c: f32[4,4]) {").Replace(text)
		}
		p, err := Parse("f.prog", strings.Replace(text, "STEPS", c.steps, 1))
		if err != nil {
			t.Fatal(err)
		}
		pointwise := func(op string) bool { return op != "sum" }
		r, err := CheckWith(p, CheckOptions{Pointwise: pointwise, InPlace: func(in *Instr, _ int) bool { return pointwise(in.Op) }})
		if err != nil {
			t.Fatal(err)
		}
		if ok := r.Err() == nil; ok != c.ok {
			t.Errorf("%s: allowed is %v, want %v: %v", c.steps, ok, c.ok, r.Err())
		}
	}
}

const sizedKernel = `program @f world 1
sym s hint 3 max 8
stream @compute
events 0
arena 1024
buffer %a at 0 size 512
buffer %c at 512 size 512
input a = %a: bf16[2*s,16]
output c = %c: bf16[2*s,16]
unit {source="00ff"}
kernel k0 {block=128, blocks="(16*n0+127)//128", grid=2, shared=0, sizes=1, source="abcd"}
step neg (p0: bf16[n0,16]) -> (t0: bf16[n0,16]) from %n
step exp (t0: bf16[n0,16]) -> (p1: bf16[n0,16]) from %e
body
@compute launch fused (%a: bf16[2*s,16]) -> (%c: bf16[2*s,16]) {kernel="k0", sizes=["2*s"]} from %e
`

// A kernel that takes sizes: its text, its body and its grid for some, and what does
// not fit.
func TestSizedKernel(t *testing.T) {
	p, err := Parse("f.prog", sizedKernel)
	if err != nil {
		t.Fatal(err)
	}
	if got := p.String(); got != sizedKernel {
		t.Fatalf("printed\n%s", got)
	}
	if err := p.Validate(); err != nil {
		t.Fatal(err)
	}
	k := &p.Kernels[0]
	for _, c := range []struct{ size, grid int64 }{{0, 0}, {1, 1}, {8, 1}, {9, 2}, {16, 2}, {40, 2}} {
		body, err := k.At([]int64{c.size})
		if err != nil || body[1].Outs[0].Shape[0] != c.size || k.Body[1].Outs[0].Shape[0] != SizeParam(0) {
			t.Errorf("at %d: %v, %v", c.size, body, err)
		}
		if n, err := k.GridAt([]int64{c.size}); n != c.grid || err != nil {
			t.Errorf("%d blocks for size %d, %v, want %d", n, c.size, err, c.grid)
		}
	}
	if _, err := k.At(nil); err == nil || err.Error() != "kernel k0 takes 1 sizes, the launch has 0" {
		t.Error(err)
	}
	for _, c := range []struct{ old, new, want string }{
		{`, sizes=["2*s"]`, ``, "kernel k0 takes 1 sizes, the launch has 0"},
		{`["2*s"]`, `["2*s", "s"]`, "kernel k0 takes 1 sizes, the launch has 2"},
		{`["2*s"]`, `["3*s"]`, "parameter 0 of 512 bytes of bf16: the body reaches 768 bytes of bf16"},
		{`["2*s"]`, `["r"]`, "size r has no bound"},
		{`["2*s"]`, `["2*"]`, "sizes: "},
		{`[n0,16]) -> (t0`, `[n1,16]) -> (t0`, "symbol n1 is not declared"},
		{`[n0,16]) -> (t0`, `[n0+1,16]) -> (t0`, "a size of a kernel's body is a number or one of the launch's, not n0+1"},
		{`(16*n0+`, `(16*n1+`, "blocks with the sizes"},
		{`sizes=1`, `sizes=0`, "symbol n0 is not declared"},
	} {
		q, err := Parse("f.prog", strings.Replace(sizedKernel, c.old, c.new, 1))
		if err == nil {
			err = q.Validate()
		}
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %s", c.new, err, c.want)
		}
	}
}
