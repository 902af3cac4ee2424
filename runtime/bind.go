package runtime

import (
	"context"
	"fmt"
	"maps"

	"github.com/seed-ee968945/concert/program"
)

// Bind brings the inputs into the arena as Run does, and starts nothing: for timing replays of
// a step that overwrites some of its inputs. Inputs in flight need Run. The error is a
// *CallError for inputs that do not fit the step, ctx's, or what broke the world.
func (s *Step) Bind(ctx context.Context, inputs []Value) error {
	return s.replay(ctx, func() error {
		for i := range inputs {
			if inputs[i].Work != nil {
				return &CallError{Rank: s.r.env.Rank, Op: "inputs of module " + s.m.Name, Err: fmt.Errorf("input %d is in flight: Run takes it, not a binding alone", i)}
			}
		}
		x, err := s.r.begin(s.m, inputs, s.opts)
		if err == nil && !maps.Equal(x.syms, s.syms) {
			err = x.misuse(fmt.Errorf("the inputs have sizes %v, the step was captured for %v", x.syms, s.syms))
		}
		return err
	})
}

// Instruct enqueues instruction number i of p on x, whose module is p's: for running
// or timing a part of a program. What i needs to have happened is the caller's
// concern.
func Instruct(x *Exec, p *program.Program, i int) {
	if i < 0 || i >= len(p.Instrs) {
		x.fail(opName("instruct"), fmt.Errorf("instruction %d of %d", i, len(p.Instrs)))
		return
	}
	if x.err == nil {
		x.instr(p, &p.Instrs[i])
	}
}
