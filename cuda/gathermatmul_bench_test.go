//go:build linux

package cuda

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"testing"

	"github.com/seed-ee968945/concert/cuda/coll"
	"github.com/seed-ee968945/concert/cuda/driver"
	"github.com/seed-ee968945/concert/internal/dtype"
	"github.com/seed-ee968945/concert/kernels"
)

// BenchmarkGatherMatmul times matmuls that gather beside a gather and our matmul, on all GPUs of the
// machine, or with two ranks on one: a replay of a graph of many calls, the slowest rank, medians of
// rounds by turns. With r the gather's time by the matmul's the limit of the gain is (1+r) / max(1, r).
func BenchmarkGatherMatmul(b *testing.B) {
	if !*onGPU {
		b.Skip("times of GPUs: -gpu")
	}
	infos, err := newDriverOf(b, 0).Devices()
	if err != nil {
		b.Fatal(err)
	}
	n := int64(max(2, len(infos)))
	for _, s := range [][2]int64{{4096, 1536}, {4096, 7168}, {8192, 2560}, {8192, 14336}} { // of Llama 8B and 70B by 4: q k v, gate and up
		for rows := int64(512); rows <= 8192; rows *= 2 {
			b.Run(fmt.Sprintf("%dx%dx%d", rows, s[0], s[1]), func(b *testing.B) {
				for b.Loop() {
					ms, err := timeGather(b, int(n), gatherT{dtype.BF16, rows / n, s[0], s[1], true, false})
					if err != nil {
						b.Fatal(err)
					}
					r := ms[0] / ms[1]
					for i, what := range []string{"us-gather", "us-matmul", "us-apart", "us-within"} {
						b.ReportMetric(ms[i]*1e3, what)
					}
					b.ReportMetric(ms[2]/ms[3], "gain")
					b.ReportMetric((1+r)/math.Max(1, r), "limit")
				}
			})
		}
	}
}

// timeGather gives the milliseconds of a gather, of a matmul of all rows, of one behind the other, and of both at once.
func timeGather(b *testing.B, n int, s gatherT) (out [4]float64, err error) {
	const calls, rounds = 20, 7
	r := newRigBytes(b, n, 512<<20+uint64(16*int64(n)*s.rows*(s.k+s.n)+4*s.k*s.n))
	g, err := coll.NewGroup(b.Context(), r.w, seqInts(n), coll.GroupOptions{Timeout: plenty}) // not the small one of tests
	if err != nil {
		return out, err
	}
	x := newGathers(r, g, s)
	b.Cleanup(func() {
		x.close()
		if err := g.Close(); err != nil {
			b.Error(err)
		}
	})
	x.fill(0)
	execs := make([][]driver.Exec, len(out))
	var made lifo
	defer func() { err = errors.Join(err, made.undo()) }()
	for _, m := range g.Members() {
		p, alone, err := x.prepare(m)
		if err != nil {
			return out, err
		}
		rank := m.Rank.ID
		gather, err := m.Prepare(coll.Op{Kind: kernels.AllGather, DType: dtype.U8, Symmetric: true,
			Tensors: []coll.Tensor{{Src: x.w0(rank, x.own), Dst: x.w0(rank, x.all), Bytes: uint64(2 * s.rows * s.k)}}})
		if err != nil {
			return out, err
		}
		for form, parts := range [][]func(c *driver.Commands){{gather.AddTo}, {alone.AddTo}, {gather.AddTo, alone.AddTo}, {p.AddTo}} {
			var c driver.Commands
			for range calls {
				for _, add := range parts {
					add(&c)
				}
			}
			exec, err := made.graph(r, m, &c)
			if err != nil {
				return out, err
			}
			execs[form] = append(execs[form], exec)
		}
	}
	var times [len(out)][]float64
	for round := range rounds + 1 {
		for form := range out {
			ms, err := made.time(r, g, execs[form])
			if err != nil {
				return out, err
			}
			if round > 0 {
				times[form] = append(times[form], ms/calls)
			}
		}
	}
	for form := range out {
		slices.Sort(times[form])
		out[form] = times[form][rounds/2]
	}
	return out, nil
}

// lifo gives back in turn what was made.
type lifo struct{ list []func() error }

func (l *lifo) undo() (err error) {
	for _, f := range slices.Backward(l.list) {
		err = errors.Join(err, f())
	}
	return err
}

// graph makes a graph of commands.
func (l *lifo) graph(r *rigT, m *coll.Member, c *driver.Commands) (driver.Exec, error) {
	ctx, s := m.Rank.Ctx, r.streams[m.Rank.ID]
	if err := r.drv.CaptureBegin(ctx, s); err != nil {
		return 0, err
	}
	err := r.drv.Run(ctx, c.On(s))
	g, end := r.drv.CaptureEnd(ctx, s)
	if err := errors.Join(err, end); err != nil {
		return 0, err
	}
	l.list = append(l.list, func() error { return r.drv.GraphDestroy(ctx, g) })
	x, err := r.drv.GraphInstantiate(ctx, g)
	if err == nil {
		l.list = append(l.list, func() error { return r.drv.ExecDestroy(ctx, x) })
	}
	return x, err
}

// time replays the graphs of all ranks, and gives the milliseconds of the slowest.
func (l *lifo) time(r *rigT, g *coll.Group, execs []driver.Exec) (slowest float64, err error) {
	members := g.Members()
	events := make([][2]driver.Event, len(members))
	for i, m := range members {
		ctx, s := m.Rank.Ctx, r.streams[m.Rank.ID]
		for k := range events[i] {
			if events[i][k], err = r.drv.EventCreate(ctx, true); err != nil {
				return 0, err
			}
			l.list = append(l.list, func() error { return r.drv.EventDestroy(ctx, events[i][k]) })
		}
		if err := errors.Join(r.drv.EventRecord(ctx, events[i][0], s), r.drv.GraphLaunch(ctx, execs[i], s), r.drv.EventRecord(ctx, events[i][1], s)); err != nil {
			return 0, err
		}
	}
	for i, m := range members {
		if err := m.Check(r.t.Context(), r.streams[m.Rank.ID]); err != nil {
			return 0, err
		}
		ms, err := r.drv.EventElapsed(m.Rank.Ctx, events[i][0], events[i][1])
		if err != nil {
			return 0, err
		}
		slowest = max(slowest, float64(ms))
	}
	return slowest, nil
}
