package lower_test

import (
	"bytes"
	"errors"
	"flag"
	"regexp"
	"testing"

	"github.com/seed-ee968945/concert/ir"
	"github.com/seed-ee968945/concert/lower"
	"github.com/seed-ee968945/concert/lower/proof"
	"github.com/seed-ee968945/concert/passes/passtest"
	"github.com/seed-ee968945/concert/passes/standard"
	"github.com/seed-ee968945/concert/program"
)

var update = flag.Bool("update", false, "rewrite the want sections of golden cases")

var generated = regexp.MustCompile(`\{[^{}]*source="[0-9a-f]{64}"\}`)

var digest = regexp.MustCompile(`\b[0-9a-f]{64}\b`)

// proved lowers a function and proves the program.
func proved(f *ir.Func, o lower.Options) (*program.Program, error) {
	p, err := lower.FuncWith(f, o)
	if err != nil {
		return nil, err
	}
	return p, proof.Check(f, p)
}

// TestGolden pins programs and emitted code of small functions.
func TestGolden(t *testing.T) {
	passtest.Run(t, "../testdata/golden/lower", passtest.Config{
		Table: standard.Table(), Update: *update, Package: "./lower",
		Sections: map[string]passtest.Section{
			"want.program": func(c *passtest.Case) ([]byte, error) {
				p, err := proved(c.After.Funcs()[0], lower.Options{})
				if err != nil {
					return nil, err
				}
				return p.AppendText(nil), nil
			},
			"want.kernels": func(c *passtest.Case) ([]byte, error) {
				p, err := proved(c.After.Funcs()[0], lower.Options{Kernels: true})
				if err != nil {
					return nil, err
				}
				// The source and how it is launched, lower/cudagen's own cases pin.
				return generated.ReplaceAll(p.AppendText(nil), []byte("{...}")), nil
			},
			"want.go": func(c *passtest.Case) ([]byte, error) {
				p, err := lower.Func(c.After.Funcs()[0])
				if err != nil {
					return nil, err
				}
				return lower.EmitGo(p, "step")
			},
		},
	})
}

// prelude stands in want.cu for what every translation unit begins with.
const prelude = "// The prelude of lower/cudagen stands here.\n"

// TestGoldenEmit pins what a program for CUDA is emitted as: Go, and the source of its
// kernels. The last function of a case counts. TestEmittedStepsRun compiles and runs
// all of them.
func TestGoldenEmit(t *testing.T) {
	passtest.Run(t, "../testdata/golden/emit", emitConfig())
}

// emitConfig is how the cases of testdata/golden/emit are run.
func emitConfig() passtest.Config {
	return passtest.Config{
		Table: standard.Table(), Update: *update, Package: "./lower",
		Sections: map[string]passtest.Section{
			"want.go": func(c *passtest.Case) ([]byte, error) {
				p, err := emitted(c)
				if err != nil {
					return nil, err
				}
				src, err := lower.EmitGo(p, "step")
				// The digest is of the prelude, too, which is no concern of these cases.
				return digest.ReplaceAll(src, []byte("...")), err
			},
			"want.cu": func(c *passtest.Case) ([]byte, error) {
				p, err := emitted(c)
				if err != nil {
					return nil, err
				}
				cu, err := lower.EmitCUDA(p)
				if err != nil {
					return nil, err
				}
				own, ok := bytes.CutPrefix(cu, []byte(p.Unit.Prelude))
				if !ok {
					return nil, errors.New("the source does not begin with the prelude")
				}
				return append([]byte(prelude), own...), nil
			},
		},
	}
}

// emitted is the program of a case of testdata/golden/emit: its last function.
func emitted(c *passtest.Case) (*program.Program, error) {
	fs := c.After.Funcs()
	return proved(fs[len(fs)-1], lower.Options{Kernels: true})
}
