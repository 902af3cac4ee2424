package cost

import (
	"math"
	"testing"

	"github.com/seed-ee968945/concert/cost/calibration"
	"github.com/seed-ee968945/concert/ir"
)

func table() *calibration.File {
	return &calibration.File{Machine: "test", Ranks: 4, EdgeUs: 1.5, MemoryScale: 0.25,
		Instructions: []calibration.Instruction{
			{Key: "copy bf16[2] -> bf16[2]", Us: 1},
			{Key: "matmul bf16[64,32] bf16[32,16:1,32] -> bf16[64,16]", Us: 7},
			{Key: "matmul bf16[64,32] bf16[32,16] -> bf16[64,16]", Us: 9},
		},
		Collectives: []calibration.Collective{
			{Op: "all_reduce", Impl: calibration.Own, Ranks: 4, Bytes: 1 << 20, Us: 16}, {Op: "all_reduce", Impl: calibration.OwnAlone, Ranks: 4, Bytes: 1 << 20, Us: 12},
			{Op: "all_reduce", Impl: calibration.Own, Ranks: 4, Bytes: 1 << 10, Us: 4}, {Op: "all_gather", Impl: calibration.Own, Ranks: 4, Bytes: 1 << 10, Us: 3},
		},
	}
}

func TestCalibratedApply(t *testing.T) {
	mod, err := ir.Parse("t.ir", `world 4
group @g = [[0, 1, 2, 3]]
func @f(%x: bf16[64,32], %w: bf16[16,32], %z: f32[512]) -> (bf16[64,16], f32[512]) {
  %t = permute %w {dims=[1, 0]} : bf16[32,16]
  %a = matmul %x, %t : bf16[64,16] ms 0.5
  %n = neg %a : bf16[64,16] ms 0.008
  %v = permute %x {dims=[1, 0]} : bf16[32,64]
  %y = matmul %x, %v : bf16[64,64] ms 0.25
  %r = all_reduce.sum %z on @g : async f32[512] ms 2.0
  %w2 = wait_tensor %r : f32[512]
  return %n, %w2
}
`)
	if err != nil {
		t.Fatal(err)
	}
	f := mod.Funcs()[0]
	Apply(table(), f, TracedH200(), nil, nil)
	for name, want := range map[string]float64{"a": 0.007, "n": 0.002, "y": 0.25,
		"r": 0.004 * math.Pow(4, 0.1), // 2 KiB: between 4 us at 1 KiB and 16 at 1 MiB, in logarithms
	} {
		ms, ok := f.Lookup(name).Cost()
		if !ok || math.Abs(ms-want) > 1e-12 {
			t.Errorf("%%%s: %v ms, want %v", name, ms, want)
		}
	}
}

// The nodes of a measured launch share its time as they share what they cost.
func TestCalibratedApplyShares(t *testing.T) {
	mod, err := ir.Parse("t.ir", `world 4
group @g = [[0, 1, 2, 3]]
func @f(%x: f32[512], %z: f32[512]) -> (f32[512], f32[256,2], f32[512]) {
  %a = neg %x : f32[512] ms 0.003
  %b = exp %a : f32[512] ms 0.001
  %v = view %b : f32[256,2]
  %c = neg %z : f32[512] ms 0.01
  %r = all_reduce.sum %z on @g : async f32[512] ms 2.0
  %w = wait_tensor %r : f32[512]
  return %c, %v, %w
}
`)
	if err != nil {
		t.Fatal(err)
	}
	f := mod.Funcs()[0]
	m := table()
	m.Instructions = []calibration.Instruction{{Key: "fused(neg) 13 f32[512] -> f32[512]", Us: 5}, {Key: "fused(neg,exp) 12 f32[512] -> f32[512]", Us: 2}}
	launches := []Launch{
		{Key: m.Instructions[1].Key, Nodes: []string{"a", "b", "v", "r", "nobody"}},
		{Key: "fused(other)", Nodes: []string{"c"}},
	}
	m.Instructions[1].Late = true
	Apply(m, f, TracedH200(), launches, nil)
	if ms, _ := f.Lookup("a").Cost(); ms != 0.003 {
		t.Errorf("a late instruction gave a cost: %v", ms)
	}
	m.Instructions[1].Late = false
	Apply(m, f, TracedH200(), launches, nil)
	Apply(m, f, TracedH200(), launches, nil) // again: the same
	for name, want := range map[string]float64{"a": 0.0015, "b": 0.0005, "c": 0.01} {
		if ms, ok := f.Lookup(name).Cost(); !ok || math.Abs(ms-want) > 1e-12 {
			t.Errorf("%%%s: %v ms, want %v", name, ms, want)
		}
	}
}

// A base of this runtime's collectives keeps what a calibration lacks, and nothing of a
// kind that was measured; other bases are replaced, or stay if nothing was measured.
func TestCalibratedModel(t *testing.T) {
	own := &Table{}
	own.Add("all_reduce", calibration.Own, 4, Point{1 << 10, 40})
	own.Add("all_reduce", calibration.Own, 4, Point{1 << 30, 4000})
	own.Add("all_to_all", calibration.Own, 4, Point{1 << 10, 7})
	m := table()
	us := func(model *Model, op ir.Op, size int64) float64 {
		ms, _ := model.CommMs(op, &ir.Group{Name: "g", Ranks: [][]int{{0, 1, 2, 3}}}, ir.Sum, size)
		return ms * 1e3
	}
	both := (&Model{Table: own, Impl: calibration.Own}).Calibrated(m)
	if got := us(both, ir.OpAllReduce, 1<<20); math.Abs(got-16) > 1e-9 {
		t.Errorf("all_reduce: %v us, measured were 16", got)
	}
	if got := us(both, ir.OpAllReduce, 1<<30); got > 20000 { // 16 us a MiB
		t.Errorf("large all_reduce: %v us", got)
	} else if got < 16000 {
		t.Errorf("large all_reduce: %v us: the base's point was not left out", got)
	}
	if got := us(both, ir.OpAllToAll, 1<<10); math.Abs(got-7) > 1e-9 {
		t.Errorf("all_to_all: %v us, the base says 7", got)
	}
	if got := us((&Model{Table: H200()}).Calibrated(m), ir.OpAllToAll, 1<<10); got != 0 {
		t.Errorf("all_to_all: %v us of another implementation", got)
	}
	m.Collectives = nil
	want := us(&Model{Table: H200()}, ir.OpAllToAll, 1<<20)
	if got := us((&Model{Table: H200()}).Calibrated(m), ir.OpAllToAll, 1<<20); got != want || got == 0 {
		t.Errorf("all_to_all: %v us without measurements, want %v", got, want)
	}
}
