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
		{"kernel k0 {", "step neg () -> ()\nkernel k0 {", "a step stands behind the kernel"},
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

// A result of several operations may lie on an operand only where no thread can read
// it after another has written it.
func TestKernelInPlace(t *testing.T) {
	const text = `program @f world 1
stream @compute
events 0
arena 1024
buffer %a at 0 size 512
buffer %b at 512 size 512
input a = %a: f32[4,4]
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
	} {
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
