package kernels

import (
	"fmt"

	"github.com/seed-ee968945/concert/internal/dtype"
)

// PlanError is a call that no kernel can serve.
type PlanError struct {
	Op     Collective
	Reason string
}

// Error names the collective and the reason.
func (e *PlanError) Error() string { return fmt.Sprintf("%v: %s", e.Op, e.Reason) }

// ScratchError is a PlanError of a call that is too large for the group's scratch: smaller
// ones of the same kind can be served.
type ScratchError struct{ PlanError }

// Unwrap gives the PlanError.
func (e *ScratchError) Unwrap() error { return &e.PlanError }

// TypeError is a PlanError of a reduction that no kernel computes of elements of that
// type: the operand can be converted.
type TypeError struct{ PlanError }

// NewTypeError names the reduction and the type.
func NewTypeError(op Collective, red Reduction, dt dtype.DType) *TypeError {
	return &TypeError{PlanError{op, fmt.Sprintf("%v of %v: no kernel computes it, convert the operand", red, dt)}}
}

// Unwrap gives the PlanError.
func (e *TypeError) Unwrap() error { return &e.PlanError }
