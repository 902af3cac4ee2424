package main

import (
	"bytes"
	"context"
	"errors"
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
	"sync"
	"testing"
	"time"

	"github.com/gomlx/compute"
	"github.com/gomlx/gomlx/ml/model"
	"github.com/gomlx/gomlx/ml/train"
	"github.com/gomlx/gomlx/ml/train/loss"
	"github.com/gomlx/gomlx/ml/train/optimizer"

	"github.com/seed-ee968945/concert/compile"
	"github.com/seed-ee968945/concert/ir"
	"github.com/seed-ee968945/concert/ir/stablehlo"
	"github.com/seed-ee968945/concert/passes/standard"
	"github.com/seed-ee968945/concert/program"
	rt "github.com/seed-ee968945/concert/runtime"
	"github.com/seed-ee968945/concert/runtime/launch"
	"github.com/seed-ee968945/concert/sharding/sdy"
)

func TestMain(m *testing.M) {
	switch os.Getenv("GOMLX_EXAMPLE") {
	case "1":
		main()
		return
	case "endless":
		endless()
		return
	}
	os.Exit(m.Run())
}

// gpt runs the program.
func gpt(t *testing.T, args ...string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), os.Args[0], args...)
	cmd.Env = append(os.Environ(), "GOMLX_EXAMPLE=1")
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%q: %v\n%s", args, err, out)
	}
	return string(out)
}

// step is a training step of a rank.
func step(t *testing.T, how compile.PartitionOptions, args ...string) *ir.Module {
	t.Helper()
	dir := t.TempDir()
	gpt(t, append([]string{"-quiet", "-steps=1", "-sample=0", "-options=dump=" + dir}, args...)...)
	files, err := filepath.Glob(filepath.Join(dir, "Trainer*.mlir"))
	if err != nil || len(files) != 1 {
		t.Fatalf("dumped %q: %v", files, err)
	}
	text, err := os.ReadFile(files[0])
	if err != nil {
		t.Fatal(err)
	}
	m, err := stablehlo.Parse(files[0], string(text))
	if err != nil {
		t.Fatal(err)
	}
	m.Sharded(sdy.Given)
	p, err := m.Program()
	if err == nil {
		err = compile.Partition(p.Module, how)
	}
	if err != nil {
		t.Fatal(err)
	}
	return p.Module
}

// under is the program of a step that may need so much memory, 0 for any.
func under(t *testing.T, m *ir.Module, most int64) *program.Program {
	t.Helper()
	pipeline, err := standard.Table().Parse(fmt.Sprintf("default{cap=%d}", most))
	if err != nil {
		t.Fatal(err)
	}
	r, err := compile.Compile(context.Background(), m, compile.Target{}, compile.Options{Pipeline: pipeline})
	if err != nil {
		t.Fatal(err)
	}
	prog, err := r.Func(m.Funcs()[0].Name).Program()
	if err != nil {
		t.Fatal(err)
	}
	return prog
}

// small is a GPT that is trained in no time.
var small = []string{"-quiet", "-dim=16", "-heads=2", "-layers=1", "-seq=16", "-batch=8", "-sample=3"}

var lossAt = regexp.MustCompile(`step (\d+): loss (\S+),`)

// trained trains the small GPT and gives the last step that it tells of, and its loss.
func trained(t *testing.T, args ...string) (step int, loss float64) {
	t.Helper()
	return last(t, gpt(t, append(slices.Clone(small), args...)...))
}

func last(t *testing.T, out string) (step int, loss float64) {
	t.Helper()
	m := lossAt.FindAllStringSubmatch(out, -1)
	if m == nil {
		t.Fatalf("no loss in %q", out)
	}
	step, err := strconv.Atoi(m[len(m)-1][1])
	if err == nil {
		loss, err = strconv.ParseFloat(m[len(m)-1][2], 64)
	}
	if err != nil {
		t.Fatal(err)
	}
	return step, loss
}

