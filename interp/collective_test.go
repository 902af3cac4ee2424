package interp

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/seed-ee968945/concert/ir"
)

// parse reads and verifies a module and returns its first function.
func parse(t testing.TB, text string) *ir.Func {
	t.Helper()
	m, err := ir.Parse("t.ir", text)
	if err != nil {
		t.Fatal(err)
	}
	if err := m.Verify(); err != nil {
		t.Fatal(err)
	}
	return m.Funcs()[0]
}

// tensor makes a tensor of the first numbers; it fails the test on a mistake.
func tensor(t testing.TB, dt ir.DType, vals []float64, shape ...int64) Tensor {
	t.Helper()
	x, err := FromFloats(dt, vals, shape...)
	if err != nil {
		t.Fatal(err)
	}
	return x
}

// seq is start, start+1, ...
func seq(start float64, n int) []float64 {
	out := make([]float64, n)
	for i := range out {
		out[i] = start + float64(i)
	}
	return out
}

func each(ranks ...Tensor) [][]Tensor {
	out := make([][]Tensor, len(ranks))
	for i, t := range ranks {
		out[i] = []Tensor{t}
	}
	return out
}

func run(t testing.TB, f *ir.Func, in [][]Tensor, o Options) [][]Tensor {
	t.Helper()
	out, err := Run(context.Background(), f, in, o)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// want compares an output's numbers exactly.
func want(t testing.TB, out [][]Tensor, rank, i int, vals ...float64) {
	t.Helper()
	got := out[rank][i].Float64s()
	if len(got) != len(vals) {
		t.Fatalf("rank %d output %d: %s, want %v", rank, i, out[rank][i], vals)
	}
	for k := range got {
		if got[k] != vals[k] {
			t.Fatalf("rank %d output %d: %s, want %v", rank, i, out[rank][i], vals)
		}
	}
}

// collectiveText is a function of one collective and its wait.
func collectiveText(header, op, in, out string) string {
	return header + "\nfunc @f(%x: " + in + ") -> (" + out + ") {\n  %c = " + op + " : async " + out +
		"\n  %y = wait_tensor %c : " + out + "\n  return %y\n}\n"
}

const two = "world 2\ngroup @g = [[0, 1]]\n"
const three = "world 3\ngroup @g = [[0, 1, 2]]\n"

// collectiveCase gives each rank's operand and result.
type collectiveCase struct {
	name, text string
	in         [][]float64
	shape      []int64
	dt         ir.DType
	want       [][]float64
}

var collectiveCases = []collectiveCase{
	{"all_reduce.sum", collectiveText(three, "all_reduce.sum %x on @g", "f32[2]", "f32[2]"),
		[][]float64{{1, 2}, {10, 20}, {100, 200}}, []int64{2}, ir.F32, [][]float64{{111, 222}, {111, 222}, {111, 222}}},
	{"all_reduce.avg", collectiveText(two, "all_reduce.avg %x on @g", "f32[2]", "f32[2]"),
		[][]float64{{1, 2}, {2, 6}}, []int64{2}, ir.F32, [][]float64{{1.5, 4}, {1.5, 4}}},
	{"all_reduce.product", collectiveText(three, "all_reduce.product %x on @g", "i32[2]", "i32[2]"),
		[][]float64{{1, -2}, {3, 4}, {5, 6}}, []int64{2}, ir.I32, [][]float64{{15, -48}, {15, -48}, {15, -48}}},
	{"all_reduce.min", collectiveText(two, "all_reduce.min %x on @g", "f64[3]", "f64[3]"),
		[][]float64{{1, 5, -2}, {2, 4, -3}}, []int64{3}, ir.F64, [][]float64{{1, 4, -3}, {1, 4, -3}}},
	{"all_reduce.max", collectiveText(two, "all_reduce.max %x on @g", "i64[3]", "i64[3]"),
		[][]float64{{1, 5, -2}, {2, 4, -3}}, []int64{3}, ir.I64, [][]float64{{2, 5, -2}, {2, 5, -2}}},
	{"all_gather", collectiveText(two, "all_gather %x on @g", "f32[1,2]", "f32[2,2]"),
		[][]float64{{1, 2}, {3, 4}}, []int64{1, 2}, ir.F32, [][]float64{{1, 2, 3, 4}, {1, 2, 3, 4}}},
	{"all_gather dim 1", collectiveText(two, "all_gather %x on @g {dim=1}", "f32[2,2]", "f32[2,4]"),
		[][]float64{{1, 2, 3, 4}, {5, 6, 7, 8}}, []int64{2, 2}, ir.F32, [][]float64{{1, 2, 5, 6, 3, 4, 7, 8}, {1, 2, 5, 6, 3, 4, 7, 8}}},
	{"all_gather in group order", collectiveText("world 2\ngroup @g = [[1, 0]]\n", "all_gather %x on @g", "i8[1]", "i8[2]"),
		[][]float64{{1}, {2}}, []int64{1}, ir.I8, [][]float64{{2, 1}, {2, 1}}},
	{"reduce_scatter dim 1, the example of StableHLO's specification", collectiveText(two, "reduce_scatter.sum %x on @g {dim=1}", "i64[2,4]", "i64[2,2]"),
		[][]float64{{1, 2, 3, 4, 5, 6, 7, 8}, {9, 10, 11, 12, 13, 14, 15, 16}}, []int64{2, 4}, ir.I64, [][]float64{{10, 12, 18, 20}, {14, 16, 22, 24}}},
	{"reduce_scatter dim 0", collectiveText(two, "reduce_scatter.max %x on @g", "f16[4]", "f16[2]"),
		[][]float64{{1, 2, 3, 4}, {4, 3, 2, 1}}, []int64{4}, ir.F16, [][]float64{{4, 3}, {3, 4}}},
	{"all_to_all", collectiveText(three, "all_to_all %x on @g", "u8[6]", "u8[6]"),
		[][]float64{{0, 1, 2, 3, 4, 5}, {10, 11, 12, 13, 14, 15}, {20, 21, 22, 23, 24, 25}}, []int64{6}, ir.U8,
		[][]float64{{0, 1, 10, 11, 20, 21}, {2, 3, 12, 13, 22, 23}, {4, 5, 14, 15, 24, 25}}},
	{"broadcast", collectiveText(three, "broadcast %x on @g {root=1}", "bf16[2]", "bf16[2]"),
		[][]float64{{1, 2}, {3, 4}, {5, 6}}, []int64{2}, ir.BF16, [][]float64{{3, 4}, {3, 4}, {3, 4}}},
	{"collective_permute", collectiveText(three, "collective_permute %x on @g {pairs=[0, 1, 1, 2]}", "f32[2]", "f32[2]"),
		[][]float64{{1, 2}, {3, 4}, {5, 6}}, []int64{2}, ir.F32, [][]float64{{0, 0}, {1, 2}, {3, 4}}},
	{"async_call", collectiveText(two, `async_call %x on @g {target="swap"}`, "f32[2]", "f32[2]"),
		[][]float64{{1, 2}, {3, 4}}, []int64{2}, ir.F32, [][]float64{{3, 4}, {1, 2}}},
	{"subgroups", collectiveText("world 4\ngroup @g = [[0, 2], [3, 1]]\n", "reduce_scatter.sum %x on @g", "i32[2]", "i32[1]"),
		[][]float64{{1, 2}, {10, 20}, {100, 200}, {1000, 2000}}, []int64{2}, ir.I32, [][]float64{{101}, {2020}, {202}, {1010}}},
}

func TestCollectives(t *testing.T) {
	swap := func(_ context.Context, c *Call) error { // which sees all ranks
		copy(c.Results[0][0].Data, c.Args[1][0].Data)
		copy(c.Results[1][0].Data, c.Args[0][0].Data)
		return nil
	}
	for _, c := range collectiveCases {
		t.Run(c.name, func(t *testing.T) {
			f := parse(t, c.text)
			in := make([][]Tensor, len(c.in))
			for r := range in {
				in[r] = []Tensor{tensor(t, c.dt, c.in[r], c.shape...)}
			}
			for _, poison := range []bool{false, true} {
				out := run(t, f, in, Options{Poison: poison, Calls: map[string]CallFunc{"swap": swap}})
				for r := range out {
					want(t, out, r, 0, c.want[r]...)
				}
			}
		})
	}
}

// A shard is the piece at the rank's place in its subgroup, which need not be its number.
func TestShard(t *testing.T) {
	f := parse(t, "world 4\ngroup @g = [[0, 2], [3, 1]]\nfunc @f(%x: i32[2,4]) -> (i32[1,4], i32[2,2]) {\n"+
		"  %a = shard %x on @g {dim=0} : i32[1,4]\n  %b = shard %x on @g {dim=1} : i32[2,2]\n  return %a, %b\n}\n")
	var in [][]Tensor
	for r := range 4 {
		in = append(in, []Tensor{tensor(t, ir.I32, seq(float64(10*r), 8), 2, 4)})
	}
	out := run(t, f, in, Options{})
	for r, at := range []float64{0, 1, 1, 0} { // ranks 0 and 3 stand first
		s := float64(10 * r)
		want(t, out, r, 0, s+4*at, s+4*at+1, s+4*at+2, s+4*at+3)
		want(t, out, r, 1, s+2*at, s+2*at+1, s+2*at+4, s+2*at+5)
	}
}

// A bf16 sum of many ranks is rounded once: 256 + 1 + 1 + ... would stay at 256
// if every step rounded.
func TestReduceRoundsOnce(t *testing.T) {
	f := parse(t, collectiveText("world 8\ngroup @g = [[0, 1, 2, 3, 4, 5, 6, 7]]\n", "all_reduce.sum %x on @g", "bf16[1]", "bf16[1]"))
	in := each(tensor(t, ir.BF16, []float64{256}, 1))
	for range 7 {
		in = append(in, []Tensor{tensor(t, ir.BF16, []float64{1}, 1)})
	}
	out := run(t, f, in, Options{})
	for r := range out {
		want(t, out, r, 0, 264) // 263 lies between 262 and 264
	}
}

// A bucket is its members one by one, also with mixed types and strided operands.
func TestVariadic(t *testing.T) {
	f := parse(t, two+`func @f(%x: f32[2,2], %y: i32[4]) -> (f32[1,2], i32[2]) {
  %xt = permute %x {dims=[1, 0]} : f32[2,2:1,2]
  %c = reduce_scatter.sum %xt, %y on @g : async(f32[1,2], i32[2])
  %w:2 = wait_tensor %c : f32[1,2], i32[2]
  return %w#0, %w#1
}
`)
	in := [][]Tensor{
		{tensor(t, ir.F32, seq(1, 4), 2, 2), tensor(t, ir.I32, seq(0, 4), 4)},
		{tensor(t, ir.F32, seq(10, 4), 2, 2), tensor(t, ir.I32, seq(100, 4), 4)},
	}
	out := run(t, f, in, Options{Poison: true})
	want(t, out, 0, 0, 1+10, 3+12)
	want(t, out, 1, 0, 2+11, 4+13)
	want(t, out, 0, 1, 100, 102)
	want(t, out, 1, 1, 104, 106)
}

const uneven = `world 2
group @g = [[0, 1]]
sym a hint 1 max 8
sym b hint 1 max 8
sym c hint 1 max 8
sym d hint 1 max 8

func @f(%x: f32[a+b,2]) -> (f32[c+d,2]) {
  %s = all_to_all %x on @g {in_splits=["a,b"], out_splits=["c,d"]} : async f32[c+d,2]
  %y = wait_tensor %s : f32[c+d,2]
  return %y
}
`

// Rank 0 keeps 1 row and sends 2; rank 1 sends 3 and keeps none.
func TestUnevenAllToAll(t *testing.T) {
	f := parse(t, uneven)
	in := each(tensor(t, ir.F32, seq(0, 6), 3, 2), tensor(t, ir.F32, seq(10, 6), 3, 2))
	syms := []map[string]int64{{"a": 1, "b": 2, "c": 1, "d": 3}, {"a": 3, "b": 0, "c": 2, "d": 0}}
	out := run(t, f, in, Options{Symbols: syms, Poison: true})
	want(t, out, 0, 0, 0, 1, 10, 11, 12, 13, 14, 15)
	want(t, out, 1, 0, 2, 3, 4, 5)
}

func TestCollectiveErrors(t *testing.T) {
	f := parse(t, uneven)
	in := each(tensor(t, ir.F32, seq(0, 6), 3, 2), tensor(t, ir.F32, seq(10, 6), 3, 2))
	g := parse(t, two+`sym s hint 1 max 8
func @f(%x: f32[s]) -> (f32[s]) {
  %c = all_reduce.sum %x on @g : async f32[s]
  %y = wait_tensor %c : f32[s]
  return %y
}
`)
	cases := []struct {
		name string
		f    *ir.Func
		in   [][]Tensor
		syms []map[string]int64
		rank int
		text string
	}{
		{"rows differ", f, in, []map[string]int64{{"a": 1, "b": 2, "c": 1, "d": 3}, {"a": 3, "b": 0, "c": 1, "d": 1}}, 1,
			"rank 0 sends 2 rows, but this rank expects 1 from it"},
		{"splits beyond the operand", f, in, []map[string]int64{{"a": 4, "b": 2, "c": 1, "d": 3}, {"a": 3, "b": 0, "c": 2, "d": 0}}, 0,
			"got f32[3,2], want f32[6 2]"},
		{"shapes differ", g, each(tensor(t, ir.F32, seq(0, 2), 2), tensor(t, ir.F32, seq(0, 3), 3)), nil, 1,
			"the operand is [3] here and [2] on rank 0"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			_, err := Run(context.Background(), c.f, c.in, Options{Symbols: c.syms})
			var e *Error
			if !errors.As(err, &e) || e.Rank != c.rank || !strings.Contains(err.Error(), c.text) {
				t.Fatalf("got %v, want rank %d and %q", err, c.rank, c.text)
			}
		})
	}
}
