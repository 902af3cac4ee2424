//go:build !linux

package progen

// FakeCUDA runs programs on GPUs that are this machine's memory, of which there are
// none here.
func FakeCUDA(bool) Device { return nil }
