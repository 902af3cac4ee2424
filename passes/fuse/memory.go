package fuse

import (
	"github.com/seed-ee968945/concert/passes/internal/deps"
)

// unitMemory computes live memory with regions as launches: the nodes of a region
// stand for one, whose operands and results live together, and a storage that only
// the region touches takes no memory.
type unitMemory struct {
	d    *deps.Func
	last []int32 // storage -> last unit in the order that uses it; scratch
	seat []int32 // node -> unit in the order; scratch
}

func newUnitMemory(d *deps.Func) *unitMemory {
	return &unitMemory{d: d, last: make([]int32, len(d.Size)), seat: make([]int32, len(d.Nodes))}
}

// peak is the largest live memory of an order in which the nodes of each region
// (unit, -1 for none) stand next to each other. Linear.
func (m *unitMemory) peak(order, unit []int32) int64 {
	units := int32(-1)
	before := int32(-1)
	for _, v := range order {
		if x := unit[v]; x < 0 || x != before {
			units++
		}
		before = unit[v]
		m.seat[v] = units
	}
	first := make([]int32, 0, len(order)) // position at which each unit begins
	for p, v := range order {
		if int(m.seat[v]) == len(first) {
			first = append(first, int32(p))
		}
	}
	first = append(first, int32(len(order)))
	for s := range m.last {
		m.last[s] = m.seat[m.d.Owner[s]]
	}
	for _, v := range order {
		for _, s := range m.d.Use.At(v) {
			m.last[s] = m.seat[v]
		}
	}
	now, top := int64(0), int64(0)
	freed := make([]int64, units+1)
	take := func(s int32) {
		now += m.d.Size[s]
		if !m.d.Pinned[s] {
			freed[m.last[s]] += m.d.Size[s]
		}
	}
	for v := range m.d.Inputs {
		for _, s := range m.d.Alloc.At(v) {
			take(s)
		}
	}
	for x := range units + 1 {
		run := order[first[x]:first[x+1]]
		for _, v := range run {
			if v < m.d.Inputs {
				continue
			}
			for _, s := range m.d.Alloc.At(v) {
				if len(run) == 1 || m.last[s] > x {
					take(s)
				}
			}
		}
		top = max(top, now)
		now -= freed[x]
	}
	return top
}

// inside adds the sizes of storages that only one region of several nodes
// touches. It is to be asked after peak, about the same order.
func (m *unitMemory) inside(unit []int32) int64 {
	users := make([]int32, len(m.d.Size)) // how many nodes use it
	lone := make([]bool, len(m.d.Size))   // all of them in its owner's region
	for s, v := range m.d.Owner {
		lone[s] = unit[v] >= 0
	}
	for v := range int32(len(m.d.Nodes)) {
		for _, s := range m.d.Use.At(v) {
			if m.d.Owner[s] != v {
				users[s]++
				lone[s] = lone[s] && unit[v] == unit[m.d.Owner[s]]
			}
		}
	}
	sum := int64(0)
	for s, size := range m.d.Size {
		if lone[s] && users[s] > 0 {
			sum += size
		}
	}
	return sum
}
