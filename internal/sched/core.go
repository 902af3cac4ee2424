package sched

import (
	"slices"

	"github.com/seed-ee968945/concert/sim"
)

// problem is a model without its free nodes. Only compute nodes, starts and
// waits are decided about: a view is emitted as soon as its operands exist, which
// can only shorten lifetimes, inputs come first and outputs last. On traced
// programs this leaves about half of the nodes.
//
// Nodes of a problem are called jobs, to keep them apart from nodes of the model.
type problem struct {
	m    *sim.Model
	tick func() // see Options.Tick; never nil

	node    []int32   // job -> node, its first if it is a bucket
	nodes   [][]int32 // job -> nodes of a bucket, nil for others; itself nil if there are none
	carry   []int64   // start -> bytes that its cost depends on
	job     []int32   // node -> job, -1 if contracted
	dur     []float64 // milliseconds
	kind    []sim.Kind
	stream  []int32   // of starts, else -1
	startOf []int32   // job of the start that a wait waits for, else -1
	waits   sim.Lists // start -> its waits
	pred    sim.Lists // job -> jobs it depends on, through views
	succ    sim.Lists

	size   []int64   // storage -> bytes
	pinned []bool    // storage is never freed
	alloc  sim.Lists // job -> storages it allocates
	use    sim.Lists // job -> storages it keeps live, own ones included
	users  sim.Lists // storage -> jobs that use it
	given  []int32   // storages live before the first job and freed by one
	base   int64     // bytes of inputs that are never freed

	total []int64   // job -> bytes it allocates
	kept  []int64   // of which so many outlive it
	held  sim.Lists // job -> storages of others it uses that can be freed

	least *leastMemory // shared by problems that differ in durations alone

	trail sim.Lists // job -> contracted nodes emitted right after it
	lead  []int32   // nodes emitted before the first job
	tail  []int32   // nodes emitted after the last job
}

// n returns the number of jobs.
func (p *problem) n() int { return len(p.node) }

// contract builds the problem of a model in linear time.
func contract(m *sim.Model, tick func()) *problem {
	if tick == nil {
		tick = func() {}
	}
	p := &problem{m: m, tick: tick, size: m.Size, pinned: m.Pinned, least: &leastMemory{}}
	n := int32(m.Len())
	p.job = make([]int32, n)
	root := make([]int32, n) // job after which a contracted node is emitted, -1 before all
	isTail := make([]bool, n)
	var trailOf, trailNode []int32
	for v := int32(0); v < n; v++ {
		p.job[v], root[v] = -1, -1
		switch m.Kind[v] {
		case sim.Input:
			p.lead = append(p.lead, v)
			continue
		case sim.Output:
			isTail[v] = true
			p.tail = append(p.tail, v)
			continue
		case sim.View:
			r, single := int32(-1), true
			for _, q := range m.Pred.At(v) {
				if isTail[q] {
					isTail[v] = true
				}
				if s := root[q]; s != r && s >= 0 {
					single = single && r < 0
					r = s
				}
			}
			if isTail[v] {
				p.tail = append(p.tail, v)
				continue
			}
			if single {
				root[v] = r
				if r < 0 {
					p.lead = append(p.lead, v)
				} else {
					trailOf, trailNode = append(trailOf, r), append(trailNode, v)
				}
				continue
			}
		}
		j := int32(len(p.node))
		p.job[v], root[v] = j, j
		p.node = append(p.node, v)
	}
	p.edges(root)
	p.storages()
	p.trail = group(trailOf, trailNode, p.n())
	return p
}

func (p *problem) edges(root []int32) {
	m, n := p.m, p.n()
	p.dur = make([]float64, n)
	p.kind = make([]sim.Kind, n)
	p.stream = make([]int32, n)
	p.startOf = make([]int32, n)
	p.carry = make([]int64, n)
	off := make([]int32, 1, n+1)
	var val, waitOf, waitJob []int32
	for j, v := range p.node {
		p.kind[j], p.dur[j], p.stream[j], p.startOf[j] = m.Kind[v], m.Dur[v], m.Stream[v], -1
		p.carry[j] = m.Bytes[v]
		if c := m.StartOf[v]; c >= 0 {
			p.startOf[j] = p.job[c]
			waitOf, waitJob = append(waitOf, p.job[c]), append(waitJob, int32(j))
		} else if p.kind[j] == sim.Wait || p.kind[j] == sim.View {
			p.kind[j] = sim.Compute // takes no time, allocates nothing
		}
		first := len(val)
		for _, q := range m.Pred.At(v) {
			if r := root[q]; r >= 0 && !slices.Contains(val[first:], r) {
				val = append(val, r)
			}
		}
		off = append(off, int32(len(val)))
	}
	p.waits = group(waitOf, waitJob, n)
	p.pred = sim.Lists{Off: off, Val: val}
	p.succ = sim.Transpose(&p.pred, n)
}

