package cudagen_test

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/seed-ee968945/concert/ir"
)

// Rows that are put or added at random positions, from single elements to more than a
// block handles at a time, of few positions and of more than a list has room for, give
// the interpreter's bits.
func TestRandomLists(t *testing.T) {
	cases := 60
	if testing.Short() {
		cases = 30
	}
	r := rand.New(rand.NewPCG(5, 6))
	some := func(of ...int) int { return of[r.IntN(len(of))] }
	var trials []*trial
	listed, overflows := 0, 0
	for k := range cases {
		rows, row, places := some(1, 2, 3, 31, 32, 33, 127, 256, 1000, 1023, 4099), some(1, 2, 3, 4, 5, 6, 7, 8, 12, 16, 24, 100, 256, 257, 1024, 2048), some(64, 65, 200, 1000, 11000, 11001, 13000)
		if rows*row > 300_000 {
			row = 3
		}
		if rows*row*places > 60_000_000 {
			places = 64
		}
		dt, index := []string{"f32", "bf16", "i64", "f16", "u8"}[r.IntN(5)], []string{"i64", "i32"}[r.IntN(2)]
		update := []string{"index_add %x, %i, %v {dim=0}", "index_put %x, %v, %i {accumulate=true, dims=[0]}", "index_put %x, %v, %i {accumulate=false, dims=[0]}"}[r.IntN(3)]
		x := fmt.Sprintf("%s[%d,%d]", dt, rows, row)
		m, err := ir.Parse("list", fmt.Sprintf("world 1\n\nfunc @f(%%x: %s, %%v: %s[%d,%d], %%i: %s[%d]) -> (%s) {\n  %%y = %s : %s\n  %%z = neg %%y : %s\n  return %%z\n}\n", x, dt, places, row, index, places, x, update, x, x))
		if err != nil {
			t.Fatal(err)
		}
		f := m.Funcs()[0]
		tr, err := newTrial(fmt.Sprintf("list%d", k), f, 0, uint64(k), nil)
		if err != nil {
			t.Fatalf("%v\n%s", err, m)
		}
		if strings.Contains(tr.k.Body, "list_rows<") || strings.Contains(tr.k.Body, "sort_rows<") {
			listed++
		}
		if strings.Contains(tr.k.Body, "if (listed < 0)") {
			overflows++
		}
		trials = append(trials, tr)
	}
	t.Logf("%d kernels list, %d may have more than they can", listed, overflows)
	if listed < cases/5 || overflows == 0 && !testing.Short() {
		t.Error("too few kernels list positions")
	}
	compare(t, trials, runOnHost(t, trials, "-DEXACT_MATH", "-Og"), true) // they run longer than they compile
}

// Positions are integers of any type.
func TestPositionTypes(t *testing.T) {
	var trials []*trial
	for i, text := range []string{
		"%x: f32[5,8], %i: int[70,8]) -> (f32[70,8]) {\n  %y = gather %x, %i {dim=0} : f32[70,8]",
		"%x: f32[5,8], %i: int[70]) -> (f32[70,8]) {\n  %y = index %x, %i {dims=[0]} : f32[70,8]",
		"%x: f32[5,8], %i: int[70]) -> (f32[70,8]) {\n  %y = embedding %x, %i : f32[70,8]",
		"%x: f32[5,8], %i: int[70], %v: f32[70,8]) -> (f32[5,8]) {\n  %y = index_put %x, %v, %i {dims=[0]} : f32[5,8]",
		"%x: f32[5,8], %i: int[70], %v: f32[70,8]) -> (f32[5,8]) {\n  %y = index_add %x, %i, %v {dim=0} : f32[5,8]",
		"%x: f32[5,8], %i: int[2,8], %v: f32[2,8]) -> (f32[5,8]) {\n  %y = scatter %x, %i, %v {dim=0} : f32[5,8]",
	} {
		for _, dt := range []string{"i8", "u8", "i16", "u16", "i32", "u32", "i64", "u64"} {
			m, err := ir.Parse("positions", "world 1\n\nfunc @f("+strings.Replace(text, "int", dt, 1)+"\n  return %y\n}\n")
			if err != nil {
				t.Fatal(err)
			}
			tr, err := newTrial(fmt.Sprintf("at%d%s", i, dt), m.Funcs()[0], 0, uint64(i), nil)
			if err != nil {
				t.Fatalf("%v\n%s", err, m)
			}
			trials = append(trials, tr)
		}
	}
	compare(t, trials, runOnHost(t, trials, "-DEXACT_MATH"), true)
}
