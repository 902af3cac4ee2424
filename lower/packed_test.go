package lower_test

import (
	"context"
	"math"
	"strings"
	"testing"

	"github.com/seed-ee968945/concert/internal/golden/gen"
	"github.com/seed-ee968945/concert/internal/hostrun"
	"github.com/seed-ee968945/concert/interp"
	"github.com/seed-ee968945/concert/ir"
	"github.com/seed-ee968945/concert/lower"
	"github.com/seed-ee968945/concert/passes"
	"github.com/seed-ee968945/concert/passes/standard"
	rt "github.com/seed-ee968945/concert/runtime"
	"github.com/seed-ee968945/concert/sim"
)

// buckets holds a bucket of every kind: several element types, strided operands,
// dimensions other than the first, parts that are uneven.
const buckets = `world 4
group @all = [[0, 1, 2, 3]]
group @g = [[0, 2], [3, 1]]

func @f(%x: f32[8,4], %y: bf16[4,8], %z: f64[4], %i: i64[8,2]) -> (f32[8,4], bf16[4,8], f32[4,8], f32[32,4], bf16[16,8], f64[16], f32[8,8], bf16[4,16], f32[2,4], bf16[1,8], f32[1,8], i64[2,2], f32[8,2], bf16[4,4], f32[4,4], f32[8,4], i64[8,2], f32[8,4], f64[4], bf16[4,8], f64[4], f32[8,4], i64[8,2]) {
  %t = permute %x {dims=[1, 0]} : f32[4,8:1,4]
  %ar = all_reduce.avg %x, %y, %t on @all : async(f32[8,4], bf16[4,8], f32[4,8])
  %ar_w:3 = wait_tensor %ar : f32[8,4], bf16[4,8], f32[4,8]
  %ag = all_gather %x, %y, %z on @all {dim=0} : async(f32[32,4], bf16[16,8], f64[16]) ms 3
  %ag1 = all_gather %x, %y on @g {dim=1} : async(f32[8,8], bf16[4,16])
  %ag_w:3 = wait_tensor %ag : f32[32,4], bf16[16,8], f64[16]
  %ag1_w:2 = wait_tensor %ag1 : f32[8,8], bf16[4,16]
  %rs = reduce_scatter.sum %x, %y, %t, %i on @all {dim=0} : async(f32[2,4], bf16[1,8], f32[1,8], i64[2,2])
  %rs1 = reduce_scatter.max %x, %y, %t on @g {dim=1} : async(f32[8,2], bf16[4,4], f32[4,4])
  %rs_w:4 = wait_tensor %rs : f32[2,4], bf16[1,8], f32[1,8], i64[2,2]
  %rs1_w:3 = wait_tensor %rs1 : f32[8,2], bf16[4,4], f32[4,4]
  %aa = all_to_all %x, %i on @all : async(f32[8,4], i64[8,2])
  %aa_w:2 = wait_tensor %aa : f32[8,4], i64[8,2]
  %un = all_to_all %x, %z on @g {in_splits=["4,4", "2,2"], out_splits=["4,4", "2,2"]} : async(f32[8,4], f64[4])
  %un_w:2 = wait_tensor %un : f32[8,4], f64[4]
  %bc = broadcast %y, %z on @g {root=1} : async(bf16[4,8], f64[4])
  %bc_w:2 = wait_tensor %bc : bf16[4,8], f64[4]
  %cp = collective_permute %x, %i on @all {pairs=[0, 1, 1, 2, 3, 0]} : async(f32[8,4], i64[8,2])
  %cp_w:2 = wait_tensor %cp : f32[8,4], i64[8,2]
  return %ar_w#0, %ar_w#1, %ar_w#2, %ag_w#0, %ag_w#1, %ag_w#2, %ag1_w#0, %ag1_w#1, %rs_w#0, %rs_w#1, %rs_w#2, %rs_w#3, %rs1_w#0, %rs1_w#1, %rs1_w#2, %aa_w#0, %aa_w#1, %un_w#0, %un_w#1, %bc_w#0, %bc_w#1, %cp_w#0, %cp_w#1
}
`

func all(*ir.Node) bool { return true }

func parseModule(t *testing.T, text string) *ir.Module {
	t.Helper()
	m, err := ir.Parse("test.ir", text)
	if err != nil {
		t.Fatal(err)
	}
	if err := m.Verify(); err != nil {
		t.Fatal(err)
	}
	return m
}

