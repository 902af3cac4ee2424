package step

import (
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/seed-ee968945/concert/interp"
	"github.com/seed-ee968945/concert/ir"
)

func parsePair(t *testing.T, text string, names ...string) *Pair {
	t.Helper()
	m, err := ir.Parse("t.ir", text)
	if err != nil {
		t.Fatal(err)
	}
	p := &Pair{Name: "t", Forward: m.Func(names[0])}
	if len(names) > 1 {
		p.Backward = m.Func(names[1])
	}
	return p
}

// Bounds by kind of run: bits for all, or for what no sum over ranks reaches, or for
// integers and what is only moved; then as the roundings on the way say.
func TestBounds(t *testing.T) {
	const text = `world 2
group @g = [[0, 1]]

func @fw(%x: f32[8], %h: bf16[4,64], %w: bf16[64,4], %i: i32[8]) -> (f32[8], i32[8], f32[16], bf16[4,4], f32[8], f32[8], i64[], f32[8]) {
  %n = neg %x : f32[8]
  %c = all_reduce.sum %i on @g : async i32[8]
  %ci = wait_tensor %c : i32[8]
  %g = all_gather %n on @g {dim=0} : async f32[16]
  %gw = wait_tensor %g : f32[16]
  %m = matmul %h, %w : bf16[4,4]
  %r = all_reduce.sum %n on @g : async f32[8]
  %rw = wait_tensor %r : f32[8]
  %e = exp %rw : f32[8]
  %a = argmax %e {dim=0} : i64[]
  %k = all_reduce.max %x on @g : async f32[8]
  %kw = wait_tensor %k : f32[8]
  return %n, %ci, %gw, %m, %rw, %e, %a, %kw
}

func @bw(%s: i32[8] !{role="saved"}, %u: f32[16] !{role="saved"}, %v: bf16[4,4] !{role="saved"}, %y: f32[8] !{role="saved"}) -> (f32[8], i32[8]) {
  %z = mul %y {scalar=2.0} : f32[8]
  return %z, %s
}
`
	p := parsePair(t, text, "fw", "bw")
	var b strings.Builder
	for _, kind := range []Rounding{SameRoundings, Reassociated, OtherRoundings} {
		fw, bw, err := p.Bounds(kind)
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(&b, "%d fw %v\n%d bw %v\n", kind, fw, kind, bw)
	}
	want := `0 fw [bits bits bits bits bits bits bits bits]
0 bw [bits bits]
1 fw [bits bits bits bits 2.06e-07 (1 roundings) 3.15e-07 (2 roundings) 3.15e-07 (2 roundings) bits]
1 bw [3.15e-07 (2 roundings) bits]
2 fw [bits bits bits 0.00781 (1 roundings) 2.06e-07 (1 roundings) 3.15e-07 (2 roundings) 3.15e-07 (2 roundings) bits]
2 bw [3.15e-07 (2 roundings) bits]
`
	if b.String() != want {
		t.Errorf("got\n%s\nwant\n%s", &b, want)
	}
}

// What selects rounds where it may select a number that its type does not have.
func TestBoundsOfSelections(t *testing.T) {
	for text, bits := range map[string]bool{
		"maximum %x {scalar=0.1} : bf16[2]": false, "maximum %x {scalar=0.5} : bf16[2]": true, "minimum %x {scalar=257} : bf16[2]": false,
		"clamp %x {max=6.0, min=-1.0} : bf16[2]": true, "clamp %x {max=0.3} : bf16[2]": false, "fmod %x {scalar=0.7} : bf16[2]": false,
		"maximum %x, %x : bf16[2]": true, "relu %x : bf16[2]": true,
	} {
		p := parsePair(t, "world 1\nfunc @fw(%x: bf16[2]) -> (bf16[2]) {\n  %y = "+text+"\n  return %y\n}\n", "fw")
		if fw, _, err := p.Bounds(FewerRoundings); err != nil || fw[0].Bits != bits {
			t.Errorf("%s has the bound %v (%v)", text, fw, err)
		}
	}
}

// A bucket rounds as its members do: integers beside floats keep their bits, and not the
// other way round.
func TestBoundsOfBucket(t *testing.T) {
	for _, order := range []string{"%i, %x : i64[2], f32[2]", "%x, %i : f32[2], i64[2]"} {
		args, types, _ := strings.Cut(order, " : ")
		p := parsePair(t, "world 2\ngroup @g = [[0, 1]]\nfunc @fw(%i: i64[2], %x: f32[2]) -> ("+types+") {\n  %c = all_reduce.sum "+args+" on @g : async("+types+
			")\n  %w:2 = wait_tensor %c : "+types+"\n  return %w#0, %w#1\n}\n", "fw")
		fw, _, err := p.Bounds(Reassociated)
		if err != nil {
			t.Fatal(err)
		}
		for k, dt := range strings.Split(types, ", ") {
			if fw[k].Bits != (dt == "i64[2]") {
				t.Errorf("%s: result %d has the bound %v", types, k, fw[k])
			}
		}
	}
}

// Bits tell what relative errors in float64 do not: the sign of zero, and integers
// beyond 2^53. NaN is NaN.
func TestBitsAreCompared(t *testing.T) {
	negzero := math.Copysign(0, -1)
	tensor := func(dt ir.DType, v float64) interp.Tensor {
		x, err := interp.Fill(dt, v, 2)
		if err != nil {
			t.Fatal(err)
		}
		return x
	}
	big, err := interp.FromSlice([]int64{1 << 53, 1 << 53}, 2)
	if err != nil {
		t.Fatal(err)
	}
	bigger, err := interp.FromSlice([]int64{1 << 53, 1<<53 + 1}, 2)
	if err != nil {
		t.Fatal(err)
	}
	other := tensor(ir.F32, math.NaN())
	other.Data[0] ^= 1
	for _, c := range []struct {
		name      string
		got, want interp.Tensor
		ok        bool
	}{
		{"zeros", tensor(ir.F32, 0), tensor(ir.F32, negzero), false},
		{"large integers", bigger, big, false},
		{"equal", big, big, true},
		{"NaN", other, tensor(ir.F32, math.NaN()), true},
		{"NaN for a number", other, tensor(ir.F32, 1), false},
	} {
		rs, err := Compare(0, []Expected{{Name: "y", Tensor: c.want}}, []interp.Tensor{c.got}, nil)
		if err != nil {
			t.Fatal(err)
		}
		rs[0].Bound = Bound{Bits: true}
		if rs[0].OK() != c.ok {
			t.Errorf("%s: ok %v, want %v: %v", c.name, rs[0].OK(), c.ok, rs[0].Diff)
		}
		if table := Table(rs); strings.Contains(table, "OTHER BITS at element") == c.ok {
			t.Errorf("%s: the table is\n%s", c.name, table)
		}
	}
}

// New values of what a step updates stand in front of the loss.
func TestLossIsBehindUpdates(t *testing.T) {
	p := parsePair(t, `world 1
func @fw(%n: i64[] {donate=0}, %x: f32[4]) -> (i64[], f32[], f32[4]) {
  %m = add %n {scalar=1} : i64[]
  %l = sum %x : f32[]
  return %m, %l, %x
}
`, "fw")
	if k := p.Loss(); k != 1 {
		t.Errorf("the loss is output %d", k)
	}
}
