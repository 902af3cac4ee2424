package sched

import (
	"fmt"
	"slices"
	"sort"

	"github.com/seed-ee968945/concert/sim"
)

// Limit says what keeps a collective from being hidden better.
type Limit uint8

// The limits.
const (
	LimitNone        Limit = iota // fully hidden, nothing to gain
	LimitData                     // starts as soon as its operands exist, and a job needs it at once
	LimitOrder                    // its stream is busy with an earlier collective
	LimitMemory                   // starting earlier would lift live memory above the cap
	LimitPriority                 // it could start earlier; other work had a higher priority
	LimitEnd                      // nothing is left to overlap it with
	LimitSynchronous              // needed before any other compute can run
)

var limitNames = [...]string{"fully hidden", "data dependence", "collective order", "memory", "priority", "end of program", "nothing independent"}

// String returns the words that reports print.
func (l Limit) String() string {
	if int(l) < len(limitNames) {
		return limitNames[l]
	}
	return fmt.Sprintf("limit(%d)", uint8(l))
}

// Hider is a compute node that runs while a collective is in flight.
type Hider struct {
	Node int32
	Ms   float64 // how much of it
}

// Comm explains one collective, or one bucket, of a schedule. Times are in
// milliseconds.
type Comm struct {
	Starts  []int32 // the start, or the members of the bucket
	Wait    int32   // its first wait, -1 if there is none
	Bucket  int     // index in Result.Buckets, -1 for none
	Dur     float64
	Issue   float64 // when the compute stream reaches it
	Begin   float64 // when its stream takes it up
	End     float64
	Exposed float64 // how long the compute stream stands still for it
	Before  float64 // the same in the input order, added over members

	Hidden  float64 // how much of it compute covers
	Hiders  []Hider // the largest few, largest first
	HiderNo int     // how many there are

	Limit     Limit
	LimitNode int32 // the operand, collective or node that limits it, -1 if none
	LimitPeak int64 // LimitMemory: bytes that live memory would reach
	Moved     int   // by how many places its first start moved towards the front, negative if towards the end
}

// String returns one line of a report.
func (c *Comm) String() string {
	s := fmt.Sprintf("%.3f ms, exposed %.3f (was %.3f): %v", c.Dur, c.Exposed, c.Before, c.Limit)
	switch c.Limit {
	case LimitData, LimitOrder, LimitSynchronous:
		s += fmt.Sprintf(" on node %d", c.LimitNode)
	case LimitMemory:
		s += fmt.Sprintf(": new peak %d bytes", c.LimitPeak)
	}
	return s
}

// maxHiders is how many hiders a Comm lists.
const maxHiders = 4

// Explain says for every collective of a result what hides it, how long it is
// exposed and why it could not move further. The list is in issue order. It takes
// O(n log n) time, plus, per exposed collective, the places that it could move.
func (r *Result) Explain(m *sim.Model) []Comm {
	x := &explainer{m: m, r: r, pos: make([]int32, len(r.Order)), bucketOf: make([]int32, len(r.Order))}
	for i, v := range r.Order {
		x.pos[v] = int32(i)
		x.bucketOf[v] = -1
		if m.Kind[v] == sim.Compute && m.Dur[v] > 0 {
			x.compute = append(x.compute, v)
		}
	}
	for b := range r.Buckets {
		for _, s := range r.Buckets[b].Members {
			x.bucketOf[s] = int32(b)
		}
	}
	last := make([]int32, m.Streams) // last collective of each stream
	for i := range last {
		last[i] = -1
	}
	var out []Comm
	for i, v := range r.Order {
		if m.Kind[v] != sim.Start {
			continue
		}
		c := Comm{Starts: []int32{v}, Bucket: -1, Wait: -1, LimitNode: -1}
		if b := x.bucketOf[v]; b >= 0 {
			if i > 0 && x.bucketOf[r.Order[i-1]] == b {
				continue
			}
			c.Bucket, c.Starts = int(b), r.Buckets[b].Members
		}
		x.fill(&c, v, last[m.Stream[v]])
		last[m.Stream[v]] = v
		out = append(out, c)
	}
	return out
}

type explainer struct {
	m        *sim.Model
	r        *Result
	pos      []int32
	bucketOf []int32
	compute  []int32 // compute nodes in order
}

