//go:build linux

package device_test

import (
	"context"
	"flag"
	"fmt"
	"maps"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/seed-ee968945/concert/cost"
	"github.com/seed-ee968945/concert/cuda/coll"
	"github.com/seed-ee968945/concert/cuda/cudnn"
	"github.com/seed-ee968945/concert/cuda/device"
	"github.com/seed-ee968945/concert/cuda/driver"
	"github.com/seed-ee968945/concert/cuda/driver/fake"
	"github.com/seed-ee968945/concert/cuda/library"
	"github.com/seed-ee968945/concert/cuda/library/librarytest"
	"github.com/seed-ee968945/concert/cuda/topo"
	"github.com/seed-ee968945/concert/internal/hostrun"
	"github.com/seed-ee968945/concert/internal/stall"
	"github.com/seed-ee968945/concert/interp"
	"github.com/seed-ee968945/concert/interp/step"
	"github.com/seed-ee968945/concert/ir"
	"github.com/seed-ee968945/concert/kernels"
	"github.com/seed-ee968945/concert/lower"
	"github.com/seed-ee968945/concert/passes"
	"github.com/seed-ee968945/concert/passes/standard"
	rt "github.com/seed-ee968945/concert/runtime"
)

const testdata = "../../testdata/"

// imageSet is read once for all worlds of the tests.
var imageSet = sync.OnceValue(func() *kernels.Set {
	set, err := kernels.NewSet()
	if err != nil {
		panic(err) // the embedded manifest is broken
	}
	return set
})

// small are options with little memory, because the fake driver clears all of it.
func small(ranks int) device.Options {
	tune := kernels.DefaultTuning(max(ranks, 2))
	tune.Blocks, tune.PushBlocks = 4, 4
	tune.EngineMove, tune.EngineReduce, tune.EngineInPlace = 0, 0, 0
	tune.OverlappedMove, tune.OverlappedReduce, tune.OverlappedPiece, tune.CoresidentReduce = 1<<10, 1<<10, 256, 4<<10
	return device.Options{Transport: topo.Transport(*transport), NCCL: device.NCCLOptions{Path: *ncclPath}, Scratch: 1 << 20, Staging: 1 << 20, Cache: "none", Workspace: 1 << 20, Libraries: device.Standard(device.Paths{}),
		Images: imageSet(), Group: coll.GroupOptions{Region: 256 << 10, Flagged: 512 << 10, Tuning: &tune}}
}

// newFake is a fake driver whose leaks fail the test.
func newFake(t testing.TB, devices int) *fake.Driver {
	f := fake.New(devices)
	t.Cleanup(func() {
		if l := f.Leaks(); len(l) > 0 && !t.Failed() {
			t.Errorf("not released: %s", leaks(l))
		}
	})
	return f
}

func leaks(l map[string]int) string {
	var b strings.Builder
	for _, k := range slices.Sorted(maps.Keys(l)) {
		fmt.Fprintf(&b, "%s:%d ", k, l[k])
	}
	return b.String()
}

// broken waits until the rank's world is, and gives the reason.
func broken(r *rt.Rank) error {
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for r.Err() == nil {
		<-tick.C
	}
	return r.Err()
}

// plenty is a deadline for what has to come, however busy the machine is.
const plenty = 3 * time.Minute

// noGoroutines fails the test if it leaves goroutines behind. What has been told to end is waited for.
func noGoroutines(t testing.TB) {
	n := runtime.NumGoroutine()
	t.Cleanup(func() {
		if stall.Until(20_000, func() bool { return runtime.NumGoroutine() <= n }) {
			return
		}
		buf := make([]byte, 1<<16)
		t.Errorf("goroutines: %d before, %d after\n%s", n, runtime.NumGoroutine(), buf[:runtime.Stack(buf, true)])
	})
}

