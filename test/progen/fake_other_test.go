//go:build !linux

package progen

import "errors"

// FakeCUDA runs programs on GPUs that are this machine's memory, of which there are
// none here.
func FakeCUDA(bool) Device { return nil }

// GPUs runs programs on this machine's GPUs, of which there are none here.
func GPUs() (func(graph bool) Device, int, error) { return nil, 0, errors.ErrUnsupported }