// same compares the loss at a step with that of one device that has done all steps before.
func same(t *testing.T, what string, step int, loss float64, args ...string) {
	t.Helper()
	if s, want := trained(t, append(args, fmt.Sprint("-steps=", step))...); s != step || math.Abs(loss-want) > 1e-5*want {
		t.Errorf("%s: the loss is %v at step %d, and of one device %v at step %d", what, loss, step, want, s)
	}
}

// The operations of what is dumped have lines of the program, also those of weights' first values, gradients and Adam.
func TestLines(t *testing.T) {
	dir := t.TempDir()
	trained(t, "-steps=10", "-options=dump="+dir)
	files, err := filepath.Glob(filepath.Join(dir, "*.mlir"))
	if err != nil || len(files) < 3 {
		t.Fatalf("dumped %q: %v", files, err)
	}
	line := regexp.MustCompile(`^ loc\("\w+"\("[^"]*\bmain\.go":\d+:1\)\)$`)
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		locations := regexp.MustCompile(` loc\(.*`).FindAllString(string(text), -1)
		if len(locations) == 0 {
			t.Errorf("%s has no lines", filepath.Base(file))
		}
		for _, l := range locations {
			if !line.MatchString(l) {
				t.Errorf("%s: an operation is%s", filepath.Base(file), l)
			}
		}
	}
}

// A checkpoint of two devices is resumed on four with other things cut.
func TestResume(t *testing.T) {
	dir := t.TempDir()
	trained(t, "-data=2", "-fsdp", "-steps=10", "-checkpoint="+dir)
	step, loss := trained(t, "-data=2", "-model=2", "-steps=20", "-checkpoint="+dir)
	same(t, "resumed", step, loss)
}

// endless trains until a process is lost, and says which.
func endless() {
	flag.Parse()
	b, err := compute.NewWithConfig(fmt.Sprintf("concert:mesh=fsdp:%d,launch=env", *data))
	check(err)
	defer b.Finalize()
	loop := newLoop(b, model.NewStore())
	report(loop)
	_, err = loop.RunSteps(&book{loop.Trainer.Store()}, *steps)
	var lost *rt.PeerLostError
	if errors.As(err, &lost) {
		fmt.Printf("rank %d is lost\n", lost.Peer)
	}
}

func newLoop(b compute.Backend, store *model.Store) *train.Loop {
	return train.NewLoop(train.NewTrainer(b, store, logits, loss.SparseCategoricalCrossEntropyLogits, optimizer.Adam().Done(), nil, nil))
}

// killed has four processes train and kills the last when something is said. It gives the time
// until all have ended, and what they said, with errors of the others. Who had not heard of it
// after Grace would be killed in silence: the deadline of what waits for a rank is far.
func killed(t *testing.T, mode, when string, args ...string) (took time.Duration, out string) {
	t.Helper()
	var mu sync.Mutex
	var all strings.Builder
	var victim *os.Process
	var at, last time.Time
	err := launch.Run(t.Context(), launch.Spec{
		World: 4, Env: []string{"GOMLX_EXAMPLE=" + mode}, Grace: time.Minute, Args: append(args, "-data=4", "-steps=1000000"),
		Started: func(rank int, p *os.Process) {
			mu.Lock()
			defer mu.Unlock()
			if rank == 3 {
				victim = p
			}
		},
		Ended: func(rank int, err error) { last = time.Now() },
		Stdout: writer(func(text []byte) {
			mu.Lock()
			defer mu.Unlock()
			all.Write(text)
			if at.IsZero() && strings.Contains(all.String(), when) {
				at = time.Now()
				victim.Kill()
			}
		}),
	})
	for rank := range 3 {
		if e := launch.ErrorOf(err, rank); e != nil {
			all.WriteString(e.Stderr)
		}
	}
	return last.Sub(at), all.String()
}

