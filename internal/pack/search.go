package pack

// The search
//
// It decides whether the buffers of a model fit below a ceiling, by depth
// first search over partial placements, and finds offsets if they do. The
// known methods for this problem (the canonical search of minimalloc, ASPLOS
// 2023, and TelaMalloc, ASPLOS 2023) choose the next buffer out of all that
// are left; this search chooses a moment first. It rests on the following
// ideas.
//
// State. Every buffer not yet placed has a least offset lo. Placing a buffer
// raises the lo of those that live beside it to its top, so a placed buffer
// has finished with everything beneath it: what is left is the set of unplaced
// buffers, their lo, and the ceiling. Floors and skylines are not kept.
//
// Branching. Take any column (a moment of maximal overlap) and a buffer b with
// the least lo of that column, such that no other unplaced buffer that lives
// beside b still fits beneath lo(b). Then either b lies at lo(b), or it lies
// higher. In the second case it may be supposed to rest on another buffer, for
// in any solution b could otherwise be lowered; that other one is unplaced, so
// lo(b) rises to the least lo(c)+size(c) over the unplaced neighbours c. The
// two cases exclude each other, so no placement is visited twice, and both
// change lo, so both propagate. A column at the globally least lo always
// qualifies, hence the search is complete.
//
// Propagation. (1) A buffer whose lo was raised by a refuted branch must rest
// on an unplaced neighbour, however that neighbour moves: lo(b) is raised to
// the least lo(c)+size(c) again and again (a few iterations: two raised buffers
// that only have each other to rest on would climb by their sizes). (2) For every column and every
// threshold x, x plus the sizes of the column's buffers with lo >= x must not
// exceed the ceiling. This is the release-date bound of one-machine
// scheduling, with addresses for time; it contains the section inference of
// the earlier methods.
//
// Decomposition. When no unplaced buffer crosses a moment, the two sides are
// independent: each is solved alone, and if one fails the whole fails, without
// another attempt at its sibling. A buffer that spans all of its component can
// be put right under the ceiling, since whatever lies above it in a solution
// can slide down past it; it then leaves the component and often splits it.
//
// Memory. A component is described by its ceiling and the pairs (buffer, lo),
// so one that was refuted is remembered by a 64-bit hash of them and never
// refuted again. The bound of a refuted branch holds for every solution of the
// state, not merely for those in which all buffers rest on something: suppose
// b at h was refuted, where nothing unplaced fits beneath b; a solution with b
// above h can be changed, moving b alone, until b rests on something or is at
// h. Hence raised bounds stay valid when sliding buffers for the ceiling rule,
// and a refuted state is refuted for any floors beneath it.
//
// Restarts. How long one descent takes varies by orders of magnitude, so a
// descent is cut off after a few hundred nodes and begun anew. What carries
// over is the table of refuted states, and weights: whenever a column exceeds
// the ceiling, its buffers get heavier, in proportion to their size and the
// square root of their length. Among the candidates of the chosen
// column the heaviest, up to noise from a fixed sequence, is placed first; and
// successive descents choose columns by different rules (see columnRule).
//
// Pinned buffers. A buffer that lives beside one (item.x) jumps over the address
// ranges that they take from it (model.fit), takes no part in rule (1) and in the
// rule for the ceiling, and rises past refuted offsets by the next possible resting
// place. The search stays complete.

import (
	"context"
	"math"
	"slices"
)

// An outcome is the answer of a search.
type outcome int

const (
	refuted outcome = iota // no placement exists
	found                  // offsets are in searcher.at
	cutOff                 // the node limit or the context ended it
)

// maxStack bounds the states of one descent, in items of 48 bytes; as many
// columns of 32 bytes go with them at the most. Deeper descents are cut off.
const maxStack = 1 << 22

// maxRefuted bounds the table of refuted states: 2^20 entries of 8 bytes and
// overhead. It is emptied when full.
const maxRefuted = 1 << 20

// A searcher holds the state of a search. It may be used for many searches on
// one model, one at a time.
type searcher struct {
	m   *model
	ctx context.Context
	at  []int64 // offsets by item id, in units, -1 while unplaced

	nodes, limit int64 // in this descent
	steps, until int64 // over all descents; see Options.Steps
	rule         columnRule
	rng          uint64

	weight []float64
	mass   []float64 // by item id: what one conflict adds, before bump
	bump   float64

	keys     []uint64 // scratch: sort keys of propagate
	marks    []uint8  // scratch of narrow
	renumber []int32  // scratch of narrow
	items    []item   // stack of states
	columns  []column // stack of their columns
	refuted  map[uint64]struct{}
}

func newSearcher(ctx context.Context, m *model) *searcher {
	s := &searcher{m: m, ctx: ctx, bump: 1, refuted: map[uint64]struct{}{}}
	s.at = make([]int64, len(m.items))
	s.weight = make([]float64, len(m.items))
	s.mass = make([]float64, len(m.items))
	for k := range m.items {
		it := &m.items[k]
		s.mass[k] = float64(it.size) * math.Sqrt(float64(it.r-it.l))
		s.weight[k] = 1e-9 * s.mass[k] // decides until there are conflicts
	}
	return s
}

// descend runs one search from the root: do the model's items fit below ceil
// (in units)? It expands at most limit nodes and stops at s.until steps. On
// found, s.at holds offsets.
func (s *searcher) descend(ceil, limit int64) outcome {
	s.nodes, s.limit = 0, limit
	s.items = append(s.items[:0], s.m.items...)
	s.columns = slices.Grow(s.columns[:0], int(s.m.cols))[:s.m.cols]
	for i := range s.at {
		s.at[i] = -1
	}
	if ceil < s.m.pinTop {
		return refuted
	}
	if len(s.items) == 0 {
		return found
	}
	f := frame{items: s.items, cols: s.columns, ceil: ceil}
	if !s.propagate(&f, 0, s.m.cols) {
		return refuted
	}
	return s.split(&f)
}

