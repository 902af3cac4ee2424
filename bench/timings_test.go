package bench

import (
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/seed-ee968945/concert/internal/fingerprint"
	"github.com/seed-ee968945/concert/interp"
	"github.com/seed-ee968945/concert/interp/step"
	"github.com/seed-ee968945/concert/ir"
	"github.com/seed-ee968945/concert/program"
)

func TestWriteTimings(t *testing.T) {
	ts := []timing{
		{Func: "a.fw", Ranks: 4, Ms: 0.4647, Least: 0.4628, Calls: 0.5685, Compute: 0.4336, Lost: 0.0311, Waiting: 0.0300, Exposed: 0.0300, Sim: 0.47, SimExposed: 0.03, SimError: 0.0114, Unhidden: 0.0024, Instrs: 98, Arena: 1750789120},
		{Func: "a.bw", Ranks: 4, Ms: 27.09872, Least: 26.9, Calls: 27.4, Compute: 19.2, Lost: 7.9, Waiting: 5.1, Exposed: 5.1, Sim: 33.7, SimExposed: 4.9, Instrs: 260, Arena: 5903161344},
	}
	var b strings.Builder
	if err := writeTimings(&b, ts, false); err != nil {
		t.Fatal(err)
	}
	want := `  function  ranks  step ms  fastest  uncaptured  compute alone  collectives cost  compute waits  exposed  instructions  arena GiB
      a.fw      4   0.4647   0.4628      0.5685         0.4336            0.0311         0.0300   0.0300            98       1.63
      a.bw      4  27.0987  26.9000     27.4000        19.2000            7.9000         5.1000   5.1000           260       5.50
  simulated  step ms  of measured  compute alone  exposed  exposed beyond it
       a.fw   0.4700        +1.1%         0.4400   0.0300              +0.2%
       a.bw  33.7000        +0.0%        28.8000   4.9000              +0.0%
` + timingsLegend
	if d := cmp.Diff(want, b.String()); d != "" {
		t.Error(d)
	}
	b.Reset()
	if err := writeTimings(&b, ts[:1], true); err != nil {
		t.Fatal(err)
	}
	want = `{"func":"a.fw","ranks":4,"ms":0.4647,"least_ms":0.4628,"calls_ms":0.5685,"compute_ms":0.4336,"lost_ms":0.0311,"waiting_ms":0.03,"exposed_ms":0.03,"sim_ms":0.47,"sim_exposed":0.03,"sim_error":0.0114,"unhidden":0.0024,"instructions":98,"arena_bytes":1750789120}
`
	if d := cmp.Diff(want, b.String()); d != "" {
		t.Error(d)
	}
}

func TestMedian(t *testing.T) {
	for _, c := range []struct {
		ts   []float64
		want float64
	}{{[]float64{3}, 3}, {[]float64{5, 1, 4}, 4}, {[]float64{4, 1, 3, 2}, 3}} {
		if got := median(c.ts); got != c.want {
			t.Errorf("%v: %v, want %v", c.ts, got, c.want)
		}
	}
	if !math.IsNaN(median(nil)) {
		t.Error("the median of nothing is a number")
	}
}

