package equiv_test

import (
	"strings"
	"testing"

	"github.com/seed-ee968945/concert/equiv"
	"github.com/seed-ee968945/concert/ir"
)

// indexedCases are functions of inputs and a result, with bodies before and after a rewrite that
// keeps what they compute, and after a wrong one. CALL, CALO and CALW stand for calls.
var indexedCases = []struct{ name, inputs, result, before, after, wrong string }{
	{"shard before broadcast", "%x: f32[s], %z: f32[2,4,1]", "f32[2,2,s]",
		"%b = add %x, %z : f32[2,4,s]\n%y = shard %b on @all {dim=1} : f32[2,2,s]",
		"%p = shard %z on @all {dim=1} : f32[2,2,1]\n%y = add %x, %p : f32[2,2,s]",
		"%p = shard %z on @swapped {dim=1} : f32[2,2,1]\n%y = add %x, %p : f32[2,2,s]"},
	{"shard of gather", "%x: f32[3,s]", "f32[3,s]",
		"%c = all_gather %x on @all {dim=1} : async f32[3,2*s]\n%w = wait_tensor %c : f32[3,2*s]\n%n = neg %w : f32[3,2*s]\n%y = shard %n on @all {dim=1} : f32[3,s]",
		"%y = neg %x : f32[3,s]",
		"%y = abs %x : f32[3,s]"},
	{"gather of shard", "%x: f32[2,2*s]", "f32[2,2*s]",
		"%a = all_reduce.product %x on @all : async f32[2,2*s]\n%r = wait_tensor %a : f32[2,2*s]\n%p = shard %r on @all {dim=1} : f32[2,s]\n%c = all_gather %p on @all {dim=1} : async f32[2,2*s]\n%y = wait_tensor %c : f32[2,2*s]",
		"%a = all_reduce.product %x on @all : async f32[2,2*s]\n%y = wait_tensor %a : f32[2,2*s]",
		"%a = all_reduce.sum %x on @all : async f32[2,2*s]\n%y = wait_tensor %a : f32[2,2*s]"},
	{"gathers of ranks that differ", "%x: f32[2,2*s]", "f32[2,2*s]",
		"%p = shard %x on @all {dim=1} : f32[2,s]\n%c = all_gather %p on @all {dim=1} : async f32[2,2*s]\n%y = wait_tensor %c : f32[2,2*s]",
		"%n = shard %x on @all {dim=1} : f32[2,s]\n%c = all_gather %n on @all {dim=1} : async f32[2,2*s]\n%y = wait_tensor %c : f32[2,2*s]",
		"%y = clone %x : f32[2,2*s]"},
	{"operation on what is moved", "%x: f32[2,s]", "f32[2,s]",
		"%c = all_gather %x on @all {dim=0} : async f32[4,s]\n%w = wait_tensor %c : f32[4,s]\n%p = shard %w on @all {dim=0} : f32[2,s]\n%y = softmax %p {dim=1} : f32[2,s]",
		"%y = softmax %x {dim=1} : f32[2,s]",
		"%c = all_gather %x on @all {dim=0} : async f32[4,s]\n%w = wait_tensor %c : f32[4,s]\n%p = shard %w on @swapped {dim=0} : f32[2,s]\n%y = softmax %p {dim=1} : f32[2,s]"},
	{"gather in an operand", "%x: f32[2,s], %z: f32[2,1]", "f32[2,3*s]",
		"%a = all_reduce.sum %z on @all : async f32[2,1]\n%r = wait_tensor %a : f32[2,1]\n%c = all_gather %x on @all {dim=1} : async f32[2,2*s]\n%w = wait_tensor %c : f32[2,2*s]\n%g = mul %w, %r : f32[2,2*s]\n%j = cat %g, %x {dim=1} : f32[2,3*s]\n%y = softmax %j {dim=1} : f32[2,3*s]",
		"%a = all_reduce.sum %z on @all : async f32[2,1]\n%r = wait_tensor %a : f32[2,1]\n%m = mul %x, %r : f32[2,s]\n%c = all_gather %m on @all {dim=1} : async f32[2,2*s]\n%g = wait_tensor %c : f32[2,2*s]\n%j = cat %g, %x {dim=1} : f32[2,3*s]\n%y = softmax %j {dim=1} : f32[2,3*s]",
		"%a = all_reduce.sum %z on @all : async f32[2,1]\n%r = wait_tensor %a : f32[2,1]\n%m = mul %x, %r : f32[2,s]\n%c = all_gather %m on @swapped {dim=1} : async f32[2,2*s]\n%g = wait_tensor %c : f32[2,2*s]\n%j = cat %g, %x {dim=1} : f32[2,3*s]\n%y = softmax %j {dim=1} : f32[2,3*s]"},
	{"shard of pieces put together", "%x: f32[4,s], %z: f32[4,9-s]", "f32[2,9]",
		"%j = cat %x, %z {dim=1} : f32[4,9]\n%y = shard %j on @all {dim=0} : f32[2,9]",
		"%a = shard %x on @all {dim=0} : f32[2,s]\n%b = shard %z on @all {dim=0} : f32[2,9-s]\n%y = cat %a, %b {dim=1} : f32[2,9]",
		"%a = shard %x on @all {dim=0} : f32[2,s]\n%b = shard %z on @swapped {dim=0} : f32[2,9-s]\n%y = cat %a, %b {dim=1} : f32[2,9]"},
	{"slices of what has symbols inside", "%x: f32[4,s]", "f32[2,s]",
		"%a = slice %x {dim=0, end=3} : f32[3,s]\n%n = neg %a : f32[3,s]\n%y = slice %n {dim=0, end=2} : f32[2,s]",
		"%n = neg %x : f32[4,s]\n%y = slice %n {dim=0, end=2} : f32[2,s]",
		"%n = abs %x : f32[4,s]\n%y = slice %n {dim=0, end=2} : f32[2,s]"},
	{"transposed matmul", "%x: f32[s,4], %z: f32[4,3]", "f32[3,s]",
		"%m = matmul %x, %z : f32[s,3]\n%p = permute %m {dims=[1, 0]} : f32[3,s:1,3]\n%y = clone %p : f32[3,s]",
		"%a = permute %z {dims=[1, 0]} : f32[3,4:1,3]\n%b = permute %x {dims=[1, 0]} : f32[4,s:1,4]\n%m = matmul %a, %b : f32[3,s]\n%y = clone %m : f32[3,s]",
		"%a = permute %z {dims=[1, 0]} : f32[3,4:1,3]\n%b = permute %x {dims=[1, 0]} : f32[4,s:1,4]\n%c = cumsum %b {dim=1} : f32[4,s]\n%m = matmul %a, %c : f32[3,s]\n%y = clone %m : f32[3,s]"},
	{"rows of matmuls of matmuls", "%x: f32[s,4], %z: f32[4,4]", "f32[2*s,4]",
		"%a = all_reduce.sum %z on @all : async f32[4,4]\n%r = wait_tensor %a : f32[4,4]\n%c = all_gather %x on @all {dim=0} : async f32[2*s,4]\n%w = wait_tensor %c : f32[2*s,4]\n%m = matmul %w, %r : f32[2*s,4]\n%n = matmul %m, %r : f32[2*s,4]\n%s = amax %n {dims=[1], keepdim=true} : f32[2*s,1]\n%y = sub %n, %s : f32[2*s,4]",
		"%a = all_reduce.sum %z on @all : async f32[4,4]\n%r = wait_tensor %a : f32[4,4]\n%m = matmul %x, %r : f32[s,4]\n%n = matmul %m, %r : f32[s,4]\n%s = amax %n {dims=[1], keepdim=true} : f32[s,1]\n%o = sub %n, %s : f32[s,4]\n%c = all_gather %o on @all {dim=0} : async f32[2*s,4]\n%y = wait_tensor %c : f32[2*s,4]",
		"%a = all_reduce.sum %z on @all : async f32[4,4]\n%r = wait_tensor %a : f32[4,4]\n%m = matmul %x, %r : f32[s,4]\n%n = matmul %r, %r : f32[4,4]\n%i = matmul %m, %n : f32[s,4]\n%s = amax %i {dims=[1], keepdim=true} : f32[s,1]\n%o = sub %i, %s : f32[s,4]\n%c = all_gather %o on @all {dim=0} : async f32[2*s,4]\n%y = wait_tensor %c : f32[2*s,4]"},
	{"sums of as many", "%x: f32[s]", "f32[2,3]",
		"%o = full {value=0.5} : f32[2,s]\n%p = full {value=0.5} : f32[s,3]\n%y = matmul %o, %p : f32[2,3]",
		"%o = full {value=0.5} : f32[3,s]\n%p = full {value=0.5} : f32[s,2]\n%m = matmul %o, %p : f32[3,2]\n%q = permute %m {dims=[1, 0]} : f32[2,3:1,2]\n%y = clone %q : f32[2,3]",
		"%o = full {value=0.5} : f32[2,9-s]\n%p = full {value=0.5} : f32[9-s,3]\n%y = matmul %o, %p : f32[2,3]"},
	{"lines of lines", "%x: f32[s,4], %w: f32[4,4], %z: f32[4,4]", "f32[4,s]",
		"%m = matmul %x, %w : f32[s,4]\n%n = matmul %m, %z : f32[s,4]\n%t = permute %n {dims=[1, 0]} : f32[4,s:1,4]\n%y = clone %t : f32[4,s]",
		"%p = permute %x {dims=[1, 0]} : f32[4,s:1,4]\n%q = permute %w {dims=[1, 0]} : f32[4,4:1,4]\n%r = permute %z {dims=[1, 0]} : f32[4,4:1,4]\n%m = matmul %q, %p : f32[4,s]\n%y = matmul %r, %m : f32[4,s]",
		"%p = permute %x {dims=[1, 0]} : f32[4,s:1,4]\n%q = permute %w {dims=[1, 0]} : f32[4,4:1,4]\n%r = permute %z {dims=[1, 0]} : f32[4,4:1,4]\n%m = matmul %w, %p : f32[4,s]\n%y = matmul %r, %m : f32[4,s]"},
	{"calls within", "%x: f32[s,3], %e: f32[2*s,0]", "f32[2*s,3]",
		"%c = all_gather %x on @all {dim=0} : async f32[2*s,3]\n%w = wait_tensor %c : f32[2*s,3]\n%n = neg %w : f32[2*s,3]\n%r = CALL\n%y = neg %r : f32[2*s,3]",
		"%n = neg %x : f32[s,3]\n%c = all_gather %n on @all {dim=0} : async f32[2*s,3]\n%w = wait_tensor %c : f32[2*s,3]\n%o = clone %w : f32[2*s,3]\n%r = CALO\n%y = neg %r : f32[2*s,3]",
		"%c = all_gather %x on @swapped {dim=0} : async f32[2*s,3]\n%w = wait_tensor %c : f32[2*s,3]\n%n = neg %w : f32[2*s,3]\n%r = CALL\n%y = neg %r : f32[2*s,3]"},
	{"collectives that are not looked into", "%x: f32[s,3]", "f32[2*s,3]",
		"%n = neg %x : f32[s,3]\n%c = all_gather %n on @all {dim=0} : async f32[2*s,3]\n%w = wait_tensor %c : f32[2*s,3]\n%h = CALW\n%r = wait_tensor %h : f32[2*s,3]\n%y = neg %r : f32[2*s,3]",
		"%c = all_gather %x on @all {dim=0} : async f32[2*s,3]\n%n = wait_tensor %c : f32[2*s,3]\n%w = neg %n : f32[2*s,3]\n%h = CALW\n%r = wait_tensor %h : f32[2*s,3]\n%y = neg %r : f32[2*s,3]",
		"%c = all_gather %x on @swapped {dim=0} : async f32[2*s,3]\n%n = wait_tensor %c : f32[2*s,3]\n%w = neg %n : f32[2*s,3]\n%h = CALW\n%r = wait_tensor %h : f32[2*s,3]\n%y = neg %r : f32[2*s,3]"},
}

