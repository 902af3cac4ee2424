package lower

import (
	"slices"

	"github.com/seed-ee968945/concert/program"
)

// bracket prints what begins, divides or ends a loop or a case.
func (e *emitter) bracket(in *program.Instr, b *program.Block, i int) {
	switch in.Kind {
	case program.Loop:
		e.printf("for loop := x.Loop(); loop.Next(); { // %%%s\n", in.Node)
	case program.Test:
		e.printf("if !loop.Holds(")
		e.tensor(&in.Ins[0])
		e.printf(") {\nbreak\n}\n")
	case program.Case:
		e.printf("for branch := range x.Case(")
		e.tensor(&in.Ins[0])
		e.printf(", %d) { // %%%s\nswitch branch {\n", len(b.Parts), in.Node)
	case program.Branch:
		e.printf("case %d:\n", slices.Index(b.Parts, i))
	case program.End:
		if e.p.Instrs[b.At].Kind == program.Case {
			e.printf("}\n")
		}
		e.printf("}\n")
	}
}
