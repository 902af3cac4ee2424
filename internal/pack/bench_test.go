package pack

import (
	"context"
	"os"
	"path/filepath"
	"testing"
)

// instances are google/minimalloc's public instances; each is known to fit
// into 1,048,576.
var instances = []string{"A", "B", "C", "D", "E", "F", "G", "H", "I", "J", "K"}

const instanceCapacity = 1 << 20

func readInstance(tb testing.TB, name string) Problem {
	tb.Helper()
	f, err := os.Open(filepath.Join("..", "..", "testdata", "minimalloc", name+".csv"))
	if err != nil {
		tb.Fatal(err)
	}
	defer f.Close()
	t, err := ReadCSV(f)
	if err != nil {
		tb.Fatal(err)
	}
	return t.Problem
}

// BenchmarkInstances prints, for each instance, the time and the nodes it
// takes to fit it into 1,048,576 and the height reached.
func BenchmarkInstances(b *testing.B) {
	for _, name := range instances {
		b.Run(name, func(b *testing.B) {
			p := readInstance(b, name+".1048576")
			var res Result
			for b.Loop() {
				var err error
				res, err = Solve(context.Background(), p, Options{Capacity: instanceCapacity, Goal: instanceCapacity, Nodes: 1_000_000})
				if err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(res.Height), "height")
			b.ReportMetric(float64(res.LowerBound), "bound")
			b.ReportMetric(float64(res.Nodes), "nodes")
		})
	}
}
