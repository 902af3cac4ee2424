// Package layers imports the operators that are layers of a network or the larger part of one: norms,
// attention, recurrent cells and gates, with their gradients.
package layers

import "github.com/seed-ee968945/concert/ir/fx/internal/traced"

// call is an operator of the table being imported.
type call struct{ *traced.Call }

// row lists targets, separated by blanks, that share a signature and a rule.
type row struct {
	targets   string
	signature string
	build     func(c *call) error
}

// Each hands out the rows of the table.
func Each(add func(targets, signature string, build func(*traced.Call) error)) {
	for _, rows := range [][]row{batchNormOps, layerNormOps, layerOps, cellOps, attentionOps} {
		for _, r := range rows {
			add(r.targets, r.signature, func(c *traced.Call) error { return r.build(&call{c}) })
		}
	}
}
