package proof

import (
	"cmp"
	"fmt"
	"slices"
	"sort"

	"github.com/seed-ee968945/concert/ir"
	"github.com/seed-ee968945/concert/program"
)

// tensor is a term that is in memory: element (0, 0, ...) at a byte, the others as typ
// says.
type tensor struct {
	at    int64
	typ   ir.Type
	holds termID
}

// memory says who wrote each byte last. A tensor owns all bytes from its first element to
// its last, gaps included.
type memory struct {
	tensors []tensor
	owned   []owned // sorted, apart from each other
}

// owned is bytes of one of the tensors, or of none: -1.
type owned struct {
	lo, hi int64
	by     int32
}

// newMemory is memory that nobody has written. Buffers that share no byte with another
// have their entries already, so that what is written there moves no others.
func newMemory(p *program.Program) memory {
	m := memory{tensors: make([]tensor, 0, len(p.Instrs))}
	order := slices.Clone(p.Buffers)
	slices.SortFunc(order, func(a, b program.Buffer) int { return cmp.Compare(a.Offset, b.Offset) })
	end := int64(0) // of those so far
	for i, b := range order {
		hi := b.Offset + b.Size
		if b.Size > 0 && b.Offset >= end && (i+1 == len(order) || order[i+1].Offset >= hi) {
			m.owned = append(m.owned, owned{b.Offset, hi, -1})
		}
		end = max(end, hi)
	}
	return m
}

// clone is memory that is changed apart from m.
func (m *memory) clone() memory {
	return memory{slices.Clone(m.tensors), slices.Clone(m.owned)}
}

// from is the first entry that ends behind a byte.
func (m *memory) from(at int64) int {
	return sort.Search(len(m.owned), func(i int) bool { return m.owned[i].hi > at })
}

// write gives bytes lo..hi-1 to a tensor.
func (m *memory) write(lo, hi int64, t tensor) {
	if lo >= hi {
		return
	}
	by := int32(len(m.tensors))
	m.tensors = append(m.tensors, t)
	i := m.from(lo)
	if i < len(m.owned) && m.owned[i].lo == lo && m.owned[i].hi == hi {
		m.owned[i].by = by
		return
	}
	j := i
	var kept [3]owned
	n := 0
	for ; j < len(m.owned) && m.owned[j].lo < hi; j++ {
		if o := m.owned[j]; o.lo < lo {
			kept[n] = owned{o.lo, lo, o.by}
			n++
		}
	}
	kept[n] = owned{lo, hi, by}
	n++
	if j > i {
		if o := m.owned[j-1]; o.hi > hi {
			kept[n] = owned{hi, o.hi, o.by}
			n++
		}
	}
	m.owned = slices.Replace(m.owned, i, j, kept[:n]...)
}

// read returns the tensor that all bytes lo..hi-1 belong to; else what is wrong with them.
func (m *memory) read(lo, hi int64) (*tensor, []owned) {
	i := m.from(lo)
	j := i
	for j < len(m.owned) && m.owned[j].lo < hi {
		j++
	}
	whole := j > i && m.owned[i].lo <= lo && m.owned[j-1].hi >= hi && m.owned[i].by >= 0
	for k := i + 1; k < j; k++ {
		whole = whole && m.owned[k].lo == m.owned[k-1].hi && m.owned[k].by == m.owned[i].by
	}
	if whole {
		return &m.tensors[m.owned[i].by], nil
	}
	return nil, m.owned[i:j]
}

// mixture names what is where one tensor is read.
func (m *machine) mixture(lo, hi int64, have []owned) string {
	s, at := "", lo
	for _, o := range have {
		if o.by < 0 {
			continue
		}
		if o.lo > at {
			s += fmt.Sprintf(", nothing at %d..%d", at, o.lo)
		}
		s += fmt.Sprintf(", %s at %d..%d", m.b.name(m.mem.tensors[o.by].holds), max(o.lo, lo), min(o.hi, hi))
		at = o.hi
	}
	if at < hi {
		s += fmt.Sprintf(", nothing at %d..%d", at, hi)
	}
	return s[2:]
}
