//go:build !(linux && cgo && (amd64 || arm64))

package cudnn

import "github.com/seed-ee968945/concert/cuda/driver"

// newBackend fails: this build cannot load the library.
func newBackend(driver.Ctx, Options) (backend, error) {
	return nil, &driver.LoadError{Path: "libcudnn.so.9", Reason: "this program was built without cgo, or not for Linux on amd64 or arm64"}
}
