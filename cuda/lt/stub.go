//go:build !(linux && cgo && (amd64 || arm64))

package lt

import (
	"github.com/seed-ee968945/concert/cuda/dl"
	"github.com/seed-ee968945/concert/cuda/driver"
	"github.com/seed-ee968945/concert/cuda/library"
)

func openLibrary(drv driver.Driver, path string) (backend, error) {
	if lib := hostLibrary(drv); lib != nil {
		return lib, nil
	}
	_, err := (&dl.Library{Kind: library.ErrUnavailable, Names: []string{"libcublasLt.so"}}).Load(path, nil)
	return nil, err
}
