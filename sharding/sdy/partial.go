package sdy

import (
	"slices"
	"strings"

	"github.com/seed-ee968945/concert/ir/stablehlo/mlir"
	"github.com/seed-ee968945/concert/sharding"
)

// This file finds whether the operand of an explicit reduction is in parts along its axes. In the
// text of a rank's program it is a sum over what the rank has, such as that of a product whose
// inner dimension is sharded; in the graph, which is of whole tensors, that product is added up
// already, and so is all that is computed of it.

// state is what a rank has of a value, along the axes of a reduction.
type state uint8

const (
	all     state = iota // the same as its peers
	parts                // one of the terms of a sum
	unclear              // what is computed of terms in a way that is none of their sum
)

// partial is the state of the operand of a reduction.
func (g *global) partial(l *Line, axes []sharding.Ref) state {
	w := &walk{g: g, axes: axes, fn: g.at, lines: g.at.Lines, known: map[*Line]state{}}
	return w.of(l.Uses[0], slices.IndexFunc(w.lines, func(x Line) bool { return x.Op == l.Op }))
}

// walk follows values to what defines them.
type walk struct {
	g     *global
	axes  []sharding.Ref
	fn    *Function
	lines []Line
	known map[*Line]state
}

// of is the state of a value that a line at a place reads.
func (w *walk) of(u mlir.Use, before int) state {
	if s := w.sharding(u, before); s != nil && !slices.ContainsFunc(w.axes, func(a sharding.Ref) bool { return !within(a, s.Unreduced) }) {
		return parts
	}
	i := w.defined(u, before)
	if i < 0 {
		return all
	}
	l := &w.lines[i]
	s, ok := w.known[l]
	if !ok {
		s = w.computed(l, i)
		w.known[l] = s
	}
	return s
}

// defined is the line in front of another that defines what it reads; -1: an argument.
func (w *walk) defined(u mlir.Use, before int) int {
	for i := before - 1; i >= 0; i-- {
		if slices.Contains(w.lines[i].Defines, u) {
			return i
		}
	}
	return -1
}

// sharding is that of a value that a line at a place reads.
func (w *walk) sharding(u mlir.Use, before int) *sharding.Sharding {
	if i := w.defined(u, before); i >= 0 {
		if k := slices.Index(w.lines[i].Defines, u); k < len(w.lines[i].Results) {
			return w.g.p.Graph.Values[w.lines[i].Results[k]].Sharding
		}
		return nil
	}
	for i, b := range w.fn.args {
		if b.use == u {
			return w.g.p.Graph.Values[w.fn.Args[i]].Sharding
		}
	}
	return nil
}

// within reports whether an axis is one of a list, or part of one.
func within(a sharding.Ref, l []sharding.Ref) bool {
	return slices.ContainsFunc(l, func(b sharding.Ref) bool { return b.Contains(a) })
}

// through are operations of one operand whose sum is theirs of the sum.
var through = []string{"convert", "reshape", "transpose", "negate", "slice", "reverse", "broadcast_in_dim", "optimization_barrier", "real", "imag", "reduce_precision",
	"sdy.all_gather", "sdy.all_slice", "sdy.all_to_all", "sdy.collective_permute"}

// computed is the state of what a line defines.
func (w *walk) computed(l *Line, at int) state {
	if n := w.reduced(l, at); n == len(w.axes) {
		return parts
	} else if n != 0 {
		return unclear
	}
	in := make([]state, len(l.Uses))
	for i, u := range l.Uses {
		in[i] = w.of(u, at)
	}
	some := slices.ContainsFunc(in, func(s state) bool { return s != all })
	name := strings.TrimPrefix(l.Op.Name, "stablehlo.")
	switch {
	case name == "func.call", len(l.Op.Regions) > 0 && name != "reduce":
		if some || w.inside(l, at) {
			return unclear
		}
		return all
	case !some:
		return all
	case name == "sdy.all_reduce", name == "sdy.reduce_scatter":
		return w.completed(l, in[0])
	case slices.Contains(in, unclear):
		return unclear
	case slices.Contains(through, name), name == "add" || name == "subtract", name == "concatenate":
		if slices.Contains(in, all) { // one term of the sum has it as often as there are ranks
			return unclear
		}
		return parts
	case name == "multiply" && (in[0] == all || in[1] == all), name == "divide" && in[1] == all,
		name == "select" && in[0] == all && in[1] == in[2],
		(name == "dot_general" || name == "dot" || name == "convolution") && (in[0] == all || in[1] == all),
		name == "reduce" && len(in) == 2 && in[1] == all && adds(l.Op):
		return parts
	}
	return unclear
}

// completed is the state of what a reduction along axes of its own gives.
func (w *walk) completed(l *Line, in state) state {
	axes, _, err := w.g.along(l)
	if err != nil {
		return unclear
	}
	done, apart := 0, 0
	for _, a := range w.axes {
		if within(a, axes) {
			done++
		} else if !slices.ContainsFunc(axes, a.Overlaps) {
			apart++
		}
	}
	switch len(w.axes) {
	case done:
		return all
	case apart:
		return in
	}
	return unclear
}

// adds reports whether a reduction is a sum.
func adds(o *mlir.Operation) bool {
	if len(o.Regions) != 1 || len(o.Regions[0].Ops) != 2 {
		return false
	}
	return o.Regions[0].Ops[0].Name == "stablehlo.add"
}

// inside reports whether something in a region of a line, or what it calls, reduces along axes.
func (w *walk) inside(l *Line, at int) bool {
	if l.callee != nil {
		inner := &walk{g: w.g, axes: w.axes, fn: l.callee, lines: l.callee.Lines}
		return slices.ContainsFunc(inner.lines, func(x Line) bool { return inner.reduced(&x, len(inner.lines)) != 0 })
	}
	for i := at + 1; i < len(w.lines) && w.lines[i].Depth > l.Depth; i++ {
		if w.reduced(&w.lines[i], i) != 0 {
			return true
		}
	}
	return false
}

// reduced is how many of the axes a line reduces along; -1 if it does along parts of one.
func (w *walk) reduced(l *Line, at int) int {
	if l.Rule == nil {
		return 0
	}
	n := 0
	for _, a := range w.axes {
		var along []sharding.Ref
		for t, u := range l.Uses {
			s := w.sharding(u, at)
			if s == nil {
				continue
			}
			for d, factors := range l.Rule.Operands[t] {
				if l.Rule.Factors[factors[0]].Kind == sharding.Reduction {
					along = append(along, s.Dims[d].Axes...)
				}
			}
		}
		if within(a, along) {
			n++
		} else if slices.ContainsFunc(along, a.Overlaps) {
			return -1
		}
	}
	return n
}
