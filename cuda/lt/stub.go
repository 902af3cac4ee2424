//go:build !(linux && cgo && (amd64 || arm64))

package lt

import (
	"fmt"
	"github.com/seed-ee968945/concert/cuda/driver"
)

func openLibrary(drv driver.Driver, _ string) (backend, error) {
	if lib := hostLibrary(drv); lib != nil {
		return lib, nil
	}
	return nil, fmt.Errorf("%w: cuBLASLt needs cgo on Linux", driver.ErrNoDriver)
}
