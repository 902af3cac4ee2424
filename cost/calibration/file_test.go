package calibration

import (
	"bytes"
	"math"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func file() *File {
	return &File{Machine: "test", Ranks: 4, EdgeUs: 1.5, MemoryScale: 0.25,
		Instructions: []Instruction{
			{Key: "matmul bf16[64,32] bf16[32,16:1,32] -> bf16[64,16]", Us: 7},
			{Key: "matmul bf16[64,32] bf16[32,16] -> bf16[64,16]", Us: 9},
			{Key: "copy bf16[2] -> bf16[2]", Us: 1},
			{Key: "all_reduce@4 bf16[2] -> bf16[2] beside", Us: 3, Speed: 0.75},
		},
		Chains: []Instruction{{Key: "chain of 1 matmul 01", Us: 7}, {Key: "chain of 2 matmul...copy 00", Us: 9.5, Speed: 0.8}}, StepUs: 4.5,
		Collectives: []Collective{{"all_reduce", Own, 4, 1 << 20, 16}, {"all_reduce", OwnAlone, 4, 1 << 20, 12}, {"all_reduce", "nccl", 4, 1 << 10, 4}, {"all_gather", Own, 4, 1 << 10, 3}},
		Overlaps:    []Overlap{{"matmul", "all_reduce", 0.9, 0.8}, {"fused", "all_reduce", 0.7, 0.6}},
		Protocols:   []Protocols{{4, Limits{OneShot: 12345, Blocks: 96}}, {2, Limits{Blocks: 1}}},
		Matmuls:     &Matmuls{"H200", 130000, []Algorithm{{"b", "2"}, {"a", "1"}}},
	}
}

// written is a file's text.
func written(t *testing.T, f *File) string {
	t.Helper()
	var b strings.Builder
	if _, err := f.WriteTo(&b); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

func TestFile(t *testing.T) {
	m := file()
	text := written(t, m)
	got, err := Read("m.json", strings.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(m, got); d != "" {
		t.Error(d)
	}
	// Entries in another order are the same file.
	other := file()
	other.Instructions[0], other.Instructions[2] = other.Instructions[2], other.Instructions[0]
	if written(t, other) != text {
		t.Error("the order of findings shows in the file")
	}
	m.Instructions[0].Us = math.NaN()
	if _, err := m.WriteTo(new(bytes.Buffer)); err == nil {
		t.Error("a time that is not a number was written")
	}
}

func TestLookUps(t *testing.T) {
	got, err := Read("m.json", strings.NewReader(written(t, file())))
	if err != nil {
		t.Fatal(err)
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
}

func TestFileErrors(t *testing.T) {
	m := file()
	text := written(t, m)
	for _, c := range []struct{ from, to, want string }{
		{`"step_us": 4.5`, `"step_us": 4`, "m.json: the digest is"},
		{`"us":7`, `"us":8`, "the file was edited"},
		{`"speed":0.75`, `"speed":1.75`, "m.json:15:66: instructions.0.speed: a speed of 1.75 is not between 0 and 1"},
		{`"machine"`, `"engine"`, `m.json:2:2: there is no field "engine"`},
		{`"ranks": 4,`, `"ranks": x,`, "m.json:4:11: invalid character 'x'"},
		{`"ranks": 4,`, `"ranks": "4",`, "m.json:4:14: field \"ranks\" cannot be a string"},
		{`"step_us": 4.5`, `"step_us": 1e999`, `field "step_us" cannot be a number 1e999`},
		{text, "null", "m.json:1:1: expected a JSON object, which starts with '{'"},
		{`"compute":0.9,`, `"compute":9,`, "m.json:26:58: beside.1.compute: a speed of 9 is not between 0 and 1"},
		{`"op":"all_gather"`, `"op":"all_gater"`, `m.json:9:9: collectives.0.op: "all_gater" is none of all_gather, all_reduce,`},
		{`"bytes":1024,"us":3`, `"us":3`, `m.json:9:3: field "bytes" is missing`},
		{`"bytes":1024,"us":3`, `"bytes":-1,"us":3`, `m.json:9:57: collectives.0.bytes: -1 is not a size`},
		{`"bytes":1024,"us":3`, `"bytes":1024,"us":0`, `m.json:9:67: collectives.0.us: must be positive, not 0`},
		{`"impl":"nccl"`, `"impl":""`, `m.json:12:29: collectives.3.impl: is empty`},
		{`"push":0,`, ``, `m.json:29:23: field "push" is missing`},
		{`"push":0,`, `"shove":0,`, `there is no field "shove"`},
	} {
		bad := strings.Replace(text, c.from, c.to, 1)
		if bad == text {
			t.Fatalf("%s is not in the file:\n%s", c.from, text)
		}
		if _, err := Read("m.json", strings.NewReader(bad)); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %s", c.to, err, c.want)
		}
	}
	bare := strings.Replace(text, ` "digest": "`+m.Digest+"\",\n", "", 1)
	if _, err := Read("m.json", strings.NewReader(strings.Replace(bare, `"us":7`, `"us":8`, 1))); err != nil || bare == text {
		t.Errorf("by hand, without a digest: %v", err)
	}
	for _, short := range []string{"", text[:len(text)/2]} {
		if _, err := Read("m.json", strings.NewReader(short)); err == nil || !strings.Contains(err.Error(), ": the file ends too early") {
			t.Errorf("%d bytes of %d: %v", len(short), len(text), err)
		}
	}
}

func TestSpeeds(t *testing.T) {
	m := file()
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
	if a, b := (&File{}).Speeds("x", "y"); a != 1 || b != 1 {
		t.Error(a, b)
	}
}
