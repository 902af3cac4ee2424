package fuse

import "slices"

// Where a node between members goes.
const (
	stays byte = iota
	goesFirst
	goesLast
	joins
)

// parting decides where the nodes of a range go.
type parting struct {
	u      *fuser
	lo, hi int32
	state  []byte
	goes   []bool // region -> nodes of it go where whole was asked about
}

// reset prepares for a range of the order at hand.
func (m *parting) reset(u *fuser, lo, hi int32) {
	m.u, m.lo, m.hi = u, lo, hi
	m.state = slices.Grow(m.state[:0], int(hi-lo))[:hi-lo]
	clear(m.state)
	if len(m.goes) < len(u.unitN) {
		m.goes = make([]bool, len(u.unitN))
	}
}

// at is the place of a node in the range, -1 outside.
func (m *parting) at(v int32) int32 {
	if q := m.u.pos[v]; q >= m.lo && q < m.hi {
		return q - m.lo
	}
	return -1
}

// descendants finds what depends on a member, with the regions that it belongs to. It
// fails if a member is among them.
func (m *parting) descendants() bool {
	for again := true; again; {
		again = false
		for i := range m.state {
			if m.state[i] == goesLast {
				continue
			}
			for _, p := range m.u.d.Pred.At(m.u.order[m.lo+int32(i)]) {
				q := m.at(p)
				if q < 0 || m.state[q] != goesLast && (m.state[q] != joins || m.state[i] == joins) {
					continue
				}
				if m.state[i] == joins {
					return false
				}
				m.state[i] = goesLast
				break
			}
		}
		if ok, more := m.completeRegions(goesLast); !ok {
			return false
		} else if more {
			again = true
		}
	}
	return true
}

// ancestors finds what members depend on, with the regions that it belongs to.
func (m *parting) ancestors() bool {
	for again := true; again; {
		again = false
		for i := len(m.state) - 1; i >= 0; i-- {
			if m.state[i] != joins && m.state[i] != goesFirst {
				continue
			}
			for _, p := range m.u.d.Pred.At(m.u.order[m.lo+int32(i)]) {
				q := m.at(p)
				if q < 0 {
					continue
				}
				if m.state[q] == goesLast && m.state[i] == goesFirst {
					return false
				}
				if m.state[q] == stays {
					m.state[q] = goesFirst
				}
			}
		}
		if ok, more := m.completeRegions(goesFirst); !ok {
			return false
		} else if more {
			again = true
		}
	}
	return true
}

// completeRegions lets the other nodes of a region follow those that go somewhere. It fails
// if they go elsewhere already, and reports whether any followed. No other region
// lies across the range's ends, which members are at.
func (m *parting) completeRegions(where byte) (ok, more bool) {
	each := func(do func(i int, s byte, x int32)) {
		for i, s := range m.state {
			if x := m.u.unit[m.u.order[m.lo+int32(i)]]; x >= 0 {
				do(i, s, x)
			}
		}
	}
	each(func(_ int, s byte, x int32) { m.goes[x] = m.goes[x] || s == where })
	ok = true
	each(func(i int, s byte, x int32) {
		if s == where || !m.goes[x] {
			return
		}
		ok = ok && s == stays
		m.state[i], more = where, true
	})
	each(func(_ int, _ byte, x int32) { m.goes[x] = false })
	return ok, more
}
