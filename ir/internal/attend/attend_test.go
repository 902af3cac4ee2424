package attend

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/seed-ee968945/concert/interp"
	"github.com/seed-ee968945/concert/ir"
)

// heads is attention with a mask, as JAX writes it and its gradient: heads come after the
// sequence, and the gradient of a division is a sum of two terms.
const heads = `world 1
func @f(%q: f32[2,4,3,5], %k: f32[2,6,3,5], %v: f32[2,6,3,5], %g: f32[2,4,3,5]) -> (f32[2,4,3,5], f32[6,4,5], f32[6,5,6], f32[6,6,5]) {
  %q1 = permute %q {dims=[0, 2, 1, 3]} : f32[2,3,4,5:60,5,15,1]
  %q2 = clone %q1 : f32[2,3,4,5]
  %q3 = view %q2 : f32[6,4,5]
  %k1 = permute %k {dims=[0, 2, 3, 1]} : f32[2,3,5,6:90,5,1,15]
  %k2 = clone %k1 : f32[2,3,5,6]
  %k3 = view %k2 : f32[6,5,6]
  %a = matmul %q3, %k3 : f32[6,4,6]
  %a4 = view %a : f32[2,3,4,6]
  %four = full {value=4.0} : f32[2,3,4,6]
  %scores = div %a4, %four : f32[2,3,4,6]
  %i = iota : i32[4]
  %i2 = view %i : i32[4,1]
  %i3 = expand %i2 : i32[4,6:1,0]
  %j = iota : i32[6]
  %j2 = view %j : i32[1,6]
  %j3 = expand %j2 : i32[4,6:0,1]
  %tri = ge %i3, %j3 : bool[4,6]
  %tri4 = view %tri : bool[1,1,4,6]
  %mask = expand %tri4 : bool[2,3,4,6:0,0,6,1]
  %low = full {value=-1e30} : f32[2,3,4,6]
  %s = where %mask, %scores, %low : f32[2,3,4,6]
  %m = amax %s {dims=[3]} : f32[2,3,4]
  %m4 = view %m : f32[2,3,4,1]
  %mx = expand %m4 : f32[2,3,4,6:12,4,1,0]
  %sub = sub %s, %mx : f32[2,3,4,6]
  %e = exp %sub : f32[2,3,4,6]
  %l = sum %e {dims=[3]} : f32[2,3,4]
  %l4 = view %l : f32[2,3,4,1]
  %lx = expand %l4 : f32[2,3,4,6:12,4,1,0]
  %p = div %e, %lx : f32[2,3,4,6]
  %p3 = view %p : f32[6,4,6]
  %v1 = permute %v {dims=[0, 2, 1, 3]} : f32[2,3,6,5:90,5,15,1]
  %v2 = clone %v1 : f32[2,3,6,5]
  %v3 = view %v2 : f32[6,6,5]
  %o = matmul %p3, %v3 : f32[6,4,5]
  %o4 = view %o : f32[2,3,4,5]
  %o5 = permute %o4 {dims=[0, 2, 1, 3]} : f32[2,4,3,5:60,5,20,1]
  %out = clone %o5 : f32[2,4,3,5]
  %g1 = permute %g {dims=[0, 2, 1, 3]} : f32[2,3,4,5:60,5,15,1]
  %g2 = clone %g1 : f32[2,3,4,5]
  %g3 = view %g2 : f32[6,4,5]
  %vt = permute %v3 {dims=[0, 2, 1]} : f32[6,5,6:30,1,5]
  %d = matmul %g3, %vt : f32[6,4,6]
  %d4 = view %d : f32[2,3,4,6]
  %ll = mul %l4, %l4 : f32[2,3,4,1]
  %one = full {value=1.0} : f32[2,3,4,1]
  %inv = div %one, %ll : f32[2,3,4,1]
  %invx = expand %inv : f32[2,3,4,6:12,4,1,0]
  %t1 = mul %d4, %invx : f32[2,3,4,6]
  %t2 = mul %t1, %e : f32[2,3,4,6]
  %t3 = sum %t2 {dims=[3]} : f32[2,3,4]
  %t4 = view %t3 : f32[2,3,4,1]
  %t5 = neg %t4 : f32[2,3,4,1]
  %t6 = div %d4, %lx : f32[2,3,4,6]
  %t7 = expand %t5 : f32[2,3,4,6:12,4,1,0]
  %t8 = add %t6, %t7 : f32[2,3,4,6]
  %t9 = mul %t8, %e : f32[2,3,4,6]
  %zero = full {value=0.0} : f32[2,3,4,6]
  %ds = where %mask, %t9, %zero : f32[2,3,4,6]
  %ds4 = div %ds, %four : f32[2,3,4,6]
  %ds3 = view %ds4 : f32[6,4,6]
  %kt = permute %k3 {dims=[0, 2, 1]} : f32[6,6,5:30,1,6]
  %dq = matmul %ds3, %kt : f32[6,4,5]
  %qt = permute %q3 {dims=[0, 2, 1]} : f32[6,5,4:20,1,5]
  %dk = matmul %qt, %ds3 : f32[6,5,6]
  %pt = permute %p3 {dims=[0, 2, 1]} : f32[6,6,4:24,1,6]
  %dv = matmul %pt, %g3 : f32[6,6,5]
  return %out, %dq, %dk, %dv
}
`

