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

// arrangement says of a few tensors how they lie, and has the step that is sharded so by hand.
type arrangement struct {
	name        string
	data, model int64
	replicate   bool
	time, peak  float64 // at most, as parts of what is sharded by hand
	annotate    func(l *llama.Step, m *ir.Mesh)
}

// one annotates inputs of a kind: the first, and the others alike.
func one(l *llama.Step, m *ir.Mesh, dims []string, kinds ...string) {
	var all []*ir.Value
	for _, k := range kinds {
		all = append(all, l.Inputs[k]...)
	}
	all[0].Shard(m, dims...)
	if len(all) > 1 {
		m.Alike(all...)
	}
}

var arrangements = []arrangement{
	{"ddp4", 4, 1, true, 1.02, 1.02, func(l *llama.Step, m *ir.Mesh) {
		one(l, m, []string{"data", ""}, "ids", "goal")
	}},
	{"fsdp4", 4, 1, false, 1.02, 1.02, func(l *llama.Step, m *ir.Mesh) {
		one(l, m, []string{"data", ""}, "ids", "goal")
		for _, k := range [][]string{{"table"}, {"out"}, {"q"}, {"k", "v"}, {"gate", "up"}} {
			one(l, m, []string{"data", ""}, k...)
		}
		one(l, m, []string{"", "data"}, "o")
		one(l, m, []string{"", "data"}, "down")
	}},
	{"tp4 sp", 1, 4, false, 1.08, 1.85, func(l *llama.Step, m *ir.Mesh) {
		one(l, m, []string{"", "model"}, "ids", "goal")
		for _, k := range [][]string{{"q"}, {"k", "v"}, {"gate", "up"}, {"out"}} {
			one(l, m, []string{"", "model"}, k...)
		}
		one(l, m, []string{"model", ""}, "o")
		one(l, m, []string{"model", ""}, "down")
	}},
	{"fsdp2 tp2", 2, 2, false, 1.17, 1.45, func(l *llama.Step, m *ir.Mesh) {
		one(l, m, []string{"data", "model"}, "ids", "goal")
		one(l, m, []string{"data", ""}, "table")
		for _, k := range [][]string{{"q"}, {"k", "v"}, {"gate", "up"}, {"out"}} {
			one(l, m, []string{"data", "model"}, k...)
		}
		one(l, m, []string{"model", "data"}, "o")
		one(l, m, []string{"model", "data"}, "down")
		one(l, m, []string{""}, "first", "second")
	}},
}

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
	for _, a := range arrangements {
		l.Data, l.Model, l.Replicate = a.data, a.model, a.replicate
		one := l
		f, err := one.Device(a.annotate)
		if err != nil {
			t.Fatal(err)
		}
		if err := compile.PartitionProved(f.Module()); err != nil {
			t.Errorf("%s: %v", a.name, err)
		}
	}
}

// TestArrangements holds simulated time and peak of steps that are partitioned against those of
// steps that are sharded by hand.
//
//	go test ./compile -run TestArrangements$ -layers 4 -v
func TestArrangements(t *testing.T) {
	l := llama.Step{Layers: *layers, Hidden: 4096, FFN: 14336, Heads: 32, Keys: 8, Head: 128, Vocab: 128256, Batch: 4, Seq: 4096, DType: ir.BF16}
	for _, a := range arrangements {
		l.Data, l.Model, l.Replicate = a.data, a.model, a.replicate
		device, hand := l, l
		f, err := device.Device(a.annotate)
		if err == nil {
			err = compile.Partition(f.Module())
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
			return fmt.Sprintf("%-10s %-5s %9.3f ms, exposed %7.3f, peak %7.3f GB, %3d collectives of %7.3f GB", a.name, name, x.Makespan, x.Exposed, float64(x.Peak)/1e9, x.Collectives, float64(x.CommBytes)/1e9)
		}
		t.Log(row("hand", want))
		t.Log(row("spmd", got))
		if got.Makespan > a.time*want.Makespan || float64(got.Peak) > a.peak*float64(want.Peak) {
			t.Errorf("%s: %.3f of the time and %.3f of the peak by hand, want %.2f and %.2f at most", a.name, got.Makespan/want.Makespan, float64(got.Peak)/float64(want.Peak), a.time, a.peak)
		}
	}
}
