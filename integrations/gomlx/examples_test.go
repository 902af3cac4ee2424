package gomlx

import (
	"encoding/json"
	"flag"
	"fmt"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
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
	thin        bool     // its weights are too small to be cut along model
}

var examples = []example{
	{"adult", "adult/demo", []string{"-data", "DATA", "-set=plots=false;train_steps=100;batch_size=BATCH"}, []string{"-distributed"}, 2, false},
	{"text generation", "textgen", []string{"-set=train_steps=100;batch_size=16"}, nil, 1, false},
	{"linear regression", "linear", []string{"-steps=100"}, nil, 1, true},
	{"image", "gomlx.github.io/core-concepts/training", []string{"-steps=100", "-output", "DATA/image.png"}, nil, 1, false},
	{"training loop", "gomlx.github.io/training", []string{"-data", "DATA", "-checkpoint="}, nil, 2, false},
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
					mesh, dump := fmt.Sprintf("mesh=%s:%d", axis, n), t.TempDir()
					check(mesh, fmt.Sprintf("concert:%s,dump=%s", mesh, dump), 1)
					if want := axis != "model" || !e.thin; cut(t, dump, axis) != want {
						t.Errorf("%s: it is %v that something is cut", mesh, !want)
					}
				}
				if e.distributed != nil {
					check(fmt.Sprintf("%s on %d", e.distributed, n), fmt.Sprintf("concert:devices=%d", n), n, e.distributed...)
				}
			}
			check("mesh=data:2/fsdp:2/model:2", "concert:mesh=data:2/fsdp:2/model:2", 1)
		})
	}
}

// cut reports whether a training step has an input that is cut along an axis.
func cut(t *testing.T, dump, axis string) bool {
	t.Helper()
	steps, err := filepath.Glob(filepath.Join(dump, "Trainer*.mlir"))
	if err != nil {
		t.Fatal(err)
	}
	along := regexp.MustCompile(`#sdy\.sharding<@"concert", \[[^\]]*\{"` + axis + `"\}`)
	return slices.ContainsFunc(steps, func(file string) bool {
		text, err := os.ReadFile(file)
		return err == nil && along.Match(text)
	})
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

// workshop is a folder with a copy of GoMLX and its examples.
type workshop struct {
	*testing.T
	dir string
}

// buildExamples builds the examples in a copy of GoMLX, whose random numbers begin alike in
// every process, and makes their tables.
func buildExamples(t *testing.T) (dir string, bins []string) {
	w := workshop{t, t.TempDir()}
	w.copy()
	w.change("gomlx/core/graph/rng_seed_secure.go", `"crypto/rand"`, `"math/rand"`) // with GODEBUG=randautoseed=0
	w.change("gomlx/ml/dataset/inmemory.go", "time.Now().UnixNano()", "1", "\t\"time\"\n", "")
	w.write("data/main.go", w.read("testdata/examples/data/main.go"))
	tables := filepath.Join(w.dir, "tables")
	if err := os.Mkdir(tables, 0o777); err != nil {
		t.Fatal(err)
	}
	w.run("run", "./data", tables)
	for i, e := range examples {
		w.write(filepath.Join("examples", e.path, "concert_record.go"), w.read("testdata/examples/record/record.go"))
		bins = append(bins, filepath.Join(w.dir, fmt.Sprint("example", i)))
		w.run("build", "-tags", "noxla", "-o", bins[i], "github.com/gomlx/gomlx/examples/"+e.path)
	}
	return w.dir, bins
}

// copy makes a module of GoMLX, its examples, concert and this package.
func (w workshop) copy() {
	w.Helper()
	concert, err := filepath.Abs("../..")
	if err != nil {
		w.Fatal(err)
	}
	mod := "module work\n\ngo 1.26.5\n\n"
	for _, path := range []string{"", "/integrations/gomlx"} {
		mod += fmt.Sprintf("require github.com/seed-ee968945/concert%[1]s v0.0.0\nreplace github.com/seed-ee968945/concert%[1]s => %[2]s%[1]s\n", path, concert)
	}
	for to, module := range map[string]string{"gomlx": "github.com/gomlx/gomlx@v0.28.8", "examples": "github.com/gomlx/gomlx/examples@v0.28.1"} {
		out, err := exec.Command("go", "mod", "download", "-json", module).Output()
		var m struct{ Dir string }
		if json.Unmarshal(out, &m) != nil || err != nil || m.Dir == "" {
			w.Skipf("%s is not to be had: %v", module, err)
		}
		if err := os.CopyFS(filepath.Join(w.dir, to), os.DirFS(m.Dir)); err != nil {
			w.Fatal(err)
		}
		name, version, _ := strings.Cut(module, "@")
		mod += fmt.Sprintf("require %s %s\nreplace %s => ./%s\n", name, version, name, to)
	}
	w.write("go.mod", mod)
}

// change replaces texts in a file that has them.
func (w workshop) change(name string, pairs ...string) {
	w.Helper()
	text := w.read(filepath.Join(w.dir, name))
	for i := 0; i < len(pairs); i += 2 {
		if !strings.Contains(text, pairs[i]) {
			w.Fatalf("%s has no %q", name, pairs[i])
		}
	}
	w.write(name, strings.NewReplacer(pairs...).Replace(text))
}

func (w workshop) read(file string) string {
	w.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		w.Fatal(err)
	}
	return string(text)
}

func (w workshop) write(name, text string) {
	w.Helper()
	file := filepath.Join(w.dir, name)
	err := os.MkdirAll(filepath.Dir(file), 0o777)
	if err == nil {
		err = os.WriteFile(file, []byte(text), 0o666)
	}
	if err != nil {
		w.Fatal(err)
	}
}

// run runs the go command.
func (w workshop) run(args ...string) {
	w.Helper()
	cmd := exec.Command("go", args...)
	cmd.Dir, cmd.Env = w.dir, append(os.Environ(), "GOFLAGS=-mod=mod -buildvcs=false -trimpath")
	if out, err := cmd.CombinedOutput(); err != nil {
		w.Fatalf("go %s: %v\n%s", strings.Join(args, " "), err, out)
	}
}
