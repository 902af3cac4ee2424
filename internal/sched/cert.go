package sched

import (
	"cmp"
	"slices"

	"github.com/seed-ee968945/concert/sim"
)

// A certificate answers, at every point of the construction of an order, whether
// running a job now leaves a way to finish under a memory cap.
//
// It holds a reference order whose peak is under the cap. The way to finish is
// always the same: the jobs that have not run yet, in reference order. For each
// such job the certificate keeps the live memory that will be sampled when its
// turn comes; the invariant is that all of these stay at or below the cap.
//
// Running job x ahead of its turn changes only samples of jobs before x in
// reference order: what x allocates is now live there too, and a storage whose
// last remaining user was x is freed earlier, at the last user that then remains.
// Both are additions to ranges, so that a segment tree with range addition and
// maxima of ranges decides in O(log n) per storage. The first job that remains
// is always allowed, so construction never gets stuck.
//
// A job that is delayed needs no bookkeeping of its own: delaying x is the same as
// running others ahead of it, and those pay for what they allocate while x, still
// to come, holds its operands.
type certificate struct {
	p     *problem
	limit int64
	ref   []int32         // reference order of jobs
	pos   []int32         // job -> position in ref
	done  []bool          // by position
	head  int32           // first position not done
	work  []float64       // position -> milliseconds of compute before it in reference order
	live  int64           // bytes live now
	peak  int64           // largest sample so far
	seen  interval[int64] // limits with which all answers would be the same

	users []int32 // storage -> positions of its users, ascending, with the offsets of p.users
	left  []int32 // storage -> number of leading users among which the last remaining one is the last

	top  int32     // position of the largest sample, -1 if it is to be found
	tree *rangeMax // samples by position; of jobs that have run, far below zero
	init []int64   // what the tree holds before the first job
	uses []int32   // and left

	freed []freed // see frees
}

// freed is bytes that are free from a position on, up to the job that is asked about.
type freed struct {
	from  int32
	bytes int64
}

// newCertificate prepares a reference order, in linear time. Its peak may exceed
// limit; then what is allowed is to not raise samples that are above it.
func newCertificate(p *problem, ref []int32, limit int64) *certificate {
	n := p.n()
	c := &certificate{p: p, limit: limit, ref: ref, pos: make([]int32, n), done: make([]bool, n)}
	for i, j := range ref {
		c.pos[j] = int32(i)
	}
	c.users = make([]int32, len(p.users.Val))
	c.left = make([]int32, len(p.size))
	for i, j := range ref {
		for _, s := range p.use.At(j) {
			c.users[p.users.Off[s]+c.left[s]] = int32(i)
			c.left[s]++
		}
	}
	c.tree = newRangeMax(n)
	c.work = make([]float64, n+1)
	for i, j := range ref {
		c.work[i+1] = c.work[i]
		if p.kind[j] == sim.Compute {
			c.work[i+1] += p.dur[j]
		}
	}
	c.tree.set(c.samples())
	c.init, c.uses = slices.Clone(c.tree.top), slices.Clone(c.left)
	c.reset()
	return c
}

// samples computes the memory curve of the reference order.
func (c *certificate) samples() []int64 {
	p := c.p
	live := p.floor()
	v := make([]int64, len(c.ref))
	seen := make([]int32, len(p.size))
	for i, j := range c.ref {
		for _, s := range p.alloc.At(j) {
			live += p.size[s]
		}
		v[i] = live
		for _, s := range p.use.At(j) {
			if seen[s]++; int(seen[s]) == len(p.users.At(s)) && !p.pinned[s] {
				live -= p.size[s]
			}
		}
	}
	return v
}

// reset returns to the state before the first job.
func (c *certificate) reset() {
	clear(c.done)
	copy(c.left, c.uses)
	c.head, c.top = 0, -1
	c.live = c.p.floor()
	c.peak = c.live
	c.seen = anyCap()
	clear(c.tree.lazy)
	copy(c.tree.top, c.init)
}

// others returns how many leading users of s remain but for the last, and the position
// behind that of the last of them.
func (c *certificate) others(s int32) (left, behind int32) {
	off := c.p.users.Off[s]
	for k := c.left[s] - 1; k > 0; k-- {
		if at := c.users[off+k-1]; !c.done[at] {
			return k, at + 1
		}
	}
	return 0, 0
}

// isLast reports whether the last user of s that remains is at a position.
func (c *certificate) isLast(s, at int32) bool { return c.users[c.p.users.Off[s]+c.left[s]-1] == at }

// frees lists in c.freed what is freed before x, if x runs now. What x creates and nobody
// reads was never in the samples of others.
func (c *certificate) frees(x int32) {
	at := c.pos[x]
	c.freed = c.freed[:0]
	for _, s := range c.p.held.At(x) {
		if c.isLast(s, at) {
			if _, from := c.others(s); max(from, c.head) < at {
				c.freed = append(c.freed, freed{max(from, c.head), c.p.size[s]})
			}
		}
	}
}

// allows reports whether running x now keeps the way to finish under the cap.
func (c *certificate) allows(x int32) bool {
	if c.pos[x] == c.head {
		return true
	}
	if !c.fits(c.live + c.p.total[x]) {
		return false
	}
	kept := c.p.kept[x]
	if kept == 0 {
		return true
	}
	if top := c.tree.max() + kept; top <= c.limit {
		c.seen.reached(top)
		return true
	}
	// Samples that what x frees makes up for stay under the limit, as do those behind x. The
	// largest one decides most often.
	c.frees(x)
	if c.top < 0 {
		c.top = c.tree.argmax()
	}
	if c.top < c.pos[x] {
		more := kept
		for _, f := range c.freed {
			if f.from <= c.top {
				more -= f.bytes
			}
		}
		if !c.fits(c.tree.max() + more) {
			return false
		}
	}
	slices.SortFunc(c.freed, func(a, b freed) int { return cmp.Compare(a.from, b.from) })
	from := c.head
	for _, f := range c.freed {
		if from < f.from && !c.fits(c.tree.maxOf(from, f.from)+kept) {
			return false
		}
		if from, kept = f.from, kept-f.bytes; kept <= 0 {
			return true
		}
	}
	return c.fits(c.tree.maxOf(from, c.pos[x]) + kept)
}

// fits reports whether a sample may rise to so many bytes: to the limit, or to the largest
// there is.
func (c *certificate) fits(bytes int64) bool {
	switch {
	case bytes <= c.tree.max():
	case bytes <= c.limit:
		c.seen.reached(bytes)
	default:
		c.seen.exceeded(bytes)
		return false
	}
	return true
}

// run records that x runs now.
func (c *certificate) run(x int32) {
	p, at := c.p, c.pos[x]
	kept := p.kept[x]
	c.live += p.total[x]
	c.peak = max(c.peak, c.live)
	c.live -= p.total[x] - kept
	for _, s := range p.held.At(x) {
		if !c.isLast(s, at) {
			continue
		}
		left, from := c.others(s)
		if c.left[s] = left; left == 0 {
			c.live -= p.size[s]
		}
		if from <= c.head {
			kept -= p.size[s] // most often so much that nothing is left to add
		} else {
			c.tree.stage(from, at, -p.size[s])
		}
	}
	c.tree.stage(c.head, at, kept)
	c.tree.stage(at, at+1, -gone)
	c.tree.commit()
	c.top = -1
	c.done[at] = true
	for int(c.head) < len(c.ref) && c.done[c.head] {
		c.head++
	}
}
