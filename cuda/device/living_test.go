//go:build linux

package device_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"maps"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/seed-ee968945/concert/cuda/device"
	"github.com/seed-ee968945/concert/cuda/driver"
	"github.com/seed-ee968945/concert/cuda/driver/fake"
	"github.com/seed-ee968945/concert/internal/hostrun"
	"github.com/seed-ee968945/concert/internal/leak"
	"github.com/seed-ee968945/concert/interp"
	"github.com/seed-ee968945/concert/interp/step"
	"github.com/seed-ee968945/concert/ir"
	"github.com/seed-ee968945/concert/lower"
	"github.com/seed-ee968945/concert/program"
	rt "github.com/seed-ee968945/concert/runtime"
)

var livingSteps = flag.Int("living", 0, "steps of worlds that change while they live; 0 is a few, or 1000 on GPUs")

// living is how long such a world lives.
func living(few int) int {
	switch {
	case *livingSteps > 0:
		return *livingSteps
	case *onGPU:
		return 1000
	}
	return few
}

// TestWorldLives adds programs to a world, runs them eagerly and as graphs, and drops them,
// again and again, with ranks that are late: what a world has in the end is what it had.
func TestWorldLives(t *testing.T) {
	for _, n := range []int{2, 4} {
		t.Run(strconv.Itoa(n), func(t *testing.T) {
			leak.Check(t)
			drv, devs, o := target(t, n)
			if o.ShareDevice && n > 2 {
				t.Skip("too few GPUs")
			}
			little(&o)
			o.Cache = t.TempDir()
			l := hostrun.Living{Steps: living(16), Kernels: true, Capture: true, Each: behind}
			err := device.Local(t.Context(), drv, devs, rt.Config{Timeout: plenty}, o, nil, func(ctx context.Context, r *rt.Rank) error {
				few := l
				few.Steps = min(l.Steps, 16)
				if err := few.Run(ctx, r); err != nil { // which makes what is made once
					return err
				}
				before, room, err := heldBy(ctx, r, drv, devs)
				if err != nil {
					return err
				}
				if err := l.Run(ctx, r); err != nil {
					return err
				}
				after, left, err := heldBy(ctx, r, drv, devs)
				if err == nil && (after != before || left+64<<20 < room) {
					err = fmt.Errorf("the world holds %s with %d bytes free behind %d steps, %s with %d before", after, left, l.Steps, before, room)
				}
				return err
			})
			if err != nil {
				t.Error(err)
			}
		})
	}
}

// heldBy is what is held while no rank does anything: objects of the fake driver, and the
// free memory of the rank's device.
func heldBy(ctx context.Context, r *rt.Rank, drv driver.Driver, devs []int) (objects string, free uint64, err error) {
	if err := r.Barrier(ctx); err != nil {
		return "", 0, err
	}
	if f, ok := drv.(*fake.Driver); ok {
		objects = f.Leaks().String()
	} else {
		dev := devs[r.Info().Rank]
		c, err := drv.CtxRetain(dev)
		if err != nil {
			return "", 0, err
		}
		defer drv.CtxRelease(dev)
		if free, _, err = drv.MemInfo(c); err != nil {
			return "", 0, err
		}
	}
	return objects, free, r.Barrier(ctx)
}

// little gives groups little memory: many come and go.
func little(o *device.Options) {
	o.Group.Region, o.Group.Flagged, o.Scratch, o.Staging, o.Workspace = 64<<10, 64<<10, 64<<10, 64<<10, 64<<10
}

// behind holds ranks back on GPUs, now this one and now that.
func behind(rank, step int) {
	if *onGPU && (step*7+rank*3)%11 == 0 {
		time.Sleep(time.Duration((step*13+rank*5)%17) * time.Millisecond)
	}
}

