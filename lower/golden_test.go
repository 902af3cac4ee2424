package lower_test

import (
	"flag"
	"regexp"
	"testing"

	"github.com/seed-ee968945/concert/internal/golden"
	"github.com/seed-ee968945/concert/ir"
	"github.com/seed-ee968945/concert/lower"
	"github.com/seed-ee968945/concert/passes"
)

var update = flag.Bool("update", false, "rewrite the want sections of golden cases")

var generated = regexp.MustCompile(`\{[^{}]*source="[0-9a-f]{64}"\}`)

// TestGolden pins programs and emitted code of small functions.
func TestGolden(t *testing.T) {
	golden.Run(t, "../testdata/golden/lower", golden.Config{
		Table: passes.Standard(), Update: *update, Package: "./lower",
		Sections: map[string]golden.Section{
			"want.program": func(c *golden.Case) ([]byte, error) {
				p, err := lower.Func(c.After.Funcs()[0])
				if err != nil {
					return nil, err
				}
				return p.AppendText(nil), nil
			},
			"want.packed": func(c *golden.Case) ([]byte, error) {
				p, err := lower.FuncWith(c.After.Funcs()[0], lower.Options{Packed: func(*ir.Node) bool { return true }})
				if err != nil {
					return nil, err
				}
				return p.AppendText(nil), nil
			},
			"want.kernels": func(c *golden.Case) ([]byte, error) {
				p, err := lower.FuncWith(c.After.Funcs()[0], lower.Options{Kernels: true})
				if err != nil {
					return nil, err
				}
				// The source and how it is launched, lower/cudagen's own cases pin.
				return generated.ReplaceAll(p.AppendText(nil), []byte("{...}")), nil
			},
			"want.go": func(c *golden.Case) ([]byte, error) {
				p, err := lower.Func(c.After.Funcs()[0])
				if err != nil {
					return nil, err
				}
				return lower.EmitGo(p, "step")
			},
		},
	})
}
