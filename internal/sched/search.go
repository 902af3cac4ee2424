package sched

import (
	"math"
	"math/rand/v2"
	"slices"

	"github.com/seed-ee968945/concert/sim"
)

// search runs the list scheduler under several policies and keeps the best
// schedule.
//
// No single policy wins. What to vary, in order of effect: the window, which
// trades overlap for memory; how jobs are ranked, by longest path, which favours
// a critical chain, or by the backward schedule, which knows how loaded the
// streams are; and what is kept back to hide the last collectives: by a reserve
// without window, or by a reference order with fillers at its end, or one whose
// end is that of the backward schedule. Windows and reserves are multiples of the
// program's own collectives, so that no machine's milliseconds are built in.
type search struct {
	p      *problem
	ref    []int32
	floor  int64 // peak of ref
	cap    int64
	enough int64   // a peak that needs no improvement
	goal   float64 // a lower bound: nothing can be better
	runs   int     // how many runs are left
	count  int     // how many there have been

	inFlight int64
	light    bool // no random variations

	tails [2][]float64
	noisy []float64 // tails of the last perturbed
	long  float64   // longest collective, milliseconds
	mean  float64   // mean collective, milliseconds

	engines map[[2]float64]*engine // by behind and fill; nil if there is no such reference order
	made    []ran                  // under all caps so far
	best    schedule
	bestKey try
	found   bool
	tried   map[try]bool
}

// try is one policy of the search.
type try struct {
	window  float64 // milliseconds
	reserve float64 // milliseconds
	behind  float64 // what the backward schedule puts last comes last in the reference order; multiples of the longest collective
	fill    float64 // fillers moved to the end of the reference order, in multiples of the longest collective
	tail    int     // 0 longest path, 1 backward schedule
	wait    float64 // patience
	feed    bool
	shake   uint64 // if not 0, seed of a random change of the tails
}

// Below this relative distance from the lower bound the search stops.
const closeEnough = 2e-4

func newSearch(p *problem, ref []int32, floor int64, goal float64) *search {
	s := &search{p: p, ref: ref, floor: floor, goal: goal}
	n := 0
	for j, k := range p.kind {
		if k == sim.Start && p.dur[j] > 0 {
			s.long = max(s.long, p.dur[j])
			s.mean += p.dur[j]
			n++
		}
	}
	s.mean /= float64(max(1, n))
	s.engines = map[[2]float64]*engine{}
	s.tails[0] = p.tails()
	s.tails[1] = p.backward(p.heads())
	return s
}

// under returns the best schedule found within cap with at most runs runs; ok is
// false if there is none.
func (s *search) under(cap int64, runs int) (schedule, bool) {
	s.cap, s.runs, s.found = cap, min(runs, max(leastRuns, jobsTried/max(1, s.p.n()))), false
	s.enough = s.floor + s.floor/50
	s.best = schedule{}
	s.tried = map[try]bool{}
	if s.long == 0 { // nothing to hide
		s.run(try{})
		return s.best, s.found
	}
	for _, k := range []float64{32, 16, 64, 8, 128} {
		s.run(try{window: s.mean * k})
	}
	w := s.bestKey.window
	for _, t := range []try{
		{window: w, tail: 1},
		{window: w, fill: 1.2}, {window: w, fill: 2.5}, {window: w, fill: 1.2, reserve: 16 * s.long},
		{window: w, reserve: 16 * s.long}, {window: w, reserve: 6 * s.long}, {window: w, fill: 1.2, tail: 1}, {window: w, fill: 2.5, tail: 1},
		{window: w, behind: 4, tail: 1}, {window: w, behind: 2}, {window: w, behind: 2, tail: 1},
	} {
		s.run(t)
	}
	t := s.bestKey
	for t.feed = true; s.run(t); t.window *= 2 { // what feeds streams first leaves more to put off
	}
	if t := s.bestKey; t.wait == 0 {
		t.wait = 0.25
		s.run(t)
	}
	for _, f := range []float64{math.Sqrt2, math.Sqrt(0.5), 1.2, 0.83} {
		t := s.bestKey
		t.window *= f
		s.run(t)
	}
	if s.light {
		return s.best, s.found
	}
	if s.p.n() <= smallJobs {
		s.small()
	} else {
		s.refine()
	}
	return s.best, s.found
}

// Programs of up to smallJobs jobs get shakes more runs, larger ones as many as
// make the budget of jobs scheduled. Where the policies that pay on smaller programs would
// schedule more than jobsTried jobs, only the first of them are tried.
const (
	smallJobs = 128
	shakes    = 120
	budget    = 200_000
	maxRefine = 48
	jobsTried = 2 * budget
	leastRuns = 4
)

