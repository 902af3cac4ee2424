//go:build !linux || !cgo || !(amd64 || arm64)

package driver

import "github.com/seed-ee968945/concert/cuda/dl"

// Open reports that this build has no driver: it was made without cgo or for
// another system. The error wraps ErrNoDriver.
func Open(path string) (Driver, error) {
	_, err := (&dl.Library{Kind: ErrNoDriver, Names: dl.Driver}).Load(path, nil)
	return nil, err
}
