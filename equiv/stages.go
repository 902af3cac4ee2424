package equiv

import (
	"fmt"
	"slices"

	"github.com/seed-ee968945/concert/equiv/internal/terms"
	"github.com/seed-ee968945/concert/ir"
)

// A collective between stages is seen from outside, as a result and an input are: what a stage
// sends, the other one reads, and what it receives is nothing that the stage computes. A function
// that is proved alone has to bring the same to each such call of a group, in order; whatever comes
// back is only itself.

// across reports whether a collective is one with other stages.
func (r *reader) across(g *ir.Group) bool {
	if r.stages == nil {
		return false
	}
	if _, ok := r.calls[g]; !ok {
		if peers, err := r.stages.Peers(r.stage, g); err == nil && len(peers) == 1 {
			r.calls[g] = -1
		}
	}
	return r.calls[g] >= 0
}

// receive numbers the results of a collective with other stages.
func (r *reader) receive(n *ir.Node) {
	if r.joint != nil {
		r.joint.issue(r, n)
		return
	}
	v, g := n.Result(0), n.Group()
	e := effect{node: n.Name(), self: g.Name, what: fmt.Sprint(n.Op().Name(), n.Attrs())}
	for _, a := range n.DeclaredArgs() {
		e.what += " " + ir.TensorOf(a.Type().DType(), a.Type().Shape()).String()
	}
	if r.sends(n) {
		e.args = r.args(n)
	}
	call := r.calls[g]
	r.calls[g]++
	nums := r.numbers(len(v.Type().Tensors()))
	for k, t := range v.Type().Tensors() { // may differ by rank, as what random numbers are part of
		nums[k] = r.p.vals.Number(terms.Value{Op: n.Op(), Group: -1, Result: int32(k), Tag: fmt.Sprintf("%%%d @%s", call, g.Name), Type: ir.TensorOf(t.DType(), t.Shape()), Node: n.Name()})
	}
	r.m.sent = append(r.m.sent, e)
	r.set(v, nums, r.stored(v))
}

// sends reports whether some rank of the stage gives a collective anything: who only receives a
// permute brings a tensor that is never read.
func (r *reader) sends(n *ir.Node) bool {
	if n.Op() != ir.OpCollectivePermute {
		return true
	}
	pairs := n.Attrs().Ints("pairs")
	for _, rank := range r.stages.Ranks(r.stage) {
		_, at := n.Group().Of(rank)
		for i := 0; i+1 < len(pairs); i += 2 {
			if pairs[i] == int64(at) {
				return true
			}
		}
	}
	return false
}

// stages compares what stages bring to each other, group by group.
func (c *comparison) stages() {
	var groups []string
	for _, e := range slices.Concat(c.a.sent, c.b.sent) {
		if !slices.Contains(groups, e.self) {
			groups = append(groups, e.self)
		}
	}
	for _, g := range groups {
		of := func(m *Meaning) []effect {
			return slices.DeleteFunc(slices.Clone(m.sent), func(e effect) bool { return e.self != g })
		}
		c.paired("what stages bring to the collectives of @"+g+" is kept, in its order", of(c.a), of(c.b))
	}
}
