package pack

import (
	"cmp"
	"slices"

	"github.com/seed-ee968945/concert/internal/intmath"
)

// A model is a problem prepared for the search: sizes in units, time reduced
// to columns, buffers that need no decision removed.
//
// Columns are the maximal sets of buffers that live at one moment, in time
// order. Two lifetimes intersect exactly when they share a column, so columns
// lose nothing, and there are never more of them than buffers.
type model struct {
	unit  int64 // bytes per unit; every offset searched is a multiple of it
	cols  int32
	items []item // one per buffer to place, by (l, r)
	// buffer maps an item's id to its index in the problem.
	buffer []int32
	align  []int64 // by item id, in units; nil if all are 1
	// pins lists, by item id, the address ranges of pinned buffers that
	// conflict with it, in units, by start; nil if there are none.
	pins [][]span
	// colPins lists the pinned ranges that cross each column, disjoint and
	// by start; nil if there are none.
	colPins [][]span
	// pinTop is the end of the highest pinned buffer, in units.
	pinTop int64
}

// A span is a range of addresses.
type span struct{ lo, hi int64 }

// newModel prepares p, which must be well formed. It costs
// O(n log n + pinned*n).
func newModel(p *Problem) *model {
	m := &model{unit: unitOf(p)}
	var ids, pinned []int32
	for i := range p.Buffers {
		if b := &p.Buffers[i]; b.Size > 0 {
			if b.Pinned {
				pinned = append(pinned, int32(i))
			} else {
				ids = append(ids, int32(i))
			}
		}
	}
	m.items = make([]item, len(ids))
	l, r, cols := columnize(p, ids)
	m.cols = cols
	common := commonAlign(p)
	for k, i := range ids {
		m.items[k] = item{id: int32(k), l: l[k], r: r[k], size: alignUp(p.Buffers[i].Size, common) / m.unit}
	}
	slices.SortFunc(m.items, func(a, b item) int {
		switch {
		case a.l != b.l:
			return int(a.l - b.l)
		case a.r != b.r:
			return int(a.r - b.r)
		case a.size != b.size:
			return cmp.Compare(a.size, b.size)
		}
		return int(a.id - b.id)
	})
	m.buffer = make([]int32, len(ids))
	for k := range m.items {
		i := ids[m.items[k].id]
		m.items[k].id = int32(k)
		m.buffer[k] = i
		if a := p.Buffers[i].align(); m.unit%a != 0 {
			if m.align == nil {
				m.align = make([]int64, len(ids))
				for j := range m.align {
					m.align[j] = 1
				}
			}
			m.align[k] = a / m.unit
		}
	}
	m.addPins(p, pinned, common)
	for k := range m.items {
		it := &m.items[k]
		it.x = m.pins != nil && len(m.pins[k]) > 0
		it.lo = m.fit(it, 0)
		it.real = it.lo
		it.rehash()
	}
	return m
}

// columnize reduces the lifetimes of the listed buffers to columns: buffer
// ids[k] lives in columns [l[k], r[k]) of cols. A buffer with an empty lifetime
// overlaps no other; it gets a column of its own after all others.
func columnize(p *Problem, ids []int32) (l, r []int32, cols int32) {
	l, r = make([]int32, len(ids)), make([]int32, len(ids))
	events := make([]event, 0, 2*len(ids))
	for k, i := range ids {
		if b := &p.Buffers[i]; b.Lower < b.Upper {
			events = append(events, event{b.Lower, 0, int32(k), true}, event{b.Upper, 0, int32(k), false})
		}
	}
	slices.SortFunc(events, inTime)
	// A column is complete when an end follows a start.
	grew := false
	for _, e := range events {
		if e.start {
			l[e.id] = cols
			grew = true
			continue
		}
		if grew {
			cols++
			grew = false
		}
		r[e.id] = cols
	}
	for k, i := range ids {
		if b := &p.Buffers[i]; b.Lower == b.Upper {
			l[k], r[k] = cols, cols+1
			cols++
		}
	}
	return l, r, cols
}

// commonAlign returns the largest a of which every alignment is a multiple.
// Sizes can be rounded up to it without loss, because whatever lies above a
// buffer starts at a multiple of it.
func commonAlign(p *Problem) int64 {
	a := int64(0)
	for i := range p.Buffers {
		if b := &p.Buffers[i]; b.Size > 0 {
			a = intmath.GCD(a, b.align())
		}
	}
	return max(a, 1)
}

