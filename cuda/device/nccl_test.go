//go:build linux

package device_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/seed-ee968945/concert/cuda/device"
	"github.com/seed-ee968945/concert/cuda/driver"
	"github.com/seed-ee968945/concert/cuda/nccl"
	"github.com/seed-ee968945/concert/cuda/topo"
	"github.com/seed-ee968945/concert/interp"
	"github.com/seed-ee968945/concert/interp/step"
	"github.com/seed-ee968945/concert/kernels"
	rt "github.com/seed-ee968945/concert/runtime"
	"github.com/seed-ee968945/concert/runtime/host"
	"github.com/seed-ee968945/concert/runtime/rendezvous"
)

// overNCCL is a target whose groups all go over NCCL: the real one on GPUs, else the
// double on the fake driver.
func overNCCL(t testing.TB, ranks int) (driver.Driver, []int, device.Options) {
	drv, devs, o := target(t, ranks)
	if o.ShareDevice && *onGPU {
		t.Skip("NCCL wants a GPU for each rank")
	}
	o.Transport = topo.NCCL
	return drv, devs, o
}

// The traced steps over NCCL: the bits of the host device, eagerly and as graphs.
func TestTracedOverNCCL(t *testing.T) {
	fakeOnly(t)
	for _, name := range fewSteps() {
		pair, in, wantFw, wantBw := onHost(t, name)
		pair, lo := form(t, pair, "pipeline")
		for _, h := range []how{eager, packed, graph} {
			if testing.Short() && h != graph {
				continue
			}
			t.Run(fmt.Sprintf("%s/%v", name, h), func(t *testing.T) {
				noGoroutines(t)
				drv, devs, o := overNCCL(t, 2)
				fw, bw, err := pair.Run(t.Context(), runner(drv, devs, o, lo, h, 3), in)
				if err != nil {
					t.Fatal(err)
				}
				compare(t, "forward", fw, wantFw)
				compare(t, "backward", bw, wantBw)
			})
		}
	}
}

// Random collectives in all layouts over NCCL: the bits of the host device, and nothing
// else is touched.
func TestCollectivesOverNCCL(t *testing.T) {
	const rounds = 60
	for _, n := range []int{2, 3} {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			noGoroutines(t)
			drv, devs, o := overNCCL(t, n)
			want := make([][][]byte, n)
			cfg := rt.Config{UserBytes: arenaBytes, Timeout: plenty}
			err := host.Local(t.Context(), n, cfg, host.Options{}, nil, func(ctx context.Context, r *rt.Rank) (err error) {
				want[r.Info().Rank], err = runCollectives(ctx, r, 2, rounds)
				return err
			})
			if err != nil {
				t.Fatal(err)
			}
			err = device.Local(t.Context(), drv, devs, cfg, o, nil, func(ctx context.Context, r *rt.Rank) error {
				me := r.Info().Rank
				got, err := runCollectives(ctx, r, 2, rounds)
				for i := range got {
					if !bytes.Equal(got[i], want[me][i]) {
						return fmt.Errorf("rank %d, round %d: %+v differs", me, i, *randomCollective(rand.New(rand.NewPCG(2, uint64(i))), n, me))
					}
				}
				return err
			})
			if err != nil {
				t.Error(err)
			}
		})
	}
}

