package sched

import (
	"cmp"
	"slices"
	"sort"

	"github.com/seed-ee968945/concert/sim"
)

// The scheduler puts starts where their stream becomes free and waits where their
// collective ends, by the costs as given. If a collective takes longer than that, the
// compute stream stands still at its wait, whether or not anything needs the result;
// if it takes less, the stream stays idle until the next start.
//
// A loose schedule has the same order of compute, and of collectives on every stream,
// but waits come before the first job that needs them, and starts where the
// collective before them on their stream begins: so one is always queued behind the
// one that runs. Both only take away reasons to wait, so that no job is later,
// whatever the costs are. What it takes is memory, as operands of collectives are
// held longer and results exist earlier; so it is done as far as the peak of live
// memory stays what it was, counted plainly and as if the results of a bucket were
// one buffer. Where all of a move does not fit, half of it is tried, and so on.

// unit is what moves as one: a job, or the starts or the waits of a bucket.
type unit []int32

// AddSlack returns the order of a model's nodes, the input order with waits moved back and
// starts moved forward as far as live memory stays within a limit, and the timeline of
// the new order. A limit below the peak stands for the peak. Of several limits, in
// ascending order, the first is used that gains about as much as any where costs are
// off; if none gains anything there, the order stays.
//
// Starts go on being raised while their stream would be idle, before others of
// their stream, too, if they fit in between and none of these is waited for earlier. By
// the costs given nothing is later than it was. O(n log n) for each limit.
//
// Streams with the same number in shared, which may be nil, have links in common:
// collectives that no rank waits for yet are issued behind others of these that they
// would hold up (links.go), which may make some later, but not the program. tick is that
// of Options.
func AddSlack(m *sim.Model, tick func(), shared []int32, limits ...int64) ([]int32, *sim.Timeline, error) {
	t, err := sim.Evaluate(m, m.InputOrder(), nil)
	if err != nil {
		return nil, nil, err
	}
	p, best := contract(m, tick), &bucketed{order: m.InputOrder(), t: t}
	input := best
	a := &attempt{costs: &costs{p: p}}
	base := a.spans(input)
	least := float64(len(scenarios))
	for _, limit := range limits {
		x, err := p.addSlackTo(input, limit, true)
		if err != nil {
			return nil, nil, err
		}
		sum := 0.0
		for k, t := range a.spans(x) {
			sum += ratio(t, base[k])
		}
		if sum < least-worth {
			best, least = x, sum
		}
	}
	if links(shared).shared() {
		if best, err = p.apart(best, shared); err != nil {
			return nil, nil, err
		}
	}
	return best.order, best.t, nil
}

// worth is how much makespans have to fall, as fractions and added up over the scenarios, for
// an order to be changed or more memory to be used: the fuller memory is, the harder it
// is to place buffers.
const worth = 0.005

// ratio is a/b, 1 for 0/0.
func ratio(a, b float64) float64 {
	if b == 0 {
		return 1
	}
	return a / b
}

// addSlack returns the schedule with waits moved back and starts moved forward.
func (p *problem) addSlack(b *bucketed) (*bucketed, error) { return p.addSlackTo(b, 0, false) }

// addSlackTo is addSlack under a limit of live memory, if that is more than the peak. With
// ahead, starts that others make room for on their stream move on.
func (p *problem) addSlackTo(b *bucketed, limit int64, ahead bool) (*bucketed, error) {
	l := &slackAdder{p: p, ahead: ahead}
	l.split(p.jobsOf(b.order), p.bucketOf(b.list), len(b.list))
	l.plainLimit, l.packedLimit = max(l.plainLimit, limit), max(l.packedLimit, limit)
	l.sinkWaits()
	l.raiseStarts(b.t)
	jobs, run := l.join()
	out := &bucketed{order: p.expand(jobs, run), list: b.list}
	var err error
	if out.t, err = sim.Evaluate(p.m, out.order, out.list); err != nil {
		return nil, err
	}
	if out.t.Peak > max(b.t.Peak, limit) || out.t.Makespan > b.t.Makespan {
		return b, nil
	}
	return out, nil
}

type slackAdder struct {
	p     *problem
	ahead bool
	of    []int32 // job -> bucket of a start or wait, -1 for none
	units []unit
	at    []int32 // job -> unit
	move  []int32 // unit -> unit before which it goes, itself if it stays

	// Live bytes by unit, as they are and if the results of a bucket are freed together.
	plain, packed           *rangeMax
	plainLimit, packedLimit int64

	lines []line // by stream

	tally  *tally    // buckets of results
	mates  [][]int32 // bucket -> its results
	seen   []int32   // storage, and behind them bucket -> when it was last seen
	moment int32
}

