package lower

import (
	"fmt"

	"github.com/seed-ee968945/concert/ir"
	"github.com/seed-ee968945/concert/program"
)

// Stages lowers the functions of stages of a module: a program for each stage, with arenas of one
// size, that of the largest. They are proved to issue the same collectives between them and not to deadlock.
// Errors are FuncWith's and program.CheckStages'.
func Stages(m *ir.Module, s *ir.Stages, opts Options) (program.Stages, error) {
	var out program.Stages
	arena := int64(0)
	for _, name := range s.Funcs {
		p, err := FuncWith(m.Func(name), opts)
		if err != nil {
			return nil, err
		}
		out = append(out, p)
		arena = max(arena, p.Arena)
	}
	for _, p := range out {
		p.Arena = arena
	}
	if err := program.CheckStages(out); err != nil {
		return nil, fmt.Errorf("lower: stages @%s: %w", s.Name, err)
	}
	return out, nil
}
