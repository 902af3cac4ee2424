package stablehlo

import (
	"regexp"
	"slices"
	"strings"
)

// Skip is why a module is not run as a test: it needs types that concert does not have, or
// operations that have no meaning without a host program. Empty if it is to be run.
func (m *Module) Skip() string {
	s := &skipper{}
	for _, f := range m.Funcs {
		for _, a := range f.Args {
			s.types([]Type{a.Type})
		}
		s.types(f.Results)
		s.block(f.body)
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

func (s *skipper) block(b *block) {
	if b == nil {
		return
	}
	for _, a := range b.args {
		s.types([]Type{a.Type})
	}
	for _, o := range b.ops {
		if r, ok := tests[o.name]; ok {
			s.found(r)
		}
		s.types(o.ins)
		s.types(o.outs)
		for _, a := range o.attrs {
			s.attr(a.Val)
		}
		for _, a := range o.flags {
			s.attr(a)
		}
		for _, r := range o.regions {
			s.block(r)
		}
	}
}

func (s *skipper) attr(a attr) {
	if a.Type != nil {
		s.types([]Type{*a.Type})
	}
}

func (s *skipper) types(ts []Type) {
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

// ExpectsFailure reports whether a test file is one of a tool that must fail.
func ExpectsFailure(text string) bool { return failing.MatchString(text) }
