package overlap

import (
	"errors"
	"fmt"
	"math"

	"github.com/seed-ee968945/concert/internal/sched"
	"github.com/seed-ee968945/concert/ir"
	"github.com/seed-ee968945/concert/passes"
	"github.com/seed-ee968945/concert/passes/internal/deps"
	"github.com/seed-ee968945/concert/passes/reuse"
	"github.com/seed-ee968945/concert/sim"
)

// The scheduler counts every result as memory of its own, as the simulator does. What
// reuse-buffers puts in place of an operand later is free then: where the cap keeps
// collectives from being hidden, larger ones are tried, and a schedule under one of them
// is taken if, after reuse, it needs no more than the schedule under the cap or the
// function as it came in. Where none is, the report says what the next useful cap is.

// largerCaps are the larger caps that are tried, as multiples of the cap.
var largerCaps = [...]float64{1.05, 1.1, 1.25, 1.5}

// usefulGain is the part of the makespan that a larger cap has to save to be worth it.
const usefulGain = 0.02

// probes bounds the policies that are tried under each larger cap.
const probes = 6

// raiseCap looks for a faster schedule that needs no more memory after reuse, if reuse says
// that it may, and sets s.next. It takes one short run of the scheduler more where a
// collective is exposed that neither its stream nor its operands keep, and up to five
// where memory is what limits.
func (s *scheduler) raiseCap(r **sched.Result, opts sched.Options, reuse bool) error {
	strict := *r
	if strict.Timeline.Exposed <= usefulGain*strict.Timeline.Makespan || !s.exposedLate(strict.Timeline) {
		return nil
	}
	opts.Runs, opts.ExactStates = probes, -1
	under := func(cap float64) (*sched.Result, error) {
		opts.Cap = int64(min(cap, math.MaxInt64/4))
		return sched.Schedule(s.d.Model, opts)
	}
	free, err := under(math.MaxInt64 / 4)
	if err != nil {
		return err
	}
	better := func(x *sched.Result) bool {
		return x.Timeline.Makespan < (*r).Timeline.Makespan*(1-usefulGain)
	}
	allowed := int64(-1) // not computed yet
	for _, room := range append(largerCaps[:], math.Inf(1)) {
		if !better(free) {
			return nil
		}
		next := free
		if cap := float64(strict.Cap) * room; cap < float64(free.Timeline.Peak) {
			if next, err = under(cap); errors.Is(err, sched.ErrInfeasible) {
				continue
			} else if err != nil {
				return err
			}
		}
		if !better(next) {
			continue
		}
		need := int64(math.MaxInt64)
		if reuse {
			if allowed < 0 {
				if allowed, err = s.allowed(strict); err != nil {
					return err
				}
			}
			if need, err = s.memoryAfterReuse(next); err != nil {
				return err
			}
		}
		if need > allowed {
			s.next = fmt.Sprintf("the next useful cap is %d bytes, for %.4f ms", next.Timeline.Peak, next.Timeline.Makespan)
			return nil
		}
		next.Cap, next.Runs = strict.Cap, next.Runs+(*r).Runs
		*r = next
	}
	return nil
}

// exposedLate reports whether a collective is exposed that could have been issued earlier.
func (s *scheduler) exposedLate(t *sim.Timeline) bool {
	for i := range s.d.Nodes {
		if i := int32(i); s.d.Kind[i] == sim.Start && s.d.Exposed(t, i) > 0 && s.exposedBy(t, i) == passes.LimitSchedule {
			return true
		}
	}
	return false
}

// allowed is the memory that a schedule may need after reuse: the cap, if one was given,
// else what the function as it came in needs, or the schedule under the cap.
func (s *scheduler) allowed(strict *sched.Result) (int64, error) {
	if s.cap > 0 {
		return s.cap, nil
	}
	in, err := s.memoryAfterReuse(&sched.Result{Order: s.d.InputOrder()})
	if err != nil {
		return 0, err
	}
	out, err := s.memoryAfterReuse(strict)
	return max(in, out), err
}

// memoryAfterReuse is the least memory that the buffers of a schedule need after reuse-buffers. It
// writes the schedule into a copy. O(nodes + uses).
func (s *scheduler) memoryAfterReuse(r *sched.Result) (int64, error) {
	f := s.f.Clone()
	c := &scheduler{ctx: s.ctx, f: f, may: s.may}
	var err error
	if c.d, err = deps.AnalyzeWith(f, sim.FuncOptions{Ms: func(*ir.Node) float64 { return 0 }}); err != nil {
		return 0, err
	}
	drop := func(string, float64) {}
	if err := c.write(r, drop); err != nil {
		return 0, err
	}
	_, after, err := reuse.Run(f, &reuse.Reuser{Collectives: true, Launches: true, Dying: true, Enable: func(string) bool { return true }, Count: drop})
	return after, err
}