// sameBits runs a function by the interpreter and a runner and compares.
func sameBits(t *testing.T, f *ir.Func, seed uint64, run func(context.Context, *ir.Func, [][]interp.Tensor) ([][]interp.Tensor, error)) {
	t.Helper()
	ctx := context.Background()
	in, err := interp.RandomInputs(f, seed, interp.RandomOptions{})
	if err != nil {
		t.Fatal(err)
	}
	want, err := interp.Run(ctx, f, in, interp.Options{Poison: true})
	if err != nil {
		t.Fatal(err)
	}
	got, err := run(ctx, f, in)
	if err != nil {
		t.Fatal(err)
	}
	for r := range want {
		for k := range want[r] {
			if !interp.Equal(got[r][k], want[r][k]) {
				t.Errorf("rank %d output %d differs from the interpreter's", r, k)
			}
		}
	}
}

// Buckets of every kind give the interpreter's bits on the host device, in place
// and packed; packed, no collective has more than one operand.
func TestBucketsOfEveryKind(t *testing.T) {
	f := parseModule(t, buckets).Funcs()[0]
	opts := lower.Options{Packed: all}
	t.Run("in place", func(t *testing.T) { sameBits(t, f, 1, hostrun.Goroutines(rt.Config{})) })
	t.Run("packed", func(t *testing.T) { sameBits(t, f, 1, hostrun.GoroutinesWith(rt.Config{}, opts)) })
	g, err := lower.Pack(f, opts)
	if err != nil {
		t.Fatal(err)
	}
	packs := 0
	for _, n := range g.Order() {
		if n.Op().IsCollective() && len(n.Args()) != 1 {
			t.Errorf("%s has %d operands", n, len(n.Args()))
		}
		if n.Op() == ir.OpPack {
			packs++
		}
	}
	if packs != 8 { // one for each bucket but the uneven one, whose members travel alone; bf16 and i64 are alone in reductions
		t.Errorf("%d packs:\n%s", packs, g.Module())
	}
	if _, err := lower.Check(g); err != nil {
		t.Error(err)
	}
	p, err := lower.FuncWith(f, opts)
	if err != nil {
		t.Fatal(err)
	}
	if src, err := lower.EmitGo(p, "step"); err != nil || !strings.Contains(string(src), `"pack"`) {
		t.Errorf("emitted code: %v", err)
	}
}

// The simulator charges the copies: read and written bytes at the memory's speed.
func TestPackedCost(t *testing.T) {
	f := parseModule(t, `world 2
group @g = [[0, 1]]

func @f(%x: f32[1024], %y: f32[1024]) -> (f32[1024], f32[1024]) {
  %r = all_reduce.sum %x, %y on @g : async(f32[1024], f32[1024]) ms 1
  %w:2 = wait_tensor %r : f32[1024], f32[1024]
  return %w#0, %w#1
}
`).Funcs()[0]
	g, err := lower.Pack(f, lower.Options{Packed: all, CopyGBps: 2})
	if err != nil {
		t.Fatal(err)
	}
	m, err := sim.FromFunc(g, sim.FuncOptions{})
	if err != nil {
		t.Fatal(err)
	}
	tl, err := sim.Evaluate(m, m.InputOrder(), nil)
	if err != nil {
		t.Fatal(err)
	}
	if want := 1 + 2*2*8192/2e6; math.Abs(tl.Makespan-want) > 1e-12 {
		t.Errorf("%v ms, want %v:\n%s", tl.Makespan, want, g.Module())
	}
}

// What cannot be packed is an error that names the collective; what no transport
// asks for stays as it is.
func TestPackedNot(t *testing.T) {
	f := parseModule(t, `world 2
group @g = [[0, 1]]

func @f(%x: f32[4], %y: f32[4]) -> (async(f32[4], f32[4])) {
  %r = all_reduce.sum %x, %y on @g : async(f32[4], f32[4])
  return %r
}
`).Funcs()[0]
	if _, err := lower.FuncWith(f, lower.Options{Packed: all}); err == nil || !strings.Contains(err.Error(), "%r: its results leave the function in flight") {
		t.Errorf("got %v", err)
	}
	g, err := lower.Pack(f, lower.Options{Packed: func(n *ir.Node) bool { return n.Group().Name != "g" }})
	if err != nil || g != f {
		t.Errorf("a bucket that nobody wants packed was touched: %v", err)
	}
}

// Random programs give the same bits packed, on all ranks.
func TestPackedProperty(t *testing.T) {
	packs := 0
	for seed := range uint64(60) {
		m, err := gen.Module(seed, gen.Config{Nodes: 60, Units: seed%3 == 0})
		if err != nil {
			t.Fatal(err)
		}
		f := m.Funcs()[0]
		g, err := lower.Pack(f, lower.Options{Packed: all})
		if err != nil {
			t.Fatalf("seed %d: %v\n%s", seed, err, m)
		}
		packs += strings.Count(g.Module().String(), "= pack ")
		sameBits(t, f, seed, func(ctx context.Context, _ *ir.Func, in [][]interp.Tensor) ([][]interp.Tensor, error) {
			return interp.Run(ctx, g, in, interp.Options{Poison: true})
		})
		if t.Failed() {
			t.Fatalf("seed %d:\n%s\n%s", seed, m, g.Module())
		}
	}
	if packs < 60 {
		t.Errorf("%d packs in all", packs)
	}
}

