package sched

import (
	"math"
	"slices"

	"github.com/seed-ee968945/concert/sim"
)

// Buckets that are decided, put into a schedule: the order of jobs follows from replaying
// it with them in place.

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
	r := realizer{p: p, cap: cap, inFlight: inFlight, live: p.floor(), end: make([]float64, n), placed: make([]bool, n), free: make([]float64, p.m.Streams),
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
			r.await(x)
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
	placed []bool      // job -> it is in out
	held   []int32     // waits that have finished and are not
	free   []float64   // stream -> when it is free
	flying [][][]int32 // stream -> starts in flight, those of a bucket together
	out    []int32

	inFlight int64 // limit of air, 0 for none
	air      int64 // bytes that starts in flight carry
}

func (r *realizer) emit(x int32) {
	r.out, r.placed[x] = append(r.out, x), true
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

// await lets the collectives finish behind whose waits job x stands.
func (r *realizer) await(x int32) {
	for _, w := range r.p.pred.At(x) {
		if r.p.isWait(w) && !r.placed[w] {
			r.await(w)
			r.now = max(r.now, r.end[r.p.startOf[w]])
			r.land()
		}
	}
}

func (r *realizer) start(members []int32, dur float64) {
	for _, c := range members {
		r.await(c)
	}
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

// land places the waits of what has finished, each as soon as what it has to stand
// behind is placed.
func (r *realizer) land() {
	for s, f := range r.flying {
		for len(f) > 0 && r.end[f[0][0]] <= r.now {
			for _, c := range f[0] {
				r.held = append(r.held, r.p.waits.At(c)...)
			}
			r.air -= r.bytes(f[0])
			f = f[1:]
		}
		r.flying[s] = f
	}
	for n := -1; n != len(r.held); {
		n = len(r.held)
		r.held = slices.DeleteFunc(r.held, func(w int32) bool {
			if slices.ContainsFunc(r.p.pred.At(w), func(q int32) bool { return !r.placed[q] }) {
				return false
			}
			r.emit(w)
			return true
		})
	}
}
