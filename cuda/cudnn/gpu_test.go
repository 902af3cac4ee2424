//go:build linux && cgo && (amd64 || arm64)

package cudnn

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/seed-ee968945/concert/cuda/attention"
	"github.com/seed-ee968945/concert/cuda/driver"
	"github.com/seed-ee968945/concert/cuda/internal/drivertest"
	"github.com/seed-ee968945/concert/cuda/library"
	"github.com/seed-ee968945/concert/cuda/nvrtc"
	"github.com/seed-ee968945/concert/cuda/symm"
	"github.com/seed-ee968945/concert/internal/dtype"
	"github.com/seed-ee968945/concert/internal/hostops"
	"github.com/seed-ee968945/concert/internal/intmath"
)

var (
	onGPU   = flag.Bool("gpu", false, "run on the GPU of this machine")
	dir     = flag.String("dir", "", "folder of cuDNN")
	preload = flag.String("preload", "", "libraries to load before cuDNN, with commas between")
	repeats = flag.Int("repeats", 50, "runs that must agree bit by bit")
	fast    = flag.Bool("fast", false, "also try engines that are not reproducible")
	rtc     = flag.String("nvrtc", "", "path of the runtime compiler")
)

// layout is how a tensor [b, h, n, d] is in memory.
type layout int

const (
	dense   layout = iota // b, h, n, d
	swapped               // b, n, h, d: a permuted view of a projection's result
	spread                // rows with 8 elements between them
)

// gpuCase is one shape; styles are the layouts of q, k, v, out, grad, dq, dk and dv.
type gpuCase struct {
	name              string
	b, h, hk, s, t, d int64
	causal, backward  bool
	scale             float64 // 0 is the default
	styles            [8]layout
	typ               dtype.DType
	timed             bool
}

func cases() []gpuCase {
	one := func(l layout) (s [8]layout) {
		for i := range s {
			s[i] = l
		}
		return s
	}
	mixed := [8]layout{dense, swapped, spread, swapped, swapped, swapped, dense, spread}
	bf := dtype.BF16
	return []gpuCase{
		{"32x2048", 1, 32, 32, 2048, 2048, 128, true, true, 0, one(dense), bf, true},
		{"32x2048/swapped", 1, 32, 32, 2048, 2048, 128, true, true, 0, one(swapped), bf, true},
		{"8x2048", 1, 8, 8, 2048, 2048, 128, true, true, 0, one(dense), bf, true},
		{"8x2048/full", 1, 8, 8, 2048, 2048, 128, false, true, 0, one(swapped), bf, true},
		{"8x4096", 1, 8, 8, 4096, 4096, 128, true, true, 0, one(dense), bf, true},
		{"32x4096", 1, 32, 32, 4096, 4096, 128, true, true, 0, one(swapped), bf, true},
		{"4x8192", 1, 4, 4, 8192, 8192, 128, true, false, 0, one(dense), bf, true},
		{"chunk/256x4096", 1, 8, 8, 256, 4096, 128, false, true, 0, one(dense), bf, true},
		{"8x16/full", 1, 8, 8, 16, 16, 128, false, true, 0, one(dense), bf, true},
		{"8x2048/mixed", 1, 8, 8, 2048, 2048, 128, true, true, 0, mixed, bf, false},
		{"tiny", 1, 4, 4, 32, 32, 16, true, true, 0, one(dense), bf, false},
		{"tiny/full", 2, 4, 4, 32, 32, 16, false, true, 0.3, mixed, bf, false},
		{"odd", 2, 3, 3, 77, 77, 64, true, true, 0, mixed, bf, false},
		{"odd/full", 1, 2, 2, 70, 201, 40, false, true, 0, one(swapped), bf, false},
		{"decode", 2, 8, 8, 1, 300, 128, false, false, 0, one(dense), bf, false},
		{"grouped", 1, 8, 2, 256, 256, 64, true, true, 0, mixed, bf, false},
		{"f16", 1, 4, 4, 256, 256, 64, true, true, 0, one(dense), dtype.F16, false},
		{"f32", 1, 4, 2, 70, 90, 64, true, true, 0, one(swapped), dtype.F32, false},
		{"8x16/f32", 1, 8, 8, 16, 16, 128, true, true, 0, one(dense), dtype.F32, true},
		{"8x16", 1, 8, 8, 16, 16, 128, true, true, 0, one(swapped), bf, true},
		{"32x16", 1, 32, 8, 16, 16, 128, true, true, 0, one(swapped), bf, true},
		{"8x32", 1, 8, 8, 32, 32, 128, true, true, 0, one(dense), bf, true},
		{"8x64", 1, 8, 8, 64, 64, 128, true, true, 0, one(dense), bf, true},
		{"8x128", 1, 8, 8, 128, 128, 128, true, true, 0, one(dense), bf, true},
		{"8x256", 1, 8, 8, 256, 256, 128, true, true, 0, one(dense), bf, true},
		{"8x512", 1, 8, 8, 512, 512, 128, true, true, 0, one(dense), bf, true},
		{"64*8x64", 64, 8, 8, 64, 64, 128, true, true, 0, one(dense), bf, true},
		{"64*8x16", 64, 8, 8, 16, 16, 128, true, true, 0, one(dense), bf, true},
		{"4*8x16x64", 4, 8, 8, 16, 16, 64, false, true, 0, one(swapped), bf, true},
		{"decode/128", 1, 32, 8, 1, 128, 128, false, false, 0, one(dense), bf, true},
		{"decode/512", 1, 32, 8, 1, 512, 128, false, false, 0, one(dense), bf, true},
		{"chunk/16x512", 1, 8, 8, 16, 512, 128, false, false, 0, one(dense), bf, true},
		{"chunk/64x256", 1, 8, 8, 64, 256, 128, false, false, 0, one(dense), bf, true},
	}
}

