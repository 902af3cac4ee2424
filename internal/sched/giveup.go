package sched

import (
	"math"
	"slices"

	"github.com/seed-ee968945/concert/sim"
)

// A run of the list scheduler matters only if its schedule is better than the best so
// far. While it is under way, a lower bound of its makespan and the peak so far only
// rise, and a schedule that takes longer or has a higher peak is never better; so once a
// schedule at the bounds would not be, the run is given up, and nothing the search
// returns is other than if it had gone on.
//
// The bound is the largest of: now and all compute still to come; when a stream is free
// and all that it has still to carry; and for each job that has run, its end and the
// longest path behind it. O(1) for each job and O(streams) for each check.

// rounding makes up for sums that are added in another order than the scheduler's clock
// adds: 2n additions are off by 2n/2^53 at most, as a fraction, less than a fortieth of
// this for a million jobs.
const rounding = 1e-8

// bound is the lower bound of the makespan of a run.
type bound struct {
	p     *problem
	after []float64 // job -> longest path behind its end, in milliseconds

	work  float64   // compute still to come
	load  []float64 // stream -> collectives still to come
	reach float64   // ends of jobs with the paths behind them

	allWork float64 // before the first job
	allLoad []float64
}

// newBound prepares bounds, in linear time.
func newBound(p *problem) *bound {
	b := &bound{p: p, after: make([]float64, p.n()), load: make([]float64, p.m.Streams)}
	path := make([]float64, p.n()) // job -> longest path from its beginning
	for j := int32(p.n()) - 1; j >= 0; j-- {
		rest := 0.0
		for _, q := range p.succ.At(j) {
			if p.kind[j] == sim.Start && !(p.isWait(q) && p.startOf[q] == j) {
				rest = max(rest, path[q]) // comes after its beginning, not its end
			} else {
				b.after[j] = max(b.after[j], path[q])
			}
		}
		path[j] = max(rest, b.after[j]+b.dur(j))
	}
	for j := range b.after {
		b.count(int32(j), 1)
	}
	b.allWork, b.allLoad = b.work, slices.Clone(b.load)
	return b
}

// dur is how long a job takes, to which waits add nothing.
func (b *bound) dur(j int32) float64 {
	if b.p.isWait(j) {
		return 0
	}
	return b.p.dur[j]
}

// reset returns to the state before the first job.
func (b *bound) reset() {
	b.work, b.reach = b.allWork, 0
	copy(b.load, b.allLoad)
}

func (b *bound) count(j int32, sign float64) {
	if b.p.kind[j] == sim.Start {
		b.load[b.p.stream[j]] += float64(sign * b.p.dur[j])
	} else {
		b.work += float64(sign * b.dur(j))
	}
}

// ran counts a job that has run, or been started, and when it ends.
func (b *bound) ran(j int32, end float64) {
	b.count(j, -1)
	b.reach = max(b.reach, end+b.after[j])
}

// makespan returns the bound at a time, given when streams become free.
func (b *bound) makespan(now float64, free []float64) float64 {
	least := max(now+b.work, b.reach)
	for s, load := range b.load {
		least = max(least, free[s]+load)
	}
	return least * (1 - rounding)
}

// dominated reports whether the run can no longer become better than its rival.
func (e *engine) dominated() bool {
	if e.rival == nil {
		return false
	}
	least := schedule{makespan: e.bound.makespan(e.now, e.free), peak: e.cert.peak}
	if least.better(e.rival) {
		return false
	}
	e.least = least
	return true
}

// dominated is what a run returns that is dominated; nothing is worse.
func infeasible() schedule { return schedule{makespan: math.Inf(1)} }
