package bench

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/seed-ee968945/concert/internal/dtype"
	"github.com/seed-ee968945/concert/internal/safetensors"
	"github.com/seed-ee968945/concert/interp/step"
)

// Inputs that a file has, by their traced names, are the file's however the others are
// made; a file that contradicts the graph is an error.
func TestData(t *testing.T) {
	f := parsed(t, `world 2

func @looked(%x: bf16[4,2], %buffer.1: i64[3] !{fx="buffer/1"}, %scale: f32[]) -> (bf16[3,2], f32[]) {
	%y = embedding %x, %buffer.1 : bf16[3,2]
	return %y, %scale
}
`)
	write := func(ts ...safetensors.Tensor) string {
		file, err := os.Create(filepath.Join(t.TempDir(), "looked.data.safetensors"))
		if err != nil {
			t.Fatal(err)
		}
		defer file.Close()
		if err := safetensors.Write(file, &safetensors.File{Tensors: ts}); err != nil {
			t.Fatal(err)
		}
		return file.Name()
	}
	at := safetensors.Tensor{Name: "buffer/1", DType: dtype.I64, Shape: []int64{3}, Data: []byte{3, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0}}
	one := safetensors.Tensor{Name: "scale", DType: dtype.F32, Shape: []int64{}, Data: []byte{0, 0, 0x80, 0x3f}}
	data := write(at, one)
	for _, random := range []string{"valid", "hash", "quick"} {
		pair := &step.Pair{Name: "looked", Forward: f}
		j := &Job{Config: Config{Random: random, Seed: 3, Same: "none", Data: data}, pair: pair, traced: pair}
		if err := j.makeInputs(); err != nil {
			t.Fatal(err)
		}
		for r := range 2 {
			in, err := j.inputsOf(r)
			if err != nil {
				t.Fatal(err)
			}
			for k, want := range [][]byte{1: at.Data, 2: one.Data} {
				if want != nil && string(in[k].Data) != string(want) {
					t.Errorf("%s, rank %d: input %d is %v", random, r, k, in[k])
				}
			}
			if in[0].NumElems() != 8 || in[0].Float64s()[0] == 0 {
				t.Errorf("%s, rank %d: input 0 is %v", random, r, in[0])
			}
		}
	}
	at.DType = dtype.F64
	j := &Job{Config: Config{Random: "valid", Data: write(at)}, pair: &step.Pair{Name: "looked", Forward: f}}
	if err := j.makeInputs(); err == nil || !strings.Contains(err.Error(), "tensor buffer/1 is f64[3], input %buffer.1 takes i64[3]") {
		t.Errorf("an element type that does not fit: %v", err)
	}
}
