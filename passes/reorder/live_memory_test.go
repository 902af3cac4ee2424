package reorder

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/seed-ee968945/concert/internal/golden/gen"
	"github.com/seed-ee968945/concert/ir"
	"github.com/seed-ee968945/concert/passes"
	"github.com/seed-ee968945/concert/passes/internal/deps"
)

// fresh computes the live memory of the order from the definition, without
// any of its code: a storage lives from its node to its last user.
func fresh(d *deps.Func, order []int32) (live []int64) {
	pos := make([]int, len(order))
	for p, v := range order {
		pos[v] = p
	}
	live = make([]int64, len(order))
	for s, size := range d.Size {
		from, to := pos[d.Owner[s]], pos[d.Owner[s]]
		for v := range order {
			if slices.Contains(d.Use.At(int32(v)), int32(s)) {
				to = max(to, pos[v])
			}
		}
		if d.Nodes[d.Owner[s]].Op() == ir.OpInput {
			from = 0
		}
		if d.Pinned[s] {
			to = len(order) - 1
		}
		for p := from; p <= to; p++ {
			live[order[p]] += size
		}
	}
	return live
}

func checkLedger(t *testing.T, d *deps.Func, l *liveMemory) {
	t.Helper()
	want := fresh(d, l.order)
	for p, v := range l.order {
		if l.live[v] != want[v] {
			t.Fatalf("%s at position %d has %d bytes live, recomputed %d", d.Nodes[v].Name(), p, l.live[v], want[v])
		}
		if l.pos[v] != int32(p) {
			t.Fatalf("%s stands at %d, live memory says %d", d.Nodes[v].Name(), p, l.pos[v])
		}
	}
}

func module(t *testing.T, seed uint64, c gen.Config) *ir.Module {
	t.Helper()
	m, err := gen.Module(seed, c)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func mustAnalyze(t *testing.T, f *ir.Func) *deps.Func {
	t.Helper()
	d, err := deps.Analyze(passes.NewContext(&passes.Pass{}, nil, f), f)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// Exchanges of arbitrary runs, legal or not as programs, keep the books exact.
// An exchange that is refused changes nothing.
func TestLedgerExchange(t *testing.T) {
	for seed := range uint64(60) {
		f := module(t, seed, gen.Config{Nodes: 30, Flights: true, Effects: true}).Funcs()[0]
		d := mustAnalyze(t, f)
		l := newLiveMemory(d)
		checkLedger(t, d, l)
		r := rand.New(rand.NewPCG(seed, 1))
		in, n := len(f.Inputs()), len(d.Nodes)
		for range 40 {
			lo := in + r.IntN(n-in-1)
			mid := lo + 1 + r.IntN(n-lo-1)
			hi := mid + 1 + r.IntN(n-mid)
			limit := l.peak()
			if r.IntN(2) == 0 {
				limit = 1 << 60
			}
			before := slices.Clone(l.order)
			ok, top := l.exchange(int32(lo), int32(mid), int32(hi), limit)
			checkLedger(t, d, l)
			if !ok && (!slices.Equal(before, l.order) || top <= limit) {
				t.Fatalf("refused at %d bytes under a limit of %d, order changed: %v", top, limit, !slices.Equal(before, l.order))
			}
			if ok && slices.Equal(before, l.order) {
				t.Fatal("an exchange without effect")
			}
		}
	}
}

// After every move of reorder-comms the incremental memory equals a full
// recomputation, and the peak is at most the cap.
func TestReorderCommsMemory(t *testing.T) {
	moves, tight := 0, 0
	for seed := range uint64(150) {
		m := module(t, seed, gen.Config{Nodes: 40, Flights: seed%3 == 0, Effects: seed%2 == 0, Costs: true})
		input := newLiveMemory(mustAnalyze(t, m.Funcs()[0])).peak()
		p := Comms()
		p.Run = func(ctx *passes.Context, f *ir.Func) error {
			return runReorderComms(ctx, f, func(r *reorderer) {
				moves++
				checkLedger(t, r.d, r.l)
				if peak := r.l.peak(); peak > max(r.cap, input) {
					t.Fatalf("seed %d: peak %d above cap %d and input %d", seed, peak, r.cap, input)
				}
			})
		}
		table, err := passes.NewTable([]passes.Pass{p}, nil, nil)
		if err != nil {
			t.Fatal(err)
		}
		pl, err := table.Parse([]string{"reorder-comms", "reorder-comms{percent=120}", "reorder-comms{order=group,percent=90}", "reorder-comms{cap=1B}"}[seed%4])
		if err != nil {
			t.Fatal(err)
		}
		rep, err := (&passes.Manager{}).Run(m, pl)
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range rep.Steps[0].Records {
			if r.Limit == passes.LimitMemory {
				tight++
			}
		}
		got, told := newLiveMemory(mustAnalyze(t, m.Funcs()[0])).peak(), rep.Steps[0].Stat("peak-after-bytes")
		if float64(got) != told {
			t.Fatalf("seed %d: the program peaks at %d, the pass says %g", seed, got, told)
		}
	}
	if moves < 300 || tight < 10 {
		t.Errorf("%d moves, %d stops for memory: the test shows too little", moves, tight)
	}
}
