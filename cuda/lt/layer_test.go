//go:build linux

package lt

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/seed-ee968945/concert/cuda/driver"
	"github.com/seed-ee968945/concert/cuda/library"
	"github.com/seed-ee968945/concert/internal/dtype"
)

// layerKernels stand for the generated kernels between matmuls: mix makes a row of
// activations of the elements of its sources, and lets what follows it begin at
// once. With late it dawdles before it writes, so that who does not wait reads the old
// row.
const layerKernels = `
typedef unsigned short u16; typedef unsigned int u32; typedef unsigned long long u64;
static __device__ float wide(u16 v) { return __uint_as_float((u32)v << 16); }
extern "C" __global__ void __launch_bounds__(512) mix(const u16 *a, const u16 *b, u16 *out, u64 na, u64 nb, u64 n, u64 late)
{
	asm volatile("griddepcontrol.launch_dependents;");
	if (late) {
		u64 from, now;
		asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(from));
		do
			asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
		while (now - from < late);
	}
	for (u64 i = blockIdx.x * 512 + threadIdx.x; i < n; i += 512 * gridDim.x) {
		float f = wide(a[i % na]) + wide(b[(i * 7 + 3) % nb]);
		f = f / (1.f + fabsf(f)); // bounded, so that layers can follow each other for ever
		out[i] = (u16)(__float_as_uint(f) >> 16);
	}
}
`

// A layer of a model of 8 billion weights with 16 rows, split four ways: matmuls of
// few rows with short kernels between. The forms differ in how matmuls are launched;
// all must give the same bits as long as the kernels are the same.
func TestGPULayer(t *testing.T) {
	if !*layerFlag {
		t.Skip("needs -layer")
	}
	g := newGPUBench(t, 4<<30, 4<<30)
	infos, err := g.drv.Devices()
	if err != nil {
		t.Fatal(err)
	}
	g.h.opts.Tuning = NewTuning(infos[0].Name, g.lib.Version())
	image, err := g.h.opts.Compile("layer.cu", layerKernels)
	if err != nil {
		t.Fatal(err)
	}
	mod, err := g.drv.ModuleLoad(g.ctx, image)
	if err != nil {
		t.Fatal(err)
	}
	mix, err := g.drv.Function(g.ctx, mod, "mix")
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := g.drv.ModuleUnload(g.ctx, mod); err != nil {
			t.Error(err)
		}
	}()
	l := &layerBench{g: g, mix: mix}
	if l.other, err = g.drv.StreamCreate(g.ctx); err != nil {
		t.Fatal(err)
	}
	if l.mark, err = g.drv.EventCreate(g.ctx, false); err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := errors.Join(g.drv.EventDestroy(g.ctx, l.mark), g.drv.StreamDestroy(g.ctx, l.other)); err != nil {
			t.Error(err)
		}
	}()
	if err := g.h.loadPrefetch(); err != nil {
		t.Fatal(err)
	}
	l.tune(t)
	var want []byte
	for _, f := range []layerForm{
		{name: "first suggestions", first: true},
		{name: "tuned", apart: true},
		{name: "groups"},
		{name: "groups, early, nothing ahead", early: true},
		{name: "groups, early, 4 MiB ahead", early: true, ahead: 4 << 20},
		{name: "groups, early, 8 MiB ahead", early: true, ahead: 8 << 20},
		{name: "groups, early, 16 MiB ahead", early: true, ahead: 16 << 20},
		{name: "groups, early, 32 MiB ahead", early: true, ahead: 32 << 20},
		{name: "groups, 8 MiB at the side", side: 8 << 20},
		{name: "groups, 16 MiB at the side", side: 16 << 20},
		{name: "groups, 32 MiB at the side", side: 32 << 20},
		{name: "groups, early 8, 16 at the side", early: true, ahead: 8 << 20, side: 16 << 20},
		{name: "groups, early 0, 24 at the side", early: true, side: 24 << 20},
	} {
		us, sum := l.run(t, f, 0, 0, 20)
		with, _ := l.run(t, f, 0, 4000, 20)
		fmt.Printf("layer of 16 rows, %-32s %7.2f us, with three pauses of 4 us %7.2f\n", f.name, us, with)
		if f.first || f.apart {
			continue
		}
		if want == nil {
			want = sum
		}
		if !bytes.Equal(want, sum) {
			t.Errorf("%s: other bits", f.name)
		}
		for _, late := range []uint64{2000, 20000} {
			if _, sum := l.run(t, f, late, 0, 20); !bytes.Equal(want, sum) {
				t.Errorf("%s, late by %d ns: other bits", f.name, late)
			}
		}
	}
}

