package deps

import "github.com/seed-ee968945/concert/ir"

// Used reports whether anything reads a result of n.
func Used(n *ir.Node) bool {
	for _, r := range n.Results() {
		if len(r.Uses()) > 0 {
			return true
		}
	}
	return false
}