func (p *problem) storages() {
	m, n := p.m, p.n()
	allocOff, useOff := make([]int32, 1, n+1), make([]int32, 1, n+1)
	var allocVal, useVal []int32
	for _, v := range p.node {
		allocVal = append(allocVal, m.Alloc.At(v)...)
		useVal = append(useVal, m.Use.At(v)...)
		allocOff = append(allocOff, int32(len(allocVal)))
		useOff = append(useOff, int32(len(useVal)))
	}
	p.alloc = sim.Lists{Off: allocOff, Val: allocVal}
	p.use = sim.Lists{Off: useOff, Val: useVal}
	p.users = sim.Transpose(&p.use, len(m.Size))
	p.footprints()
	for s := range m.Size {
		if m.Kind[m.Owner[s]] != sim.Input {
			continue
		}
		if m.Pinned[s] {
			p.base += m.Size[s]
		} else if len(p.users.At(int32(s))) > 0 {
			p.given = append(p.given, int32(s))
		}
	}
}

// footprints computes what jobs do to live memory. Users of a storage other than its owner
// run after that.
func (p *problem) footprints() {
	p.total, p.kept = make([]int64, p.n()), make([]int64, p.n())
	held := newTable(p.n())
	for j := range p.total {
		for _, s := range p.alloc.At(int32(j)) {
			p.total[j] += p.size[s]
			if p.pinned[s] || len(p.users.At(s)) > 1 {
				p.kept[j] += p.size[s]
			}
		}
		for _, s := range p.use.At(int32(j)) {
			if !p.pinned[s] && p.job[p.m.Owner[s]] != int32(j) {
				held.add(s)
			}
		}
		held.end()
	}
	p.held = held.Lists
}

// group returns for each of n keys the values paired with it, in order.
func group(key, val []int32, n int) sim.Lists {
	off := make([]int32, n+1)
	for _, k := range key {
		off[k+1]++
	}
	for i := range n {
		off[i+1] += off[i]
	}
	out := make([]int32, len(val))
	next := slices.Clone(off[:n])
	for i, k := range key {
		out[next[k]] = val[i]
		next[k]++
	}
	return sim.Lists{Off: off, Val: out}
}

// expand returns the order of all nodes for an order of jobs. Runs of jobs that
// share a bucket stay together: run[j] is the bucket of start or wait j, -1 for
// none; it may be nil.
func (p *problem) expand(jobs, run []int32) []int32 {
	out := make([]int32, 0, p.m.Len())
	out = append(out, p.lead...)
	for i := 0; i < len(jobs); {
		k := i + 1
		if j := jobs[i]; run != nil && run[j] >= 0 {
			for k < len(jobs) && run[jobs[k]] == run[j] && p.kind[jobs[k]] == p.kind[j] {
				k++
			}
		}
		for _, j := range jobs[i:k] {
			out = append(out, p.members(j)...)
		}
		for _, j := range jobs[i:k] {
			out = append(out, p.trail.At(j)...)
		}
		i = k
	}
	return append(out, p.tail...)
}

// floor returns the bytes that are live before the first job.
func (p *problem) floor() int64 {
	live := p.base
	for _, s := range p.given {
		live += p.size[s]
	}
	return live
}

// peak returns the largest live memory of an order of jobs, the start included.
func (p *problem) peak(jobs []int32) int64 {
	left := make([]int32, len(p.size))
	for s := range left {
		left[s] = int32(len(p.users.At(int32(s))))
	}
	live := p.floor()
	top := live
	for _, j := range jobs {
		for _, s := range p.alloc.At(j) {
			live += p.size[s]
		}
		top = max(top, live)
		for _, s := range p.use.At(j) {
			if left[s]--; left[s] == 0 && !p.pinned[s] {
				live -= p.size[s]
			}
		}
	}
	return top
}

// growing reports for each start whether its results outweigh what its waits free.
func (p *problem) growing() []bool {
	out := make([]bool, p.n())
	for j := range out {
		if p.kind[j] != sim.Start {
			continue
		}
		net := int64(0)
		for _, s := range p.alloc.At(int32(j)) {
			net += p.size[s]
		}
		for _, s := range p.use.At(int32(j)) {
			// Besides its owner, start and wait, nobody uses what the wait frees.
			if !p.pinned[s] && p.job[p.m.Owner[s]] != int32(j) && len(p.users.At(s)) <= 3 {
				net -= p.size[s]
			}
		}
		out[j] = net > 0
	}
	return out
}

// key returns the bucket key of start j, -1 if it may not join one.
func (p *problem) key(j int32) int32 { return p.m.Key[p.node[j]] }

// bytes returns the size that the cost of start j depends on.
func (p *problem) bytes(j int32) int64 { return p.carry[j] }

// members returns the nodes that job j stands for.
func (p *problem) members(j int32) []int32 {
	if p.nodes != nil && p.nodes[j] != nil {
		return p.nodes[j]
	}
	return p.node[j : j+1]
}

// isBucket reports whether job j is a bucket already.
func (p *problem) isBucket(j int32) bool { return p.nodes != nil && p.nodes[j] != nil }

// isWait reports whether job j blocks on a collective.
func (p *problem) isWait(j int32) bool { return p.kind[j] == sim.Wait && p.startOf[j] >= 0 }
