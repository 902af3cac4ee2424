//go:build linux && cgo && (amd64 || arm64)

package cuda

import (
	"errors"
	"testing"
)

// TestMulticastSymbols: the real driver's functions stay unresolved until they are asked
// for, and where there is no driver they are absent.
func TestMulticastSymbols(t *testing.T) {
	fakeOnly(t)
	if _, err := Open(""); err == nil {
		t.Skip("this machine has a driver, which is not asked for multicast")
	}
	if ok, err := (lib{}).MulticastSupported(0); ok || !errors.Is(err, ErrNoMulticast) {
		t.Errorf("supported: %v, %v", ok, err)
	}
	if _, err := (lib{}).MulticastCreate(0, 2, 1<<21, ByFD); err == nil {
		t.Error("an object was made without a driver")
	}
}
