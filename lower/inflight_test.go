package lower_test

import (
	"testing"

	"github.com/seed-ee968945/concert/internal/hostrun"
	"github.com/seed-ee968945/concert/interp"
	"github.com/seed-ee968945/concert/ir"
	rt "github.com/seed-ee968945/concert/runtime"
)

// TestInFlight runs a function whose input is on its way when it begins: who does not wait for
// it reads what another rank is to get.
func TestInFlight(t *testing.T) {
	m, err := ir.Parse("f.ir", `world 2
group @g = [[0, 1]]
func @f(%x: async f32[65536]) -> (f32[65536]) {
  %w = wait_tensor %x : f32[65536]
  %y = neg %w : f32[65536]
  return %y
}
`)
	if err != nil {
		t.Fatal(err)
	}
	f := m.Func("f")
	in, err := interp.RandomInputs(f, 1, interp.RandomOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for round := range 10 {
		got, err := hostrun.Goroutines(rt.Config{})(t.Context(), f, in)
		if err != nil {
			t.Fatal(err)
		}
		for r := range got {
			for i, b := range got[r][0].Data {
				if want := in[r][0].Data[i]; i%4 == 3 && b != want^0x80 || i%4 != 3 && b != want {
					t.Fatalf("round %d, rank %d, byte %d: %#x of %#x", round, r, i, b, want)
				}
			}
		}
	}
}