// The operand of a gather in its place in the result, and the result of a scatter in its
// place in the operand, go without copies; where they are elsewhere there are some.
func TestInPlaceOverNCCL(t *testing.T) {
	noGoroutines(t)
	drv, devs, o := overNCCL(t, 2)
	err := device.Local(t.Context(), drv, devs, rt.Config{Timeout: plenty, UserBytes: 4096}, o, nil, func(ctx context.Context, r *rt.Rank) error {
		me := int64(r.Info().Rank)
		whole, part := rt.C(0, rt.F32, 8), func(k int64) rt.Tensor { return rt.C(16*k, rt.F32, 4) }
		for _, c := range []struct {
			call   *rt.Collective
			copies bool
			want   []byte
		}{
			{&rt.Collective{Op: rt.AllGather, Ins: rt.Ts{part(me)}, Outs: rt.Ts{whole}}, false, []byte{1, 1, 1, 1, 2, 2, 2, 2}},
			{&rt.Collective{Op: rt.AllGather, Ins: rt.Ts{part(1 - me)}, Outs: rt.Ts{whole}}, true, []byte{1, 1, 1, 1, 2, 2, 2, 2}},
			{&rt.Collective{Op: rt.ReduceScatter, Reduce: "sum", Ins: rt.Ts{whole}, Outs: rt.Ts{part(me)}}, false, []byte{3, 3, 3, 3}},
			{&rt.Collective{Op: rt.ReduceScatter, Reduce: "sum", Ins: rt.Ts{whole}, Outs: rt.Ts{part(1 - me)}}, true, []byte{3, 3, 3, 3}},
			{&rt.Collective{Op: rt.AllReduce, Reduce: "max", Ins: rt.Ts{whole}, Outs: rt.Ts{whole}}, false, []byte{2, 2, 2, 2, 2, 2, 2, 2}},
		} {
			mine := make([]byte, 32)
			for i := range 8 {
				copy(mine[4*i:], [][]byte{{0, 0, 0x80, 0x3f}, {0, 0, 0, 0x40}}[me]) // 1 and 2
			}
			if err := r.Upload(whole, mine); err != nil {
				return err
			}
			if err := r.Barrier(ctx); err != nil {
				return err
			}
			tr := r.Device().(rt.Tracer)
			if err := tr.BeginTrace(); err != nil {
				return err
			}
			c.call.Group = "world"
			w, err := r.Start(ctx, "", c.call)
			if err != nil {
				return err
			}
			if err := w.Wait(ctx); err != nil {
				return err
			}
			spans, err := tr.EndTrace(ctx)
			if err != nil {
				return err
			}
			if len(spans) != 1 || strings.Contains(spans[0].Algo, "copies") != c.copies || !strings.HasPrefix(spans[0].Algo, "NCCL") {
				return fmt.Errorf("%v to %v: %+v", c.call.Ins, c.call.Outs, spans)
			}
			got, err := r.Download(c.call.Outs[0])
			if err != nil {
				return err
			}
			for i, v := range c.want {
				if w := [][]byte{nil, {0, 0, 0x80, 0x3f}, {0, 0, 0, 0x40}, {0, 0, 0x40, 0x40}}[v]; !bytes.Equal(got[4*i:][:4], w) {
					return fmt.Errorf("%v: element %d is %v, want %v", c.call, i, got[4*i:][:4], w)
				}
			}
		}
		// What NCCL cannot do is refused where it is asked for, and breaks nothing.
		words := rt.C(0, rt.I32, 8)
		var bad *kernels.PlanError
		if _, err := r.Start(ctx, "", &rt.Collective{Op: rt.AllReduce, Group: "world", Reduce: "avg", Ins: rt.Ts{words}, Outs: rt.Ts{words}}); !errors.As(err, &bad) {
			return fmt.Errorf("an average of integers: %w", err)
		}
		return r.Barrier(ctx)
	})
	if err != nil {
		t.Error(err)
	}
}

// Ranks that are hosts of their own: processes that share nothing give the bits of ranks
// of one process, for every traced step.
func TestHosts(t *testing.T) {
	if testing.Short() {
		t.Skip("processes, whose goroutines TestTracedOverNCCL has in one")
	}
	for _, name := range tinySteps {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			if err := spawn(t, 2, envFolder+"="+dir, envStep+"="+name, envHow+"=graph", envHosts+"=apart"); err != nil {
				t.Fatal(err)
			}
			drv, devs, o := overNCCL(t, 2)
			pair, fw, bw := runInputsOfChildren(t, name, drv, devs, o, graph)
			for r := range fw {
				got := written(t, dir, r)
				if !*onGPU {
					compare(t, "forward", [][]interp.Tensor{got[0]}, fw[r:r+1])
					compare(t, "backward", [][]interp.Tensor{got[1]}, bw[r:r+1])
					continue
				}
				near(t, "forward", [][]interp.Tensor{got[0]}, fw[r:r+1]) // NCCL's order is its own
				near(t, "backward", [][]interp.Tensor{got[1]}, bw[r:r+1])
				want, err := pair.ReadExpected(testdata+"vectors", r)
				if err != nil {
					continue // not every step is recorded
				}
				rs, err := step.Compare(r, want, got[0], got[1])
				if err != nil {
					t.Fatal(err)
				}
				if rs = slices.DeleteFunc(rs, step.Result.OK); len(rs) > 0 {
					t.Errorf("too far from the recording:\n%s", step.Table(rs))
				}
			}
		})
	}
}

// What goes wrong on a host is known on the others: within moments if a process ends,
// with the collective's name and the rank's if it is late.
func TestFaultsOfHosts(t *testing.T) {
	for _, fault := range []string{"dies", "aborts", "late", "leaves", "dies in replays", "another step"} {
		t.Run(fault, func(t *testing.T) {
			if err := spawn(t, 2, envFault+"="+fault, envHosts+"=apart"); err != nil {
				t.Error(err)
			}
		})
	}
}

// twoDomains are four GPUs of which two and two have access to each other.
func twoDomains(t *testing.T, drv driver.Driver) *topo.Machine {
	m := recorded(t, "h200x4", drv)
	for i := range m.Pairs {
		if p := &m.Pairs[i]; p.A/2 != p.B/2 {
			p.Read, p.Write, p.Atomics = "chipset not supported", "chipset not supported", "chipset not supported"
		}
	}
	return m
}

