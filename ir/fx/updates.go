package fx

import (
	"github.com/seed-ee968945/concert/internal/attr"
	"github.com/seed-ee968945/concert/ir"
	"github.com/seed-ee968945/concert/ir/fx/internal/pytext"
)

// donate gives the memory of the inputs that a step updates, such as running statistics, to the entries of
// the output that are their new values: a loop of steps carries them (interp.Next, program.Donation). Other
// entries in that memory, such as the old value that backward takes, become copies.
func (c *node) donate(args []*ir.Value, places []int64) error {
	donated := map[*ir.Value]int64{} // place of the new value, by input
	for k, name := range c.n.Updates {
		if name == "" {
			continue
		}
		in := c.im.inputNode(name)
		if in == nil {
			return c.Fail("updates", "update", "%q is not an input of the graph", pytext.Clip(name))
		}
		if k >= len(places) || places[k] < 0 {
			return c.Fail("updates", "update", "entry %d, the new value of %q, is not a tensor", k, pytext.Clip(name))
		}
		if _, twice := donated[in.Result(0)]; twice {
			return c.Fail("updates", "update", "%q has two new values", pytext.Clip(name))
		}
		x, v := in.Result(0), args[places[k]]
		if t := x.Type(); v.Type().IsAsync() || v.Type().DType() != t.DType() || !v.Type().Shape().Equal(t.Shape()) {
			return c.Fail("updates", "update", "%q of type %s has the new value %s of type %s", pytext.Clip(name), t, v, v.Type())
		}
		if root := v.Root(); !v.Type().Equal(x.Type()) || root != x && root.Def().Op() == ir.OpInput {
			args[places[k]] = c.Helper(ir.OpClone, nil, x.Type(), v)
		}
		donated[x] = places[k]
		c.im.fn.SetAttrs(in, in.Attrs().With(ir.DonateKey, attr.Int(places[k])))
	}
	for i, v := range args {
		if k, ok := donated[v.Root()]; ok && int64(i) != k {
			t := v.Type()
			if !t.NonOverlapping() {
				t = ir.TensorOf(t.DType(), t.Shape())
			}
			args[i] = c.Helper(ir.OpClone, nil, t, v)
			n := args[i].Def() // which backward knows by the name
			c.im.fn.SetMeta(n, n.Meta().With(MetaName, attr.String(tracedName(v.Def()))))
		}
	}
	return nil
}

// inputNode is the input of that traced name, nil if there is none.
func (im *importer) inputNode(name string) *ir.Node {
	for _, n := range im.fn.Inputs() {
		if tracedName(n) == name {
			return n
		}
	}
	return nil
}

// updates lists for the entries of an exported output which inputs are donated to them.
func (s *synth) updates(f *ir.Func) []string {
	var out []string
	places := f.Return().Meta().Ints(MetaOutputs)
	for _, d := range f.Donations() {
		k := d.Result
		for e, p := range places {
			if p == int64(d.Result) {
				k = e
				break
			}
		}
		for len(out) <= k {
			out = append(out, "")
		}
		out[k] = s.names[d.Input]
	}
	return out
}