// split cuts an order into units and computes the memory curves by units: the most
// that is live during one.
func (l *slackAdder) split(jobs, of []int32, buckets int) {
	p := l.p
	l.of = of
	l.at = make([]int32, p.n())
	for i := 0; i < len(jobs); {
		k := i + 1
		for j := jobs[i]; of[j] >= 0 && k < len(jobs) && of[jobs[k]] == of[j] && p.kind[jobs[k]] == p.kind[j]; k++ {
		}
		for _, j := range jobs[i:k] {
			l.at[j] = int32(len(l.units))
		}
		l.units = append(l.units, jobs[i:k])
		i = k
	}
	l.move = make([]int32, len(l.units))
	for u := range l.move {
		l.move[u] = int32(u)
	}
	none := make([]int32, p.n())
	for j := range none {
		none[j] = -1
	}
	l.plain, l.plainLimit = l.curve(none, 0)
	l.packed, l.packedLimit = l.curve(of, buckets)
	l.tally = newTally(p, of, buckets)
	l.mates = make([][]int32, buckets)
	l.seen = make([]int32, len(p.size)+buckets)
	for s, b := range l.tally.of {
		if b >= 0 {
			l.mates[b] = append(l.mates[b], int32(s))
		}
	}
}

// curve returns live bytes by unit and their maximum.
func (l *slackAdder) curve(of []int32, buckets int) (*rangeMax, int64) {
	n := newTally(l.p, of, buckets)
	curve := make([]int64, len(l.units))
	for u, jobs := range l.units {
		for _, j := range jobs {
			curve[u] = max(curve[u], n.run(j))
		}
	}
	t := newRangeMax(len(curve))
	t.set(curve)
	return t, max(t.max(), l.p.floor())
}

// span is bytes that are live during units [from, to), as they are and if the results
// of a bucket are freed together.
type span struct {
	from, to int32
	bytes    int64
	packed   bool
}

// add lets bytes live longer if that keeps the peaks, and reports whether it did.
func (l *slackAdder) add(list []span) bool {
	for _, sign := range []int64{1, -1} {
		for _, s := range list {
			t := l.plain
			if s.packed {
				t = l.packed
			}
			t.add(s.from, s.to, sign*s.bytes)
		}
		if l.plain.max() <= l.plainLimit && l.packed.max() <= l.packedLimit {
			return sign == 1
		}
	}
	return false
}

// place returns the unit behind which job j stands after the moves.
func (l *slackAdder) place(j int32) int32 {
	u := l.at[j]
	if l.move[u] > u {
		return l.move[u] - 1
	}
	return u
}

// last returns the place of the last user of a storage outside of unit u, or u if
// none is behind it.
func (l *slackAdder) last(s, u int32) int32 {
	at := u
	for _, q := range l.p.users.At(s) {
		if l.at[q] != u {
			at = max(at, l.place(q))
		}
	}
	return at
}

// holds returns what is live if the waits of unit u move before unit to.
func (l *slackAdder) holds(u, to int32) []span {
	p := l.p
	var out []span
	l.moment++
	for _, w := range l.units[u] {
		for _, s := range p.use.At(w) {
			b := l.tally.of[s]
			if !l.fresh(s) || p.pinned[s] && b < 0 {
				continue
			}
			from := l.last(s, u) + 1
			if from >= to {
				continue
			}
			if !p.pinned[s] {
				out = append(out, span{from, to, p.size[s], false})
			}
			if b < 0 {
				out = append(out, span{from, to, p.size[s], true})
			} else if l.fresh(int32(len(p.size)) + b) {
				for _, mate := range l.mates[b] {
					from = max(from, l.last(mate, u)+1)
				}
				if from < to {
					out = append(out, span{from, to, l.tally.bytes[b], true})
				}
			}
		}
	}
	return out
}

// fresh reports whether i is seen for the first time at this moment.
func (l *slackAdder) fresh(i int32) bool {
	was := l.seen[i]
	l.seen[i] = l.moment
	return was != l.moment
}

// sinkWaits moves waits back, last first, so that one may pass to where a wait that
// needs it went.
func (l *slackAdder) sinkWaits() {
	p, n := l.p, int32(len(l.units))
	for u := n - 1; u >= 0; u-- {
		l.p.tick()
		if !p.isWait(l.units[u][0]) {
			continue
		}
		to := n // unit in front of which the waits have to come
		for _, w := range l.units[u] {
			for _, q := range p.succ.At(w) {
				to = min(to, l.at[q])
			}
		}
		for to > u+1 && !l.add(l.holds(u, to)) {
			to = u + 1 + (to-u-1)/2
		}
		if to > u+1 {
			l.move[u] = to
		}
	}
}

