package passes_test

import (
	"testing"

	"github.com/seed-ee968945/concert/internal/golden/gen"
	"github.com/seed-ee968945/concert/passes"
	"github.com/seed-ee968945/concert/passes/internal/passestest"
	"github.com/seed-ee968945/concert/passes/standard"
)

// Passes that schedule under a cap never make a program slower, and never lift
// its peak above the larger of the cap and what it was: judged afresh, not by
// what they say about themselves.
func TestNeverWorse(t *testing.T) {
	table := standard.Table()
	faster := map[string]int{}
	seeds := seeds()
	if testing.Short() {
		seeds = min(seeds, 30)
	}
	for seed := range seeds {
		m, err := gen.Module(seed, gen.Config{Nodes: 30 + int(seed)%40, Costs: true, Alike: seed%2 == 0, Effects: seed%3 == 0, Flights: seed%5 == 0})
		if err != nil {
			t.Fatal(err)
		}
		was := passestest.Evaluate(t, m)
		for _, c := range []struct {
			text  string
			times float64 // of the input's peak
		}{{"reorder-comms", 1}, {"reorder-comms{percent=130}", 1.3}, {"bucket", 1}, {"overlap", 1}, {"overlap{percent=130,memory-tradeoff=0}", 1.3}} {
			p, err := table.Parse(c.text)
			if err != nil {
				t.Fatal(err)
			}
			after := m.Clone()
			g := passes.Manager{Validate: passes.ValidateAlways, Costs: passestest.Latency{}}
			if _, err := g.Run(after, p); err != nil {
				t.Fatalf("seed %d, %s: %v", seed, c.text, err)
			}
			now := passestest.Evaluate(t, after)
			if now.Makespan > was.Makespan*(1+1e-9) || float64(now.Peak) > float64(was.Peak)*c.times {
				t.Errorf("seed %d, %s: from %.2f ms and %d bytes to %.2f ms and %d bytes", seed, c.text, was.Makespan, was.Peak, now.Makespan, now.Peak)
			}
			if now.Makespan < was.Makespan*0.999 {
				faster[c.text]++
			}
		}
	}
	for _, text := range []string{"reorder-comms", "overlap"} {
		if faster[text] < int(seeds)/3 {
			t.Errorf("%s made %d of %d programs faster", text, faster[text], seeds)
		}
	}
}
