package kernels

// RoomError is a PlanError of a call that is too large for the group's scratch: smaller
// ones of the same kind can be served.
type RoomError struct{ PlanError }

// Unwrap gives the PlanError.
func (e *RoomError) Unwrap() error { return &e.PlanError }
