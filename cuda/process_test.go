//go:build linux

package cuda

import (
	"bufio"
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/seed-ee968945/concert/cuda/coll"
	"github.com/seed-ee968945/concert/cuda/driver"
	"github.com/seed-ee968945/concert/cuda/driver/fake"
	"github.com/seed-ee968945/concert/cuda/internal/drivertest"
	"github.com/seed-ee968945/concert/cuda/symm"
	"github.com/seed-ee968945/concert/internal/dtype"
	"github.com/seed-ee968945/concert/internal/leak"
	"github.com/seed-ee968945/concert/kernels"
	"github.com/seed-ee968945/concert/runtime/rendezvous"
)

// The tests of several processes run this test binary again, once for each rank,
// with the scenario in the environment. A child is killed when its parent dies.
const (
	envScenario = "CONCERT_TEST_SCENARIO"
	envRank     = "CONCERT_TEST_RANK"
	envWorld    = "CONCERT_TEST_WORLD"
	envJob      = "CONCERT_TEST_JOB"
	envSecond   = "CONCERT_TEST_SECOND" // the job that survivors join

	scenarioTests = "tests" // those that the command line names, see models_test.go
)

func TestMain(m *testing.M) {
	if s := os.Getenv(envScenario); s != "" && s != scenarioTests {
		if err := child(s); err != nil {
			fmt.Println("FAIL", err)
			os.Exit(3)
		}
		fmt.Println("PASS")
		os.Exit(0)
	}
	flag.Parse()
	if os.Getenv(envScenario) == scenarioTests {
		os.Exit(runAsProcess(m))
	}
	release := func() {}
	if *onGPU {
		release = holdContexts()
	}
	code := m.Run()
	release()
	os.Exit(code)
}

// holdContexts keeps the contexts of GPUs, all if none is named, from the first test to
// the last. Tests open worlds, and the first holder of a context makes it and the last one
// destroys it: about a second a GPU each time. Worlds that make and destroy theirs are
// opened by the scenarios of several processes. Without a driver the tests say what is
// missing.
func holdContexts(devs ...int) (release func()) {
	start := time.Now()
	d, err := driver.Open("")
	if err != nil {
		return func() {}
	}
	infos, err := d.Devices()
	if err != nil {
		return func() {}
	}
	if len(devs) == 0 {
		devs = seqInts(len(infos))
	}
	held := make([]bool, len(infos))
	var wg sync.WaitGroup
	for _, i := range devs {
		wg.Go(func() {
			_, err := d.CtxRetain(i)
			held[i] = err == nil
		})
	}
	wg.Wait()
	fmt.Printf("contexts of %d GPUs made in %v\n", len(devs), time.Since(start).Round(time.Millisecond))
	return func() {
		for i, ok := range held {
			if ok {
				d.CtxRelease(i)
			}
		}
	}
}

type childT struct {
	rank, n int
	drv     driver.Driver
	dev     int
	o       symm.WorldOptions
}

func child(scenario string) error {
	c := childT{}
	c.rank, _ = strconv.Atoi(os.Getenv(envRank))
	c.n, _ = strconv.Atoi(os.Getenv(envWorld))
	set, err := imageSet()
	if err != nil {
		return err
	}
	c.o = symm.WorldOptions{Bytes: 16 << 20, Images: set}
	if os.Getenv("CONCERT_TEST_GPU") != "" {
		if c.drv, err = driver.Open(""); err != nil {
			return err
		}
		c.dev = c.rank
	} else {
		f := fake.New(c.n)
		switch {
		case scenario == "fabric only", scenario == "fabric mixed" && c.rank == 0:
			f.ShareBy(false, true, true)
		case scenario == "fabric asked for", scenario == "tensor by fabric":
			f.ShareBy(true, true, true)
			c.o.Fabric = true
		}
		c.drv, c.dev = f, c.rank
		defer func() {
			if l := f.Leaks().String(); l != "" {
				fmt.Println("LEAK", l)
			}
		}()
	}
	before := leak.Now()
	if scenario == "stride" && c.rank == 1 {
		c.o.Bytes *= 2
	}
	err = c.run(scenario)
	if err == nil && os.Getenv("CONCERT_TEST_GPU") == "" {
		if l := before.More(); l != "" {
			return errors.New(l)
		}
	}
	return err
}

// jobOf is the job whose token is in the environment; the zero one, which nobody
// can join, if there is none.
func jobOf(env string) testJob {
	j, err := rendezvous.ParseJob(os.Getenv(env))
	if err != nil {
		return testJob{}
	}
	return testJob{j, plenty}
}

func (c *childT) run(scenario string) error {
	switch scenario {
	case "killed in a replay":
		return c.killedOften()
	case "orphan":
		return c.orphan()
	}
	w, err := processWorld(context.Background(), c.drv, jobOf(envJob), c.rank, c.n, c.dev, c.o)
	if err != nil {
		return err
	}
	defer w.Close()
	switch scenario {
	case "collectives", "fabric only", "fabric asked for":
		return c.collectives(w, seqInts(c.n), 3)
	case "killed":
		return c.killed(w)
	case "stalled":
		return c.stalled(w)
	case "tensor", "tensor by fabric":
		return c.tensor(w)
	}
	return fmt.Errorf("unexpected world for scenario %q", scenario)
}

func seqInts(n int) []int {
	out := make([]int, n)
	for i := range out {
		out[i] = i
	}
	return out
}

