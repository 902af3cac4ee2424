//go:build linux

package device_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"

	"github.com/seed-ee968945/concert/cost"
	"github.com/seed-ee968945/concert/cuda/device"
	"github.com/seed-ee968945/concert/cuda/driver"
	"github.com/seed-ee968945/concert/internal/hostrun"
	"github.com/seed-ee968945/concert/internal/llama"
	"github.com/seed-ee968945/concert/interp"
	"github.com/seed-ee968945/concert/ir"
	"github.com/seed-ee968945/concert/lower"
	"github.com/seed-ee968945/concert/passes"
	"github.com/seed-ee968945/concert/passes/standard"
	"github.com/seed-ee968945/concert/program"
	rt "github.com/seed-ee968945/concert/runtime"
)

// TestStages runs decoders that pass pipeline cuts into stages, and stages that communicate by every
// collective: all ranks give what the interpreter gives, to the bit on the fake driver. Captured, large transfers are
// copies straight into the peers' results, which are elsewhere than the sender's; small ones and
// those of eager runs are packets.
func TestStages(t *testing.T) {
	symmetricOnly(t)
	passes, limit := "default", 0.0
	if *onGPU {
		passes, limit = "cuda", 1e-4
	}
	for _, c := range []struct {
		passes string
		model  int64
		how    how
		form   string // of transfers
	}{
		{"pipeline{stages=4,micro-batches=4}", 1, eager, ""},
		{"pipeline{stages=2,micro-batches=4,schedule=zero-bubble}", 1, packed, "copies"},
		{"pipeline{stages=2,micro-batches=4,schedule=interleaved}", 1, graph, "copies"},
		{"pipeline{stages=2,micro-batches=2}", 2, graph, "copies"},
		{"", 1, eager, ""},
		{"", 1, packed, "packets and chunks"},
	} {
		t.Run(fmt.Sprintf("%s/%d/%v", c.passes, c.model, c.how), func(t *testing.T) {
			if testing.Short() && c.model > 1 {
				t.Skip("collectives within a stage, which are for the plan")
			}
			noGoroutines(t)
			m, s := stages(t, decoder(c.model), c.passes, passes)
			drv, devs, o := target(t, m.World)
			var forms collected
			o.Log = slog.New(&forms)
			rightStages(t, m, s, drv, devs, o, c.how, limit)
			if len(forms.list) == 0 && c.how != eager {
				t.Error("no collective was captured")
			}
			for _, f := range forms.list {
				if limit == 0 && strings.HasPrefix(f.name, "collective_permute") && !strings.HasPrefix(f.form, c.form) {
					t.Errorf("%s has the form %s, want %s", f.name, f.form, c.form)
				}
			}
		})
	}
}

// Ranks that share a device go on world after world: streams that come and go do not come to the
// hardware queues of those that wait for a peer.
func TestStagesOnSharedQueues(t *testing.T) {
	fakeOnly(t)
	symmetricOnly(t)
	noGoroutines(t)
	const ranks, queues = 2, 32
	m, s := stages(t, decoder(1), "", "default")
	drv, o := newFake(t, 1), small(ranks)
	drv.Queues(queues)
	o.ShareDevice = true
	for round := range 4 {
		rightStages(t, m, s, drv, make([]int, ranks), o, []how{eager, packed}[round%2], 0)
	}
	if n := drv.Streams(); n > queues {
		t.Errorf("%d streams were made for %d queues", n, queues)
	}
}

// decoder is a step of four layers, or two where tensors are parallel over two ranks.
func decoder(model int64) llama.Step {
	return llama.Step{Layers: 4 / model, Hidden: 16, FFN: 16, Heads: 2, Keys: 2, Head: 4, Vocab: 8, Batch: 1, Seq: 16, Data: 1, Model: model, DType: ir.F32}
}

// rightStages runs stages and holds all results against the interpreter's: as far off as limit
// says, to the bit if it is 0.
func rightStages(t *testing.T, m *ir.Module, s program.Stages, drv driver.Driver, devs []int, o device.Options, h how, limit float64) {
	t.Helper()
	in, want := expectedOf(t, m)
	got, err := runStages(t.Context(), s, in, func(f func(context.Context, *rt.Rank) error) error {
		return device.Local(t.Context(), drv, devs, rt.Config{Timeout: plenty}, hosted(drv, o), nil, f)
	}, h)
	if err != nil {
		t.Fatal(err)
	}
	for r := range want {
		for i := range want[r] {
			d, err := interp.Compare(got[r][i], want[r][i])
			if err != nil || !(d.Rel <= limit) || limit == 0 && !interp.Equal(got[r][i], want[r][i]) {
				t.Errorf("rank %d, result %d: %v, %v", r, i, d, err)
			}
		}
	}
}

