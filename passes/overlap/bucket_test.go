package overlap_test

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/seed-ee968945/concert/internal/attr"
	"github.com/seed-ee968945/concert/internal/golden/gen"
	"github.com/seed-ee968945/concert/ir"
	"github.com/seed-ee968945/concert/passes"
	"github.com/seed-ee968945/concert/passes/internal/passestest"
	"github.com/seed-ee968945/concert/passes/overlap"
	"github.com/seed-ee968945/concert/passes/passtest"
	"github.com/seed-ee968945/concert/passes/standard"
)

// layered is a random module with collectives of all kinds, most of which name a layer.
func layered(t testing.TB, seed uint64, nodes int) *ir.Module {
	t.Helper()
	m, err := gen.Module(seed, gen.Config{Nodes: nodes, World: 2 + 2*int(seed%2), Costs: seed%4 > 0, Alike: true, Kinds: true,
		Effects: seed%3 == 0, Flights: seed%5 == 0, Units: seed%7 == 0})
	if err != nil {
		t.Fatal(err)
	}
	f := m.Funcs()[0]
	r := rand.New(rand.NewPCG(seed, 3))
	for _, n := range f.Order() {
		if k := r.IntN(3); n.Op().IsCollective() && k > 0 {
			f.SetMeta(n, attr.Make(attr.Attr{Key: overlap.LayerKey, Val: attr.String(fmt.Sprint("layer", k))}))
		}
	}
	return m
}

// bucketPipelines are the modes of buckets, alone and with the scheduler, with
// how many times the input's peak they may take.
var bucketPipelines = []struct {
	text  string
	times float64
}{
	{"bucket", 1}, {"bucket{mode=all,coalesced=true}", 1}, {"bucket{mode=params,percent=150}", 1.5}, {"bucket{mode=layer,coalesced=true}", 1}, {"bucket{in-flight=512B}", 1},
	{"overlap", 1}, {"overlap{mode=all,coalesced=true}", 1}, {"overlap{mode=params}", 1}, {"overlap{mode=layer,percent=130}", 1.3},
	{"overlap{in-flight=512B,coalesced=true}", 1}, {"overlap{memory-tradeoff=0,percent=120,bucket-bytes=1KiB}", 1.2},
	{"bucket,overlap{coalesced=true}", 1},
}

// checkBuckets runs one of bucketPipelines and returns the module that comes out.
func checkBuckets(t testing.TB, m *ir.Module, seed uint64, which int) *ir.Module {
	t.Helper()
	c := bucketPipelines[which]
	p, err := standard.Table().Parse(c.text)
	if err != nil {
		t.Fatal(err)
	}
	after := m.Clone()
	g := passes.Manager{Validate: passes.ValidateAlways, Costs: passestest.Latency{}} // verifies: no cycles, nothing traced rewired
	if _, err := g.Run(after, p); err != nil {
		t.Fatalf("seed %d, %s: %v\n%s", seed, c.text, err, m)
	}
	if err := passtest.SameResults(m, after, seed, 0); err != nil {
		t.Fatalf("seed %d, %s: %v\nbefore:\n%s\nafter:\n%s", seed, c.text, err, m, after)
	}
	was, now := passestest.Evaluate(t, m), passestest.Evaluate(t, after)
	if float64(now.Peak) > float64(was.Peak)*c.times || now.Makespan > was.Makespan*(1+1e-9) {
		t.Fatalf("seed %d, %s: from %.2f ms and %d bytes to %.2f ms and %d bytes\n%s", seed, c.text, was.Makespan, was.Peak, now.Makespan, now.Peak, m)
	}
	return after
}

// Buckets in every mode, of every kind of collective, keep results, the cap and
// the makespan; those of a layer stay among themselves, those whose bytes are
// limited stay within.
func TestBucketModes(t *testing.T) {
	seeds := uint64(120)
	if testing.Short() {
		seeds = 25
	}
	kinds := map[string]int{} // buckets by operator
	for seed := range seeds {
		m := layered(t, seed, 30+int(seed)%40)
		layer := map[string]string{}
		for _, n := range m.Funcs()[0].Order() {
			layer[n.Name()] = n.Meta().Str(overlap.LayerKey, "")
		}
		for i, c := range bucketPipelines {
			after := checkBuckets(t, m, seed, i)
			for _, n := range after.Funcs()[0].Order() {
				names := n.Meta().Strs(passes.MembersKey)
				if len(names) == 0 {
					continue
				}
				key := n.Op().Name()
				if n.Attrs().Has("in_splits") {
					key += " with splits"
				}
				kinds[key]++
				for _, name := range names {
					if strings.Contains(c.text, "mode=layer") && (layer[name] == "" || layer[name] != layer[names[0]]) {
						t.Errorf("seed %d, %s: %s mixes layers", seed, c.text, n)
					}
				}
			}
		}
	}
	for _, op := range []string{"all_reduce", "all_gather", "reduce_scatter", "all_to_all", "all_to_all with splits", "broadcast"} {
		if kinds[op] < int(seeds)/8 {
			t.Errorf("%d buckets of %s", kinds[op], op)
		}
	}
}

// FuzzBuckets is TestBucketModes on more programs.
func FuzzBuckets(f *testing.F) {
	f.Add(uint64(1), uint8(3))
	f.Fuzz(func(t *testing.T, seed uint64, which uint8) {
		checkBuckets(t, layered(t, seed, 20+int(which)), seed, int(which)%len(bucketPipelines))
	})
}