// plain is attention with a bias, as PyTorch writes it and its gradient, in batches of matrices.
const plain = `world 1
func @f(%q: f32[6,4,5], %k: f32[6,7,5], %v: f32[6,7,3], %b: f32[6,4,7], %g: f32[6,4,3]) -> (f32[6,4,3], f32[6,4,5], f32[6,7,5], f32[6,7,3]) {
  %kt = permute %k {dims=[0, 2, 1]} : f32[6,5,7:35,1,5]
  %a = matmul %q, %kt : f32[6,4,7]
  %c = mul %a {scalar=0.5} : f32[6,4,7]
  %s = add %c, %b : f32[6,4,7]
  %m = amax %s {dims=[2], keepdim=true} : f32[6,4,1]
  %mx = expand %m : f32[6,4,7:4,1,0]
  %sub = sub %s, %mx : f32[6,4,7]
  %e = exp %sub : f32[6,4,7]
  %l = sum %e {dims=[2], keepdim=true} : f32[6,4,1]
  %r = reciprocal %l : f32[6,4,1]
  %p = mul %e, %r : f32[6,4,7]
  %o = matmul %p, %v : f32[6,4,3]
  %vt = permute %v {dims=[0, 2, 1]} : f32[6,3,7:21,1,3]
  %d = matmul %g, %vt : f32[6,4,7]
  %pd = mul %p, %d : f32[6,4,7]
  %t = sum %pd {dims=[2], keepdim=true} : f32[6,4,1]
  %dt = sub %d, %t : f32[6,4,7]
  %ds = mul %p, %dt : f32[6,4,7]
  %dc = mul %ds {scalar=0.5} : f32[6,4,7]
  %dq = matmul %dc, %k : f32[6,4,5]
  %dst = permute %dc {dims=[0, 2, 1]} : f32[6,7,4:28,1,7]
  %dk = matmul %dst, %q : f32[6,7,5]
  %pt = permute %p {dims=[0, 2, 1]} : f32[6,7,4:28,1,7]
  %dv = matmul %pt, %g : f32[6,7,3]
  return %o, %dq, %dk, %dv
}
`

// again is the mask of heads.
const again = `%x = iota : i32[4]
  %x2 = view %x : i32[1,1,4,1]
  %x3 = expand %x2 : i32[2,3,4,6:0,0,1,0]
  %y = iota : i32[6]
  %y2 = view %y : i32[1,1,1,6]
  %y3 = expand %y2 : i32[2,3,4,6:0,0,0,1]
  %mask2 = ge %x3, %y3 : bool[2,3,4,6]
`

