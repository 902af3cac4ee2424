package runtime

import (
	"context"
	"fmt"
	"maps"
)

// Bind brings the inputs into the arena as Run does, and starts nothing: for timing
// replays of a step that overwrites some of its inputs. Inputs in flight need Run.
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
