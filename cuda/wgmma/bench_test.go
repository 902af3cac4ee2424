//go:build linux

package wgmma

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/seed-ee968945/concert/cuda/driver"
	"github.com/seed-ee968945/concert/cuda/library"
	"github.com/seed-ee968945/concert/cuda/lt"
	"github.com/seed-ee968945/concert/internal/dtype"
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
	for _, s := range [][3]int64{{512, 4096, 4096}, {1024, 8192, 7168}, {4096, 4096, 14336}, {8192, 8192, 8192}, {8192, 8192, 1280}, {8192, 3584, 8192}} {
		out = append(out, shape{1, s[0], s[1], s[2], false, false, 0, dtype.BF16}, shape{1, s[0], s[1], s[2], false, true, 0, dtype.BF16})
	}
	return out
}()

// BenchmarkBesideCuBLASLt runs matmuls by turns with cuBLASLt's, random data, on operands that
// the cache does not hold from one call to the next. Its algorithms are the tuned ones where
// there is a tuning.
func BenchmarkBesideCuBLASLt(tb *testing.B) {
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
	defer func() {
		if err := srv.Close(); err != nil {
			tb.Error(err)
		}
	}()
	const workspace = 32 << 20
	ws := b.buffer(make([]byte, workspace))
	for range tb.N {
		var logs, n float64
		worst := math.Inf(1)
		for _, s := range stepShapes {
			ratio, ms, name := b.beside(srv, s, ws, workspace)
			tflops := 2 * float64(s.batch*s.m*s.k) * float64(s.n) / ms / 1e9
			fmt.Printf("%d x %6d %6d %6d ta=%-5v tb=%-5v %9.1f us %5.0f TFLOP/s %.3f times cuBLASLt %s\n", s.batch, s.m, s.k, s.n, s.ta, s.tb, ms*1e3, tflops, ratio, name)
			logs, n, worst = logs+math.Log(ratio), n+1, min(worst, ratio)
		}
		tb.ReportMetric(math.Exp(logs/n), "xcuBLASLt")
		tb.ReportMetric(worst, "xcuBLASLt-worst")
	}
	if err := b.drv.MemFree(b.ctx, ws); err != nil {
		tb.Fatal(err)
	}
}

// beside gives how many times as fast as the peer a matmul is, and its time in milliseconds:
// medians of rounds by turns.
func (b *bench) beside(srv *lt.Server, s shape, ws driver.Ptr, workspace uint64) (ratio, ms float64, name string) {
	a, na := s.tensor(s.m, s.k, s.ta)
	w, nw := s.tensor(s.k, s.n, s.tb)
	o, no := s.tensor(s.m, s.n, false)
	sets := int(min(8, 160_000_000/(2*(na+nw+no))+1))
	var ours, theirs []driver.Commands
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
	for range sets {
		a.At, w.At, o.At = fill(na), fill(nw), fill(no)
		c := &library.Call{Op: "matmul", Ins: []library.Tensor{a, w}, Outs: []library.Tensor{o}, Workspace: ws, WorkspaceBytes: workspace}
		for _, l := range []struct {
			lib library.Library
			to  *[]driver.Commands
		}{{b.lib, &ours}, {srv, &theirs}} {
			st, err := l.lib.Plan(c)
			if err != nil {
				b.t.Fatal(err)
			}
			if l.to == &ours {
				name = st.String()
			}
			var cmds driver.Commands
			st.AddTo(&cmds)
			*l.to = append(*l.to, cmds)
		}
	}
	var t [2][]float64
	n := 0
	for round := range 8 { // the first warms up
		for i, list := range [][]driver.Commands{theirs, ours} {
			one := b.time(list, max(n, sets))
			if n == 0 {
				n = int(max(4, min(400, 4/one)))
			}
			if round > 0 {
				t[i] = append(t[i], one)
			}
		}
	}
	for i := range t {
		slices.Sort(t[i])
	}
	for _, p := range memory {
		if err := b.drv.MemFree(b.ctx, p); err != nil {
			b.t.Fatal(err)
		}
	}
	half := len(t[0]) / 2
	return t[0][half] / t[1][half], t[1][half], name
}

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
