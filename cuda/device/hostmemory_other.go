//go:build !linux

package device

import "github.com/seed-ee968945/concert/cuda"

// hostMemory is for the fake driver, which needs Linux.
func hostMemory(cuda.Ptr, uint64) []byte { return nil }
