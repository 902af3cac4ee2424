package decompose

import "github.com/seed-ee968945/concert/ir"

// ragged are the ends of groups of rows, one behind the other, in each of several batches.
type ragged struct {
	emit
	batches, count, rows int64
	ends                 *ir.Value // [batches, count], within the batch
}

// raggedOf takes sizes of groups, [..., groups], for all batches or for each.
func raggedOf(to Emitter, of *ir.Value, batches, rows int64) ragged {
	g := ragged{emit: emit{to}, batches: batches, rows: rows}
	shape := sizes(of)
	g.count = shape[len(shape)-1]
	if len(shape) == 1 {
		of = g.view(of, []int64{1, g.count})
		if batches > 1 {
			of = g.expand(of, []int64{batches, g.count})
		}
	}
	g.ends = g.one(ir.OpCumsum, ir.A("dim", int64(1)), []*ir.Value{g.view(of, []int64{batches, g.count})})
	return g
}

// upTo are the ends of the first groups of each batch and of all its rows, among the rows of all batches.
func (g ragged) upTo(count int64) *ir.Value {
	first := g.with(ir.OpMul, g.one(ir.OpIota, nil, nil, ir.Tensor(g.ends.Type().DType(), g.batches)), g.rows)
	first = g.view(first, []int64{g.batches, 1})
	ends := g.binary(ir.OpAdd, g.slice(g.ends, 1, 0, count, 1), first)
	return g.view(g.cat(1, ends, g.with(ir.OpAdd, first, g.rows)), []int64{g.batches * (count + 1)})
}

// RaggedRows multiplies groups of the rows of a, [batches, rows, k], with a matrix of b for each,
// [batches, groups, k, n]. Rows after the groups of a batch give zeros: of several batches, they go
// with the last group and are then replaced.
func RaggedRows(to Emitter, a, b, of *ir.Value, dt ir.DType) *ir.Value {
	x, y := sizes(a), sizes(b)
	g := raggedOf(to, of, x[0], x[1])
	ends := g.view(g.ends, []int64{x[0] * g.count})
	if x[0] > 1 {
		ends = g.upTo(g.count - 1)
	}
	v := g.one(ir.OpGroupedMatmul, nil, []*ir.Value{g.view(a, []int64{x[0] * x[1], x[2]}), g.view(b, []int64{y[0] * y[1], y[2], y[3]}), ends}, ir.Tensor(dt, x[0]*x[1], y[3]))
	v = g.view(v, []int64{x[0], x[1], y[3]})
	if x[0] == 1 {
		return v
	}
	row := g.one(ir.OpIota, nil, nil, ir.Tensor(g.ends.Type().DType(), g.rows))
	within := g.binary(ir.OpLt, row, g.slice(g.ends, 1, g.count-1, g.count, 1))
	return g.where(g.view(within, []int64{g.batches, g.rows, 1}), v, g.integer(dt, 0))
}

// RaggedSums adds up products of groups of the columns of a, [m, batches*rows], and rows of b,
// [batches*rows, n], on their own: [groups, batches, m, n]. Rows after the groups of a batch are, of
// several, a group that is left out.
func RaggedSums(to Emitter, a, b, of *ir.Value, batches int64, dt ir.DType) *ir.Value {
	x, y := sizes(a), sizes(b)
	g := raggedOf(to, of, batches, x[1]/batches)
	if batches == 1 {
		v := g.one(ir.OpGroupedMatmul, nil, []*ir.Value{a, b, g.view(g.ends, []int64{g.count})}, ir.Tensor(dt, g.count, x[0], y[1]))
		return g.view(v, []int64{g.count, 1, x[0], y[1]})
	}
	v := g.one(ir.OpGroupedMatmul, nil, []*ir.Value{a, b, g.upTo(g.count)}, ir.Tensor(dt, batches*(g.count+1), x[0], y[1]))
	v = g.view(v, []int64{batches, g.count + 1, x[0], y[1]})
	return g.permute(g.slice(v, 1, 0, g.count, 1), []int{1, 0, 2, 3})
}
