package host_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/seed-ee968945/concert/internal/leak"
	"github.com/seed-ee968945/concert/program"
	rt "github.com/seed-ee968945/concert/runtime"
	"github.com/seed-ee968945/concert/runtime/host"
	"github.com/seed-ee968945/concert/runtime/launch"
)

// The test binary is also the program that the ranks run: a tensor-parallel MLP
// in a loop of steps.
const mlpText = `program @mlp world 4
group @tp = [[0, 1, 2, 3]]
stream @compute
stream @comm.tp on @tp
events 2
arena 4096
buffer %x at 0 size 512
buffer %w1 at 512 size 256
buffer %h at 1024 size 128
buffer %a at 1536 size 128
buffer %w2 at 2048 size 256
buffer %p at 2560 size 512
buffer %y at 3072 size 512
input x {data} = %x: f32[8,16]
input w1 {parameter} = %w1: f32[16,4]
input w2 {parameter} = %w2: f32[4,16]
output y = %y: f32[8,16]
body
@compute launch matmul (%x: f32[8,16], %w1: f32[16,4]) -> (%h: f32[8,4]) from %h
@compute launch relu (%h: f32[8,4]) -> (%a: f32[8,4]) from %a
@compute launch matmul (%a: f32[8,4], %w2: f32[4,16]) -> (%p: f32[8,16]) from %p
@compute record 0
@comm.tp wait 0
@comm.tp all_reduce on @tp (%p: f32[8,16]) -> (%y: f32[8,16]) {reduce="sum"} from %sum
@comm.tp record 1
@compute wait 1
`

// What a child is told through its environment.
const (
	envRandom = "MLP_RANDOM" // run random collectives instead
	envSteps  = "MLP_STEPS"  // number of steps
	envWait   = "MLP_WAIT"   // deadline of collectives
	envJoin   = "MLP_JOIN"   // deadline of joining
	envOdd    = "MLP_ODD"    // "RANK=program", "RANK=bytes": the rank that brings something else
	envFreeze = "MLP_FREEZE" // the rank that freezes in the loop
	envGate   = "MLP_GATE"   // where to wait until all ranks have been started
)

