package fuse

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/seed-ee968945/concert/internal/golden/gen"
	"github.com/seed-ee968945/concert/ir"
	"github.com/seed-ee968945/concert/passes"
	"github.com/seed-ee968945/concert/sim"
)

// byName takes a node's time from its number: any time will do.
type byName struct{}

// NodeMs implements CostModel.
func (byName) NodeMs(n *ir.Node) (float64, bool) { return float64(1+int(n.ID())*7%11) / 8, true }

// CommMs implements CostModel.
func (byName) CommMs(ir.Op, *ir.Group, ir.Reduction, int64) (float64, bool) { return 0, false }

// What a window concludes from the stretch that a join changes is what a walk over the
// whole order finds, whatever is joined in whatever order.
func TestFuseWindow(t *testing.T) {
	for _, kernels := range []string{"true", "false"} {
		t.Run("kernels="+kernels, func(t *testing.T) { testFuseWindow(t, kernels) })
	}
}

func testFuseWindow(t *testing.T, kernels string) {
	kept, slow, fat := 0, 0, 0
	for seed := range uint64(60) {
		r := rand.New(rand.NewPCG(seed, 3))
		m, err := gen.Module(seed, gen.Config{Nodes: 80, World: 2})
		if err != nil {
			t.Fatal(err)
		}
		p := Pass()
		p.Run = func(ctx *passes.Context, f *ir.Func) error {
			u, err := newFuser(ctx, f)
			if err != nil {
				return err
			}
			n := int32(len(u.order))
			whole := func() float64 {
				tl, err := sim.Evaluate(u.d.Model, u.order, nil)
				if err != nil {
					t.Fatal(err)
				}
				return tl.Makespan
			}
			alone := slices.Repeat([]int32{-1}, int(n)) // every node by itself
			before := whole()
			for range 200 {
				a, b := r.Int32N(n), r.Int32N(n)
				if u.unit[a] < 0 || u.unit[b] < 0 || u.unit[a] == u.unit[b] {
					continue
				}
				u.try(a, b)
				after := whole()
				if after > before*(1+1e-9) {
					t.Fatalf("seed %d: a join takes the makespan from %v to %v", seed, before, after)
				}
				if u.kernels {
					before = after
				}
				if u.unit[a] == u.unit[b] {
					kept++
				}
				if got := u.mem.peak(u.order, u.unit); got > u.peak {
					t.Fatalf("seed %d: %d bytes are live, no more than %d may be", seed, got, u.peak)
				}
				if got := u.mem.peak(u.order, alone); !u.kernels && got > u.nodesPeak {
					t.Fatalf("seed %d: %d bytes are live as the nodes stand, no more than %d may be", seed, got, u.nodesPeak)
				}
				fresh := newWindow(u)
				if !slices.Equal(fresh.nodes.live, u.win.nodes.live) {
					t.Fatalf("seed %d: as the nodes stand %v are live, are %v", seed, u.win.nodes.live, fresh.nodes.live)
				}
				fresh.advance(n)
				if !slices.Equal(fresh.lastPos, u.win.lastPos) {
					t.Fatalf("seed %d: last uses %v, are %v", seed, u.win.lastPos, fresh.lastPos)
				}
				for p, v := range u.order {
					if begins := p == 0 || u.unit[v] < 0 || u.unit[v] != u.unit[u.order[p-1]]; begins && u.win.launches.live[p] != fresh.launches.live[p] {
						t.Fatalf("seed %d: %d bytes are live at %d, there are %d", seed, u.win.launches.live[p], p, fresh.launches.live[p])
					}
				}
				for p := range u.win.known + 1 {
					if math.Abs(u.win.now[p]-fresh.now[p]) > 1e-9 {
						t.Fatalf("seed %d: the clock is %v at %d, it is %v", seed, u.win.now[p], p, fresh.now[p])
					}
				}
			}
			return nil
		}
		step := runPass(t, m, p, "fuse{kernels="+kernels+"}")
		slow += int(step.Stat("refused-time"))
		fat += int(step.Stat("refused-memory"))
	}
	t.Logf("%d joins, %d refused for time, %d for memory", kept, slow, fat)
	if kept < 60 || slow == 0 || fat == 0 {
		t.Errorf("%d joins, %d refused for time, %d for memory: one of them is not tested", kept, slow, fat)
	}
}

// runPass runs p alone, spelt as text, on m.
func runPass(t *testing.T, m *ir.Module, p passes.Pass, text string) *passes.StepReport {
	t.Helper()
	table, err := passes.NewTable([]passes.Pass{p}, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	pl, err := table.Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	rep, err := (&passes.Manager{Costs: byName{}}).Run(m, pl)
	if err != nil {
		t.Fatal(err)
	}
	return &rep.Steps[0]
}
