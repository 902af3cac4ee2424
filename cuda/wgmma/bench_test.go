//go:build linux

package wgmma

import (
	"errors"
	"flag"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/seed-ee968945/concert/cuda/driver"
	"github.com/seed-ee968945/concert/cuda/library"
	"github.com/seed-ee968945/concert/cuda/lt"
	"github.com/seed-ee968945/concert/internal/dtype"
	"github.com/seed-ee968945/concert/kernels"
)

// The matmuls of the steps that BENCHMARKS.md has, but for those of few rows or columns, and
// others of their kind.
var stepShapes = func() (out []shape) {
	for _, s := range [][4]int64{ // batch, m, k, n
		{1, 2048, 4096, 1024}, {1, 2048, 4096, 14336}, {2, 2048, 4096, 14336}, {1, 2048, 4096, 3584}, {1, 2048, 1024, 4096},
		{1, 2048, 14336, 4096}, {2, 2048, 14336, 4096}, {1, 2048, 32000, 4096}, {1, 2048, 32064, 4096}, {1, 2048, 3584, 4096},
		{1, 2048, 4096, 4096}, {1, 2048, 256, 4096}, {1, 2048, 4096, 256},
	} {
		out = append(out, shape{s[0], s[1], s[2], s[3], false, false, 0, dtype.BF16}, shape{s[0], s[1], s[2], s[3], false, true, 0, dtype.BF16},
			shape{s[0], s[2], s[1], s[3], true, false, 0, dtype.BF16}) // forward, of a transposed weight, and a weight's gradient
	}
	for _, s := range [][2]int64{{2048, 2048}, {2048, 8192}, {8192, 2048}, {2048, 50304}} { // of a GPT
		out = append(out, shape{1, 8192, s[0], s[1], false, false, 0, dtype.BF16}, shape{1, 8192, s[1], s[0], false, true, 0, dtype.BF16},
			shape{1, s[0], 8192, s[1], true, false, 0, dtype.BF16})
	}
	for _, s := range [][3]int64{{512, 4096, 4096}, {1024, 8192, 7168}, {4096, 4096, 14336}, {8192, 8192, 8192}, {8192, 8192, 1280}, {8192, 3584, 8192},
		// of Llama 8B and 70B by 4: q k v, o, gate and up, down
		{2048, 4096, 1536}, {512, 4096, 1536}, {8192, 1024, 4096}, {2048, 4096, 7168}, {512, 3584, 4096},
		{2048, 8192, 2560}, {2048, 2048, 8192}, {2048, 8192, 14336}, {2048, 7168, 8192}} {
		out = append(out, shape{1, s[0], s[1], s[2], false, false, 0, dtype.BF16}, shape{1, s[0], s[1], s[2], false, true, 0, dtype.BF16})
	}
	return out
}()

// BenchmarkBesideCuBLASLt runs matmuls by turns with cuBLASLt's, random data, on operands that
// the cache does not hold from one call to the next. Its algorithms are the tuned ones where
// there is a tuning.
func BenchmarkBesideCuBLASLt(tb *testing.B) {
	b, srv, ws := besideLt(tb)
	for range tb.N {
		var logs, logsBehind, n float64
		worst, worstBehind := math.Inf(1), math.Inf(1)
		for _, s := range stepShapes {
			ratio, behind, ms, name := b.beside(srv, s, ws, workspace)
			tflops := 2 * float64(s.batch*s.m*s.k) * float64(s.n) / ms / 1e9
			fmt.Printf("%d x %6d %6d %6d ta=%-5v tb=%-5v %9.1f us %5.0f TFLOP/s %.3f times cuBLASLt, behind %.3f, %s\n", s.batch, s.m, s.k, s.n, s.ta, s.tb, ms*1e3, tflops, ratio, behind, name)
			logs, n, worst = logs+math.Log(ratio), n+1, min(worst, ratio)
			logsBehind, worstBehind = logsBehind+math.Log(behind), min(worstBehind, behind)
		}
		tb.ReportMetric(math.Exp(logs/n), "xcuBLASLt")
		tb.ReportMetric(worst, "xcuBLASLt-worst")
		tb.ReportMetric(math.Exp(logsBehind/n), "xcuBLASLt-behind")
		tb.ReportMetric(worstBehind, "xcuBLASLt-behind-worst")
	}
}

const workspace = 32 << 20

// besideLt opens the peer, with a workspace.
func besideLt(tb *testing.B) (*bench, *lt.Server, driver.Ptr) {
	if !*onGPU {
		tb.Skip("a benchmark of a GPU: -gpu")
	}
	b := newBench(tb)
	infos, err := b.drv.Devices()
	if err != nil {
		tb.Fatal(err)
	}
	peer, err := lt.Open(b.drv, *ltPath)
	if err != nil {
		tb.Fatal(err)
	}
	srv, err := peer.Serve(b.ctx, lt.Options{Tuning: lt.Known(infos[0].Name, peer.Version())}, lt.Config{})
	if err != nil {
		tb.Fatal(err)
	}
	ws := b.buffer(make([]byte, workspace))
	tb.Cleanup(func() {
		if err := errors.Join(srv.Close(), b.drv.MemFree(b.ctx, ws)); err != nil {
			tb.Error(err)
		}
	})
	return b, srv, ws
}

