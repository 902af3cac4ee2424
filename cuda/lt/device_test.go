//go:build linux

package lt

import (
	"errors"
	"flag"
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed-ee968945/concert/cuda/driver"
	"github.com/seed-ee968945/concert/cuda/driver/fake"
	"github.com/seed-ee968945/concert/cuda/nvrtc"
	"github.com/seed-ee968945/concert/internal/attr"
	"github.com/seed-ee968945/concert/internal/dtype"
	"github.com/seed-ee968945/concert/internal/hostops"
)

var (
	onGPU     = flag.Bool("gpu", false, "run on device 0 of this machine instead of the fake driver")
	ltPath    = flag.String("cublaslt", "", "cuBLASLt to use with -gpu")
	nvrtcPath = flag.String("nvrtc", "", "NVRTC to use with -gpu")
)

// bench is a driver, a context, a stream, and a handle on them.
type bench struct {
	t   testing.TB
	drv driver.Driver
	ctx driver.Ctx
	s   driver.Stream
	lib *Library
	h   *Handle
}

func newBench(t testing.TB, o Options) *bench {
	t.Helper()
	b := &bench{t: t}
	var host *fake.Driver
	if *onGPU {
		d, err := driver.Open("")
		if err != nil {
			t.Fatal(err)
		}
		b.drv = d
		if o.Compile == nil {
			o.Compile = compiler(t)
		}
	} else {
		host = fake.New(1)
		b.drv = host
	}
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	var err error
	b.ctx, err = b.drv.CtxRetain(0)
	must(err)
	b.s, err = b.drv.StreamCreate(b.ctx)
	must(err)
	b.lib, err = Open(b.drv, *ltPath)
	must(err)
	start := time.Now()
	b.h, err = b.lib.NewHandle(b.ctx, o)
	must(err)
	t.Logf("a handle took %v", time.Since(start))
	must(b.h.Reserve(b.s))
	t.Cleanup(func() {
		must(b.h.Close())
		must(b.drv.StreamDestroy(b.ctx, b.s))
		must(b.drv.CtxRelease(0))
		if host != nil && !t.Failed() {
			if l := host.Leaks(); len(l) > 0 {
				t.Errorf("not released: %v", l)
			}
		}
	})
	return b
}

func compiler(t testing.TB) func(name, source string) ([]byte, error) {
	c, err := nvrtc.Open(*nvrtcPath, "")
	if err != nil {
		t.Fatal(err)
	}
	return func(name, source string) ([]byte, error) {
		image, _, err := c.Compile(name, source, []string{nvrtc.Arch(9, 0)})
		return image, err
	}
}

// buffer is device memory that holds a copy of host memory.
func (b *bench) buffer(data []byte) driver.Ptr {
	b.t.Helper()
	p, err := b.drv.MemAlloc(b.ctx, uint64(max(len(data), 1)))
	if err == nil && len(data) > 0 {
		err = b.drv.CopyIn(b.ctx, b.s, p, data)
	}
	if err != nil {
		b.t.Fatal(err)
	}
	return p
}

// free frees memory when the stream no longer uses it.
func (b *bench) free(p driver.Ptr) {
	b.t.Helper()
	if err := errors.Join(b.drv.StreamSync(b.ctx, b.s), b.drv.MemFree(b.ctx, p)); err != nil {
		b.t.Fatal(err)
	}
}

func (b *bench) read(p driver.Ptr, n int) []byte {
	b.t.Helper()
	out := make([]byte, n)
	if err := b.drv.CopyOut(b.ctx, b.s, out, p); err != nil {
		b.t.Fatal(err)
	}
	return out
}

// random fills a tensor's memory with values around one.
func random(rng *rand.Rand, d dtype.DType, elems int64) []byte {
	out := make([]byte, elems*int64(d.Size()))
	for i := range elems {
		dtype.StoreFloat(d, out[i*int64(d.Size()):], rng.NormFloat64())
	}
	return out
}

// view is a random view: row-major or column-major, with gaps, or permuted.
func view(rng *rand.Rand, d dtype.DType, shape []int64, result bool) (o Operand, elems, offset int64) {
	r := len(shape)
	order := make([]int, r)
	for i := range order {
		order[i] = r - 1 - i
	}
	if rng.IntN(3) == 0 {
		order[0], order[1] = order[1], order[0]
	}
	o = Operand{Type: d, Shape: shape, Strides: make([]int64, r)}
	step := int64(1)
	for _, i := range order {
		o.Strides[i] = step
		step *= shape[i] + []int64{0, 0, 0, 8}[rng.IntN(4)]
	}
	if !result && r == 3 && rng.IntN(5) == 0 {
		o.Strides[0] = 0
	}
	offset = []int64{0, 0, 64, 8, 1}[rng.IntN(5)]
	o.Align = 256
	for offset*int64(d.Size())%int64(o.Align) != 0 {
		o.Align /= 2
	}
	return o, offset + step + 8, offset
}

