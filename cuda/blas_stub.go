//go:build !(linux && cgo && (amd64 || arm64))

package cuda

import "fmt"

// BLAS is cuBLAS on one stream; this build has none.
type BLAS struct{}

// OpenBLAS fails: this build has no driver.
func OpenBLAS(Driver, string, Ctx, Stream) (*BLAS, error) {
	return nil, fmt.Errorf("%w: cuBLAS needs cgo on Linux", ErrNoDriver)
}

// MatMul fails like OpenBLAS.
func (*BLAS) MatMul(m, n, k int, x, y, out Ptr) error { return ErrNoDriver }

// Multiprocessors fails like OpenBLAS.
func (*BLAS) Multiprocessors(n int) error { return ErrNoDriver }

// Close does nothing.
func (*BLAS) Close() error { return nil }
