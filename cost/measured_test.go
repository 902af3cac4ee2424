package cost

import (
	"bytes"
	"math"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/seed-ee968945/concert/ir"
)

func table() *Measured {
	return &Measured{Machine: "test", Ranks: 4, EdgeUs: 1.5, MemoryScale: 0.25,
		Instructions: []Instruction{
			{Key: "matmul bf16[64,32] bf16[32,16:1,32] -> bf16[64,16]", Us: 7},
			{Key: "matmul bf16[64,32] bf16[32,16] -> bf16[64,16]", Us: 9},
			{Key: "copy bf16[2] -> bf16[2]", Us: 1},
			{Key: "all_reduce@4 bf16[2] -> bf16[2] beside", Us: 3, Speed: 0.75},
		},
		Chains: []Instruction{{Key: "chain of 1 matmul 01", Us: 7}, {Key: "chain of 2 matmul...copy 00", Us: 9.5, Speed: 0.8}}, StepUs: 4.5,
		Collectives: []Collective{{"all_reduce", 4, 1 << 20, 16, 12}, {"all_reduce", 4, 1 << 10, 4, 0}, {"all_gather", 4, 1 << 10, 3, 3}},
		Beside:      []Beside{{"matmul", "all_reduce", 0.9, 0.8}, {"fused", "all_reduce", 0.7, 0.6}},
	}
}