// limit is the relative error allowed in the output.
func (c *gpuCase) limit() float64 {
	if c.typ == dtype.F32 {
		return 1e-5
	}
	return 8e-3
}

// gpu is the device for a test; what its cases do there they do one after the other, as
// memory is measured and kernels are timed.
type gpu struct {
	drv  driver.Driver
	rank *symm.Rank
	s    driver.Stream
	rng  *rand.Rand
	mu   *sync.Mutex // held where the device is used
}

// placed is a tensor on the device, with a host copy of all its memory.
type placed struct {
	library.Tensor
	bytes []byte
}

// strides are those of a shape of four sizes.
func (l layout) strides(shape []int64) []int64 {
	h, s, d := shape[1], shape[2], shape[3]
	switch l {
	case swapped:
		return []int64{s * h * d, d, h * d, 1}
	case spread:
		return []int64{h * s * (d + 8), s * (d + 8), d + 8, 1}
	}
	return packed(shape)
}

func (g *gpu) place(t *testing.T, typ dtype.DType, l layout, amount float64, shape ...int64) *placed {
	p := &placed{Tensor: library.Tensor{DType: typ, Shape: shape, Strides: packed(shape)}}
	n := intmath.Product(shape)
	if len(shape) == 4 {
		p.Strides = l.strides(shape)
		if l == spread {
			n = shape[0] * p.Strides[0]
		}
	}
	p.bytes = make([]byte, n*int64(typ.Size()))
	if typ.IsFloat() && amount != 0 {
		for i := range n {
			dtype.StoreFloat(typ, p.bytes[i*int64(typ.Size()):], amount*g.rng.NormFloat64())
		}
	} else {
		for i := range p.bytes {
			p.bytes[i] = 0x7e // what a kernel must overwrite
		}
	}
	return g.alloc(t, p)
}

// alloc gives a tensor memory, with its bytes.
func (g *gpu) alloc(t *testing.T, p *placed) *placed {
	t.Helper()
	g.mu.Lock()
	defer g.mu.Unlock()
	at, err := g.drv.MemAlloc(g.rank.Ctx, uint64(len(p.bytes))+256)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		g.mu.Lock()
		defer g.mu.Unlock()
		g.drv.MemFree(g.rank.Ctx, at)
	})
	p.At = at
	g.upload(t, p)
	return p
}

func (g *gpu) upload(t *testing.T, p *placed) {
	if err := g.drv.CopyIn(g.rank.Ctx, g.s, p.At, p.bytes); err != nil {
		t.Fatal(err)
	}
}

// download reads a tensor into memory of its size.
func (g *gpu) download(t *testing.T, p *placed, b []byte) []byte {
	if err := g.drv.CopyOut(g.rank.Ctx, g.s, b, p.At); err != nil {
		t.Fatal(err)
	}
	return b
}

