package interp

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/seed-ee968945/concert/internal/dtype"
	"github.com/seed-ee968945/concert/ir"
)

// lookups uses every input of integers as an index in some way.
const lookups = `world 2
group @g = [[0, 1]]
sym n hint 3 max 9

func @f(%w: f32[5,2] !{role="parameter"}, %a: i64[4], %b: i32[1,2], %c: i64[2,3], %d: i64[6], %e: i64[2], %t: f32[n,2], %k: i64[3], %free: i64[40], %g: bool[3], %norm: bf16[8] !{role="parameter"}, %ahead: i64[1], %behind: i64[1]) -> (f32[4,2], f32[2,2], f32[2,6], f32[6,2], f32[5,2], f32[3,2], f32[4,2], i64[40]) {
  %e0 = embedding %w, %a : f32[4,2]
  %b1 = view %b : i32[2]
  %b2 = sub %b1 {scalar=100} : i32[2]
  %e1 = embedding %w, %b2 : f32[2,2]
  %z0 = full {value=0} : f32[2,6]
  %c1 = clone %c : i64[2,3]
  %s = scatter %z0, %c1 {dim=1, value=1} : f32[2,6]
  %h = gather %z0, %c {dim=1} : f32[2,3]
  %dc = all_gather %e on @g : async i64[4]
  %dw = wait_tensor %dc : i64[4]
  %dx = index %w, %dw {dims=[0]} : f32[4,2]
  %d1 = convert %d : i32[6]
  %ia = full {value=0} : f32[5,2]
  %src = full {value=1} : f32[6,2]
  %add = index_add %ia, %d1, %src {dim=0} : f32[5,2]
  %x = index %w, %d {dims=[0]} : f32[6,2]
  %y = index %t, %k {dims=[0]} : f32[3,2]
  %u = add %free {scalar=1} : i64[40]
  %four = iota : i64[4]
  %up = add %four, %ahead : i64[4]
  %e2 = embedding %w, %up : f32[4,2]
  %down = sub %behind, %four : i64[4]
  %e3 = embedding %w, %down : f32[4,2]
  return %e0, %e1, %s, %x, %add, %y, %dx, %u
}
`

func TestRandomInputs(t *testing.T) {
	f := parse(t, lookups)
	o := RandomOptions{Symbols: []map[string]int64{{"n": 2}, {"n": 9}}}
	for seed := range uint64(20) {
		in, err := RandomInputs(f, seed, o)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := Run(context.Background(), f, in, Options{Symbols: o.Symbols}); err != nil {
			t.Fatal(err)
		}
		for r := range in {
			for _, v := range in[r][2].Int64s() {
				if v < 100 || v >= 105 {
					t.Fatalf("%d is not an index behind -100", v)
				}
			}
			for row := range 2 {
				v := in[r][3].Int64s()[3*row:][:3]
				if v[0] == v[1] || v[1] == v[2] || v[0] == v[2] {
					t.Fatalf("scatter positions %v repeat", v)
				}
			}
			for _, v := range in[r][10].Float64s() {
				if v < 0.4 || v > 1.6 {
					t.Fatalf("parameter of one dimension holds %v", v)
				}
			}
		}
		again, err := RandomInputs(f, seed, o)
		if err != nil {
			t.Fatal(err)
		}
		for r := range in {
			for i := range in[r] {
				if !Equal(in[r][i], again[r][i]) {
					t.Fatalf("rank %d input %d differs from one call to the next", r, i)
				}
			}
		}
		if Equal(in[0][0], in[1][0]) {
			t.Fatal("ranks share numbers that were not shared")
		}
	}
}

// What roots and logarithms are taken of has them: variances of a batch norm, second moments of
// Adam, also where backward takes the root.
func TestRandomInputsPositive(t *testing.T) {
	f := parse(t, `world 2
group @g = [[0, 1]]
func @f(%var: bf16[8], %v: f32[8], %x: f32[8], %n: i64[8], %p: f32[4]) -> (f32[8], f32[8], f32[8], f32[8], f32[8]) {
  %var1 = convert %var : f32[8]
  %var2 = add %var1 {scalar=1e-5} : f32[8]
  %r = rsqrt %var2 : f32[8]
  %v1 = mul %v {scalar=0.99} : f32[8]
  %x2 = mul %x, %x : f32[8]
  %v2 = add %v1, %x2 : f32[8]
  %s = sqrt %v2 : f32[8]
  %n1 = convert %n : f32[8]
  %l = log %n1 : f32[8]
  %p1 = all_gather %p on @g : async f32[8]
  %p2 = wait_tensor %p1 : f32[8]
  %less = sub %x {scalar=1} : f32[8]
  return %r, %s, %l, %p2, %less
}
`)
	next := parse(t, "world 2\nfunc @b(%p: f32[8]) -> (f32[8]) {\n  %l = log2 %p : f32[8]\n  return %l\n}\n")
	negative := false
	for seed := range uint64(20) {
		in, err := RandomInputs(f, seed, RandomOptions{Next: next, Feeds: []int{3}})
		if err != nil {
			t.Fatal(err)
		}
		for _, rank := range in {
			for i, x := range rank {
				least := slices.Min(x.Float64s())
				if i != 2 && least <= 0 {
					t.Errorf("input %d holds %v", i, least)
				}
				negative = negative || i == 2 && least < 0
			}
		}
	}
	if !negative {
		t.Error("what is squared is never negative")
	}
}