type layerForm struct {
	name                string
	first, apart, early bool
	ahead               int64
	side                uint64 // bytes fetched in another stream
}

// layerBench has the weights of several layers in the pool, more than the cache holds.
type layerBench struct {
	g      *gpuBench
	mix    driver.Func
	other  driver.Stream
	mark   driver.Event
	qkv, o []Problem
	gu, dn []Problem
}

const layers, rows16 = 4, 16

func (l *layerBench) problem(t *testing.T, n, k int64) Problem {
	p, err := ProblemOf(Operand{Type: dtype.BF16, Shape: []int64{rows16, k}, Strides: []int64{k, 1}}, Operand{Type: dtype.BF16, Shape: []int64{k, n}, Strides: []int64{1, k}},
		Operand{Type: dtype.BF16, Shape: []int64{rows16, n}, Strides: []int64{n, 1}}, Config{})
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// tune finds the kernels of the groups.
func (l *layerBench) tune(t *testing.T) {
	g := l.g
	l.qkv = []Problem{l.problem(t, 1024, 4096), l.problem(t, 256, 4096), l.problem(t, 256, 4096)}
	l.o = []Problem{l.problem(t, 4096, 1024)}
	l.gu = []Problem{l.problem(t, 3584, 4096), l.problem(t, 3584, 4096)}
	l.dn = []Problem{l.problem(t, 4096, 3584)}
	for name, ps := range map[string][]Problem{"16x(1024+256+256)x4096": l.qkv, "16x(3584+3584)x4096": l.gu} {
		var sets [][]Operands
		at, out := g.in, g.out
		for range 24 {
			a := at
			at += driver.Ptr(2 * rows16 * ps[0].K)
			var list []Operands
			for _, p := range ps {
				list = append(list, Operands{a, at, out})
				at += driver.Ptr(2 * p.M * p.K)
				out += driver.Ptr(2 * rows16 * p.M)
			}
			sets = append(sets, list)
		}
		best, all, err := g.h.TuneGroup(context.Background(), g.s, ps, sets, TuneOptions{Kernels: 32, Time: 1})
		if err != nil {
			t.Error(err)
			continue
		}
		bytes := 0.0
		for i := range ps {
			bytes += ps[i].Bytes()
		}
		fmt.Printf("%s: %v at %.2f us (%.3f in turns), %.2f TB/s\n", name, best, all[0].Microseconds, all[0].Ratio, bytes/all[0].Microseconds/1e6)
		for i, x := range all {
			if x.Err != nil {
				t.Errorf("    %v: %v", x.Algo, x.Err)
			} else if i < 9 || x.Algo == (Algo{}) {
				fmt.Printf("    %7.2f %v\n", x.Microseconds, x.Algo)
			}
		}
	}
}

// run replays a graph of some layers from the same state, and gives the time of a
// layer and what the last activations are.
//
// With late, short kernels dawdle before they write. With idle, something that takes
// that many nanoseconds and no bandwidth stands where attention and the reductions
// between devices are.
func (l *layerBench) run(t *testing.T, f layerForm, late, idle uint64, replays int) (us float64, sum []byte) {
	r := &layerRecorder{layerBench: l, t: t, form: f, late: late, idle: idle, weights: l.g.in + 1<<20}
	for range layers {
		r.layer()
	}
	if f.side > 0 {
		r.cmds.Record(l.other, l.mark)
		r.cmds.Wait(l.g.s, l.mark)
	}
	us = l.replay(t, &r.cmds, replays)
	return us, append(l.g.read(r.act(0), 2*hidden), l.g.read(r.act(9), 2*hidden)...)
}

// layerRecorder records the commands of layers.
type layerRecorder struct {
	*layerBench
	t          *testing.T
	form       layerForm
	late, idle uint64
	weights    driver.Ptr // of the next matmul
	cmds       driver.Commands
}

const hidden, inner, q, kv = rows16 * 4096, rows16 * 3584, rows16 * 1024, rows16 * 256

func (r *layerRecorder) layer() {
	act := r.act
	r.fetch(r.qkv)
	r.mixed(act(0), r.slow(act(9), act(12), hidden), act(1), hidden, hidden, hidden)
	r.matmul(r.qkv, act(1), act(2), act(3), act(4))
	r.fetch(r.o)
	r.mixed(act(2), act(3), act(5), q, kv, q)
	r.mixed(r.slow(act(5), act(13), q), act(4), act(10), q, kv, q)
	r.matmul(r.o, act(10), act(6))
	r.fetch(r.gu)
	r.mixed(r.slow(act(6), act(14), hidden), act(1), act(0), hidden, hidden, hidden)
	r.matmul(r.gu, act(0), act(7), act(8))
	r.fetch(r.dn)
	r.mixed(act(7), act(8), act(11), inner, inner, inner)
	r.matmul(r.dn, act(11), act(9))
}

// act is the memory of an activation.
func (r *layerRecorder) act(i int) driver.Ptr { return r.g.out + driver.Ptr(i)<<20 }

func (r *layerRecorder) must(err error) {
	r.t.Helper()
	if err != nil {
		r.t.Fatal(err)
	}
}

// slow takes r.idle nanoseconds for an activation, and returns where it is then.
func (r *layerRecorder) slow(a, out driver.Ptr, n uint64) driver.Ptr {
	if r.idle == 0 {
		return a
	}
	r.cmds.Launch(r.g.s, r.mix, 16, 512, 0, pack(uint64(a), uint64(a), uint64(out), n, n, n, r.idle))
	return out
}

// fetch prefetches the next matmul's weights in another stream.
func (r *layerRecorder) fetch(next []Problem) {
	if r.form.side == 0 {
		return
	}
	var list []library.Memory
	from := r.weights
	for _, p := range next {
		list = append(list, library.Memory{At: from, Bytes: uint64(2 * p.M * p.K)})
		from += driver.Ptr(2 * p.M * p.K)
	}
	r.cmds.Record(r.g.s, r.mark)
	r.cmds.Wait(r.other, r.mark)
	r.g.h.addPrefetch(&r.cmds, r.other, list, r.form.side)
}

func (r *layerRecorder) mixed(a, b, out driver.Ptr, na, nb, n uint64) {
	r.cmds.Launch(r.g.s, r.mix, 16, 512, 0, pack(uint64(a), uint64(b), uint64(out), na, nb, n, r.late))
}

// matmul multiplies an activation by the next weights: as a group, if the form has groups.
func (r *layerRecorder) matmul(ps []Problem, a driver.Ptr, outs ...driver.Ptr) {
	g, f := r.g, r.form
	var sets []Operands
	for i, p := range ps {
		sets = append(sets, Operands{a, r.weights, outs[i]})
		r.weights += driver.Ptr(2 * p.M * p.K)
	}
	if len(ps) > 1 && !f.first && !f.apart {
		if grp, err := g.h.Group(ps); err == nil {
			early := int64(-1)
			if f.early {
				early = f.ahead
			}
			r.must(grp.add(&r.cmds, g.s, sets, early))
			return
		}
	}
	for i, p := range ps {
		plan, err := g.h.Plan(p)
		if f.first {
			list, lerr := g.h.Candidates(p, 1, 0, 132)
			r.must(lerr)
			plan, err = g.h.PlanWith(p, list[0])
		}
		r.must(err)
		if s := plan.algo.Skinny; s != (Skinny{}) && f.early && i == 0 && len(ps) == 1 {
			plan.kernel.addSkinny(&r.cmds, g.s, s, []Problem{p}, sets[i].A, []driver.Ptr{sets[i].B}, []driver.Ptr{sets[i].Out}, f.ahead)
			continue
		}
		r.must(plan.AddTo(&r.cmds, g.s, sets[i].A, sets[i].B, sets[i].Out))
	}
}

// replay captures the commands of layers, and returns the median time of a layer, in microseconds.
func (l *layerBench) replay(t *testing.T, cmds *driver.Commands, replays int) float64 {
	g := l.g
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(g.drv.CaptureBegin(g.ctx, g.s))
	runErr := g.drv.Run(g.ctx, cmds.On(g.s))
	graph, err := g.drv.CaptureEnd(g.ctx, g.s)
	must(errors.Join(runErr, err))
	exec, err := g.drv.GraphInstantiate(g.ctx, graph)
	must(errors.Join(err, g.drv.GraphDestroy(g.ctx, graph)))
	defer func() { must(g.drv.ExecDestroy(g.ctx, exec)) }()
	must(g.drv.GraphUpload(g.ctx, exec, g.s))
	ev := make([]driver.Event, replays+1)
	for i := range ev {
		ev[i], err = g.drv.EventCreate(g.ctx, true)
		must(err)
		defer func() { must(g.drv.EventDestroy(g.ctx, ev[i])) }()
	}
	// The same state: everything is finite, and every replay goes on from the last.
	must(g.drv.Memset32(g.ctx, g.s, g.out, 0x3f003e80, 16<<20/4))
	must(g.drv.EventRecord(g.ctx, ev[0], g.s))
	for i := range replays {
		must(g.drv.GraphLaunch(g.ctx, exec, g.s))
		must(g.drv.EventRecord(g.ctx, ev[i+1], g.s))
	}
	must(g.drv.StreamSync(g.ctx, g.s))
	var times []float64
	for i := range replays {
		ms, err := g.drv.EventElapsed(g.ctx, ev[i], ev[i+1])
		must(err)
		times = append(times, float64(ms)*1e3/layers)
	}
	slices.Sort(times)
	return times[len(times)/2]
}

// What a plan's algorithm needs is loaded when the plan is made ready without running:
// the host's time of the first launch tells.
func TestGPUWarm(t *testing.T) {
	g := newGPUBench(t, 512<<20, 64<<20)
	a := Operand{Type: dtype.BF16, Shape: []int64{2048, 4096}, Strides: []int64{4096, 1}}
	b := Operand{Type: dtype.BF16, Shape: []int64{4096, 1024}, Strides: []int64{1, 4096}}
	o := Operand{Type: dtype.BF16, Shape: []int64{2048, 1024}, Strides: []int64{1024, 1}}
	p, err := ProblemOf(a, b, o, Config{})
	if err != nil {
		t.Fatal(err)
	}
	list, err := g.h.Candidates(p, 16, 0, 132)
	if err != nil {
		t.Fatal(err)
	}
	load := library.NewLoader(g.drv, g.ctx)
	for i, x := range list {
		l, err := g.h.PlanWith(p, x)
		if err != nil {
			t.Fatal(err)
		}
		var cmds driver.Commands
		w := workspace{at: g.out + 32<<20, bytes: g.h.opts.Workspace}
		if err := l.addWith(&cmds, driver.Main, g.in, g.in+64<<20, g.out, w, false); err != nil {
			t.Fatal(err)
		}
		var took [3]time.Duration
		start := time.Now()
		if i%2 == 0 {
			if err := load.Load(l, &cmds); err != nil {
				t.Fatal(err)
			}
			took[0] = time.Since(start)
		}
		for k := 1; k < 3; k++ {
			start = time.Now()
			if err := l.Enqueue(g.s, g.in, g.in+64<<20, g.out); err != nil {
				t.Fatal(err)
			}
			took[k] = time.Since(start)
		}
		if err := g.drv.StreamSync(g.ctx, g.s); err != nil {
			t.Fatal(err)
		}
		fmt.Printf("warm %v, first launch %v, second %v: %.60v\n", took[0], took[1], took[2], x)
	}
}
