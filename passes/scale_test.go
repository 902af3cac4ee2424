package passes_test

import (
	"fmt"
	"testing"

	"github.com/seed-ee968945/concert/cost"
	"github.com/seed-ee968945/concert/passes"
	"github.com/seed-ee968945/concert/passes/standard"
)

// BenchmarkScale is the order-only pipeline, verifier and digests included, on chains
// of layers from a thousand to a million nodes; see BENCHMARKS.md. Run it with
// -benchtime 1x and read ns/node: it may grow no faster than log n.
func BenchmarkScale(b *testing.B) {
	for _, n := range []int{1_000, 10_000, 100_000, 1_000_000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			p, err := standard.Table().Parse("order-only")
			if err != nil {
				b.Fatal(err)
			}
			nodes := 0
			for b.Loop() {
				b.StopTimer()
				m, err := layers(n)
				if err != nil {
					b.Fatal(err)
				}
				nodes = len(m.Funcs()[0].Order())
				b.StartTimer()
				g := passes.Manager{Costs: cost.TracedH200()}
				if _, err := g.Run(m, p); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(nodes), "ns/node")
		})
	}
}
