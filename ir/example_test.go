package ir_test

import (
	"testing"

	"github.com/seed-ee968945/concert/ir"
)

// TestExamples: every op has an example, which parses, verifies, is a node of this op
// and is printed as it stands in the table.
func TestExamples(t *testing.T) {
	for _, op := range ir.Ops() {
		m, err := ir.Example(op)
		if err != nil {
			t.Errorf("%s: %v", op, err)
			continue
		}
		if err := m.Verify(); err != nil {
			t.Errorf("%s: %v\n%s", op, err, m)
			continue
		}
		order := m.Funcs()[0].Order()
		n := order[len(order)-1]
		if op != ir.OpReturn {
			n = n.Prev()
		}
		if n.Op() != op || op != ir.OpInput && n.String() != op.Info().Example {
			t.Errorf("%s: the example is %q, printed %q", op, op.Info().Example, n)
		}
	}
}
