package runtime

import (
	"errors"
	"fmt"

	"github.com/seed-ee968945/concert/runtime/rendezvous"
)

// What errors.Is finds in the errors of this package.
var (
	ErrTimeout     = rendezvous.ErrTimeout
	ErrPeerLost    = rendezvous.ErrPeerLost
	ErrMismatch    = rendezvous.ErrMismatch
	ErrCanceled    = rendezvous.ErrCanceled
	ErrClosed      = rendezvous.ErrClosed
	ErrUnsupported = errors.New("not supported")
	ErrSymbol      = errors.New("a run-time size is out of its bounds")
)

// The errors of ranks with each other, which everything from the rendezvous to the
// devices uses.
type (
	TimeoutError  = rendezvous.TimeoutError
	PeerLostError = rendezvous.PeerLostError
	MismatchError = rendezvous.MismatchError
	CanceledError = rendezvous.CanceledError
)

// RendezvousError says that the ranks came together but cannot form a world: they sit on
// different hosts where the device needs one, or one cannot open its device.
type RendezvousError struct {
	Rank   int
	Reason string
	Err    error
}

// Error implements error.
func (e *RendezvousError) Error() string {
	s := fmt.Sprintf("rank %d: rendezvous: %s", e.Rank, e.Reason)
	if e.Err != nil {
		s += ": " + e.Err.Error()
	}
	return s
}

// Unwrap gives the cause.
func (e *RendezvousError) Unwrap() error { return e.Err }

// FuncError says that a module calls what no function is registered for, or none for the
// kind of device that was opened. It wraps ErrUnsupported.
type FuncError struct {
	Rank           int
	Module, Target string
	Device         string // kind of the device
	Has            string // what the function that is registered is for; empty if none is
}

// Error implements error.
func (e *FuncError) Error() string {
	s := fmt.Sprintf("rank %d: module %s calls @%s, for which no function is registered in Config.Funcs", e.Rank, e.Module, e.Target)
	if e.Has != "" {
		s = fmt.Sprintf("rank %d: module %s calls @%s, whose function is for %s only: a %s device needs another in Config.Funcs", e.Rank, e.Module, e.Target, e.Has, e.Device)
	}
	return s
}

// Unwrap gives ErrUnsupported.
func (e *FuncError) Unwrap() error { return ErrUnsupported }

// CallError says that one call of a program is malformed or failed by itself.
type CallError struct {
	Rank int
	Op   string // the call, with its IR op if known
	Err  error
}

// Error implements error.
func (e *CallError) Error() string { return fmt.Sprintf("rank %d: %s: %v", e.Rank, e.Op, e.Err) }

// Unwrap gives the cause.
func (e *CallError) Unwrap() error { return e.Err }

// ControlFlowError says why a captured step cannot run its loops and branches by
// itself. It wraps ErrUnsupported.
type ControlFlowError struct {
	Rank   int // that cannot
	Reason string
}

// Error implements error.
func (e *ControlFlowError) Error() string {
	return fmt.Sprintf("rank %d: the host has to choose: %s", e.Rank, e.Reason)
}

// Unwrap gives ErrUnsupported.
func (e *ControlFlowError) Unwrap() error { return ErrUnsupported }
