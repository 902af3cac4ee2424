package fuse_test

import (
	"fmt"
	"testing"

	"github.com/seed-ee968945/concert/internal/golden/gen"
	"github.com/seed-ee968945/concert/ir"
	"github.com/seed-ee968945/concert/passes/internal/passestest"
	"github.com/seed-ee968945/concert/passes/passtest"
)

// In random programs regions that compute again what others would write change no bit and
// lift no peak of the regions as launches.
func TestAgainProperty(t *testing.T) {
	again := 0.0
	for seed := range uint64(150) {
		m, err := gen.Module(seed, gen.Config{Nodes: 70, World: 2, Flights: seed%3 == 0, Effects: seed%2 == 0, Costs: true})
		if err != nil {
			t.Fatal(err)
		}
		original := m.Clone()
		before := measure(t, m.Funcs()[0], passestest.Latency{})
		again += runPasses(t, m, "fuse{kernels=true}").Steps[0].Stat("again")
		if after := measure(t, contracted(t, m.Funcs()[0]), passestest.Latency{}); after.Peak > before.Peak {
			t.Errorf("the peak was %d bytes and is %d bytes", before.Peak, after.Peak)
		}
		if err := passtest.SameResults(original, m, seed, 0); err != nil {
			t.Error(err)
		}
		if t.Failed() {
			t.Fatalf("seed %d:\n%s\n%s", seed, original, m)
		}
	}
	if again < 15 {
		t.Errorf("%v results were computed again", again)
	}
}

// What a result is computed from is found once, however many ways lead to it.
func TestAgainManyWays(t *testing.T) {
	text := "world 1\nfunc @f(%x0: f32[4096]) -> (f32[4096]) {\n"
	for k := range 70 {
		text += fmt.Sprintf("  %%x%d = add %%x%d, %%x%d : f32[4096]\n", k+1, k, k)
	}
	m, err := ir.Parse("test", text+"  return %x70\n}\n")
	if err != nil {
		t.Fatal(err)
	}
	if got := runPasses(t, m, "fuse{kernels=true}").Steps[0].Stat("regions"); got != 2 {
		t.Errorf("%v regions of 70 sums, want 2\n%s", got, m)
	}
}
