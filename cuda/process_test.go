//go:build linux

package cuda

import (
	"bufio"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/seed-ee968945/concert/internal/dtype"
	"github.com/seed-ee968945/concert/kernels"
)

// The tests of several processes run this test binary again, once for each rank,
// with the scenario in the environment. A child is killed when its parent dies.
const (
	envScenario = "CONCERT_TEST_SCENARIO"
	envRank     = "CONCERT_TEST_RANK"
	envWorld    = "CONCERT_TEST_WORLD"
	envMeeting  = "CONCERT_TEST_MEETING"
	envSecond   = "CONCERT_TEST_SECOND" // where survivors meet
)

func TestMain(m *testing.M) {
	if s := os.Getenv(envScenario); s != "" {
		if err := child(s); err != nil {
			fmt.Println("FAIL", err)
			os.Exit(3)
		}
		fmt.Println("PASS")
		os.Exit(0)
	}
	os.Exit(m.Run())
}

type childT struct {
	rank, n int
	drv     Driver
	dev     int
	o       WorldOptions
}

func child(scenario string) error {
	c := childT{}
	c.rank, _ = strconv.Atoi(os.Getenv(envRank))
	c.n, _ = strconv.Atoi(os.Getenv(envWorld))
	set, err := kernels.NewSet()
	if err != nil {
		return err
	}
	c.o = WorldOptions{Bytes: 16 << 20, Images: set}
	if os.Getenv("CONCERT_TEST_GPU") != "" {
		if c.drv, err = Open(""); err != nil {
			return err
		}
		c.dev = c.rank
	} else {
		f := NewFake(c.n)
		c.drv, c.dev = f, c.rank
		defer func() {
			if l := f.sortedLeaks(); l != "" {
				fmt.Println("LEAK", l)
			}
		}()
	}
	if l, err := net.Listen("unix", "@concert-test-"+strconv.Itoa(os.Getpid())); err == nil {
		l.Close() // the runtime opens its poller once
	}
	before := countFDs()
	if scenario == "stride" && c.rank == 1 {
		c.o.Bytes *= 2
	}
	err = c.run(scenario)
	if after := countFDs(); err == nil && after != before && os.Getenv("CONCERT_TEST_GPU") == "" {
		return fmt.Errorf("%d file descriptors before, %d after", before, after)
	}
	return err
}

func countFDs() int {
	e, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		return -1
	}
	return len(e)
}

func (c *childT) run(scenario string) error {
	timeout := 20 * time.Second
	w, err := NewProcessWorld(c.drv, Meeting{Name: os.Getenv(envMeeting), Timeout: timeout}, c.rank, c.n, c.dev, c.o)
	if err != nil {
		return err
	}
	defer w.Close()
	switch scenario {
	case "collectives":
		return c.collectives(w, seqInts(c.n), 3)
	case "killed", "killed in a graph":
		return c.killed(w)
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
func (c *childT) collectives(w *World, ranks []int, rounds int) error {
	n := len(ranks)
	g, err := w.NewGroup(ranks, smallGroup(false, n))
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
			}
		}
	}
	return w.meet()
}

func (c *childT) one(w *World, m *Member, s Stream, k caseT, src, dst uint64, round int) error {
	n, size := m.Group.Size(), 4
	in, out := k.counts[0], k.counts[0]
	switch k.kind {
	case kernels.AllGather:
		out *= n
	case kernels.ReduceScatter:
		in *= n
	case kernels.AllToAll:
		in, out = in*n, out*n
	}
	var data [][]byte // every process makes everybody's input
	for r := 0; r < n; r++ {
		data = append(data, randomBytes(rand.New(rand.NewPCG(uint64(round), uint64(r))), k.t, in, false))
	}
	id := m.Rank.ID
	p, err := m.Prepare(Op{Kind: k.kind, DType: k.t, Symmetric: true, Algo: k.algo,
		Tensors: []Tensor{{Src: w.Addr(id, src), Dst: w.Addr(id, dst), Bytes: uint64(k.counts[0] * size)}}})
	if err != nil {
		return err
	}
	if err := c.drv.CopyIn(m.Rank.Ctx, s, w.Addr(id, src), data[m.Index]); err != nil {
		return err
	}
	if err := p.Enqueue(s); err != nil {
		return err
	}
	if err := m.Check(s); err != nil {
		return err
	}
	got := make([]byte, out*size)
	if err := c.drv.CopyOut(m.Rank.Ctx, s, got, w.Addr(id, dst)); err != nil {
		return err
	}
	if at := same(k.t, got, expect(k, data, m.Index)); at >= 0 {
		return fmt.Errorf("element %d is wrong", at)
	}
	return w.meet() // the sources are overwritten next
}