// collectives runs every kind on known data and compares with the reference.
func (c *childT) collectives(w *symm.World, ranks []int, rounds int) error {
	n := len(ranks)
	g, err := coll.NewGroup(context.Background(), w, ranks, smallGroup(false, n))
	if err != nil {
		return err
	}
	defer g.Close()
	m := g.Members()[0]
	s, err := c.drv.StreamCreate(m.Rank.Ctx)
	if err != nil {
		return err
	}
	defer c.drv.StreamDestroy(m.Rank.Ctx, s)
	const room = 256 << 10
	src, err := w.Alloc(room, 256)
	if err != nil {
		return err
	}
	dst, err := w.Alloc(room, 256)
	if err != nil {
		return err
	}
	ran := 0
	for round := 0; round < rounds; round++ {
		for _, kind := range []kernels.Collective{kernels.AllReduce, kernels.AllGather, kernels.ReduceScatter, kernels.AllToAll} {
			for _, algo := range []kernels.Algo{kernels.Auto, kernels.LL, kernels.Direct, kernels.Push, kernels.Engine, kernels.TwoShot} {
				k := caseT{kind: kind, t: dtype.F32, algo: algo, counts: []int{1001}}
				if err := c.one(w, m, s, k, src, dst, round); err != nil {
					var plan *kernels.PlanError
					if errors.As(err, &plan) {
						continue
					}
					return fmt.Errorf("%v: %w", k, err)
				}
				ran++
			}
		}
	}
	if ran < 15*rounds {
		return fmt.Errorf("only %d collectives ran in %d rounds", ran, rounds)
	}
	return w.Barrier(context.Background())
}

func (c *childT) one(w *symm.World, m *coll.Member, s driver.Stream, k caseT, src, dst uint64, round int) error {
	n, size := m.Group.Size(), 4
	in, out := sizes(k.kind, n, k.counts[0])
	var data [][]byte // every process makes everybody's input
	for r := 0; r < n; r++ {
		data = append(data, randomBytes(rand.New(rand.NewPCG(uint64(round), uint64(r))), k.t, in, false))
	}
	id := m.Rank.ID
	p, err := m.Prepare(coll.Op{Kind: k.kind, DType: k.t, Symmetric: true, Algo: k.algo,
		Tensors: []coll.Tensor{{Src: w.Addr(id, src), Dst: w.Addr(id, dst), Bytes: uint64(k.counts[0] * size)}}})
	if err != nil {
		return err
	}
	if err := c.drv.CopyIn(m.Rank.Ctx, s, w.Addr(id, src), data[m.Index]); err != nil {
		return err
	}
	if err := p.Enqueue(s); err != nil {
		return err
	}
	if err := m.Check(context.Background(), s); err != nil {
		return err
	}
	got := make([]byte, out*size)
	if err := c.drv.CopyOut(m.Rank.Ctx, s, got, w.Addr(id, dst)); err != nil {
		return err
	}
	if at := same(k.t, got, expect(k, data, m.Index)); at >= 0 {
		return fmt.Errorf("element %d is wrong", at)
	}
	return w.Barrier(context.Background()) // the sources are overwritten next
}

type outcome struct {
	rank  int
	lines []string
	err   error
}

// start runs rank of a scenario in a process of its own. done gets what it printed.
func start(t *testing.T, scenario string, rank, n int, env []string, done chan<- outcome, args ...string) {
	t.Helper()
	cmd := exec.Command(os.Args[0], append([]string{"-test.run=^$"}, args...)...)
	cmd.Env = append(append(os.Environ(), envScenario+"="+scenario, envRank+"="+strconv.Itoa(rank), envWorld+"="+strconv.Itoa(n)), env...)
	if *onGPU {
		cmd.Env = append(cmd.Env, "CONCERT_TEST_GPU=1")
	}
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	pipe, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd.Stderr = os.Stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		o := outcome{rank: rank}
		for s := bufio.NewScanner(pipe); s.Scan(); {
			o.lines = append(o.lines, s.Text())
		}
		o.err = cmd.Wait()
		done <- o
	}()
}

// spawn runs a scenario with n processes and gives what each printed.
func spawn(t *testing.T, scenario string, n int, args ...string) []outcome {
	t.Helper()
	first, second := newJob(0), newJob(0)
	done := make(chan outcome)
	for i := 0; i < n; i++ {
		start(t, scenario, i, n, []string{envJob + "=" + first.Token(), envSecond + "=" + second.Token()}, done, args...)
	}
	out := make([]outcome, n)
	for range out {
		o := <-done
		out[o.rank] = o
	}
	return out
}

func line(o outcome, prefix string) (string, bool) {
	for _, l := range o.lines {
		if rest, ok := strings.CutPrefix(l, prefix); ok {
			return strings.TrimSpace(rest), true
		}
	}
	return "", false
}

func processRanks(t *testing.T, n int) int {
	if !*onGPU {
		return n
	}
	return min(n, len(gpus(t, 2))) // a process for each
}

// gpus lists the GPUs of this machine, of which a test needs so many.
func gpus(t *testing.T, needed int) []driver.DeviceInfo {
	t.Helper()
	_, infos := drivertest.GPUs(t, *onGPU, needed)
	return infos
}

// needsQueues skips a test of n ranks where a GPU has more than most of them.
func needsQueues(t *testing.T, n, most int) {
	t.Helper()
	if *onGPU && n > most*len(gpus(t, 1)) {
		t.Skip("more streams on a device than it has hardware queues: those that share one wait for each other")
	}
}

// TestMismatch gives one process another size of symmetric memory.
func TestMismatch(t *testing.T) {
	out := spawn(t, "stride", processRanks(t, 3))
	for i, o := range out {
		l, ok := line(o, "FAIL")
		if !ok || !strings.Contains(l, "bytes of symmetric memory differ: ") || !strings.Contains(l, "33554432 on rank 1") {
			t.Errorf("rank %d: %v %q", i, o.err, o.lines)
		}
	}
}
