package program

import (
	"math"
	"math/rand"
	"strings"
	"testing"
)

const simText = `program @s world 2
group @g = [[0, 1]]
stream @compute
stream @comm.g on @g
events 4
arena 4096
buffer %a at 0 size 64
buffer %b at 512 size 64
buffer %c at 1024 size 64
buffer %d at 1536 size 64
input a = %a: f32[16]
output d = %d: f32[16]
body
@compute record 0
@comm.g wait 0
@comm.g all_reduce on @g (%a: f32[16]) -> (%b: f32[16]) {reduce="sum"} from %r
@comm.g record 1
@compute launch neg (%a: f32[16]) -> (%c: f32[16]) from %x
@compute launch exp (%c: f32[16]) -> (%c: f32[16]) from %y
@compute wait 1
@compute launch add (%b: f32[16], %c: f32[16]) -> (%d: f32[16]) from %z
`

func simProgram(t *testing.T, text string) *Program {
	t.Helper()
	p, err := Parse("sim", text)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// lengths gives each operation a time.
func lengths(us map[string]float64) func(in *Instr) float64 {
	return func(in *Instr) float64 { return us[in.Op] }
}

func TestSimulate(t *testing.T) {
	p := simProgram(t, simText)
	half := func(_, _ *Instr) (float64, float64) { return 0.5, 0.8 }
	for _, c := range []struct {
		name string
		us   map[string]float64
		o    SimOptions
		want float64
	}{
		{"hidden", map[string]float64{"all_reduce": 8, "neg": 5, "exp": 5, "add": 1}, SimOptions{}, 11},
		{"exposed", map[string]float64{"all_reduce": 30, "neg": 5, "exp": 5, "add": 1}, SimOptions{}, 31},
		{"edges", map[string]float64{"all_reduce": 30, "neg": 5, "exp": 5, "add": 1}, SimOptions{EdgeUs: 2}, 35},
		{"hidden edges", map[string]float64{"all_reduce": 4, "neg": 5, "exp": 5, "add": 1}, SimOptions{EdgeUs: 2}, 11},
		{"no collectives", map[string]float64{"all_reduce": 30, "neg": 5, "exp": 5, "add": 1}, SimOptions{EdgeUs: 2, NoCollectives: true}, 11},
		// 8 us of all_reduce take 10 beside computing, which does 5 of its 10 us meanwhile.
		{"slower", map[string]float64{"all_reduce": 8, "neg": 5, "exp": 5, "add": 1}, SimOptions{Overlap: half}, 16},
		// Computing takes 20 us, in which 16 of the 30 are done; 14 are left alone.
		{"slower, exposed", map[string]float64{"all_reduce": 30, "neg": 5, "exp": 5, "add": 1}, SimOptions{Overlap: half}, 35},
		{"nothing", nil, SimOptions{}, 0},
	} {
		c.o.Us = lengths(c.us)
		got, err := Simulate(p, c.o)
		if err != nil {
			t.Fatal(err)
		}
		if math.Abs(got.Us-c.want) > 1e-9 {
			t.Errorf("%s: %v us, want %v", c.name, got.Us, c.want)
		}
		for i := range p.Instrs {
			if math.IsInf(got.End[i], 0) || got.End[i] < got.Begin[i] || got.End[i] > got.Us {
				t.Errorf("%s: instruction %d runs from %v to %v", c.name, i, got.Begin[i], got.End[i])
			}
		}
	}
}

// A collective that nothing runs beside follows what it waits for, and what waits for
// it follows, without edges.
func TestSimulateEdges(t *testing.T) {
	us := lengths(map[string]float64{"all_reduce": 30, "neg": 5, "exp": 5, "add": 1})
	exposed := strings.Replace(simText, "@compute wait 1\n", "", 1)
	exposed = strings.Replace(exposed, "@compute launch neg", "@compute wait 1\n@compute launch neg", 1)
	for _, c := range []struct {
		text string
		want float64
	}{{simText, 35}, {exposed, 41}} {
		got, err := Simulate(simProgram(t, c.text), SimOptions{EdgeUs: 2, Us: us})
		if err != nil {
			t.Fatal(err)
		}
		if got.Us != c.want {
			t.Errorf("%v us, want %v, of\n%s", got.Us, c.want, c.text)
		}
	}
}

// A wait is for the record before it, not for a later one of the same event.
func TestSimulateEventsAgain(t *testing.T) {
	text := strings.Replace(simText, "@compute launch neg", "@comm.g all_reduce on @g (%c: f32[16]) -> (%c: f32[16]) {reduce=\"sum\"} from %q\n@compute launch neg", 1)
	text = strings.Replace(text, "@compute launch add", "@comm.g record 1\n@compute launch add", 1)
	got, err := Simulate(simProgram(t, text), SimOptions{Us: lengths(map[string]float64{"all_reduce": 8, "add": 1})})
	if err != nil {
		t.Fatal(err)
	}
	if n := len(got.End) - 1; got.End[n] != 9 || got.Us != 16 {
		t.Errorf("add ends at %v of %v, want 9 of 16", got.End[n], got.Us)
	}
}

// On random lengths: no instruction of a stream overlaps another, waits hold, and
// the time is between the busiest stream's and the sum of all.
func TestSimulateProperties(t *testing.T) {
	rng := rand.New(rand.NewSource(1))
	p := simProgram(t, simText)
	for range 200 {
		us := map[string]float64{}
		for _, op := range []string{"all_reduce", "neg", "exp", "add"} {
			us[op] = float64(rng.Intn(20))
		}
		o := SimOptions{Us: lengths(us), EdgeUs: float64(rng.Intn(3))}
		a, b := 0.3+0.7*rng.Float64(), 0.3+0.7*rng.Float64()
		o.Overlap = func(_, _ *Instr) (float64, float64) { return a, b }
		got, err := Simulate(p, o)
		if err != nil {
			t.Fatal(err)
		}
		compute := us["neg"] + us["exp"] + us["add"]
		if least := max(compute, us["all_reduce"]+us["add"]); got.Us < least-1e-9 {
			t.Fatalf("%v takes %v us, at least %v is possible", us, got.Us, least)
		}
		if most := (compute+us["all_reduce"])/min(a, b) + 4*o.EdgeUs; got.Us > most+1e-9 {
			t.Fatalf("%v takes %v us, at most %v is possible", us, got.Us, most)
		}
		free := map[int]float64{}
		for i := range p.Instrs {
			in := &p.Instrs[i]
			if got.Begin[i] < free[in.Stream] {
				t.Fatalf("instruction %d begins at %v, its stream is busy until %v", i, got.Begin[i], free[in.Stream])
			}
			free[in.Stream] = got.End[i]
		}
		if got.Begin[7] < got.End[3] {
			t.Fatal("the sum begins before the all_reduce has ended")
		}
	}
}

func TestCostKey(t *testing.T) {
	p := simProgram(t, `program @k world 4
group @g = [[0, 1], [2, 3]]
sym n hint 8 max 16
stream @compute
stream @comm.g on @g
events 1
arena 4096
buffer %a at 0 size 1024
buffer %b at 1024 size 1024
buffer %c at 2048 size 1024
input a = %a: f32[4,8]
input s = %b: bf16[n,4]
output c = %c: f32[4,4]
kernel k7
step neg (p0: f32[4]) -> (t0: f32[4]) from %q
step exp (t0: f32[4]) -> (p1: f32[4]) from %e
body
@compute launch matmul (%a: f32[4,8], %b: f32[8,4:1,8]) -> (%c: f32[4,4]) from %m
@compute copy (%a: f32[4,8]) -> (%c: f32[4,8]) from %x
@comm.g all_gather on @g (%b: bf16[n,4]) -> (%c: bf16[2*n,4]) {dim=0} from %g
@comm.g record 0
@compute launch fused (%a: f32[4]) -> (%c: f32[4]) {kernel="k7"} from %e
`)
	want := []string{
		"matmul f32[4,8] f32[8,4:1,8] -> f32[4,4]",
		"copy f32[4,8] -> f32[4,8]",
		"all_gather@2 {dim=0} bf16[8,4] -> bf16[16,4]",
		"",
	}
	for i, w := range want {
		if got := p.CostKey(&p.Instrs[i]); got != w {
			t.Errorf("instruction %d: %q, want %q", i, got, w)
		}
	}
	fused := p.CostKey(&p.Instrs[4])
	if !strings.HasPrefix(fused, "fused(neg,exp) ") || !strings.HasSuffix(fused, " f32[4] -> f32[4]") {
		t.Error(fused)
	}
	// Names and comments do not matter; what it does, does.
	sourced := func(name, source string) string {
		text := strings.ReplaceAll(p.String(), "k7", name)
		q := simProgram(t, text)
		q.Kernels[0].Source = source
		return q.CostKey(&q.Instrs[4])
	}
	one := sourced("k1", "extern \"C\" void k1(float* x) { x[0] = 1; } // %q")
	if two := sourced("k12", "extern \"C\" void k12(float* x) { x[0] = 1; } // %other"); one != two {
		t.Errorf("%s, %s", one, two)
	}
	if two := sourced("k1", "extern \"C\" void k1(float* x) { x[0] = 2; }"); one == two || one == fused {
		t.Errorf("%s, %s", one, two)
	}
}

func TestOverlapped(t *testing.T) {
	if got := simProgram(t, simText).Overlapped(); got[2] {
		t.Errorf("%v: what runs beside the all_reduce leaves room", got)
	}
	held := strings.Replace(simText, "launch neg", "launch call", 1)
	if got := simProgram(t, held).Overlapped(); !got[2] {
		t.Errorf("%v: a call runs beside the all_reduce", got)
	}
	alone := strings.Replace(simText, "@compute launch neg (%a: f32[16]) -> (%c: f32[16]) from %x\n@compute launch exp (%c: f32[16]) -> (%c: f32[16]) from %y\n@compute wait 1\n", "@compute wait 1\n", 1)
	if got := simProgram(t, alone).Overlapped(); got[2] {
		t.Errorf("%v: nothing runs beside the all_reduce", got)
	}
	before := strings.Replace(alone, "@comm.g wait 0\n", "@compute launch call (%a: f32[16]) -> (%c: f32[16]) from %x\n@comm.g wait 0\n", 1)
	if got := simProgram(t, before).Overlapped(); !got[3] {
		t.Errorf("%v: a call is issued after the record that the all_reduce waits for", got)
	}
}

// Collectives of two groups with a rank in common share the links while both run.
func TestSimulateLinks(t *testing.T) {
	text := `program @s world 4
group @g = [[0, 1], [2, 3]]
group @h = [[1, 2]]
group @i = [[0, 3]]
stream @compute
stream @comm.g on @g
stream @comm.h on @h
stream @comm.i on @i
events 0
arena 4096
buffer %a at 0 size 64
buffer %b at 512 size 64
buffer %c at 1024 size 64
input a = %a: f32[16]
output b = %b: f32[16]
body
@comm.g all_reduce on @g (%a: f32[16]) -> (%b: f32[16]) {reduce="sum"} from %x
`
	for _, c := range []struct {
		with  string // a second collective, on that group
		links float64
		want  float64
	}{
		{"", 0.75, 12},
		{"h", 0.5, 12},
		{"h", 0.75, 16}, // 8 us both run at 2/3 of their speed in 12; 4 more take 4
		{"h", 1, 20},
	} {
		more := text
		if c.with != "" {
			more += "@comm." + c.with + " all_to_all on @" + c.with + " (%a: f32[16]) -> (%c: f32[16]) from %y\n"
		}
		o := SimOptions{Us: lengths(map[string]float64{"all_reduce": 12, "all_to_all": 8}), Links: func(*Instr) [2]float64 { return [2]float64{c.links} }}
		got, err := Simulate(simProgram(t, more), o)
		if err != nil {
			t.Fatal(err)
		}
		if math.Abs(got.Us-c.want) > 1e-9 {
			t.Errorf("on %q with %v of the links: %v us, want %v", c.with, c.links, got.Us, c.want)
		}
	}
	// Groups that have no rank in common do not share links.
	apart := strings.Replace(text, "@comm.g all_reduce on @g", "@comm.h all_reduce on @h", 1)
	apart += "@comm.i all_to_all on @i (%a: f32[16]) -> (%c: f32[16]) from %y\n"
	got, err := Simulate(simProgram(t, apart), SimOptions{Us: lengths(map[string]float64{"all_reduce": 12, "all_to_all": 8}), Links: func(*Instr) [2]float64 { return [2]float64{1} }})
	if err != nil {
		t.Fatal(err)
	}
	if got.Us != 12 {
		t.Errorf("groups apart: %v us, want 12", got.Us)
	}
	// Neither do one within an NVLink domain and one between domains.
	other := text + "@comm.h all_to_all on @h (%a: f32[16]) -> (%c: f32[16]) from %y\n"
	links := func(in *Instr) [2]float64 {
		if in.Op == "all_to_all" {
			return [2]float64{0, 1}
		}
		return [2]float64{1, 0}
	}
	got, err = Simulate(simProgram(t, other), SimOptions{Us: lengths(map[string]float64{"all_reduce": 12, "all_to_all": 8}), Links: links})
	if err != nil || got.Us != 12 {
		t.Errorf("links apart: %v us, %v; want 12", got, err)
	}
}
