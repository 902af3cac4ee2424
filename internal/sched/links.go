package sched

import (
	"cmp"
	"slices"

	"github.com/seed-ee968945/concert/sim"
)

// Groups over the same ranks have streams of their own, but one set of links and copy
// engines. A small collective that compute waits for, issued while a large one of
// another group is under way, takes as long as what is left of that: an all_to_all
// between experts beside a gather of weights took 0.53 ms instead of 0.09 on GPUs. By
// the rules of package sim it does not, so that nothing keeps a gather from being under
// way then.
//
// Here streams that share links are evaluated as if one collective had to end before the
// next begins, in order of issue. Where a wait stalls for a collective that was held up
// by one of another stream, the latter is issued behind it instead, if that makes the
// program faster on average, as evaluated so and in the scenarios of costs that are off, and
// no slower by the costs as given. It takes no memory.

// links says which streams share links: those with the same number. Nil stands for none.
type links []int32

// shared reports whether two streams share links.
func (l links) shared() bool {
	seen := map[int32]bool{} // look-up only
	for _, k := range l {
		if seen[k] {
			return true
		}
		seen[k] = true
	}
	return false
}

// heldUp is a collective that another one of its links delays.
type heldUp struct {
	by, start int32   // jobs
	stall     float64 // of the wait, in milliseconds
}

// held returns the collectives that waits stall for because of another stream's, in
// order of their waits.
func (s *spanner) held(shared links) []heldUp {
	p := s.p
	type busy struct {
		until float64
		by    int32
	}
	line := make([]busy, p.m.Streams)
	by := make([]int32, p.n())
	clear(s.free)
	now := 0.0
	var out []heldUp
	for _, j := range s.jobs {
		switch {
		case p.kind[j] == sim.Start:
			k := p.stream[j]
			l := &line[shared[k]]
			begin := max(s.free[k], now)
			if by[j] = -1; l.until > begin {
				begin, by[j] = l.until, l.by
			}
			if s.dur[j] >= 0 {
				s.free[k] = begin + s.dur[j]
			}
			s.end[j] = s.free[k]
			*l = busy{s.end[j], j}
		case p.isWait(j):
			c := p.startOf[j]
			if x := by[c]; x >= 0 && p.stream[x] != p.stream[c] && s.end[c] > now {
				out = append(out, heldUp{x, c, s.end[c] - now})
			}
			now = max(now, s.end[c])
		default:
			now += s.dur[j]
		}
	}
	return out
}

// mostApart is how many orders are evaluated to keep collectives apart; of large programs
// as many as the budget of jobs has room for.
const mostApart = 64

// apart returns the schedule with collectives of other streams issued behind those that
// they would hold up. The schedule has no buckets.
func (p *problem) apart(b *bucketed, shared links) (*bucketed, error) {
	s := newSpanner(p, b)
	evaluate := func() (given, all float64) {
		s.links = shared
		all = s.span(scenario{1, 1}) + s.span(scenario{1, 1.5})
		s.links = nil
		given = s.span(scenario{1, 1})
		for _, c := range scenarios {
			all += s.span(c) / float64(len(scenarios))
		}
		return given, all
	}
	given, least := evaluate()
	tried := map[[2]int32]bool{} // look-up only
	moved := false
	for range min(mostApart, budget/max(1, p.n())) {
		list := slices.DeleteFunc(s.held(shared), func(h heldUp) bool { return tried[[2]int32{h.by, h.start}] })
		if len(list) == 0 {
			break
		}
		h := slices.MaxFunc(list, func(a, b heldUp) int { return cmp.Compare(a.stall, b.stall) })
		tried[[2]int32{h.by, h.start}] = true
		was := s.jobs
		if s.jobs = p.behind(was, h.by, h.start); s.jobs == nil {
			s.jobs = was
			continue
		}
		if g, all := evaluate(); g <= given*(1+1e-12) && all < least*(1-closeEnough/10) {
			least, moved = all, true
		} else {
			s.jobs = was
		}
	}
	if !moved {
		return b, nil
	}
	out := &bucketed{order: p.expand(s.jobs, nil)}
	var err error
	out.t, err = sim.Evaluate(p.m, out.order, nil)
	return out, err
}

// behind returns an order of jobs with x directly behind y, nil if it must not be.
func (p *problem) behind(jobs []int32, x, y int32) []int32 {
	from, to := slices.Index(jobs, x), slices.Index(jobs, y)
	if from > to {
		return nil
	}
	for _, j := range jobs[from+1 : to+1] {
		if slices.Contains(p.pred.At(j), x) {
			return nil
		}
	}
	out := slices.Clone(jobs)
	copy(out[from:], jobs[from+1:to+1])
	out[to] = x
	return out
}
