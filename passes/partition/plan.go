package partition

import (
	"github.com/seed-ee968945/concert/internal/maxflow"
	"math"
	"slices"
)

// savePlan is a choice with its consequences.
type savePlan struct {
	saved  []bool // by root: kept for backward
	again  []bool // by unit: not of backward, but runs there
	fw     []bool // by unit: runs in forward
	bytes  int64  // of what is saved
	ms     float64
	limit  int64 // bytes that the budget allowed
	least  int64 // bytes at budget 0
	most   int64 // bytes at budget 1
	repeat int   // units that run in both halves
}

// evaluate works out what follows from saving some roots: what backward repeats,
// and which of the roots it then reads. Linear in the part that is repeated and
// in forward.
func (j *jointFunc) evaluate(offered []bool) *savePlan {
	j.ctx.Tick()
	p := &savePlan{saved: make([]bool, len(j.roots)), again: make([]bool, len(j.units)), fw: make([]bool, len(j.units))}
	seen := make([]bool, len(j.roots))
	var stack []int32
	need := func(r int32) {
		if !seen[r] {
			seen[r] = true
			stack = append(stack, r)
		}
	}
	run := func(u int32) {
		if !p.again[u] {
			p.again[u] = true
			for _, r := range j.units[u].args {
				need(r)
			}
		}
	}
	eachBackwardRoot(j, need)
	for i := range j.units {
		if j.units[i].rerun {
			run(int32(i))
		}
	}
	for len(stack) > 0 {
		r := stack[len(stack)-1]
		stack = stack[:len(stack)-1]
		root := &j.roots[r]
		switch {
		case root.free || root.tangent || root.duplicate >= 0:
		case root.unit >= 0 && j.units[root.unit].side == sideBackward:
		case root.unit < 0 || offered[r] || j.units[root.unit].keep:
			p.saved[r] = true
			p.bytes += root.bytes
		default:
			run(root.unit)
		}
	}
	j.forwardRuns(p)
	for i := range j.units {
		if p.again[i] && p.fw[i] {
			p.ms += j.units[i].ms
			p.repeat++
		}
	}
	return p
}

// forwardRuns marks what forward runs: its own units, and free ones whose results
// are saved.
func (j *jointFunc) forwardRuns(p *savePlan) {
	for r, s := range p.saved {
		if u := j.roots[r].unit; s && u >= 0 {
			p.fw[u] = true
		}
	}
	for i := len(j.units) - 1; i >= 0; i-- {
		u := &j.units[i]
		p.fw[i] = p.fw[i] || u.side == sideForward && u.wanted
		if p.fw[i] {
			j.mark(p.fw, u)
		}
	}
}

// plan chooses what to save under a budget.
//
// On the corners of the convex hull of (bytes, time) the choice is exact. Between
// two neighbouring corners it differs in parts of the graph that do not touch,
// for a model one per layer, and any subset of them is a legal choice; all have
// the same exchange rate, so that filling the room with them is a subset-sum
// problem, solved by dynamic programming over the bytes in 4096 steps. The room
// that is left is filled by saving single values greedily by time gained per
// byte. Where the parts are few, so that they may leave much room, the greedy
// search also starts from the lower corner itself, and from the upper one after
// dropping values greedily until it fits; the best of the three is taken. The
// result never exceeds the budget; with many parts its time is within that of one
// part of the best.
func (c *cutter) plan(budget float64) (*savePlan, error) {
	if err := c.extremes(); err != nil {
		return nil, err
	}
	first, last := &c.corners[0], &c.corners[len(c.corners)-1]
	limit := first.m + int64(budget*float64(last.m-first.m))
	least, most := c.j.evaluate(c.saved(first.keep)).bytes, c.j.evaluate(c.saved(last.keep)).bytes
	lo, hi, err := c.neighbours(limit)
	if err != nil {
		return nil, err
	}
	p := c.j.evaluate(c.saved(lo.keep))
	if hi != nil {
		filled, coarse := c.fill(lo, hi, limit-lo.m)
		q := c.improve(c.j.evaluate(c.saved(filled)), limit<<c.shift)
		if coarse {
			p = c.improve(p, limit<<c.shift)
			if r := c.improve(c.shrink(c.j.evaluate(c.saved(hi.keep)), limit<<c.shift), limit<<c.shift); r.bytes <= limit<<c.shift && r.ms < p.ms {
				p = r
			}
		}
		if q.ms <= p.ms {
			p = q
		}
	}
	p.limit, p.least, p.most = limit<<c.shift, least, most
	return p, nil
}

