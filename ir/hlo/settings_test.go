package hlo

import (
	"testing"

	"github.com/seed-ee968945/concert/interp"
)

// Calls of LAPACK are configured by numbers with types: this one solves with the upper triangle.
func TestCallSettings(t *testing.T) {
	const upper = `HloModule m, entry_computation_layout={(f32[2,2]{1,0}, f32[2,1]{1,0})->f32[2,1]{1,0}}

ENTRY main {
  a = f32[2,2]{1,0} constant({{2, 1}, {0, 4}})
  b = f32[2,1]{1,0} constant({{4}, {8}})
  ROOT r = f32[2,1]{1,0} custom-call(a, b), custom_call_target="lapack_strsm_ffi", api_version=API_VERSION_TYPED_FFI, backend_config={diag = 78 : ui8, side = 76 : ui8, trans_x = 78 : ui8, uplo = 85 : ui8}
}
`
	p, err := program("trsm.hlo", upper)
	if err != nil {
		t.Fatal(err)
	}
	got, err := interp.Run(t.Context(), p.Module.Funcs()[0], [][]interp.Tensor{nil}, interp.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if x := got[0][0].Float64s(); len(x) != 2 || x[0] != 1 || x[1] != 2 {
		t.Errorf("got %v, want [1 2]", x)
	}
}