// beside gives how many times as fast as the peer a matmul is, begun as the one in front ends and
// behind it, and its time in milliseconds: medians of rounds by turns.
func (b *bench) beside(srv *lt.Server, s shape, ws driver.Ptr, workspace uint64) (ratio, behind, ms float64, name string) {
	t := b.byTurns(s, ws, workspace, 7, 30, []planner{srv.Plan, b.lib.planBehind, b.lib.Plan}, &name)
	return t[0] / t[2], t[0] / t[1], t[2], name
}

type planner func(*library.Call) (library.Step, error)

// byTurns gives the milliseconds that each planner's step takes, medians of rounds by turns
// behind one that warms up, of so many milliseconds together. All must give what the first gives, and
// the last its name.
func (b *bench) byTurns(s shape, ws driver.Ptr, workspace uint64, rounds int, total float64, plans []planner, name *string) []float64 {
	a, na := s.tensor(s.m, s.k, s.ta)
	w, nw := s.tensor(s.k, s.n, s.tb)
	o, no := s.tensor(s.m, s.n, false)
	sets := int(min(8, 160_000_000/(2*(na+nw+no))+1))
	lists := make([][]driver.Commands, len(plans))
	var memory []driver.Ptr
	rng := rand.New(rand.NewPCG(7, 8))
	noise := random(rng, s.d, 1<<20)
	fill := func(elems int64) driver.Ptr {
		p, err := b.drv.MemAlloc(b.ctx, uint64(2*elems))
		for at := int64(0); at < 2*elems && err == nil; at += int64(len(noise)) {
			err = b.drv.CopyIn(b.ctx, b.s, p+driver.Ptr(at), noise[:min(int64(len(noise)), 2*elems-at)])
		}
		if err != nil {
			b.t.Fatal(err)
		}
		memory = append(memory, p)
		return p
	}
	for set := range sets {
		a.At, w.At, o.At = fill(na), fill(nw), fill(no)
		c := &library.Call{Op: "matmul", Ins: []library.Tensor{a, w}, Outs: []library.Tensor{o}, Workspace: ws, WorkspaceBytes: workspace}
		var want []byte
		for i, plan := range plans {
			st, err := plan(c)
			if err != nil {
				b.t.Fatal(err)
			}
			*name = st.String()
			var cmds driver.Commands
			st.AddTo(&cmds)
			lists[i] = append(lists[i], cmds)
			if set == 0 {
				got := b.result(&cmds, o.At, no)
				if want == nil {
					want = got
				}
				if err := alike(s, got, want); err != nil {
					b.t.Errorf("%+v by %v: %v", s, st, err)
				}
			}
		}
	}
	out := make([]float64, len(plans))
	t := make([][]float64, len(plans))
	n := make([]int, len(plans))
	for round := range rounds + 1 {
		for i, list := range lists {
			one := b.time(list, max(n[i], sets))
			if n[i] == 0 {
				n[i] = int(max(4, min(total*40/3, total/float64(rounds)/one)))
			}
			if round > 0 {
				t[i] = append(t[i], one)
			}
		}
	}
	for _, p := range memory {
		if err := b.drv.MemFree(b.ctx, p); err != nil {
			b.t.Fatal(err)
		}
	}
	for i := range t {
		slices.Sort(t[i])
		out[i] = t[i][rounds/2]
	}
	return out
}

// result runs commands over poison and gives the ends of what they wrote.
func (b *bench) result(cmds *driver.Commands, at driver.Ptr, elems int64) []byte {
	const end = 1 << 20
	out := make([]byte, min(2*elems, 2*end))
	err := errors.Join(b.drv.Memset32(b.ctx, b.s, at, 0x7fff7fff, uint64(elems/2)), b.drv.Run(b.ctx, cmds.On(b.s)), b.drv.StreamSync(b.ctx, b.s),
		b.drv.CopyOut(b.ctx, b.s, out, at))
	if err == nil && 2*elems > 2*end {
		err = b.drv.CopyOut(b.ctx, b.s, out[end:], at+driver.Ptr(2*elems-end))
	}
	if err != nil {
		b.t.Fatal(err)
	}
	return out
}

// alike compares results of the same matmul by two kernels, whose sums differ in float32.
func alike(s shape, got, want []byte) error {
	noise := 4 * 0x1p-23 * math.Pow(float64(s.k), 1.5)
	for i := 0; i < len(got); i += 2 {
		g, w := dtype.LoadFloat(s.d, got[i:]), dtype.LoadFloat(s.d, want[i:])
		if same := got[i] == want[i] && got[i+1] == want[i+1]; !same && !(math.Abs(g-w) <= math.Abs(w)/64+noise) {
			return fmt.Errorf("element %d is %g, %g by the first", i/2, g, w)
		}
	}
	return nil
}

