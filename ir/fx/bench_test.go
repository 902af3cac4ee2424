package fx

import (
	"bytes"
	"compress/gzip"
	"io"
	"os"
	"testing"
)

// unpack reads a traced graph's document.
func unpack(t testing.TB, name string) []byte {
	t.Helper()
	z, err := os.Open("../../testdata/graphs/" + name + ".graph.json.gz")
	if err != nil {
		t.Fatal(err)
	}
	defer z.Close()
	r, err := gzip.NewReader(z)
	if err != nil {
		t.Fatal(err)
	}
	doc, err := io.ReadAll(r)
	if err != nil {
		t.Fatal(err)
	}
	return doc
}

// BenchmarkImport reads a packed graph, imports and verifies it.
func BenchmarkImport(b *testing.B) {
	for _, name := range []string{"tiny_fsdp2.fw", "llama8b_fsdp8.bw", "llama70b_fsdp8_tp8.fw", "llama70b_fsdp8_tp8.bw"} {
		b.Run(name, func(b *testing.B) {
			packed, err := os.ReadFile("../../testdata/graphs/" + name + ".graph.json.gz")
			if err != nil {
				b.Fatal(err)
			}
			b.ReportAllocs()
			nodes := 0
			for b.Loop() {
				f, err := Read(name, bytes.NewReader(packed))
				if err != nil {
					b.Fatal(err)
				}
				if _, err := f.Import(); err != nil {
					b.Fatal(err)
				}
				nodes = len(f.Nodes)
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(nodes), "ns/node")
		})
	}
}

// BenchmarkExport writes a graph against its source.
func BenchmarkExport(b *testing.B) {
	f := readGraph(b, "llama70b_fsdp8_tp8.bw")
	r, err := f.Import()
	if err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for b.Loop() {
		if err := Export(io.Discard, f, r.Func); err != nil {
			b.Fatal(err)
		}
	}
}
