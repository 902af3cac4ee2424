package normal

import (
	"math"
	"slices"
	"strings"

	"github.com/seed-ee968945/concert/equiv/mesh/internal/digits"
)

// Blocks of which more is known than their name: a sum over ranks can move into the operands that they are
// linear in.
const (
	Lookup             = "lookup"              // places of operand 0 by the numbers in operand 1, linear in operand 0
	nameScatterAdd     = "scatter_add"         // operand 0 added at the places that operand 1 says, linear in operand 0
	Convolution        = "convolution"         // linear in both operands
	GroupedConvolution = "grouped_convolution" // the same by groups of channels

	nameFlat     = "flat" // one dimension of several, linear
	nameWindow   = "window"
	nameEdged    = "edged"              // a window with another number than zero around it
	nameCat      = "cat"                // linear in all operands at once
	nameGradient = "attention_backward" // linear in the gradient of its result
)

func (e *expr) is(names ...string) bool {
	name, _, _ := strings.Cut(e.text, " ")
	return e.kind == generic && slices.Contains(names, name)
}

// sumMovesInto reports whether a sum may move into a generic operation.
func sumMovesInto(e *expr) bool {
	return e.is(nameFlat, nameWindow, Lookup, nameCat, Convolution, nameScatterAdd)
}

// linearIn is of how many operands, from the first one on, a generic operation is linear in each.
func (e *expr) linearIn() int {
	switch {
	case e.is(Convolution, GroupedConvolution):
		return 2
	case e.is(nameFlat, nameWindow, Lookup, nameScatterAdd, nameGradient):
		return 1
	}
	return 0
}

// makeGeneric makes a generic operation. The factor of what it is linear in is the result's.
func (t *Table) makeGeneric(s spec) (float64, *expr, []digits.Digit) {
	coef := 1.0
	e := &expr{kind: generic, text: s.text}
	first := slices.IndexFunc(s.args, func(a arg) bool { return a.coef != 0 })
	finite := func(a arg) bool { return !math.IsInf(a.coef, 0) && !math.IsNaN(a.coef) }
	switch n := e.linearIn(); {
	case e.is(nameCat):
		if first >= 0 && finite(s.args[first]) && !slices.ContainsFunc(s.args, func(a arg) bool { return a.base.kind == leaf && strings.HasPrefix(a.base.text, padding) }) {
			coef, s.args = s.args[first].coef, slices.Clone(s.args)
			for k := range s.args {
				s.args[k].coef = s.args[k].coef/coef + 0 // one zero, not two
			}
		}
	case n > 0 && !slices.ContainsFunc(s.args[:n], func(a arg) bool { return !finite(a) }):
		s.args = slices.Clone(s.args)
		for k := range n {
			coef, s.args[k].coef = coef*s.args[k].coef, 1
		}
	}
	x, where := t.make(&s)
	return coef, x, where
}

// sumGeneric sums a generic operation over loops by its operands; false where it is not linear in what has
// the digits.
func (t *Table) sumGeneric(s *digitMap, base *expr, loops []loop, kept int) bool {
	args := slices.Clone(base.args)
	s.to = make([]digits.Digit, kept)
	inner := make([][]digits.Digit, len(args))
	rest := loops[:kept:kept]
	for _, l := range loops[kept:] {
		var has []int
		for k, d := range l.at {
			if d.Dim != digits.None {
				has = append(has, k)
			}
		}
		switch {
		case len(has) == 0:
			return false
		case base.is(Convolution) && len(has) == 2, base.is(nameScatterAdd) && has[len(has)-1] > 0:
			rest = append(rest, l)
		case base.is(nameCat), len(has) == 1 && (has[0] == 0 || base.is(Convolution)):
			for k, d := range l.at {
				if d.Dim != digits.None {
					inner[k] = append(inner[k], d)
				} else if base.is(nameCat) { // the same at each of its places
					args[k].coef *= float64(l.size)
				}
			}
		default:
			return false
		}
	}
	rest = pickOperands(rest, indices(len(args)))
	for k, ds := range inner {
		if len(ds) == 0 {
			continue
		}
		x := t.sumOver(args[k].base, ds)
		a := arg{base: x.base, coef: args[k].coef * x.coef}
		for _, d := range args[k].inner {
			a.inner = append(a.inner, x.at(d))
		}
		args[k] = a
		for i := range rest {
			rest[i].at[k] = x.at(rest[i].at[k])
		}
	}
	owns := make([]int64, len(base.own))
	for i, d := range base.own {
		owns[i] = d.Size
	}
	for j, g := range s.from {
		rest[j].tail = len(base.own) > 0 && base.joins[0] != digits.None && base.loopOf(g) == base.joins[0]
	}
	coef, e, where := t.makeGeneric(spec{kind: generic, text: base.text, args: args, loops: rest, own: owns, win: base.win})
	s.coef, s.base = coef, e
	for i, d := range s.from {
		if base.loopOf(d) >= 0 {
			s.to[i] = where[i]
			continue
		}
		k := slices.Index(base.own, d)
		if k < 0 {
			return false
		}
		s.to[i] = where[len(rest)+k]
	}
	return true
}
