//go:build linux

package device_test

import (
	"strings"
	"testing"

	rt "github.com/seed-ee968945/concert/runtime"
)

// scattered is a step of some ranks: x by w is y, which a reduce_scatter takes to out. s is another sum.
type scattered struct {
	x, w, y, out, s rt.Tensor
	ranks           int64
	off             bool // it is not marked
}

func newScattered(ranks int64) scattered {
	const rows, k, n = 16, 64, 24
	return scattered{x: rt.C(0, rt.BF16, ranks*rows, k), w: rt.C(8192, rt.BF16, k, n), y: rt.C(12288, rt.BF16, ranks*rows, n),
		out: rt.C(20480, rt.BF16, rows, n), s: rt.C(24576, rt.BF16, ranks*rows, n), ranks: ranks}
}

// multiply makes the product in y.
func (g scattered) multiply(e *rt.Exec) {
	e.At("matmul").Launch("compute", "matmul", nil, rt.Ts{g.y}, rt.Ts{g.x, g.w})
}

// reduce is the reduce_scatter of y, whose end the compute stream waits for.
func (g scattered) reduce(e *rt.Exec) {
	e.Record("compute", 0)
	e.Wait("comm.tp", 0)
	e.At("scatter").Collective("comm.tp", &rt.Collective{Op: rt.ReduceScatter, Group: "tp", Reduce: "sum", InMatmul: !g.off, Outs: rt.Ts{g.out}, Ins: rt.Ts{g.y}})
	e.Record("comm.tp", 1)
	e.Wait("compute", 1)
}

func (g scattered) plain(e *rt.Exec) {
	g.multiply(e)
	g.reduce(e)
}

// sum is a collective of a group, which no rank waits for.
func (g scattered) sum(e *rt.Exec, stream, group string) {
	e.Record("compute", 2)
	e.Wait(stream, 2)
	e.At("sum").AllReduce(stream, group, "sum", rt.Ts{g.s}, rt.Ts{g.s})
	e.Record(stream, 3)
}

type scatteredStep struct {
	name string
	step func(scattered, *rt.Exec)
	over int64 // where the result is, if not apart
	off  bool
	lack int // the rank that has no such library, from 1
	want int // reduce_scatters within matmuls
	two  bool
}

func scatteredSteps() []scatteredStep {
	return []scatteredStep{
		{name: "plain", step: scattered.plain, want: 1},
		{name: "not marked", step: scattered.plain, off: true},
		{name: "a rank that cannot", step: scattered.plain, lack: 2},
		{name: "the result on the first rows", step: scattered.plain, over: 12288, want: 1},
		{name: "in turn", step: func(g scattered, e *rt.Exec) {
			g.plain(e)
			g.plain(e)
			g.plain(e)
		}, want: 3},
		{name: "something else between", step: func(g scattered, e *rt.Exec) {
			g.multiply(e)
			e.Launch("compute", "matmul", nil, rt.Ts{g.s}, rt.Ts{g.x, g.w})
			g.reduce(e)
		}},
		{name: "behind a collective of the group", step: func(g scattered, e *rt.Exec) {
			g.sum(e, "comm.tp", "tp")
			e.Wait("compute", 3)
			g.plain(e)
		}, want: 1},
		{name: "beside a collective of the group", step: func(g scattered, e *rt.Exec) {
			g.sum(e, "comm.tp", "tp")
			g.plain(e)
		}},
		{name: "beside a collective of another group", step: func(g scattered, e *rt.Exec) {
			g.sum(e, "comm.other", "other")
			g.plain(e)
			e.Wait("compute", 3)
		}, want: 1, two: true},
	}
}

// TestScatterInMatmul captures steps with a reduce_scatter of a product. It takes place within the matmul where
// the group does nothing else, on all ranks or on none, and results have the bits of the step without it.
func TestScatterInMatmul(t *testing.T) {
	symmetricOnly(t)
	const ranks = 2
	for _, c := range scatteredSteps() {
		t.Run(c.name, func(t *testing.T) {
			g := newScattered(ranks)
			g.off = c.off
			if c.over != 0 {
				g.out.Off = c.over
			}
			m := &rt.Module{Name: "scattered", World: ranks, Arena: 40960, Streams: []string{"compute", "comm.tp", "comm.other"}, Events: 4,
				Groups: []rt.Group{{Name: "tp", Ranks: [][]int{devices(ranks)}}}}
			if c.two {
				m.Groups = append(m.Groups, rt.Group{Name: "other", Ranks: [][]int{devices(ranks)}})
			}
			for _, p := range []struct {
				name string
				t    rt.Tensor
			}{{"x", g.x}, {"w", g.w}, {"s", g.s}} {
				m.Inputs = append(m.Inputs, rt.Param{Name: p.name, Tensors: rt.Ts{p.t}})
			}
			for _, p := range []struct {
				name string
				t    rt.Tensor
			}{{"out", g.out}, {"s", g.s}} {
				m.Outputs = append(m.Outputs, rt.Param{Name: p.name + "out", Tensors: rt.Ts{p.t}})
			}
			if n := inMatmuls(t, m, c.lack, func(form string) bool { return strings.HasPrefix(form, "reduce_scatter_sent_") }, func(e *rt.Exec) { c.step(g, e) }); n != 2*c.want { // in two captures
				t.Errorf("%d reduce_scatters within matmuls, want %d", n, 2*c.want)
			}
		})
	}
}
