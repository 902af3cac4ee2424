package cost

import (
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/seed-ee968945/concert/cost/calibration"
	"github.com/seed-ee968945/concert/ir"
)

// The embedded tables read back measured points exactly, interpolate between
// them, and extend as the package says.
func TestH200(t *testing.T) {
	tab := H200()
	for _, c := range []struct {
		op    string
		ranks int
		bytes int64
		want  float64
	}{
		{"all_reduce", 8, 1 << 10, 20.522}, {"all_reduce", 8, 10, 20.522}, {"all_reduce", 5, 1 << 10, 20.522},
		{"all_reduce", 16, 1 << 10, 20.522 + 10}, {"all_reduce", 8, 1 << 31, 2 * 5266.0},
	} {
		got, ok := tab.Micros(c.op, "nccl", c.ranks, c.bytes)
		if !ok || math.Abs(got-c.want) > 0.001*c.want {
			t.Errorf("%s of %d bytes on %d ranks takes %v us, want %v", c.op, c.bytes, c.ranks, got, c.want)
		}
	}
	a, _ := tab.Micros("all_gather", "nccl", 4, 1<<20)
	b, _ := tab.Micros("all_gather", "nccl", 4, 1<<22)
	if mid, _ := tab.Micros("all_gather", "nccl", 2, 1<<21); math.Abs(mid-math.Sqrt(a*b)) > 1e-9 {
		t.Errorf("the logarithmic middle of %v and %v is %v", a, b, mid)
	}
	if _, ok := tab.Micros("all_gather", "carrier pigeon", 4, 1); ok {
		t.Error("an unknown implementation has a time")
	}
}

// Calibrations have times of every collective of the op table.
func TestCalibrationKnowsCollectives(t *testing.T) {
	known := calibration.Collectives()
	for _, op := range ir.Ops() {
		if op != ir.OpAsyncCall && op.IsCollective() != slices.Contains(known, op.Name()) {
			t.Errorf("%s: collective %v, in calibrations %v", op.Name(), op.IsCollective(), !op.IsCollective())
		}
	}
}

func TestMachines(t *testing.T) {
	for _, name := range Machines() {
		m, err := LookupMachine(name)
		if err != nil {
			t.Fatal(err)
		}
		if err := m.Check(); err != nil || m.Name != name {
			t.Errorf("%s: %v", name, err)
		}
		m.MatmulTFLOPS["bf16"] = 0
	}
	if m, _ := LookupMachine("h200"); m.MatmulTFLOPS["bf16"] == 0 {
		t.Error("one caller's change reaches another")
	}
	if _, err := LookupMachine("h900"); err == nil || !strings.Contains(err.Error(), "have a100 b200 h100 h200") {
		t.Errorf("unknown machine: %v", err)
	}
	_, err := ReadMachine("m.json", strings.NewReader("{\n \"name\": \"x\",\n \"memory_gpbs\": 1}\n"))
	if err == nil || !strings.Contains(err.Error(), `m.json:`) || !strings.Contains(err.Error(), "memory_gpbs") {
		t.Errorf("misspelt field: %v", err)
	}
}

// What a machine's file has wrong is told with line and column.
func TestMachineErrors(t *testing.T) {
	const good = `{
 "name": "x",
 "matmul_tflops": {"bf16": 1,
  "f32": 2},
 "vector_tflops": 1, "memory_gbps": 1,
 "launch_us": 1, "units": 1, "ranks_per_host": 8,
 "intra": {"gbps": 1,
  "hop_us": 1},
 "inter": {
  "gbps": 1,
  "base_us": 0}
}
`
	if _, err := ReadMachine("m.json", strings.NewReader(good)); err != nil {
		t.Fatal(err)
	}
	for _, c := range [][3]string{ // old, new, want
		{`"launch_us": 1`, `"launch_us": -1`, "m.json:6:15: machine x: launch_us: must not be negative, as -1"},
		{`"hop_us": 1`, `"hop_us": -0.5`, "m.json:8:13: machine x: intra.hop_us: must not be negative, as -0.5"},
		{"{\n  \"gbps\": 1", "{\n  \"gbps\": -1", "m.json:10:11: machine x: inter.gbps: must not be negative, as -1"},
		{`"base_us": 0`, `"base_us": 1e13`, "m.json:11:14: machine x: inter.base_us: 1e+13 is more than 1e+12"},
		{`"f32": 2`, `"f32": 0`, "m.json:4:10: machine x: matmul_tflops.f32: must be positive, not 0"},
		{`"f32": 2`, `"fp32": 2`, "m.json:4:11: machine x: matmul_tflops.fp32: is not a type of matmuls: want bf16, f16, f32, f64 or tf32"},
		{`"launch_us": 1`, `"tf32": true, "launch_us": 1`, "m.json:6:10: machine x: tf32: needs a rate: want matmul_tflops.tf32"},
		{`"memory_gbps": 1,`, ``, "m.json:1:1: field \"memory_gbps\" is missing"},
		{`"units": 1`, `"oversubscription": 0.5, "units": 1`, "m.json:6:38: machine x: oversubscription: must be at least 1, or 0"},
		{`"units": 1`, `"units": "1"`, `m.json:6:30: field "units" cannot be a string: want a whole number that fits int`},
		{"}\n}\n", "}\n}\n{", "m.json:13:2: more follows the end"},
		{`"launch_us": 1,`, `"launch_us" 1,`, "m.json:6:14: invalid character '1' after object key"},
	} {
		if _, err := ReadMachine("m.json", strings.NewReader(strings.Replace(good, c[0], c[1], 1))); err == nil || err.Error() != c[2] {
			t.Errorf("%s: got  %v\nwant %s", c[1], err, c[2])
		}
	}
}