func TestMain(m *testing.M) {
	if os.Getenv(launch.EnvChild) == "1" {
		if err := child(); err != nil {
			fmt.Fprintln(os.Stderr, "FAILED:", err)
			os.Exit(3)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// mlp returns the program and its module, with a difference if this rank is odd.
func mlp(odd string) (*program.Program, *rt.Module, error) {
	text := mlpText
	if odd == "program" {
		text = strings.Replace(text, "launch relu", "launch tanh", 1)
	}
	p, err := program.Parse("mlp", text)
	if err != nil {
		return nil, nil, err
	}
	m, err := rt.ModuleOf(p)
	return p, m, err
}

// steps runs the loop on one rank and returns the last result. With weights that
// are all 0.25 each step maps a matrix of ones to 16*0.25*16*0.25 = 16 ones, so
// inputs are scaled down to keep a fixed point.
func steps(ctx context.Context, r *rt.Rank, p *program.Program, n int, each func(step int)) ([]float64, error) {
	weights := func(shape ...int64) rt.Value {
		w := make([]float64, shape[0]*shape[1])
		for i := range w {
			w[i] = 0.25
		}
		return rt.Value{DType: rt.F32, Shape: shape, Data: bytesOf(rt.F32, w...)}
	}
	x := make([]float64, 8*16)
	for i := range x {
		x[i] = float64(i/16 + 1)
	}
	in := []rt.Value{{DType: rt.F32, Shape: rt.Dims{8, 16}}, weights(16, 4), weights(4, 16)}
	for step := range n {
		in[0].Data = bytesOf(rt.F32, x...)
		out, err := rt.Run(ctx, r, p, in, rt.Options{})
		if err != nil {
			return nil, fmt.Errorf("step %d: %w", step, err)
		}
		for i, v := range numbersOf(rt.F32, out[0].Data) {
			x[i] = v / 16
		}
		in[1].Resident, in[2].Resident = true, true
		if each != nil {
			each(step)
		}
	}
	return x, nil
}

// childRandom runs the random collectives in a world of processes.
func childRandom() error {
	mod := randomModule()
	ctx := context.Background()
	r, err := rt.Join(ctx, host.Opener(host.Options{FirstEpoch: wrapping}), rt.Config{Timeout: time.Hour}, mod)
	if err != nil {
		return err
	}
	return errors.Join(randomRounds(ctx, r, mod.Groups, 200), r.Barrier(ctx), r.Close())
}

func TestRandomCollectivesOfProcesses(t *testing.T) {
	leak.Check(t)
	var out output
	spec := mlpSpec(&out, 0, time.Hour, time.Hour)
	spec.Env = append(spec.Env, envRandom+"=1")
	if err := launch.Run(t.Context(), spec); err != nil {
		t.Fatalf("%v\n%s", err, out.String())
	}
}

func child() error {
	switch os.Getenv(envCalls) {
	case "all":
		return obeys()
	case "rank":
		return lives(context.Background(), rt.Config{})
	}
	if os.Getenv(envRandom) != "" {
		return childRandom()
	}
	if os.Getenv(envStages) != "" {
		return childStages(context.Background())
	}
	if steps := os.Getenv(envFSDP); steps != "" {
		return childFSDP(steps)
	}
	if steps := os.Getenv(envWorld); steps != "" {
		return childWorld(steps)
	}
	if bytes := os.Getenv(envLast); bytes != "" {
		return childLast(bytes)
	}
	n, err := strconv.Atoi(os.Getenv(envSteps))
	if err != nil {
		return err
	}
	wait, err := time.ParseDuration(os.Getenv(envWait))
	if err != nil {
		return err
	}
	join, err := time.ParseDuration(os.Getenv(envJoin))
	if err != nil {
		return err
	}
	odd := ""
	if rank, what, ok := strings.Cut(os.Getenv(envOdd), "="); ok && rank == os.Getenv("RANK") {
		odd = what
	}
	p, m, err := mlp(odd)
	if err != nil {
		return err
	}
	cfg := rt.Config{Timeout: wait, JoinTimeout: join}
	if odd == "bytes" {
		cfg.UserBytes = 4096
	}
	ctx := context.Background()
	if err := pass(); err != nil {
		return err
	}
	r, err := rt.Join(ctx, host.Opener(host.Options{}), cfg, m)
	if err != nil {
		return err
	}
	x, err := steps(ctx, r, p, n, func(step int) {
		if step == 30 && os.Getenv(envFreeze) == os.Getenv("RANK") {
			syscall.Kill(os.Getpid(), syscall.SIGSTOP)
			select {} // the signal may take a moment to reach all threads
		}
		if step%10 == 0 {
			fmt.Println("step", step)
		}
	})
	if err != nil {
		ms := running(func() { err = errors.Join(err, r.Close()) })
		fmt.Println("closed in", ms)
		return err
	}
	if err := r.Barrier(ctx); err != nil {
		return err
	}
	fmt.Println("result", x[0], x[16], x[127])
	return r.Close()
}

// output collects what the ranks print and calls seen for each line.
type output struct {
	mu   sync.Mutex
	b    bytes.Buffer
	seen func(line string)
}

func (o *output) Write(b []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.b.Write(b)
	if o.seen != nil {
		for line := range strings.Lines(string(b)) {
			o.seen(line)
		}
	}
	return len(b), nil
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.b.String()
}

// mlpSpec is a job of four ranks. wait is the deadline of their collectives, join that of
// joining.
func mlpSpec(out io.Writer, steps int, wait, join time.Duration) launch.Spec {
	return launch.Spec{World: 4, Args: []string{"-test.run=^$"}, Stdout: out, Stderr: out, Grace: 2 * time.Minute,
		// The race detector's own second at the end of a process would hide ours.
		Env: []string{"GORACE=atexit_sleep_ms=0", envSteps + "=" + strconv.Itoa(steps), envWait + "=" + wait.String(), envJoin + "=" + join.String()}}
}

func TestProcesses(t *testing.T) {
	leak.Check(t)
	var out output
	if err := launch.Run(t.Context(), mlpSpec(&out, 50, time.Hour, time.Hour)); err != nil {
		t.Fatalf("%v\n%s", err, out.String())
	}
	if n := strings.Count(out.String(), "result 1 2 8\n"); n != 4 {
		t.Errorf("%d ranks have the result, want 4:\n%s", n, out.String())
	}
}

// TestGoroutinesRunTheSame runs the program that the processes run.
func TestGoroutinesRunTheSame(t *testing.T) {
	p, m, err := mlp("")
	if err != nil {
		t.Fatal(err)
	}
	local(t, 4, rt.Config{}, host.Options{}, []*rt.Module{m}, func(ctx context.Context, r *rt.Rank) error {
		x, err := steps(ctx, r, p, 50, nil)
		if err != nil {
			return err
		}
		for i, v := range x {
			if math.Abs(v-float64(i/16+1)) > 0 {
				return fmt.Errorf("element %d is %v", i, v)
			}
		}
		return nil
	})
}

// survivors checks that exactly the expected ranks failed by themselves, each
// with a message that holds all of want.
func survivors(t *testing.T, err error, out string, ranks []int, want func(rank int) []string) {
	t.Helper()
	for _, r := range ranks {
		e := launch.ErrorOf(err, r)
		if e == nil {
			t.Errorf("rank %d did not fail", r)
			continue
		}
		var exit *exec.ExitError
		if !errors.As(e, &exit) || exit.ExitCode() != 3 {
			t.Errorf("rank %d: %v; want exit status 3", r, e.Err)
		}
		for _, w := range want(r) {
			if !strings.Contains(e.Stderr, w) {
				t.Errorf("rank %d says %q, which lacks %q", r, strings.TrimSpace(e.Stderr), w)
			}
		}
	}
	if t.Failed() {
		t.Logf("output:\n%s", out)
	}
}

// rest are the ranks but one.
func rest(victim int) []int {
	return slices.DeleteFunc([]int{0, 1, 2, 3}, func(r int) bool { return r == victim })
}

// atStep30 calls f once, when a rank says that it has come to step 30.
func (o *output) atStep30(rank int, f func()) {
	var once sync.Once
	o.seen = func(line string) {
		if strings.HasPrefix(line, fmt.Sprintf("[%d] step 30", rank)) {
			once.Do(f)
		}
	}
}

// processes keeps the processes of a job.
func processes(spec *launch.Spec) (of func(rank int) *os.Process) {
	var procs sync.Map
	spec.Started = func(rank int, p *os.Process) { procs.Store(rank, p) }
	return func(rank int) *os.Process {
		p, _ := procs.Load(rank)
		return p.(*os.Process)
	}
}

// TestKilledRank kills one of four ranks in the middle of the loop. The deadline of waits is
// far, so that only the end of the connection can say who died. Run it with -count=100 to
// see that nothing ever hangs.
func TestKilledRank(t *testing.T) {
	leak.Check(t)
	victim := rand.IntN(4)
	out := &output{}
	spec := mlpSpec(out, 1<<30, time.Hour, time.Hour)
	of := processes(&spec)
	out.atStep30(victim, func() { of(victim).Kill() })
	err := launch.Run(t.Context(), spec)
	survivors(t, err, out.String(), rest(victim), func(rank int) []string {
		return []string{fmt.Sprintf("rank %d: ", rank), fmt.Sprintf("rank %d died", victim), `all_reduce on "tp" (sum)`}
	})
}

// TestStoppedRank freezes a rank in the loop: it is not dead, so that only the
// deadline helps. Nobody waits for it behind that, also where it has the coordinator.
func TestStoppedRank(t *testing.T) {
	for _, victim := range []int{0, 1 + rand.IntN(3)} {
		t.Run(strconv.Itoa(victim), func(t *testing.T) {
			leak.Check(t)
			out := &output{}
			spec := mlpSpec(out, 1<<30, 2*time.Second, time.Hour)
			spec.Env = append(spec.Env, envFreeze+"="+strconv.Itoa(victim))
			of, ended := processes(&spec), 0
			spec.Ended = func(int, error) {
				if ended++; ended == spec.World-1 {
					of(victim).Kill()
				}
			}
			err := launch.Run(t.Context(), spec)
			survivors(t, err, out.String(), rest(victim), func(rank int) []string {
				return []string{"timed out after", fmt.Sprintf("waiting for rank %d", victim), `all_reduce on "tp" (sum)`, fmt.Sprintf("rank %d ", victim)}
			})
			for line := range strings.Lines(out.String()) {
				rank, took, ok := strings.Cut(strings.TrimSpace(line), "] closed in ")
				if !ok || rank == "[0" { // rank 0 waits for the others
					continue
				}
				if ms, err := strconv.Atoi(took); err != nil || ms >= 900 { // waiting would take a second
					t.Errorf("Close took %v ms, %v: it has waited for rank %d", took, err, victim)
				}
			}
		})
	}
}

// TestKilledAnytime kills a rank at any moment from its joining on: while the ranks
// join, while they exchange memory, or in the loop. Whoever is left names it.
func TestKilledAnytime(t *testing.T) {
	leak.Check(t)
	victim, delay := rand.IntN(4), time.Duration(rand.Int64N(int64(60*time.Millisecond)))
	// Who has not said hello is missed when time is up.
	out, err := missing(t, victim, func(out *output, join time.Duration) error {
		spec := mlpSpec(out, 1<<30, time.Hour, join)
		of := processes(&spec)
		gate(t, &spec, func() { time.AfterFunc(delay, func() { of(victim).Kill() }) })
		return launch.Run(t.Context(), spec)
	})
	t.Logf("rank %d killed after %v", victim, delay)
	survivors(t, err, out, rest(victim), func(int) []string {
		return []string{fmt.Sprintf("rank %d", victim), `all_reduce on "tp" (sum)`}
	})
}

// TestMissingRank starts three of four.
func TestMissingRank(t *testing.T) {
	for _, rank := range []int{0, 2} {
		t.Run(strconv.Itoa(rank), func(t *testing.T) {
			leak.Check(t)
			out, err := missing(t, rank, func(out *output, join time.Duration) error {
				spec := mlpSpec(out, 10, time.Hour, join)
				spec.Ranks = rest(rank)
				gate(t, &spec, nil)
				return launch.Run(t.Context(), spec)
			})
			survivors(t, err, out, rest(rank), func(int) []string {
				return []string{`rendezvous before all_reduce on "tp" (sum)`, "timed out", fmt.Sprintf("waiting for rank %d", rank)}
			})
		})
	}
}

// TestDifferentPrograms lets one rank bring another program, or another size.
func TestDifferentPrograms(t *testing.T) {
	for _, c := range []struct {
		odd  string
		rank int
		want func(rank int) []string
	}{
		{"program", 2, func(rank int) []string {
			peer := 2
			if rank == 2 {
				peer = 0
			}
			return []string{`rendezvous before all_reduce on "tp" (sum)`, "run different programs", fmt.Sprintf("ranks %d and %d", rank, peer), "at line 20:", "launch relu", "launch tanh"}
		}},
		{"bytes", 1, func(rank int) []string {
			return []string{`before all_reduce on "tp" (sum)`, "arena bytes differ", "4096", "2101248", "rank 1"}
		}},
	} {
		t.Run(c.odd, func(t *testing.T) {
			leak.Check(t)
			out := &output{}
			spec := mlpSpec(out, 10, time.Hour, time.Hour)
			spec.Env = append(spec.Env, fmt.Sprintf("%s=%d=%s", envOdd, c.rank, c.odd))
			err := launch.Run(t.Context(), spec)
			survivors(t, err, out.String(), []int{0, 1, 2, 3}, c.want)
		})
	}
}
