package lt

import (
	"testing"

	"github.com/seed-ee968945/concert/internal/prelude/clang"
)

// The package's own kernels are CUDA.
func TestCompiles(t *testing.T) {
	clang.Check(t, "check.cu", checkSource)
	clang.Check(t, "prefetch.cu", prefetchSource)
	for _, s := range []Skinny{{Rows: 1, Parts: 4, Cluster: 1, Unroll: 1, Tokens: 2, Members: 3}, {Rows: 4, Parts: 8, Cluster: 4, Unroll: 8, Tokens: 8}} {
		clang.Check(t, "skinny.cu", s.source())
	}
}
