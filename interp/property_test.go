package interp

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/seed-ee968945/concert/ir"
)

// randomGroup deals the ranks into subgroups of one size in random order.
func randomGroup(rng *rand.Rand, size, subs int) string {
	p := rng.Perm(size * subs)
	var parts []string
	for i := range subs {
		parts = append(parts, strings.ReplaceAll(fmt.Sprint(p[i*size:(i+1)*size]), " ", ", "))
	}
	return fmt.Sprintf("world %d\ngroup @g = [%s]\n", size*subs, strings.Join(parts, ", "))
}

func shapeText(s []int64) string { return strings.ReplaceAll(fmt.Sprint(s), " ", ",") }

// A scattered reduction, gathered again, is the all_reduce, bit for bit, in every
// reduction, type, dimension and group; alone and as members of one bucket.
func TestReduceScatterAllGatherIsAllReduce(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for range 60 {
		size, subs := 1+rng.IntN(4), 1+rng.IntN(2)
		header := randomGroup(rng, size, subs)
		dt := []string{"f64", "f32", "f16", "bf16", "i64", "i32", "i8", "u8"}[rng.IntN(8)]
		red := []string{"sum", "avg", "product", "min", "max"}[rng.IntN(5)]
		full := []int64{1 + rng.Int64N(4), 1 + rng.Int64N(4), 1 + rng.Int64N(4)}
		d := rng.IntN(3)
		full[d] *= int64(size)
		part := []int64{full[0], full[1], full[2]}
		part[d] /= int64(size)
		whole, piece := dt+shapeText(full), dt+shapeText(part)
		f := parse(t, header+fmt.Sprintf(`func @f(%%x: %[1]s, %%y: %[1]s) -> (%[1]s, %[1]s, %[1]s, %[1]s) {
  %%a = all_reduce.%[3]s %%x on @g : async %[1]s
  %%s = reduce_scatter.%[3]s %%x, %%y on @g {dim=%[4]d} : async(%[2]s, %[2]s)
  %%ar = wait_tensor %%a : %[1]s
  %%b = all_reduce.%[3]s %%y, %%ar on @g : async(%[1]s, %[1]s)
  %%sw:2 = wait_tensor %%s : %[2]s, %[2]s
  %%g = all_gather %%sw#0 on @g {dim=%[4]d} : async %[1]s
  %%h = all_gather %%sw#1 on @g {dim=%[4]d} : async %[1]s
  %%gw = wait_tensor %%g : %[1]s
  %%hw = wait_tensor %%h : %[1]s
  %%bw:2 = wait_tensor %%b : %[1]s, %[1]s
  return %%ar, %%gw, %%bw#0, %%hw
}
`, whole, piece, red, d))
		in, err := RandomInputs(f, rng.Uint64(), RandomOptions{})
		if err != nil {
			t.Fatal(err)
		}
		out := run(t, f, in, Options{Poison: rng.IntN(2) == 0})
		g := f.Module().Group("g")
		for r := range out {
			if !Equal(out[r][0], out[r][1]) || !Equal(out[r][2], out[r][3]) {
				t.Fatalf("rank %d: %s and %s, %s and %s\n%s", r, out[r][0], out[r][1], out[r][2], out[r][3], f.Module())
			}
			if sub, _ := g.Of(r); !Equal(out[r][0], out[sub[0]][0]) {
				t.Fatalf("ranks %d and %d differ after an all_reduce", r, sub[0])
			}
		}
	}
}

// An all_to_all undone by the all_to_all with exchanged splits gives the operand
// back, for random sizes that differ by rank; and equals a hand-made exchange.
func TestAllToAllRoundTrip(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	for range 40 {
		size := 1 + rng.IntN(4)
		text := randomGroup(rng, size, 1)
		var in, out []string
		for j := range size {
			in, out = append(in, fmt.Sprintf("a%d", j)), append(out, fmt.Sprintf("b%d", j))
			text += fmt.Sprintf("sym a%d hint 1 max 5\nsym b%d hint 1 max 5\n", j, j)
		}
		f := parse(t, text+fmt.Sprintf(`func @f(%%x: i32[%[1]s,3]) -> (i32[%[2]s,3], i32[%[1]s,3]) {
  %%c = all_to_all %%x on @g {in_splits=["%[3]s"], out_splits=["%[4]s"]} : async i32[%[2]s,3]
  %%y = wait_tensor %%c : i32[%[2]s,3]
  %%d = all_to_all %%y on @g {in_splits=["%[4]s"], out_splits=["%[3]s"]} : async i32[%[1]s,3]
  %%z = wait_tensor %%d : i32[%[1]s,3]
  return %%y, %%z
}
`, strings.Join(in, "+"), strings.Join(out, "+"), strings.Join(in, ","), strings.Join(out, ",")))
		sub := f.Module().Group("g").Ranks[0]
		syms := make([]map[string]int64, size)
		for r := range syms {
			syms[r] = map[string]int64{}
		}
		for i, src := range sub {
			for j, dst := range sub {
				n := rng.Int64N(4)
				syms[src][in[j]] = n
				syms[dst][out[i]] = n
			}
		}
		x, err := RandomInputs(f, rng.Uint64(), RandomOptions{Symbols: syms})
		if err != nil {
			t.Fatal(err)
		}
		got := run(t, f, x, Options{Symbols: syms, Poison: true})
		for j, dst := range sub {
			var rows []int64
			for _, src := range sub {
				from := int64(0)
				for k := range j {
					from += syms[src][in[k]]
				}
				rows = append(rows, x[src][0].Int64s()[3*from:3*(from+syms[src][in[j]])]...)
			}
			if fmt.Sprint(got[dst][0].Int64s()) != fmt.Sprint(rows) && len(rows) > 0 {
				t.Fatalf("rank %d received %v, want %v", dst, got[dst][0], rows)
			}
			if !Equal(got[dst][1], x[dst][0]) {
				t.Fatalf("rank %d: %v came back as %v", dst, x[dst][0], got[dst][1])
			}
		}
	}
}

// Large nodes run their ranks side by side; that must not show.
func TestParallelRanks(t *testing.T) {
	f := parse(t, `world 5
func @f(%x: f32[64,64], %n: i64[64]) -> (f32[64,64], f32[64,64]) {
  %y = matmul %x, %x : f32[64,64]
  %r = rand {seed=1} : f32[64,64]
  %e = embedding %y, %n : f32[64,64]
  return %e, %r
}
`)
	in, err := RandomInputs(f, 5, RandomOptions{})
	if err != nil {
		t.Fatal(err)
	}
	first := run(t, f, in, Options{})
	for range 3 {
		again := run(t, f, in, Options{})
		for r := range again {
			for i := range again[r] {
				if !Equal(again[r][i], first[r][i]) {
					t.Fatalf("rank %d output %d changed", r, i)
				}
			}
		}
	}
	// Of several failing ranks the lowest is named.
	bad, err := Fill(ir.I64, 64, 64)
	if err != nil {
		t.Fatal(err)
	}
	in[4][1], in[2][1] = bad, bad
	_, err = Run(t.Context(), f, in, Options{})
	if e, ok := err.(*Error); !ok || e.Rank != 2 || e.Node != "e" {
		t.Fatal(err)
	}
}