// lives is a rank of a world of processes that changes while it lives.
func lives(ctx context.Context, env rt.Env, drv driver.Driver, o device.Options, how string) error {
	l := hostrun.Living{Kernels: true, Capture: true}
	killed := 0
	if _, err := fmt.Sscan(how, &l.Steps, &killed); err != nil {
		return err
	}
	l.Each = func(rank, step int) {
		behind(rank, step)
		if rank == 1 && step == killed-1 {
			syscall.Kill(os.Getpid(), syscall.SIGKILL)
		}
	}
	little(&o)
	r, err := rt.Join(ctx, device.Opener(drv, o), rt.Config{Timeout: plenty})
	if err != nil {
		return err
	}
	first := l
	first.Each = nil
	first.Steps = 5 // which make what is made once
	if err := first.Run(ctx, r); err != nil {
		return errors.Join(err, r.Close())
	}
	before := leak.Now()
	err = l.Run(ctx, r)
	if err == nil {
		if more := before.More(); more != "" {
			err = fmt.Errorf("a leak: %s", more)
		}
	}
	if killed > 0 {
		var lost *rt.PeerLostError
		if !errors.As(err, &lost) || lost.Peer != 1 {
			return errors.Join(fmt.Errorf("behind the death of rank 1: %w", err), r.Close())
		}
		err = nil
		r.Close() // what waited for the dead failed
	} else {
		err = errors.Join(err, r.Close())
	}
	if f, ok := drv.(*fake.Driver); ok && err == nil && len(f.Leaks()) > 0 {
		err = fmt.Errorf("not released: %v", f.Leaks())
	}
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(os.Getenv(envFolder), fmt.Sprint(env.Rank)), nil, 0o600)
}

// TestWorldLivesInProcesses is TestWorldLives of a process for each rank, once to the end and
// once with a rank that is killed in the middle: the others get a *PeerLostError, and release
// all that they have.
func TestWorldLivesInProcesses(t *testing.T) {
	for _, killed := range []int{0, 1} {
		for _, n := range []int{2, 4} {
			if testing.Short() && n == 2 {
				continue // as with more: the race detector sees one process
			}
			steps := min(living(10), max(*livingSteps, 100))
			t.Run(fmt.Sprint(n, " ", killed), func(t *testing.T) {
				dir := t.TempDir()
				err := spawn(t, n, envFolder+"="+dir, fmt.Sprint(envLives, "=", steps, " ", killed*(steps/2)))
				if (err != nil) != (killed > 0) {
					t.Error(err)
				}
				for rank := range n {
					if _, err := os.Stat(filepath.Join(dir, fmt.Sprint(rank))); (err == nil) == (killed > 0 && rank == 1) {
						t.Errorf("rank %d: %v", rank, err)
					}
				}
			})
		}
	}
}

// TestTrainLoop trains a sharded model in one living world whose halves are captured and share
// their parameters: nothing is copied but inputs and the loss, and a half is one launch of a
// graph. Losses and parameters are the interpreter's.
func TestTrainLoop(t *testing.T) {
	noGoroutines(t)
	steps := 4
	if *onGPU || *livingSteps > 0 {
		steps = 100
	}
	// At this rate the loss falls smoothly for a hundred steps. At ten times that rate a
	// parameter that is one rounding off at the beginning moves later losses by percents, on
	// the interpreter alone: there is nothing to compare with.
	const rate = 0.002
	tr, err := hostrun.NewTraining(testdata[:len(testdata)-1], "tiny_fsdp2", rate, func(f *ir.Func) (*program.Program, error) {
		p, err := forCUDA(&step.Pair{Forward: f, Backward: f})
		if err != nil {
			return nil, err
		}
		return lower.FuncWith(p.Forward, lower.Options{Kernels: true})
	})
	if err != nil {
		t.Fatal(err)
	}
	losses, last, err := tr.Reference(t.Context(), steps)
	if err != nil {
		t.Fatal(err)
	}
	drv, devs, o := target(t, 2)
	if devs[0] == devs[1] {
		t.Skip("ranks that share a GPU share its calls: they are counted by GPU")
	}
	tally := &tallied{Driver: drv, devs: map[driver.Ctx]int{}, calls: map[int]map[string]int{}}
	var over driver.Driver = tally
	if f, ok := drv.(*fake.Driver); ok {
		over = talliedFake{tally, f}
	}
	err = device.Local(t.Context(), over, devs, rt.Config{Timeout: plenty}, o, nil, func(ctx context.Context, r *rt.Rank) error {
		return trains(ctx, r, tr, func() map[string]int { return tally.take(devs[r.Info().Rank]) }, losses, last)
	})
	if err != nil {
		t.Error(err)
	}
	t.Logf("loss %v at first, %v behind %d steps", losses[0][0], losses[steps-1][0], steps)
}

