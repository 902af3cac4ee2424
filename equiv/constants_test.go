package equiv_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/seed-ee968945/concert/equiv"
	"github.com/seed-ee968945/concert/ir"
)

// Products, minima and maxima of integers that are known are known; a product wraps around.
func TestKnownElements(t *testing.T) {
	c := equationCase{name: "known", input: "T[N,M]", result: "T[N,M]"}
	program := func(dt, red string, value int, op string) *ir.Func {
		over := func(of string) string {
			return fmt.Sprintf("%%c%[1]s = all_reduce.%[2]s %%%[1]s on @row : async T[N,M]\n%%r%[1]s = wait_tensor %%c%[1]s : T[N,M]\n", of, red)
		}
		body := fmt.Sprintf("%%a = full {value=%d} : T[N,M]\n%%b = full {value=%d} : T[N,M]\n", value, value+1)
		if op == "" {
			return c.program(t, body+over("a")+"%y = add %ra, %x : T[N,M]", dt, 2, 2)
		}
		return c.program(t, body+over("a")+over("b")+"%m = "+op+" %ra, %rb : T[N,M]\n%y = add %m, %x : T[N,M]", dt, 2, 2)
	}
	for _, k := range []struct {
		dt, red, op   string
		before, after int
		equal         bool
	}{
		{"i64", "product", "mul", 2, 6, true}, {"i64", "product", "mul", 2, 5, false}, {"i8", "product", "mul", 6, 42, true},
		{"u8", "max", "maximum", 2, 3, true}, {"u8", "max", "maximum", 2, 2, false}, {"i32", "min", "minimum", 2, 2, true}, {"i32", "min", "minimum", 2, 3, false},
	} {
		if _, err := equiv.Check(program(k.dt, k.red, k.before, k.op), program(k.dt, k.red, k.after, ""), equiv.Options{}); (err == nil) != k.equal {
			t.Errorf("%s %s of %d and %d: %v", k.dt, k.red, k.before, k.after, err)
		}
	}
}

// A divisor may be a factor that its type does not hold; a factor that is infinite there is none.
func TestFactorsBeyondRange(t *testing.T) {
	c := equationCase{name: "factors", input: "T[N,M]", result: "T[N,M]"}
	first := "%d = OP : T[N,M]\n%c = all_reduce.avg %d on @all : async T[N,M]\n%y = wait_tensor %c : T[N,M]"
	last := "%c = all_reduce.avg %x on @all : async T[N,M]\n%d = wait_tensor %c : T[N,M]\n%y = OP : T[N,M]"
	for op, equal := range map[string]bool{"div %X {scalar=1e-45}": true, "mul %X {scalar=1e+38}": true, "mul %X {scalar=1e+45}": false, "div %X {scalar=1e-46}": false} {
		before := c.program(t, strings.Replace(first, "OP", strings.Replace(op, "X", "x", 1), 1), "f32", 2, 2)
		after := c.program(t, strings.Replace(last, "OP", strings.Replace(op, "X", "d", 1), 1), "f32", 2, 2)
		if _, err := equiv.Check(before, after, equiv.Options{Reassociate: true}); (err == nil) != equal {
			t.Errorf("%s: %v", op, err)
		}
	}
}

// Integers wrap around as their types do, and what stands for a large number is one: a proof from small
// ones would be wrong. Zero is no number of every type, and has no sign in some.
func TestConstantsOfTypes(t *testing.T) {
	for _, k := range []struct {
		before, after string // of the type that after has
		equal         bool
	}{
		{"%a = full {value=20000} : i16[N]\n%b = add %a, %a : i16[N]\n%z = convert %b : i32[N]", "%z = full {value=40000} : i32[N]", false},
		{"%a = full {value=20000} : i16[N]\n%b = add %a, %a : i16[N]\n%z = convert %b : i32[N]", "%z = full {value=-25536} : i32[N]", true},
		{"%a = full {value=40000} : i16[N]\n%z = convert %a : i32[N]", "%z = full {value=-25536} : i32[N]", true},
		{"%a = full {value=-1} : u16[N]\n%z = convert %a : i32[N]", "%z = full {value=-1} : i32[N]", false},
		{"%a = full {value=-1} : u16[N]\n%z = convert %a : i32[N]", "%z = full {value=65535} : i32[N]", true},
		{"%a = full {value=1} : u32[N]\n%b = sub %a {scalar=2} : u32[N]\n%z = convert %b : i64[N]", "%z = full {value=-1} : i64[N]", false},
		{"%a = full {value=-1} : u64[N]\n%z = gt %a {scalar=1} : bool[N]", "%z = full {value=0} : bool[N]", false},
		{"%a = full {value=5} : u64[N]\n%z = lt %a {scalar=7} : bool[N]", "%z = full {value=1} : bool[N]", true},
		{"%a = full {value=9999999} : i64[N]\n%z = mul %a {scalar=9999999.0} : i64[N]", "%z = full {value=99999980000001} : i64[N]", false},
		{"%a = full {value=0.0} : f8e8m0fnu[N]\n%z = convert %a : f32[N]", "%z = full {value=0.0} : f32[N]", false},
		{"%a = full {value=0.0} : f8e5m2[N]\n%z = convert %a : f32[N]", "%z = full {value=0.0} : f32[N]", true},
		{"%a = full {value=-0.0} : f8e5m2fnuz[N]\n%z = convert %a : f32[N]", "%z = full {value=-0.0} : f32[N]", false},
		{"%a = full {value=-0.0} : f8e5m2[N]\n%z = convert %a : f32[N]", "%z = full {value=-0.0} : f32[N]", true},
		{"%p = collective_permute %x on @all {pairs=[0, 1]} : async f8e8m0fnu[N]\n%w = wait_tensor %p : f8e8m0fnu[N]\n%z = convert %w : f32[N]",
			"%w = convert %x : f32[N]\n%p = collective_permute %w on @all {pairs=[0, 1]} : async f32[N]\n%z = wait_tensor %p : f32[N]", false},
		{"%b = full {value=-0.0} : f8e8m0fnu[N]\n%z = add %x, %b : f8e8m0fnu[N]", "%z = alias %x : f8e8m0fnu[N]", false},
	} {
		c := equationCase{name: "constants", input: "f8e8m0fnu[N]", result: k.after[strings.LastIndex(k.after, " ")+1:]}
		before, after := c.program(t, k.before+"\n%y = view %z : "+c.result, "", 3, 1), c.program(t, k.after+"\n%y = view %z : "+c.result, "", 3, 1)
		if _, err := equiv.Check(before, after, equiv.Options{}); (err == nil) != k.equal {
			t.Errorf("%s\nand %s: %v", k.before, k.after, err)
		}
		if k.equal {
			sameNumbers(t, before, after, 1, false)
		}
	}
}