// heads views heads [lo, hi) of batch b of a downloaded tensor.
func heads(p *placed, data []byte, b, lo, hi int64) hostops.Tensor {
	shape := slices.Clone(p.Shape)
	shape[0], shape[1] = 1, hi-lo
	return hostops.Tensor{DType: p.DType, Shape: shape, Strides: p.Strides, Offset: b*p.Strides[0] + lo*p.Strides[1], Data: data}
}

// distance is |x - want| / |want| in the 2-norm.
func distance(x, want hostops.Tensor) float64 {
	var diff, size float64
	n := intmath.Product(want.Shape)
	for i := range n {
		at := func(t hostops.Tensor) float64 {
			off, r := t.Offset, i
			for k := len(t.Shape) - 1; k >= 0; k-- {
				off += r % t.Shape[k] * t.Strides[k]
				r /= t.Shape[k]
			}
			return dtype.LoadFloat(t.DType, t.Data[off*int64(t.DType.Size()):])
		}
		a, w := at(x), at(want)
		diff += (a - w) * (a - w)
		size += w * w
	}
	return math.Sqrt(diff / size)
}

// run runs a step once.
func (g *gpu) run(t *testing.T, s library.Step) {
	t.Helper()
	var c driver.Commands
	s.AddTo(&c)
	if err := g.drv.Run(g.rank.Ctx, c.On(g.s)); err != nil {
		t.Fatalf("%v: %v", s, err)
	}
	if err := g.drv.StreamSync(g.rank.Ctx, g.s); err != nil {
		t.Fatalf("%v: %v", s, err)
	}
}

// capture captures n runs of a step as a graph.
func (g *gpu) capture(t *testing.T, s library.Step, n int) driver.Exec {
	t.Helper()
	var c driver.Commands
	for range n {
		s.AddTo(&c)
	}
	if err := g.drv.CaptureBegin(g.rank.Ctx, g.s); err != nil {
		t.Fatal(err)
	}
	err := g.drv.Run(g.rank.Ctx, c.On(g.s))
	gr, end := g.drv.CaptureEnd(g.rank.Ctx, g.s)
	if err := errors.Join(err, end); err != nil {
		t.Fatalf("%v cannot be captured: %v", s, err)
	}
	x, err := g.drv.GraphInstantiate(g.rank.Ctx, gr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		g.mu.Lock()
		defer g.mu.Unlock()
		g.drv.ExecDestroy(g.rank.Ctx, x)
		g.drv.GraphDestroy(g.rank.Ctx, gr)
	})
	return x
}

// milliseconds is the time of one run of a step, the median of five graphs of ten.
func (g *gpu) milliseconds(t *testing.T, s library.Step) float64 {
	const n = 10
	x := g.capture(t, s, n)
	a, err := g.drv.EventCreate(g.rank.Ctx, true)
	b, err2 := g.drv.EventCreate(g.rank.Ctx, true)
	if err := errors.Join(err, err2); err != nil {
		t.Fatal(err)
	}
	var ms []float64
	for range 6 {
		err := errors.Join(g.drv.EventRecord(g.rank.Ctx, a, g.s), g.drv.GraphLaunch(g.rank.Ctx, x, g.s),
			g.drv.EventRecord(g.rank.Ctx, b, g.s), g.drv.StreamSync(g.rank.Ctx, g.s))
		if err != nil {
			t.Fatal(err)
		}
		e, err := g.drv.EventElapsed(g.rank.Ctx, a, b)
		if err != nil {
			t.Fatal(err)
		}
		ms = append(ms, float64(e)/n)
	}
	ms = ms[1:]
	slices.Sort(ms)
	return ms[len(ms)/2]
}

// check runs a step eagerly and from a graph until repeats runs have been compared bit
// by bit.
func (g *gpu) check(t *testing.T, s library.Step, results ...*placed) (data [][]byte, differ int) {
	t.Helper()
	g.mu.Lock()
	defer g.mu.Unlock()
	most := 0
	for _, r := range results {
		most = max(most, len(r.bytes))
	}
	// Copies to page-locked memory take a fraction of the time.
	at, _, err := g.drv.HostAlloc(g.rank.Ctx, uint64(most))
	if err != nil {
		t.Fatal(err)
	}
	defer g.drv.HostFree(g.rank.Ctx, at)
	locked := driver.HostBytes(driver.Ptr(at), uint64(most))
	free, _, _ := g.drv.MemInfo(g.rank.Ctx)
	g.run(t, s)
	if after, _, _ := g.drv.MemInfo(g.rank.Ctx); after < free {
		t.Errorf("%v: the first run took %d KiB of the device", s, (free-after)>>10)
	}
	for _, r := range results {
		data = append(data, g.download(t, r, make([]byte, len(r.bytes))))
	}
	x := g.capture(t, s, 1)
	for range *repeats {
		if err := errors.Join(g.drv.GraphLaunch(g.rank.Ctx, x, g.s), g.drv.StreamSync(g.rank.Ctx, g.s)); err != nil {
			t.Fatal(err)
		}
		same := true
		for i, r := range results {
			same = same && bytes.Equal(data[i], g.download(t, r, locked[:len(r.bytes)]))
		}
		if !same {
			differ++
		}
	}
	return data, differ
}

