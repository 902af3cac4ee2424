//go:build linux

package device_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"

	"github.com/seed-ee968945/concert/cuda/device"
	"github.com/seed-ee968945/concert/cuda/driver"
	rt "github.com/seed-ee968945/concert/runtime"
)

// fakeOnly skips a test whose launches have no kernels.
func fakeOnly(t *testing.T) {
	t.Helper()
	if *onGPU {
		t.Skip("its launches are the host's")
	}
}

// besideModule gathers twice: once beside a matmul, and once when nothing else is
// to be done.
func besideModule() (*rt.Module, func(*rt.Exec)) {
	x, y, z, w := besideTensors()
	m := &rt.Module{Name: "m", World: 2, Arena: 24576, Streams: []string{"compute", "comm.g"}, Events: 4,
		Groups:  []rt.Group{{Name: "g", Ranks: [][]int{{0, 1}}}},
		Inputs:  []rt.Param{{Name: "x", Tensors: rt.Ts{x}}},
		Outputs: []rt.Param{{Name: "y", Tensors: rt.Ts{y}}, {Name: "z", Tensors: rt.Ts{z}}, {Name: "w", Tensors: rt.Ts{w}}}}
	return m, besideStep(true)
}

func besideTensors() (x, y, z, w rt.Tensor) {
	return rt.C(0, rt.F32, 1024), rt.C(4096, rt.F32, 2048), rt.C(12288, rt.F32, 1024), rt.C(16384, rt.F32, 2048)
}

// besideStep is the step of besideModule, with the matmul or without.
func besideStep(product bool) func(*rt.Exec) {
	square := func(t rt.Tensor) rt.Tensor { return rt.C(t.Off, rt.F32, 32, 32) }
	x, y, z, w := besideTensors()
	return func(e *rt.Exec) {
		e.Record("compute", 0)
		e.Wait("comm.g", 0)
		e.At("hidden").AllGather("comm.g", "g", 0, rt.Ts{y}, rt.Ts{x})
		e.Record("comm.g", 1)
		if product {
			e.At("n").Launch("compute", "matmul", nil, rt.Ts{square(z)}, rt.Ts{square(x), square(x)})
		}
		e.Wait("compute", 1)
		e.Record("compute", 2)
		e.Wait("comm.g", 2)
		e.At("exposed").AllGather("comm.g", "g", 0, rt.Ts{w}, rt.Ts{z})
		e.Record("comm.g", 3)
		e.Wait("compute", 3)
	}
}

// A collective overlapped with compute takes the form for that, one that everybody waits for
// does not.
func TestBeside(t *testing.T) {
	symmetricOnly(t)
	fakeOnly(t)
	for _, off := range []bool{false, true} {
		m, f := besideModule()
		var mu sync.Mutex
		var log bytes.Buffer
		drv, devs, o := target(t, 2)
		o.NoOverlap = off
		o.Log = slog.New(slog.NewTextHandler(lockedWriter{&mu, &log}, nil))
		err := device.Local(t.Context(), drv, devs, rt.Config{Timeout: plenty}, o, []*rt.Module{m}, func(ctx context.Context, r *rt.Rank) error {
			s, err := rt.Prepare(ctx, r, m, f, rt.Options{}, true)
			if err != nil {
				return err
			}
			defer s.Close()
			return s.Replay(ctx)
		})
		if err != nil {
			t.Fatal(err)
		}
		for _, line := range strings.Split(log.String(), "\n") {
			if strings.Contains(line, "msg=collective") && strings.Contains(line, "beside=true") != (strings.Contains(line, "hidden") && !off) {
				t.Errorf("off=%v: %s", off, line)
			}
		}
		if n := strings.Count(log.String(), "msg=collective"); n != 4 {
			t.Errorf("%d collectives were recorded, want 4:\n%s", n, log.String())
		}
	}
}

type lockedWriter struct {
	mu *sync.Mutex
	b  *bytes.Buffer
}

func (w lockedWriter) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.b.Write(p)
}

