package sched

import (
	"slices"

	"github.com/seed-ee968945/concert/sim"
)

// Bucketing joins collectives of one schedule so that fewer, larger ones run,
// without moving any compute job and without making anything late.
//
// The schedule fixes when the compute stream reaches every job. From that follow,
// for each collective, the first place where its operands exist, and its due time:
// when the first job that needs its result begins, or, if only the output does,
// when everything has ended. As long as every collective of a stream finishes by
// its due time, the compute stream runs as before.
//
// Collectives that raise live memory (gathers) join an earlier one that their
// operands already allow: they start sooner than they had to. All others
// (reductions) join a later one: they start later than they could. What has found
// no company so tries the other way. In all cases
// the stream's timeline is recomputed from the first change until it coincides
// with the old one, and a join is undone if any collective then finishes after
// both its due time and its finish so far. Each join saves a latency, so that the
// stream only gets emptier; a join that the cost model does not favour, or that
// goes beyond the size at which latency has stopped to matter, is not tried.
// Neither is one that would lift live memory above the cap, by the memory curve
// of the schedule with the joins so far.
//
// Results of one bucket count until the last use of any, as they would in one
// contiguous buffer, so that a transport that packs needs no more memory.
//
// The curve does not follow waits of collectives that merely shift on their
// stream. So the outcome is evaluated as a whole, and if it breaks the cap or the
// makespan, the buckets that are live where it does are dissolved.

// item is one collective or bucket on its stream.
type item struct {
	members []int32 // start jobs
	slot    int32   // place in the order of the schedule
	dur     float64
	end     float64
	due     float64
	need    int32 // slot of the first job that needs a result, or has to come after the start
	bytes   int64
	result  int64 // bytes of its results
	last    int32 // slot of the last job that uses one, len(order) if it is never freed
	grows   bool
	dead    bool // joined another
}

// joiner holds the state of bucketing one schedule.
type joiner struct {
	p     *problem
	cost  Cost
	limit func(key int32) int64 // largest bucket in bytes
	cap   int64
	any   bool // also joins that the cost model does not favour
	order []int32
	slot  []int32   // job -> place in order
	clock []float64 // place -> milliseconds when the compute stream reaches it
	wait  []int32   // start -> slot of its first wait, len(order) if none
	hold  []int64   // start -> bytes that its wait frees
	of    []*item   // start -> its item
	mem   *rangeMax // live bytes by slot
	old   []float64 // finishes before the join that is being tried
}

// maxReach limits how many places of a stream a join may span, which keeps
// bucketing linear.
const maxReach = 256

// joined is one bucket of a schedule.
type joined struct {
	members []int32 // start jobs
	slot    int32   // place in the order at which the bucket starts
	dur     float64
}

// join returns the buckets for a schedule.
func join(p *problem, s schedule, opts Options, cap int64, limit func(key int32) int64) []joined {
	j := &joiner{p: p, cost: opts.Cost, limit: limit, cap: cap, any: opts.JoinAny, order: s.order}
	streams := j.prepare()
	var out []joined
	for _, items := range streams {
		j.joinLater(items, false)
		j.joinEarlier(items, false)
		j.joinLater(items, true)
		j.joinEarlier(items, true)
		for i := range items {
			if it := &items[i]; !it.dead && (len(it.members) > 1 || p.isBucket(it.members[0])) {
				out = append(out, joined{it.members, it.slot, it.dur})
			}
		}
	}
	return out
}

