package fx_test

import (
	"bytes"
	"context"
	"reflect"
	"testing"

	"github.com/rogpeppe/go-internal/txtar"

	"github.com/seed-ee968945/concert/interp"
	"github.com/seed-ee968945/concert/ir"
	"github.com/seed-ee968945/concert/ir/fx"
)

// A loop of steps carries what a step updates, also through a document that was written from the IR.
func TestUpdatesAreCarried(t *testing.T) {
	a, err := txtar.ParseFile("testdata/updates.txtar")
	if err != nil {
		t.Fatal(err)
	}
	imported := func(text []byte) *ir.Func {
		f, err := fx.Read("updates.json", bytes.NewReader(text))
		if err != nil {
			t.Fatal(err)
		}
		r, err := f.Import()
		if err != nil {
			t.Fatal(err)
		}
		return r.Func
	}
	f := imported(a.Files[0].Data)
	var text bytes.Buffer
	if err := fx.Export(&text, nil, f); err != nil {
		t.Fatal(err)
	}
	for _, f := range []*ir.Func{f, imported(text.Bytes())} {
		mean, _ := interp.FromSlice([]float32{1, 2}, 2)
		count, _ := interp.FromSlice([]int64{5})
		table, _ := interp.FromSlice([]float32{1, 2, 3, 4}, 2, 2)
		x, _ := interp.FromSlice([]float32{10, 20}, 2)
		in := [][]interp.Tensor{{mean, count, table, mean, x}}
		for range 2 {
			out, err := interp.Run(context.Background(), f, in, interp.Options{})
			if err != nil {
				t.Fatal(err)
			}
			if in, err = interp.Next(f, in, out); err != nil {
				t.Fatal(err)
			}
		}
		var got [][]float64
		for _, v := range in[0] {
			got = append(got, v.Float64s())
		}
		if want := [][]float64{{21, 42}, {7}, {1, 2, 3, 4}, {10, 20}, {10, 20}}; !reflect.DeepEqual(got, want) {
			t.Errorf("after two steps the inputs are %v, want %v", got, want)
		}
	}
}

// The file says what it is written with.
func TestUpdatesAreWritten(t *testing.T) {
	f := &fx.File{Name: "f", World: 1, Nodes: []fx.Node{{Name: "x", Kind: fx.KindInput, Target: "x", Args: "()", Out: []fx.Tensor{{Shape: []int64{1}, Stride: []int64{1}, DType: "float32"}}},
		{Name: "output", Kind: fx.KindOutput, Target: "output", Inputs: []string{"x"}, Args: "((x,),)", Updates: []string{"x"}}}}
	var text bytes.Buffer
	if _, err := f.WriteTo(&text); err != nil {
		t.Fatal(err)
	}
	back, err := fx.Read("f.json", &text)
	if err != nil {
		t.Fatal(err)
	}
	if got := back.Nodes[1].Updates; !reflect.DeepEqual(got, []string{"x"}) {
		t.Errorf("read back: %q", got)
	}
}
