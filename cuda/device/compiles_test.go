//go:build linux

package device_test

import (
	"os"
	"testing"

	"github.com/seed-ee968945/concert/internal/prelude/clang"
)

// The device's own kernels are CUDA.
func TestCompiles(t *testing.T) {
	text, err := os.ReadFile("copy.cu")
	if err != nil {
		t.Fatal(err)
	}
	clang.Check(t, "copy.cu", string(text))
}