func trains(ctx context.Context, r *rt.Rank, tr *hostrun.Training, calls func() map[string]int, losses, last [][]interp.Tensor) error {
	x, err := tr.On(ctx, r)
	if err != nil {
		return err
	}
	var halves [2]*rt.Step
	for i, s := range []hostrun.Step{tr.Fw, tr.Bw} {
		if halves[i], err = rt.Prepare(ctx, r, s.Module, s.Run, rt.Options{}, true); err != nil {
			return err
		}
	}
	half := func(s *rt.Step) func([]rt.Value) ([]rt.Value, error) {
		return func(in []rt.Value) ([]rt.Value, error) { return s.Run(ctx, in) }
	}
	rank := r.Info().Rank
	for n := range losses {
		calls()
		loss, err := x.Step(half(halves[0]), half(halves[1]))
		if err != nil {
			return err
		}
		once := map[string]int{"graph": 2, "record": 2, "CopyIn": 1, "CopyOut": 1}
		if c := calls(); n > 0 && !maps.Equal(c, once) {
			return fmt.Errorf("step %d: driver calls %v, want %v: two graphs, the tangent and the loss", n, c, once)
		}
		want := losses[n][rank]
		if err := trained(fmt.Sprintf("loss %d", n), interp.Tensor{DType: want.DType, Shape: want.Shape, Data: loss}, want, losses[0][rank], step.LossTolerance); err != nil {
			return err
		}
	}
	state, err := x.State()
	if err != nil {
		return err
	}
	for i := range state {
		if err := trained(fmt.Sprintf("input %d", i), state[i], last[rank][i], last[rank][i], step.GradientTolerance); err != nil {
			return err
		}
	}
	return x.Close(ctx)
}

// trained compares with the interpreter: to the bit on the fake driver, whose kernels are the
// host's. On GPUs what differs may be some part of scale, in the 2-norm: roundings add up in
// the loop.
func trained(what string, got, want, scale interp.Tensor, most float64) error {
	if interp.Equal(got, want) {
		return nil
	}
	if !*onGPU {
		return fmt.Errorf("%s differs: %v, want %v", what, got, want)
	}
	norm, diff := 0.0, 0.0
	for _, x := range scale.Float64s() {
		norm += x * x
	}
	a, b := got.Float64s(), want.Float64s()
	for i := range b {
		diff += (a[i] - b[i]) * (a[i] - b[i])
	}
	if rel := math.Sqrt(diff / norm); !(rel <= most) {
		return fmt.Errorf("%s is off by %.3g, %.3g allowed: %v, want %v", what, rel, most, got, want)
	}
	return nil
}

// tallied is a driver that counts what is enqueued and copied, by device.
type tallied struct {
	driver.Driver
	mu    sync.Mutex
	devs  map[driver.Ctx]int
	calls map[int]map[string]int
}

// talliedFake has the functions of a fake that devices look for.
type talliedFake struct {
	*tallied
	fake *fake.Driver
}

func (d talliedFake) RegisterCall(run func(args []uint64) error) driver.CFunc {
	return d.fake.RegisterCall(run)
}

func (d *tallied) count(c driver.Ctx, what string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.calls[d.devs[c]] == nil {
		d.calls[d.devs[c]] = map[string]int{}
	}
	d.calls[d.devs[c]][what]++
}

// take gives the counts of a device, which start anew.
func (d *tallied) take(dev int) map[string]int {
	d.mu.Lock()
	defer d.mu.Unlock()
	was := d.calls[dev]
	delete(d.calls, dev)
	return was
}

func (d *tallied) CtxRetain(dev int) (driver.Ctx, error) {
	c, err := d.Driver.CtxRetain(dev)
	d.mu.Lock()
	defer d.mu.Unlock()
	d.devs[c] = dev
	return c, err
}

func (d *tallied) Run(c driver.Ctx, words []uint64) error {
	for i := 0; i < len(words); i += int(words[i] >> 8) {
		d.count(c, []string{"", "launch", "record", "wait", "copy", "memset", "graph", "flags", "call", "launch"}[words[i]&0xff])
	}
	return d.Driver.Run(c, words)
}

func (d *tallied) CopyIn(c driver.Ctx, s driver.Stream, to driver.Ptr, from []byte) error {
	d.count(c, "CopyIn")
	return d.Driver.CopyIn(c, s, to, from)
}

func (d *tallied) CopyOut(c driver.Ctx, s driver.Stream, to []byte, from driver.Ptr) error {
	d.count(c, "CopyOut")
	return d.Driver.CopyOut(c, s, to, from)
}

func (d *tallied) Copy(c driver.Ctx, s driver.Stream, to, from driver.Ptr, bytes uint64) error {
	d.count(c, "Copy")
	return d.Driver.Copy(c, s, to, from, bytes)
}

func (d *tallied) Launch(c driver.Ctx, s driver.Stream, f driver.Func, grid, block, shared int, buf []byte) error {
	d.count(c, "Launch")
	return d.Driver.Launch(c, s, f, grid, block, shared, buf)
}

func (d *tallied) GraphLaunch(c driver.Ctx, x driver.Exec, s driver.Stream) error {
	d.count(c, "GraphLaunch")
	return d.Driver.GraphLaunch(c, x, s)
}

