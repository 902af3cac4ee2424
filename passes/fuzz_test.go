package passes_test

import (
	"errors"
	"fmt"
	"testing"

	"github.com/seed-ee968945/concert/internal/golden/gen"
	"github.com/seed-ee968945/concert/passes"
	"github.com/seed-ee968945/concert/passes/internal/passestest"
	"github.com/seed-ee968945/concert/passes/partition"
	"github.com/seed-ee968945/concert/passes/passtest"
	"github.com/seed-ee968945/concert/passes/standard"
)

// Any text either reads as a pipeline whose own text reads back as the same, or
// gives an error; it never panics.
func FuzzPipelineText(f *testing.F) {
	table := standard.Table()
	for _, s := range []string{"", "default", "arena", "canonicalize,sink-waits{limit=10}", "overlap{cap=8GiB,buckets=false}", "reorder-comms{,}", "a{b=c", ",,", "sink-waits{limit=1}{}"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		p, err := table.Parse(text)
		if err != nil {
			return
		}
		again, err := table.Parse(p.String())
		if err != nil || again.String() != p.String() {
			t.Fatalf("%q reads as %q, which reads as %v, %v", text, p, again, err)
		}
	})
}

// A random program keeps its meaning through any pass. The one thing that a pass may
// refuse is to part backward from what forward overwrites before backward reads it.
func FuzzPass(f *testing.F) {
	f.Add(uint64(1), uint8(3))
	f.Add(uint64(161), uint8(45)) // partition meets a value that forward overwrites
	table := standard.Table()
	f.Fuzz(func(t *testing.T, seed uint64, which uint8) {
		m, err := gen.Module(seed, gen.Config{Nodes: 20 + int(which)/4, Flights: which%2 == 0, Effects: which%3 == 0, Units: which%5 == 0, Costs: true, Alike: which%7 == 0})
		if err != nil {
			t.Fatal(err)
		}
		pass := table.Passes()[int(which)%len(table.Passes())]
		p, err := table.Parse(pass.Name)
		if err != nil {
			t.Fatal(err)
		}
		after := m.Clone()
		g := passes.Manager{Validate: passes.ValidateAlways, Costs: passestest.Latency{}}
		if _, err := g.Run(after, p); err != nil {
			var split *partition.Error
			if errors.As(err, &split) && split.Whole {
				return
			}
			t.Fatalf("%v\n%s", err, m)
		}
		if err := passtest.SameResults(m, after, seed, 0); err != nil {
			t.Fatalf("%s: %v\n%s\n%s", pass.Name, err, m, after)
		}
	})
}

// BenchmarkPass is one pass with the manager's checks on random programs of
// growing size; ns/node stays flat where the pass is linear.
func BenchmarkPass(b *testing.B) {
	table := standard.Table()
	for _, pass := range table.Passes() {
		for _, n := range []int{1_000, 10_000, 100_000} {
			m, err := gen.Module(1, gen.Config{Nodes: n, Costs: true, Alike: true, MaxDim: 64})
			if err != nil {
				b.Fatal(err)
			}
			p, err := table.Parse(pass.Name)
			if err != nil {
				b.Fatal(err)
			}
			nodes := len(m.Funcs()[0].Order())
			b.Run(fmt.Sprintf("%s/%d", pass.Name, n), func(b *testing.B) {
				var nanos int64
				var clock int64
				for b.Loop() {
					b.StopTimer()
					c := m.Clone()
					b.StartTimer()
					g := passes.Manager{Costs: passestest.Latency{}, Clock: func() int64 { clock = b.Elapsed().Nanoseconds(); return clock }}
					r, err := g.Run(c, p)
					if err != nil {
						b.Fatal(err)
					}
					nanos += r.Steps[0].Nanos
				}
				b.ReportMetric(float64(nanos)/float64(b.N)/float64(nodes), "ns/node")
			})
		}
	}
}
