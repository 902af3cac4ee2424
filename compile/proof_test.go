package compile

import (
	"errors"
	"slices"
	"testing"

	"github.com/seed-ee968945/concert/equiv"
	"github.com/seed-ee968945/concert/ir"
	"github.com/seed-ee968945/concert/lower"
	"github.com/seed-ee968945/concert/passes"
	"github.com/seed-ee968945/concert/program"
)

// A program that lowering gets wrong is refused where proofs are asked for, and only there.
func TestProgramIsProved(t *testing.T) {
	m, err := ir.Parse("test.ir", "world 1\nfunc @f(%x: f32[4], %y: f32[4]) -> (f32[4]) {\n  %z = sub %x, %y : f32[4]\n  return %z\n}\n")
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range []Device{Host, GPU} {
		for _, mode := range []passes.ValidateMode{passes.ValidateNever, passes.ValidateAlways} {
			r, err := Compile(t.Context(), m, Target{Device: d}, Options{Manager: passes.Manager{Validate: mode}})
			if err != nil {
				t.Fatal(err)
			}
			r.lower = func(f *ir.Func, o lower.Options) (*program.Program, error) {
				p, err := lower.FuncWith(f, o)
				if err == nil {
					slices.Reverse(p.Instrs[0].Ins)
				}
				return p, err
			}
			_, err = r.Funcs[0].Program()
			var found *equiv.Error
			if errors.As(err, &found) != (mode == passes.ValidateAlways) || found == nil && err != nil {
				t.Errorf("device %d, validation %d: %v", d, mode, err)
			}
		}
	}
}
