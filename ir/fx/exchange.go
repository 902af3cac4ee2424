package fx

import (
	"slices"

	"github.com/seed-ee968945/concert/internal/attr"
	"github.com/seed-ee968945/concert/ir"
	"github.com/seed-ee968945/concert/ir/fx/internal/pytext"
	"github.com/seed-ee968945/concert/ir/fx/internal/traced"
)

// pairs are the sources and destinations of a permutation.
func pairs(to []int64) attr.List {
	list := make([]int64, 0, 2*len(to))
	for src, d := range to {
		list = append(list, int64(src), d)
	}
	return attr.List(nil).With("pairs", attr.Ints(list...))
}

// permuted is where each rank's rows go, nil if that does not follow. PyTorch traces a permutation as an
// exchange with the sizes of the rank that traces, the world's first: all for one rank, all from one. No
// other rank can have the same sizes. As all have as many rows, and room for as many, those of one more
// rank follow: what up to three ranks do. Of more there are several ways, and no one is taken.
func permuted(g *ir.Group, args []*ir.Value, in, out []ir.Shape) []int64 {
	first, n := -1, int64(g.Size())
	for _, sub := range g.Ranks {
		first = max(first, slices.Index(sub, 0))
	}
	var all []int64
	for k, x := range args {
		d, s := whole(x, in[k]), whole(x, out[k])
		if n > 3 || min(d, s, first) < 0 || len(in[k]) != g.Size() || len(out[k]) != g.Size() || d == first || s == first {
			return nil
		}
		to := make([]int64, n)
		for i := range to {
			to[i] = int64(i)
		}
		to[first], to[d] = int64(d), int64(s) // who is left has what is left: the third rank
		to[s] = int64(first)
		if k > 0 && !slices.Equal(to, all) {
			return nil
		}
		all = to
	}
	return all
}

// whole is the one rank that a list of sizes has all rows for, below 0 if it is not so.
func whole(x *ir.Value, list ir.Shape) int {
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
	if to := permuted(g, args, in, out); to != nil {
		return pairs(to), nil
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
