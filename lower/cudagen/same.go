package cudagen

import (
	"fmt"
	"strings"

	"github.com/seed-ee968945/concert/ir"
)

// same returns the first value of the region that is computed as v is: by the same
// operation from the same operands. Passes copy what is cheap for every reader, and
// a kernel that the readers share computes it once.
func (r *region) same(v *ir.Value) *ir.Value {
	if w, ok := r.equal[v]; ok {
		return w
	}
	return v
}

// findEqual fills r.equal. The time is linear in the number of operands.
func (r *region) findEqual() {
	r.equal = map[*ir.Value]*ir.Value{}
	first := map[string]*ir.Node{}
	id := map[*ir.Value]int{}
	number := func(v *ir.Value) int {
		v = r.same(v)
		if _, ok := id[v]; !ok {
			id[v] = len(id)
		}
		return id[v]
	}
	for _, n := range r.nodes {
		var b strings.Builder
		b.WriteString(n.Op().Name())
		for _, a := range n.Args() {
			fmt.Fprintf(&b, " %d", number(a))
		}
		b.WriteString(" " + n.Attrs().String())
		for _, v := range n.Results() {
			b.WriteString(" " + v.Type().String())
		}
		m := first[b.String()]
		if m == nil {
			first[b.String()] = n
			continue
		}
		for i, v := range n.Results() {
			r.equal[v] = m.Result(i)
		}
	}
}