// When a process is killed the others say which has died, and the devices that are left go on from the checkpoint.
func TestKill(t *testing.T) {
	dir := t.TempDir()
	args := append(slices.Clone(small), "-batch=12", "-dim=24", "-fsdp", "-every=10", "-checkpoint="+dir)
	_, out := killed(t, "1", "step 20:", append(args, "-options=launch=env")...)
	if strings.Count(out, "rank 3 died") != 3 {
		t.Fatalf("the others end with %s", out)
	}
	step, _ := last(t, out)
	args = append(args, "-data=3", fmt.Sprint("-steps=", step+20))
	step, loss := last(t, gpt(t, args...))
	same(t, "after the kill", step, loss, "-batch=12", "-dim=24")
}

// A program of GoMLX gets an error of a type of its own within a second when a process is killed.
func TestLost(t *testing.T) {
	var took time.Duration
	for range 3 { // on a machine that has other work, too
		var out string
		took, out = killed(t, "endless", "step 10:", append(slices.Clone(small), "-batch=12", "-dim=24")...)
		if strings.Count(out, "rank 3 is lost") != 3 {
			t.Fatalf("the others say %s", out)
		}
		if took < time.Second {
			t.Logf("all have ended %v after the kill", took)
			return
		}
	}
	t.Errorf("all have ended %v after the kill", took)
}

type writer func(p []byte)

func (w writer) Write(p []byte) (int, error) { w(p); return len(p), nil }

// What make gomlx puts into an empty folder is a program of under 200 lines whose packages are all found.
func TestNewcomer(t *testing.T) {
	dir := t.TempDir()
	if text, err := os.ReadFile("main.go"); err != nil || bytes.Count(text, []byte("\n")) >= 200 {
		t.Errorf("main.go has %d lines (%v)", bytes.Count(text, []byte("\n")), err)
	}
	list := exec.Command("go", "list", "-mod=readonly", "-deps", "-f", "{{if .Error}}{{.Error}}{{end}}", ".")
	list.Dir = dir
	for _, cmd := range []*exec.Cmd{exec.Command("make", "-C", "../..", "gomlx", "DIR="+dir), list} {
		cmd.Env = append(os.Environ(), "GOWORK=off") // as a newcomer has it
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%v: %v\n%s", cmd, err, out)
		}
	}
}

var table = flag.Bool("table", false, "measure memory on 1, 2, 4 and 8 ranks")

// With -fsdp each weight is gathered at most twice in a step and its gradient scattered once, in buckets. What a
// rank needs is its part of the weights and their states, activations, and the gathered weights where
// there is room for them: where there is not, they are gathered once more.
func TestFSDP(t *testing.T) {
	layers, dim, seq, room, worlds := 2, 32, 32, int64(8), []int{1, 2}
	if *table {
		layers, dim, seq, room, worlds = 8, 256, 64, 16, []int{1, 2, 4, 8}
	}
	weights := 3 + 6*layers // matrices: of bytes, places and logits, and of each layer
	var state, rest int64   // of one rank
	for _, n := range worlds {
		m := step(t, compile.PartitionOptions{}, fmt.Sprint("-data=", n), "-fsdp", fmt.Sprint("-dim=", dim), fmt.Sprint("-layers=", layers), fmt.Sprint("-seq=", seq), fmt.Sprint("-batch=", 8*n))
		p := under(t, m, 0)
		var own int64
		for _, d := range p.Donations {
			own += p.Buffers[p.Inputs[d.Input].Tensors[0].Buffer].Size
		}
		if n == 1 {
			state, rest = own, p.Arena-own
			t.Logf("1 rank: %s MiB, of which weights and states %s", mib(p.Arena), mib(own))
			continue
		}
		const whole = 1 << 17 // norms, counters
		if own > state/int64(n)+whole {
			t.Errorf("%d ranks: weights and states of %d bytes, on one rank %d", n, own, state)
		}
		gathers, calls := exchanged(t, p, weights)
		if gathers < weights || gathers > 2*weights {
			t.Errorf("%d ranks: %d gathers of %d weights", n, gathers, weights)
		}
		most := own + rest + rest/room
		q := under(t, m, most)
		again, more := exchanged(t, q, weights)
		t.Logf("%d ranks: %s MiB, of which weights and states %s, %s; under a cap %s MiB, %s", n, mib(p.Arena), mib(own), calls, mib(q.Arena), more)
		if again <= gathers || again > 2*weights || q.Arena > most+most/100 { // holes between buffers
			t.Errorf("%d ranks: %d gathers of %d weights, %d bytes, want %d", n, again, weights, q.Arena, most)
		}
	}
}

