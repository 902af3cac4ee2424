package bench

import (
	"errors"
	"io/fs"
	"os"
	"testing"

	"github.com/seed-ee968945/concert/compile"
	"github.com/seed-ee968945/concert/ir/stablehlo"
)

// A decoder whose layers are a scan ends as fast as the same one without, and takes no more memory.
func TestScan(t *testing.T) {
	figures := func(name string, device compile.Device) compile.Figures {
		packed, err := os.ReadFile("../../shared/jax/" + name + ".stablehlo.mlir.gz")
		if errors.Is(err, fs.ErrNotExist) {
			t.Skip("JAX's programs are not here: ", err)
		}
		if err != nil {
			t.Fatal(err)
		}
		text, err := inflate(packed)
		if err != nil {
			t.Fatal(err)
		}
		p, err := readProgram(stablehlo.Parse, name, text)
		if err != nil {
			t.Fatal(err)
		}
		r, err := compile.Compile(t.Context(), p.Module, compile.Target{Device: device}, compile.Options{})
		if err != nil {
			t.Fatal(err)
		}
		after, err := r.Funcs[0].After()
		if err != nil {
			t.Fatal(err)
		}
		return after
	}
	for _, device := range []compile.Device{compile.Host, compile.GPU} {
		scan, plain := figures("llama_scan", device), figures("llama1_float32", device)
		t.Logf("scan: %.4f ms, %d bytes; layer by layer: %.4f ms, %d bytes", scan.Makespan, scan.Peak, plain.Makespan, plain.Peak)
		if scan.Makespan > plain.Makespan || scan.Peak > plain.Peak {
			t.Errorf("scan: %+v, layer by layer: %+v", scan, plain)
		}
	}
}
