//go:build linux

package lt

import (
	"bytes"
	"context"
	"errors"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/seed-ee968945/concert/cost/calibration"
	"github.com/seed-ee968945/concert/cuda/driver"
	"github.com/seed-ee968945/concert/cuda/library"
	"github.com/seed-ee968945/concert/cuda/library/librarytest"
	"github.com/seed-ee968945/concert/internal/attr"
	"github.com/seed-ee968945/concert/internal/dtype"
)

func TestAlgoText(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 1))
	for i := range 2000 {
		a := Algo{ID: int32(rng.IntN(100))}
		for _, f := range a.fields() {
			if rng.IntN(2) == 0 {
				*f.at = rng.Uint32()
			}
		}
		if i%2 == 0 {
			for j := range a.Raw {
				a.Raw[j] = rng.Uint64() >> rng.IntN(65)
			}
			a.Raw[3] |= 1
		}
		if i%3 == 0 {
			a = Algo{Skinny: Skinny{Rows: 1 + rng.Uint32N(4), Parts: 1 + rng.Uint32N(8), Cluster: 1 << rng.IntN(4), Unroll: 1 + rng.Uint32N(4), Tokens: 1 + rng.Uint32N(4), Members: []uint32{0, 2, 4}[rng.IntN(3)]}}
		}
		b, err := ParseAlgo(a.String())
		if err != nil || a != b {
			t.Fatalf("%v is read as %v: %v", a, b, err)
		}
	}
	good := Algo{ID: 7, Raw: [8]uint64{1}}.String()
	for _, text := range []string{"", "cublaslt", "cutlass id=1", "cublaslt id=x tile=0 stages=0 splitk=0 reduction=0 swizzle=0 custom=0 inner=0 cluster=0",
		strings.Replace(good, "tile=0", "tile=-1", 1), strings.Replace(good, "tile=0", "title=0", 1), good + " more=1", good + ":1",
		strings.Replace(good, "raw=1:", "raw=0:", 1), strings.Replace(good, "id=7", "id=4294967295", 1),
		"skinny rows=1 parts=1", "skinny rows=0 parts=1 cluster=1 unroll=1 tokens=1", "skinny rows=64 parts=64 cluster=1 unroll=1 tokens=1",
		"skinny rows=1 parts=1 cluster=3 unroll=1 tokens=1", "skinny rows=1 parts=1 cluster=16 unroll=1 tokens=1",
		"skinny rows=1 parts=1 cluster=1 unroll=1 tokens=1 members=1", "skinny rows=1 parts=1 cluster=1 unroll=1 tokens=1 members=9"} {
		if a, err := ParseAlgo(text); err == nil {
			t.Errorf("%q is read as %v", text, a)
		}
	}
}

func TestTuningFile(t *testing.T) {
	mk := func() *Tuning {
		tn := NewTuning("NVIDIA H200", 130000)
		for i := range 50 {
			p := Problem{Type: dtype.BF16, Out: dtype.BF16, M: int64(1000 - i), N: 16, K: 64, Batch: 1, Swapped: i%2 == 0}
			tn.Set(p, Algo{ID: int32(i), SplitK: 2, Reduction: 2})
		}
		return tn
	}
	m := mk().Matmuls()
	tn, err := TuningOf(&calibration.File{Matmuls: m})
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(m, tn.Matmuls()); d != "" {
		t.Errorf("a tuning changed when it was written and read: %s", d)
	}
	if tn.Digest() != mk().Digest() || tn.Digest() == (*Tuning)(nil).Digest() || (*Tuning)(nil).Digest() != new(Tuning).Digest() {
		t.Error("digests do not tell tunings apart")
	}
	if !tn.Fits("NVIDIA H200", 130000) || tn.Fits("NVIDIA H100", 130000) || tn.Fits("NVIDIA H200", 120800) || !new(Tuning).Fits("any", 1) {
		t.Error("a tuning fits what it was not made for, or not what it was")
	}
	if got, ok := tn.Get(Problem{Type: dtype.BF16, Out: dtype.BF16, M: 990, N: 16, K: 64, Batch: 1}); !ok || got.ID != 10 {
		t.Errorf("found %v, %v", got, ok)
	}
	if _, ok := tn.Get(Problem{}); ok {
		t.Error("found what was never set")
	}
	m.Algorithms[1].Algo = "nothing"
	var bad *calibration.ValueError
	if _, err := TuningOf(&calibration.File{Matmuls: m}); !errors.As(err, &bad) || bad.Path != "matmuls.algorithms.1.algo" {
		t.Errorf("an algorithm that is none: %v", err)
	}
	if none, err := TuningOf(&calibration.File{}); none != nil || err != nil {
		t.Errorf("a calibration without matmuls: %v, %v", none, err)
	}
}

