package passes_test

import (
	"github.com/seed-ee968945/concert/ir"
)

// latencyModel makes buckets pay: every collective costs one millisecond and a
// little for its bytes, so that two that travel together save almost half. Nodes
// without attached costs cost half a millisecond.
type latencyModel struct{}

func (latencyModel) NodeMs(n *ir.Node) (float64, bool) { return 0.5, true }

func (latencyModel) CommMs(_ ir.Op, _ *ir.Group, _ ir.Reduction, size int64) (float64, bool) {
	return 1 + float64(size)*1e-4, true
}
