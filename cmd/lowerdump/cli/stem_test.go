package cli

import "testing"

// A recording, or the data of a graph, has the name of its file, in which the user may have written dots.
func TestStem(t *testing.T) {
	for path, want := range map[string]string{
		"dir/gpt.fw.graph.json.gz":   "gpt",
		"gpt.v2.bw.graph.json":       "gpt.v2",
		"mlp.stablehlo.mlir.gz":      "mlp",
		"step.hlo.txt":               "step",
		"resnet50.1.ir":              "resnet50.1",
		"-":                          "-",
		".fw":                        ".fw",
		"a.b/c":                      "c",
		"attention.large.mlir":       "attention.large",
		"llama.data.fw.graph.json":   "llama.data",
		"x.gz.y":                     "x.gz.y",
		"../up.one.bw.graph.json.gz": "up.one",
	} {
		if got := stem(path); got != want {
			t.Errorf("%s: %q, want %q", path, got, want)
		}
	}
}
