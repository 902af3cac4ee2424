package standard

import (
	"github.com/seed-ee968945/concert/ir"
)

// adoptLayout lets attention write a result as the copy n of it has it, which goes: heads beside each
// other in a token's row, as the products around attention read them. Kernels of attention take
// rows of a head that lie anywhere, at the same speed.
func (c *canonicalizer) adoptLayout(n *ir.Node) {
	p := n.Arg(0).Def()
	if p.Op() != ir.OpPermute || n.Ordered() || !n.Result(0).Type().Contiguous() || ir.Returned(n.Result(0)) {
		return
	}
	r := p.Arg(0)
	d := r.Def()
	if (d.Op() != ir.OpAttention || r.Index() > 0) && d.Op() != ir.OpAttentionBackward || !r.Type().Contiguous() || d.Ordered() || c.writes.Written(r) || c.writes.Written(n.Result(0)) {
		return
	}
	dims, at := p.Attrs().Ints("dims"), n.Result(0).Type().Strides()
	if at == nil { // they depend on a symbol
		return
	}
	strides := make([]int64, len(dims))
	for i, k := range dims {
		strides[k] = at[i]
	}
	as := map[*ir.Value]ir.Type{} // look-up only
	if strides[len(dims)-1] != 1 || !planLayout(as, r, r.Type().WithStrides(strides)) || !c.ctx.Enable(d.Name()) {
		return
	}
	c.ctx.Count("laid", 1)
	c.retype(as, r)
	c.f.ReplaceUses(n.Result(0), p.Result(0))
	c.f.Remove(n)
}

// planLayout notes the types of v and its views if v is of type t, false if that is not possible, or
// somebody needs it as it was.
func planLayout(as map[*ir.Value]ir.Type, v *ir.Value, t ir.Type) bool {
	as[v] = t
	for _, u := range v.Uses() {
		n := u.Node
		if n.Op() == ir.OpPermute {
			got, err := ir.Infer(n.Op(), nil, n.Attrs(), []ir.Type{t})
			if err != nil || !planLayout(as, n.Result(0), got[0]) {
				return false
			}
			continue
		}
		if n.Op() != ir.OpAttentionBackward && !acceptsLayout(n, v, t) {
			return false
		}
	}
	return true
}

// retype gives v and its views the types that planLayout has noted.
func (c *canonicalizer) retype(as map[*ir.Value]ir.Type, v *ir.Value) {
	c.f.SetType(v, as[v])
	for _, u := range v.Uses() {
		if u.Node.Op() == ir.OpPermute {
			c.retype(as, u.Node.Result(0))
		}
	}
}