// stacked are heads whose exponentials and weights a loop kept for the gradient, in a stack of all
// iterations.
var stacked = func() string {
	before, after, _ := strings.Cut(heads, "  %g1 =")
	stack := `  %zeros = full {value=0.0} : f32[3,2,3,4,6]
  %e5 = view %e : f32[1,2,3,4,6]
  %es1 = slice_scatter %zeros, %e5 {dim=0, end=2, start=1} : f32[3,2,3,4,6]
  %es2 = slice_scatter %es1, %e5 {dim=0, end=3, start=2} : f32[3,2,3,4,6]
  %es = slice %es2 {dim=0, end=2, start=1} : f32[1,2,3,4,6]
  %er = view %es : f32[2,3,4,6]
  %p5 = view %p : f32[1,2,3,4,6]
  %ps1 = cat %zeros, %p5 {dim=0} : f32[4,2,3,4,6]
  %pr = select %ps1 {dim=0, index=3} : f32[2,3,4,6]
  %pr3 = view %pr : f32[6,4,6]
`
	return before + stack + "  %g1 =" + strings.NewReplacer("%e ", "%er ", "%p3 ", "%pr3 ").Replace(after)
}()

// forward is the first half of plain.
var forward = strings.Replace(plain[:strings.Index(plain, "  %vt")], "-> (f32[6,4,3], f32[6,4,5], f32[6,7,5], f32[6,7,3])", "-> (f32[6,4,3])", 1) + "  return %o\n}\n"