// Uneven all_to_alls that the bucket pass joined, of sizes that the ranks know at
// run time only, run on the host device as they do in the interpreter.
func TestJoinedUnevenAllToAll(t *testing.T) {
	m := parseModule(t, `world 2
group @g = [[0, 1]]
sym a hint 4 max 6
sym b hint 2 max 6
sym c hint 1 max 6
sym d hint 3 max 6

func @f(%x: f32[a+b,2], %y: bf16[2*a+2*b,4], %z: f32[a+b,1], %na: f32[a], %nb: f32[b], %nc: f32[c], %nd: f32[d]) -> (f32[c+d,2], bf16[2*c+2*d,4], f32[c+d,1]) {
  %s = all_to_all %x on @g {in_splits=["a,b"], out_splits=["c,d"]} : async f32[c+d,2]
  %t = all_to_all %y on @g {in_splits=["2*a,2*b"], out_splits=["2*c,2*d"]} : async bf16[2*c+2*d,4]
  %u = all_to_all %z on @g {in_splits=["a,b"], out_splits=["c,d"]} : async f32[c+d,1]
  %sw = wait_tensor %s : f32[c+d,2]
  %tw = wait_tensor %t : bf16[2*c+2*d,4]
  %uw = wait_tensor %u : f32[c+d,1]
  return %sw, %tw, %uw
}
`)
	before := m.Clone().Funcs()[0]
	p, err := standard.Table().Parse("bucket")
	if err != nil {
		t.Fatal(err)
	}
	g := passes.Manager{Costs: perCall{}}
	if _, err := g.Run(m, p); err != nil {
		t.Fatal(err)
	}
	f := m.Funcs()[0]
	if n := strings.Count(m.String(), "= all_to_all"); n != 1 {
		t.Fatalf("%d collectives are left:\n%s", n, m)
	}
	in := unevenInputs(t)
	ctx := context.Background()
	want, err := interp.Run(ctx, before, in, interp.Options{Poison: true})
	if err != nil {
		t.Fatal(err)
	}
	for name, opts := range map[string]lower.Options{"in place": {}, "one by one": {Packed: all}} {
		got, err := hostrun.GoroutinesWith(rt.Config{}, opts)(ctx, f, in)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		for r := range want {
			for k := range want[r] {
				if !interp.Equal(got[r][k], want[r][k]) {
					t.Errorf("%s: rank %d output %d is %v, the interpreter's %v", name, r, k, got[r][k], want[r][k])
				}
			}
		}
	}
}

// unevenInputs are the inputs of two ranks: rank 0 keeps 4 pieces, sends 2 and gets
// 3, rank 1 keeps 1; of y it is twice as many. The last four inputs tell the sizes.
func unevenInputs(t *testing.T) [][]interp.Tensor {
	t.Helper()
	var out [][]interp.Tensor
	for r, n := range []struct{ a, b, c, d int64 }{{4, 2, 4, 3}, {3, 1, 2, 1}} {
		var in []interp.Tensor
		for k, s := range []struct {
			dt    ir.DType
			shape []int64
		}{{ir.F32, []int64{n.a + n.b, 2}}, {ir.BF16, []int64{2 * (n.a + n.b), 4}}, {ir.F32, []int64{n.a + n.b, 1}},
			{ir.F32, []int64{n.a}}, {ir.F32, []int64{n.b}}, {ir.F32, []int64{n.c}}, {ir.F32, []int64{n.d}}} {
			elems := int64(1)
			for _, d := range s.shape {
				elems *= d
			}
			vals := make([]float64, elems)
			for i := range vals {
				vals[i] = float64(100*r + 10*k + i)
			}
			x, err := interp.FromFloats(s.dt, vals, s.shape...)
			if err != nil {
				t.Fatal(err)
			}
			in = append(in, x)
		}
		out = append(out, in)
	}
	return out
}

// perCall charges every collective one millisecond.
type perCall struct{}

func (perCall) NodeMs(n *ir.Node) (float64, bool) { return 1, n.Op().IsCollective() }

func (perCall) CommMs(ir.Op, *ir.Group, ir.Reduction, int64) (float64, bool) { return 1, true }