// prepare computes clocks, due times and the memory curve, and returns the items
// of every stream in issue order.
func (j *joiner) prepare() [][]item {
	p, n := j.p, len(j.order)
	j.slot = make([]int32, n)
	j.clock = make([]float64, n+1)
	end := make([]float64, n)
	free := make([]float64, p.m.Streams)
	now, done := 0.0, 0.0
	live := p.floor()
	curve := make([]int64, n)
	left := make([]int32, len(p.size))
	for s := range left {
		left[s] = int32(len(p.users.At(int32(s))))
	}
	j.wait = make([]int32, n)
	j.hold = make([]int64, n)
	for i, x := range j.order {
		j.slot[x] = int32(i)
		j.clock[i] = now
		switch {
		case p.kind[x] == sim.Start:
			s := p.stream[x]
			now = p.await(x, end, now)
			j.clock[i] = now
			free[s] = max(free[s], now) + p.dur[x]
			end[x] = free[s]
			j.wait[x] = int32(n)
		case p.isWait(x):
			c := p.startOf[x]
			j.wait[c] = min(j.wait[c], int32(i))
		default:
			j.clock[i] = p.await(x, end, now)
			now = j.clock[i] + p.dur[x]
			done = now
		}
		for _, s := range p.alloc.At(x) {
			live += p.size[s]
		}
		curve[i] = live
		for _, s := range p.use.At(x) {
			if left[s]--; left[s] == 0 && !p.pinned[s] {
				live -= p.size[s]
				if p.isWait(x) && p.job[p.m.Owner[s]] != p.startOf[x] {
					j.hold[p.startOf[x]] += p.size[s]
				}
			}
		}
	}
	j.clock[n] = now
	for _, t := range free {
		done = max(done, t)
	}
	j.mem = newRangeMax(n)
	j.mem.set(curve)
	return j.items(end, done)
}

// await returns when job x can begin if the compute stream reaches it at now and
// stands still only for the collectives whose results x reads.
func (p *problem) await(x int32, end []float64, now float64) float64 {
	for _, w := range p.pred.At(x) {
		if p.isWait(w) {
			now = max(now, end[p.startOf[w]])
		}
	}
	return now
}

func (j *joiner) items(end []float64, done float64) [][]item {
	p, n := j.p, len(j.order)
	streams := make([][]item, p.m.Streams)
	grows := p.growing()
	for i, x := range j.order {
		if p.kind[x] != sim.Start {
			continue
		}
		it := item{members: []int32{x}, slot: int32(i), dur: p.dur[x], end: end[x], need: int32(n), bytes: p.bytes(x), grows: grows[x]}
		for _, w := range p.waits.At(x) {
			for _, q := range p.succ.At(w) {
				it.need = min(it.need, j.slot[q])
			}
		}
		it.due = done
		if int(it.need) < n {
			it.due = j.clock[it.need]
		}
		for _, q := range p.succ.At(x) { // an effect that has to come after the start
			if !p.isWait(q) || p.startOf[q] != x {
				it.need = min(it.need, j.slot[q])
			}
		}
		for _, s := range p.alloc.At(x) {
			it.result += p.size[s]
			if p.pinned[s] {
				it.last = int32(n)
			}
			for _, q := range p.users.At(s) {
				it.last = max(it.last, j.slot[q])
			}
		}
		streams[p.stream[x]] = append(streams[p.stream[x]], it)
	}
	j.of = make([]*item, n)
	for _, items := range streams {
		for i := range items {
			j.of[items[i].members[0]] = &items[i]
		}
	}
	return streams
}

// joinLater lets reductions, or all, join a later collective, from the end of the stream.
func (j *joiner) joinLater(items []item, all bool) {
	open := map[int32]int{} // key -> item that others may join; only looked up, never ranged over
	for i := len(items) - 1; i >= 0; i-- {
		it := &items[i]
		k := j.p.key(it.members[0])
		if k < 0 || it.dead || it.grows && !all {
			continue
		}
		if b, ok := open[k]; ok && b-i <= maxReach && it.need > items[b].slot && j.tryJoin(items, i, b) {
			continue
		}
		open[k] = i
	}
}

// joinEarlier lets gathers, or all, join an earlier collective, from the start of the stream.
func (j *joiner) joinEarlier(items []item, all bool) {
	open := map[int32]int{}
	for i := range items {
		it := &items[i]
		k := j.p.key(it.members[0])
		if k < 0 || it.dead || !it.grows && !all {
			continue
		}
		if b, ok := open[k]; ok && i-b <= maxReach && j.ready(it.members) < items[b].slot && j.tryJoin(items, i, b) {
			continue
		}
		open[k] = i
	}
}

