//go:build linux

package device_test

import (
	"context"
	"log/slog"
	"strings"
	"sync"
	"testing"

	"github.com/seed-ee968945/concert/cuda/device"
	"github.com/seed-ee968945/concert/internal/hostrun"
	"github.com/seed-ee968945/concert/ir"
	"github.com/seed-ee968945/concert/lower"
	"github.com/seed-ee968945/concert/program"
	rt "github.com/seed-ee968945/concert/runtime"
)

// done is how a device says that it does a collective.
type done struct {
	name, form string
	beside     bool
}

// collected keeps what the device of rank 0 logs about collectives.
type collected struct {
	mu   sync.Mutex
	list []done
}

func (c *collected) Enabled(context.Context, slog.Level) bool { return true }
func (c *collected) WithAttrs([]slog.Attr) slog.Handler       { return c }
func (c *collected) WithGroup(string) slog.Handler            { return c }

func (c *collected) Handle(_ context.Context, r slog.Record) error {
	var d done
	rank := int64(-1)
	r.Attrs(func(a slog.Attr) bool {
		switch a.Key {
		case "rank":
			rank = a.Value.Int64()
		case "name":
			d.name = a.Value.String()
		case "form":
			d.form = a.Value.String()
		case "beside":
			d.beside = a.Value.Bool()
		}
		return true
	})
	c.mu.Lock()
	defer c.mu.Unlock()
	if r.Message == "collective" && rank == 0 {
		c.list = append(c.list, d)
	}
	return nil
}

// TestFormsOfTraced plans the steps of whole layers, with the usual sizes of scratch and
// staging, without running them: no collective brings tensors together by copies, the
// small all_reduces of inference have the form with the least latency, and what has
// nothing beside it goes by kernels.
func TestFormsOfTraced(t *testing.T) {
	fakeOnly(t)
	if testing.Short() {
		t.Skip("plans four large steps")
	}
	for name, form := range map[string]string{"llama8b_l4_tp4_small": "all_reduce_oneshot", "llama8b_l4_tpsp4": "", "llama8b_l4_fsdp4": "", "mixtral_l2_ep4_fsdp4": ""} {
		pair, err := load(name)
		if err != nil {
			t.Fatal(err)
		}
		halves := []*ir.Func{pair.Forward, pair.Backward}
		if pair.Backward == nil {
			one := *pair
			one.Backward = one.Forward
			pair, halves = &one, halves[:1]
		}
		if pair, err = forCUDA(pair, "collectives-in-matmuls{overhead-us=0,min-gain=0}"); err != nil {
			t.Fatal(err)
		}
		for i, f := range []*ir.Func{pair.Forward, pair.Backward}[:len(halves)] {
			p, err := lower.FuncWith(f, lower.Options{Kernels: true})
			if err != nil {
				t.Fatal(err)
			}
			s, err := hostrun.OfProgram(p)
			if err != nil {
				t.Fatal(err)
			}
			var log collected
			o := device.Options{Cache: "none", Workspace: 1 << 20, Images: imageSet(), Log: slog.New(&log),
				Libraries: append([]device.OpenLibrary{openWgmma}, device.Standard(device.Paths{})...)}
			err = device.Local(t.Context(), newFake(t, p.World), devices(p.World), rt.Config{Timeout: plenty, JoinTimeout: plenty}, o, []*rt.Module{s.Module}, func(ctx context.Context, r *rt.Rank) error {
				st, err := rt.Prepare(ctx, r, s.Module, s.Run, rt.Options{}, true)
				if err != nil {
					return err
				}
				return st.Close()
			})
			if err != nil {
				t.Fatalf("%s, half %d: %v", name, i, err)
			}
			if len(log.list) < 8 {
				t.Errorf("%s, half %d: only %d collectives", name, i, len(log.list))
			}
			if name == "llama8b_l4_tpsp4" && i == 0 {
				for _, d := range log.list {
					if strings.Contains(d.name, "all_gather") != strings.HasSuffix(d.form, "_gather") || strings.Contains(d.name, "reduce_scatter") != strings.HasPrefix(d.form, "reduce_scatter_sent_") {
						t.Errorf("%s: %s by %s, and not within the matmul", name, d.name, d.form)
					}
				}
			}
			overlapped, k := p.Overlapped(), 0
			for i := range p.Instrs { // the simulated step has the forms of the real one
				if p.Instrs[i].Kind != program.Collective {
					continue
				}
				if k < len(log.list) && log.list[k].beside != overlapped[i] {
					t.Errorf("%s, half %d: %+v, but overlapped with compute is %v in the program", name, i, log.list[k], overlapped[i])
				}
				k++
			}
			if k != len(log.list) {
				t.Errorf("%s, half %d: %d collectives in the program, %d were planned", name, i, k, len(log.list))
			}
			for _, d := range log.list {
				switch {
				case strings.Contains(d.form, "scratch"), !d.beside && strings.Contains(d.form, "copies"), !strings.HasPrefix(d.form, form):
					t.Errorf("%s, half %d: %s by %s, beside %v", name, i, d.name, d.form, d.beside)
				}
			}
		}
	}
}

// TestFormsNamed sees that a layout that no kernel takes is brought together, and said to
// be; rows that are few enough go as they are.
func TestFormsNamed(t *testing.T) {
	symmetricOnly(t)
	fakeOnly(t)
	for rows, want := range map[int64]bool{8: false, 500: true} {
		in, out := rt.C(0, rt.F32, rows, 3), rt.C(8192, rt.F32, rows, 6)
		m := &rt.Module{Name: "m", World: 2, Arena: 24576, Streams: []string{"compute", "comm.g"}, Events: 2,
			Groups: []rt.Group{{Name: "g", Ranks: [][]int{{0, 1}}}},
			Inputs: []rt.Param{{Name: "x", Tensors: rt.Ts{in}}}, Outputs: []rt.Param{{Name: "y", Tensors: rt.Ts{out}}}}
		var log collected
		o := small(2)
		o.Log = slog.New(&log)
		err := device.Local(t.Context(), newFake(t, 2), devices(2), rt.Config{Timeout: plenty}, o, []*rt.Module{m}, func(ctx context.Context, r *rt.Rank) error {
			s, err := rt.Prepare(ctx, r, m, func(e *rt.Exec) {
				e.Record("compute", 0)
				e.Wait("comm.g", 0)
				e.At("g").AllGather("comm.g", "g", 1, rt.Ts{out}, rt.Ts{in})
				e.Record("comm.g", 1)
				e.Wait("compute", 1)
			}, rt.Options{}, true)
			if err != nil {
				return err
			}
			return s.Close()
		})
		if err != nil {
			t.Fatal(err)
		}
		if len(log.list) != 1 || strings.Contains(log.list[0].form, "2 copies to or from scratch") != want {
			t.Errorf("%d rows: %+v", rows, log.list)
		}
	}
}
