package gomlx

import (
	"slices"
	"testing"

	"github.com/gomlx/compute"
	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/compute/gobackend"
	"github.com/gomlx/compute/shapes"
)

// Random bits, and the state behind them, are those of GoMLX's Go backend.
func TestRandomBits(t *testing.T) {
	ours, err := New("")
	if err != nil {
		t.Fatal(err)
	}
	defer ours.Finalize()
	theirs, err := gobackend.New("")
	if err != nil {
		t.Fatal(err)
	}
	defer theirs.Finalize()
	for _, shape := range []shapes.Shape{
		shapes.Make(dtypes.Uint64, 3), shapes.Make(dtypes.Uint32, 5), shapes.Make(dtypes.Uint8, 3, 7), shapes.Make(dtypes.Uint16),
		shapes.Make(dtypes.Int64, 300), shapes.Make(dtypes.Uint32, 2, 1025), shapes.Make(dtypes.Uint64, 3, 22000), shapes.Make(dtypes.Int32, 0),
		shapes.Make(dtypes.Uint16, 3, 2, 8), shapes.Make(dtypes.Uint32, 2, 0), shapes.Make(dtypes.Uint64, 20000), shapes.Make(dtypes.Uint32, 5000, 2),
		shapes.Make(dtypes.Uint64, 2, 4099), shapes.Make(dtypes.Uint64, 4099, 2), shapes.Make(dtypes.Uint32, 2, 3*4099*2), // primes
	} {
		var got [2][2]any
		for k, b := range []compute.Backend{ours, theirs} {
			n := b.Builder("bits")
			f := n.Main()
			state, err := f.Constant([]uint64{0x9e3779b97f4a7c15, 1<<63 + 77, 5}, 3)
			if err != nil {
				t.Fatal(err)
			}
			next, x, err := f.RNGBitGenerator(state, shape)
			if err != nil {
				t.Fatal(err)
			}
			// A second draw begins where the first one ended.
			_, y, err := f.RNGBitGenerator(next, shape)
			if err != nil {
				t.Fatal(err)
			}
			if err := f.Return([]compute.Value{x, y}, nil); err != nil {
				t.Fatal(err)
			}
			e, err := n.Compile()
			if err != nil {
				t.Fatal(err)
			}
			outs, err := e.Execute(nil, nil, 0)
			if err != nil {
				t.Fatal(err)
			}
			for i, o := range outs {
				flat := dtypes.MakeAnySlice(shape.DType, shape.Size())
				if err := o.ToFlatData(flat); err != nil {
					t.Fatal(err)
				}
				got[k][i] = slices.Clone(dtypes.UnsafeByteSliceFromAny(flat))
			}
		}
		for i := range 2 {
			if !slices.Equal(got[0][i].([]byte), got[1][i].([]byte)) {
				t.Errorf("draw %d of %s: %x, want %x", i, shape, got[0][i], got[1][i])
			}
		}
	}
}
