//go:build linux

package wgmma

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"

	"github.com/seed-ee968945/concert/cuda/driver"
	"github.com/seed-ee968945/concert/cuda/driver/fake"
	"github.com/seed-ee968945/concert/cuda/library"
	"github.com/seed-ee968945/concert/internal/attr"
	"github.com/seed-ee968945/concert/internal/dtype"
	"github.com/seed-ee968945/concert/internal/hostops"
	"github.com/seed-ee968945/concert/kernels"
)

var (
	onGPU  = flag.Bool("gpu", false, "run on device 0 of this machine instead of the fake driver")
	ltPath = flag.String("cublaslt", "", "cuBLASLt to compare with, in benchmarks with -gpu")
	code   = flag.String("images", "", "folder with machine code to use in place of the embedded: matmul_*.cubin")
)

// bench is a device with the library on it.
type bench struct {
	t   testing.TB
	drv driver.Driver
	ctx driver.Ctx
	s   driver.Stream
	sms int
	lib *Library
}

func newBench(t testing.TB) *bench {
	t.Helper()
	b := &bench{t: t}
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	var host *fake.Driver
	var err error
	info := driver.DeviceInfo{Major: 9, SMs: 4} // the fake driver's devices are older
	if *onGPU {
		b.drv, err = driver.Open("")
		must(err)
		infos, err := b.drv.Devices()
		must(err)
		info = infos[0]
	} else {
		host = fake.New(1)
		b.drv = host
	}
	b.sms = info.SMs
	b.ctx, err = b.drv.CtxRetain(0)
	must(err)
	b.s, err = b.drv.StreamCreate(b.ctx)
	must(err)
	images, err := kernels.NewSet()
	must(err)
	if *code != "" {
		for _, name := range []string{"matmul_bf16", "matmul_f16"} {
			image, err := os.ReadFile(filepath.Join(*code, name+".cubin"))
			must(err)
			images.Replace(name, image)
		}
	}
	b.lib, err = Open(b.drv, b.ctx, info, images)
	if errors.Is(err, library.ErrUnavailable) {
		t.Skip(err)
	}
	must(err)
	t.Cleanup(func() {
		must(b.lib.Close())
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

// buffer is device memory with a copy of data.
func (b *bench) buffer(data []byte) driver.Ptr {
	b.t.Helper()
	p, err := b.drv.MemAlloc(b.ctx, uint64(len(data)))
	if err == nil {
		err = b.drv.CopyIn(b.ctx, b.s, p, data)
	}
	if err != nil {
		b.t.Fatal(err)
	}
	return p
}

// run plans a call and runs it.
func (b *bench) run(c *library.Call, plan planner) (library.Step, error) {
	st, err := plan(c)
	if err != nil {
		return nil, err
	}
	var cmds driver.Commands
	st.AddTo(&cmds)
	return st, errors.Join(b.drv.Run(b.ctx, cmds.On(b.s)), b.drv.StreamSync(b.ctx, b.s))
}

// shape is a batch of matmuls; gap is what rows are longer than their elements, in elements.
type shape struct {
	batch, m, k, n int64
	ta, tb         bool
	gap            int64
	d              dtype.DType
}

// tensor lays rows by cols out, transposed or not, behind a guard of 64 elements.
func (s *shape) tensor(rows, cols int64, trans bool) (t library.Tensor, elems int64) {
	inner, outer := cols, rows
	if trans {
		inner, outer = rows, cols
	}
	ld := (inner+7)/8*8 + s.gap
	t = library.Tensor{DType: s.d, Shape: []int64{s.batch, rows, cols}, Strides: []int64{ld*outer + s.gap, ld, 1}}
	if trans {
		t.Strides[1], t.Strides[2] = 1, ld
	}
	if s.batch == 1 {
		t.Shape, t.Strides = t.Shape[1:], t.Strides[1:]
	}
	return t, 2*guard + s.batch*(ld*outer+s.gap)
}

const guard = 64 // elements

func random(rng *rand.Rand, d dtype.DType, elems int64) []byte {
	out := make([]byte, 2*elems)
	for i := range elems {
		dtype.StoreFloat(d, out[2*i:], rng.NormFloat64())
	}
	return out
}

// check multiplies and compares with the host, what is around the result included. It
// gives the result's memory.
func (b *bench) check(rng *rand.Rand, s shape, sms int) []byte {
	b.t.Helper()
	return b.checkBy(rng, s, sms, b.lib.Plan)
}

func (b *bench) checkBy(rng *rand.Rand, s shape, sms int, plan planner) []byte {
	b.t.Helper()
	a, na := s.tensor(s.m, s.k, s.ta)
	w, nw := s.tensor(s.k, s.n, s.tb)
	o, no := s.tensor(s.m, s.n, false)
	ha, hw, ho := random(rng, s.d, na), random(rng, s.d, nw), bytes.Repeat([]byte{0xff, 0x7f}, int(no))
	pa, pw, po := b.buffer(ha), b.buffer(hw), b.buffer(ho)
	a.At, w.At, o.At = pa+2*guard, pw+2*guard, po+2*guard
	st, err := b.run(&library.Call{Op: "matmul", Ins: []library.Tensor{a, w}, Outs: []library.Tensor{o}, SMs: sms}, plan)
	if err != nil {
		b.t.Fatalf("%+v: %v", s, err)
	}
	got := make([]byte, len(ho))
	if err := errors.Join(b.drv.CopyOut(b.ctx, b.s, got, po), b.drv.MemFree(b.ctx, pa), b.drv.MemFree(b.ctx, pw), b.drv.MemFree(b.ctx, po)); err != nil {
		b.t.Fatal(err)
	}
	host := func(t library.Tensor, data []byte) hostops.Tensor {
		return hostops.Tensor{DType: t.DType, Shape: t.Shape, Strides: t.Strides, Offset: guard, Data: data}
	}
	if err := hostops.Run("matmul", attr.List{}, []hostops.Tensor{host(o, ho)}, []hostops.Tensor{host(a, ha), host(w, hw)}); err != nil {
		b.t.Fatal(err)
	}
	// The result is rounded to the same number or to its neighbour, but for what float32 loses
	// in k steps from sums of about sqrt(k), which tensor cores cut off rather than round.
	ulp := map[dtype.DType]float64{dtype.BF16: 1.0 / 128, dtype.F16: 1.0 / 1024}[s.d]
	noise := 0x1p-23 * math.Pow(float64(s.k), 1.5)
	for i := 0; i < len(got); i += 2 {
		g, w := dtype.LoadFloat(s.d, got[i:]), dtype.LoadFloat(s.d, ho[i:])
		if same := bytes.Equal(got[i:i+2], ho[i:i+2]); !same && !(math.Abs(g-w) <= math.Abs(w)*ulp+noise) {
			b.t.Fatalf("%+v on %d multiprocessors by %v: element %d is %g, want %g", s, sms, st, i/2-guard, g, w)
		}
	}
	return got
}

// Shapes around the edges of tiles and stages, in every layout, with gaps and in batches, on
// so few multiprocessors that blocks compute several tiles. What is around the result stays.
func TestShapes(t *testing.T) {
	b := newBench(t)
	rng := rand.New(rand.NewPCG(1, 2))
	i := 0
	for _, d := range []dtype.DType{dtype.BF16, dtype.F16} {
		for _, s := range []shape{
			{1, 1, 8, 8, false, false, 0, d}, {1, 128, 64, 128, false, false, 0, d}, {1, 129, 65, 136, false, false, 8, d},
			{1, 256, 128, 256, false, false, 0, d}, {1, 384, 72, 264, false, false, 0, d}, {3, 130, 40, 72, false, false, 24, d},
			{2, 256, 200, 512, false, false, 0, d}, {1, 512, 8, 768, false, false, 0, d}, {1, 16, 1000, 64, false, false, 0, d},
		} {
			for layout := range 4 {
				s.ta, s.tb = layout&1 != 0, layout&2 != 0
				if !*onGPU && i%5 != 0 && i%4 != 0 { // on the host it takes long
					i++
					continue
				}
				b.check(rng, s, []int{2, 3, 7, 0}[i%4])
				i++
			}
		}
	}
}

// planTile is Plan by a tile that the test chooses.
func (l *Library) planTile(c *library.Call, t kernels.MatmulTile) (library.Step, error) {
	p, err := problemOf(c)
	if err != nil {
		return nil, err
	}
	sms := l.sms
	if c.SMs > 0 {
		sms = c.SMs
	}
	s := shapeOf(p)
	m, err := s.Tiled(t, sms)
	if err != nil {
		return nil, err
	}
	return l.launch(c, p, m)
}

// planBehind is Plan of a matmul that begins when what is before it has ended.
func (l *Library) planBehind(c *library.Call) (library.Step, error) {
	l.Early = false
	defer func() { l.Early = true }()
	return l.Plan(c)
}

// Every tile, in every layout, with edges in all directions.
func TestTiles(t *testing.T) {
	b := newBench(t)
	i := 0
	for _, tile := range kernels.MatmulTiles() {
		t.Run(tile.String(), func(t *testing.T) {
			rng := rand.New(rand.NewPCG(9, 10))
			for _, d := range []dtype.DType{dtype.BF16, dtype.F16} {
				for layout := range 4 {
					s := shape{1, 136, 264, 72, layout&1 != 0, layout&2 != 0, 0, d}
					if *onGPU {
						s = shape{2, 650, 328, 1096, s.ta, s.tb, 8, d}
					} else if i++; i%7 != 0 {
						continue
					}
					b.t = t
					b.checkBy(rng, s, 16, func(c *library.Call) (library.Step, error) { return b.lib.planTile(c, tile) })
				}
			}
		})
	}
}

// Matmuls that begin early wait for what they read and for those who read what they write.
func TestEarly(t *testing.T) {
	b := newBench(t)
	n := int64(128)
	if *onGPU {
		n = 384
	}
	s := shape{1, n, n, n, false, false, 0, dtype.BF16}
	x, size := s.tensor(n, n, false)
	rng := rand.New(rand.NewPCG(11, 12))
	in, by := random(rng, s.d, size), random(rng, s.d, size)
	for i := 0; i < len(by); i += 2 {
		dtype.StoreFloat(s.d, by[i:], dtype.LoadFloat(s.d, by[i:])/20) // as large as before, after each matmul
	}
	w, one, two := x, x, x
	w.At = b.buffer(by)
	var results [][]byte
	var asked []int // launches that may be early
	for _, early := range []bool{false, true} {
		one.At, two.At = b.buffer(in), b.buffer(in)
		b.lib.Early = early
		var cmds driver.Commands
		for i := range 40 {
			tile := kernels.MatmulTiles()[i%len(kernels.MatmulTiles())]
			if !*onGPU && i%10 != 0 || 64*tile.Split > n {
				continue
			}
			st, err := b.lib.planTile(&library.Call{Op: "matmul", Ins: []library.Tensor{one, w}, Outs: []library.Tensor{two}}, tile)
			if err != nil {
				t.Fatal(err)
			}
			st.AddTo(&cmds)
			one, two = two, one
		}
		words, n := cmds.On(b.s), 0
		for i := 0; i < len(words); i += int(words[i] >> 8) {
			if words[i]&0xff == driver.OpLaunchCluster && words[i+4]>>32 != 0 {
				n++
			}
		}
		asked = append(asked, n)
		got := make([]byte, len(in))
		if err := errors.Join(b.drv.Run(b.ctx, words), b.drv.CopyOut(b.ctx, b.s, got, one.At), b.drv.MemFree(b.ctx, one.At), b.drv.MemFree(b.ctx, two.At)); err != nil {
			t.Fatal(err)
		}
		results = append(results, got)
	}
	if !bytes.Equal(results[0], results[1]) {
		t.Error("early launches give another result")
	}
	if asked[0] != 0 || asked[1] == 0 {
		t.Errorf("%d launches are early where none may be, %d where all may", asked[0], asked[1])
	}
	if err := b.drv.MemFree(b.ctx, w.At); err != nil {
		t.Fatal(err)
	}
}

// Sizes of a step, on a GPU alone; every tile width and cluster; the same bits whatever the
// grid and however often.
func TestSteps(t *testing.T) {
	if !*onGPU {
		t.Skip("sizes for a GPU: -gpu")
	}
	b := newBench(t)
	for _, s := range []shape{{1, 2048, 512, 4096, false, true, 0, dtype.BF16}, {1, 1024, 256, 1024, true, false, 0, dtype.F16}, {2, 640, 4096, 256, false, false, 0, dtype.BF16}} {
		first := b.check(rand.New(rand.NewPCG(3, 4)), s, 0)
		for _, sms := range []int{0, 2, 17, 64, 100} {
			if got := b.check(rand.New(rand.NewPCG(3, 4)), s, sms); !bytes.Equal(got, first) {
				t.Errorf("%+v on %d multiprocessors: other bits", s, sms)
			}
		}
	}
}

// A captured launch runs again and again on what its operands hold by then.
func TestCapture(t *testing.T) {
	b := newBench(t)
	const n = 128
	s := shape{1, n, n, n, false, false, 0, dtype.BF16}
	a, size := s.tensor(n, n, false)
	rng := rand.New(rand.NewPCG(5, 6))
	first, second := random(rng, s.d, size), random(rng, s.d, size)
	w, o := a, a
	pa, pw, po := b.buffer(first), b.buffer(random(rng, s.d, size)), b.buffer(first)
	a.At, w.At, o.At = pa, pw, po
	st, err := b.lib.Plan(&library.Call{Op: "matmul", Ins: []library.Tensor{a, w}, Outs: []library.Tensor{o}})
	if err != nil {
		t.Fatal(err)
	}
	var cmds driver.Commands
	st.AddTo(&cmds)
	if err := b.drv.CaptureBegin(b.ctx, b.s); err != nil {
		t.Fatal(err)
	}
	err = b.drv.Run(b.ctx, cmds.On(b.s))
	g, end := b.drv.CaptureEnd(b.ctx, b.s)
	if err := errors.Join(err, end); err != nil {
		t.Fatal(err)
	}
	x, err := b.drv.GraphInstantiate(b.ctx, g)
	if err != nil {
		t.Fatal(err)
	}
	var results [][]byte
	for _, in := range [][]byte{first, second, first} {
		got := make([]byte, 2*n*n)
		if err := errors.Join(b.drv.CopyIn(b.ctx, b.s, pa, in), b.drv.GraphLaunch(b.ctx, x, b.s), b.drv.CopyOut(b.ctx, b.s, got, po)); err != nil {
			t.Fatal(err)
		}
		results = append(results, got)
	}
	if !bytes.Equal(results[0], results[2]) || bytes.Equal(results[0], results[1]) {
		t.Error("replays do not follow their operands")
	}
	if err := errors.Join(b.drv.ExecDestroy(b.ctx, x), b.drv.GraphDestroy(b.ctx, g), b.drv.MemFree(b.ctx, pa), b.drv.MemFree(b.ctx, pw), b.drv.MemFree(b.ctx, po)); err != nil {
		t.Fatal(err)
	}
}

// What the kernels do not do is left to other libraries, with the reason.
func TestNotServed(t *testing.T) {
	b := newBench(t)
	mat := func(d dtype.DType, rows, cols, ld int64, at driver.Ptr) library.Tensor {
		return library.Tensor{At: at, DType: d, Shape: []int64{rows, cols}, Strides: []int64{ld, 1}}
	}
	bf := func(rows, cols, ld int64) library.Tensor { return mat(dtype.BF16, rows, cols, ld, 4096) }
	for _, c := range []struct {
		what string
		call library.Call
	}{
		{"another op", library.Call{Op: "attention"}},
		{"float32", library.Call{Op: "matmul", Ins: []library.Tensor{mat(dtype.F32, 8, 8, 8, 0), mat(dtype.F32, 8, 8, 8, 0)}, Outs: []library.Tensor{mat(dtype.F32, 8, 8, 8, 0)}}},
		{"a wider result", library.Call{Op: "matmul", Ins: []library.Tensor{bf(8, 8, 8), bf(8, 8, 8)}, Outs: []library.Tensor{mat(dtype.F32, 8, 8, 8, 0)}}},
		{"rows of 7", library.Call{Op: "matmul", Ins: []library.Tensor{bf(8, 7, 7), bf(7, 8, 8)}, Outs: []library.Tensor{bf(8, 8, 8)}}},
		{"an odd address", library.Call{Op: "matmul", Ins: []library.Tensor{mat(dtype.BF16, 8, 8, 8, 4098), bf(8, 8, 8)}, Outs: []library.Tensor{bf(8, 8, 8)}}},
		{"sums of nothing", library.Call{Op: "matmul", Ins: []library.Tensor{bf(8, 0, 8), bf(0, 8, 8)}, Outs: []library.Tensor{bf(8, 8, 8)}}},
	} {
		if _, err := b.lib.Plan(&c.call); !errors.Is(err, library.ErrNotServed) {
			t.Errorf("%s: %v", c.what, err)
		}
	}
}

// Another architecture has no wgmma.
func TestOtherDevices(t *testing.T) {
	for _, info := range []driver.DeviceInfo{{Major: 8}, {Major: 10}} {
		if _, err := Open(fake.New(1), 0, info, nil); !errors.Is(err, library.ErrUnavailable) {
			t.Errorf("%d.%d: %v", info.Major, info.Minor, err)
		}
	}
}

// What the driver refuses is an error of the plan.
func TestRefused(t *testing.T) {
	b := newBench(t)
	if *onGPU {
		t.Skip("the fake driver fails on request")
	}
	host := b.drv.(*fake.Driver)
	s := shape{1, 128, 64, 64, false, false, 0, dtype.BF16}
	a, _ := s.tensor(128, 64, false)
	w, _ := s.tensor(64, 64, false)
	images, err := kernels.NewSet()
	if err != nil {
		t.Fatal(err)
	}
	for n, refused := 1, 0; ; n++ {
		lib, err := Open(b.drv, b.ctx, driver.DeviceInfo{Major: 9, SMs: 4}, images)
		if err != nil {
			t.Fatal(err)
		}
		host.FailCall(n, fmt.Errorf("call %d", n))
		_, err = lib.Plan(&library.Call{Op: "matmul", Ins: []library.Tensor{a, w}, Outs: []library.Tensor{a}})
		if err == nil {
			_, err = lib.PlanGather(gatherCall())
		}
		calls := host.Calls()
		host.FailCall(0, nil)
		if err := lib.Close(); err != nil {
			t.Errorf("call %d: close: %v", n, err)
		}
		if calls < n {
			if err != nil || refused < 13 {
				t.Errorf("%d calls, %d refused: %v", calls, refused, err)
			}
			break
		}
		if err != nil {
			refused++
		}
	}
}

// gatherCall is a matmul of two ranks' rows, and the arguments of rank 1.
func gatherCall() (*library.Call, *kernels.Args) {
	mat := func(rows, cols int64, at driver.Ptr) library.Tensor {
		return library.Tensor{At: at, DType: dtype.BF16, Shape: []int64{rows, cols}, Strides: []int64{cols, 1}}
	}
	return &library.Call{Op: "all_gather_matmul", Ins: []library.Tensor{mat(32, 64, 4096), mat(64, 64, 8192)}, Outs: []library.Tensor{mat(64, 64, 16384), mat(64, 64, 32768)}},
		&kernels.Args{N: 2, Rank: 1}
}

// Of matmuls that gather, those are left to a gather and a matmul whose rows are not contiguous.
func TestGatherNotServed(t *testing.T) {
	b := newBench(t)
	for _, c := range []struct {
		what   string
		change func(c *library.Call)
	}{
		{"a matmul", func(c *library.Call) { c.Outs = c.Outs[1:] }},
		{"columns", func(c *library.Call) { c.Outs[0].Strides = []int64{1, 64} }},
		{"gaps", func(c *library.Call) { c.Outs[0].Strides = []int64{72, 1} }},
		{"own rows with gaps", func(c *library.Call) { c.Ins[0].Strides = []int64{72, 1} }},
		{"own rows of another number", func(c *library.Call) { c.Ins[0].Shape = []int64{16, 64} }},
		{"own rows of another type", func(c *library.Call) { c.Ins[0].DType = dtype.F16 }},
		{"own rows at an odd address", func(c *library.Call) { c.Ins[0].At += 8 }},
		{"a result in columns", func(c *library.Call) { c.Outs[1].Strides = []int64{1, 64} }},
		{"float32", func(c *library.Call) {
			for i := range 2 {
				c.Ins[i].DType, c.Outs[i].DType = dtype.F32, dtype.F32
			}
		}},
	} {
		call, args := gatherCall()
		if st, err := b.lib.PlanGather(call, args); err != nil || st.String() == "" {
			t.Fatalf("%v: %v", st, err)
		}
		c.change(call)
		if st, err := b.lib.PlanGather(call, args); !errors.Is(err, library.ErrNotServed) {
			t.Errorf("%s: %v, %v", c.what, st, err)
		}
	}
}
