package fx

import (
	"github.com/seed-ee968945/concert/internal/attr"
	"github.com/seed-ee968945/concert/ir"
	"github.com/seed-ee968945/concert/ir/fx/internal/pytext"
	"github.com/seed-ee968945/concert/ir/fx/internal/traced"
)

// pairs are the sources and destinations of a permutation of n ranks.
func pairs(n int, to func(src int) int64) attr.List {
	list := make([]int64, 0, 2*n)
	for src := range n {
		list = append(list, int64(src), to(src))
	}
	return attr.List(nil).With("pairs", attr.Ints(list...))
}

// shift says by how many ranks everything moves on. PyTorch traces a permutation as an
// exchange with the sizes of the rank that traces: all for one rank, all from one. No other rank
// can have the same sizes; as those of the first rank of a ring they mean something for all.
func shift(g *ir.Group, args []*ir.Value, in, out []ir.Shape) (int, bool) {
	whole := func(x *ir.Value, list ir.Shape) int {
		at := -1
		for k, n := range list {
			if n.Equal(ir.D(0)) {
				continue
			}
			if s := x.Type().Shape(); at >= 0 || len(s) == 0 || !n.Equal(s[0]) {
				return -1
			}
			at = k
		}
		return at
	}
	to := -1
	for k, x := range args {
		d, s := whole(x, in[k]), whole(x, out[k])
		if d < 0 || s < 0 || len(in[k]) != g.Size() || len(out[k]) != g.Size() || (d+s)%g.Size() != 0 || k > 0 && d != to {
			return 0, false
		}
		to = d
	}
	return to, to > 0
}

// splits reads the sizes that an all_to_all sends and receives; equal sizes need no attribute.
func (c *node) splits(form collectiveForm, g *ir.Group, args []*ir.Value) (attr.List, error) {
	out, err := c.splitLists("output_split_sizes", form.coalesced, len(args))
	if err != nil {
		return nil, err
	}
	in, err := c.splitLists("input_split_sizes", form.coalesced, len(args))
	if err != nil {
		return nil, err
	}
	if in == nil && out == nil {
		return nil, nil
	}
	if in == nil || out == nil {
		return nil, traced.ErrForm
	}
	if k, ok := shift(g, args, in, out); ok {
		return pairs(g.Size(), func(src int) int64 { return int64(src+k) % int64(g.Size()) }), nil
	}
	equal := true
	for k, x := range args {
		for _, list := range []ir.Shape{in[k], out[k]} {
			if len(list) != g.Size() {
				return nil, c.Fail("args", "arguments", "%d split sizes for the %d ranks of group %q", len(list), g.Size(), g.Name)
			}
			for _, n := range list {
				d := x.Type().Shape()
				equal = equal && len(d) > 0 && n.Equal(list[0]) && n.Mul(ir.D(int64(g.Size()))).Equal(d[0])
			}
		}
	}
	if equal {
		return nil, nil
	}
	text := func(lists []ir.Shape) attr.Value {
		out := make([]string, len(lists))
		for k, list := range lists {
			out[k] = ir.SplitsText(list)
		}
		return attr.Strings(out...)
	}
	return attr.List(nil).With("in_splits", text(in)).With("out_splits", text(out)), nil
}

// splitLists reads one list of sizes for each operand; nil if absent.
func (c *node) splitLists(param string, coalesced bool, operands int) ([]ir.Shape, error) {
	v := c.Arg(param)
	if v == nil {
		return nil, nil
	}
	lists := []pytext.Value{*v}
	if coalesced {
		lists = c.ListOf(param)
	}
	var out []ir.Shape
	for k := range lists {
		if lists[k].Kind == pytext.None {
			return nil, traced.ErrForm
		}
		sub := ir.Shape{}
		for i := range lists[k].List {
			x := &lists[k].List[i]
			d, ok := c.Size(x)
			if !ok {
				c.Want(param, "an integer", x)
				return nil, c.Err
			}
			if n, ok := d.Const(); ok && n < 0 {
				c.Reject(param, x, "size %d is negative", n)
				return nil, c.Err
			}
			sub = append(sub, d)
		}
		out = append(out, sub)
	}
	if c.Err == nil && len(out) != operands {
		c.Reject(param, v, "%d lists for %d operands", len(out), operands)
	}
	return out, c.Err
}