// unitOf returns the largest unit such that some best placement of p, sizes
// rounded up to the common alignment, has all offsets at multiples of it:
// the common divisor of all sizes and pinned ends, reduced so that each
// alignment either divides it or is a multiple of it.
func unitOf(p *Problem) int64 {
	common := commonAlign(p)
	u := int64(0)
	for i := range p.Buffers {
		if b := &p.Buffers[i]; b.Size > 0 {
			u = intmath.GCD(u, alignUp(b.Size, common))
			if b.Pinned {
				u = intmath.GCD(u, b.Offset)
			}
		}
	}
	u = max(u, 1)
	for again := true; again; {
		again = false
		for i := range p.Buffers {
			b := &p.Buffers[i]
			if b.Size == 0 || b.Pinned {
				continue
			}
			if a := b.align(); u%a != 0 && a%u != 0 {
				u = intmath.GCD(u, a)
				again = true
			}
		}
	}
	return u
}

func (m *model) addPins(p *Problem, pinned []int32, common int64) {
	if len(pinned) == 0 {
		return
	}
	m.pins = make([][]span, len(m.items))
	m.colPins = make([][]span, m.cols)
	for _, i := range pinned {
		b := &p.Buffers[i]
		// Rounding outwards is free: nobody else could use the rest.
		s := span{b.Offset / m.unit, (b.Offset + alignUp(b.Size, common)) / m.unit}
		m.pinTop = max(m.pinTop, s.hi)
		for k := range m.items {
			o := &p.Buffers[m.buffer[k]]
			if o.Lower < b.Upper && b.Lower < o.Upper && b.Lower < b.Upper && o.Lower < o.Upper {
				m.pins[k] = append(m.pins[k], s)
			}
		}
	}
	for k := range m.pins {
		m.pins[k] = union(m.pins[k])
	}
	// A pin surely crosses a column when every buffer of the column overlaps
	// it, since the column's buffers then live together with it or forbid
	// its range one by one: either way its bytes are lost to the column.
	for k := range m.items {
		it := &m.items[k]
		for t := it.l; t < it.r; t++ {
			if it.l == t || m.colPins[t] == nil {
				m.colPins[t] = slices.Clone(m.pins[k])
			}
		}
	}
	for k := range m.items {
		it := &m.items[k]
		for t := it.l; t < it.r; t++ {
			m.colPins[t] = intersect(m.colPins[t], m.pins[k])
		}
	}
}

// union sorts spans and joins those that touch.
func union(s []span) []span {
	slices.SortFunc(s, func(a, b span) int { return cmp.Compare(a.lo, b.lo) })
	out := s[:0]
	for _, v := range s {
		if n := len(out); n > 0 && v.lo <= out[n-1].hi {
			out[n-1].hi = max(out[n-1].hi, v.hi)
		} else {
			out = append(out, v)
		}
	}
	return out
}

// intersect returns the addresses in both a and b, each sorted and disjoint.
func intersect(a, b []span) []span {
	var out []span
	for len(a) > 0 && len(b) > 0 {
		if lo, hi := max(a[0].lo, b[0].lo), min(a[0].hi, b[0].hi); lo < hi {
			out = append(out, span{lo, hi})
		}
		if a[0].hi < b[0].hi {
			a = a[1:]
		} else {
			b = b[1:]
		}
	}
	return out
}

// fit returns the least offset not below lo at which it is aligned and clear
// of the pinned buffers.
func (m *model) fit(it *item, lo int64) int64 {
	for {
		if m.align != nil {
			lo = alignUp(lo, m.align[it.id])
		}
		if !it.x || lo >= infinity {
			return lo
		}
		was := lo
		for _, s := range m.pins[it.id] {
			if lo < s.hi && s.lo < lo+it.size {
				lo = s.hi
			}
		}
		if lo == was {
			return lo
		}
	}
}

// pinnedAbove returns how much of column t's pinned ranges lies at or above lo.
func (m *model) pinnedAbove(t int32, lo int64) int64 {
	sum := int64(0)
	for _, s := range m.colPins[t] {
		if s.hi > lo {
			sum += s.hi - max(s.lo, lo)
		}
	}
	return sum
}
