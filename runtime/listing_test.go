package runtime_test

import (
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	rt "github.com/seed-ee968945/concert/runtime"
	"github.com/seed-ee968945/concert/runtime/host"
	"github.com/seed-ee968945/concert/runtime/rendezvous"
)

// emittedModule is a module as emitted code describes it, without the program's text,
// whose step launches op.
func emittedModule(op string) *rt.Module {
	x := rt.C(0, rt.F32, 4)
	return &rt.Module{Name: "emitted", Digest: op, World: 2, Arena: 512, Events: 1, Streams: []string{"compute", "comm.tp"},
		Groups:  []rt.Group{{Name: "tp", Ranks: [][]int{{0, 1}}}},
		Symbols: []rt.Symbol{{Name: "s0", Hint: 2, Max: 4}},
		Step: func(e *rt.Exec) {
			e.Launch("compute", "rand", rt.A("seed", 3), rt.Ts{x}, nil)
			e.Launch("compute", op, rt.A("scalar", 2.0), rt.Ts{x}, rt.Ts{rt.C(0, rt.F32, e.Sym("s0"))})
			e.Record("compute", 0)
			e.Wait("comm.tp", 0)
			e.Shard("compute", "tp", 0, rt.Ts{rt.C(256, rt.F32, 2)}, rt.Ts{x})
			e.At("ar").AllReduce("comm.tp", "tp", "sum", rt.Ts{x}, rt.Ts{x})
		}}
}

// Emitted code that differs by rank is told apart at the first call that does, and
// the collective that the ranks do not come to has its name.
func TestEmittedDisagree(t *testing.T) {
	job := rendezvous.NewLocal()
	errs := make([]error, 2)
	var wg sync.WaitGroup
	for i, op := range []string{"relu", "tanh"} {
		wg.Go(func() {
			_, errs[i] = rt.Join(t.Context(), host.Opener(host.Options{Local: true}), rt.Config{Env: &rt.Env{Rank: i, World: 2}, Job: job, Timeout: 5 * time.Minute}, emittedModule(op))
		})
	}
	wg.Wait()
	for i, err := range errs {
		var e *rt.MismatchError
		if !errors.As(err, &e) || !strings.Contains(e.Op, `before all_reduce on "tp" (ar)`) {
			t.Errorf("rank %d: %v", i, err)
			continue
		}
		lines := []string{e.RankLine, e.PeerLine}
		if i == 1 {
			lines[0], lines[1] = lines[1], lines[0]
		}
		for k, want := range []string{"@compute launch relu {scalar=2.0} [f32[2] at 0] -> [f32[4] at 0]", "@compute launch tanh {scalar=2.0} [f32[2] at 0] -> [f32[4] at 0]"} {
			if lines[k] != want {
				t.Errorf("rank %d: line %d of rank %d is %q, want %q", i, e.Line, k, lines[k], want)
			}
		}
	}
}

// A peer that does not come is missed in front of the first collective.
func TestEmittedAlone(t *testing.T) {
	_, err := rt.Join(t.Context(), host.Opener(host.Options{Local: true}), rt.Config{Env: &rt.Env{Rank: 0, World: 2}, Job: rendezvous.NewLocal(), Timeout: 50 * time.Millisecond}, emittedModule("relu"))
	var e *rt.TimeoutError
	if !errors.As(err, &e) || !strings.Contains(err.Error(), `before all_reduce on "tp" (ar)`) {
		t.Error(err)
	}
}
