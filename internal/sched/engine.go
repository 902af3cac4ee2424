package sched

import (
	"math"

	"github.com/seed-ee968945/concert/internal/heap"
	"github.com/seed-ee968945/concert/sim"
)

// policy is what one run of the list scheduler follows.
type policy struct {
	tail  []float64 // job -> how long before the end it should begin; larger goes first
	drawn bool      // tail is drawn at random, in a place where others stood

	// window is how many milliseconds of compute, counted in reference order, a job
	// may run ahead of the oldest job that has not run. It bounds by how much work,
	// and so by how much memory, any job can be deferred.
	window float64

	// reserve is how many milliseconds of compute at the end are exempt from the
	// window: there, deferred jobs hide the last collectives.
	reserve float64

	// lead is how many milliseconds beyond the window a collective that raises live
	// memory may start. Starting it earlier would hide nothing more and take memory
	// from jobs that could hide something.
	lead float64

	// patience lets the compute stream idle for a collective that ends before this
	// fraction of the job that would run instead has passed, if what waits for the
	// collective has the larger tail.
	patience float64

	// feed lets a job go first that runs for one start alone if that start's stream
	// would else fall idle: reductions then begin early, and less is left to reduce
	// when computation ends.
	feed bool

	inFlight int64 // limit on the bytes of collectives in flight, 0 for none
}

// schedule is one order of jobs.
type schedule struct {
	order    []int32
	makespan float64
	peak     int64
}

// tries is how many ready jobs, best first, are tested against the memory cap
// before the scheduler turns to the reference order.
const tries = 12

// engine runs a list scheduler forward in simulated time.
type engine struct {
	p    *problem
	cert *certificate
	pol  policy

	rival  *schedule // a run is given up that cannot be better than this one; nil for none
	bound  *bound
	least  schedule // makespan and peak of the last run; if it was given up, bounds of them
	seen   limits   // with which it would have been the same
	lowest int64    // peak of the reference order

	out     schedule
	spare   []int32 // where the next run may put its order, nil for nowhere
	preds   []int32 // job -> how many predecessors it has
	blocked []int32 // of which so many have not run
	issued  []bool
	landed  []bool    // wait -> its collective has finished
	rank    []int32   // job -> place by priority
	byRank  []int32   // its inverse
	ranked  []ranking // by the tails of earlier runs
	drawn   ranking   // by tails drawn at random, and what sorts them
	keys    [2][]rankKey
	best    heap.Queue  // ready compute jobs inside the window, by priority; also holds ones that have run
	first   heap.Queue  // the same, by reference position
	unfiled []int32     // positions that first has not been given yet: it is rarely asked
	later   heap.Ints   // ready compute jobs outside the window, by reference position
	starts  []heap.Ints // stream -> ready starts that may run, by priority
	future  []heap.Ints // stream -> ready starts that raise memory and are outside window and lead
	front   int32       // first reference position of a compute job that has not run
	flying  []flights   // stream -> what it carries, first what ends first
	free    []float64   // stream -> milliseconds when it becomes free
	air     int64       // bytes in flight
	now     float64
	grows   []bool // start -> its results outweigh what its wait frees
	aside   []int32

	into []int32     // job -> start that it runs for alone, -1 if there is none
	food []heap.Ints // stream -> ready compute jobs inside the window that run for one of its starts alone, by priority; also holds ones that have run
}

type flight struct {
	end   float64
	bytes int64
	waits []int32
}

// flights is a queue.
type flights struct {
	all  []flight
	head int
}

func (f *flights) clear()         { f.all, f.head = f.all[:0], 0 }
func (f *flights) empty() bool    { return f.head == len(f.all) }
func (f *flights) first() *flight { return &f.all[f.head] }

func newEngine(p *problem, cert *certificate) *engine {
	n, streams := p.n(), p.m.Streams
	e := &engine{p: p, cert: cert, bound: newBound(p)}
	e.grows = p.growing()
	e.into, _ = p.private()
	e.preds, e.blocked = make([]int32, n), make([]int32, n)
	for j := range e.preds {
		e.preds[j] = int32(len(p.pred.At(int32(j))))
	}
	e.issued, e.landed = make([]bool, n), make([]bool, n)
	e.starts, e.food, e.future = make([]heap.Ints, streams), make([]heap.Ints, streams), make([]heap.Ints, streams)
	e.flying, e.free = make([]flights, streams), make([]float64, streams)
	return e
}

