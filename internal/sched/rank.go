package sched

import "math"

// ranking is the jobs in order of priority, by the tails that begin at a place.
type ranking struct {
	tail         *float64
	byRank, rank []int32
}

func newRanking(n int, tail *float64) ranking {
	return ranking{tail, make([]int32, n), make([]int32, n)}
}

// rankJobs orders all jobs by priority: larger tail first, then reference order.
func (e *engine) rankJobs() {
	n := e.p.n()
	if n == 0 {
		return
	}
	tail := e.pol.tail
	for i := range e.ranked {
		if r := &e.ranked[i]; r.tail == &tail[0] && !e.pol.drawn { // these are not changed once they have been used
			e.byRank, e.rank = r.byRank, r.rank
			return
		}
	}
	switch {
	case !e.pol.drawn:
		e.ranked = append(e.ranked, newRanking(n, &tail[0]))
		e.byRank, e.rank = e.ranked[len(e.ranked)-1].byRank, e.ranked[len(e.ranked)-1].rank
	case e.drawn.rank == nil:
		e.drawn = newRanking(n, nil)
		fallthrough
	default:
		e.byRank, e.rank = e.drawn.byRank, e.drawn.rank
	}
	for r, x := range e.sorted(tail) {
		e.byRank[r], e.rank[x.job] = x.job, int32(r)
	}
}

// rankKey is a job with a number that is the smaller the earlier it goes.
type rankKey struct {
	key uint64
	job int32
}

// sorted sorts jobs by their tails, those with equal ones in the reference order.
func (e *engine) sorted(tail []float64) []rankKey {
	const few = 128 // jobs whose digits take longer to count than the jobs to insert
	n := e.p.n()
	if e.keys[0] == nil {
		e.keys = [2][]rankKey{make([]rankKey, n), make([]rankKey, n)}
	}
	if n > few {
		return e.byDigits(tail)
	}
	keys := e.keys[0]
	for at, j := range e.cert.ref {
		k := descending(tail[j])
		for ; at > 0 && keys[at-1].key > k; at-- {
			keys[at] = keys[at-1]
		}
		keys[at] = rankKey{k, j}
	}
	return keys
}

// byDigits sorts many jobs by the bits of their tails, digit by digit, from the reference order.
func (e *engine) byDigits(tail []float64) []rankKey {
	const width, digits = 11, 6
	n := e.p.n()
	from, to := e.keys[0], e.keys[1]
	var count [digits][1 << width]int32
	for at, j := range e.cert.ref {
		k := descending(tail[j])
		from[at] = rankKey{k, j}
		for d := range digits {
			count[d][k>>(width*d)&(1<<width-1)]++
		}
	}
	for d := range digits {
		c, shift := &count[d], width*d
		if c[from[0].key>>shift&(1<<width-1)] == int32(n) {
			continue // one digit in all keys
		}
		sum := int32(0)
		for i, k := range c {
			c[i], sum = sum, sum+k
		}
		for _, x := range from {
			i := x.key >> shift & (1<<width - 1)
			to[c[i]] = x
			c[i]++
		}
		from, to = to, from
	}
	return from
}

// descending maps numbers to ones in the opposite order, 0 and -0 to one.
func descending(x float64) uint64 {
	b := math.Float64bits(x + 0)
	if b>>63 == 0 {
		return ^b &^ (1 << 63)
	}
	return b
}
