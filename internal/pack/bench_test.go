package pack

import (
	"context"
	"os"
	"path/filepath"
	"strconv"
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

// BenchmarkInstances prints, for each instance, the time and the effort it
// takes to fit it into 1,048,576 and the height reached.
func BenchmarkInstances(b *testing.B) {
	for _, name := range instances {
		b.Run(name, func(b *testing.B) {
			p := readInstance(b, name+".1048576")
			var res Result
			for b.Loop() {
				var err error
				res, err = Solve(context.Background(), p, Options{Capacity: instanceCapacity, Goal: instanceCapacity, Steps: 10_000_000_000})
				if err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(res.Height), "height")
			b.ReportMetric(float64(res.LowerBound), "bound")
			b.ReportMetric(float64(res.Nodes), "nodes")
			b.ReportMetric(float64(res.Steps)/1e6, "Msteps")
		})
	}
}

// BenchmarkBestFit measures BestFit on problems like a training step.
func BenchmarkBestFit(b *testing.B) {
	for _, n := range []int{1000, 20_000, 100_000} {
		b.Run(strconv.Itoa(n), func(b *testing.B) {
			p := stepLike(n)
			lb, err := LowerBound(p)
			if err != nil {
				b.Fatal(err)
			}
			var h int64
			for b.Loop() {
				if _, h, err = BestFit(p); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(h)/float64(lb), "of-bound")
		})
	}
	for _, name := range instances {
		b.Run(name, func(b *testing.B) {
			p := readInstance(b, name+".1048576")
			var h int64
			for b.Loop() {
				var err error
				if _, h, err = BestFit(p); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(h)/instanceCapacity, "of-capacity")
		})
	}
}
