package equiv_test

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/seed-ee968945/concert/equiv"
	"github.com/seed-ee968945/concert/interp"
	"github.com/seed-ee968945/concert/ir"
)

// equationCase shows an equation: before equals after by it and not without it, and does
// not equal wrong. T is an element type, N and M are sizes; 4N is their multiple.
type equationCase struct {
	name                 string
	types                string // element types, by spaces
	input                string // of T, [N,M] each
	before, after, wrong string // what the function does; it returns %y
	result               string // its type
	loose                bool   // floats are reassociated
	exactInts            bool   // and integers need no permission for that
}

const allFloats, someInts = "f32 bf16 f16 f64", "i32 i64"

var equationCases = []equationCase{
	{name: "move-of-itself", types: allFloats, input: "T[N,M]", result: "T[M]",
		before: "%p = permute %x {dims=[1, 0]} : T[M,N:1,M]\n%q = permute %p {dims=[1, 0]} : T[N,M]\n%y = sum %q {dims=[0]} : T[M]",
		after:  "%y = sum %x {dims=[0]} : T[M]",
		wrong:  "%n = neg %x : T[N,M]\n%y = sum %n {dims=[0]} : T[M]"},
	{name: "move-of-constant", types: allFloats, input: "T[N,M]", result: "T[N,M]",
		before: "%f = full {value=2.0} : T[4N,M]\n%s = shard %f on @all {dim=0} : T[N,M]\n%y = add %x, %s : T[N,M]",
		after:  "%s = full {value=2.0} : T[N,M]\n%y = add %x, %s : T[N,M]",
		wrong:  "%s = full {value=3.0} : T[N,M]\n%y = add %x, %s : T[N,M]"},
	{name: "move-of-move", types: allFloats + " " + someInts, input: "T[N,M]", result: "T[4N,M]",
		before: "%c = all_gather %x on @row {dim=0} : async T[2N,M]\n%w = wait_tensor %c : T[2N,M]\n%d = all_gather %w on @column {dim=0} : async T[4N,M]\n%y = wait_tensor %d : T[4N,M]",
		after:  "%c = all_gather %x on @all {dim=0} : async T[4N,M]\n%y = wait_tensor %c : T[4N,M]",
		wrong:  "%c = all_gather %x on @back {dim=0} : async T[4N,M]\n%y = wait_tensor %c : T[4N,M]"},
	{name: "move-of-pointwise", types: allFloats, input: "T[N,M]", result: "T[4N,M]",
		before: "%c = all_gather %x on @all {dim=0} : async T[4N,M]\n%w = wait_tensor %c : T[4N,M]\n%y = tanh %w : T[4N,M]",
		after:  "%t = tanh %x : T[N,M]\n%c = all_gather %t on @all {dim=0} : async T[4N,M]\n%y = wait_tensor %c : T[4N,M]",
		wrong:  "%t = sigmoid %x : T[N,M]\n%c = all_gather %t on @all {dim=0} : async T[4N,M]\n%y = wait_tensor %c : T[4N,M]"},
	{name: "move-of-reduce", types: allFloats + " " + someInts, input: "T[4N,M]", result: "T[N,M]",
		before: "%c = all_reduce.sum %x on @row : async T[4N,M]\n%w = wait_tensor %c : T[4N,M]\n%y = slice %w {dim=0, start=0, end=N} : T[N,M]",
		after:  "%s = slice %x {dim=0, start=0, end=N} : T[N,M]\n%c = all_reduce.sum %s on @row : async T[N,M]\n%y = wait_tensor %c : T[N,M]",
		wrong:  "%s = slice %x {dim=0, start=N, end=2N} : T[N,M]\n%c = all_reduce.sum %s on @row : async T[N,M]\n%y = wait_tensor %c : T[N,M]"},
	{name: "reduce-of-move", types: allFloats + " " + someInts, input: "T[N,M]", result: "T[2N,M]",
		before: "%c = all_gather %x on @row {dim=0} : async T[2N,M]\n%w = wait_tensor %c : T[2N,M]\n%d = all_reduce.sum %w on @column : async T[2N,M]\n%y = wait_tensor %d : T[2N,M]",
		after:  "%c = all_reduce.sum %x on @column : async T[N,M]\n%w = wait_tensor %c : T[N,M]\n%d = all_gather %w on @row {dim=0} : async T[2N,M]\n%y = wait_tensor %d : T[2N,M]",
		wrong:  "%c = all_reduce.sum %x on @row : async T[N,M]\n%w = wait_tensor %c : T[N,M]\n%d = all_gather %w on @column {dim=0} : async T[2N,M]\n%y = wait_tensor %d : T[2N,M]"},
	{name: "reduce-over-equal", types: allFloats + " " + someInts, input: "T[N,M]", result: "T[N,M]",
		before: "%c = all_reduce.max %x on @all : async T[N,M]\n%w = wait_tensor %c : T[N,M]\n%d = all_reduce.sum %w on @row : async T[N,M]\n%y = wait_tensor %d : T[N,M]",
		after:  "%c = all_reduce.max %x on @all : async T[N,M]\n%w = wait_tensor %c : T[N,M]\n%d = all_reduce.sum %w on @column : async T[N,M]\n%y = wait_tensor %d : T[N,M]",
		wrong:  "%c = all_reduce.max %x on @all : async T[N,M]\n%w = wait_tensor %c : T[N,M]\n%d = all_reduce.sum %w on @all : async T[N,M]\n%y = wait_tensor %d : T[N,M]"},
	{name: "reduce-of-one", types: allFloats + " " + someInts, input: "T[N,M]", result: "T[N,M]",
		before: "%c = all_reduce.sum %x on @one : async T[N,M]\n%w = wait_tensor %c : T[N,M]\n%y = neg %w : T[N,M]",
		after:  "%y = neg %x : T[N,M]",
		wrong:  "%c = all_reduce.sum %x on @row : async T[N,M]\n%w = wait_tensor %c : T[N,M]\n%y = neg %w : T[N,M]"},
	{name: "reduce-of-equal", types: "f64 " + someInts, input: "T[N,M]", result: "T[N,M]", loose: true, exactInts: true,
		before: "%c = all_reduce.max %x on @all : async T[N,M]\n%w = wait_tensor %c : T[N,M]\n%d = all_reduce.sum %w on @row : async T[N,M]\n%y = wait_tensor %d : T[N,M]",
		after:  "%c = all_reduce.max %x on @all : async T[N,M]\n%w = wait_tensor %c : T[N,M]\n%y = mul %w {scalar=2} : T[N,M]",
		wrong:  "%c = all_reduce.max %x on @all : async T[N,M]\n%w = wait_tensor %c : T[N,M]\n%y = mul %w {scalar=4} : T[N,M]"},
	{name: "reduce-of-reduce", types: "f64 " + someInts, input: "T[N,M]", result: "T[N,M]", loose: true, exactInts: true,
		before: "%c = all_reduce.sum %x on @row : async T[N,M]\n%w = wait_tensor %c : T[N,M]\n%d = all_reduce.sum %w on @column : async T[N,M]\n%y = wait_tensor %d : T[N,M]",
		after:  "%c = all_reduce.sum %x on @all : async T[N,M]\n%y = wait_tensor %c : T[N,M]",
		wrong:  "%c = all_reduce.sum %x on @row : async T[N,M]\n%y = wait_tensor %c : T[N,M]"},
	{name: "reduce-of-monotone", types: "f32 bf16 f16", input: "T[N,M]", result: "f64[N,M]",
		before: "%v = convert %x : f64[N,M]\n%c = all_reduce.min %v on @all : async f64[N,M]\n%y = wait_tensor %c : f64[N,M]",
		after:  "%c = all_reduce.min %x on @all : async T[N,M]\n%w = wait_tensor %c : T[N,M]\n%y = convert %w : f64[N,M]",
		wrong:  "%c = all_reduce.sum %x on @all : async T[N,M]\n%w = wait_tensor %c : T[N,M]\n%y = convert %w : f64[N,M]"},
	{name: "reduce-of-linear", types: "f64 " + someInts, input: "T[N,M]", result: "T[N,M]", loose: true, exactInts: true,
		before: "%v = neg %x : T[N,M]\n%c = all_reduce.sum %v on @all : async T[N,M]\n%y = wait_tensor %c : T[N,M]",
		after:  "%c = all_reduce.sum %x on @all : async T[N,M]\n%w = wait_tensor %c : T[N,M]\n%y = neg %w : T[N,M]",
		wrong:  "%c = all_reduce.max %x on @all : async T[N,M]\n%w = wait_tensor %c : T[N,M]\n%y = neg %w : T[N,M]"},
	{name: "average-is-quotient", types: "f32 f64", input: "T[N,M]", result: "T[N,M]",
		before: "%c = all_reduce.avg %x on @all : async T[N,M]\n%y = wait_tensor %c : T[N,M]",
		after:  "%c = all_reduce.sum %x on @all : async T[N,M]\n%w = wait_tensor %c : T[N,M]\n%y = div %w {scalar=4.0} : T[N,M]",
		wrong:  "%c = all_reduce.sum %x on @all : async T[N,M]\n%w = wait_tensor %c : T[N,M]\n%y = div %w {scalar=2.0} : T[N,M]"},
	{name: "sum-in-narrow", types: "bf16 f16", input: "T[N,M]", result: "T[N,M]",
		before: "%v = convert %x : f32[N,M]\n%c = all_reduce.sum %v on @all : async f32[N,M]\n%w = wait_tensor %c : f32[N,M]\n%y = convert %w : T[N,M]",
		after:  "%c = all_reduce.sum %x on @all : async T[N,M]\n%y = wait_tensor %c : T[N,M]",
		wrong:  "%c = all_reduce.sum %x on @row : async T[N,M]\n%y = wait_tensor %c : T[N,M]"},
	{name: "there-and-back", types: "bf16 f16 f32", input: "T[N,M]", result: "T[N,M]",
		before: "%v = convert %x : f64[N,M]\n%w = convert %v : T[N,M]\n%y = neg %w : T[N,M]",
		after:  "%y = neg %x : T[N,M]",
		wrong:  "%v = convert %x : i32[N,M]\n%w = convert %v : T[N,M]\n%y = neg %w : T[N,M]"},
	{name: "convert-to-same", types: allFloats + " " + someInts, input: "T[N,M]", result: "T[N,M]",
		before: "%v = convert %x : T[N,M]\n%y = neg %v : T[N,M]",
		after:  "%y = neg %x : T[N,M]",
		wrong:  "%v = neg %x : T[N,M]\n%y = neg %v : T[N,M]"},
	{name: "convert-of-choice", types: "bf16 f16 f32", input: "T[N,M]", result: "f64[N,M]",
		before: "%c = collective_permute %x on @all {pairs=[0, 1, 1, 2]} : async T[N,M]\n%w = wait_tensor %c : T[N,M]\n%y = convert %w : f64[N,M]",
		after:  "%v = convert %x : f64[N,M]\n%c = collective_permute %v on @all {pairs=[0, 1, 1, 2]} : async f64[N,M]\n%y = wait_tensor %c : f64[N,M]",
		wrong:  "%v = convert %x : f64[N,M]\n%c = collective_permute %v on @all {pairs=[0, 2, 1, 3]} : async f64[N,M]\n%y = wait_tensor %c : f64[N,M]"},
	{name: "factor-of-factor", types: "f64 " + someInts, input: "T[N,M]", result: "T[N,M]", loose: true, exactInts: true,
		before: "%v = mul %x {scalar=3} : T[N,M]\n%y = mul %v {scalar=5} : T[N,M]",
		after:  "%y = mul %x {scalar=15} : T[N,M]",
		wrong:  "%y = mul %x {scalar=8} : T[N,M]"},
	{name: "factor-of-sum", types: "f64 " + someInts, input: "T[N,M]", result: "T[N,M]", loose: true, exactInts: true,
		before: "%v = neg %x : T[N,M]\n%y = mul %v {scalar=3} : T[N,M]",
		after:  "%v = mul %x {scalar=3} : T[N,M]\n%y = neg %v : T[N,M]",
		wrong:  "%y = mul %x {scalar=3} : T[N,M]"},
	{name: "lookup-at-known", types: allFloats, input: "T[4N,M]", result: "T[N,M]",
		before: "%i = iota {start=N} : i64[N]\n%y = embedding %x, %i : T[N,M]",
		after:  "%s = slice %x {dim=0, start=N, end=2N} : T[N,M]\n%y = clone %s : T[N,M]",
		wrong:  "%s = slice %x {dim=0, start=0, end=N} : T[N,M]\n%y = clone %s : T[N,M]"},
	{name: "move-of-lookup", types: allFloats, input: "T[4N,M]", result: "T[N,M]",
		before: "%h = iota {step=1} : i64[2N]\n%i = rand : f32[2N]\n%j = mul %i {scalar=3.0} : f32[2N]\n%k = convert %j : i64[2N]\n%e = embedding %x, %k : T[2N,M]\n%y = slice %e {dim=0, start=0, end=N} : T[N,M]",
		after:  "%i = rand : f32[2N]\n%j = mul %i {scalar=3.0} : f32[2N]\n%k = convert %j : i64[2N]\n%s = slice %k {dim=0, start=0, end=N} : i64[N]\n%y = embedding %x, %s : T[N,M]",
		wrong:  "%i = rand : f32[2N]\n%j = mul %i {scalar=3.0} : f32[2N]\n%k = convert %j : i64[2N]\n%s = slice %k {dim=0, start=N, end=2N} : i64[N]\n%y = embedding %x, %s : T[N,M]"},
}

