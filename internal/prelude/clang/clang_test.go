package clang

import (
	"os/exec"
	"strings"
	"testing"

	"github.com/seed-ee968945/concert/internal/prelude"
)

// failures counts what a check finds.
type failures struct {
	testing.TB
	text string
}

func (f *failures) Helper()                   {}
func (f *failures) Errorf(s string, a ...any) { f.text += s }

// A kernel that does not compile is found, and one that does is not blamed.
func TestCheck(t *testing.T) {
	if _, err := exec.LookPath(command); err != nil {
		t.Skipf("no %s", command)
	}
	for text, good := range map[string]bool{
		"extern \"C\" __global__ void __launch_bounds__(32) k(f32* out) { store(out + threadIdx.x, exp_of(1.0f)); }": true,
		"extern \"C\" __global__ void k(f32* out) { store(out + threadIdx.y, unknown_of(1.0f)); }":                   false,
		"extern \"C\" __global__ void k(bf16* out) { store(out, to_bf16(1.0f)) }":                                    false,
		"extern \"C\" __global__ void k(bf16* out) { store(out, (i64)fold_lanes<64, 1>(1.0f, First())); }":           false,
	} {
		f := &failures{TB: t}
		if Check(f, "k", prelude.Source+text); (f.text == "") != good {
			t.Errorf("%s: %q", text, strings.TrimSpace(f.text))
		}
	}
}