func TestPeer(t *testing.T) {
	path := filepath.Join(t.TempDir(), "peer")
	text := `W1120 a warning of another program
{"torch": "2.11.0", "world": 4}
{"graph": "a.fw", "loss": 11.1}
{"graph": "a.fw", "variant": "traced", "compile_s": 0.0, "ms": 1.0, "min_ms": 0.9}
{"graph": "a.fw", "variant": "compute", "compile_s": 0.0, "ms": 0.8, "min_ms": 0.7}
{"graph": "a.fw", "variant": "inductor", "rel": 0.01, "ms": 0.6}
{"graph": "a.fw", "variant": "overlap", "rel": 0.01, "ms": 0.7}
{"graph": "b.fw", "variant": "overlap", "error": "the time is up"}
{"done": true}
`
	if err := os.WriteFile(path, []byte(text), 0o666); err != nil {
		t.Fatal(err)
	}
	peers, err := readPeer(path)
	if err != nil {
		t.Fatal(err)
	}
	a := peerTimes{Traced: 1, Compute: 0.8, Inductor: 0.6}
	if d := cmp.Diff(map[string]peerTimes{"a.fw": a}, peers); d != "" {
		t.Error(d)
	}
	var b strings.Builder
	if err := writePeers(&b, []timing{{Func: "a.fw", Ms: 0.5, Lost: 0.05, Peer: &a}, {Func: "a.bw", Ms: 1, Peer: &peerTimes{Traced: 3}}, {Func: "c.fw", Ms: 1}}); err != nil {
		t.Fatal(err)
	}
	want := strings.Join([]string{
		"  beside PyTorch  step ms  as traced  ratio  Inductor  ratio  collectives cost  as traced  ratio",
		"            a.fw   0.5000     1.0000  2.00x    0.6000  1.20x            0.0500     0.2000  4.00x",
		"            a.bw   1.0000     3.0000  3.00x         -      -            0.0000          -      -",
		"  ratio              how many times as long PyTorch takes: its graph as traced, or the better of its two by Inductor",
		"",
	}, "\n")
	if d := cmp.Diff(want, b.String()); d != "" {
		t.Error(d)
	}
	if err := os.WriteFile(path, []byte("nothing\n"), 0o666); err != nil {
		t.Fatal(err)
	}
	if _, err := readPeer(path); err == nil || !strings.Contains(err.Error(), "holds no times") {
		t.Error(err)
	}
}

// An input is overwritten where an instruction writes any of its bytes.
func TestOverwritten(t *testing.T) {
	p, err := program.Parse("p", `program @p world 1
stream @compute
events 0
arena 4096
buffer %a at 0 size 1024
buffer %b at 1024 size 64
buffer %c at 512 size 512
buffer %d at 2048 size 64
input a = %a: f32[256]
input low = %a: f32[64]
input b = %b: f32[16]
input d = %d: f32[16]
output c = %c: f32[16]
body
@compute launch neg (%b: f32[16]) -> (%c: f32[16]) from %x
@compute launch neg (%c: f32[16]) -> (%d: f32[16]) from %y
`)
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff([]bool{true, false, false, true}, overwritten(p)); d != "" {
		t.Error(d)
	}
}

const overlapped = `world 4
group @tp = [[0, 1, 2, 3]]

func @mlp(%x: bf16[8,16], %w: bf16[16,8]) -> (bf16[8,8]) {
  %h = matmul %x, %w : bf16[8,8] ms 0.5
  %r = all_reduce.sum %h on @tp : async bf16[8,8] ms 1.0
  %n = matmul %h, %h : bf16[8,8] ms 0.1
  %y = wait_tensor %r : bf16[8,8]
  %z = add %y, %n : bf16[8,8] ms 0.1
  return %z
}
`

func parsed(t *testing.T, text string) *ir.Func {
	t.Helper()
	m, err := ir.Parse("t.ir", text)
	if err != nil {
		t.Fatal(err)
	}
	return m.Funcs()[0]
}

// What is expected to be equal on all ranks is told by the recordings.
func TestReplicated(t *testing.T) {
	f := parsed(t, strings.Replace(strings.Replace(overlapped, "return %z", "return %z, %n", 1), "-> (bf16[8,8])", "-> (bf16[8,8], bf16[8,8])", 1))
	j := &Job{Config: Config{Expect: "recorded"}, pair: &step.Pair{Name: "mlp", Forward: f}}
	for r := range 4 {
		set := &fingerprint.Set{Prints: map[fingerprint.Key]fingerprint.Print{}}
		for k, v := range []float64{1, float64(r)} {
			x, err := interp.Fill(ir.BF16, v, 8, 8)
			if err != nil {
				t.Fatal(err)
			}
			if set.Prints[fingerprint.Key{Func: "mlp.fw", Output: k}], err = fingerprint.Of(x); err != nil {
				t.Fatal(err)
			}
		}
		j.prints = append(j.prints, set)
	}
	got, err := j.replicated(0, f)
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff([]bool{true, false}, got); d != "" {
		t.Error(d)
	}
	if got, err := (&Job{}).replicated(0, f); err != nil || got != nil {
		t.Errorf("without recordings: %v %v", got, err)
	}
}
