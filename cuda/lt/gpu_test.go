//go:build linux

package lt

import (
	"encoding/binary"
	"flag"
	"math"
	"math/rand/v2"
	"sync"
	"testing"

	"github.com/seed-ee968945/concert/cuda/driver"
	"github.com/seed-ee968945/concert/internal/dtype"
)

var layerFlag = flag.Bool("layer", false, "with -gpu, tune and time a layer of a model of 8 billion weights, too")

// Kernels that only the tests use: random operands, and products summed one by one.
const testKernels = `
typedef unsigned short u16; typedef unsigned int u32; typedef unsigned long long u64;
static __device__ float wide(u16 v) { return __uint_as_float((u32)v << 16); }
// Sums of four random bytes: about normal, of unit variance.
extern "C" __global__ void fill(u16 *p, u64 n, u64 seed)
{
	for (u64 i = blockIdx.x * (u64)blockDim.x + threadIdx.x; i < n; i += (u64)gridDim.x * blockDim.x) {
		u64 x = (i + 1) * 0x9e3779b97f4a7c15ull + seed;
		x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9ull;
		x = (x ^ x >> 27) * 0x94d049bb133111ebull;
		u32 y = (u32)(x >> 32);
		float f = ((float)(y & 255) + (float)(y >> 8 & 255) + (float)(y >> 16 & 255) + (float)(y >> 24) - 510.f) * (1.f / 147.8f);
		p[i] = (u16)(__float_as_uint(f) >> 16);
	}
}
struct problem { const u16 *a, *b; const u16 *out; double *sums; long long m, n, k, sa[3], sb[3], so[3]; u64 count, seed; long long batch; };
// Block i checks one element: the exact sum, the sum of magnitudes, and what is there.
extern "C" __global__ void sample(problem p)
{
	__shared__ double part[2][128];
	u64 total = p.batch * p.m * p.n;
	for (u64 i = blockIdx.x; i < p.count; i += gridDim.x) {
		u64 x = p.count == total ? i : (i * 0x9e3779b97f4a7c15ull + p.seed) % total;
		long long c = x % p.n, r = x / p.n % p.m, z = x / p.n / p.m;
		double s = 0, t = 0;
		for (long long k = threadIdx.x; k < p.k; k += 128) {
			double v = (double)wide(p.a[z * p.sa[0] + r * p.sa[1] + k * p.sa[2]]) * wide(p.b[z * p.sb[0] + k * p.sb[1] + c * p.sb[2]]);
			s += v;
			t += v * v;
		}
		part[0][threadIdx.x] = s;
		part[1][threadIdx.x] = t;
		__syncthreads();
		if (threadIdx.x == 0) {
			s = t = 0;
			for (int j = 0; j < 128; j++) {
				s += part[0][j];
				t += part[1][j];
			}
			p.sums[3 * i] = s;
			p.sums[3 * i + 1] = t;
			p.sums[3 * i + 2] = wide(p.out[z * p.so[0] + r * p.so[1] + c * p.so[2]]);
		}
		__syncthreads();
	}
}
`

// gpuBench adds the test kernels and a large pool of random numbers.
type gpuBench struct {
	*bench
	fill, sample driver.Func
	sums         driver.Ptr
	in, out      driver.Ptr // pools
	inBytes      uint64
	outBytes     uint64
}

const maxSamples = 1 << 16

func newGPUBench(t *testing.T, inBytes, outBytes uint64) *gpuBench {
	if !*onGPU {
		t.Skip("needs -gpu")
	}
	g := &gpuBench{bench: newBench(t, Options{}), inBytes: inBytes, outBytes: outBytes}
	image, err := compiler(t)("test.cu", testKernels)
	if err != nil {
		t.Fatal(err)
	}
	mod, err := g.drv.ModuleLoad(g.ctx, image)
	if err != nil {
		t.Fatal(err)
	}
	for name, f := range map[string]*driver.Func{"fill": &g.fill, "sample": &g.sample} {
		if *f, err = g.drv.Function(g.ctx, mod, name); err != nil {
			t.Fatal(err)
		}
	}
	for p, n := range map[*driver.Ptr]uint64{&g.sums: 24 * maxSamples, &g.in: inBytes, &g.out: outBytes} {
		if *p, err = g.drv.MemAlloc(g.ctx, n); err != nil {
			t.Fatal(err)
		}
	}
	g.random(g.in, inBytes)
	t.Cleanup(func() {
		for _, err := range []error{g.drv.MemFree(g.ctx, g.in), g.drv.MemFree(g.ctx, g.out), g.drv.MemFree(g.ctx, g.sums), g.drv.ModuleUnload(g.ctx, mod)} {
			if err != nil {
				t.Error(err)
			}
		}
	})
	return g
}