// split solves a propagated frame by solving its components, smallest first.
func (s *searcher) split(f *frame) outcome {
	type part struct{ from, to int }
	var buf [16]part
	parts := buf[:0]
	from, right := 0, int32(0)
	for i := range f.items {
		it := &f.items[i]
		if i > from && it.l >= right {
			parts = append(parts, part{from, i})
			from = i
		}
		right = max(right, it.r)
	}
	if from == 0 {
		return s.component(f)
	}
	parts = append(parts, part{from, len(f.items)})
	slices.SortStableFunc(parts, func(a, b part) int { return (a.to - a.from) - (b.to - b.from) })
	for _, p := range parts {
		g := *f
		g.items = f.items[p.from:p.to]
		if out := s.component(&g); out != found {
			return out
		}
	}
	return found
}

// component solves a propagated frame that is not known to split. It clobbers
// the frame's items and columns.
func (s *searcher) component(f *frame) outcome {
	if dropped, ok := s.dropSpanning(f); !ok {
		return refuted
	} else if dropped {
		if len(f.items) == 0 {
			return found
		}
		// Columns of a part whose items all left are not looked at again.
		left, right := f.extent()
		if !s.propagate(f, left, right) {
			return refuted
		}
		return s.split(f)
	}
	left, right := f.extent()
	f.cols = f.cols[left-f.left : right-f.left]
	f.left = left
	if s.m.colPins == nil && len(f.cols) > 2*len(f.items) {
		s.narrow(f)
	}
	nItems, nCols := len(s.items), len(s.columns)
	var memo [8]uint64
	known := memo[:0]
	for {
		key := s.key(f)
		if _, ok := s.refuted[key]; ok {
			break
		}
		if len(known) < cap(known) {
			known = append(known, key)
		}
		s.nodes++
		if s.nodes > s.limit || s.steps > s.until || nItems > maxStack || s.nodes&63 == 0 && s.ctx.Err() != nil {
			return cutOff
		}
		i := s.choose(f)
		out := s.place(f, i)
		s.items, s.columns = s.items[:nItems], s.columns[:nCols]
		if out != refuted {
			return out
		}
		s.at[f.items[i].id] = -1
		if !s.exclude(f, i) {
			break
		}
	}
	if len(s.refuted)+len(known) > maxRefuted {
		clear(s.refuted)
	}
	for _, k := range known {
		s.refuted[k] = struct{}{}
	}
	return refuted
}

// dropSpanning puts the items that span the whole component under the
// ceiling and takes them out; ok is false if one does not fit there.
func (s *searcher) dropSpanning(f *frame) (dropped, ok bool) {
	if s.m.align != nil {
		return false, true // sliding could break an alignment
	}
	left, right := f.extent()
	any := false
	for i := range f.items {
		if f.items[i].x {
			return false, true // sliding could hit an obstacle
		}
		any = any || f.items[i].l == left && f.items[i].r == right
	}
	if !any {
		return false, true
	}
	kept := f.items[:0]
	for _, it := range f.items {
		if it.l != left || it.r != right {
			kept = append(kept, it)
			continue
		}
		f.ceil -= it.size
		if it.lo > f.ceil {
			return true, false
		}
		s.at[it.id] = f.ceil
	}
	f.items = kept
	return true, true
}

// place solves the frame with item i at its lo. The new state goes on top of
// the stacks; the caller takes it off.
func (s *searcher) place(f *frame, i int) outcome {
	b := f.items[i]
	s.at[b.id] = b.lo
	n, c := len(s.items), len(s.columns)
	s.columns = append(s.columns, f.cols...)
	s.items = append(s.items, f.items[:i]...)
	s.items = append(s.items, f.items[i+1:]...)
	g := frame{items: s.items[n:len(s.items):len(s.items)], cols: s.columns[c:len(s.columns):len(s.columns)], left: f.left, ceil: f.ceil}
	if len(g.items) == 0 {
		return found
	}
	top := b.lo + b.size
	from, to := b.l, b.r
	for k := range g.items {
		it := &g.items[k]
		if !it.overlaps(&b) {
			continue
		}
		it.real = max(it.real, top)
		if s.m.align != nil || it.x {
			it.real = s.m.fit(it, it.real)
		}
		if it.lo < it.real {
			it.raise(it.real)
			from, to = min(from, it.l), max(to, it.r)
		}
	}
	if !s.propagate(&g, from, to) {
		return refuted
	}
	return s.split(&g)
}

// exclude refutes item i at its lo: it, and others exactly like it, move up to
// where they may rest next. It returns false if that refutes the frame.
func (s *searcher) exclude(f *frame, i int) bool {
	b := f.items[i]
	next := int64(infinity)
	for k := range f.items {
		if o := &f.items[k]; k != i && o.overlaps(&b) {
			next = min(next, o.lo+o.size)
		}
	}
	if b.x {
		next = min(next, s.nextEvent(&b))
	}
	if b.x || s.m.align != nil {
		next = s.m.fit(&b, next)
	}
	if next+b.size > f.ceil {
		return false
	}
	for k := range f.items {
		o := &f.items[k]
		if k == i || !b.x && !o.x && s.m.align == nil && o.l == b.l && o.r == b.r && o.size == b.size && o.lo == b.lo {
			o.raise(next)
		}
	}
	return s.propagate(f, b.l, b.r)
}
