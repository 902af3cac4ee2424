//go:build linux

package device_test

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/seed-ee968945/concert/cuda/device"
	"github.com/seed-ee968945/concert/cuda/topo"
	rt "github.com/seed-ee968945/concert/runtime"
)

// Ranks that capture different steps learn so at once, and which ranks they are.
func TestStepsDiffer(t *testing.T) {
	fakeOnly(t)
	for _, over := range []topo.Transport{"", topo.NCCL} {
		for _, graph := range []bool{false, true} {
			noGoroutines(t)
			m, f := besideModule()
			drv, devs, o := target(t, 2)
			o.Transport = over
			errs := make([]error, 2)
			start := time.Now()
			err := device.Local(t.Context(), drv, devs, rt.Config{Timeout: plenty}, o, []*rt.Module{m}, func(ctx context.Context, r *rt.Rank) error {
				me := r.Info().Rank
				s, err := rt.Prepare(ctx, r, m, otherOn(1, me, f), rt.Options{}, graph)
				if errs[me] = err; err == nil {
					return s.Close()
				}
				return nil
			})
			if err != nil {
				t.Error(err)
			}
			for me, err := range errs {
				if err := differing(err, me, time.Since(start)); err != nil {
					t.Errorf("%q, graph %v: %v", over, graph, err)
				}
			}
		}
	}
}

// So they do when a collective stands in a loop on one rank only, where it takes another form.
func TestLoopsDiffer(t *testing.T) {
	fakeOnly(t)
	for _, alone := range []bool{false, true} { // whether forms are open until all is collected
		m, _ := besideModule()
		x, y, n := rt.C(0, rt.F32, 1024), rt.C(4096, rt.F32, 2048), rt.C(12288, rt.I64)
		drv, devs, o := target(t, 2)
		o.NoOverlap = alone
		start := time.Now()
		err := device.Local(t.Context(), drv, devs, rt.Config{Timeout: plenty}, o, []*rt.Module{m}, func(ctx context.Context, r *rt.Rank) error {
			me := r.Info().Rank
			_, err := rt.Prepare(ctx, r, m, func(e *rt.Exec) {
				for l := e.Loop(); l.Next() && l.Holds(n); {
					if me == 1 {
						e.AllGather("comm.g", "g", 0, rt.Ts{y}, rt.Ts{x})
					}
				}
				if me == 0 {
					e.AllGather("comm.g", "g", 0, rt.Ts{y}, rt.Ts{x})
				}
			}, rt.Options{}, true)
			return differing(err, me, time.Since(start))
		})
		if err != nil {
			t.Errorf("forms alone: %v: %v", alone, err)
		}
	}
}

// Other subgroups of a group may do something else, and sizes of rows may differ.
func TestStepsOfSubgroups(t *testing.T) {
	x, y := rt.C(0, rt.F32, 64), rt.C(4096, rt.F32, 128)
	m := &rt.Module{Name: "m", World: 4, Arena: 8192, Streams: []string{"compute", "comm.g"}, Groups: []rt.Group{{Name: "g", Ranks: [][]int{{0, 1}, {2, 3}}}}}
	world(t, 4, rt.Config{}, []*rt.Module{m}, func(ctx context.Context, r *rt.Rank) error {
		s, err := rt.Prepare(ctx, r, m, func(e *rt.Exec) {
			for range 1 + r.Info().Rank/2 {
				e.AllGather("comm.g", "g", 0, rt.Ts{y}, rt.Ts{x})
			}
		}, rt.Options{}, false)
		if err != nil {
			return err
		}
		for range 3 {
			if err := s.Replay(ctx); err != nil {
				return err
			}
		}
		return s.Close()
	})
}

// Ranks that compute differently take the same form of each collective: that beside
// compute where one of them has compute beside it. Other subgroups need not follow.
func TestFormsAgree(t *testing.T) {
	symmetricOnly(t)
	fakeOnly(t)
	for _, products := range [][]int{{0}, {1}, {0, 1}, {}, {2}, {1, 3}} { // ranks that have one
		for _, graph := range []bool{false, true} {
			if testing.Short() && graph {
				continue
			}
			m, _ := besideModule()
			m.World, m.Groups[0].Ranks = 4, [][]int{{0, 1}, {2, 3}}
			var mu sync.Mutex
			var log bytes.Buffer
			drv, devs, o := target(t, 4)
			o.Log = slog.New(slog.NewTextHandler(lockedWriter{&mu, &log}, nil))
			err := device.Local(t.Context(), drv, devs, rt.Config{Timeout: plenty, UserBytes: 512}, o, []*rt.Module{m}, func(ctx context.Context, r *rt.Rank) error {
				me := r.Info().Rank
				s, err := rt.Prepare(ctx, r, m, besideStep(slices.Contains(products, me)), rt.Options{}, graph)
				if err != nil {
					return err
				}
				defer s.Close()
				for i := range 3 {
					x := bytes.Repeat([]byte{byte(i), 0, 0, byte(me)}, 1024)
					outs, err := s.Run(ctx, []rt.Value{{DType: rt.F32, Shape: []int64{1024}, Data: x}})
					if err != nil {
						return err
					}
					want := append(bytes.Repeat([]byte{byte(i), 0, 0, byte(me &^ 1)}, 1024), bytes.Repeat([]byte{byte(i), 0, 0, byte(me | 1)}, 1024)...)
					if !bytes.Equal(outs[0].Data, want) {
						return fmt.Errorf("rank %d, replay %d: not what was gathered", me, i)
					}
				}
				return nil
			})
			if err != nil {
				t.Errorf("products on %v, graph %v: %v", products, graph, err)
				continue
			}
			for me := range 4 {
				want := slices.Contains(products, me&^1) || slices.Contains(products, me|1)
				for name, beside := range map[string]bool{"hidden": want, "exposed": false} {
					line := fmt.Sprintf("msg=collective rank=%d name=\"all_gather on \\\"g\\\" (%s)\"", me, name)
					at := strings.Index(log.String(), line)
					if at < 0 || strings.Contains(strings.SplitN(log.String()[at:], "\n", 2)[0], "beside=true") != beside {
						t.Errorf("products on %v, rank %d, %s: want beside=%v\n%s", products, me, name, beside, log.String())
					}
				}
			}
		}
	}
}
