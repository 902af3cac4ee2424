//go:build linux

package device_test

import (
	"context"
	"fmt"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/seed-ee968945/concert/cuda/device"
	"github.com/seed-ee968945/concert/cuda/driver"
	"github.com/seed-ee968945/concert/cuda/driver/fake"
	"github.com/seed-ee968945/concert/cuda/library"
	"github.com/seed-ee968945/concert/ir"
	"github.com/seed-ee968945/concert/lower"
	"github.com/seed-ee968945/concert/program"
	rt "github.com/seed-ee968945/concert/runtime"
	"golang.org/x/sys/unix"
)

// counted is a driver that counts what enqueues work, and keeps the last command
// buffer that it ran.
type counted struct {
	driver.Driver
	calls map[string]int
	words []uint64
	ctx   driver.Ctx
	mute  bool // nothing is enqueued: what is left is the cost of everything around the driver
}

func (d *counted) Run(c driver.Ctx, words []uint64) error {
	if d.mute {
		return nil
	}
	d.calls["Run"]++
	d.ctx, d.words = c, words
	for i := 0; i < len(words); i += int(words[i] >> 8) {
		d.calls[[]string{"", "launch", "record", "wait", "copy", "memset", "graph", "flags", "call", "launch"}[words[i]&0xff]]++
	}
	return d.Driver.Run(c, words)
}

func (d *counted) EventRecord(c driver.Ctx, e driver.Event, s driver.Stream) error {
	if d.mute {
		return nil
	}
	d.calls["EventRecord"]++
	return d.Driver.EventRecord(c, e, s)
}

func (d *counted) StreamWait(c driver.Ctx, s driver.Stream, e driver.Event) error {
	if d.mute {
		return nil
	}
	d.calls["StreamWait"]++
	return d.Driver.StreamWait(c, s, e)
}

func (d *counted) Launch(c driver.Ctx, s driver.Stream, f driver.Func, grid, block, shared int, buf []byte) error {
	d.calls["Launch"]++
	return d.Driver.Launch(c, s, f, grid, block, shared, buf)
}

func (d *counted) GraphInstantiate(c driver.Ctx, g driver.Graph) (driver.Exec, error) {
	d.calls["GraphInstantiate"]++
	return d.Driver.GraphInstantiate(c, g)
}

func (d *counted) GraphLaunch(c driver.Ctx, x driver.Exec, s driver.Stream) error {
	d.calls["GraphLaunch"]++
	return d.Driver.GraphLaunch(c, x, s)
}

// countedFake has the functions of a Fake that devices look for.
type countedFake struct {
	*counted
	fake *fake.Driver
}

func (d countedFake) RegisterCall(run func(args []uint64) error) driver.CFunc {
	return d.fake.RegisterCall(run)
}

// tells is a library whose steps do nothing, and which counts what it planned.
type tells struct {
	nothing driver.CFunc
	planned int
}

func (l *tells) Plan(c *library.Call) (library.Step, error) {
	if c.Op != "matmul" {
		return nil, library.ErrNotServed
	}
	l.planned++
	return l, nil
}
func (l *tells) AddTo(c *driver.Commands) { c.Call(driver.Main, l.nothing) }
func (l *tells) String() string           { return "nothing" }
func (l *tells) Close() error             { return nil }