// program is a case's function for one element type and sizes.
func (c equationCase) program(t *testing.T, body, dt string, n, m int) *ir.Func {
	t.Helper()
	text := "world 4\ngroup @all = [[0, 1, 2, 3]]\ngroup @row = [[0, 1], [2, 3]]\ngroup @column = [[0, 2], [1, 3]]\ngroup @back = [[3, 2, 1, 0]]\ngroup @one = [[0], [1], [2], [3]]\n" +
		"func @f(%x: " + c.input + ") -> (" + c.result + ") {\n" + body + "\nreturn %y\n}\n"
	text = strings.ReplaceAll(text, "T[", dt+"[")
	text = strings.NewReplacer("4N", fmt.Sprint(4*n), "2N", fmt.Sprint(2*n), "=N", fmt.Sprint("=", n), "[N", fmt.Sprint("[", n), ",M", fmt.Sprint(",", m), "[M", fmt.Sprint("[", m), ",N", fmt.Sprint(",", n)).Replace(text)
	module, err := ir.Parse(c.name, text)
	if err == nil {
		err = module.Verify()
	}
	if err != nil {
		t.Fatalf("%s: %v\n%s", c.name, err, text)
	}
	return module.Funcs()[0]
}

// Every case is proved by its equation, not without it, and its wrong twin never; and
// both sides give the same numbers on all ranks, bit by bit where the equation is
// exact, with signed zeros, infinities and NaN among the inputs.
func TestEquations(t *testing.T) {
	shown := map[string]bool{}
	for _, c := range equationCases {
		shown[c.name] = true
		t.Run(c.name, func(t *testing.T) {
			for i, dt := range strings.Fields(c.types) {
				for seed := range uint64(6) {
					r := rand.New(rand.NewPCG(seed, uint64(i)))
					n, m := 2+r.IntN(4), 2+r.IntN(3)
					before, after, wrong := c.program(t, c.before, dt, n, m), c.program(t, c.after, dt, n, m), c.program(t, c.wrong, dt, n, m)
					o := equiv.Options{Reassociate: c.loose && !(c.exactInts && dt[0] == 'i')}
					if _, err := equiv.Check(before, after, o); err != nil {
						t.Fatalf("%s[%d,%d]: %v", dt, n, m, err)
					}
					if _, err := equiv.Check(before, wrong, o); err == nil {
						t.Fatalf("%s[%d,%d]: what is wrong is proved", dt, n, m)
					}
					o.Without = []string{c.name}
					if _, err := equiv.Check(before, after, o); err == nil {
						t.Fatalf("%s[%d,%d]: proved without the equation", dt, n, m)
					}
					o = equiv.Options{}
					if _, err := equiv.Check(before, after, o); c.loose && dt[0] != 'i' && err == nil {
						t.Fatalf("%s[%d,%d]: proved although reassociation is not allowed", dt, n, m)
					}
					sameNumbers(t, before, after, seed, c.loose && dt[0] != 'i')
				}
			}
		})
	}
	// Those that other tests show: the traced graphs, mutants and the property tests of passes.
	elsewhere := []string{"shuffle-of-constant", "shuffle-of-pointwise", "reduce-of-moved", "reduce-of-shuffle", "rows-of-owners",
		"sum-of-combined-rows", "sum-of-combined-rows-pointwise", "sum-of-added-rows", "sum-of-added-rows-pointwise"}
	for _, e := range equiv.Equations() {
		if e.Statement == "" || !shown[e.Name] && !slices.Contains(elsewhere, e.Name) {
			t.Errorf("no case shows equation %s", e.Name)
		}
	}
}

