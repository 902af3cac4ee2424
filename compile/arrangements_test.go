package compile_test

import (
	"context"
	"flag"
	"fmt"
	"testing"

	"github.com/seed-ee968945/concert/compile"
	"github.com/seed-ee968945/concert/internal/llama"
	"github.com/seed-ee968945/concert/ir"
)

var layers = flag.Int64("layers", 1, "of TestArrangements")

// bounds are time and peak of what is partitioned, at most, as parts of what is sharded by hand;
// of one layer.
var bounds = map[string][2]float64{"ddp4": {1.02, 1.02}, "fsdp4": {1.02, 1.02}, "tp4 sp": {1.02, 1.02}, "fsdp2 tp2": {1.02, 1.02}, "experts4": {1.04, 1.02}}

// figures are those of a function that is compiled with its result types.
func figures(t *testing.T, m *ir.Module) compile.Figures {
	r, err := compile.Compile(context.Background(), m, compile.Target{}, compile.Options{})
	if err != nil {
		t.Fatal(err)
	}
	f, err := r.Funcs[0].After()
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// TestArrangementsProved makes steps of one device with a few annotations ones of four ranks, and
// proves them.
func TestArrangementsProved(t *testing.T) {
	l := llama.Step{Layers: 2, Hidden: 8, FFN: 16, Heads: 4, Keys: 4, Head: 4, Vocab: 8, Batch: 4, Seq: 4, DType: ir.F64}
	for _, a := range llama.Arrangements {
		one := a.Of(l)
		f, err := one.Device(a.Annotate)
		if err != nil {
			t.Fatal(err)
		}
		if err := compile.PartitionProved(f.Module(), compile.PartitionOptions{}); err != nil {
			t.Errorf("%s: %v", a.Name, err)
		}
	}
}

// TestArrangements holds simulated time and peak of steps that are partitioned against those of
// steps that are sharded by hand.
//
//	go test ./compile -run TestArrangements$ -layers 4 -v
func TestArrangements(t *testing.T) {
	l := llama.Step{Layers: *layers, Hidden: 4096, FFN: 14336, Heads: 32, Keys: 8, Head: 128, Vocab: 128256, Batch: 4, Seq: 4096, DType: ir.BF16}
	for _, a := range llama.Arrangements {
		device, hand := a.Of(l), a.Of(l)
		f, err := device.Device(a.Annotate)
		if err == nil {
			err = compile.Partition(f.Module(), compile.PartitionOptions{})
		}
		if err != nil {
			t.Fatal(err)
		}
		h, err := hand.Ranks()
		if err != nil {
			t.Fatal(err)
		}
		got, want := figures(t, f.Module()), figures(t, h.Module())
		row := func(name string, x compile.Figures) string {
			return fmt.Sprintf("%-10s %-5s %9.3f ms, exposed %7.3f, peak %7.3f GB, %3d collectives of %7.3f GB", a.Name, name, x.Makespan, x.Exposed, float64(x.Peak)/1e9, x.Collectives, float64(x.CommBytes)/1e9)
		}
		t.Log(row("hand", want))
		t.Log(row("spmd", got))
		time, peak := got.Makespan/want.Makespan, float64(got.Peak)/float64(want.Peak)
		if b := bounds[a.Name]; time > b[0] || peak > b[1] {
			t.Errorf("%s: %.3f of the time and %.3f of the peak by hand, want %.2f and %.2f at most", a.Name, time, peak, b[0], b[1])
		}
	}
}