// reset returns to the state before the first job.
func (e *engine) reset() {
	e.cert.reset()
	e.bound.reset()
	e.seen = anyLimits()
	if e.spare == nil {
		e.spare = make([]int32, 0, e.p.n())
	}
	e.out, e.spare = schedule{order: e.spare[:0]}, nil
	copy(e.blocked, e.preds)
	clear(e.issued)
	clear(e.landed)
	e.best.Clear()
	e.first.Clear()
	e.unfiled = e.unfiled[:0]
	e.later = e.later[:0]
	for s := range e.starts {
		e.starts[s], e.food[s], e.future[s] = e.starts[s][:0], e.food[s][:0], e.future[s][:0]
		e.flying[s].clear()
	}
	clear(e.free)
	e.front, e.now, e.air = 0, 0, 0
}

// run schedules the whole program under a policy, in O(n log n), unless it is given up
// (giveup.go).
func (e *engine) run(pol policy) schedule {
	p := e.p
	n := p.n()
	e.pol = pol
	e.reset()
	e.rankJobs()
	e.advance()
	for j := int32(0); int(j) < n; j++ {
		if e.blocked[j] == 0 {
			e.ready(j)
		}
	}
	for steps := 0; len(e.out.order) < n; steps++ {
		if steps&255 == 0 {
			p.tick()
		}
		e.land()
		c := e.pick()
		d := 0.0
		if c >= 0 {
			d = p.dur[c]
		}
		if e.issue(d) {
			continue // memory and readiness have changed
		}
		if c >= 0 && e.pol.patience > 0 {
			if t, ok := e.soon(c); ok {
				e.now = t
				continue
			}
		}
		if c >= 0 {
			e.emit(c)
			e.now += d
			e.bound.ran(c, e.now)
			if e.dominated() {
				e.spare = e.out.order
				return infeasible()
			}
			continue
		}
		if len(e.out.order) < n {
			e.block()
		}
	}
	e.out.makespan = e.now
	for _, f := range e.free {
		e.out.makespan = max(e.out.makespan, f)
	}
	e.out.peak = e.cert.peak
	e.least = schedule{makespan: e.out.makespan, peak: e.out.peak}
	return e.out
}

// ready files a job whose predecessors have all run.
func (e *engine) ready(j int32) {
	switch {
	case e.p.kind[j] == sim.Start:
		if s := e.p.stream[j]; e.grows[j] && !e.ahead(j) {
			e.future[s].Push(e.cert.pos[j])
		} else {
			e.starts[s].Push(e.rank[j])
		}
	case e.p.isWait(j):
		if e.landed[j] {
			e.emit(j)
		}
	case e.within(j):
		e.offer(j)
	default:
		e.later.Push(e.cert.pos[j])
	}
}

// offer files a ready compute job inside the window.
func (e *engine) offer(j int32) {
	e.best.Push(e.rank[j])
	e.unfiled = append(e.unfiled, e.cert.pos[j])
	if c := e.into[j]; e.pol.feed && c >= 0 {
		e.food[e.p.stream[c]].Push(e.rank[j])
	}
}

// idleFeeder returns a job that feeds a stream which has nothing to do when the job ends,
// -1 if there is none or memory does not allow it.
func (e *engine) idleFeeder() int32 {
	for s := range e.food {
		if len(e.starts[s]) > 0 {
			continue
		}
		for len(e.food[s]) > 0 && e.issued[e.byRank[e.food[s][0]]] {
			e.food[s].Pop()
		}
		if len(e.food[s]) == 0 {
			continue
		}
		if j := e.byRank[e.food[s][0]]; e.free[s] <= e.now+e.p.dur[j] && e.cert.allows(j) {
			return j
		}
	}
	return -1
}

// advance moves the front, and with it the window.
func (e *engine) advance() {
	c := e.cert
	n := int32(len(c.ref))
	old := e.front
	for e.front < n && (c.done[e.front] || e.p.kind[c.ref[e.front]] != sim.Compute) {
		e.front++
	}
	if e.front == old {
		return
	}
	for len(e.later) > 0 && e.within(c.ref[e.later[0]]) {
		e.offer(c.ref[e.later.Pop()])
	}
	for s := range e.future {
		for len(e.future[s]) > 0 && e.ahead(c.ref[e.future[s][0]]) {
			e.starts[s].Push(e.rank[c.ref[e.future[s].Pop()]])
		}
	}
}

// emit appends job j to the order.
func (e *engine) emit(j int32) {
	e.cert.run(j)
	e.issued[j] = true
	e.out.order = append(e.out.order, j)
	for _, q := range e.p.succ.At(j) {
		if e.blocked[q]--; e.blocked[q] == 0 {
			e.ready(q)
		}
	}
	e.advance()
}