// small tries random priorities, which is cheap on small programs, where a single
// unlucky decision counts.
func (s *search) small() {
	s.runs += shakes
	for i := range uint64(shakes) {
		t := try{window: s.mean * 128, reserve: math.Inf(1), tail: int(i & 1), wait: float64(i%3) * 0.4, shake: i*7 + 1}
		if i%4 == 3 {
			t.behind = 2
		}
		s.run(t)
	}
}

// refine varies the best policy at random, as often as the budget allows.
func (s *search) refine() {
	extra := min(budget/s.p.n()-20, maxRefine)
	if extra <= 0 {
		return
	}
	s.runs += extra
	r := rand.New(rand.NewPCG(7, 7))
	for i := range uint64(extra) {
		t := s.bestKey
		t.window *= 0.5 + float64(1.5*r.Float64())
		if t.shake = 0; i%2 == 1 {
			t.shake = 1 + i*6 // the smallest spread
		}
		s.run(t)
	}
}

// perturbed returns the tails, each scaled by a random factor. A job's tail may then
// be less than its successor's, which a priority may. They stand where those of the last call did.
func (s *search) perturbed(tail []float64, seed uint64) []float64 {
	r := rand.New(rand.NewPCG(seed, 0))
	spread := 0.1 * float64(seed%6)
	if spread == 0 {
		spread = 0.02
	}
	if s.noisy == nil {
		s.noisy = make([]float64, len(tail))
	}
	out := s.noisy
	for j, t := range tail {
		// The conversions keep compilers from fusing, which would round differently
		// on some machines.
		out[j] = t * (1 + float64(spread*(float64(2*r.Float64())-1)))
	}
	return out
}

// run tries one policy, unless it was tried before, and reports whether it is the best now.
func (s *search) run(t try) bool {
	if s.runs <= 0 || s.tried[t] || s.found && s.best.makespan <= s.goal*(1+closeEnough) && s.best.peak <= s.enough {
		return false
	}
	s.tried[t] = true
	e := s.engine(t)
	if e == nil {
		return false
	}
	s.runs--
	s.count++
	tail := s.tails[t.tail]
	if t.shake != 0 {
		tail = s.perturbed(tail, t.shake)
	}
	if e.rival = nil; s.found {
		e.rival = &s.best
	}
	pol := policy{tail: tail, drawn: t.shake != 0, patience: t.wait, window: t.window, reserve: t.reserve, lead: min(t.window, 4*s.long), feed: t.feed, inFlight: s.inFlight}
	if s.known(e, t, &pol) {
		return false
	}
	out := e.run(pol)
	s.keep(e, t)
	best := s.improves(&out)
	if best {
		s.best, s.bestKey, s.found = out, t, true
	} else if out.order != nil {
		e.spare = out.order
	}
	return best
}

// improves reports whether a schedule under the cap is better than the best so far.
func (s *search) improves(x *schedule) bool {
	return x.peak <= s.cap && (!s.found || x.better(&s.best))
}

// better reports whether a schedule is better than the best so far: clearly
// faster, or about as fast with a lower peak. What is slower or has a higher peak than
// one that is not better is not either, on which giving up relies.
func (s schedule) better(best *schedule) bool {
	a, b := s.makespan, best.makespan
	if a < b*(1-closeEnough) {
		return true
	}
	return a <= b*(1+closeEnough) && (s.peak < best.peak || s.peak == best.peak && a < b)
}

func (s *search) engine(t try) *engine {
	key := [2]float64{t.behind, t.fill}
	e, ok := s.engines[key]
	if !ok {
		ref := s.ref
		if t.behind > 0 {
			ref = s.p.deferred(ref, s.tails[1], t.behind*s.long)
		}
		if t.fill > 0 {
			ref = s.p.fillers(ref, t.fill*s.long)
		}
		e = s.engineOf(ref)
		s.engines[key] = e
	}
	if e == nil || e.lowest > s.cap {
		return nil
	}
	e.cert.limit = s.cap
	return e
}

// engineOf returns the engine with a reference order, nil if that is nil.
func (s *search) engineOf(ref []int32) *engine {
	if ref == nil {
		return nil
	}
	for _, e := range s.engines {
		if e != nil && slices.Equal(e.cert.ref, ref) {
			return e
		}
	}
	e := newEngine(s.p, newCertificate(s.p, ref, s.cap))
	e.lowest = s.p.peak(ref)
	return e
}
