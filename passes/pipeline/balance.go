package pipeline

import (
	"fmt"
	"math"
	"slices"

	"github.com/seed-ee968945/concert/ir"
)

// divide chooses where chunks end.
func (c *cut) divide() error {
	n := len(c.forward)
	stage, told := 0, false
	for i, node := range c.forward {
		if !node.Meta().Has(MetaStage) {
			continue
		}
		told = true
		k := int(node.Meta().Int(MetaStage, -1))
		if k < stage || k > stage+1 || k >= c.shape.Chunks || k > stage && i == 0 {
			return fmt.Errorf("%%%s: stage=%d behind stage %d: want chunks 0 to %d in the order of forward", node.Name(), k, stage, c.shape.Chunks-1)
		}
		if k > stage {
			c.ends = append(c.ends, i)
			stage = k
		}
	}
	if told {
		if stage != c.shape.Chunks-1 {
			return fmt.Errorf("annotations of @%s say %d chunks, the options %d", c.f.Name, stage+1, c.shape.Chunks)
		}
		if bytes := c.crossing(); slices.ContainsFunc(c.ends, func(at int) bool { return bytes[at] < 0 }) {
			return fmt.Errorf("annotations of @%s cut between a collective and its wait", c.f.Name)
		}
		c.ends = append(c.ends, n)
		return nil
	}
	return c.balance()
}

// crossing is how many bytes forward carries over each place, -1 where a collective is in flight.
func (c *cut) crossing() []int64 {
	n := len(c.forward)
	out := make([]int64, n+1)
	flying := make([]int, n+2)
	for i, node := range c.forward {
		for _, v := range node.Results() {
			to := c.last[v.ID()]
			if v.Type().IsAsync() {
				flying[i+1]++
				flying[to+1]--
				continue
			}
			out[i+1] += c.bytes(v)
			if to+1 <= n {
				out[to+1] -= c.bytes(v)
			}
		}
	}
	air := 0
	for i := 1; i <= n; i++ {
		out[i] += out[i-1]
		air += flying[i]
		flying[i] = air
	}
	for i := range out {
		if flying[i] > 0 {
			out[i] = -1
		}
	}
	return out
}

// bytes is what a value's elements take, at the bounds of symbols.
func (c *cut) bytes(v *ir.Value) int64 {
	t := v.Type()
	n := int64(t.DType().Size())
	for _, d := range t.Shape() {
		n *= max(c.f.Module().Bound(d), 0)
	}
	return n
}

// candidates bounds the places that balance looks at.
const candidates = 512

// balance ends chunks so that the longest takes as little as can be, transfers included. Where
// nothing has a cost, bytes that are computed count, and a byte that is sent as one of them.
func (c *cut) balance() error {
	n := len(c.forward)
	bytes := c.crossing()
	load, price := c.loads(bytes)
	var at []int
	for i := 1; i < n; i++ {
		if bytes[i] >= 0 {
			at = append(at, i)
		}
	}
	if len(at) > candidates { // those that carry least
		slices.SortStableFunc(at, func(a, b int) int { return int(min(max(bytes[a]-bytes[b], -1), 1)) })
		at = slices.Sorted(slices.Values(at[:candidates]))
	}
	k := c.shape.Chunks
	if len(at) < k-1 {
		return fmt.Errorf("@%s: forward can be cut at %d places, %d chunks need %d", c.f.Name, len(at), k, k-1)
	}
	at = append(at, n)
	best := make([][]float64, k) // by chunk and candidate: the longest of those up to there
	from := make([][]int, k)
	for j := range k {
		best[j], from[j] = make([]float64, len(at)), make([]int, len(at))
		for e := range at {
			best[j][e] = math.Inf(1)
			if j == 0 {
				best[0][e] = load[at[e]] + price[at[e]]
				continue
			}
			for b := j - 1; b < e; b++ {
				if longest := max(best[j-1][b], load[at[e]]-load[at[b]]+price[at[e]]+price[at[b]]); longest < best[j][e] {
					best[j][e], from[j][e] = longest, b
				}
			}
		}
	}
	c.ends = make([]int, k)
	for j, e := k-1, len(at)-1; j >= 0; j-- {
		c.ends[j] = at[e]
		e = from[j][e]
	}
	return nil
}

// loads sums what forward's nodes and those of backward at their places cost, and gives what it
// costs to send what crosses each place.
func (c *cut) loads(bytes []int64) (load, price []float64) {
	n := len(c.forward)
	load, price = make([]float64, n+1), make([]float64, n+1)
	made := make([]float64, n+1)
	for _, node := range c.f.Order() {
		if k := c.class[node.ID()]; k != forward && k != backward {
			continue
		}
		load[c.place[node.ID()]+1] += c.ctx.Cost(node)
		for _, v := range node.Results() {
			if !v.Type().IsAsync() {
				made[c.place[node.ID()]+1] += float64(c.bytes(v))
			}
		}
	}
	for i := range n {
		load[i+1] += load[i]
		made[i+1] += made[i]
	}
	if load[n] == 0 {
		load = made
	}
	for i := 1; i < n; i++ {
		price[i] = load[n] * float64(max(bytes[i], 0)) / max(made[n], 1)
		if ms, ok := c.transfer(bytes[i]); ok {
			price[i] = ms
		}
	}
	return load, price
}

// transfer is what a transfer takes by the model, false if it knows nothing.
func (c *cut) transfer(bytes int64) (float64, bool) {
	if c.ctx.Costs() == nil || bytes < 0 {
		return 0, false
	}
	return c.ctx.Costs().CommMs(ir.OpCollectivePermute, &ir.Group{Name: "pp", Ranks: [][]int{{0, c.f.Module().World}}}, "", bytes)
}