// raiseStarts moves starts forward, first one first.
func (l *slackAdder) raiseStarts(t *sim.Timeline) {
	p := l.p
	floor := make([]int32, p.m.Streams) // first unit in front of which the next start may come
	l.lines = slices.Repeat([]line{{last: -1}}, p.m.Streams)
	for u := range int32(len(l.units)) {
		l.p.tick()
		x := l.units[u][0]
		if p.kind[x] != sim.Start {
			continue
		}
		k := p.stream[x]
		c := raised{unit: u, v: p.node[x], dur: t.End[p.node[x]] - t.Begin[p.node[x]], need: int32(len(l.units))}
		for _, j := range l.units[u] {
			for _, w := range p.waits.At(j) {
				c.need = min(c.need, l.place(w))
			}
			for _, q := range p.pred.At(j) {
				c.from = max(c.from, l.place(q)+1)
			}
			for _, s := range p.alloc.At(j) {
				c.bytes += p.size[s]
			}
		}
		if l.ahead && l.fill(&l.lines[k], c, t) {
			continue
		}
		from, line := max(floor[k], c.from), &l.lines[k]
		to := u
		for to > from && t.Issue[p.node[l.units[to-1][0]]] >= line.begin {
			to--
		}
		for to < u && !l.hold(to, c) {
			to += (u - to + 1) / 2
		}
		l.move[u], floor[k] = to, to
		if to == u {
			floor[k]++
		}
		if l.ahead {
			line.push(c, max(t.Issue[p.node[l.units[to][0]]], line.end))
		} else {
			line.begin = t.Begin[c.v]
		}
	}
}

// raised is a start, or those of a bucket, that is to be moved forward.
type raised struct {
	unit, from int32 // where it is, and the first unit in front of which it may come
	need       int32 // unit that waits for it
	v          int32 // node
	bytes      int64 // of its results
	dur        float64
}

// hold lets the results of a start exist from unit to on, if memory allows.
func (l *slackAdder) hold(to int32, c raised) bool {
	return l.add([]span{{to, c.unit, c.bytes, false}, {to, c.unit, c.bytes, true}})
}

// line is what is known of a stream while its starts move forward.
type line struct {
	begin, end float64 // of the last collective, in milliseconds
	last       int32   // its unit, -1 for none
	gaps       []gap   // in which the stream is idle, in order
}

// gap is a time in which a stream is idle.
type gap struct {
	from, to      float64 // milliseconds
	since         float64 // when the collective before it begins
	behind, ahead int32   // units of the collectives around it; behind is -1 for none
	need          int32   // first unit that waits for a collective behind it
}

// mostGaps is how many gaps of a stream are remembered.
const mostGaps = 32

// push appends a collective that begins at a time.
func (n *line) push(c raised, begin float64) {
	if begin > n.end {
		if n.gaps = append(n.gaps, gap{n.end, begin, n.begin, n.last, c.unit, c.need}); len(n.gaps) > mostGaps {
			n.gaps = n.gaps[1:]
		}
	}
	n.begin, n.end, n.last = begin, begin+c.dur, c.unit
	for i := range n.gaps {
		n.gaps[i].need = min(n.gaps[i].need, c.need)
	}
}

// fill moves a start into a gap of its stream that has room for all of it, before
// collectives none of which is waited for earlier: if this one takes longer than was
// counted on, they are late with less harm.
func (l *slackAdder) fill(n *line, c raised, t *sim.Timeline) bool {
	issue := func(u int32) float64 { return t.Issue[l.p.node[l.units[u][0]]] }
	for i, g := range n.gaps {
		if g.need < c.need {
			continue
		}
		to := c.from
		if b := g.behind; b >= 0 && l.move[b] == b {
			to = max(to, b+1)
		} else if b >= 0 {
			to = max(to, l.move[b])
		}
		high := l.move[g.ahead] // it has to come before this one
		if to >= high || max(g.from, issue(to))+c.dur > g.to {
			continue
		}
		first := to
		to += int32(sort.Search(int(high-1-to), func(k int) bool { return issue(first+int32(k)) >= g.since }))
		for ; to < high && max(g.from, issue(to))+c.dur <= g.to; to += (high - to + 1) / 2 {
			if !l.hold(to, c) {
				continue
			}
			l.move[c.unit] = to
			begin := max(g.from, issue(to))
			rest := g
			rest.from, rest.since, rest.behind = begin+c.dur, begin, c.unit
			g.to, g.ahead, g.need = begin, c.unit, min(g.need, c.need)
			n.gaps = slices.Replace(n.gaps, i, i+1, g, rest)
			n.gaps = slices.DeleteFunc(n.gaps, func(g gap) bool { return g.to <= g.from })
			for k := range n.gaps[:i] {
				n.gaps[k].need = min(n.gaps[k].need, c.need)
			}
			return true
		}
	}
	return false
}

// join returns the order of jobs after the moves, and the bucket of each job. In
// front of a unit come the waits that moved there, then the starts.
func (l *slackAdder) join() (jobs, of []int32) {
	list := make([]int32, len(l.units))
	for u := range list {
		list[u] = int32(u)
	}
	rank := func(u int32) int {
		switch {
		case l.move[u] > u:
			return 0
		case l.move[u] < u:
			return 1
		}
		return 2
	}
	slices.SortStableFunc(list, func(a, b int32) int {
		return cmp.Or(cmp.Compare(l.move[a], l.move[b]), rank(a)-rank(b), cmp.Compare(a, b))
	})
	for _, u := range list {
		jobs = append(jobs, l.units[u]...)
	}
	return jobs, l.of
}
