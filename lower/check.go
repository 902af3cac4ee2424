package lower

import (
	"fmt"

	"github.com/seed-ee968945/concert/internal/place"
	"github.com/seed-ee968945/concert/ir"
	"github.com/seed-ee968945/concert/passes"
	"github.com/seed-ee968945/concert/program"
)

// CheckHook is a hook for the pass manager that lowers every function after each
// pass that changed the module and proves the program free of races and
// deadlocks. The error is a *program.CheckError, or what kept the function from
// being lowered.
func CheckHook() passes.Hook {
	return passes.Hook{
		Name: "program-check",
		After: func(step *passes.StepReport, m *ir.Module) error {
			if !step.Changed && step.Number > 1 {
				return nil // checked after an earlier pass
			}
			for _, f := range m.Funcs() {
				if _, err := Check(f); err != nil {
					return err
				}
			}
			for _, s := range m.Stages() {
				if _, err := Stages(m, s, Options{}); err != nil {
					return err
				}
			}
			return nil
		},
	}
}

// Check lowers a function and checks the program with the operator table's
// knowledge of what works in place. The report is that of a program that passes;
// the error is a *program.CheckError, or what kept the function from being lowered.
func Check(f *ir.Func) (*program.Report, error) {
	p, err := Func(f)
	if err != nil {
		return nil, err
	}
	r, err := program.CheckWith(p, CheckOptions())
	if err != nil {
		return nil, fmt.Errorf("lower: %w", err)
	}
	return r, r.Err()
}

// CheckOptions are the checker's options for lowered programs.
func CheckOptions() program.CheckOptions {
	return program.CheckOptions{InPlace: inPlace, Pointwise: pointwise}
}

// inPlace reports whether a launch may write its result over an operand of the
// same elements, by the operator table; a call is taken at its word.
func inPlace(in *program.Instr, operand int) bool {
	op, ok := ir.OpByName(in.Op)
	return ok && (op == ir.OpCall || place.WorksInPlace(op, operand))
}

// pointwise reports whether an operation is elementwise, by the operator table.
func pointwise(op string) bool {
	o, ok := ir.OpByName(op)
	return ok && o.Info().Elementwise
}
