// Package training is the table of what a training step has around its layers: layers that are
// quantised, steps of optimizers, and losses over paths.
package training

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
	for _, rows := range [][]row{quantizedOps, optimizerOps, ctcOps} {
		for _, r := range rows {
			add(r.targets, r.signature, func(c *traced.Call) error { return r.build(&call{c}) })
		}
	}
}
