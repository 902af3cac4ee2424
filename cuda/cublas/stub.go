//go:build !(linux && cgo && (amd64 || arm64))

package cublas

import (
	"fmt"
	"github.com/seed-ee968945/concert/cuda/driver"
)

// Handle is cuBLAS on one stream; this build has none.
type Handle struct{}

// Open fails: this build has no driver.
func Open(driver.Driver, string, driver.Ctx, driver.Stream) (*Handle, error) {
	return nil, fmt.Errorf("%w: cuBLAS needs cgo on Linux", driver.ErrNoDriver)
}

// MatMul fails like Open.
func (*Handle) MatMul(m, n, k int, x, y, out driver.Ptr) error { return driver.ErrNoDriver }

// Multiprocessors fails like Open.
func (*Handle) Multiprocessors(n int) error { return driver.ErrNoDriver }

// Close does nothing.
func (*Handle) Close() error { return nil }