var (
	only = flag.String("tiles", "", "tiles that BenchmarkTiles may use, with commas")
	from = flag.Int("from", 0, "the first shape of BenchmarkTiles")
	to   = flag.Int("to", len(stepShapes), "the shape in front of which BenchmarkTiles ends")
)

// BenchmarkTiles times every tile that may be the best for a shape beside cuBLASLt.
func BenchmarkTiles(tb *testing.B) {
	b, srv, ws := besideLt(tb)
	for _, s := range stepShapes[*from:*to] {
		p := kernels.MatmulShape{DType: s.d, M: s.m, N: s.n, K: s.k, Batch: s.batch, TransA: s.ta, TransB: s.tb}
		tiles := slices.DeleteFunc(kernels.MatmulTiles(), func(t kernels.MatmulTile) bool {
			return *only != "" && !slices.Contains(strings.Split(*only, ","), t.String())
		})
		least := math.Inf(1)
		for _, t := range tiles {
			least = min(least, p.Time(t, b.sms))
		}
		plans, names := []planner{srv.Plan}, []string{"cublaslt"}
		add := func(t kernels.MatmulTile, early bool) {
			names = append(names, fmt.Sprintf("%v band=16 early=%v", t, early))
			plans = append(plans, func(c *library.Call) (library.Step, error) {
				b.lib.Early = early
				return b.lib.planTile(c, t)
			})
		}
		for _, t := range tiles {
			if p.Time(t, b.sms) <= 1.4*least {
				add(t, true)
			}
		}
		var name string
		ms := b.byTurns(s, ws, workspace, 5, 30, plans, &name)
		for i, t := range ms {
			fmt.Printf("tile %d %d %d %d %v %v us=%.2f x=%.3f %s\n", s.batch, s.m, s.k, s.n, s.ta, s.tb, t*1e3, ms[0]/t, names[i])
		}
	}
}

// BenchmarkSustained times algorithms of cuBLASLt and tiles for a tenth of a second each: power limits
// them then, as it limits a step, and what takes least energy is fastest, which need not be what wins in short turns.
func BenchmarkSustained(tb *testing.B) {
	b, srv, ws := besideLt(tb)
	h := srv.Handle()
	if err := h.Reserve(b.s); err != nil {
		tb.Fatal(err)
	}
	for _, s := range stepShapes[*from:*to] {
		plans, names := []planner{srv.Plan}, []string{"chosen"}
		a, _ := s.tensor(s.m, s.k, s.ta)
		w, _ := s.tensor(s.k, s.n, s.tb)
		o, _ := s.tensor(s.m, s.n, false)
		p, err := lt.ProblemOfCall(&library.Call{Op: "matmul", Ins: []library.Tensor{a, w}, Outs: []library.Tensor{o}}, lt.Config{})
		if err != nil {
			tb.Fatal(err)
		}
		algos, err := h.Candidates(p, 8, 0, b.sms)
		if err != nil {
			tb.Fatal(err)
		}
		for _, algo := range algos {
			names = append(names, algo.String())
			plans = append(plans, func(c *library.Call) (library.Step, error) {
				l, err := h.PlanWith(p, algo)
				return &fixed{b, l, c}, err
			})
		}
		for _, t := range kernels.MatmulTiles() {
			if *only != "" && slices.Contains(strings.Split(*only, ","), t.String()) {
				names = append(names, t.String())
				plans = append(plans, func(c *library.Call) (library.Step, error) { return b.lib.planTile(c, t) })
			}
		}
		var name string
		ms := b.byTurns(s, ws, workspace, 2, 200, plans, &name)
		for i, t := range ms {
			fmt.Printf("sustained %d %d %d %d %v %v us=%.2f x=%.3f %s\n", s.batch, s.m, s.k, s.n, s.ta, s.tb, t*1e3, ms[0]/t, names[i])
		}
	}
}

// fixed is a call by one of cuBLASLt's algorithms.
type fixed struct {
	b *bench
	l *lt.Plan
	c *library.Call
}

func (f *fixed) AddTo(c *driver.Commands) {
	if err := f.l.AddTo(c, f.b.s, f.c.Ins[0].At, f.c.Ins[1].At, f.c.Outs[0].At); err != nil {
		f.b.t.Fatal(err)
	}
}

func (f *fixed) String() string { return "cublaslt" }

// time runs the lists in turn n times and gives milliseconds a run.
func (b *bench) time(list []driver.Commands, n int) float64 {
	from, err1 := b.drv.EventCreate(b.ctx, true)
	to, err2 := b.drv.EventCreate(b.ctx, true)
	var all driver.Commands
	all.Record(driver.Main, from)
	for i := range n {
		all.Append(&list[i%len(list)])
	}
	all.Record(driver.Main, to)
	err := errors.Join(err1, err2, b.drv.Run(b.ctx, all.On(b.s)), b.drv.StreamSync(b.ctx, b.s))
	ms, err3 := b.drv.EventElapsed(b.ctx, from, to)
	if err := errors.Join(err, err3, b.drv.EventDestroy(b.ctx, from), b.drv.EventDestroy(b.ctx, to)); err != nil {
		b.t.Fatal(err)
	}
	return float64(ms) / float64(n)
}
