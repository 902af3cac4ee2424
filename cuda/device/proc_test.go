//go:build linux

package device_test

import (
	"context"
	"encoding/gob"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/seed-ee968945/concert/cuda/device"
	"github.com/seed-ee968945/concert/cuda/driver"
	"github.com/seed-ee968945/concert/cuda/driver/fake"
	"github.com/seed-ee968945/concert/cuda/topo"
	"github.com/seed-ee968945/concert/internal/hostrun"
	"github.com/seed-ee968945/concert/interp"
	"github.com/seed-ee968945/concert/interp/step"
	"github.com/seed-ee968945/concert/ir"
	"github.com/seed-ee968945/concert/lower"
	rt "github.com/seed-ee968945/concert/runtime"
	"github.com/seed-ee968945/concert/runtime/host"
	"github.com/seed-ee968945/concert/runtime/launch"
)

// What a rank's process is told through its environment.
const (
	envFolder = "DEVICE_TEST_FOLDER" // where its results go
	envStep   = "DEVICE_TEST_STEP"
	envHow    = "DEVICE_TEST_HOW"
	envFault  = "DEVICE_TEST_FAULT" // what goes wrong on rank 1
	envHosts  = "DEVICE_TEST_HOSTS" // every rank is on a host of its own
	envLives  = "DEVICE_TEST_LIVES" // steps of a world that changes while it lives, and the one at which rank 1 is killed
)

