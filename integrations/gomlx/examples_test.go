package gomlx

import (
	"encoding/json"
	"flag"
	"fmt"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

var runExamples = flag.Bool("examples", false, "build and train GoMLX's examples, for some minutes")

// example is a program of GoMLX's examples that needs no download.
type example struct {
	name, path  string
	args        []string // DATA is a folder with made-up tables of the Adult data set
	distributed []string // further arguments, for N devices and N times smaller batches: BATCH
	metrics     int      // behind the loss, in what a step returns last
}

var examples = []example{
	{"adult", "adult/demo", []string{"-data", "DATA", "-set=plots=false;train_steps=100;batch_size=BATCH"}, []string{"-distributed"}, 2},
	{"text generation", "textgen", []string{"-set=train_steps=100;batch_size=16"}, nil, 1},
	{"linear regression", "linear", []string{"-steps=100"}, nil, 1},
	{"image", "gomlx.github.io/core-concepts/training", []string{"-steps=100", "-output", "DATA/image.png"}, nil, 1},
	{"training loop", "gomlx.github.io/training", []string{"-data", "DATA", "-checkpoint="}, nil, 2},
}

// Examples of GoMLX as they are train on 1 to 8 ranks as on GoMLX's Go backend: the loss of ten
// steps is equal to 1e-5, and a hundred steps later it is off by no more than by another order
// of the rows of each batch. Each has one file added, which registers backends and records.
func TestExamples(t *testing.T) {
	if !*runExamples {
		t.Skip("trains for some minutes: go test -run TestExamples -examples -timeout 30m")
	}
	dir, bins := buildExamples(t)
	for i, e := range examples {
		t.Run(strings.ReplaceAll(e.name, " ", "-"), func(t *testing.T) {
			train := func(name, backend string, seed, devices int, more ...string) []float64 {
				t.Helper()
				return e.train(t, dir, bins[i], name, backend, seed, devices, more)
			}
			want := train("go", "go:ops_sequential", 0, 1)
			spread := 0.0
			for seed := range 8 {
				spread = max(spread, late(want, train(fmt.Sprint("go, rows in order ", seed+1), "go:ops_sequential", seed+1, 1)))
			}
			check := func(name, backend string, devices int, more ...string) {
				t.Helper()
				got := train(name, backend, 0, devices, more...)
				first := 0.0
				for k := range 10 {
					first = max(first, math.Abs(got[k]-want[k])/math.Abs(want[k]))
				}
				last := late(want, got)
				t.Logf("%-26s %8.1e for 10 steps, %8.1e in the last of 100 (rows in other orders: %.1e)", name, first, last, spread)
				if !(first <= 1e-5) || !(last <= spread) {
					t.Errorf("%s: the loss is off by %.1e for 10 steps, want 1e-5, and by %.1e in the last of 100, want %.1e", name, first, last, spread)
				}
			}
			check("one rank", "concert", 1)
			for _, n := range []int{2, 4, 8} {
				for _, axis := range []string{"data", "fsdp", "model"} {
					mesh := fmt.Sprintf("mesh=%s:%d", axis, n)
					check(mesh, "concert:"+mesh, 1)
				}
				if e.distributed != nil {
					check(fmt.Sprintf("%s on %d", e.distributed, n), fmt.Sprintf("concert:devices=%d", n), n, e.distributed...)
				}
			}
			check("mesh=data:2/fsdp:2/model:2", "concert:mesh=data:2/fsdp:2/model:2", 1)
		})
	}
}

// late is how far losses are apart in the last ten of 100 steps, at most.
func late(want, got []float64) (off float64) {
	for k := 90; k < 100; k++ {
		off = max(off, math.Abs(got[k]-want[k])/math.Abs(want[k]))
	}
	return off
}

// train runs the example and gives the loss of each step.
func (e *example) train(t *testing.T, dir, bin, name, backend string, seed, devices int, more []string) []float64 {
	t.Helper()
	record := filepath.Join(dir, "record.json")
	args := append([]string{}, more...)
	for _, a := range e.args {
		a = strings.ReplaceAll(a, "DATA", filepath.Join(dir, "tables"))
		args = append(args, strings.ReplaceAll(a, "BATCH", strconv.Itoa(128/devices)))
	}
	cmd := exec.Command(bin, args...)
	cmd.Env = append(os.Environ(), fmt.Sprintf("GOMLX_BACKEND=record:%s;%d;%s", record, seed, backend), "GODEBUG=randautoseed=0")
	out, failed := cmd.CombinedOutput()
	text, err := os.ReadFile(record)
	if err != nil {
		t.Fatal(err)
	}
	var losses []float64
	for line := range strings.Lines(string(text)) {
		var all []float64
		if err := json.Unmarshal([]byte(line), &all); err != nil {
			t.Fatal(err)
		}
		losses = append(losses, all[len(all)-1-e.metrics])
	}
	// GoMLX's Go backend trains for text generation, and cannot generate.
	if len(losses) < 100 || failed != nil && !strings.HasPrefix(backend, "go:") {
		t.Fatalf("%s: %d steps: %v\n%s", name, len(losses), failed, out)
	}
	return losses
}

// buildExamples builds the examples in a copy of GoMLX, whose random numbers begin alike in
// every process, and makes their tables.
func buildExamples(t *testing.T) (dir string, bins []string) {
	dir = t.TempDir()
	concert, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	goTool := func(args ...string) string {
		t.Helper()
		cmd := exec.Command("go", args...)
		cmd.Dir = dir
		cmd.Env = append(os.Environ(), "GOFLAGS=-mod=mod -buildvcs=false -trimpath")
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("go %s: %v\n%s", strings.Join(args, " "), err, out)
		}
		return string(out)
	}
	write := func(name, text string) {
		t.Helper()
		file := filepath.Join(dir, name)
		os.MkdirAll(filepath.Dir(file), 0o777)
		if err := os.WriteFile(file, []byte(text), 0o666); err != nil {
			t.Fatal(err)
		}
	}
	read := func(file string) string {
		t.Helper()
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	mod := "module work\n\ngo 1.26.5\n\nrequire github.com/seed-ee968945/concert v0.0.0\nrequire github.com/seed-ee968945/concert/integrations/gomlx v0.0.0\n"
	mod += "replace github.com/seed-ee968945/concert => " + concert + "\nreplace github.com/seed-ee968945/concert/integrations/gomlx => " + concert + "/integrations/gomlx\n"
	for to, module := range map[string]string{"gomlx": "github.com/gomlx/gomlx@v0.28.8", "examples": "github.com/gomlx/gomlx/examples@v0.28.1"} {
		out, err := exec.Command("go", "mod", "download", "-json", module).Output()
		var m struct{ Dir string }
		if json.Unmarshal(out, &m) != nil || err != nil || m.Dir == "" {
			t.Skipf("%s is not to be had: %v", module, err)
		}
		if err := os.CopyFS(filepath.Join(dir, to), os.DirFS(m.Dir)); err != nil {
			t.Fatal(err)
		}
		name, version, _ := strings.Cut(module, "@")
		mod += fmt.Sprintf("require %s %s\nreplace %s => ./%s\n", name, version, name, to)
	}
	write("go.mod", mod)
	for file, change := range map[string]*strings.Replacer{
		"gomlx/core/graph/rng_seed_secure.go": strings.NewReplacer(`"crypto/rand"`, `"math/rand"`), // with GODEBUG=randautoseed=0
		"gomlx/ml/dataset/inmemory.go":        strings.NewReplacer("time.Now().UnixNano()", "1", "\t\"time\"\n", ""),
	} {
		before := read(filepath.Join(dir, file))
		after := change.Replace(before)
		if after == before {
			t.Fatalf("%s has no seed", file)
		}
		write(file, after)
	}
	write("data/main.go", read("testdata/examples/data/main.go"))
	if err := os.Mkdir(filepath.Join(dir, "tables"), 0o777); err != nil {
		t.Fatal(err)
	}
	goTool("run", "./data", filepath.Join(dir, "tables"))
	for i, e := range examples {
		write(filepath.Join("examples", e.path, "concert_record.go"), read("testdata/examples/record/record.go"))
		bins = append(bins, filepath.Join(dir, fmt.Sprint("example", i)))
		goTool("build", "-tags", "noxla", "-o", bins[i], "github.com/gomlx/gomlx/examples/"+e.path)
	}
	return dir, bins
}