// expectedOf gives stages inputs, and what the interpreter makes of them.
func expectedOf(t *testing.T, m *ir.Module) (in, want [][]interp.Tensor) {
	t.Helper()
	all, err := expected.get(m, func() (e [2][][]interp.Tensor, err error) {
		e[0], e[1], err = expect(t.Context(), m)
		return e, err
	})
	if err != nil {
		t.Fatal(err)
	}
	return all[0], all[1]
}

var expected memo[*ir.Module, [2][][]interp.Tensor]

func expect(ctx context.Context, m *ir.Module) (in, want [][]interp.Tensor, err error) {
	in = make([][]interp.Tensor, m.World)
	for place, name := range m.Stages()[0].Funcs {
		all, err := interp.RandomInputs(m.Func(name), 1, interp.RandomOptions{})
		if err != nil {
			return nil, nil, err
		}
		for _, r := range m.Stages()[0].Ranks(place) {
			in[r] = all[r]
		}
	}
	want, err = interp.RunStages(ctx, m, m.Stages()[0], in, interp.Options{})
	return in, want, err
}

// TestStagesOverNCCL runs stages that only NCCL connects, and stages within domains that NCCL
// connects: to the bit what the interpreter gives, whatever order the stages come to it in.
func TestStagesOverNCCL(t *testing.T) {
	fakeOnly(t)
	for _, c := range []struct {
		passes  string
		model   int64
		how     how
		domains bool // of two ranks, which are a stage
	}{
		{"pipeline{stages=4,micro-batches=4}", 1, eager, false},
		{"pipeline{stages=4,micro-batches=4}", 1, graph, true},
		{"pipeline{stages=2,micro-batches=4,schedule=zero-bubble}", 1, packed, false},
		{"pipeline{stages=2,micro-batches=4,schedule=interleaved}", 1, graph, false},
		{"pipeline{stages=2,micro-batches=4}", 2, eager, true},
		{"pipeline{stages=2,micro-batches=4}", 2, graph, true},
		{"pipeline{stages=2,micro-batches=4}", 2, graph, false},
		{"", 1, eager, false},
		{"", 1, graph, false},
	} {
		t.Run(fmt.Sprintf("%s/%d/%v/%v", c.passes, c.model, c.how, c.domains), func(t *testing.T) {
			if testing.Short() && c.model > 1 {
				t.Skip("collectives within a stage, which are for the plan")
			}
			noGoroutines(t)
			m, s := stages(t, decoder(c.model), c.passes, "default")
			drv, devs, o := overNCCL(t, m.World)
			if c.domains {
				o.Machine, o.Transport = twoDomains(t, drv), ""
			}
			var forms collected
			o.Log = slog.New(&forms)
			rightStages(t, m, s, drv, devs, o, c.how, 0)
			over := map[bool]bool{} // of rank 0, whether transfers and others go over NCCL
			for _, f := range forms.list {
				over[strings.HasPrefix(f.name, "collective_permute")] = strings.HasPrefix(f.form, "NCCL")
			}
			beside := c.domains && c.model == 1 // the second stage is in the domain of the first
			if c.how != eager && (over[true] == beside || c.model > 1 && over[false] == c.domains) {
				t.Errorf("forms: %v", forms.list)
			}
		})
	}
}

// TestResultOverOperand refuses results of one stage that overlap operands: other stages, whose do not,
// would bring them in another order.
func TestResultOverOperand(t *testing.T) {
	symmetricOnly(t)
	noGoroutines(t)
	drv, devs, o := target(t, 2)
	err := device.Local(t.Context(), drv, devs, rt.Config{Timeout: plenty}, hosted(drv, o), nil, func(ctx context.Context, r *rt.Rank) error {
		k := r.Info().Rank
		m := &rt.Module{Name: "stage", World: 2, Arena: 4096, Streams: []string{"comm.pairs"}, Groups: []rt.Group{{Name: "pairs", Ranks: [][]int{{0, 1}}}}, Joint: "two stages", Ranks: []int{k}}
		if err := r.Add(ctx, m, nil); err != nil {
			return err
		}
		_, err := rt.RunModule(ctx, r, m, func(e *rt.Exec) {
			e.AllToAll("comm.pairs", "pairs", nil, nil, rt.Ts{rt.C(int64(64+192*k), rt.F32, 32)}, rt.Ts{rt.C(0, rt.F32, 32)})
		}, nil, rt.Options{})
		return err
	})
	if !errors.Is(err, rt.ErrUnsupported) || !strings.Contains(err.Error(), "a result lies over an operand, which other stages cannot know") {
		t.Errorf("got %v", err)
	}
}

