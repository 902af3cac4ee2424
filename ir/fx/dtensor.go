package fx

import (
	"cmp"
	"slices"

	"github.com/seed-ee968945/concert/internal/attr"
	"github.com/seed-ee968945/concert/ir"
)

// shard imports this rank's piece of a tensor.
func (c *node) shard() error {
	x, dim := c.Tensor("input"), c.Need("dim")
	g, err := c.group(collectiveForm{op: ir.OpShard})
	if err = cmp.Or(err, c.Err); err != nil {
		return err
	}
	ts, err := c.Types()
	if err != nil {
		return err
	}
	l := attr.List(nil).With("dim", attr.Int(dim))
	got, err := ir.Infer(ir.OpShard, g, l, []ir.Type{x.Type()})
	if err != nil {
		return c.Fail("args", "arguments", "%s: %v", c.n.Target, err)
	}
	if len(ts) != 1 || !ts[0].Equal(got[0]) {
		return c.Fail("out", "type", "a rank's piece is %s, out says %s", got[0], ts)
	}
	c.Results = c.Append(ir.OpShard, l, nil, got, g, []*ir.Value{x}).Results()
	c.keep()
	return nil
}

// shardAlongOther imports the exchange by which ranks that have pieces along gather_dim get pieces along
// shard_dim. The dimension that is cut goes to the front, as collectives have it; what comes back is one
// piece of each rank, whose number then moves before gather_dim.
func (c *node) shardAlongOther() error {
	x, to, from := c.Tensor("input"), c.Need("gather_dim"), c.Need("shard_dim")
	g, err := c.group(collectiveForm{op: ir.OpAllToAll})
	if err = cmp.Or(err, c.Err); err != nil {
		return err
	}
	shape, n := x.Type().Shape(), int64(g.Size())
	if min(to, from) < 0 || max(to, from) >= int64(len(shape)) || to == from {
		return c.Fail("args", "arguments", "%s takes two dimensions of %s", c.n.Target, x.Type())
	}
	size, ok := shape[from].Const()
	if !ok || size%n != 0 {
		return c.Fail("args", "arguments", "dimension %d of %s has no %d equal pieces", from, x.Type(), n)
	}
	front := []int64{from}
	apart, joined := ir.Shape{ir.D(n), ir.D(size / n)}, slices.Clone(shape)
	joined[from], joined[to] = ir.D(size/n), shape[to].Mul(ir.D(n))
	var order []int64 // of apart
	for i := range int64(len(shape)) {
		if i == to {
			order = append(order, 0)
		}
		if i == from {
			order = append(order, 1)
			continue
		}
		order = append(order, int64(len(apart)))
		front, apart = append(front, i), append(apart, shape[i])
	}
	x = c.communicate(ir.OpAllToAll, g, 0, c.Permuted(x, front...))
	return c.settled(c.Reshaped(c.Permuted(c.Reshaped(x, apart), order...), joined))
}