// Sizes of groups are those of groups that the rows have room for.
func TestRandomInputsOfGroups(t *testing.T) {
	f := parse(t, `world 1
func @f(%x: f32[7,4], %w: f32[3,4,5], %sizes: i64[3], %bx: f32[18,4], %bw: f32[6,4,8], %each: i64[2,3]) -> (f32[7,5], f32[18,8]) {
  %bsums = cumsum %each {dim=1} : i64[2,3]
  %batch = iota : i64[2]
  %first = mul %batch {scalar=9} : i64[2]
  %firsts = view %first : i64[2,1]
  %bends = add %bsums, %firsts : i64[2,3]
  %flat = view %bends : i64[6]
  %z = grouped_matmul %bx, %bw, %flat : f32[18,8]
  %rows = view %sizes : i64[1,3]
  %sums = cumsum %rows {dim=1} : i64[1,3]
  %ends = view %sums : i64[3]
  %y = grouped_matmul %x, %w, %ends : f32[7,5]
  return %y, %z
}
`)
	some := false
	for seed := range uint64(20) {
		in, err := RandomInputs(f, seed, RandomOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := Run(context.Background(), f, in, Options{}); err != nil {
			t.Fatal(err)
		}
		some = some || slices.Max(in[0][2].Int64s()) > 0 && slices.Max(in[0][5].Int64s()) > 0
	}
	if !some {
		t.Error("groups of one of both are all empty")
	}
}

// Fifty convolutions leave an image neither zero nor infinite.
func TestRandomInputsOfConvolutions(t *testing.T) {
	var b strings.Builder
	b.WriteString("world 1\nfunc @f(%x0: f32[1,64,4,4], %w: f32[64,64,1,1] !{role=\"parameter\"}) -> (f32[1,64,4,4]) {\n")
	for i := range 50 {
		fmt.Fprintf(&b, "  %%x%d = convolution %%x%d, %%w : f32[1,64,4,4]\n", i+1, i)
	}
	b.WriteString("  return %x50\n}\n")
	f := parse(t, b.String())
	in, err := RandomInputs(f, 1, RandomOptions{})
	if err != nil {
		t.Fatal(err)
	}
	out, err := Run(context.Background(), f, in, Options{})
	if err != nil {
		t.Fatal(err)
	}
	if most := slices.Max(out[0][0].Float64s()); most < 1e-3 || most > 1e3 {
		t.Errorf("the largest result is %v", most)
	}
}

func TestRandomInputsShared(t *testing.T) {
	f := parse(t, "world 4\ngroup @g = [[0, 2], [1, 3]]\nfunc @f(%x: f32[4] !{role=\"parameter\"}, %y: f32[4]) -> (f32[4]) {\n  return %x\n}\n")
	g := f.Module().Group("g")
	in, err := RandomInputs(f, 1, RandomOptions{Shared: func(n *ir.Node) *ir.Group {
		if n.Role() == ir.RoleParameter {
			return g
		}
		return nil
	}})
	if err != nil {
		t.Fatal(err)
	}
	same := func(a, b, i int) bool { return Equal(in[a][i], in[b][i]) }
	if !same(0, 2, 0) || !same(1, 3, 0) || same(0, 1, 0) || same(0, 2, 1) {
		t.Fatal(in)
	}
	in, err = RandomInputs(f, 1, RandomOptions{Shared: func(*ir.Node) *ir.Group { return World(f.Module()) }})
	if err != nil {
		t.Fatal(err)
	}
	for r := 1; r < 4; r++ {
		if !same(0, r, 0) || !same(0, r, 1) {
			t.Fatal(in)
		}
	}
}

func TestTensor(t *testing.T) {
	for _, d := range dtype.All() {
		if d == dtype.F8E8M0FNU { // which has no 0
			continue
		}
		x, err := FromFloats(d, []float64{0, 1, 1}, 3)
		if err != nil {
			t.Fatal(err)
		}
		if v := x.Float64s(); v[0] != 0 || v[1] != 1 || v[2] != 1 {
			t.Errorf("%s: %v", d, v)
		}
		if v := x.Int64s(); v[0] != 0 || v[1] != 1 || v[2] != 1 {
			t.Errorf("%s: %v", d, v)
		}
		one, err := Fill(d, 1, 2, 2)
		if err != nil || one.String() != d.String()+"[2,2] [1 1 1 1]" {
			t.Errorf("%v %v", one, err)
		}
	}
	x, err := FromSlice([]float32{1, 2, 3, 4}, 2, 2)
	if err != nil || x.DType != dtype.F32 {
		t.Fatal(x, err)
	}
	if _, err := FromSlice([]int32{1}, 2); err == nil {
		t.Error("one number filled two places")
	}
	if _, err := NewTensor(dtype.F32, -1); err == nil {
		t.Error("a negative size went through")
	}
	if err := (Tensor{DType: dtype.F32, Shape: []int64{1 << 62, 8}}).Check(); err == nil {
		t.Error("an absurd shape went through")
	}
	if (Tensor{DType: dtype.F32, Shape: []int64{1}}).Float64s() != nil {
		t.Error("numbers without data")
	}
}

func TestCompare(t *testing.T) {
	a := tensor(t, ir.F32, []float64{3, 4}, 2)
	nan := tensor(t, ir.F32, []float64{3, 4}, 2)
	copy(nan.Data[4:], []byte{0, 0, 0xc0, 0x7f})
	cases := []struct {
		got, want Tensor
		text      string
	}{
		{a, a, "equal"},
		{tensor(t, ir.F32, []float64{3, 4.5}, 2), a, "relative error 0.1, largest difference 0.5 at element 1"},
		{nan, a, "relative error +Inf, largest difference +Inf at element 1"},
		{a, nan, "relative error +Inf, largest difference +Inf at element 1"},
		{nan, nan, "equal"},
		{tensor(t, ir.F32, []float64{3, 4}, 2), tensor(t, ir.F32, []float64{0, 0}, 2), "relative error 5, largest difference 4 at element 1"},
	}
	for _, c := range cases {
		d, err := Compare(c.got, c.want)
		if err != nil || d.String() != c.text {
			t.Errorf("%s beside %s: %s, %v; want %s", c.got, c.want, d, err, c.text)
		}
	}
	if _, err := Compare(a, tensor(t, ir.F64, []float64{3, 4}, 2)); err == nil {
		t.Error("two element types were compared")
	}
}

// Skipped inputs have a type and no data, and the others the numbers they have anyway.
func TestRandomInputsSkip(t *testing.T) {
	f := parse(t, lookups)
	all, err := RandomInputs(f, 1, RandomOptions{})
	if err != nil {
		t.Fatal(err)
	}
	some, err := RandomInputs(f, 1, RandomOptions{Skip: func(n *ir.Node) bool { return n.Result(0).Type().DType() == dtype.F32 }})
	if err != nil {
		t.Fatal(err)
	}
	for r := range all {
		for i := range all[r] {
			if all[r][i].DType == dtype.F32 {
				if some[r][i].Data != nil || some[r][i].NumElems() != all[r][i].NumElems() {
					t.Errorf("rank %d input %d: %v was made", r, i, some[r][i].Shape)
				}
			} else if !Equal(all[r][i], some[r][i]) {
				t.Errorf("rank %d input %d differs", r, i)
			}
		}
	}
}

// What the next function reads a result for counts as a use of the input that it is.
func TestRandomInputsNext(t *testing.T) {
	f := parse(t, `world 1
func @f(%x: f32[4], %i: i64[50], %j: i64[50]) -> (f32[4], i64[50], i64[50]) {
  %twice = add %x, %x : f32[4]
  %k = add %j {scalar=10.0} : i64[50]
  return %twice, %i, %k
}
`)
	next := parse(t, `world 1
func @next(%d: f32[4], %k: i64[50], %i: i64[50], %table: f32[13,2]) -> (f32[50], f32[50,2]) {
  %a = index %d, %i {dims=[0]} : f32[50]
  %b = embedding %table, %k : f32[50,2]
  return %a, %b
}
`)
	in, err := RandomInputs(f, 1, RandomOptions{Next: next, Feeds: []int{0, 2, 1, -1}})
	if err != nil {
		t.Fatal(err)
	}
	for k, most := range map[int]float64{1: 3, 2: 12 - 10} {
		if vals := in[0][k].Float64s(); slices.Min(vals) != 0 || slices.Max(vals) != most {
			t.Errorf("input %d has %v, want 0 to %v", k, vals, most)
		}
	}
}

func TestRand(t *testing.T) {
	text := two + `func @f() -> (f32[4], f32[4]) {
  %a = rand {seed=5} : f32[4]
  %b = rand {seed=5} : f32[4]
  return %a, %b
}
`
	f := parse(t, text)
	none := [][]Tensor{nil, nil}
	first := run(t, f, none, Options{})
	draws := []Tensor{first[0][0], first[0][1], first[1][0], first[1][1]}
	for _, o := range []Options{{Seed: 1}, {Step: 1}} {
		next := run(t, f, none, o)
		draws = append(draws, next[0][0], next[1][1])
	}
	for i := range draws {
		for j := range i {
			if Equal(draws[i], draws[j]) {
				t.Errorf("draws %d and %d are equal: %v", j, i, draws[i])
			}
		}
	}
	// Another order draws the same numbers.
	swapped := parse(t, strings.Replace(text, "  %a = rand {seed=5} : f32[4]\n  %b = rand {seed=5} : f32[4]\n", "  %b = rand {seed=5} : f32[4]\n  %a = rand {seed=5} : f32[4]\n", 1))
	again := run(t, swapped, none, Options{})
	for r := range again {
		for i := range again[r] {
			if !Equal(again[r][i], first[r][i]) {
				t.Errorf("rank %d draw %d changed with the order", r, i)
			}
		}
	}
}