// In bfloat16 what travels is half as wide: weights always, gradients with narrow sums.
func TestHalfWidth(t *testing.T) {
	for narrow, want := range map[bool]map[string]ir.DType{
		false: {"all_gather": ir.BF16},
		true:  {"all_gather": ir.BF16, "reduce_scatter": ir.BF16},
	} {
		p := under(t, step(t, compile.PartitionOptions{NarrowSums: narrow}, "-data=2", "-fsdp", "-bf16", "-dim=32", "-layers=1", "-seq=32", "-batch=16"), 0)
		tensors := map[string]int{}
		for _, in := range p.Instrs {
			for _, x := range in.Ins {
				if dt, ok := want[in.Op]; ok && in.Kind == program.Collective {
					tensors[in.Op]++
					if x.DType != dt {
						t.Errorf("narrow=%v: %s of %s", narrow, in.Op, x.DType)
					}
				}
			}
		}
		for op := range want {
			if tensors[op] < 9 { // as many as matrices
				t.Errorf("narrow=%v: %d tensors in %s", narrow, tensors[op], op)
			}
		}
		if tensors["all_gather"] > 18 {
			t.Errorf("narrow=%v: %d weights are gathered, want each at most twice", narrow, tensors["all_gather"])
		}
	}
}

func mib(bytes int64) string { return fmt.Sprintf("%.1f", float64(bytes)/(1<<20)) }

// exchanged counts gathers of weights, and says what there is in how many calls. Gradients are scattered once.
func exchanged(t *testing.T, p *program.Program, weights int) (gathers int, text string) {
	t.Helper()
	calls, tensors := map[string]int{}, map[string]int{}
	for _, in := range p.Instrs {
		if in.Kind == program.Collective {
			calls[in.Op]++
			tensors[in.Op] += len(in.Ins)
		}
	}
	if tensors["reduce_scatter"] != weights || tensors["all_to_all"] > 0 {
		t.Errorf("%d weights, of collectives %v tensors", weights, tensors)
	}
	if calls["all_gather"] >= tensors["all_gather"] || calls["reduce_scatter"] >= tensors["reduce_scatter"] {
		t.Errorf("no buckets: %v calls of %v tensors", calls, tensors)
	}
	return tensors["all_gather"], fmt.Sprintf("%d all_gathers in %d calls, %d reduce_scatters in %d", tensors["all_gather"], calls["all_gather"], tensors["reduce_scatter"], calls["reduce_scatter"])
}

// BenchmarkFirstStep is the first step of a program that the backend has compiled before: GoMLX makes
// its graph anew, concert finds the program by its text. The second has all of it.
func BenchmarkFirstStep(b *testing.B) {
	back, err := compute.NewWithConfig("concert:")
	if err != nil {
		b.Fatal(err)
	}
	defer back.Finalize()
	var least [2]time.Duration
	store := model.NewStore()
	store.SetParams(map[string]any{model.ParamInitialSeed: int64(42)})
	twice := func() {
		loop := newLoop(back, store)
		for i := range least {
			start := time.Now()
			if _, err := loop.RunSteps(&book{store}, 1); err != nil {
				b.Fatal(err)
			}
			least[i] = min(least[i], time.Since(start))
		}
	}
	twice() // compiles, and makes the weights
	least = [2]time.Duration{time.Hour, time.Hour}
	for b.Loop() {
		twice()
	}
	b.ReportMetric(least[0].Seconds()*1e3, "least-ms/first")
	b.ReportMetric(least[1].Seconds()*1e3, "least-ms/second")
}