// The protocol model stays within a factor of 2, and 1.3 on average, of what NCCL measured on
// H200s, over six decades of size, once told that there are no direct kernels.
func TestCommModelAgainstMeasurement(t *testing.T) {
	m, err := LookupMachine("h200")
	if err != nil {
		t.Fatal(err)
	}
	m.Intra.BarrierUs = 0
	tab := H200()
	sum, count := 0.0, 0
	for _, op := range []ir.Op{ir.OpAllReduce, ir.OpAllGather, ir.OpReduceScatter, ir.OpAllToAll} {
		for _, ranks := range []int{4, 8} {
			for size := int64(1 << 10); size <= 1<<30; size <<= 2 {
				want, _ := tab.Micros(op.Name(), "nccl", ranks, size)
				ms, ok := m.CommMs(op, m.together(ranks), size)
				r := ms * 1e3 / want
				if !ok || r < 0.5 || r > 2 {
					t.Errorf("%s of %d bytes on %d ranks: %.1f us, measured %.1f", op, size, ranks, ms*1e3, want)
				}
				sum += math.Abs(math.Log(r))
				count++
			}
		}
	}
	if mean := math.Exp(sum / float64(count)); mean > 1.3 {
		t.Errorf("the model is off by a factor of %.3f on average", mean)
	}
}

func TestPrecedence(t *testing.T) {
	mod, err := ir.Parse("t.ir", `world 8
group @g = [[0, 1, 2, 3, 4, 5, 6, 7]]
func @f(%x: bf16[4096,4096]) -> (bf16[4096,4096]) {
  %a = matmul %x, %x : bf16[4096,4096] ms 0.5
  %b = matmul %a, %x : bf16[4096,4096]
  %r = all_reduce.sum %b, %a on @g : async(bf16[4096,4096], bf16[4096,4096])
  %w:2 = wait_tensor %r : bf16[4096,4096], bf16[4096,4096]
  %c = call %w#0 {target="mystery"} : bf16[4096,4096]
  return %c
}
`)
	if err != nil {
		t.Fatal(err)
	}
	f := mod.Funcs()[0]
	h200, err := LookupMachine("h200")
	if err != nil {
		t.Fatal(err)
	}
	full := &Model{Table: H200(), Machine: h200}
	if ms, ok := full.NodeMs(f.Lookup("a")); !ok || ms != 0.5 {
		t.Errorf("attached cost: %v %v", ms, ok)
	}
	// 2*4096^3 operations at 760 TFLOPS take 0.181 ms; 1024 tiles fill 7.76 waves of 132.
	if ms, ok := full.NodeMs(f.Lookup("b")); !ok || ms < 0.181 || ms > 0.2 {
		t.Errorf("matmul: %v %v", ms, ok)
	}
	want, _ := H200().Micros("all_reduce", "nccl", 8, 2*4096*4096*2)
	if ms, ok := full.NodeMs(f.Lookup("r")); !ok || math.Abs(ms*1e3-want) > 1e-9 {
		t.Errorf("bucket: %v %v, want %v us", ms, ok, want)
	}
	if _, ok := full.NodeMs(f.Lookup("c")); ok {
		t.Error("an opaque call has a cost")
	}
	if _, ok := TracedH200().NodeMs(f.Lookup("b")); ok {
		t.Error("a model without a machine knows a matmul")
	}
}