var (
	onGPU   = flag.Bool("gpu", false, "run on the GPUs of this machine instead of the fake driver")
	rtcPath = flag.String("nvrtc", "", "path of the runtime compiler's library")
	ltPath  = flag.String("cublaslt", "", "path of cuBLASLt")
	dnnDir  = flag.String("cudnn", "", "folder of cuDNN")
	preload = flag.String("preload", "", "libraries that cuDNN needs, with commas between")

	transport = flag.String("transport", "", "nccl: all groups over NCCL")
	ncclPath  = flag.String("nccl", "", "path of NCCL")
)

// target is what the tests run on: devices of the fake driver, or GPUs, of which one
// may serve several ranks.
func target(t testing.TB, ranks int) (driver.Driver, []int, device.Options) {
	o := small(ranks)
	if !*onGPU {
		return newFake(t, ranks), devices(ranks), o
	}
	drv, err := driver.Open("")
	if err != nil {
		t.Skip(err)
	}
	infos, err := drv.Devices()
	if err != nil || len(infos) == 0 {
		t.Skipf("no device: %v", err)
	}
	devs := make([]int, ranks)
	for i := range devs {
		devs[i] = i % len(infos)
	}
	o.ShareDevice = len(infos) < ranks
	if ranks > 3*len(infos) {
		t.Skip("more streams on a device than it has hardware queues: those that share one wait for each other")
	}
	if o.ShareDevice && o.Transport == topo.NCCL {
		t.Skipf("NCCL wants a GPU for each of %d ranks, there are %d", ranks, len(infos))
	}
	if !o.ShareDevice { // what is really used
		o.Group, o.Scratch, o.Staging = coll.GroupOptions{}, 0, 0
	}
	gpuOptions(&o)
	return drv, devs, o
}

// gpuOptions names the libraries.
func gpuOptions(o *device.Options) {
	o.Workspace = 256 << 20
	o.NVRTC = *rtcPath
	p := device.Paths{CuBLASLt: *ltPath, CuDNN: cudnn.Options{Dir: *dnnDir}}
	if *preload != "" {
		p.CuDNN.Preload = strings.Split(*preload, ",")
	}
	o.Libraries = device.Standard(p)
}

func devices(n int) []int {
	devs := make([]int, n)
	for i := range devs {
		devs[i] = i
	}
	return devs
}

// symmetricOnly skips what is about kernels on symmetric memory.
func symmetricOnly(t *testing.T) {
	t.Helper()
	if *transport != "" {
		t.Skip("is about symmetric memory")
	}
}

// hosted lets the host's kernels do what programs launch that have no kernels, on the fake
// driver.
func hosted(drv driver.Driver, o device.Options) device.Options {
	host, ok := drv.(driver.HostDriver)
	if ok {
		o.Libraries = append(slices.Clone(o.Libraries), func(device.LibraryEnv) (library.Library, error) { return librarytest.Host{Driver: host}, nil })
	}
	return o
}

// world runs f on the ranks of a local world in which nothing may go wrong, and every
// operation may be launched on the fake driver.
func world(t *testing.T, n int, cfg rt.Config, mods []*rt.Module, f func(ctx context.Context, r *rt.Rank) error) {
	t.Helper()
	noGoroutines(t)
	if cfg.Timeout == 0 {
		cfg.Timeout = plenty
	}
	drv, devs, o := target(t, n)
	if err := device.Local(t.Context(), drv, devs, cfg, hosted(drv, o), mods, f); err != nil {
		t.Error(err)
	}
}

// how says in which way a step runs.
type how int

const (
	eager how = iota
	packed
	graph
)

func (h how) String() string { return [...]string{"eager", "packed", "graph"}[h] }