func pack(words ...uint64) []byte {
	var b []byte
	for _, w := range words {
		b = binary.LittleEndian.AppendUint64(b, w)
	}
	return b
}

func (g *gpuBench) random(p driver.Ptr, bytes uint64) {
	if err := g.drv.Launch(g.ctx, g.s, g.fill, 1056, 256, 0, pack(uint64(p), bytes/2, 7)); err != nil {
		g.t.Fatal(err)
	}
}

// poison fills the results with NaN.
func (g *gpuBench) poison(p driver.Ptr, bytes uint64) {
	if err := g.drv.Memset32(g.ctx, g.s, p, 0xffffffff, (bytes+3)/4); err != nil {
		g.t.Fatal(err)
	}
}

// maxError is what verify may find for sums of k products: rounding to bf16 gives up to
// 1, sums in f32 little; see Problem.tolerance.
func maxError(k int64) float64 { return 1.05 + float64(k)*0x1p-18 }

// verify compares samples of a bf16 result with sums in f64. Errors are in units of
// 1/256 of the larger of the result and its standard deviation.
func (g *gpuBench) verify(a, b, o Operand, set Operands) (worst float64) {
	g.t.Helper()
	r := len(a.Shape)
	three := func(s []int64) []uint64 {
		w := []uint64{0, uint64(s[r-2]), uint64(s[r-1])}
		if r == 3 {
			w[0] = uint64(s[0])
		}
		return w
	}
	m, n, k, batch := o.Shape[r-2], o.Shape[r-1], a.Shape[r-1], int64(1)
	if r == 3 {
		batch = o.Shape[0]
	}
	count := min(uint64(m*n*batch), maxSamples)
	words := []uint64{uint64(set.A), uint64(set.B), uint64(set.Out), uint64(g.sums), uint64(m), uint64(n), uint64(k)}
	words = append(append(append(words, three(a.Strides)...), three(b.Strides)...), three(o.Strides)...)
	words = append(words, count, 12345, uint64(batch))
	if err := g.drv.Launch(g.ctx, g.s, g.sample, 1056, 128, 0, pack(words...)); err != nil {
		g.t.Fatal(err)
	}
	raw := g.read(g.sums, int(24*count))
	f := func(i uint64) float64 { return math.Float64frombits(binary.LittleEndian.Uint64(raw[8*i:])) }
	for i := range count {
		want, dev, got := f(3*i), math.Sqrt(f(3*i+1)), f(3*i+2)
		e := math.Abs(got-want) / (math.Max(math.Abs(want), dev) / 256)
		if math.IsNaN(e) {
			return math.Inf(1)
		}
		worst = max(worst, e)
	}
	return worst
}

// skinnyCase is a product with operands that fit one of our kernels.
type skinnyCase struct {
	a, b, o Operand
	p       Problem
	s       Skinny
}

