package sched

import (
	"fmt"
	"testing"

	"github.com/seed-ee968945/concert/sim/simtest"
)

// BenchmarkChain schedules and buckets synthetic chains; time per node may grow
// with the logarithm of the length only.
func BenchmarkChain(b *testing.B) {
	cost := simtest.TracedH200Cost()
	for _, nodes := range []int{1_000, 10_000, 100_000, 1_000_000} {
		c := defaultChain(1)
		c.Layers = nodes / c.NodesPerLayer()
		m, err := c.Model()
		if err != nil {
			b.Fatal(err)
		}
		b.Run(fmt.Sprint(nodes), func(b *testing.B) {
			b.ReportAllocs()
			for range b.N {
				r, err := Schedule(m, Options{Cost: cost})
				if err != nil {
					b.Fatal(err)
				}
				b.ReportMetric(1+r.Gap(), "makespan/bound")
				b.ReportMetric(float64(r.Runs), "runs")
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(m.Len()), "ns/node")
		})
	}
}

// BenchmarkArena schedules and buckets the traced graphs.
func BenchmarkArena(b *testing.B) {
	cost := simtest.TracedH200Cost()
	for _, name := range arena {
		m := simtest.Model(b, name)
		b.Run(name, func(b *testing.B) {
			for range b.N {
				if _, err := Schedule(m, Options{Cost: cost}); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