// fill explains one collective whose first start is v; prev is the collective
// before it on its stream.
func (x *explainer) fill(c *Comm, v, prev int32) {
	t, in := x.r.Timeline, x.r.Input
	c.Issue, c.Begin, c.End = t.Issue[v], t.Begin[v], t.End[v]
	c.Dur = c.End - c.Begin
	c.Moved = int(v - x.pos[v])
	for _, s := range c.Starts {
		for _, w := range x.m.Succ.At(s) {
			if x.m.Kind[w] != sim.Wait {
				continue
			}
			if c.Wait < 0 || x.pos[w] < x.pos[c.Wait] {
				c.Wait = w
			}
			c.Before += in.End[w] - in.Issue[w]
			c.Exposed += t.End[w] - t.Issue[w]
		}
	}
	x.hiders(c)
	if c.Exposed > 0 {
		x.limit(c, prev)
	}
}

// hiders finds the compute that runs between begin and end.
func (x *explainer) hiders(c *Comm) {
	t := x.r.Timeline
	k := sort.Search(len(x.compute), func(i int) bool { return t.End[x.compute[i]] > c.Begin })
	for ; k < len(x.compute) && t.Begin[x.compute[k]] < c.End; k++ {
		v := x.compute[k]
		ms := min(t.End[v], c.End) - max(t.Begin[v], c.Begin)
		c.Hidden += ms
		c.HiderNo++
		c.Hiders = append(c.Hiders, Hider{v, ms})
		if len(c.Hiders) > 4*maxHiders {
			c.Hiders = largest(c.Hiders)
		}
	}
	c.Hiders = largest(c.Hiders)
}

func largest(h []Hider) []Hider {
	slices.SortStableFunc(h, func(a, b Hider) int {
		switch {
		case a.Ms > b.Ms:
			return -1
		case a.Ms < b.Ms:
			return 1
		}
		return int(a.Node - b.Node)
	})
	return h[:min(len(h), maxHiders)]
}

// limit finds why an exposed collective does not start earlier.
func (x *explainer) limit(c *Comm, prev int32) {
	t := x.r.Timeline
	const eps = 1e-9
	ready, from := 0.0, int32(-1) // when and by which node the last operand comes to exist
	for _, s := range c.Starts {
		for _, q := range x.m.Pred.At(s) {
			q = x.source(q)
			if x.m.Kind[q] != sim.Input && (from < 0 || x.pos[q] > x.pos[from]) {
				ready, from = t.End[q], q
			}
		}
	}
	last := len(x.compute) == 0 || t.End[x.compute[len(x.compute)-1]] <= t.Issue[c.Wait]+eps
	switch {
	case prev >= 0 && t.End[prev] > max(c.Issue, ready)+eps:
		c.Limit, c.LimitNode = LimitOrder, prev
	case c.Issue <= ready+eps && last:
		c.Limit, c.LimitNode = LimitEnd, from
	case c.Issue <= ready+eps && c.Hidden == 0:
		c.Limit, c.LimitNode = LimitSynchronous, from
	case c.Issue <= ready+eps:
		c.Limit, c.LimitNode = LimitData, from
	default:
		c.Limit = LimitPriority
		if peak := x.earlier(c, from); peak > x.r.Cap {
			c.Limit, c.LimitPeak = LimitMemory, peak
		}
	}
}

// source follows views to the node that makes their operand.
func (x *explainer) source(v int32) int32 {
	for x.m.Kind[v] == sim.View && len(x.m.Pred.At(v)) > 0 {
		v = x.m.Pred.At(v)[0]
	}
	return v
}

// earlier returns the live memory that moving c directly after node from would
// reach.
func (x *explainer) earlier(c *Comm, from int32) int64 {
	add := int64(0)
	for _, s := range c.Starts {
		for _, k := range x.m.Alloc.At(s) {
			add += x.m.Size[k]
		}
	}
	lo := int32(0)
	if from >= 0 {
		lo = x.pos[from] + 1
	}
	peak := int64(0)
	for i := lo; i < x.pos[c.Starts[0]]; i++ {
		peak = max(peak, x.r.Timeline.Memory[i]+add)
	}
	return peak
}
