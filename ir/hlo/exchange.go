package hlo

import (
	"slices"

	"github.com/seed-ee968945/concert/ir/stablehlo/mlir"
)

// allToAll has an operand and a result for each rank, or a dimension that is cut.
func allToAll(c *converter, _ int) error {
	among, err := c.among()
	if err != nil {
		return err
	}
	n := int64(0)
	if g, ok := get(c.in.attrs, "replica_groups"); ok {
		rows, err := c.groups(g)
		if err != nil {
			return err
		}
		if len(rows) > 0 {
			n = int64(len(rows[0]))
		}
	}
	a, ok := get(c.in.attrs, "dimensions")
	if !ok {
		return c.allToAllOfParts(n, among)
	}
	d, err := c.numbers(a)
	if err != nil {
		return err
	}
	if n == 0 {
		if n = c.counts[0]; c.channel() {
			n = c.counts[1]
		}
	}
	if n == 0 || len(d) != 1 {
		return c.errorf("all-to-all among %d ranks along dimensions %v: want one dimension, and replica_groups, or replica_count or num_partitions of the module", n, d)
	}
	return c.operation("", append(exchange(c.in.at, d[0], n), among...), nil)
}

// exchange are the attributes of an all_to_all along a dimension.
func exchange(at int, dim, n int64) []mlir.Named {
	return named("split_dimension", mlir.Number(at, dim), "concat_dimension", mlir.Number(at, dim), "split_count", mlir.Number(at, n))
}

// allToAllOfParts sends operand k to rank k: as rows of one tensor on the way.
func (c *converter) allToAllOfParts(n int64, among []mlir.Named) error {
	at, parts, t := c.in.at, c.in.operands, c.in.shape
	if len(parts) == 0 || n != 0 && n != int64(len(parts)) || !t.many || len(t.tuple) != len(parts) {
		return c.errorf("all-to-all of %d operands among %d ranks", len(parts), n)
	}
	n = int64(len(parts))
	c.names(n)
	elem, dims := t.tuple[0].elem, t.tuple[0].dims
	row, all := c.typ(shape{elem: elem, dims: slices.Concat([]int64{1}, dims)}), c.typ(shape{elem: elem, dims: slices.Concat([]int64{n}, dims)})
	rows := make([]string, n)
	for k, o := range parts {
		rows[k] = c.temporary()
		c.as("stablehlo.reshape", rows[k], row, nil, o)
	}
	joined, sent := c.temporary(), c.temporary()
	c.as("stablehlo.concatenate", joined, all, named("dimension", mlir.Number(at, 0)), rows...)
	c.as("stablehlo.all_to_all", sent, all, append(exchange(at, 0, n), among...), joined)
	out := make([]mlir.Use, n)
	zeros, ends, ones := make([]int64, len(all.Shape)), slices.Clone(all.Shape), make([]int64, len(all.Shape))
	for d := range ones {
		ones[d] = 1
	}
	for k := range n {
		zeros[0], ends[0] = k, k+1
		one, got := c.temporary(), c.temporary()
		c.as("stablehlo.slice", one, row, named("start_indices", mlir.Numbers(at, zeros...), "limit_indices", mlir.Numbers(at, ends...), "strides", mlir.Numbers(at, ones...)), sent)
		c.as("stablehlo.reshape", got, c.typ(t.tuple[k]), nil, one)
		out[k] = mlir.Use{Name: got}
	}
	c.add(mlir.Spec{Name: "stablehlo.tuple", Result: c.in.name, Operands: out, Types: []mlir.Type{c.typ(t)}})
	return nil
}

// each makes a collective of several operands one for each of them.
func (c *converter) each(depth int) error {
	of, t := c.in, c.in.shape
	if len(of.operands) != len(t.tuple) {
		return c.errorf("%s of %d operands gives %d", of.opcode, len(of.operands), len(t.tuple))
	}
	var out []mlir.Use
	for i, o := range of.operands {
		one := *of
		one.operands, one.shape, one.name = []string{o}, t.tuple[i], c.temporary()
		if err := c.instruction(&one, depth); err != nil {
			return err
		}
		out = append(out, mlir.Use{Name: one.name})
	}
	c.in = of
	c.add(mlir.Spec{Name: "stablehlo.tuple", Result: of.name, Operands: out, Types: []mlir.Type{c.typ(t)}})
	return nil
}
