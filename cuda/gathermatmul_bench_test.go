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
	// k and n of Llama 8B and 70B by 4: q k v, gate and up
	carried(b, "gather", [][2]int64{{4096, 1536}, {4096, 7168}, {8192, 2560}, {8192, 14336}}, func(r *rigT, g *coll.Group, rows, k, n int64) (*matmulsT, forms) {
		s := gatherT{dtype.BF16, rows, k, n, true, false}
		x := newGathers(r, g, s)
		x.fill(0)
		return x.matmulsT, func(m *coll.Member) ([4]adds, error) {
			p, alone, err := x.prepare(m)
			if err != nil {
				return [4]adds{}, err
			}
			rank := m.Rank.ID
			gather, err := m.Prepare(coll.Op{Kind: kernels.AllGather, DType: dtype.U8, Symmetric: true,
				Tensors: []coll.Tensor{{Src: x.at(rank, x.own), Dst: x.at(rank, x.all), Bytes: uint64(2 * s.rows * s.k)}}})
			return [4]adds{{gather.AddTo}, {alone.AddTo}, {gather.AddTo, alone.AddTo}, {p.AddTo}}, err
		}
	})
}

// BenchmarkScatterMatmul is BenchmarkGatherMatmul for matmuls that scatter.
func BenchmarkScatterMatmul(b *testing.B) {
	// k and n of Llama 8B and 70B by 4: o, down
	carried(b, "scatter", [][2]int64{{1024, 4096}, {3584, 4096}, {2048, 8192}, {7168, 8192}}, func(r *rigT, g *coll.Group, rows, k, n int64) (*matmulsT, forms) {
		x := newScatters(r, g, scatterT{dtype.BF16, rows, k, n, false, true, kernels.Sum})
		x.fill(0)
		return x.matmulsT, func(m *coll.Member) ([4]adds, error) {
			p, err := x.prepare(m)
			return [4]adds{{p.apart.AddTo}, {p.alone.AddTo}, {p.addApart}, {p.addTo}}, err
		}
	})
}

// adds are calls one after the other, forms those of a rank that are timed: the collective, the matmul, one behind the
// other, and both at once.
type (
	adds  []func(*driver.Commands)
	forms func(*coll.Member) ([4]adds, error)
)

// carried is a benchmark of matmuls that carry a collective, by k and n.
func carried(b *testing.B, what string, sizes [][2]int64, make func(r *rigT, g *coll.Group, rows, k, n int64) (*matmulsT, forms)) {
	if !*onGPU {
		b.Skip("times of GPUs: -gpu")
	}
	infos, err := newDriverOf(b, 0).Devices()
	if err != nil {
		b.Fatal(err)
	}
	ranks := int64(max(2, len(infos)))
	for _, s := range sizes {
		for rows := int64(512); rows <= 8192; rows *= 2 {
			b.Run(fmt.Sprintf("%dx%dx%d", rows, s[0], s[1]), func(b *testing.B) {
				for b.Loop() {
					r := newRigBytes(b, int(ranks), 2<<30+uint64(16*rows*(s[0]+s[1])+4*s[0]*s[1]))
					// not the small one of tests
					g, err := coll.NewGroup(b.Context(), r.w, seqInts(int(ranks)), coll.GroupOptions{Timeout: plenty, Staging: 512 << 20})
					if err != nil {
						b.Fatal(err)
					}
					x, forms := make(r, g, rows/ranks, s[0], s[1])
					b.Cleanup(func() {
						x.close()
						if err := g.Close(); err != nil {
							b.Error(err)
						}
					})
					ms, err := x.time(forms)
					if err != nil {
						b.Fatal(err)
					}
					ratio := ms[0] / ms[1]
					for i, what := range []string{"us-" + what, "us-matmul", "us-apart", "us-within"} {
						b.ReportMetric(ms[i]*1e3, what)
					}
					b.ReportMetric(ms[2]/ms[3], "gain")
					b.ReportMetric((1+ratio)/math.Max(1, ratio), "limit")
				}
			})
		}
	}
}

// time gives the milliseconds of each form.
func (x *matmulsT) time(of forms) (out [4]float64, err error) {
	const calls, rounds = 20, 7
	execs := make([][]driver.Exec, len(out))
	var made lifo
	defer func() { err = errors.Join(err, made.undo()) }()
	for _, m := range x.g.Members() {
		list, err := of(m)
		if err != nil {
			return out, err
		}
		for form, parts := range list {
			var c driver.Commands
			for range calls {
				for _, add := range parts {
					add(&c)
				}
			}
			exec, err := made.graph(x.rigT, m, &c)
			if err != nil {
				return out, err
			}
			execs[form] = append(execs[form], exec)
		}
	}
	var times [len(out)][]float64
	for round := range rounds + 1 {
		for form := range out {
			ms, err := made.time(x.rigT, x.g, execs[form])
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

// lifo releases in turn what was made.
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