// Attention is found however it is spelt, computes the same, and nothing of the softmax is left;
// what is not attention, or is read elsewhere, stays as it is.
func TestRecognize(t *testing.T) {
	for _, c := range []struct {
		name, text string
		change     []string // old and new by turns
		want       int
	}{
		{"heads", heads, nil, 1},
		{"plain", plain, nil, 1},
		{"stacked", stacked, nil, 1},
		{"another iteration's", stacked, []string{"%es2 {dim=0, end=2, start=1}", "%es2 {dim=0, end=1, start=0}"}, 0},
		{"forward", forward, nil, 1},
		{"another mask", heads, []string{"ge %i3, %j3", "le %i3, %j3"}, 1},
		{"a row that sees nothing", heads, []string{"ge %i3, %j3", "gt %i3, %j3"}, 1},
		{"a row from which little is taken away", heads, []string{"ge %i3, %j3", "gt %i3, %j3", "value=-1e30", "value=-1e9", "div %a4, %four", "mul %a4, %four", "div %ds, %four", "mul %ds, %four"}, 1},
		{"the mask once more", heads, []string{"%ds = where %mask", again + "  %ds = where %mask2"}, 1},
		{"the mask once more, but one less", heads, []string{"%ds = where %mask", strings.Replace(again, "ge %x3", "gt %x3", 1) + "  %ds = where %mask2"}, 0},
		{"a mask of what is hidden", forward, []string{"%s = add %c, %b", "%hide = lt %b, %b2 : bool[6,4,7]\n  %low = full {value=-1e9} : f32[6,4,7]\n  %s = where %hide, %low, %c", "%kt =", "%one = full {value=1.5} : f32[6,4,1]\n  %b2 = expand %one : f32[6,4,7:4,1,0]\n  %kt ="}, 1},
		{"no scale", forward, []string{"%c = mul %a {scalar=0.5}", "%c = alias %a"}, 1},
		{"output turned", forward, []string{"%o = matmul %p, %v : f32[6,4,3]", "%vt = permute %v {dims=[0, 2, 1]} : f32[6,3,7:21,1,3]\n  %pt = permute %p {dims=[0, 2, 1]} : f32[6,7,4:28,1,7]\n  %ot = matmul %vt, %pt : f32[6,3,4]\n  %os = permute %ot {dims=[0, 2, 1]} : f32[6,4,3:12,1,4]\n  %o = clone %os : f32[6,4,3]"}, 1},
		{"scores turned", forward, []string{"%kt = permute %k {dims=[0, 2, 1]} : f32[6,5,7:35,1,5]", "%qt = permute %q {dims=[0, 2, 1]} : f32[6,5,4:20,1,5]", "%a = matmul %q, %kt : f32[6,4,7]", "%at = matmul %k, %qt : f32[6,7,4]\n  %a = permute %at {dims=[0, 2, 1]} : f32[6,4,7:28,1,4]"}, 1},

		{"the gradient expanded twice", plain, []string{"%g: f32[6,4,3]", "%gs: f32[6,1,3]", "%vt = permute", "%g = expand %gs : f32[6,4,3:3,0,1]\n  %vt = permute", "%dv = matmul %pt, %g", "%h = expand %gs : f32[6,4,3:3,0,1]\n  %dv = matmul %pt, %h"}, 1},

		{"weights returned", forward, []string{"return %o", "return %o, %p", "-> (f32[6,4,3])", "-> (f32[6,4,3], f32[6,4,7])"}, 0},
		{"a negative scale", forward, []string{"scalar=0.5", "scalar=-0.5"}, 0},
		{"not the largest", forward, []string{"%m = amax %s", "%m = amax %c"}, 0},
		{"sums of columns", forward, []string{"%l = sum %e {dims=[2], keepdim=true} : f32[6,4,1]", "%l = sum %e {dims=[1], keepdim=true} : f32[6,1,7]", "%r = reciprocal %l : f32[6,4,1]", "%r = reciprocal %l : f32[6,1,7]"}, 0},
		{"another scale behind", plain, []string{"%dc = mul %ds {scalar=0.5}", "%dc = mul %ds {scalar=0.25}"}, 0},
		{"another gradient", plain, []string{"%dt = sub %d, %t", "%dt = add %d, %t"}, 0},
		{"the gradient of another", plain, []string{"%dk = matmul %dst, %q", "%q2 = neg %q : f32[6,4,5]\n  %dk = matmul %dst, %q2"}, 0},
		{"the gradient of the bias", plain, []string{"return %o, %dq, %dk, %dv", "return %o, %dq, %dk, %dv, %ds", "f32[6,7,3]) {", "f32[6,7,3], f32[6,4,7]) {"}, 0},
		{"another mask behind", heads, []string{"%ds = where %mask", "%other = lt %t9, %d4 : bool[2,3,4,6]\n  %ds = where %other"}, 0},
	} {
		text := strings.NewReplacer(c.change...).Replace(c.text)
		before, err := ir.Parse(c.name, text)
		if err == nil {
			err = before.Verify()
		}
		if err != nil {
			t.Fatalf("%s: %v", c.name, err)
		}
		after := before.Clone()
		f := after.Funcs()[0]
		got := Module(after)
		if got != c.want || got == 0 && len(c.text) == len(forward) && after.String() != before.String() {
			t.Errorf("%s: found %d times, want %d\n%s", c.name, got, c.want, after)
			continue
		}
		if err := after.Verify(); err != nil {
			t.Errorf("%s: %v\n%s", c.name, err, after)
			continue
		}
		if left := after.String(); got > 0 && (strings.Contains(left, "exp ") || strings.Contains(left, "amax %s") || strings.Contains(left, "attention_backward") != strings.Contains(text, "%dq")) {
			t.Errorf("%s leaves\n%s", c.name, left)
		}
		same(t, c.name, before.Funcs()[0], f)
	}
}

// same holds the results of two functions against each other on random numbers.
func same(t *testing.T, name string, a, b *ir.Func) {
	t.Helper()
	r := rand.New(rand.NewPCG(1, 2))
	var in []interp.Tensor
	for _, n := range a.Inputs() {
		shape := sizes(n.Result(0))
		x := make([]float64, 1)
		for _, d := range shape {
			x = make([]float64, int64(len(x))*d)
		}
		for i := range x {
			x[i] = r.NormFloat64()
		}
		v, err := interp.FromFloats(n.Result(0).Type().DType(), x, shape...)
		if err != nil {
			t.Fatal(err)
		}
		in = append(in, v)
	}
	var outs [2][][]interp.Tensor
	for i, f := range []*ir.Func{a, b} {
		var err error
		if outs[i], err = interp.Run(context.Background(), f, [][]interp.Tensor{in}, interp.Options{}); err != nil {
			t.Fatal(fmt.Errorf("%s: %w", name, err))
		}
	}
	for k, want := range outs[0][0] {
		x, y := want.Float64s(), outs[1][0][k].Float64s()
		for i := range x {
			if math.Abs(x[i]-y[i]) > 2e-6*(1+math.Abs(x[i])) {
				t.Errorf("%s: element %d of result %d is %v, was %v", name, i, k, y[i], x[i])
				break
			}
		}
	}
}

