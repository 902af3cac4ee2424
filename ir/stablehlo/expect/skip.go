// Package expect reads the directives in StableHLO's own test files: which tests to run, and
// when results match.
package expect

import (
	"regexp"
	"slices"
	"strings"

	"github.com/seed-ee968945/concert/ir/stablehlo/internal/lapack"
	"github.com/seed-ee968945/concert/ir/stablehlo/mlir"
)

// Skip is why a module is not run as a test: it needs types that concert does not have, or
// operations that have no meaning without a host program. Empty if it is to be run.
func Skip(m *mlir.Module) string {
	s := &skipper{}
	for _, f := range m.Funcs {
		for _, a := range f.Args {
			s.types([]mlir.Type{a.Type})
		}
		s.types(f.Results)
		s.block(f.Body)
	}
	return s.reason
}

type skipper struct{ reason string }

func (s *skipper) found(reason string) {
	if s.reason == "" {
		s.reason = reason
	}
}

// tests are operations that are there to be looked at.
var tests = map[string]string{
	"interpreter.print": "prints", "interpreter.probe": "probes", "stablehlo.infeed": "infeed", "stablehlo.outfeed": "outfeed",
	"stablehlo.send": "send", "stablehlo.recv": "recv",
}

func (s *skipper) block(b *mlir.Block) {
	if b == nil {
		return
	}
	for _, a := range b.Args {
		s.types([]mlir.Type{a.Type})
	}
	for _, o := range b.Ops {
		if r, ok := tests[o.Name]; ok {
			s.found(r)
		}
		a, ok := o.Attr("call_target_name")
		if !ok && len(o.Flags) > 0 {
			a = o.Flags[0]
		}
		if o.Name == "stablehlo.custom_call" && strings.HasPrefix(a.Text, "lapack_") {
			if f, _ := lapack.Find(a.Text); f == nil {
				s.found("calls @" + a.Text)
			}
		}
		s.types(o.Ins)
		s.types(o.Outs)
		for _, a := range o.Attrs {
			s.attr(a.Val)
		}
		for _, a := range o.Flags {
			s.attr(a)
		}
		for _, r := range o.Regions {
			s.block(r)
		}
	}
}

func (s *skipper) attr(a mlir.Attr) {
	if a.Type != nil {
		s.types([]mlir.Type{*a.Type})
	}
}

func (s *skipper) types(ts []mlir.Type) {
	for _, t := range ts {
		if t.Tensor {
			s.found(skipped(t.Elem))
		}
		s.types(t.Tuple)
	}
}

// subByte are types of elements that are smaller than a byte.
var subByte = []string{"i2", "i4", "si2", "si4", "ui2", "ui4", "f4E2M1FN", "f6E2M3FN", "f6E3M2FN"}

// skipped is why a type of elements is not run; empty if it is.
func skipped(elem string) string {
	switch {
	case strings.HasPrefix(elem, "complex"):
		return "complex numbers"
	case strings.HasPrefix(elem, "!quant"):
		return "quantised types"
	case slices.Contains(subByte, elem):
		return "types of less than a byte"
	}
	return ""
}

var failing = regexp.MustCompile(`(?m)^// RUN:(.*\|)?\s*not\s`)

// Failure reports whether a test file is one of a tool that must fail.
func Failure(text string) bool { return failing.MatchString(text) }