// Where sizes are symbols, what moves along any dimension is proved at an index that
// stands for all, and what is wrong is not.
func TestIndexed(t *testing.T) {
	const call = `call %OF, %e {class="memory", target="flip"} : f32[2*s,3]`
	calls := strings.NewReplacer("\n", "\n  ", "CALL", strings.Replace(call, "OF", "n", 1), "CALO", strings.Replace(call, "OF", "o", 1), "CALW", `async_call %w on @all {target="twice"} : async f32[2*s,3]`)
	for _, c := range indexedCases {
		t.Run(c.name, func(t *testing.T) {
			read := func(body string) *ir.Func {
				text := "world 2\ngroup @all = [[0, 1]]\ngroup @swapped = [[1, 0]]\nsym s hint 2 max 9\nfunc @f(" + c.inputs + ") -> (" + c.result + ") {\n  " + calls.Replace(body) + "\n  return %y\n}\n"
				m, err := ir.Parse("case.ir", text)
				if err == nil {
					err = m.Verify()
				}
				if err != nil {
					t.Fatalf("%v\n%s", err, text)
				}
				return m.Funcs()[0]
			}
			if _, err := equiv.Check(read(c.before), read(c.after), equiv.Options{}); err != nil {
				t.Error(err)
			}
			if _, err := equiv.Check(read(c.before), read(c.wrong), equiv.Options{}); err == nil {
				t.Error("the wrong one is proved")
			}
		})
	}
}