// land emits the waits of all collectives that have finished, but for those that have
// to come after a job that has not run.
func (e *engine) land() {
	for s := range e.flying {
		for q := &e.flying[s]; !q.empty() && q.first().end <= e.now; q.head++ {
			e.air -= q.first().bytes
			for _, w := range q.first().waits {
				if e.landed[w] = true; e.blocked[w] == 0 {
					e.emit(w)
				}
			}
		}
	}
}

// pick returns the ready compute job to run next, -1 if memory allows none.
func (e *engine) pick() int32 {
	if e.pol.feed {
		if j := e.idleFeeder(); j >= 0 {
			return j
		}
	}
	ran := func(r int32) bool { return e.issued[e.byRank[r]] }
	if r := e.best.Scan(tries, ran, func(r int32) bool { return e.cert.allows(e.byRank[r]) }); r >= 0 {
		return e.byRank[r]
	}
	ran = func(at int32) bool { return e.issued[e.cert.ref[at]] }
	for _, at := range e.unfiled {
		if !ran(at) {
			e.first.Push(at)
		}
	}
	e.unfiled = e.unfiled[:0]
	if at := e.first.Scan(tries, ran, func(at int32) bool { return e.cert.allows(e.cert.ref[at]) }); at >= 0 {
		return e.cert.ref[at]
	}
	return -1
}

// within reports whether job j is in the window.
func (e *engine) within(j int32) bool { return e.near(j, e.pol.window, &e.seen.window) }

// ahead reports whether start j is in the window or at most the lead before it.
func (e *engine) ahead(j int32) bool { return e.near(j, e.pol.window+e.pol.lead, &e.seen.ahead) }

// near reports whether job j is at most the given milliseconds of compute ahead
// of the oldest job that has not run, or no more than the reserve is left.
func (e *engine) near(j int32, ms float64, seen *interval[float64]) bool {
	w := e.cert.work
	at := w[e.front]
	ahead, left := w[e.cert.pos[j]]-at, w[len(w)-1]-at
	switch {
	case ahead <= ms:
		seen.reached(ahead)
	case left <= e.pol.reserve:
		e.seen.reserve.reached(left)
	default:
		seen.exceeded(ahead)
		e.seen.reserve.exceeded(left)
		return false
	}
	return true
}

// issue starts collectives on streams that are free or become free within the
// next d milliseconds. It whether it started any.
func (e *engine) issue(d float64) bool {
	any := false
	for s := range e.starts {
		h := &e.starts[s]
		e.aside = e.aside[:0]
		for len(e.aside) < tries && len(*h) > 0 && (e.free[s] <= e.now || e.free[s] < e.now+d) {
			r := h.Pop()
			j := e.byRank[r]
			if e.issued[j] {
				continue
			}
			if b := e.p.bytes(j); e.pol.inFlight > 0 && e.air > 0 && e.air+b > e.pol.inFlight || !e.cert.allows(j) {
				e.aside = append(e.aside, r)
				continue
			}
			e.start(j)
			any = true
		}
		for _, r := range e.aside {
			h.Push(r)
		}
	}
	return any
}

// start issues collective j and, if the policy says so, the ones that queue
// behind it and can be bucketed with it.
func (e *engine) start(j int32) {
	p := e.p
	s := p.stream[j]
	dur := p.dur[j]
	e.emit(j)
	f := flight{waits: p.waits.At(j), bytes: p.bytes(j)}
	e.air += f.bytes
	f.end = max(e.now, e.free[s]) + dur
	e.free[s] = f.end
	e.bound.ran(j, f.end)
	e.flying[s].all = append(e.flying[s].all, f)
}

// soon returns when a collective ends for which job c had better not run.
func (e *engine) soon(c int32) (float64, bool) {
	limit := e.now + float64(e.pol.patience*e.p.dur[c]) // not fused: the same on every machine
	at := math.Inf(1)
	for s := range e.flying {
		q := &e.flying[s]
		if q.empty() || q.first().end > limit || q.first().end >= at {
			continue
		}
		for _, w := range q.first().waits {
			if e.pol.tail[w] > e.pol.tail[c] {
				at = q.first().end
			}
		}
	}
	return at, at <= limit
}

// block advances time when nothing can run: to the first collective that
// finishes, or by forcing the first job of the reference order.
func (e *engine) block() {
	if j := e.cert.ref[e.cert.head]; e.p.kind[j] == sim.Start && e.blocked[j] == 0 {
		e.start(j)
		return
	}
	next := math.Inf(1)
	for s := range e.flying {
		if q := &e.flying[s]; !q.empty() {
			next = min(next, q.first().end)
		}
	}
	e.now = next
}