// exchanges is stages that communicate by every collective, with results and operands at other offsets in
// each, some of them strided.
func exchanges(t *testing.T) *ir.Module {
	const calls = `
  %p = collective_permute %x, %z, %e on @pairs {pairs=[0, 1]} : async(f32[8,6], f32[6,8], f32[0])
  %pw:3 = wait_tensor %p : f32[8,6], f32[6,8], f32[0]
  %r = all_reduce %x on @all {reduce="sum"} : async f32[8,6]
  %rw = wait_tensor %r : f32[8,6]
  %g = all_gather %z on @all {dim=1} : async f32[6,16]
  %gw = wait_tensor %g : f32[6,16]
  %s = reduce_scatter %x on @all {dim=0, reduce="sum"} : async f32[4,6]
  %sw = wait_tensor %s : f32[4,6]
  %a = all_to_all %x on @all : async f32[8,6]
  %aw = wait_tensor %a : f32[8,6]
  %b = broadcast %x on @all {root=1} : async f32[8,6]
  %bw = wait_tensor %b : f32[8,6]
  return %pw#0, %pw#1, %rw, %gw, %sw, %aw, %bw
}
`
	m, err := ir.Parse("t.ir", `world 2
group @pp = [[0, 1]]
group @all = [[0, 1]]
group @pairs = [[0, 1]]
stages @step on @pp = @first, @second

func @first(%x: f32[8,6], %e: f32[0]) -> (f32[8,6], f32[6,8], f32[8,6], f32[6,16], f32[4,6], f32[8,6], f32[8,6]) {
  %z = permute %x {dims=[1, 0]} : f32[6,8:1,6]`+calls+`
func @second(%u: f32[50], %y: f32[8,6], %e: f32[0]) -> (f32[8,6], f32[6,8], f32[8,6], f32[6,16], f32[4,6], f32[8,6], f32[8,6]) {
  %v = sum %u {dims=[0]} : f32[]
  %x = add %y, %v : f32[8,6]
  %z = permute %x {dims=[1, 0]} : f32[6,8:1,6]`+calls)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

var staged memo[string, *ir.Module]

// stages cuts a step for each rank by a pass, if it is given, and lowers the stages after others.
func stages(t *testing.T, l llama.Step, cut, then string) (*ir.Module, program.Stages) {
	t.Helper()
	m, err := staged.get(fmt.Sprintf("%+v,%s,%s", l, cut, then), func() (*ir.Module, error) {
		if cut == "" {
			return exchanges(t), nil
		}
		f, err := l.Ranks()
		if err != nil {
			return nil, err
		}
		p, err := standard.Table().Parse(cut + "," + then)
		if err != nil {
			return nil, err
		}
		m := f.Module().Clone()
		g := passes.Manager{Costs: cost.Default()}
		_, err = g.Run(m, p)
		return m, err
	})
	if err != nil {
		t.Fatal(err)
	}
	s, err := lower.Stages(m, m.Stages()[0], lower.Options{Kernels: *onGPU})
	if err != nil {
		t.Fatal(err)
	}
	return m, s
}

// runStages runs the stages on the ranks of a world.
func runStages(ctx context.Context, s program.Stages, in [][]interp.Tensor, world func(func(context.Context, *rt.Rank) error) error, h how) ([][]interp.Tensor, error) {
	mods, err := rt.ModulesOf("step", s)
	if err != nil {
		return nil, err
	}
	outs := make([][]interp.Tensor, len(in))
	return outs, world(func(ctx context.Context, r *rt.Rank) error {
		k := r.Info().Rank
		p := s.Of(k)
		m := mods[slices.Index(s, p)]
		if err := r.Add(ctx, m, nil); err != nil {
			return err
		}
		vs, err := hostrun.Inputs(ctx, r, m, in[k])
		if err != nil {
			return err
		}
		outs[k], err = runStep(ctx, r, hostrun.Step{Module: m, Run: func(x *rt.Exec) { rt.Interpret(x, p) }}, vs, h, 2)
		return err
	})
}