// form is one implementation under test.
type form struct {
	name  string
	lib   library.Library
	exact bool
}

func openGPU(t *testing.T) *gpu {
	t.Helper()
	drv, infos := drivertest.GPUs(t, *onGPU, 1)
	ctx, err := drv.CtxRetain(0)
	if err != nil {
		t.Fatal(err)
	}
	s, err := drv.StreamCreate(ctx)
	if err != nil {
		t.Fatal(err)
	}
	return &gpu{drv: drv, rank: &symm.Rank{Ctx: ctx, Info: infos[0]}, s: s, rng: rand.New(rand.NewPCG(1, 2)), mu: new(sync.Mutex)}
}

func TestGPU(t *testing.T) {
	g := openGPU(t)
	forms := g.forms(t)
	space, err := g.drv.MemAlloc(g.rank.Ctx, workspace)
	if err != nil {
		t.Fatal(err)
	}
	for i, c := range cases() {
		for _, f := range forms {
			t.Run(c.name+"/"+f.name, func(t *testing.T) {
				t.Parallel() // the host's part takes longest
				g := *g
				g.rng = rand.New(rand.NewPCG(1, uint64(i)))
				g.test(t, c, f, space)
			})
		}
	}
}

const workspace = 2 << 30 // cuDNN's backward pass takes 1 GiB for 32 heads of 4096

// forms opens what can be opened.
func (g *gpu) forms(t *testing.T) []form {
	var fs []form
	compiler, err := nvrtc.Open(*rtc, "")
	if err != nil {
		t.Error(err)
	} else {
		g.warm(t, compiler)
		own, err := attention.Open(g.drv, g.rank, attention.Options{Compile: func(name, source string, options ...string) ([]byte, error) {
			from := time.Now()
			image, _, err := compiler.Compile(name, source, append(options, nvrtc.Arch(g.rank.Info.Major, g.rank.Info.Minor)))
			if err == nil {
				fmt.Printf("BUILD %s in %v, %s, %s\n", name, time.Since(from).Round(time.Millisecond), strings.ReplaceAll(source[:strings.Index(source, "//")], "\n", " "), resources(image))
			}
			return image, err
		}})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := own.Close(); err != nil {
				t.Error(err)
			}
		})
		fs = append(fs, form{"own", own, true})
	}
	for _, fast := range []bool{false, true}[:map[bool]int{false: 1, true: 2}[*fast]] {
		l := g.open(t, fast)
		fs = append(fs, form{map[bool]string{false: "exact", true: "fast"}[fast], l, !fast})
	}
	return fs
}

// open opens cuDNN.
func (g *gpu) open(t *testing.T, fast bool) *Library {
	t.Helper()
	o := Options{Dir: *dir, Fast: fast}
	if compiler, err := nvrtc.Open(*rtc, ""); err != nil {
		t.Error(err)
	} else {
		o.Compile = func(name, source string, options ...string) ([]byte, error) {
			image, _, err := compiler.Compile(name, source, append(options, nvrtc.Arch(g.rank.Info.Major, g.rank.Info.Minor)))
			return image, err
		}
	}
	if *preload != "" {
		o.Preload = strings.Split(*preload, ",")
	}
	free, _, _ := g.drv.MemInfo(g.rank.Ctx)
	from := time.Now()
	l, err := Open(g.drv, g.rank, o)
	if err != nil {
		t.Fatalf("cuDNN: %v", err)
	}
	after, _, _ := g.drv.MemInfo(g.rank.Ctx)
	t.Logf("cuDNN %d opened in %v, %d MiB of the device", l.Version(), time.Since(from).Round(time.Millisecond), (int64(free)-int64(after))>>20)
	t.Cleanup(func() {
		if err := l.Close(); err != nil {
			t.Error(err)
		}
	})
	return l
}
