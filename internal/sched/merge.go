package sched

import (
	"slices"

	"github.com/seed-ee968945/concert/sim"
)

// merge returns the problem in which every bucket is one collective. jobs is an
// order of p's jobs with the buckets in place, as realize returns it; it becomes
// the input order of the new problem, so that its peak is that of the order. The
// waits of a bucket stay jobs of their own.
func (p *problem) merge(jobs []int32, found []joined) *problem {
	n := p.n()
	of := make([]int32, n) // job -> bucket, -1 for none
	for j := range of {
		of[j] = -1
	}
	for b := range found {
		for _, c := range found[b].members {
			of[c] = int32(b)
		}
	}
	q := &problem{m: p.m, tick: p.tick, least: &leastMemory{}, size: p.size, pinned: p.pinned, given: p.given, base: p.base, lead: p.lead, tail: p.tail}
	to := make([]int32, n) // old job -> new job
	at := make([]int32, len(found))
	for b := range at {
		at[b] = -1
	}
	var from [][]int32 // new job -> old jobs
	for _, j := range jobs {
		b := of[j]
		if b >= 0 && at[b] >= 0 {
			to[j] = at[b]
			continue
		}
		to[j] = int32(len(from))
		if b < 0 {
			from = append(from, []int32{j})
		} else {
			at[b] = to[j]
			from = append(from, found[b].members)
		}
	}
	q.fill(p, from, to)
	for b := range found {
		q.dur[at[b]] = found[b].dur
	}
	q.job = make([]int32, len(p.job))
	for v, j := range p.job {
		q.job[v] = -1
		if j >= 0 {
			q.job[v] = to[j]
		}
	}
	q.footprints()
	return q
}

// fill computes the columns of q from those of p.
func (q *problem) fill(p *problem, from [][]int32, to []int32) {
	n := len(from)
	q.node, q.nodes = make([]int32, n), make([][]int32, n)
	q.dur, q.kind = make([]float64, n), make([]sim.Kind, n)
	q.stream, q.startOf, q.carry = make([]int32, n), make([]int32, n), make([]int64, n)
	var waitOf, waitJob, trailOf, trailNode []int32
	pred, alloc, use := newTable(n), newTable(n), newTable(n)
	stamp := make([]int32, len(p.size))
	for s := range stamp {
		stamp[s] = -1
	}
	for i, old := range from {
		first := old[0]
		q.node[i], q.dur[i], q.kind[i], q.stream[i], q.startOf[i] = p.node[first], p.dur[first], p.kind[first], p.stream[first], -1
		if p.startOf[first] >= 0 {
			q.startOf[i] = to[p.startOf[first]]
			waitOf, waitJob = append(waitOf, q.startOf[i]), append(waitJob, int32(i))
		}
		var members []int32
		for _, j := range old {
			q.carry[i] += p.carry[j]
			members = append(members, p.members(j)...)
			for _, k := range p.pred.At(j) {
				if !slices.Contains(pred.row(), to[k]) {
					pred.add(to[k])
				}
			}
			for _, s := range p.alloc.At(j) {
				alloc.add(s)
			}
			for _, s := range p.use.At(j) {
				if stamp[s] != int32(i) {
					stamp[s] = int32(i)
					use.add(s)
				}
			}
			for _, v := range p.trail.At(j) {
				trailOf, trailNode = append(trailOf, int32(i)), append(trailNode, v)
			}
		}
		if len(members) > 1 {
			q.nodes[i] = members
		}
		pred.end()
		alloc.end()
		use.end()
	}
	q.pred, q.alloc, q.use = pred.Lists, alloc.Lists, use.Lists
	q.succ = sim.Transpose(&q.pred, n)
	q.users = sim.Transpose(&q.use, len(p.size))
	q.waits = group(waitOf, waitJob, n)
	q.trail = group(trailOf, trailNode, n)
}

// table builds lists row by row.
type table struct{ sim.Lists }

func newTable(n int) *table { return &table{sim.Lists{Off: make([]int32, 1, n+1)}} }

func (t *table) add(x int32)  { t.Val = append(t.Val, x) }
func (t *table) end()         { t.Off = append(t.Off, int32(len(t.Val))) }
func (t *table) row() []int32 { return t.Val[t.Off[len(t.Off)-1]:] }