// part is a connected piece of what hi keeps and lo repeats.
type part struct {
	bytes, gain int64 // units more to save, quanta less to repeat
}

// coarseParts is the number of parts up to which a plan tries what no part gives.
const coarseParts = 16

// fill adds parts of hi to lo as far as the room allows. coarse says that there
// are few parts, so that much room may be left.
func (c *cutter) fill(lo, hi *corner, room int64) (filled []bool, coarse bool) {
	of, parts := c.parts(lo, hi)
	take := knapsack(parts, room)
	keep := slices.Clone(lo.keep)
	for v, k := range of {
		if k >= 0 && take[k] {
			keep[v] = true
		}
	}
	return keep, len(parts) <= coarseParts
}

// parts finds the connected pieces of the difference of two nested choices, in
// program order of their first units, and what each adds.
func (c *cutter) parts(lo, hi *corner) (of []int32, parts []part) {
	n := c.g.Len()
	parent := make([]int32, n)
	for v := range parent {
		parent[v] = int32(v)
	}
	find := func(v int32) int32 {
		for parent[v] != v {
			parent[v] = parent[parent[v]]
			v = parent[v]
		}
		return v
	}
	differs := func(v int32) bool { return hi.keep[v] && !lo.keep[v] }
	for a := range c.g.NumArcs() {
		if u, v := c.arc(a); differs(u) && differs(v) {
			if u, v = find(u), find(v); u != v {
				parent[max(u, v)] = min(u, v)
			}
		}
	}
	first := minusOnes(n) // by representative: its first unit
	var heads []int32
	for v := range int32(n) {
		if !differs(v) {
			continue
		}
		r := find(v)
		if r == v { // the smallest vertex of its piece comes first
			heads = append(heads, v)
			first[v] = c.pos[v]
		}
		first[r] = min(first[r], c.pos[v])
	}
	slices.SortStableFunc(heads, func(a, b int32) int { return int(first[a] - first[b]) })
	of, parts = minusOnes(n), make([]part, len(heads))
	for k, v := range heads {
		of[v] = int32(k)
	}
	for v := range int32(n) {
		if differs(v) {
			of[v] = of[find(v)]
		}
	}
	change := func(a priced) (k int32, by int64) {
		u, v := c.g.Ends(a.arc)
		if k = max(of[u], of[v]); k < 0 {
			return k, 0
		}
		if lo.keep[u] && !lo.keep[v] {
			by -= a.amount
		}
		if (lo.keep[u] || of[u] == k) && !lo.keep[v] && of[v] != k {
			by += a.amount
		}
		return k, by
	}
	for _, a := range c.memory {
		if k, by := change(a); k >= 0 {
			parts[k].bytes += by
		}
	}
	for _, a := range c.time {
		if k, by := change(a); k >= 0 {
			parts[k].gain -= by
		}
	}
	return of, parts
}

// arc lists the arcs of the network by number.
func (c *cutter) arc(a int) (from, to int32) { return c.g.Ends(maxflow.Arc(a)) }

// knapsackSteps is the resolution of the dynamic program over bytes; sizes are
// rounded up, so that the room is never exceeded.
const knapsackSteps = 4096

