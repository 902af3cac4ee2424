//go:build !linux

package bench

import (
	"errors"
	"github.com/seed-ee968945/concert/cuda/driver"
)

// fakeDriver is for Linux only.
func fakeDriver(int) (driver.Driver, error) {
	return nil, errors.New("GPUs that are not there need Linux")
}
