//go:build !linux

package lt

import "github.com/seed-ee968945/concert/cuda"

// hostLibrary is nil: fake drivers exist on Linux only.
func hostLibrary(cuda.Driver) backend { return nil }
