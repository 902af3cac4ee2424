//go:build !linux || !cgo

package nvml

import "github.com/seed-ee968945/concert/cuda/topo"

// Read reports that this build cannot read the topology: it was made without cgo or
// for another system. The error wraps ErrUnavailable.
func Read(Options) (*topo.Machine, error) {
	return nil, &Error{Call: "nvmlInit", GPU: -1, Reason: "this program was built without cgo, or not for Linux", wrap: ErrUnavailable}
}