// Replays follow the inputs, and eager work before and between them; a step without
// its collectives, times and traces come from the same code.
func TestSteps(t *testing.T) {
	fakeOnly(t)
	m, f := besideModule()
	world(t, 2, rt.Config{UserBytes: 512}, []*rt.Module{m}, func(ctx context.Context, r *rt.Rank) error {
		for _, graph := range []bool{false, true} {
			s, err := rt.Prepare(ctx, r, m, f, rt.Options{}, graph)
			if err != nil {
				return err
			}
			for i := range 5 {
				b := bytes.Repeat([]byte{byte(i), 1, 2, byte(3 + r.Info().Rank)}, 1024)
				outs, err := s.Run(ctx, []rt.Value{{DType: rt.F32, Shape: []int64{1024}, Data: b}})
				if err != nil {
					return err
				}
				y := outs[0].Data
				for k := range 2 {
					want := bytes.Repeat([]byte{byte(i), 1, 2, byte(3 + k)}, 1024)
					if !bytes.Equal(y[4096*k:4096*k+4096], want) {
						return fmt.Errorf("replay %d: piece %d is % x", i, k, y[4096*k:4096*k+8])
					}
				}
				// Eager work in between: on a stream of its own, and the module itself.
				if err := r.Barrier(ctx); err != nil {
					return err
				}
				again, err := rt.RunModule(ctx, r, m, f, []rt.Value{{Resident: true, DType: rt.F32, Shape: []int64{1024}}}, rt.Options{})
				if err != nil {
					return err
				}
				if !bytes.Equal(again[2].Data, outs[2].Data) {
					return errors.New("an eager run differs from the replay")
				}
			}
			ms, err := s.Time(ctx, 4)
			if err != nil || len(ms) != 4 || ms[0] <= 0 {
				return fmt.Errorf("times %v: %w", ms, err)
			}
			if err := s.Close(); err != nil {
				return err
			}
		}
		return nil
	})
}

// A step without a call is captured and replayed, too: calibration times those.
func TestEmptyStep(t *testing.T) {
	m := &rt.Module{Name: "empty", World: 2, Arena: 512, Streams: []string{"compute"}}
	world(t, 2, rt.Config{}, []*rt.Module{m}, func(ctx context.Context, r *rt.Rank) error {
		for _, graph := range []bool{false, true} {
			s, err := rt.Prepare(ctx, r, m, func(*rt.Exec) {}, rt.Options{}, graph)
			if err != nil {
				return err
			}
			if _, err := s.Run(ctx, nil); err != nil {
				return err
			}
			if err := s.Close(); err != nil {
				return err
			}
		}
		return nil
	})
}

// The trace names every call, in order, with sane times.
func TestTrace(t *testing.T) {
	fakeOnly(t)
	m, f := besideModule()
	world(t, 2, rt.Config{}, []*rt.Module{m}, func(ctx context.Context, r *rt.Rank) error {
		var spans []rt.Span
		in := []rt.Value{{DType: rt.F32, Shape: []int64{1024}, Data: make([]byte, 4096)}}
		if _, err := rt.RunModule(ctx, r, m, f, in, rt.Options{Trace: &spans}); err != nil {
			return err
		}
		if len(spans) != 3 {
			return fmt.Errorf("%d spans: %+v", len(spans), spans)
		}
		for i, want := range []string{"hidden", "matmul", "exposed"} {
			s := spans[i]
			if !strings.Contains(s.Name, want) || s.End < s.Start || s.Algo == "" {
				return fmt.Errorf("span %d: %+v", i, s)
			}
		}
		if spans[2].Start < spans[1].End || spans[0].Stream != "comm.g" {
			return fmt.Errorf("out of order: %+v", spans)
		}
		outs, err := rt.RunModule(ctx, r, m, f, in, rt.Options{SkipCollectives: true, Trace: &spans})
		if err != nil || len(spans) != 1 || len(outs) != 3 {
			return fmt.Errorf("without collectives: %+v %w", spans, err)
		}
		return nil
	})
}

