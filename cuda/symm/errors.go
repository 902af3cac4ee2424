package symm

import (
	"fmt"

	"github.com/seed-ee968945/concert/runtime/rendezvous"
)

// The errors of ranks with each other. Ranks are those of the job; ErrClosed means that a
// world, a group or a handle was used after its Close.
var (
	ErrTimeout  = rendezvous.ErrTimeout
	ErrCanceled = rendezvous.ErrCanceled
	ErrMismatch = rendezvous.ErrMismatch
	ErrClosed   = rendezvous.ErrClosed
)

// Types of the errors of ranks with each other.
type (
	TimeoutError  = rendezvous.TimeoutError
	PeerLostError = rendezvous.PeerLostError
	MismatchError = rendezvous.MismatchError
	CanceledError = rendezvous.CanceledError
)

// ArgumentError is an argument that cannot be served, found before anything was done.
type ArgumentError struct {
	What   string // which argument, such as "GroupOptions.Region"
	Reason string
}

// Error names the argument and the reason.
func (e *ArgumentError) Error() string { return e.What + ": " + e.Reason }

// Invalid makes an *ArgumentError of an argument's name and a reason as fmt.Sprintf has it.
func Invalid(what, format string, args ...any) error {
	return &ArgumentError{What: what, Reason: fmt.Sprintf(format, args...)}
}