func TestMeasuredFile(t *testing.T) {
	m := table()
	var b bytes.Buffer
	if _, err := m.WriteTo(&b); err != nil {
		t.Fatal(err)
	}
	text := b.String()
	got, err := ReadMeasured("m.json", strings.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(m, got); d != "" {
		t.Error(d)
	}
	// Entries in another order are the same file.
	other := table()
	other.Instructions[0], other.Instructions[2] = other.Instructions[2], other.Instructions[0]
	var c bytes.Buffer
	if _, err := other.WriteTo(&c); err != nil {
		t.Fatal(err)
	}
	if c.String() != text {
		t.Error("the order of findings shows in the file")
	}
	if us, ok := got.Micros("copy bf16[2] -> bf16[2]"); !ok || us != 1 {
		t.Error(us, ok)
	}
	if _, ok := got.Micros("copy bf16[3] -> bf16[3]"); ok {
		t.Error("an unknown instruction has a time")
	}
	if us, ok := got.ChainMicros("chain of 2 matmul...copy 00"); !ok || us != 9.5 {
		t.Error(us, ok)
	}
	if speed, ok := got.ChainSpeed("chain of 2 matmul...copy 00"); !ok || speed != 0.8 {
		t.Errorf("speed of a chain: %v, %v", speed, ok)
	}
	if _, ok := got.ChainSpeed("chain of 1 matmul 01"); ok {
		t.Error("a chain that nothing ran beside has a speed")
	}
	if speed, ok := got.Speed("all_reduce@4 bf16[2] -> bf16[2] beside"); !ok || speed != 0.75 {
		t.Error(speed, ok)
	}
	if _, ok := got.Speed("copy bf16[2] -> bf16[2]"); ok {
		t.Error("a copy has a speed")
	}
	for from, want := range map[string]string{
		`"step_us": 4.5`:  "the file was edited",
		`"speed": 0.75`:   "m.json:12: instructions.0.speed: a speed of 1.75 is no part of 1",
		`"us": 7`:         "the file was edited",
		`"edge_us": 1.5`:  "the file was edited",
		`"machine"`:       `unknown field "engine"`,
		`"ranks": 4,`:     "m.json:",
		`"compute": 0.9,`: "m.json:70: beside.1.compute: a speed of 9 is no part of 1",
	} {
		to := map[string]string{`"step_us": 4.5`: `"step_us": 4`, `"speed": 0.75`: `"speed": 1.75`, `"us": 7`: `"us": 8`, `"edge_us": 1.5`: `"edge_us": 1.25`, `"machine"`: `"engine"`, `"ranks": 4,`: `"ranks": x,`, `"compute": 0.9,`: `"compute": 9,`}[from]
		bad := strings.Replace(text, from, to, 1)
		if bad == text {
			t.Fatalf("%s is not in the file:\n%s", from, text)
		}
		if _, err := ReadMeasured("m.json", strings.NewReader(bad)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %s", to, err, want)
		}
	}
	for _, short := range []string{"", text[:len(text)/2]} {
		if _, err := ReadMeasured("m.json", strings.NewReader(short)); err == nil || !strings.Contains(err.Error(), ": the file ends too early") {
			t.Errorf("%d bytes of %d: %v", len(short), len(text), err)
		}
	}
	m.Instructions[0].Us = math.NaN()
	if _, err := m.WriteTo(&b); err == nil {
		t.Error("a time that is no number was written")
	}
}

func TestMeasuredApply(t *testing.T) {
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
	table().Apply(f, Arena(), nil, nil)
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
func TestMeasuredApplyShares(t *testing.T) {
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
	m.Instructions = []Instruction{{Key: "fused(neg) 13 f32[512] -> f32[512]", Us: 5}, {Key: "fused(neg,exp) 12 f32[512] -> f32[512]", Us: 2}}
	launches := []Launch{
		{Key: m.Instructions[1].Key, Nodes: []string{"a", "b", "v", "r", "nobody"}},
		{Key: "fused(other)", Nodes: []string{"c"}},
	}
	m.Instructions[1].Late = true
	m.Apply(f, Arena(), launches, nil)
	if ms, _ := f.Lookup("a").Cost(); ms != 0.003 {
		t.Errorf("a late instruction gave a cost: %v", ms)
	}
	m.Instructions[1].Late = false
	m.Apply(f, Arena(), launches, nil)
	m.Apply(f, Arena(), launches, nil) // again: the same
	for name, want := range map[string]float64{"a": 0.0015, "b": 0.0005, "c": 0.01} {
		if ms, ok := f.Lookup(name).Cost(); !ok || math.Abs(ms-want) > 1e-12 {
			t.Errorf("%%%s: %v ms, want %v", name, ms, want)
		}
	}
}

func TestMeasuredSpeeds(t *testing.T) {
	m := table()
	for _, c := range []struct {
		launch, collective string
		compute, comm      float64
	}{
		{"matmul", "all_reduce", 0.9, 0.8}, {"matmul", "all_gather", 0.9, 0.8}, {"fused", "all_to_all", 0.7, 0.6}, {"attention", "all_gather", 0.8, 0.7},
	} {
		if a, b := m.Speeds(c.launch, c.collective); math.Abs(a-c.compute)+math.Abs(b-c.comm) > 1e-12 {
			t.Errorf("%s beside %s: %v %v", c.launch, c.collective, a, b)
		}
	}
	if a, b := (&Measured{}).Speeds("x", "y"); a != 1 || b != 1 {
		t.Error(a, b)
	}
}

// A base of this runtime's collectives keeps what a calibration lacks, and nothing of a
// kind that was measured; other bases are replaced, or stay if nothing was measured.
func TestMeasuredModel(t *testing.T) {
	own := &Table{}
	own.Add("all_reduce", MeasuredImpl, 4, Point{1 << 10, 40})
	own.Add("all_reduce", MeasuredImpl, 4, Point{1 << 30, 4000})
	own.Add("all_to_all", MeasuredImpl, 4, Point{1 << 10, 7})
	m := table()
	us := func(model *Model, op ir.Op, size int64) float64 {
		ms, _ := model.CommMs(op, &ir.Group{Name: "g", Ranks: [][]int{{0, 1, 2, 3}}}, ir.Sum, size)
		return ms * 1e3
	}
	both := m.Model(&Model{Table: own, Impl: MeasuredImpl})
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
	if got := us(m.Model(&Model{Table: H200()}), ir.OpAllToAll, 1<<10); got != 0 {
		t.Errorf("all_to_all: %v us of another implementation", got)
	}
	m.Collectives = nil
	want := us(&Model{Table: H200()}, ir.OpAllToAll, 1<<20)
	if got := us(m.Model(&Model{Table: H200()}), ir.OpAllToAll, 1<<20); got != want || got == 0 {
		t.Errorf("all_to_all: %v us without measurements, want %v", got, want)
	}
}