// Steps of libraries leave nothing to load, so that the device loads nothing for them:
// neither when it plans a call, nor when it runs one.
func TestLibrariesLoad(t *testing.T) {
	fake := newFake(t, 1)
	drv := &counted{Driver: fake, calls: map[string]int{}}
	lib := &tells{nothing: fake.RegisterCall(func([]uint64) error { return nil })}
	o := small(1)
	o.Libraries = []device.OpenLibrary{func(device.LibraryEnv) (library.Library, error) { return lib, nil }}
	m := &rt.Module{Name: "m", World: 1, Arena: 1 << 16, Streams: []string{"compute"}}
	err := device.Local(t.Context(), countedFake{drv, fake}, []int{0}, rt.Config{}, o, []*rt.Module{m}, func(ctx context.Context, r *rt.Rank) error {
		for range 2 {
			_, err := rt.RunModule(ctx, r, m, func(x *rt.Exec) {
				for i := range int64(2) {
					x.Launch("compute", "matmul", nil, rt.Ts{rt.C(8192+i*1024, rt.F32, 16, 16)}, rt.Ts{rt.C(0, rt.F32, 16, 16), rt.C(4096, rt.F32, 16, 16)})
				}
			}, nil, rt.Options{})
			if err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if lib.planned != 2 || drv.calls["GraphInstantiate"] != 0 || drv.calls["call"] != 4 {
		t.Errorf("%d calls planned, %v", lib.planned, drv.calls)
	}
}

// spy keeps the last captured step of a device.
type spy struct {
	*device.Device
	last rt.Captured
}

func (s *spy) EndCapture(ctx context.Context, graph bool) (rt.Captured, error) {
	c, err := s.Device.EndCapture(ctx, graph)
	s.last = c
	return c, err
}

// manyLaunches is a program of small instructions: two kernels, a collective of one
// rank in a stream of its own, and what orders them, again and again.
func manyLaunches(t testing.TB, blocks int) *program.Program {
	t.Helper()
	var b strings.Builder
	b.WriteString("world 1\ngroup @g = [[0]]\n\nfunc @f(%x0: f32[1024]) -> (f32[1024]) {\n")
	for i := range blocks {
		fmt.Fprintf(&b, "  %%a%[1]d = neg %%x%[1]d : f32[1024]\n  %%b%[1]d = relu %%a%[1]d : f32[1024]\n  %%s%[1]d = all_reduce.sum %%b%[1]d on @g : async f32[1024]\n  %%x%[2]d = wait_tensor %%s%[1]d : f32[1024]\n", i, i+1)
	}
	fmt.Fprintf(&b, "  return %%x%d\n}\n", blocks)
	m, err := ir.Parse("many.ir", b.String())
	if err != nil {
		t.Fatal(err)
	}
	p, err := lower.FuncWith(m.Funcs()[0], lower.Options{Kernels: true})
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// launches is a rank of a world of one on a counting driver.
type launches struct {
	drv  *counted
	spy  *spy
	rank *rt.Rank
	mod  *rt.Module
	prog *program.Program
}

func openLaunches(t testing.TB, blocks int) *launches {
	t.Helper()
	drv, devs, o := target(t, 1)
	o.Libraries = nil
	l := &launches{drv: &counted{Driver: drv, calls: map[string]int{}}, prog: manyLaunches(t, blocks)}
	var err error
	if l.mod, err = rt.ModuleOf(l.prog); err != nil {
		t.Fatal(err)
	}
	var over driver.Driver = l.drv
	if f, ok := drv.(*fake.Driver); ok {
		over = countedFake{l.drv, f}
	}
	o.Devices = devs
	open := device.Opener(over, o)
	cfg := rt.Config{Timeout: plenty, Env: &rt.Env{World: 1, LocalWorld: 1, Source: "a test"}}
	l.rank, err = rt.Join(t.Context(), func(ctx context.Context, spec rt.Spec) (rt.Device, error) {
		d, err := open(ctx, spec)
		if err != nil {
			return nil, err
		}
		l.spy = &spy{Device: d.(*device.Device)}
		return l.spy, nil
	}, cfg, l.mod)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := l.rank.Close(); err != nil {
			t.Error(err)
		}
	})
	return l
}

func (l *launches) step(x *rt.Exec) { rt.Interpret(x, l.prog) }

// emitted makes the calls that emitted code makes, with tensors made anew each time.
func (l *launches) emitted(x *rt.Exec) {
	p := l.prog
	tensors := func(ts []program.Tensor) rt.Ts { return rt.Ts{rt.C(p.Buffers[ts[0].Buffer].Offset, rt.F32, 1024)} }
	for i := range p.Instrs {
		in := &p.Instrs[i]
		stream := p.Streams[in.Stream].Name
		switch in.Kind {
		case program.Record:
			x.Record(stream, in.Event)
		case program.Wait:
			x.Wait(stream, in.Event)
		case program.Launch:
			x.Fused(stream, p.Kernel(in).Name, tensors(in.Outs), tensors(in.Ins))
		case program.Collective:
			x.At(in.Node).AllReduce(stream, "g", "sum", tensors(in.Outs), tensors(in.Ins))
		}
	}
}

// inputs are zeros.
func (l *launches) inputs() []rt.Value {
	return []rt.Value{{DType: rt.F32, Shape: []int64{1024}, Data: make([]byte, 4096)}}
}

// A replay of a captured step is one call of the driver with one launch in it, a
// replay of a command buffer one call with all of them; run eagerly, a step makes a
// call for each instruction.
func TestCallsOfReplays(t *testing.T) {
	l := openLaunches(t, 8)
	ctx := t.Context()
	if _, err := rt.RunModule(ctx, l.rank, l.mod, l.step, l.inputs(), rt.Options{}); err != nil {
		t.Fatal(err)
	}
	for _, graph := range []bool{true, false} {
		st, err := rt.Prepare(ctx, l.rank, l.mod, l.step, rt.Options{}, graph)
		if err != nil {
			t.Fatal(err)
		}
		for k := range 4 {
			clear(l.drv.calls)
			if err := st.Replay(ctx); err != nil {
				t.Fatal(err)
			}
			c := l.drv.calls
			t.Logf("graph %v: %v", graph, c)
			if k == 0 {
				continue // joins streams that ran something on their own before
			}
			if c["Run"] != 1 || c["EventRecord"]+c["StreamWait"]+c["Launch"]+c["GraphLaunch"] > 0 {
				t.Errorf("graph %v: a replay makes the calls %v", graph, c)
			}
			if graph && (c["graph"] != 1 || c["launch"]+c["call"]+c["copy"]+c["wait"] > 0) {
				t.Errorf("a replay of a graph enqueues %v", c)
			}
			if !graph && c["launch"]+c["call"]+c["copy"] < 3*8-1 {
				t.Errorf("a replay of a command buffer enqueues %v", c)
			}
		}
		if err := st.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

// A step can run eagerly again after replays, also where a collective is of one rank.
func TestEagerAfterReplays(t *testing.T) {
	l := openLaunches(t, 2)
	ctx := t.Context()
	st, err := rt.Prepare(ctx, l.rank, l.mod, l.step, rt.Options{}, true)
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := st.Replay(ctx); err != nil {
			t.Fatal(err)
		}
		if _, err := rt.RunModule(ctx, l.rank, l.mod, l.step, l.inputs(), rt.Options{}); err != nil {
			t.Fatal(err)
		}
	}
	if err := st.Close(); err != nil {
		t.Fatal(err)
	}
}

// costs times steps of launches in microseconds: in a loop in C, as a command buffer, as a graph,
// interpreted and emitted.
type costs struct {
	*launches
	t             testing.TB
	graph, buffer rt.Captured
	words         []uint64
	ctx           driver.Ctx
	in            []rt.Value
}

func us(start time.Time) float64 { return float64(time.Since(start).Nanoseconds()) / 1e3 }

func median(v []float64) float64 {
	slices.Sort(v)
	return v[len(v)/2]
}

func openCosts(t testing.TB, l *launches) *costs {
	c := &costs{launches: l, t: t, in: l.inputs()}
	if _, err := rt.RunModule(t.Context(), l.rank, l.mod, l.step, c.in, rt.Options{}); err != nil {
		t.Fatal(err)
	}
	c.graph, c.buffer = c.prepare(true), c.prepare(false)
	c.enqueue(c.graph)
	c.enqueue(c.buffer)
	c.words, c.ctx = slices.Clone(l.drv.words), l.drv.ctx
	c.in[0].Resident = true
	return c
}

func (c *costs) prepare(graph bool) rt.Captured {
	c.t.Helper()
	st, err := rt.Prepare(c.t.Context(), c.rank, c.mod, c.step, rt.Options{}, graph)
	if err != nil {
		c.t.Fatal(err)
	}
	c.t.Cleanup(func() { st.Close() })
	return c.spy.last
}

func (c *costs) wait(x rt.Captured) {
	c.t.Helper()
	if err := x.Wait(c.t.Context()); err != nil {
		c.t.Fatal(err)
	}
}

// inC makes the calls of the command buffer in a loop in C.
func (c *costs) inC() float64 {
	c.t.Helper()
	start := time.Now()
	if err := c.drv.Driver.Run(c.ctx, c.words); err != nil {
		c.t.Fatal(err)
	}
	took := us(start)
	c.wait(c.buffer)
	return took
}

func (c *costs) enqueue(x rt.Captured) float64 {
	c.t.Helper()
	start := time.Now()
	if err := x.Enqueue(); err != nil {
		c.t.Fatal(err)
	}
	took := us(start)
	c.wait(x)
	return took
}

// eagerly is the time that step itself takes in a run.
func (c *costs) eagerly(step func(x *rt.Exec)) (took float64) {
	c.t.Helper()
	timed := func(x *rt.Exec) {
		start := time.Now()
		step(x)
		took = us(start)
	}
	if _, err := rt.RunModule(c.t.Context(), c.rank, c.mod, timed, c.in, rt.Options{KeepOutputs: true}); err != nil {
		c.t.Fatal(err)
	}
	return took
}

// BenchmarkLaunchCost compares what an instruction costs the host, from Go, with the same
// calls of the driver in a loop in C: as a command buffer, and eagerly. With -gpu only;
// the times of the fake driver are its own.
func BenchmarkLaunchCost(b *testing.B) {
	if !*onGPU {
		b.Skip("times of the fake driver say nothing")
	}
	const rounds = 101
	l := openLaunches(b, 32) // before this thread has one processor: what it starts may use others
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	var old, one unix.CPUSet
	if unix.SchedGetaffinity(0, &old) == nil {
		one.Set(4)
		if unix.SchedSetaffinity(0, &one) == nil {
			defer unix.SchedSetaffinity(0, &old)
		}
	}
	x := openCosts(b, l)
	n := float64(len(x.prog.Instrs))
	defer debug.SetGCPercent(debug.SetGCPercent(-1))
	for b.Loop() {
		var inC, buffers, graphs, interpreted, emitted []float64
		for range rounds {
			inC = append(inC, x.inC())
			buffers = append(buffers, x.enqueue(x.buffer))
			graphs = append(graphs, x.enqueue(x.graph))
			interpreted = append(interpreted, x.eagerly(x.step))
			emitted = append(emitted, x.eagerly(x.emitted))
		}
		c, g, e, m := median(inC), median(buffers), median(interpreted), median(emitted)
		b.Logf("%d instructions: C %.3f us each; command buffer %.3f, over C %.4f; interpreted %.3f, over C %.3f; emitted %.3f, over C %.3f; a graph %.2f us in all",
			len(x.prog.Instrs), c/n, g/n, (g-c)/n, e/n, (e-c)/n, m/n, (m-c)/n, median(graphs))
		runtime.GC()
	}
}

// BenchmarkEager is what the runtime and the device do for an instruction of a step
// that runs eagerly, without the driver.
func BenchmarkEager(b *testing.B) {
	b.Run("interpreted", func(b *testing.B) { benchEager(b, (*launches).step) })
	b.Run("emitted", func(b *testing.B) { benchEager(b, (*launches).emitted) })
}

func benchEager(b *testing.B, step func(*launches, *rt.Exec)) {
	l := openLaunches(b, 32)
	ctx := b.Context()
	if _, err := rt.RunModule(ctx, l.rank, l.mod, l.step, l.inputs(), rt.Options{}); err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	in := l.inputs()
	in[0].Resident = true
	l.drv.mute = true
	defer func() { l.drv.mute = false }()
	n := 0
	for b.Loop() {
		if _, err := rt.RunModule(ctx, l.rank, l.mod, func(x *rt.Exec) { step(l, x) }, in, rt.Options{KeepOutputs: true}); err != nil {
			b.Fatal(err)
		}
		n++
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(n*len(l.prog.Instrs)), "ns/instruction")
}