// skinnyCases gives random products, and compiles their kernels side by side.
func skinnyCases(t *testing.T, count int) (cases []skinnyCase) {
	t.Helper()
	rng := rand.New(rand.NewPCG(8, 9))
	for range count {
		m := []int64{1, 3, 8, 13, 16, 16, 16, 27, 32}[rng.IntN(9)]
		n := []int64{16, 40, 256, 1000, 1024, 3586, 4096}[rng.IntN(7)]
		k := []int64{128, 256, 512, 1024, 3584, 4096, 14336}[rng.IntN(7)]
		ld := k + 8*int64(rng.IntN(2))
		c := skinnyCase{a: Operand{Type: dtype.BF16, Shape: []int64{m, k}, Strides: []int64{ld, 1}},
			b: Operand{Type: dtype.BF16, Shape: []int64{k, n}, Strides: []int64{1, ld}},
			o: Operand{Type: dtype.BF16, Shape: []int64{m, n}, Strides: []int64{n + 2*int64(rng.IntN(2)), 1}}}
		var err error
		if c.p, err = ProblemOf(c.a, c.b, c.o, Config{}); err != nil {
			t.Fatal(err)
		}
		list := skinnyKernels([]Problem{c.p}, 132, 1000)
		if len(list) == 0 {
			t.Fatalf("no kernel for %v", &c.p)
		}
		c.s = list[rng.IntN(len(list))]
		cases = append(cases, c)
	}
	compile := compiler(t)
	var wg sync.WaitGroup
	for _, c := range cases {
		wg.Go(func() {
			if _, err := compile(skinnyName+".cu", c.s.source()); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	return cases
}

// Every kernel of ours gives right results on shapes that fit it, with ragged edges.
func TestGPUSkinny(t *testing.T) {
	g := newGPUBench(t, 256<<20, 16<<20)
	for _, c := range skinnyCases(t, 60) {
		l, err := g.h.PlanWith(c.p, Algo{Skinny: c.s})
		if err != nil {
			t.Fatal(err)
		}
		set := Operands{g.in, g.in + 64<<20, g.out}
		row, n := c.o.Strides[0], c.o.Shape[1]
		span := uint64((c.o.Shape[0]-1)*row+n) * 2
		g.poison(g.out, span+4096)
		if err := l.Enqueue(g.s, set.A, set.B, set.Out); err != nil {
			t.Fatal(err)
		}
		if err := g.drv.StreamSync(g.ctx, g.s); err != nil {
			t.Fatalf("%v with %v: %v", &c.p, c.s, err)
		}
		if e := g.verify(c.a, c.b, c.o, set); e > maxError(c.a.Shape[1]) {
			t.Errorf("%v with %v: an error of %g", &c.p, c.s, e)
		}
		after := g.read(g.out, int(span+4096))
		for j := uint64(0); j < uint64(len(after)); j += 2 {
			if inside := j < span && int64(j/2)%row < n; !inside && binary.LittleEndian.Uint16(after[j:]) != 0xffff {
				t.Errorf("%v with %v: wrote element %d outside of the result", &c.p, c.s, j/2)
				break
			}
		}
	}
	t.Logf("%d kernels", len(g.h.kernels))
}

// Text forms rebuild the library's algorithms, and matmuls limited to some
// multiprocessors are right.
func TestGPUAlgorithms(t *testing.T) {
	g := newGPUBench(t, 256<<20, 64<<20)
	raw, all := 0, 0
	for _, sms := range []int{0, 100} {
		for _, mnk := range [][3]int64{{2048, 4096, 4096}, {16, 1024, 4096}, {2048, 256, 4096}, {8, 4096, 2048}, {300, 500, 264}} {
			m, n, k := mnk[0], mnk[1], mnk[2]
			a := Operand{Type: dtype.BF16, Shape: []int64{m, k}, Strides: []int64{k, 1}}
			b := Operand{Type: dtype.BF16, Shape: []int64{k, n}, Strides: []int64{1, k}}
			o := Operand{Type: dtype.BF16, Shape: []int64{m, n}, Strides: []int64{n, 1}}
			p, err := ProblemOf(a, b, o, Config{SMs: sms})
			if err != nil {
				t.Fatal(err)
			}
			list, err := g.h.Candidates(p, 16, 0, 132)
			if err != nil {
				t.Fatal(err)
			}
			set := Operands{g.in, g.in + 64<<20, g.out}
			for _, x := range list {
				all++
				if x.Raw != [8]uint64{} {
					raw++
				}
				y, err := ParseAlgo(x.String())
				if err != nil || x != y {
					t.Errorf("%v is read as %v: %v", x, y, err)
				}
				l, err := g.h.PlanWith(p, y)
				if err != nil {
					t.Errorf("%v: %v", x, err)
					continue
				}
				g.poison(g.out, uint64(2*m*n))
				if err := l.Enqueue(g.s, set.A, set.B, set.Out); err != nil {
					t.Errorf("%v: %v", x, err)
					continue
				}
				if e := g.verify(a, b, o, set); e > maxError(a.Shape[len(a.Shape)-1]) {
					t.Errorf("%v: an error of %g", x, e)
				}
			}
		}
	}
	t.Logf("%d algorithms, of which %d need the library's own form", all, raw)
}