// lowered is a function as a step of devices.
func lowered(t testing.TB, f *ir.Func, o lower.Options) hostrun.Step {
	t.Helper()
	p, err := lower.FuncWith(f, o)
	if err != nil {
		t.Fatal(err)
	}
	s, err := hostrun.OfProgram(p)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// runner lowers a function and runs it on CUDA devices. Captured steps are replayed
// several times, and all replays must give the same bits.
func runner(drv driver.Driver, devs []int, o device.Options, lo lower.Options, h how, replays int) step.Runner {
	return func(ctx context.Context, f *ir.Func, inputs [][]interp.Tensor) ([][]interp.Tensor, error) {
		p, err := lower.FuncWith(f, lo)
		if err != nil {
			return nil, err
		}
		s, err := hostrun.OfProgram(p)
		if err != nil {
			return nil, err
		}
		outs := make([][]interp.Tensor, p.World)
		cfg := rt.Config{Timeout: plenty}
		err = device.Local(ctx, drv, devs[:p.World], cfg, o, []*rt.Module{s.Module}, func(ctx context.Context, r *rt.Rank) error {
			k := r.Info().Rank
			in, err := hostrun.Inputs(ctx, r, s.Module, inputs[k])
			if err != nil {
				return err
			}
			outs[k], err = runStep(ctx, r, s, in, h, replays)
			return err
		})
		return outs, err
	}
}

func runStep(ctx context.Context, r *rt.Rank, s hostrun.Step, in []rt.Value, h how, replays int) ([]interp.Tensor, error) {
	return runWith(ctx, r, s, in, rt.Options{}, h, replays)
}

func runWith(ctx context.Context, r *rt.Rank, s hostrun.Step, in []rt.Value, o rt.Options, h how, replays int) ([]interp.Tensor, error) {
	if h == eager {
		vs, err := rt.RunModule(ctx, r, s.Module, s.Run, in, o)
		if err != nil {
			return nil, err
		}
		return hostrun.Tensors(ctx, r, vs)
	}
	st, err := rt.Prepare(ctx, r, s.Module, s.Run, o, h == graph)
	if err != nil {
		return nil, err
	}
	defer st.Close()
	var first []interp.Tensor
	for i := range replays {
		vs, err := st.Run(ctx, in)
		if err != nil {
			return nil, err
		}
		got, err := hostrun.Tensors(ctx, r, vs)
		if err != nil {
			return nil, err
		}
		if i == 0 {
			first = got
		}
		for k := range got {
			if !interp.Equal(got[k], first[k]) {
				return nil, fmt.Errorf("output %d of replay %d differs from the first replay's", k, i)
			}
		}
	}
	return first, nil
}

// memo keeps what several tests use and none changes.
type memo[K comparable, V any] struct{ made sync.Map }

func (m *memo[K, V]) get(key K, f func() (V, error)) (V, error) {
	once, _ := m.made.LoadOrStore(key, sync.OnceValues(f))
	return once.(func() (V, error))()
}

var (
	loaded  memo[string, *step.Pair]
	forGPUs memo[forGPU, *ir.Func]
)

type forGPU struct {
	f    *ir.Func
	more string
}

// load reads a traced step.
func load(name string) (*step.Pair, error) {
	return loaded.get(name, func() (*step.Pair, error) { return step.Load(testdata+"graphs", name) })
}

// forCUDA is a step after pipeline cuda.
func forCUDA(pair *step.Pair, more ...string) (*step.Pair, error) {
	out := *pair
	for _, half := range []**ir.Func{&out.Forward, &out.Backward} {
		f := *half
		var err error
		*half, err = forGPUs.get(forGPU{f, strings.Join(more, ",")}, func() (*ir.Func, error) {
			m := f.Module().Clone()
			p, err := standard.Table().Parse(strings.Join(append([]string{"cuda"}, more...), ","))
			if err != nil {
				return nil, err
			}
			g := passes.Manager{Costs: cost.TracedH200()}
			if _, err := g.Run(m, p); err != nil {
				return nil, err
			}
			return m.Func(f.Name), nil
		})
		if err != nil {
			return nil, err
		}
	}
	return &out, nil
}