// A registered function enqueues on the stream that it is given, eagerly and in
// captures.
func TestFunc(t *testing.T) {
	fakeOnly(t)
	drv, devs, o := target(t, 2)
	double := func(c *rt.FuncCall) error {
		if c.Stream == 0 || c.Ins[0].Ptr == 0 || c.Ins[0].Data != nil {
			return fmt.Errorf("stream %d, operand at %#x", c.Stream, c.Ins[0].Ptr)
		}
		for k := range uint64(2) {
			if err := drv.Copy(driver.Ctx(c.Context), driver.Stream(c.Stream), driver.Ptr(c.Outs[0].Ptr+16*k), driver.Ptr(c.Ins[0].Ptr), 16); err != nil {
				return err
			}
		}
		return nil
	}
	x, y := rt.C(0, rt.F32, 4), rt.C(512, rt.F32, 8)
	m := &rt.Module{Name: "m", Arena: 1024, Streams: []string{"compute"},
		Inputs: []rt.Param{{Name: "x", Tensors: rt.Ts{x}}}, Outputs: []rt.Param{{Name: "y", Tensors: rt.Ts{y}}}}
	f := func(e *rt.Exec) {
		e.At("neg").Launch("compute", "neg", nil, rt.Ts{x}, rt.Ts{x})
		e.At("d").Call("compute", "double", "", nil, rt.Ts{y}, rt.Ts{x})
		e.At("neg2").Launch("compute", "neg", nil, rt.Ts{y}, rt.Ts{y})
	}
	cfg := rt.Config{Timeout: plenty, Funcs: map[string]rt.Func{"double": {GPU: double}}}
	in := []byte("0123456789abcdef")
	err := device.Local(t.Context(), drv, devs, cfg, hosted(drv, o), []*rt.Module{m}, func(ctx context.Context, r *rt.Rank) error {
		v := []rt.Value{{DType: rt.F32, Shape: []int64{4}, Data: in}}
		check := func(outs []rt.Value, err error) error {
			if err == nil && !bytes.Equal(outs[0].Data, append(bytes.Clone(in), in...)) {
				err = fmt.Errorf("got %q", outs[0].Data)
			}
			return err
		}
		if err := check(rt.RunModule(ctx, r, m, f, v, rt.Options{})); err != nil {
			return err
		}
		for _, graph := range []bool{false, true} {
			s, err := rt.Prepare(ctx, r, m, f, rt.Options{}, graph)
			if err != nil {
				return err
			}
			for range 3 {
				if err := check(s.Run(ctx, v)); err != nil {
					return err
				}
			}
			if err := s.Close(); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
}

// TestGroupsDuringCapture: groups come and go while a step is being collected.
func TestGroupsDuringCapture(t *testing.T) {
	err := device.Local(t.Context(), newFake(t, 1), []int{0}, rt.Config{}, small(1), nil, func(ctx context.Context, r *rt.Rank) error {
		d := r.Device()
		own := func(name string) error { return d.AddGroup(ctx, rt.Group{Name: name, Ranks: [][]int{{0}}}) }
		_, err := d.NewStream("compute")
		if err = errors.Join(err, own("gone"), d.(rt.Capturer).BeginCapture(), d.DropGroup("gone"), own("a"), own("b")); err != nil {
			return err
		}
		c, err := d.(rt.Capturer).EndCapture(ctx, false)
		if err != nil {
			return err
		}
		return c.Close()
	})
	if err != nil {
		t.Error(err)
	}
}

// TestStepGone: a replay of a step that is closed, or whose module has been dropped, is refused, and
// the world goes on.
func TestStepGone(t *testing.T) {
	f := newFake(t, 2)
	o := small(2)
	old, oldStep := summing("old")
	gone, goneStep := summing("gone")
	err := device.Local(t.Context(), f, devices(2), rt.Config{Timeout: plenty}, o, []*rt.Module{old, gone}, func(ctx context.Context, r *rt.Rank) error {
		refused := func(s *rt.Step) error {
			_, timing := s.Time(ctx, 1)
			_, run := s.Run(ctx, []rt.Value{{Resident: true}})
			for _, err := range []error{s.Replay(ctx), timing, run} {
				var call *rt.CallError
				if !errors.As(err, &call) || r.Err() != nil {
					return fmt.Errorf("got %v, and the world says %v", err, r.Err())
				}
			}
			return nil
		}
		closed, err := rt.Prepare(ctx, r, old, oldStep, rt.Options{}, false)
		if err != nil {
			return err
		}
		dropped, err := rt.Prepare(ctx, r, gone, goneStep, rt.Options{}, true)
		if err != nil {
			return err
		}
		if err := errors.Join(closed.Replay(ctx), dropped.Replay(ctx), closed.Close(), refused(closed), r.Drop(ctx, gone), refused(dropped), r.Add(ctx, gone, nil), refused(dropped)); err != nil {
			return err
		}
		return errors.Join(closed.Close(), dropped.Close(), sums(ctx, r, old, oldStep), sums(ctx, r, gone, goneStep))
	})
	if err != nil {
		t.Error(err)
	}
}
