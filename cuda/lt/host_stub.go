//go:build !linux

package lt

import (
	"errors"

	"github.com/seed-ee968945/concert/cuda"
)

// hostLibrary is nil: fake drivers exist on Linux only.
func hostLibrary(cuda.Driver) backend { return nil }

func onHost(cuda.Driver) bool { return false }

func (p *Problem) sampleOnHost(int64, cuda.Ptr, cuda.Ptr, cuda.Ptr) ([]sample, error) {
	return nil, errors.New("no memory of a device on the host")
}