// looped is attention in a loop whose length a run decides: mask and what stands for hidden
// scores are carried, and never change.
const looped = `world 1
func @f(%n: i64[], %q: f32[6,4,5], %k: f32[6,6,5], %v: f32[6,6,5]) -> (f32[6,4,5]) {
  %count = clamp %n {max=3, min=1} : i64[]
  %i = iota : i32[4]
  %i2 = view %i : i32[4,1]
  %i3 = expand %i2 : i32[4,6:1,0]
  %j = iota : i32[6]
  %j2 = view %j : i32[1,6]
  %j3 = expand %j2 : i32[4,6:0,1]
  %tri = ge %i3, %j3 : bool[4,6]
  %tri3 = view %tri : bool[1,4,6]
  %mask = expand %tri3 : bool[6,4,6:0,6,1]
  %low = full {value=-1e30} : f32[6,4,6]
  %r:4 = while %count, %q, %low, %mask, %k, %v {body="round", cond="more"} : i64[], f32[6,4,5], f32[6,4,6], bool[6,4,6]
  return %r#1
}

func @more(%i: i64[], %x: f32[6,4,5], %low: f32[6,4,6], %mask: bool[6,4,6], %k: f32[6,6,5], %v: f32[6,6,5]) -> (bool[]) {
  %go = gt %i {scalar=0} : bool[]
  return %go
}

func @round(%i: i64[], %x: f32[6,4,5], %low: f32[6,4,6], %mask: bool[6,4,6], %k: f32[6,6,5], %v: f32[6,6,5]) -> (i64[], f32[6,4,5], f32[6,4,6], bool[6,4,6]) {
  %kt = permute %k {dims=[0, 2, 1]} : f32[6,5,6:30,1,5]
  %a = matmul %x, %kt : f32[6,4,6]
  %c = mul %a {scalar=0.5} : f32[6,4,6]
  %s = where %mask, %c, %low : f32[6,4,6]
  %m = amax %s {dims=[2], keepdim=true} : f32[6,4,1]
  %mx = expand %m : f32[6,4,6:4,1,0]
  %sub = sub %s, %mx : f32[6,4,6]
  %e = exp %sub : f32[6,4,6]
  %l = sum %e {dims=[2], keepdim=true} : f32[6,4,1]
  %p = div %e, %l : f32[6,4,6]
  %o = matmul %p, %v : f32[6,4,5]
  %next = sub %i {scalar=1} : i64[]
  return %next, %o, %low, %mask
}
`

// Attention in bodies is found with the constants that these are handed; where it is none they stay
// as they were.
func TestBodies(t *testing.T) {
	for _, c := range []struct {
		name   string
		change []string
		want   int
		says   string // of the mask
	}{
		{"looped", nil, 1, "causal=true"},
		{"a mask that changes", []string{"return %next, %o, %low, %mask", "%other = logical_not %mask : bool[6,4,6]\n  return %next, %o, %low, %other"}, 1, "causal=false"},
		{"sums of columns", []string{"%l = sum %e {dims=[2], keepdim=true} : f32[6,4,1]", "%l = sum %e {dims=[1], keepdim=true} : f32[6,1,6]"}, 0, ""},
	} {
		before, err := ir.Parse(c.name, strings.NewReplacer(c.change...).Replace(looped))
		if err == nil {
			err = before.Verify()
		}
		if err != nil {
			t.Fatalf("%s: %v", c.name, err)
		}
		after := before.Clone()
		got := Module(after)
		if got != c.want || got == 0 && after.String() != before.String() || !strings.Contains(after.String(), c.says) {
			t.Errorf("%s: found %d times, want %d\n%s", c.name, got, c.want, after)
		}
		if err := after.Verify(); err != nil {
			t.Errorf("%s: %v\n%s", c.name, err, after)
		}
		if got > 0 {
			same(t, c.name, before.Funcs()[0], after.Funcs()[0])
		}
	}
}
