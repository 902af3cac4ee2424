package spmd

import (
	"testing"

	"github.com/seed-ee968945/concert/internal/llama"
	"github.com/seed-ee968945/concert/ir"
)

// Steps of a decoder compute on all ranks the pieces of what one device computes.
func TestLlama(t *testing.T) {
	l := llama.Step{Layers: 1, Hidden: 8, FFN: 16, Heads: 4, Keys: 4, Head: 4, Vocab: 12, Batch: 4, Seq: 4, DType: ir.F32}
	for _, a := range llama.Arrangements {
		f, err := a.Of(l).Device(a.Annotate)
		if err != nil {
			t.Fatal(err)
		}
		if text, err := agree(f.Module(), 1, false, 1e-4); err != nil {
			t.Errorf("%s: %v\n%s", a.Name, err, text)
		}
	}
}
