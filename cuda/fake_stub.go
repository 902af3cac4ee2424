//go:build !linux

package cuda

// Fake is for Linux only: nothing makes one elsewhere, so that no Driver is one.
type Fake struct{ Driver }

// RegisterCall is never called, for there is no Fake.
func (f *Fake) RegisterCall(run func(args []uint64) error) CFunc { return 0 }

// FakeBytes gives nothing, for there is no memory of a Fake.
func FakeBytes(p Ptr, n uint64) []byte { return nil }
