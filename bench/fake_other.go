//go:build !linux

package bench

import (
	"errors"

	"github.com/seed-ee968945/concert/cuda"
)

// fakeDriver is for Linux only.
func fakeDriver(int) (cuda.Driver, error) {
	return nil, errors.New("GPUs that are not there need Linux")
}
