package cudagen_test

import (
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/seed-ee968945/concert/lower/cudagen"
)

// What erf and gelu are for results of 16 bits, of every bfloat16 and float16: off by less than a
// 16-bit rounding would show but next to the middle of two numbers, and special values are kept.
func TestNear(t *testing.T) {
	cc, err := exec.LookPath("g++")
	if err != nil {
		t.Skip("no g++: the functions cannot be run without a GPU")
	}
	exe := filepath.Join(t.TempDir(), "near")
	write(t, exe+".cc", []byte(shim+cudagen.Prelude()+`
#include <stdio.h>
static int check(const char* what, f32 x, f32 got, f64 want) {
  if (got != got ? want != want : got == want || fabs(got - want) <= fabs(want) * 0x1p-16 + (x < -5.5 ? 0x1p-40 : 0x1p-148) && signbit(got) == signbit(want)) return 0;
  printf("%s of %a is %a, want %a\n", what, x, got, want);
  return 1;
}
int main() {
  int wrong = 0;
  for (unsigned i = 0; i < 1 << 17 && wrong < 10; i++) {
    const f32 x = i >> 16 ? f16_value((unsigned short)i) : bf16_value((unsigned short)i);
    wrong += check("erf", x, erf_near(x), erf((f64)x)) + check("gelu", x, gelu_near(x), 0.5 * x * erfc(-(f64)x / 1.4142135623730951));
  }
  return wrong > 0;
}
`))
	if msg, err := exec.Command(cc, "-std=c++17", "-O1", "-w", "-ffp-contract=off", "-o", exe, exe+".cc").CombinedOutput(); err != nil {
		t.Fatalf("g++: %v\n%s", err, msg)
	}
	if msg, err := exec.Command(exe).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, msg)
	}
}
