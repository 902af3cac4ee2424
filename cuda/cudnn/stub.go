//go:build !(linux && cgo && (amd64 || arm64))

package cudnn

import (
	"github.com/seed-ee968945/concert/cuda/dl"
	"github.com/seed-ee968945/concert/cuda/driver"
	"github.com/seed-ee968945/concert/cuda/library"
)

// newBackend fails: this build cannot load the library.
func newBackend(driver.Ctx, Options) (backend, error) {
	_, err := (&dl.Library{Kind: library.ErrUnavailable, Names: []string{"libcudnn.so.9"}}).Load("", nil)
	return nil, err
}
