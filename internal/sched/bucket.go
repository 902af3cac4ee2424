package sched

import (
	"math"
	"slices"

	"github.com/seed-ee968945/concert/sim"
)

// Bucketing joins collectives of one schedule so that fewer, larger ones travel,
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
// stream. So the outcome is judged as a whole, and if it breaks the cap or the
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
		j.late(items, false)
		j.early(items, false)
		j.late(items, true)
		j.early(items, true)
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

// late lets reductions, or all, join a later collective, from the end of the stream.
func (j *joiner) late(items []item, all bool) {
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

// early lets gathers, or all, join an earlier collective, from the start of the stream.
func (j *joiner) early(items []item, all bool) {
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

// hurry notes that what some starts read is needed at a slot.
func (j *joiner) hurry(starts []int32, slot int32) {
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
		j.hurry(x.members, y.slot)
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

// realize returns the order of jobs in which the given buckets start at their
// slots, waits follow as soon as their collective has finished or a job needs it,
// and everything else keeps its place. Where memory would exceed the cap, it waits
// for collectives in flight, as the schedule had to; so it does, unless inFlight is
// 0, where those in flight would carry more bytes than that. run[j] is the bucket of start
// or wait j, -1 for none.
func realize(p *problem, order []int32, buckets []joined, cap, inFlight int64) (out, run []int32) {
	n := len(order)
	run = make([]int32, n)
	for j := range run {
		run[j] = -1
	}
	for b := range buckets {
		for _, c := range buckets[b].members {
			run[c] = int32(b)
			for _, w := range p.waits.At(c) {
				run[w] = int32(b)
			}
		}
	}
	r := realizer{p: p, cap: cap, inFlight: inFlight, live: p.floor(), end: make([]float64, n), waited: make([]bool, n), free: make([]float64, p.m.Streams),
		flying: make([][][]int32, p.m.Streams), out: make([]int32, 0, n), left: make([]int32, len(p.size))}
	for s := range r.left {
		r.left[s] = int32(len(p.users.At(int32(s))))
	}
	for i, x := range order {
		r.land()
		switch {
		case p.kind[x] == sim.Start:
			if b := run[x]; b < 0 {
				r.start(order[i:i+1], p.dur[x])
			} else if buckets[b].slot == int32(i) {
				r.start(buckets[b].members, buckets[b].dur)
			}
		case p.isWait(x):
			// placed when it has finished, or is needed
		default:
			r.await(order[i : i+1])
			r.room(order[i : i+1])
			r.emit(x)
			r.now += p.dur[x]
		}
	}
	r.now = math.Inf(1)
	r.land()
	return r.out, run
}

// realizer replays a schedule.
type realizer struct {
	p      *problem
	cap    int64
	live   int64
	left   []int32 // storage -> users still to come
	now    float64
	end    []float64   // start -> finish
	waited []bool      // wait -> placed
	free   []float64   // stream -> when it is free
	flying [][][]int32 // stream -> starts in flight, those of a bucket together
	out    []int32

	inFlight int64 // limit of air, 0 for none
	air      int64 // bytes that starts in flight carry
}

func (r *realizer) emit(x int32) {
	r.out = append(r.out, x)
	for _, s := range r.p.alloc.At(x) {
		r.live += r.p.size[s]
	}
	for _, s := range r.p.use.At(x) {
		if r.left[s]--; r.left[s] == 0 && !r.p.pinned[s] {
			r.live -= r.p.size[s]
		}
	}
}

// room waits for collectives in flight until what the jobs allocate fits.
func (r *realizer) room(jobs []int32) {
	need := int64(0)
	for _, x := range jobs {
		for _, s := range r.p.alloc.At(x) {
			need += r.p.size[s]
		}
	}
	for r.live+need > r.cap {
		if !r.next() {
			return
		}
	}
}

// next waits for the first collective in flight; it reports whether there is one.
func (r *realizer) next() bool {
	next := math.Inf(1)
	for s := range r.flying {
		if f := r.flying[s]; len(f) > 0 {
			next = min(next, r.end[f[0][0]])
		}
	}
	if math.IsInf(next, 1) {
		return false
	}
	r.now = max(r.now, next)
	r.land()
	return true
}

// bytes is what starts carry together.
func (r *realizer) bytes(starts []int32) int64 {
	n := int64(0)
	for _, c := range starts {
		n += r.p.bytes(c)
	}
	return n
}

// await lets the collectives finish whose results the jobs read.
func (r *realizer) await(jobs []int32) {
	for _, x := range jobs {
		for _, w := range r.p.pred.At(x) {
			if r.p.isWait(w) && !r.waited[w] {
				r.now = max(r.now, r.end[r.p.startOf[w]])
				r.land()
			}
		}
	}
}

func (r *realizer) start(members []int32, dur float64) {
	r.await(members)
	r.room(members)
	bytes := r.bytes(members)
	for r.inFlight > 0 && r.air > 0 && r.air+bytes > r.inFlight && r.next() {
	}
	r.air += bytes
	s := r.p.stream[members[0]]
	r.free[s] = max(r.free[s], r.now) + dur
	for _, c := range members {
		r.end[c] = r.free[s]
		r.emit(c)
	}
	r.flying[s] = append(r.flying[s], members)
}

// land places the waits of what has finished.
func (r *realizer) land() {
	for s, f := range r.flying {
		for len(f) > 0 && r.end[f[0][0]] <= r.now {
			for _, c := range f[0] {
				for _, w := range r.p.waits.At(c) {
					r.waited[w] = true
					r.emit(w)
				}
			}
			r.air -= r.bytes(f[0])
			f = f[1:]
		}
		r.flying[s] = f
	}
}