// ready returns the last slot of an operand of some starts, -1 if they have none.
func (j *joiner) ready(starts []int32) int32 {
	at := int32(-1)
	for _, x := range starts {
		for _, q := range j.p.pred.At(x) {
			at = max(at, j.slot[q])
			if j.p.isWait(q) { // whose start may have moved back
				at = max(at, j.of[j.p.startOf[q]].slot)
			}
		}
	}
	return at
}

// setNeed notes that what some starts read is needed at a slot.
func (j *joiner) setNeed(starts []int32, slot int32) {
	for _, x := range starts {
		for _, q := range j.p.pred.At(x) {
			if j.p.isWait(q) {
				q = j.p.startOf[q]
			}
			if it := j.of[q]; it != nil {
				it.need = min(it.need, slot)
			}
		}
	}
}

// tryJoin lets item i join item b if nothing becomes late and memory allows, and
// reports whether it did.
func (j *joiner) tryJoin(items []item, i, b int) bool {
	j.p.tick()
	x, y := &items[i], &items[b]
	k := j.p.key(x.members[0])
	bytes := x.bytes + y.bytes
	if bytes > j.limit(k) {
		return false
	}
	dur := j.cost(j.p.m.Keys[k], bytes)
	if sum := x.dur + y.dur; dur >= sum {
		if !j.any {
			return false
		}
		dur = sum
	}
	undo := j.charge(x, y, 1)
	if j.mem.max() > j.cap && undo != 0 {
		j.charge(x, y, -1)
		return false
	}
	saved := *y
	x.dead = true
	y.dur, y.bytes = dur, bytes
	y.due = min(y.due, x.due)
	y.need = min(y.need, x.need)
	y.last = max(y.last, x.last)
	y.result += x.result
	if !j.retime(items, min(i, b), max(i, b)) {
		x.dead = false
		*y = saved
		j.charge(x, y, -1)
		return false
	}
	if y.slot < x.slot {
		j.setNeed(x.members, y.slot)
	}
	for _, c := range x.members {
		j.of[c] = y
	}
	if i < b {
		y.members = append(slices.Clone(x.members), y.members...)
	} else {
		y.members = append(y.members, x.members...)
	}
	return true
}

// charge adds to the memory curve what it costs that x joins y, or with sign -1
// takes it back. It returns the bytes added, 0 if nothing changed.
func (j *joiner) charge(x, y *item, sign int64) int64 {
	total := int64(0)
	last, n := max(x.last, y.last), int32(len(j.order))
	for _, it := range []*item{x, y} {
		if it.last < last {
			j.mem.add(it.last+1, min(last+1, n), sign*it.result)
			total += it.result
		}
	}
	for _, c := range x.members {
		if x.slot > y.slot { // results exist earlier
			res := int64(0)
			for _, s := range j.p.alloc.At(c) {
				res += j.p.size[s]
			}
			j.mem.add(y.slot, x.slot, sign*res)
			total += res
		} else if to := j.landing(y); to > j.wait[c] { // operands exist longer
			j.mem.add(j.wait[c], to, sign*j.hold[c])
			total += j.hold[c]
		}
	}
	return total
}

// landing returns the slot of the wait of an item.
func (j *joiner) landing(y *item) int32 {
	to := int32(0)
	for _, c := range y.members {
		to = max(to, j.wait[c])
	}
	return min(to, int32(len(j.order)))
}

// retime recomputes the finishes on a stream from item lo on. It reports whether
// none is later than both its due time and its finish so far; if one is, it
// restores them. Items up to hi have changed.
func (j *joiner) retime(items []item, lo, hi int) bool {
	j.old = j.old[:0]
	free := 0.0
	for k := lo - 1; k >= 0; k-- {
		if !items[k].dead {
			free = items[k].end
			break
		}
	}
	const eps = 1e-9
	ok := true
	k := lo
	for ; k < len(items); k++ {
		it := &items[k]
		j.old = append(j.old, it.end)
		if it.dead {
			continue
		}
		was := it.end
		free = max(free, j.clock[it.slot]) + it.dur
		it.end = free
		if free > was+eps && free > it.due+eps {
			ok = false
			break
		}
		if k > hi && free <= was {
			break // the rest only gets earlier, or stays
		}
	}
	if ok {
		return true
	}
	for i, end := range j.old {
		items[lo+i].end = end
	}
	return false
}