// Matmuls and convolutions of f32 have the rate of TF32 where libraries may round, and what our
// own kernels compute never.
func TestTF32(t *testing.T) {
	mod, err := ir.Parse("t.ir", `world 1
func @f(%x: f32[4096,4096], %y: bf16[4096,4096], %b: f32[4096], %g: f32[2,4096,4096], %o: i32[2], %i: f32[16,64,128,128], %w: f32[64,64,3,3], %q: f32[8,16,1024,64]) -> (f32[4096,4096]) {
  %mm = matmul %x, %x : f32[4096,4096]
  %addmm = addmm %b, %x, %x : f32[4096,4096]
  %conv = convolution %i, %w : f32[16,64,126,126]
  %grouped = grouped_matmul %x, %g, %o : f32[4096,4096]
  %att:2 = attention %q, %q, %q : f32[8,16,1024,64], f32[8,16,1024]
  %half = matmul %y, %y : bf16[4096,4096]
  return %mm
}
`)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range Machines() {
		m, err := LookupMachine(name)
		if err != nil {
			t.Fatal(err)
		}
		full := map[string]float64{}
		for _, n := range mod.Funcs()[0].Order() {
			full[n.Name()], _ = m.NodeMs(n)
		}
		// The datasheets' peaks outside the tensor cores.
		if least := 2 * 4096 * 4096 * 4096 / map[string]float64{"a100": 19.5e9, "h100": 67e9, "h200": 67e9, "b200": 80e9}[name]; full["mm"] < least {
			t.Errorf("%s: a matmul of f32 takes %.3f ms, less than %.3f", name, full["mm"], least)
		}
		m.TF32 = true
		by := m.MatmulTFLOPS["tf32"] / m.MatmulTFLOPS["f32"]
		for _, n := range mod.Funcs()[0].Order() {
			want := full[n.Name()]
			switch n.Name() {
			case "mm", "addmm", "conv":
				want /= by
			}
			if ms, _ := m.NodeMs(n); math.Abs(ms-want) > 1e-9*want {
				t.Errorf("%s: %s takes %v ms, want %v", name, n.Name(), ms, want)
			}
		}
	}
}

func TestLinkShare(t *testing.T) {
	m, err := LookupMachine("h200")
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		op    ir.Op
		ranks int
		size  int64
		us    float64
		want  float64
	}{
		{ir.OpAllGather, 4, 450e3 * 4 / 3, 1, 1},   // what the wires carry
		{ir.OpAllGather, 4, 450e3 * 4 / 3, 2, 0.5}, // half as fast
		{ir.OpAllGather, 4, 450e3 * 4 / 3, 0.5, 1}, // no more than all
		{ir.OpAllReduce, 2, 450e3, 4, 0.25},        // a reduction and a gather of half each
		{ir.OpAllToAll, 1, 450e3, 1, 0},            // nobody to send to
		{ir.OpAllToAll, 4, 450e3, 0, 0},            // of no length
		{ir.OpMatmul, 4, 450e3, 1, 0},              // no collective
	} {
		if got := m.LinkShare(c.op, m.together(c.ranks), c.size, c.us); math.Abs(got[0]-c.want) > 1e-9 || got[1] != 0 {
			t.Errorf("%v of %d bytes on %d ranks in %v us: %v, want %v", c.op, c.size, c.ranks, c.us, got, c.want)
		}
	}
}

// This runtime's own table knows what passes ask for, and nothing faster than the wires.
func TestConcert(t *testing.T) {
	own, nccl := Concert(), H200()
	for _, op := range []ir.Op{ir.OpAllGather, ir.OpAllReduce, ir.OpAllToAll, ir.OpReduceScatter} {
		for _, impl := range []string{calibration.Own, calibration.OwnAlone} {
			for size := int64(1 << 10); size <= 1<<30; size *= 4 {
				us, ok := own.Micros(op.Name(), impl, 4, size)
				_, share, _ := traffic(op, 4)
				if wires := share * float64(size) / 450e3; !ok || us < wires {
					t.Errorf("%s %s of %d bytes: %v us, the wires take %v", impl, op.Name(), size, us, wires)
				}
				if theirs, _ := nccl.Micros(op.Name(), "nccl", 4, size); impl == calibration.OwnAlone && us > 1.05*theirs {
					t.Errorf("%s of %d bytes: %v us alone, NCCL %v", op.Name(), size, us, theirs)
				}
			}
		}
		large, _ := own.Micros(op.Name(), calibration.Own, 64, 1<<10)
		small, _ := own.Micros(op.Name(), calibration.Own, 4, 1<<10)
		if large <= small {
			t.Errorf("%s on 64 ranks: %v us, on 4 %v", op.Name(), large, small)
		}
	}
}

// together is the span of a group of that many ranks in a row, the only one there is.
func (m *Machine) together(ranks int) Span {
	row := make([]int, ranks)
	for i := range row {
		row[i] = i
	}
	return m.Span([][]int{row})
}
