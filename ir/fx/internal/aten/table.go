// Package aten is the table from PyTorch's operators to the IR: one row each, by family.
package aten

import (
	"slices"
	"strings"

	"github.com/seed-ee968945/concert/ir/fx/internal/layers"
	"github.com/seed-ee968945/concert/ir/fx/internal/matrices"
	"github.com/seed-ee968945/concert/ir/fx/internal/traced"
	"github.com/seed-ee968945/concert/ir/fx/internal/training"
	"github.com/seed-ee968945/concert/ir/fx/internal/windows"
)

// call is an operator of the table being imported.
type call struct{ *traced.Call }

// Operator is a row of the operator table: the signature that arguments are
// bound to, and what makes the IR node.
type Operator struct {
	signature string
	build     func(c *call) error
	along     bool // works along a dimension, which scalars have for PyTorch, too
}

// Import imports a call of the operator.
func (o Operator) Import(c *traced.Call) error {
	return c.Run(o.signature, func() error {
		c.Lines = o.along && (c.IsScalar("self") || c.IsScalar("index"))
		return o.build(&call{c})
	})
}

// Operators finds an operator by its target; look-up only. One row may stand for
// several overloads whose arguments have the same names. What gives a view is there as a copy, too.
var Operators = func() map[string]Operator {
	m := map[string]Operator{}
	other := func(targets, signature string, build func(*traced.Call) error) {
		for _, t := range strings.Fields(targets) {
			m[t] = Operator{signature: signature, build: func(c *call) error { return build(c.Call) }}
		}
	}
	windows.Each(other)
	training.Each(other)
	matrices.Each(other)
	layers.Each(other)
	views := slices.Concat(viewOps, []row{{"aten.unbind.int", "self dim", unbind}, {"aten.diagonal.default", "self offset dim1 dim2", diagonal}, {"aten.unfold.default", "self dimension size step", unfold}})
	for _, rows := range [][]row{decomposedOps, coreOps, scatterOps, drawOps, sampleOps, segmentOps, primOps, specialOps, polynomialOps, placeOps, bagOps, pointwiseOps, reduceOps, productOps, movementOps, creationOps} {
		for _, r := range rows {
			for _, t := range strings.Fields(r.targets) {
				m[t] = Operator{r.signature, r.build, slices.Contains(strings.Fields(r.signature), "dim")}
			}
		}
	}
	for _, r := range views {
		for _, t := range strings.Fields(r.targets) {
			m[t] = Operator{signature: r.signature, build: r.build}
			name, overload, _ := strings.Cut(strings.TrimPrefix(t, "aten."), ".")
			m["aten."+name+"_copy."+overload] = Operator{signature: r.signature, build: func(c *call) error {
				c.Copies = true
				return r.build(c)
			}}
		}
	}
	for name, other := range sameAs {
		m[name] = m[other]
	}
	return m
}()

// row lists targets, separated by blanks, that share a signature and a rule.
type row struct {
	targets   string
	signature string
	build     func(c *call) error
}