// Random views of every type give what the host's kernel gives for the same views.
func TestProducts(t *testing.T) {
	b := newBench(t, Options{})
	rng := rand.New(rand.NewPCG(3, 4))
	types := [][2]dtype.DType{{dtype.BF16, dtype.BF16}, {dtype.F16, dtype.F16}, {dtype.F32, dtype.F32}, {dtype.F64, dtype.F64}, {dtype.BF16, dtype.F32}}
	ran := 0
	for i := range 400 {
		ty := types[rng.IntN(len(types))]
		dim := func() int64 { return []int64{1, 2, 7, 8, 16, 24, 33, 64}[rng.IntN(8)] }
		m, n, k := dim(), dim(), dim()
		sa, sb, so := []int64{m, k}, []int64{k, n}, []int64{m, n}
		if rng.IntN(3) == 0 {
			batch := []int64{2, 3}[rng.IntN(2)]
			sa, sb, so = append([]int64{batch}, sa...), append([]int64{batch}, sb...), append([]int64{batch}, so...)
		}
		va, na, oa := view(rng, ty[0], sa, false)
		vb, nb, ob := view(rng, ty[0], sb, false)
		vo, no, oo := view(rng, ty[1], so, true)
		p, err := ProblemOf(va, vb, vo, Config{})
		if errors.Is(err, ErrLayout) {
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		ran++
		ha, hb, ho := random(rng, ty[0], na), random(rng, ty[0], nb), random(rng, ty[1], no)
		pa, pb, po := b.buffer(ha), b.buffer(hb), b.buffer(ho)
		l, err := b.h.Plan(p)
		if err != nil {
			t.Fatalf("%d: %v", i, err)
		}
		at := func(p driver.Ptr, off int64, d dtype.DType) driver.Ptr { return p + driver.Ptr(off*int64(d.Size())) }
		if err := l.Enqueue(b.s, at(pa, oa, ty[0]), at(pb, ob, ty[0]), at(po, oo, ty[1])); err != nil {
			t.Fatalf("%d: %v", i, err)
		}
		got := b.read(po, len(ho))
		want := append([]byte{}, ho...)
		tensor := func(o Operand, off int64, data []byte) hostops.Tensor {
			return hostops.Tensor{DType: o.Type, Shape: o.Shape, Strides: o.Strides, Offset: off, Data: data}
		}
		if err := hostops.Run("matmul", attr.List{}, []hostops.Tensor{tensor(vo, oo, want)}, []hostops.Tensor{tensor(va, oa, ha), tensor(vb, ob, hb)}); err != nil {
			t.Fatal(err)
		}
		if msg := differ(ty[1], got, want, k); msg != "" {
			t.Errorf("%d: %v with %v: %s", i, &p, l.Algo(), msg)
		}
		b.free(pa)
		b.free(pb)
		b.free(po)
	}
	if ran < 200 {
		t.Errorf("only %d products ran", ran)
	}
}

// differ compares all of two buffers: what is outside of the result must not change.
func differ(d dtype.DType, got, want []byte, k int64) string {
	eps := map[dtype.DType]float64{dtype.BF16: 1.0 / 128, dtype.F16: 1.0 / 1024, dtype.F32: 1e-5, dtype.F64: 1e-13}[d]
	tol := eps * (1 + math.Sqrt(float64(k)))
	if !*onGPU {
		tol = 0
	}
	size := d.Size()
	for i := 0; i < len(got); i += size {
		g, w := dtype.LoadFloat(d, got[i:]), dtype.LoadFloat(d, want[i:])
		if !(math.Abs(g-w) <= tol) {
			return fmt.Sprintf("element %d: %g, want %g", i/size, g, w)
		}
	}
	return ""
}

func (b *bench) plan(p Problem, err error) *Plan {
	b.t.Helper()
	if err != nil {
		b.t.Fatal(err)
	}
	l, err := b.h.Plan(p)
	if err != nil {
		b.t.Fatal(err)
	}
	return l
}

// captured makes an executable graph of what the commands enqueue.
func (b *bench) captured(cmds *driver.Commands) driver.Exec {
	b.t.Helper()
	if err := b.drv.CaptureBegin(b.ctx, b.s); err != nil {
		b.t.Fatal(err)
	}
	runErr := b.drv.Run(b.ctx, cmds.On(b.s))
	g, err := b.drv.CaptureEnd(b.ctx, b.s)
	if err := errors.Join(runErr, err); err != nil {
		b.t.Fatal(err)
	}
	exec, err := b.drv.GraphInstantiate(b.ctx, g)
	if err := errors.Join(err, b.drv.GraphDestroy(b.ctx, g)); err != nil {
		b.t.Fatal(err)
	}
	return exec
}

// Products in a captured graph, and in a command buffer on its main stream.
func TestEnqueue(t *testing.T) {
	b := newBench(t, Options{})
	const n = 64
	rng := rand.New(rand.NewPCG(5, 6))
	mat := Operand{Type: dtype.F32, Shape: []int64{n, n}, Strides: []int64{n, 1}}
	l := b.plan(ProblemOf(mat, mat, mat, Config{}))
	if b.plan(ProblemOf(mat, mat, mat, Config{})) != l {
		t.Error("a second plan of the same problem")
	}
	ha, hb := random(rng, dtype.F32, n*n), random(rng, dtype.F32, n*n)
	x, y, z := b.buffer(ha), b.buffer(hb), b.buffer(ha)
	defer b.free(x)
	defer b.free(y)
	defer b.free(z)
	if err := l.Enqueue(b.s, x, y, z); err != nil {
		t.Fatal(err)
	}
	want := b.read(z, 4*n*n)

	if err := b.h.Reserve(driver.Main); err != nil {
		t.Fatal(err)
	}
	var cmds driver.Commands
	cmds.Memset32(driver.Main, z, 0, n*n)
	if err := l.AddTo(&cmds, driver.Main, x, y, z); err != nil {
		t.Fatal(err)
	}
	exec := b.captured(&cmds)
	for i := range 3 {
		if err := b.drv.Memset32(b.ctx, b.s, z, 7, n*n); err != nil {
			t.Fatal(err)
		}
		if err := b.drv.GraphLaunch(b.ctx, exec, b.s); err != nil {
			t.Fatal(err)
		}
		if got := b.read(z, 4*n*n); string(got) != string(want) {
			t.Errorf("replay %d: other bits than the first run", i)
		}
	}
	if err := b.drv.ExecDestroy(b.ctx, exec); err != nil {
		t.Fatal(err)
	}
	if err := l.Enqueue(b.s, x+4, y, z); !errors.Is(err, ErrAlign) {
		t.Errorf("a misaligned operand: %v", err)
	}
}

// Empty products do nothing, and sums over nothing are zeros.
func TestEnqueueEmpty(t *testing.T) {
	b := newBench(t, Options{})
	const n = 64
	mat := func(rows, columns int64) Operand {
		return Operand{Type: dtype.F32, Shape: []int64{rows, columns}, Strides: []int64{max(columns, 1), 1}}
	}
	if err := b.plan(ProblemOf(mat(0, n), mat(n, n), mat(0, n), Config{})).Enqueue(b.s, 0, 0, 0); err != nil {
		t.Errorf("an empty product: %v", err)
	}
	x := random(rand.New(rand.NewPCG(5, 6)), dtype.F32, n*n)
	a, c := b.buffer(x), b.buffer(x)
	defer b.free(a)
	defer b.free(c)
	if err := b.plan(ProblemOf(mat(n, 0), mat(0, n), mat(n, n), Config{})).Enqueue(b.s, a, a, c); err != nil {
		t.Fatal(err)
	}
	if got := b.read(c, 4*n*n); string(got) != string(make([]byte, 4*n*n)) {
		t.Error("a sum over nothing is not zero")
	}
}

// A handle's end, which waits for all work of the context, leaves other worlds' captures alone.
func TestCloseDuringCapture(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		drv := fake.New(1)
		ctx, err := drv.CtxRetain(0)
		if err != nil {
			t.Fatal(err)
		}
		l, err := Open(drv, "")
		if err != nil {
			t.Fatal(err)
		}
		h, err := l.NewHandle(ctx, Options{})
		if err != nil {
			t.Fatal(err)
		}
		s, err := drv.StreamCreate(ctx)
		if err != nil {
			t.Fatal(err)
		}
		if err := drv.CaptureBegin(ctx, s); err != nil {
			t.Fatal(err)
		}
		closed := make(chan error, 1)
		go func() { closed <- h.Close() }()
		synctest.Wait()
		if len(closed) > 0 {
			t.Error("the handle ended while a stream captured")
		}
		g, err := drv.CaptureEnd(ctx, s)
		if err := errors.Join(err, <-closed, drv.GraphDestroy(ctx, g), drv.StreamDestroy(ctx, s), drv.CtxRelease(0)); err != nil {
			t.Error(err)
		}
		if l := drv.Leaks().String(); l != "" {
			t.Error(l)
		}
	})
}