// TestMain makes the test's binary also the program that the ranks run.
func TestMain(m *testing.M) {
	flag.Parse()
	if os.Getenv(launch.EnvChild) == "1" {
		if err := child(context.Background()); err != nil {
			fmt.Fprintln(os.Stderr, "FAILED:", err)
			os.Exit(3)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// child is the rank of a process: a driver of its own, and the traced step.
func child(ctx context.Context) error {
	env, err := rt.EnvFrom(os.Getenv)
	if err != nil {
		return err
	}
	drv, o, err := childDriver(env)
	if err != nil {
		return err
	}
	if steps := os.Getenv(envLives); steps != "" {
		return lives(ctx, env, drv, o, steps)
	}
	if f := os.Getenv(envFault); f != "" {
		return faulty(ctx, drv, o, f)
	}
	h := map[string]how{"eager": eager, "packed": packed, "graph": graph}[os.Getenv(envHow)]
	pair, err := load(os.Getenv(envStep))
	if err != nil {
		return err
	}
	if pair, err = forCUDA(pair); err != nil {
		return err
	}
	in, err := childInputs(pair)
	if err != nil {
		return err
	}
	var steps []hostrun.Step
	var mods []*rt.Module
	for _, f := range []*ir.Func{pair.Forward, pair.Backward} {
		p, err := lower.FuncWith(f, lower.Options{Kernels: true})
		if err != nil {
			return err
		}
		s, err := hostrun.OfProgram(p)
		if err != nil {
			return err
		}
		steps, mods = append(steps, s), append(mods, s.Module)
	}
	r, err := rt.Join(ctx, device.Opener(drv, o), rt.Config{Timeout: plenty}, mods...)
	if err != nil {
		return err
	}
	outs, err := twoSteps(ctx, r, pair, steps, in[r.Info().Rank], h)
	if err := errors.Join(err, r.Close()); err != nil {
		return err
	}
	if f, ok := drv.(*fake.Driver); ok && len(f.Leaks()) > 0 {
		return fmt.Errorf("not released: %s", leaks(f.Leaks()))
	}
	file, err := os.Create(filepath.Join(os.Getenv(envFolder), fmt.Sprint(env.Rank)))
	if err != nil {
		return err
	}
	return errors.Join(gob.NewEncoder(file).Encode(outs), file.Close())
}

// twoSteps runs forward and backward and gives the results of both.
func twoSteps(ctx context.Context, r *rt.Rank, pair *step.Pair, steps []hostrun.Step, in []interp.Tensor, h how) ([2][]interp.Tensor, error) {
	var outs [2][]interp.Tensor
	for i, s := range steps {
		if i == 1 {
			var err error
			if in, err = pair.BackwardInputs(outs[0]); err != nil {
				return outs, err
			}
		}
		vs, err := hostrun.Inputs(ctx, r, s.Module, in)
		if err != nil {
			return outs, err
		}
		if outs[i], err = runStep(ctx, r, s, vs, h, 3); err != nil {
			return outs, err
		}
	}
	return outs, nil
}

// childInputs are those that were recorded, on GPUs and if there are any, else random ones.
func childInputs(pair *step.Pair) ([][]interp.Tensor, error) {
	if in, err := pair.ReadAllInputs(testdata + "vectors"); err == nil && *onGPU {
		return in, nil
	}
	return interp.RandomInputs(pair.Forward, 1, interp.RandomOptions{})
}

// runInputsOfChildren runs a step on the inputs of children, in this process.
func runInputsOfChildren(t *testing.T, name string, drv driver.Driver, devs []int, o device.Options, h how) (pair *step.Pair, fw, bw [][]interp.Tensor) {
	t.Helper()
	pair, err := load(name)
	if err != nil {
		t.Fatal(err)
	}
	if pair, err = forCUDA(pair); err != nil {
		t.Fatal(err)
	}
	in, err := childInputs(pair)
	if err != nil {
		t.Fatal(err)
	}
	fw, bw, err = pair.Run(t.Context(), runner(drv, devs, o, lower.Options{Kernels: true}, h, 3), in)
	if err != nil {
		t.Fatal(err)
	}
	return pair, fw, bw
}

func childDriver(env rt.Env) (driver.Driver, device.Options, error) {
	o := small(env.World)
	apart := os.Getenv(envHosts) != ""
	if !*onGPU {
		drv := fake.New(env.World)
		if !apart {
			return drv, o, nil
		}
		m, err := readMachine("h200x2_vm", drv)
		if err != nil {
			return nil, o, err
		}
		m.Host.ID, m.Host.Name = fmt.Sprint("boot ", env.Rank), fmt.Sprint("host", env.Rank)
		o.Machine = m
		return drv, o, nil
	}
	drv, err := driver.Open("")
	if err != nil {
		return nil, o, err
	}
	gpuOptions(&o)
	if apart { // as NCCL sees it
		o.Transport = topo.NCCL
		for _, kv := range [][2]string{{"NCCL_HOSTID", fmt.Sprint("host", env.Rank)}, {"NCCL_P2P_DISABLE", "1"}, {"NCCL_SHM_DISABLE", "1"}, {"NCCL_SOCKET_IFNAME", "lo"}, {"NCCL_IB_DISABLE", "1"}} {
			if err := os.Setenv(kv[0], kv[1]); err != nil {
				return nil, o, err
			}
		}
	}
	return drv, o, nil
}

// spawn runs the ranks as processes.
func spawn(t *testing.T, world int, env ...string) error {
	t.Helper()
	if *onGPU {
		drv, err := driver.Open("")
		if err != nil {
			t.Skip(err)
		}
		infos, err := drv.Devices()
		if err != nil {
			t.Fatal(err)
		}
		if len(infos) < world {
			t.Skipf("%d processes need as many devices, there are %d", world, len(infos))
		}
	}
	var args []string
	flag.Visit(func(f *flag.Flag) {
		if !strings.HasPrefix(f.Name, "test.") {
			args = append(args, "-"+f.Name+"="+f.Value.String())
		}
	})
	ctx, cancel := context.WithTimeout(t.Context(), plenty)
	defer cancel()
	return launch.Run(ctx, launch.Spec{World: world, Args: args, Env: env, Grace: plenty})
}

// A process for each rank: the same bits as ranks of one process.
func TestProcesses(t *testing.T) {
	for _, h := range []how{eager, graph} {
		t.Run(h.String(), func(t *testing.T) {
			if testing.Short() && h == eager {
				t.Skip("eager steps run in ranks of one process")
			}
			const name = "tiny_fsdp2"
			dir := t.TempDir()
			if err := spawn(t, 2, envFolder+"="+dir, envStep+"="+name, envHow+"="+h.String()); err != nil {
				t.Fatal(err)
			}
			drv, devs, o := target(t, 2)
			_, fw, bw := runInputsOfChildren(t, name, drv, devs, o, h)
			for r := range fw {
				got := written(t, dir, r)
				compare(t, "forward", [][]interp.Tensor{got[0]}, fw[r:r+1])
				compare(t, "backward", [][]interp.Tensor{got[1]}, bw[r:r+1])
			}
		})
	}
}

// written is what a rank's process left in dir: its outputs forward and backward.
func written(t *testing.T, dir string, rank int) (got [2][]interp.Tensor) {
	t.Helper()
	f, err := os.Open(filepath.Join(dir, fmt.Sprint(rank)))
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(gob.NewDecoder(f).Decode(&got), f.Close()); err != nil {
		t.Fatal(err)
	}
	return got
}

// faulty joins a world in which rank 1 does something wrong; the other rank must learn
// of it in its collective, by the error it expects.
func faulty(ctx context.Context, drv driver.Driver, o device.Options, fault string) error {
	switch fault {
	case "dies in replays":
		return diesInReplays(ctx, drv, o)
	case "another module", "another step":
		return differs(ctx, drv, o, fault)
	case "all of host":
		return failsInTurn(ctx, host.Opener(host.Options{}))
	case "all of nccl":
		o.Transport = topo.NCCL
		return failsInTurn(ctx, device.Opener(drv, o))
	case "all of cuda":
		return failsInTurn(ctx, device.Opener(drv, o))
	}
	limit := plenty
	if fault == "late" {
		limit = 100 * time.Millisecond
	}
	r, err := rt.Join(ctx, device.Opener(drv, o), rt.Config{Timeout: limit, JoinTimeout: plenty, UserBytes: 4096})
	if err != nil {
		return err
	}
	x := rt.C(0, rt.F32, 16)
	sum := &rt.Collective{Op: rt.AllReduce, Group: "world", Reduce: "sum", Ins: rt.Ts{x}, Outs: rt.Ts{x}, Label: "%s"}
	if fault != "late" { // rank 1 may go wrong before rank 0 has seen that the barrier is over
		err = r.Barrier(ctx)
	}
	if r.Info().Rank == 1 {
		if err != nil {
			return err
		}
		switch fault {
		case "dies":
			os.Exit(0)
		case "aborts":
			r.Abort(errors.New("out of luck"))
		case "late":
			broken(r)
		}
		return errors.Join(r.Close())
	}
	if err == nil {
		var w *rt.Work
		if w, err = r.Start(ctx, "", sum); err == nil {
			err = w.Wait(ctx)
		}
	}
	want := map[string]error{"dies": rt.ErrPeerLost, "aborts": rt.ErrCanceled, "late": rt.ErrTimeout, "leaves": rt.ErrPeerLost}[fault]
	if !errors.Is(err, want) {
		return fmt.Errorf("got %v, want %v", err, want)
	}
	var lost *rt.PeerLostError
	if fault == "leaves" && (!errors.As(err, &lost) || !lost.Left || lost.Peer != 1 || !strings.Contains(lost.Op, "%s")) {
		return fmt.Errorf("the error says too little: %w", err)
	}
	if fault == "aborts" && !strings.Contains(err.Error(), "out of luck") || fault == "late" && !strings.Contains(err.Error(), "%s") {
		return fmt.Errorf("the error says too little: %w", err)
	}
	return r.Close()
}

// diesInReplays ends rank 1 without a word while both replay a graph; the other learns of
// it however far its deadline is.
func diesInReplays(ctx context.Context, drv driver.Driver, o device.Options) error {
	m, f := besideModule()
	r, err := rt.Join(ctx, device.Opener(drv, o), rt.Config{Timeout: plenty}, m)
	if err != nil {
		return err
	}
	s, err := rt.Prepare(ctx, r, m, f, rt.Options{}, true)
	if err != nil {
		return err
	}
	if r.Info().Rank == 1 {
		time.AfterFunc(100*time.Millisecond, func() { os.Exit(0) })
	}
	for {
		err := s.Replay(ctx)
		if err == nil {
			continue
		}
		var lost *rt.PeerLostError
		if !errors.As(err, &lost) || lost.Peer != 1 || lost.Left {
			return fmt.Errorf("got %w", err)
		}
		return errors.Join(s.Close(), r.Close())
	}
}

// differs lets rank 1 join with another module, or capture another step of the same one:
// both learn that at once, and which rank it is.
func differs(ctx context.Context, drv driver.Driver, o device.Options, fault string) error {
	m, f := besideModule()
	env, err := rt.EnvFrom(os.Getenv)
	if err != nil {
		return err
	}
	if fault == "another module" {
		m.Digest = fmt.Sprint("of rank ", env.Rank)
	}
	start := time.Now()
	r, err := rt.Join(ctx, device.Opener(drv, o), rt.Config{Timeout: plenty}, m)
	if err == nil {
		var s *rt.Step
		if s, err = rt.Prepare(ctx, r, m, otherOn(1, env.Rank, f), rt.Options{}, true); err == nil {
			err = errors.Join(errors.New("the step is ready"), s.Close())
		}
		defer r.Close()
	}
	return differing(err, env.Rank, time.Since(start))
}

// differing checks the error of one of two ranks whose programs differ.
func differing(err error, rank int, took time.Duration) error {
	var e *rt.MismatchError
	if !errors.As(err, &e) || e.Rank != rank || e.Peer != 1-rank || e.RankValue == e.PeerValue {
		return fmt.Errorf("rank %d: got %v", rank, err)
	}
	if took > plenty { // a deadline was waited for
		return fmt.Errorf("rank %d: after %v: %w", rank, took, err)
	}
	return nil
}

// otherOn is step, with one more collective on the given rank.
func otherOn(rank, me int, step func(*rt.Exec)) func(*rt.Exec) {
	if me != rank {
		return step
	}
	return func(x *rt.Exec) {
		step(x)
		step(x)
	}
}

func TestFaultsOfProcesses(t *testing.T) {
	for _, fault := range []string{"dies", "aborts", "late", "dies in replays", "another module", "another step"} {
		t.Run(fault, func(t *testing.T) {
			if err := spawn(t, 2, envFault+"="+fault); err != nil {
				t.Error(err)
			}
		})
	}
}