// summing is a module with a group, streams and events of its own, and its step: what the
// ranks have, summed twice.
func summing(name string) (*rt.Module, func(*rt.Exec)) {
	x := rt.C(0, rt.F32, 64)
	m := &rt.Module{Name: name, World: 2, Arena: 1024, Streams: []string{"compute", "comm." + name}, Events: 2,
		Groups: []rt.Group{{Name: name, Ranks: [][]int{{1, 0}}}},
		Inputs: []rt.Param{{Name: "x", Tensors: rt.Ts{x}}}, Outputs: []rt.Param{{Name: "x", Tensors: rt.Ts{x}}}}
	return m, func(e *rt.Exec) {
		e.Record("compute", 0)
		e.Wait("comm."+name, 0)
		e.At("s").AllReduce("comm."+name, name, "sum", rt.Ts{x}, rt.Ts{x})
		e.Record("comm."+name, 1)
		e.Wait("compute", 1)
		e.At("t").AllReduce("compute", name, "sum", rt.Ts{x}, rt.Ts{x})
	}
}

// sums runs the step of such a module on ones.
func sums(ctx context.Context, r *rt.Rank, m *rt.Module, step func(*rt.Exec)) error {
	b := make([]byte, 256)
	for i := 2; i < len(b); i += 4 {
		b[i], b[i+1] = 0x80, 0x3f // 1
	}
	out, err := rt.RunModule(ctx, r, m, step, []rt.Value{{DType: rt.F32, Shape: rt.Dims{64}, Data: b}}, rt.Options{})
	if err == nil && (out[0].Data[2] != 0x80 || out[0].Data[3] != 0x40) {
		err = fmt.Errorf("got %v, want 4", out[0].Data[:4])
	}
	return err
}

// TestFailedAdd lets one call of the driver after the other fail while two ranks add a module:
// it fails on both, what was there goes on running on both, and in the end the module is
// added. What the driver says while a rank waits for its device breaks the world, which is
// opened anew.
func TestFailedAdd(t *testing.T) {
	fakeOnly(t)
	noGoroutines(t)
	f := newFake(t, 2)
	o := small(2)
	little(&o)
	old, oldStep := summing("old")
	next, nextStep := summing("next")
	stride := 3 // which is no divisor of the calls that each rank makes
	if *livingSteps > 0 {
		stride = 1
	}
	n, kept, broke, added := 1, 0, 0, false
	for !added {
		err := device.Local(t.Context(), f, devices(2), rt.Config{Timeout: plenty}, o, []*rt.Module{old}, func(ctx context.Context, r *rt.Rank) error {
			for {
				if err := sums(ctx, r, old, oldStep); err != nil {
					return err
				}
				if err := r.Device().(*device.Device).Barrier(ctx); err != nil { // nobody calls the driver any more
					return err
				}
				if r.Info().Rank == 0 {
					f.FailCall(n, nil)
				}
				if err := r.Device().(*device.Device).Barrier(ctx); err != nil {
					return err
				}
				err := r.Add(ctx, next, nil)
				if r.Err() != nil {
					return r.Err()
				}
				var call *rt.CallError
				if err != nil && !errors.As(err, &call) && !errors.Is(err, rt.ErrCanceled) && !errors.Is(err, driver.ErrOutOfMemory) {
					return fmt.Errorf("call %d: not of a type: %w", n, err)
				}
				if err := r.Device().(*device.Device).Barrier(ctx); err != nil {
					return err
				}
				if r.Info().Rank == 0 {
					added = f.Calls() < n // none failed
					f.FailCall(0, nil)
					if n += stride; !added {
						kept++
					}
				}
				if err := r.Device().(*device.Device).Barrier(ctx); err != nil {
					return err
				}
				if err == nil {
					if err := errors.Join(sums(ctx, r, next, nextStep), r.Drop(ctx, next)); err != nil {
						return err
					}
				}
				if added {
					return sums(ctx, r, old, oldStep)
				}
			}
		})
		f.FailCall(0, nil)
		switch {
		case added && err != nil:
			t.Fatal(err)
		case !added && !errors.Is(err, driver.ErrOutOfMemory):
			t.Fatalf("call %d: %v", n, err)
		case !added && !strings.Contains(err.Error(), ": waiting: "):
			t.Errorf("call %d broke the world, though nobody waited for a device: %v", n, err)
			fallthrough
		case !added:
			n += stride
			broke++
		}
	}
	if kept == 0 {
		t.Error("the world went on after no call that failed")
	}
	t.Logf("%d calls failed one by one: the world went on %d times", kept+broke, kept)
}