// sameNumbers runs both on random inputs and on extremes.
func sameNumbers(t *testing.T, before, after *ir.Func, seed uint64, loose bool) {
	t.Helper()
	in, err := interp.RandomInputs(before, seed, interp.RandomOptions{})
	if err != nil {
		t.Fatal(err)
	}
	r := rand.New(rand.NewPCG(seed, 17))
	if !loose {
		odd := []float64{0, math.Copysign(0, -1), math.Inf(1), math.Inf(-1), math.NaN(), 1e-40, -1e-40, 6e4, -3}
		for rank := range in {
			for k, x := range in[rank] {
				if !x.DType.IsFloat() || seed%2 == 0 {
					continue
				}
				vals := x.Float64s()
				for i := range vals {
					vals[i] = odd[r.IntN(len(odd))]
				}
				if in[rank][k], err = interp.FromFloats(x.DType, vals, x.Shape...); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
	run := func(f *ir.Func) [][]interp.Tensor {
		out, err := interp.Run(context.Background(), f, in, interp.Options{Poison: true, Seed: 1})
		if err != nil {
			t.Fatal(err)
		}
		return out
	}
	want, got := run(before), run(after)
	for rank := range want {
		x, y := want[rank][0].Float64s(), got[rank][0].Float64s()
		for i := range x {
			same := math.Float64bits(x[i]) == math.Float64bits(y[i]) || math.IsNaN(x[i]) && math.IsNaN(y[i])
			if loose {
				same = math.Abs(x[i]-y[i]) <= 1e-12*(1+math.Abs(x[i]))
			}
			if !same {
				t.Fatalf("rank %d, element %d: %v and %v", rank, i, x[i], y[i])
			}
		}
	}
}