// Tuning tries what there is, checks it, and later plans use the winner.
func TestTune(t *testing.T) {
	b := newBench(t, Options{})
	const n = 32
	rng := rand.New(rand.NewPCG(5, 6))
	mat := Operand{Type: dtype.F32, Shape: []int64{n, n}, Strides: []int64{n, 1}}
	p, err := ProblemOf(mat, mat, mat, Config{})
	if err != nil {
		t.Fatal(err)
	}
	var sets []Operands
	for range 3 {
		s := Operands{b.buffer(random(rng, dtype.F32, n*n)), b.buffer(random(rng, dtype.F32, n*n)), b.buffer(make([]byte, 4*n*n))}
		sets = append(sets, s)
		defer b.free(s.A)
		defer b.free(s.B)
		defer b.free(s.Out)
	}
	before, err := b.h.Plan(p)
	if err != nil {
		t.Fatal(err)
	}
	best, all, err := b.h.Tune(context.Background(), b.s, p, TuneOptions{Sets: sets, Time: 0.01, Kernels: -1})
	if err != nil {
		t.Fatal(err)
	}
	if len(all) < 2 || all[0].Algo != best || !(all[0].Ratio <= 1) {
		t.Errorf("best %v of %v", best, all)
	}
	after, err := b.h.Plan(p)
	if err != nil || after.Algo() != best {
		t.Errorf("plan after tuning: %v, %v", after.Algo(), err)
	}
	if got, ok := b.h.Tuning().Get(p); !ok || got != best || b.h.Tuning().Len() != 1 {
		t.Errorf("tuning has %v, %v", got, ok)
	}
	if err := before.Enqueue(b.s, sets[0].A, sets[0].B, sets[0].Out); err != nil {
		t.Errorf("a plan from before: %v", err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if _, _, err := b.h.Tune(ctx, b.s, p, TuneOptions{Sets: sets}); !errors.Is(err, context.Canceled) {
		t.Errorf("a cancelled tuning: %v", err)
	}
}

// A handle takes an algorithm from its tuning, and says what workspace it lacks.
func TestWorkspace(t *testing.T) {
	if *onGPU {
		t.Skip("speaks of the fake's algorithms")
	}
	mat := Operand{Type: dtype.F32, Shape: []int64{8, 8}, Strides: []int64{8, 1}}
	p, err := ProblemOf(mat, mat, mat, Config{})
	if err != nil {
		t.Fatal(err)
	}
	tn := &Tuning{}
	split := Algo{ID: 1, SplitK: 2, Reduction: 2} // needs a workspace
	tn.Set(p, split)
	b := newBench(t, Options{Tuning: tn})
	l, err := b.h.Plan(p)
	if err != nil || l.Algo() != split || l.Workspace() != hostWorkspace {
		t.Fatalf("%v with %d bytes, %v", l.Algo(), l.Workspace(), err)
	}
	var cmds driver.Commands
	if err := l.AddTo(&cmds, driver.Main, 0, 0, 0); !errors.Is(err, ErrNoWorkspace) || cmds.Len() != 0 {
		t.Errorf("without a workspace: %v", err)
	}
	if err := b.h.SetWorkspace(driver.Main, 1<<20+1, hostWorkspace); !errors.Is(err, ErrAlign) {
		t.Errorf("a misaligned workspace: %v", err)
	}
	if err := b.h.SetWorkspace(driver.Main, 1<<20, hostWorkspace); err != nil {
		t.Fatal(err)
	}
	if err := l.AddTo(&cmds, driver.Main, 0, 0, 0); err != nil {
		t.Errorf("with the caller's workspace: %v", err)
	}
	small := newBench(t, Options{Tuning: tn, Workspace: 256})
	if l, err = small.h.Plan(p); err != nil || l.Algo() == split {
		t.Errorf("a tuned algorithm without its workspace: %v, %v", l.Algo(), err)
	}
	if _, err = small.h.PlanWith(p, split); !errors.Is(err, ErrNoWorkspace) {
		t.Errorf("a given algorithm without its workspace: %v", err)
	}
	if _, err = small.h.PlanWith(p, Algo{ID: 9}); err == nil {
		t.Error("an unknown algorithm has a plan")
	}
	if _, err = small.h.PlanWith(p, Algo{Skinny: Skinny{1, 4, 1, 4, 1, 0}}); err == nil {
		t.Error("a kernel for bf16 multiplies f32")
	}
}

// The server does a program's matmuls and leaves the rest to others.
func TestServer(t *testing.T) {
	b := newBench(t, Options{})
	srv, err := b.lib.Serve(b.ctx, Options{}, Config{})
	if err != nil {
		t.Fatal(err)
	}
	const n = 16
	rng := rand.New(rand.NewPCG(5, 6))
	x, y, z := b.buffer(random(rng, dtype.F32, n*n)), b.buffer(random(rng, dtype.F32, n*n)), b.buffer(make([]byte, 4*n*n))
	defer b.free(x)
	defer b.free(y)
	defer b.free(z)
	mat := func(at driver.Ptr) library.Tensor {
		return library.Tensor{At: at, DType: dtype.F32, Shape: []int64{n, n}, Strides: []int64{n, 1}}
	}
	c := &library.Call{Op: "matmul", Attrs: attr.List{}, Ins: []library.Tensor{mat(x), mat(y)}, Outs: []library.Tensor{mat(z)}}
	st, err := srv.Plan(c)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := ParseAlgo(st.String()); err != nil {
		t.Errorf("%q: %v", st, err)
	}
	var cmds driver.Commands
	st.AddTo(&cmds)
	st.AddTo(&cmds)
	if err := b.drv.Run(b.ctx, cmds.On(b.s)); err != nil {
		t.Fatal(err)
	}
	got := b.read(z, 4*n*n)
	if bytes.Equal(got, make([]byte, len(got))) {
		t.Error("nothing was computed")
	}
	bad := *c
	bad.Op = "attention"
	if _, err := srv.Plan(&bad); !errors.Is(err, library.ErrNotServed) {
		t.Errorf("attention: %v", err)
	}
	bad = *c
	spread := mat(x)
	spread.Strides = []int64{2 * n, 2}
	bad.Ins = []library.Tensor{spread, mat(y)}
	if _, err := srv.Plan(&bad); !errors.Is(err, library.ErrNotServed) || !errors.Is(err, ErrLayout) {
		t.Errorf("a view without a descriptor: %v", err)
	}
	p, err := ProblemOfCall(&library.Call{Op: "matmul", Ins: []library.Tensor{mat(64), mat(4)}, Outs: []library.Tensor{mat(4096)}, SMs: 100}, Config{})
	if err != nil || p.Y.Align != 64 || p.X.Align != 4 || p.D.Align != 256 || p.SMs != 100 {
		t.Errorf("%v, %v", &p, err)
	}
	if err := srv.Close(); err != nil {
		t.Fatal(err)
	}
}

// Steps leave nothing to load: what a problem's plan needs is loaded when it is planned,
// once whatever the addresses, and a kernel of ours once for all problems and groups.
func TestLoads(t *testing.T) {
	if *onGPU {
		t.Skip("the fake's kernel")
	}
	b := newBench(t, Options{})
	drv := &librarytest.Driver{Driver: b.lib.drv}
	b.lib.drv = drv
	tn := &Tuning{}
	srv, err := b.lib.Serve(b.ctx, Options{Tuning: tn}, Config{})
	if err != nil {
		t.Fatal(err)
	}
	fetches := drv.Loads // one for all weights that are ever fetched
	tensor := func(at driver.Ptr, shape, strides []int64) library.Tensor {
		return library.Tensor{At: at, DType: dtype.BF16, Shape: shape, Strides: strides}
	}
	call := func(at driver.Ptr, n int64) *library.Call {
		const m, k = 16, 128
		return &library.Call{Op: "matmul", Ins: []library.Tensor{tensor(at, []int64{m, k}, []int64{k, 1}), tensor(at<<8, []int64{k, n}, []int64{1, k})},
			Outs: []library.Tensor{tensor(at<<16+driver.Ptr(n)<<10, []int64{m, n}, []int64{n, 1})}, WorkspaceBytes: 1 << 20, Workspace: 1 << 12}
	}
	plan := func(at driver.Ptr, n int64, loads int) library.Step {
		t.Helper()
		drv.Loads = 0
		st, err := srv.Plan(call(at, n))
		if err != nil {
			t.Fatal(err)
		}
		if drv.Loads != loads {
			t.Errorf("a product of %d columns at %#x: %d loads, want %d", n, uint64(at), drv.Loads, loads)
		}
		return st
	}
	if fetches != 1 {
		t.Errorf("%d loads of what fetches", fetches)
	}
	plan(1<<20, 32, 1)
	plan(1<<21, 32, 0)
	plan(1<<20, 48, 1)
	plan(1<<22, 48, 0)
	for _, n := range []int64{16, 64} {
		p, err := ProblemOfCall(call(1<<20, n), Config{})
		if err != nil {
			t.Fatal(err)
		}
		tn.Set(p, Algo{Skinny: Skinny{1, 4, 1, 2, 2, 0}})
	}
	list := []library.Step{plan(1<<20, 16, 1), plan(1<<20, 64, 0)}
	var ps []Problem
	for _, st := range list {
		ps = append(ps, st.(*step).plan.problem)
	}
	tn.SetGroup(ps, Algo{Skinny: Skinny{1, 4, 1, 2, 2, 2}})
	for i := range 2 { // steps are joined again for each capture
		drv.Loads = 0
		if _, n, err := list[0].(library.Joiner).Join(list[1:]); n != 1 || err != nil {
			t.Fatalf("%d joined, %v", n, err)
		}
		if drv.Loads != 1-i {
			t.Errorf("joined for time %d: %d loads", i, drv.Loads)
		}
	}
	if drv.Runs != 0 {
		t.Errorf("%d command buffers ran", drv.Runs)
	}
	if err := srv.Close(); err != nil {
		t.Fatal(err)
	}
	drv.Check(t)
	b.lib.drv = drv.Driver
}

// The kernel's shared memory and grid follow from its parameters.
func TestSkinnyKernels(t *testing.T) {
	p := Problem{Type: dtype.BF16, Out: dtype.BF16, M: 3584, N: 16, K: 4096, Batch: 1, X: Matrix{Trans: true, LD: 4096, Align: 256}, Y: Matrix{LD: 4096, Align: 256}, D: Matrix{LD: 3584, Align: 256}}
	list := skinnyKernels([]Problem{p}, 132, 1000)
	if len(list) < 10 {
		t.Fatalf("%d kernels", len(list))
	}
	for i, s := range list {
		if err := s.fits(&p); err != nil {
			t.Errorf("%v: %v", s, err)
		}
		if i > 0 && s.cost([]Problem{p}, 132) < list[i-1].cost([]Problem{p}, 132) {
			t.Errorf("%v comes after a worse one", s)
		}
	}
	s := Skinny{Rows: 2, Parts: 8, Cluster: 2, Unroll: 4, Tokens: 2}
	// 16 warps with 16 tokens of 20 floats, 2*64*2 pairs for the cluster, 16 rows of 2048 columns and 32 of padding.
	if got, want := s.shared(4096), 16*16*20*4+2*64*2*8+16*2*(2048+32); got != want {
		t.Errorf("shared memory of %d bytes, want %d", got, want)
	}
	for name, change := range map[string]func(*Problem){
		"batch": func(p *Problem) { p.Batch = 2 }, "f32": func(p *Problem) { p.Type = dtype.F32 }, "out f32": func(p *Problem) { p.Out = dtype.F32 },
		"k": func(p *Problem) { p.K = 4100 }, "tokens": func(p *Problem) { p.N = 17 }, "weights not transposed": func(p *Problem) { p.X.Trans = false },
		"a transposed": func(p *Problem) { p.Y.Trans = true }, "one row with gaps": func(p *Problem) { p.N, p.Y.Trans, p.Y.LD = 1, true, 2 }, "leading dimension": func(p *Problem) { p.X.LD = 4098 },
		"alignment": func(p *Problem) { p.Y.Align = 8 }, "odd result": func(p *Problem) { p.D.LD = 3585 }, "k too large": func(p *Problem) { p.K = 1 << 16 },
	} {
		q := p
		if change(&q); s.fits(&q) == nil {
			t.Errorf("%s: fits", name)
		}
	}
}

// An algorithm with wrong results is never chosen, however fast it is.
func TestTuneWrong(t *testing.T) {
	if *onGPU {
		t.Skip("speaks of the fake's algorithms")
	}
	b := newBench(t, Options{})
	b.lib.lib.(*host).wrong = 7
	const m, n, k = 8, 24, 200
	rng := rand.New(rand.NewPCG(5, 6))
	for _, d := range []dtype.DType{dtype.BF16, dtype.F16, dtype.F32, dtype.F64} {
		p, err := ProblemOf(Operand{Type: d, Shape: []int64{m, k}, Strides: []int64{1, m}}, Operand{Type: d, Shape: []int64{k, n}, Strides: []int64{n, 1}},
			Operand{Type: d, Shape: []int64{m, n}, Strides: []int64{n, 1}}, Config{})
		if err != nil {
			t.Fatal(err)
		}
		set := Operands{b.buffer(random(rng, d, m*k)), b.buffer(random(rng, d, k*n)), b.buffer(random(rng, d, m*n))}
		best, all, err := b.h.Tune(context.Background(), b.s, p, TuneOptions{Sets: []Operands{set}, Time: 0.01, Kernels: -1, Margin: -1e9})
		if err != nil {
			t.Fatal(err)
		}
		wrong := 0
		for _, y := range all {
			if errors.Is(y.Err, ErrWrongResult) {
				wrong++
			}
		}
		if last := all[len(all)-1]; len(all) != 3 || wrong != 1 || last.Algo.ID != 7 || best.ID == 7 {
			t.Errorf("%v: chose %v of %v", d, best, all)
		}
		b.free(set.A)
		b.free(set.B)
		b.free(set.Out)
	}
}
