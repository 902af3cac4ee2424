package sharding

import (
	"slices"
	"testing"

	"github.com/seed-ee968945/concert/ir"
)

// TestEveryOpHasARule makes the rule of each op's example, and checks that its factors make
// up the sizes of the dimensions that are not reached in part.
func TestEveryOpHasARule(t *testing.T) {
	for _, op := range ir.Ops() {
		m, err := ir.Example(op)
		if err != nil {
			if op == ir.OpInput {
				continue // every example has some
			}
			t.Fatal(err)
		}
		seen := op == ir.OpInput
		for _, n := range m.Funcs()[0].Order() {
			r, err := Of(n)
			if err == nil {
				err = r.Check()
			}
			if err != nil {
				t.Errorf("%s: %v", n, err)
				continue
			}
			seen = seen || n.Op() == op
			x := node{}
			for _, v := range slices.Concat(n.Args(), n.Results()) {
				l, _ := shapes(v)
				x.ins = append(x.ins, l...)
			}
			tensors := slices.Concat(r.Operands, r.Results)
			if len(tensors) != len(x.ins) {
				t.Errorf("%s: a rule of %d tensors for %d: %s", n, len(tensors), len(x.ins), r)
				continue
			}
			for i, tensor := range tensors {
				for d, l := range tensor {
					size := int64(1)
					for _, f := range l {
						size *= r.Factors[f].Size
					}
					moves := slices.ContainsFunc(l, func(f int) bool { return r.Factors[f].Kind != PassThrough })
					if size != x.ins[i][d] && !moves && (n.Op() != ir.OpConvolution || size != 1) { // windows may lie outside of all pieces
						t.Errorf("%s: dimension %d of tensor %d has %d: %s", n, d, i, x.ins[i][d], r)
					}
				}
			}
		}
		if !seen {
			t.Errorf("the example of %s has none", op)
		}
	}
}