// What only looks alike is not equal: sums of constants of as many elements as a symbol says, which
// differ by rank, and conversions to two types of what is equal element by element.
func TestAlike(t *testing.T) {
	const other = "%n = neg %x : f32[3]\n%i = iota : i64[3]\n%b = lt %i {scalar=9} : bool[3]\n%w = where %b, %x, %n : f32[3]\n"
	const sums = "%o = full {value=1.0} : f32[s]\n%m = sum %o {dims=[0]} : f32[]\n%e = expand %m : f32[3:0]\n"
	for _, c := range []struct {
		name, before, after string
		equal               bool
	}{
		{"elements", other + "%c = convert %w : bf16[3]\n%y = convert %c : f32[3]", "%c = convert %x : bf16[3]\n%y = convert %c : f32[3]", true},
		{"types", other + "%c = convert %w : bf16[3]\n%y = convert %c : f32[3]", "%c = convert %x : f16[3]\n%y = convert %c : f32[3]", false},
		{"sizes", "%i = iota : i64[3]\n%m = sum %i {dims=[0]} : i64[]\n%c = convert %m : f32[]\n%y = add %x, %c : f32[3]", "%i = iota : i64[4]\n%m = sum %i {dims=[0]} : i64[]\n%c = convert %m : f32[]\n%y = add %x, %c : f32[3]", false},
		{"ranks", sums + "%c = broadcast %m on @all {root=0} : async f32[]\n%w = wait_tensor %c : f32[]\n%y = add %x, %w : f32[3]", sums + "%y = add %x, %e : f32[3]", false},
		{"ranks by index", sums + "%c = cat %x, %z {dim=0} : f32[3+s]\n%d = sum %c {dims=[0]} : f32[]\n%f = broadcast %m on @all {root=1} : async f32[]\n%w = wait_tensor %f : f32[]\n%y = add %x, %w : f32[3]", sums + "%y = add %x, %e : f32[3]", false},
		{"constants of equal sizes", "%r = all_reduce.max %z on @all : async f32[s]\n%w = wait_tensor %r : f32[s]\n%o = full {value=1.0} : f32[s]\n%a = add %w, %o : f32[s]\n%m = sum %a {dims=[0]} : f32[]\n%c = broadcast %m on @all {root=0} : async f32[]\n%v = wait_tensor %c : f32[]\n%y = add %x, %v : f32[3]",
			"%r = all_reduce.max %z on @all : async f32[s]\n%w = wait_tensor %r : f32[s]\n%o = full {value=1.0} : f32[s]\n%a = add %w, %o : f32[s]\n%m = sum %a {dims=[0]} : f32[]\n%y = add %x, %m : f32[3]", true},
	} {
		read := func(body string) *ir.Func {
			return parsedLoop(t, "world 2\ngroup @all = [[0, 1]]\nsym s hint 2 max 9\nfunc @f(%x: f32[3], %z: f32[s]) -> (f32[3]) {\n"+body+"\n  return %y\n}\n")
		}
		if _, err := equiv.Check(read(c.before), read(c.after), equiv.Options{}); (err == nil) != c.equal {
			t.Errorf("%s: %v", c.name, err)
		}
	}
}