// killed: the last rank dies in a loop of collectives; the others must learn it
// within a second although the deadline is far, and build a new world.
func (c *childT) killed(w *World) error {
	o := smallGroup(false, c.n)
	o.Timeout = time.Hour
	g, err := w.NewGroup(seqInts(c.n), o)
	if err != nil {
		return err
	}
	m := g.Members()[0]
	s, err := c.drv.StreamCreate(m.Rank.Ctx)
	if err != nil {
		return err
	}
	a, err := w.Alloc(1<<16, 256)
	if err != nil {
		return err
	}
	op := Op{Kind: kernels.AllReduce, DType: dtype.F32, Symmetric: true, Red: kernels.Avg, Tensors: []Tensor{{Src: w.Addr(c.rank, a), Dst: w.Addr(c.rank, a), Bytes: 4096}}}
	killAt := 20 // before an eager call
	if os.Getenv(envScenario) == "killed in a graph" {
		killAt = 21 // before a replay
	}
	// Half of the time the collectives are eager, half of the time a replayed graph.
	if err := c.drv.CaptureBegin(m.Rank.Ctx, s); err != nil {
		return err
	}
	for i := 0; i < 10; i++ {
		if err := m.Enqueue(s, op); err != nil {
			return err
		}
	}
	graph, err := c.drv.CaptureEnd(m.Rank.Ctx, s)
	if err != nil {
		return err
	}
	exec, err := c.drv.GraphInstantiate(m.Rank.Ctx, graph)
	if err != nil {
		return err
	}
	for i := 0; ; i++ {
		if i == killAt && c.rank == c.n-1 {
			fmt.Println("KILLED", time.Now().UnixNano())
			return syscall.Kill(os.Getpid(), syscall.SIGKILL)
		}
		var err error
		if i%2 == 0 {
			err = m.Enqueue(s, op)
		} else {
			err = c.drv.GraphLaunch(m.Rank.Ctx, exec, s)
		}
		if err == nil {
			err = m.Check(s)
		}
		if err != nil {
			fmt.Println("NOTICED", time.Now().UnixNano())
			var lost *PeerLostError
			if !errors.As(err, &lost) && !errors.Is(err, ErrAborted) {
				return fmt.Errorf("want a lost peer, got %w", err)
			}
			break
		}
	}
	err = errors.Join(c.drv.ExecDestroy(m.Rank.Ctx, exec), c.drv.GraphDestroy(m.Rank.Ctx, graph), c.drv.StreamDestroy(m.Rank.Ctx, s))
	if err := errors.Join(err, g.Close(), w.Close()); err != nil {
		return err
	}
	second, err := NewProcessWorld(c.drv, Meeting{Name: os.Getenv(envSecond), Timeout: 20 * time.Second}, c.rank, c.n-1, c.dev, c.o)
	if err != nil {
		return fmt.Errorf("survivors: %w", err)
	}
	defer second.Close()
	return c.collectives(second, seqInts(c.n-1), 1)
}

type outcome struct {
	lines []string
	err   error
}

// spawn runs a scenario with n processes and gives what each printed.
func spawn(t *testing.T, scenario string, n int) []outcome {
	t.Helper()
	first, err := NewMeeting()
	if err != nil {
		t.Fatal(err)
	}
	second, err := NewMeeting()
	if err != nil {
		t.Fatal(err)
	}
	out := make([]outcome, n)
	done := make(chan int)
	for i := range out {
		cmd := exec.Command(os.Args[0], "-test.run=^$")
		cmd.Env = append(os.Environ(), envScenario+"="+scenario, envRank+"="+strconv.Itoa(i), envWorld+"="+strconv.Itoa(n),
			envMeeting+"="+first.Name, envSecond+"="+second.Name)
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
			for s := bufio.NewScanner(pipe); s.Scan(); {
				out[i].lines = append(out[i].lines, s.Text())
			}
			out[i].err = cmd.Wait()
			done <- i
		}()
	}
	for range out {
		<-done
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
	d, err := Open("")
	if err != nil {
		t.Fatal(err)
	}
	infos, err := d.Devices()
	if err != nil {
		t.Fatal(err)
	}
	if len(infos) < 2 {
		t.Skip("one process per GPU needs two GPUs")
	}
	return min(n, len(infos))
}

func TestProcesses(t *testing.T) {
	for i, o := range spawn(t, "collectives", processRanks(t, 4)) {
		if _, ok := line(o, "PASS"); !ok || o.err != nil {
			t.Errorf("rank %d: %v %q", i, o.err, o.lines)
		}
		if l, ok := line(o, "LEAK"); ok {
			t.Errorf("rank %d did not release %s", i, l)
		}
	}
}

// TestKilledProcess kills one of the ranks while collectives run.
func TestKilledProcess(t *testing.T) {
	n := processRanks(t, 4)
	if n < 3 {
		t.Skip("survivors need company")
	}
	for _, scenario := range []string{"killed", "killed in a graph"} {
		t.Run(scenario, func(t *testing.T) { survive(t, scenario, n) })
	}
}

func survive(t *testing.T, scenario string, n int) {
	out := spawn(t, scenario, n)
	when, ok := line(out[n-1], "KILLED")
	if !ok {
		t.Fatalf("the victim lived: %q", out[n-1].lines)
	}
	at, _ := strconv.ParseInt(when, 10, 64)
	for i, o := range out[:n-1] {
		if _, ok := line(o, "PASS"); !ok {
			t.Errorf("rank %d: %v %q", i, o.err, o.lines)
			continue
		}
		noticed, _ := line(o, "NOTICED")
		n, _ := strconv.ParseInt(noticed, 10, 64)
		d := time.Duration(n - at)
		t.Logf("rank %d noticed after %v", i, d)
		if d > time.Second {
			t.Errorf("rank %d noticed only after %v", i, d)
		}
		if l, ok := line(o, "LEAK"); ok {
			t.Errorf("rank %d did not release %s", i, l)
		}
	}
}

// TestMismatch gives one process another size of symmetric memory.
func TestMismatch(t *testing.T) {
	out := spawn(t, "stride", processRanks(t, 3))
	for i, o := range out {
		l, ok := line(o, "FAIL")
		if !ok || !strings.Contains(l, "rank 1 does not belong to this world: its symmetric memory in bytes is 33554432, rank 0 has 16777216") {
			t.Errorf("rank %d: %v %q", i, o.err, o.lines)
		}
	}
}