// knapsack chooses parts with the largest sum of gains whose sizes fit into the
// room. Ties take later parts: what the end of forward saves, the start of
// backward frees, and what is repeated early in backward adds to its peak. Parts
// beyond what the program can hold are added greedily.
func knapsack(parts []part, room int64) []bool {
	take := make([]bool, len(parts))
	const most = 4096
	n := min(len(parts), most)
	step := room/knapsackSteps + 1
	width := int(room/step) + 1
	best := make([]int64, width)
	chosen := make([]bool, n*width)
	for i := range n {
		p := parts[len(parts)-n+i]
		size := (p.bytes + step - 1) / step
		if p.gain <= 0 || size >= int64(width) || p.bytes < 0 {
			continue
		}
		for w := width - 1; w >= int(size); w-- {
			if v := best[w-int(size)] + p.gain; v >= best[w] {
				best[w], chosen[i*width+w] = v, true
			}
		}
	}
	w := width - 1
	used := int64(0)
	for i := n - 1; i >= 0; i-- {
		if chosen[i*width+w] {
			k := len(parts) - n + i
			take[k] = true
			used += parts[k].bytes
			w -= int((parts[k].bytes + step - 1) / step)
		}
	}
	for k := len(parts) - 1; k >= 0; k-- { // what rounding left out
		if p := parts[k]; !take[k] && p.gain > 0 && p.bytes >= 0 && used+p.bytes <= room {
			take[k] = true
			used += p.bytes
		}
	}
	return take
}

// shrink drops saved values, the least time per byte first, until a plan fits or
// the iterations are over.
func (c *cutter) shrink(p *savePlan, limit int64) *savePlan {
	for range greedyIterations {
		if p.bytes <= limit {
			break
		}
		var best *savePlan
		bestRate, tries := 0.0, 0
		for r := range p.saved {
			if u := c.j.roots[r].unit; !p.saved[r] || u < 0 || c.j.units[u].keep || tries == c.maxTries() {
				continue
			}
			tries++
			offered := slices.Clone(p.saved)
			offered[r] = false
			q := c.j.evaluate(offered)
			if q.bytes >= p.bytes {
				continue
			}
			if rate := (q.ms - p.ms) / float64(min(p.bytes-q.bytes, p.bytes-limit)); best == nil || rate < bestRate {
				best, bestRate = q, rate
			}
		}
		if best == nil {
			break
		}
		p = best
	}
	return p
}

// greedyIterations bounds a greedy search, whose iterations try tries values each.
const greedyIterations = 32

// maxTries is how many evaluations an iteration of a greedy search makes: fewer the more
// one costs.
func (c *cutter) maxTries() int { return min(max(1<<18/(len(c.j.units)+1), 16), 128) }

// improve saves single values that a plan repeats while they fit under the limit,
// the best time per byte first. Every try is evaluated in full, so that what need
// not be saved any more gives its room back.
func (c *cutter) improve(p *savePlan, limit int64) *savePlan {
	j := c.j
	type candidate struct {
		root int32
		rate float64
	}
	for range greedyIterations {
		var cs []candidate
		for r := range j.roots {
			root := &j.roots[r]
			if root.unit < 0 || p.saved[r] || !p.again[root.unit] || root.inside || root.async || root.bytes > limit {
				continue
			}
			if u := &j.units[root.unit]; u.side == sideForward && !u.rerun && u.ms > 0 {
				cs = append(cs, candidate{int32(r), u.ms / float64(max(1, root.bytes))})
			}
		}
		slices.SortStableFunc(cs, func(a, b candidate) int {
			switch {
			case a.rate > b.rate:
				return -1
			case a.rate < b.rate:
				return 1
			}
			return int(b.root - a.root)
		})
		best, bestRate := (*savePlan)(nil), 0.0
		for _, k := range cs[:min(len(cs), c.maxTries())] {
			offered := slices.Clone(p.saved)
			offered[k.root] = true
			q := j.evaluate(offered)
			if q.bytes > limit || q.ms >= p.ms {
				continue
			}
			rate := math.Inf(1)
			if q.bytes > p.bytes {
				rate = (p.ms - q.ms) / float64(q.bytes-p.bytes)
			}
			if best == nil || rate > bestRate {
				best, bestRate = q, rate
			}
		}
		if best == nil {
			break
		}
		p = best
	}
	return p
}