// islands is a module of four ranks, with a step, whose groups partly go over NCCL and partly over
// symmetric memory where two ranks each are in a domain.
type islands struct {
	*rt.Module
	x, y, z, s rt.Tensor
}

func newIslands() *islands {
	i := &islands{x: rt.C(0, rt.F32, 8, 6), y: rt.C(512, rt.F32, 16, 6), z: rt.C(1024, rt.F32, 8, 12), s: rt.C(2048, rt.F32, 4, 6)}
	param := func(name string, t rt.Tensor) rt.Param { return rt.Param{Name: name, Tensors: rt.Ts{t}} }
	i.Module = &rt.Module{Name: "m", World: 4, Arena: 4096, Streams: []string{"compute", "comm.in", "comm.out"}, Events: 3,
		Groups:  []rt.Group{{Name: "in", Ranks: [][]int{{0, 1}, {3, 2}}}, {Name: "out", Ranks: [][]int{{0, 2}, {1, 3}}}},
		Inputs:  []rt.Param{param("x", i.x)},
		Outputs: []rt.Param{param("y", i.y), param("z", i.z), param("s", i.s), param("x", i.x)}}
	return i
}

func (i *islands) step(e *rt.Exec) {
	x := rt.Ts{i.x}
	e.Record("compute", 0)
	e.Wait("comm.in", 0)
	e.Wait("comm.out", 0)
	e.At("y").AllGather("comm.in", "in", 0, rt.Ts{i.y}, x)
	e.At("z").AllGather("comm.out", "out", 1, rt.Ts{i.z}, x)
	e.At("s").ReduceScatter("comm.out", "out", "sum", 0, rt.Ts{i.s}, x)
	e.Record("comm.in", 1)
	e.Record("comm.out", 2)
	e.Wait("compute", 1)
	e.Wait("compute", 2)
	e.At("x").AllReduce("compute", "in", "avg", x, x)
	e.At("w").AllReduce("compute", "world", "max", x, x) // another stream than the last one over NCCL
}

func (i *islands) input(rank int) []rt.Value {
	b := make([]byte, i.x.Bytes())
	fill(rt.F32, rand.New(rand.NewPCG(7, uint64(rank))), b)
	return []rt.Value{{DType: rt.F32, Shape: i.x.Shape, Data: b}}
}

