package passes_test

import (
	"fmt"

	"github.com/seed-ee968945/concert/ir"
)

// layers builds a chain of layers with about the given number of nodes, as a
// sharded training step has them: each layer gathers its weight from the data
// parallel group, multiplies, reduces over the tensor parallel group, and
// reduce-scatters a gradient of its own. Costs are attached. It is the subject of
// scaling benchmarks: from a thousand to a million nodes.
func layers(nodes int) (*ir.Module, error) {
	b := ir.NewBuilder(16)
	dp := b.Group("dp", [][]int{{0, 2, 4, 6, 8, 10, 12, 14}, {1, 3, 5, 7, 9, 11, 13, 15}})
	var pairs [][]int
	for r := 0; r < 16; r += 2 {
		pairs = append(pairs, []int{r, r + 1})
	}
	tp := b.Group("tp", pairs)
	f := b.Func(fmt.Sprintf("layers%d", nodes))
	x := f.InputRole("x", ir.Tensor(ir.BF16, 1024, 1024), ir.RoleData)
	const perLayer = 13 // its parameter included
	count := max(1, nodes/perLayer)
	shards := make([]*ir.Value, count)
	for i := range shards {
		shards[i] = f.Parameter(fmt.Sprintf("w%d", i), ir.Tensor(ir.BF16, 128, 1024))
	}
	var outs []*ir.Value
	for _, shard := range shards {
		w := f.Wait(f.Cost(0.030).AllGather(dp, 0, shard))
		if len(w) != 1 {
			break
		}
		h := f.Cost(0.050).MatMul(x, f.Permute(w[0], 1, 0))
		h = f.Cost(0.005).Unary(ir.OpRelu, h)
		y := f.Wait(f.Cost(0.020).AllReduce(ir.Sum, tp, h))
		if len(y) != 1 {
			break
		}
		g := f.Cost(0.050).MatMul(f.Permute(h, 1, 0), x)
		s := f.Wait(f.Cost(0.035).ReduceScatter(ir.Avg, dp, 0, g))
		if len(s) != 1 {
			break
		}
		outs = append(outs, s[0])
		x = f.Cost(0.006).Add(x, y[0])
	}
	f.Return(append(outs, x)...)
	return b.Finish()
}
