package place

import (
	"fmt"

	"github.com/seed-ee968945/concert/ir"
)

// FusionKey is the annotation of nodes that one launch computes: neighbours in the
// order with the same number are a region. Pass fuse writes it.
//
// To memory a region is one instruction. Its operands live until its last node has
// run and its results from its first node on, so that none shares bytes with
// another; what nobody outside reads has no buffer.
const FusionKey = "fusion"

// Region is the nodes of one launch, neighbours in the order.
type Region struct {
	Nodes       []*ir.Node
	First, Last int // positions of the first node and the last
}

// Regions returns the regions of a function in order. An error says that a node
// cannot belong to one: regions are of views and of pure operations on tensors of
// known size that involve no other rank.
func Regions(f *ir.Func) ([]Region, error) {
	var out []Region
	order := f.Order()
	for i := 0; i < len(order); {
		id, ok := fusion(order[i])
		if !ok {
			i++
			continue
		}
		r := Region{First: i, Last: i}
		for r.Last+1 < len(order) {
			next, ok := fusion(order[r.Last+1])
			if !ok || next != id {
				break
			}
			r.Last++
		}
		r.Nodes = order[r.First : r.Last+1]
		for _, n := range r.Nodes {
			if why := unfusable(n); why != "" {
				return nil, fmt.Errorf("%%%s: %s=%d: %s", n.Name(), FusionKey, id, why)
			}
		}
		out = append(out, r)
		i = r.Last + 1
	}
	return out, nil
}

func fusion(n *ir.Node) (int64, bool) {
	if !n.Meta().Has(FusionKey) {
		return 0, false
	}
	return n.Meta().Int(FusionKey, -1), true
}

// unfusable says why n can belong to no region.
func unfusable(n *ir.Node) string {
	if c := n.Op().Class(); c != ir.ClassView && c != ir.ClassMemory || !n.Pure() || n.Group() != nil {
		return "a region has views and pure operations on memory only"
	}
	for _, list := range [2][]*ir.Value{n.Args(), n.Results()} {
		for _, v := range list {
			if v.Type().IsAsync() || v.Type().Strides() == nil {
				return fmt.Sprintf("%s is %s; sizes have to be known", v, v.Type())
			}
		}
	}
	return ""
}

// Regions are the function's regions in order.
func (l *Layout) Regions() []Region { return l.regions }

// Inside reports whether v has no bytes of its own because only the region that
// computes it reads it.
func (l *Layout) Inside(v *ir.Value) bool {
	w := l.windows[v.ID()]
	return len(w) == 1 && w[0].Buffer < 0
}