// A program whose groups partly go over NCCL and partly over symmetric memory has the bits
// of the host device.
func TestIslands(t *testing.T) {
	noGoroutines(t)
	m := newIslands()
	n := m.World
	want := make([][]rt.Value, n)
	cfg := rt.Config{Timeout: plenty}
	err := host.Local(t.Context(), n, cfg, host.Options{}, []*rt.Module{m.Module}, func(ctx context.Context, r *rt.Rank) (err error) {
		want[r.Info().Rank], err = rt.RunModule(ctx, r, m.Module, m.step, m.input(r.Info().Rank), rt.Options{})
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	run := func(ctx context.Context, r *rt.Rank) error {
		me := r.Info().Rank
		if err := alike(ctx, r, m.Module, m.step, m.input, want[me], 3, func(st *rt.Step) error {
			if _, err := st.Time(ctx, 2); err != nil {
				return err
			}
			_, err := st.Trace(ctx)
			return err
		}); err != nil {
			return err
		}
		if err := r.Device().Signal(0, (me+1)%n, 0); !errors.Is(err, rt.ErrUnsupported) {
			return fmt.Errorf("a signal to a rank out of reach: %w", err)
		}
		return nil
	}
	t.Run("goroutines", func(t *testing.T) {
		drv, devs, o := overNCCL(t, n)
		o.Machine, o.Transport = twoDomains(t, drv), ""
		if err := device.Local(t.Context(), drv, devs, cfg, o, []*rt.Module{m.Module}, run); err != nil {
			t.Error(err)
		}
	})
	// Each rank as a process has it: a driver, a control connection to its neighbour, and a
	// connection to rank 0.
	t.Run("openers", func(t *testing.T) {
		fakeOnly(t)
		job := rendezvous.NewLocal()
		var wg sync.WaitGroup
		for i := range n {
			wg.Go(func() {
				drv := newFake(t, n)
				o := small(n)
				o.Machine = twoDomains(t, drv)
				cfg := cfg
				cfg.Job, cfg.Env = job, &rt.Env{Rank: i, World: n, LocalRank: i, LocalWorld: n, Source: "test"}
				r, err := rt.Join(t.Context(), device.Opener(drv, o), cfg, m.Module)
				if err == nil {
					err = errors.Join(run(t.Context(), r), r.Close())
				}
				if err != nil {
					t.Errorf("rank %d: %v", i, err)
				}
			})
		}
		wg.Wait()
	})
}

// A rank that is late is named, and what it lacks: the others hear of it.
func TestLateOverNCCL(t *testing.T) {
	noGoroutines(t)
	drv, devs, o := overNCCL(t, 2)
	m, f := besideModule()
	errs := make([]error, 2)
	const timeout = 100 * time.Millisecond
	world := device.Local(t.Context(), drv, devs, rt.Config{Timeout: plenty}, o, []*rt.Module{m}, func(ctx context.Context, r *rt.Rank) error {
		me := r.Info().Rank
		s, err := rt.Prepare(ctx, r, m, f, rt.Options{}, true)
		if err != nil {
			return err
		}
		defer s.Close()
		for range 3 {
			if err := s.Replay(ctx); err != nil {
				return err
			}
		}
		if me == 0 {
			device.SetTimeout(r, timeout)
			errs[0] = s.Replay(ctx)
		} else {
			errs[1] = broken(r)
		}
		if again := s.Replay(ctx); again == nil {
			return errors.New("a broken world went on")
		}
		return errs[me]
	})
	var te *rt.TimeoutError
	if !errors.As(errs[0], &te) || te.Peer != 1 || te.Rank != 0 || te.Group != "g" || !strings.Contains(te.Op, "hidden") || te.Elapsed < timeout {
		t.Errorf("rank 0: %v; the world: %v", errs[0], world)
	}
	var ae *rt.CanceledError
	if !errors.As(errs[1], &ae) || ae.Origin != 0 || !errors.Is(errs[1], rt.ErrTimeout) {
		t.Errorf("rank 1: %v; the world: %v", errs[1], world)
	}
}

// After a rank broke the world the others join another one in the same processes.
func TestJoinAnewOverNCCL(t *testing.T) {
	noGoroutines(t)
	drv, devs, o := overNCCL(t, 2)
	o.Devices = devs
	job := rendezvous.NewLocal()
	join := func(name string, rank, world int) (*rt.Rank, error) {
		return rt.Join(t.Context(), device.Opener(drv, o), rt.Config{Timeout: plenty, UserBytes: 512, Job: job, World: name,
			Env: &rt.Env{Rank: rank, World: world, LocalRank: rank, LocalWorld: world, Source: "test"}})
	}
	var wg sync.WaitGroup
	for i := range 2 {
		wg.Go(func() {
			err := func() error {
				r, err := join("first", i, 2)
				if err != nil {
					return err
				}
				if err := r.Barrier(t.Context()); err != nil && !errors.Is(err, rt.ErrCanceled) {
					return errors.Join(err, r.Close())
				}
				if i == 1 {
					r.Abort(errors.New("out of luck"))
				}
				w, err := r.Start(t.Context(), "", sumOf(rt.C(0, rt.F32, 4)))
				if err == nil {
					err = w.Wait(t.Context())
				}
				if !errors.Is(err, rt.ErrCanceled) || !strings.Contains(err.Error(), "out of luck") {
					return errors.Join(fmt.Errorf("in the broken world: %w", err), r.Close())
				}
				if err := r.Close(); err != nil {
					return err
				}
				if r, err = join("second", i, 2); err != nil {
					return err
				}
				return errors.Join(r.Barrier(t.Context()), r.Close())
			}()
			if err != nil {
				t.Errorf("rank %d: %v", i, err)
			}
		})
	}
	wg.Wait()
}

// noID is an NCCL of which no communicator can be made: only rank 0 asks for an id.
type noID struct{ *nccl.Host }

func (noID) UniqueID() (nccl.ID, error) {
	return nccl.ID{}, &nccl.Error{Call: "ncclGetUniqueId", Code: nccl.SystemError}
}

// Without an NCCL that works every rank fails, and says why, before it allocates anything.
func TestWithoutNCCL(t *testing.T) {
	fakeOnly(t)
	noGoroutines(t)
	job := rendezvous.NewLocal()
	errs := make([]error, 2)
	var wg sync.WaitGroup
	for i := range errs {
		wg.Go(func() {
			drv := newFake(t, 2)
			o := small(2)
			o.Transport = topo.NCCL
			o.NCCL.Library = noID{nccl.NewHost(nccl.Machine{})}
			errs[i] = joins(t, drv, o, job, i)
		})
	}
	wg.Wait()
	var re *rt.RendezvousError
	if !errors.As(errs[0], &re) || !errors.Is(errs[0], &nccl.Error{Code: nccl.SystemError}) {
		t.Errorf("rank 0: %v", errs[0])
	}
	if !errors.Is(errs[1], rt.ErrCanceled) && !errors.Is(errs[1], rt.ErrPeerLost) {
		t.Errorf("rank 1: %v", errs[1])
	}
}
