package hlo

import (
	"slices"
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
	gives(t, upper, 1, 2)
}

// gives runs a module without arguments and compares what its first result holds.
func gives(t *testing.T, text string, want ...float64) {
	t.Helper()
	p, err := program("m.hlo", text)
	if err != nil {
		t.Fatal(err)
	}
	got, err := interp.Run(t.Context(), p.Module.Funcs()[0], [][]interp.Tensor{nil}, interp.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if x := got[0][0].Float64s(); !slices.Equal(x, want) {
		t.Errorf("got %v, want %v", x, want)
	}
}

// A product rounds its operands as its algorithm says.
func TestAlgorithm(t *testing.T) {
	for algorithm, want := range map[string]float64{"dot_bf16_bf16_f32": 1, "dot_bf16_bf16_f32_x3": 1.00390625, "dot_tf32_tf32_f32": 1.00390625, "dot_f16_f16_f16": 1.00390625, "unset": 1.00390625} {
		gives(t, `HloModule m, entry_computation_layout={()->f32[1,1]{1,0}}

ENTRY main {
  a = f32[1,1]{1,0} constant({{1.001953125}})
  b = f32[1,1]{1,0} constant({{1.001953125}})
  d = f32[1,1]{1,0} dot(a, b), lhs_contracting_dims={1}, rhs_contracting_dims={0}, algorithm=`+algorithm+`
  ROOT r = f32[1,1]{1,0} reduce-precision(d), exponent_bits=8, mantissa_bits=10
}
`, want)
	}
}

// The smallest elements are found as the largest are.
func TestSmallest(t *testing.T) {
	gives(t, `HloModule m, entry_computation_layout={()->f32[2]{0}}

ENTRY main {
  a = f32[4]{0} constant({3, -1, 2, 0})
  k = (f32[2]{0}, s32[2]{0}) topk(a), k=2, largest=false
  ROOT r = f32[2]{0} get-tuple-element(k), index=0
}
`, -1, 0)
}

// An update whose window reaches over the edge is left out as a whole.
func TestScatterOverTheEdge(t *testing.T) {
	gives(t, `HloModule m, entry_computation_layout={()->s32[5]{0}}

add {
  x = s32[] parameter(0)
  y = s32[] parameter(1)
  ROOT r = s32[] add(x, y)
}

ENTRY main {
  a = s32[5]{0} constant({0, 0, 0, 0, 0})
  i = s32[4,1]{1,0} constant({{4}, {-1}, {3}, {0}})
  u = s32[4,2]{1,0} constant({{1, 2}, {3, 4}, {5, 6}, {7, 8}})
  ROOT r = s32[5]{0} scatter(a, i, u), update_window_dims={1}, inserted_window_dims={}, scatter_dims_to_operand_dims={0}, index_vector_dim=1, to_apply=add
}
`, 7, 8, 0, 5, 6)
}
