package pack

import (
	"cmp"
	"math"
	"slices"

	"github.com/seed-ee968945/concert/internal/heap"
)

// The repair
//
// Greedy placement of a graph of thousands of buffers ends a percent or two above
// the bound because of few buffers that stick out; no order of greedy placement
// brings all of them down, and the search cannot finish a descent over that many.
// The repair starts from a greedy placement, sets a ceiling a little beneath its
// height, takes out what ends above it, and puts these buffers back one after the
// other, the dearest first: each goes to the place beneath the ceiling where it
// costs least, and whatever lies there is taken out in turn (ejection chains,
// known from local search for scheduling and bin packing). Taking out a buffer
// costs its size times the square root of its lifetime, which is about how hard it
// is to place again, and a quarter more each time that it happens, so that chains do
// not iterate in circles: buffers that fight over a region end up with it, the
// others move elsewhere. (Twice as much each time ended about a
// percent higher on the crowded parts of the arena's largest graph: costs reach their
// limit before they tell buffers apart.) When all are placed the ceiling is lowered again.
//
// The placed buffers are kept in two lists, by start and by end of their address
// ranges. A step merges the two, looking only at buffers that conflict with the
// one to be placed, and so sees what every place costs in ascending order of
// offset. That is linear in the number of buffers with a small constant: a few
// nanoseconds each, less than sorting those that conflict.

// maxCost bounds the cost of a buffer that may be taken out, if there are not so
// many that less is needed to keep sums apart (see newRepairer).
const maxCost = 1 << 36

// A repairer holds the placement under repair.
type repairer struct {
	p    *Problem
	f    *fitter
	at   []int64 // offsets; of a buffer that is out, -1
	cost []int64 // by buffer: of taking it out

	byStart, byEnd []rectangle      // placed buffers
	allStart       []rectangle      // all of them where the last ceiling that was reached has them,
	allEnd         []rectangle      // by start and by end; costs are not those of now
	out            heap.Heap[int32] // those to place
	hit            []int32          // scratch of seat: what to take out
	unit           int64            // bytes that count as one in a cost
	dearest        int64            // largest cost of a buffer that may be taken out
	pinned         int64            // cost of a pinned one, above the sum of all that may be
	work           int              // visits of rectangles
}

// A rectangle is a placed buffer: its start or end, what it costs to take it out,
// and its columns.
type rectangle struct {
	key, cost int64
	l, r      int32
	id        int32
}

func newRepairer(f *fitter) *repairer {
	n := len(f.p.Buffers)
	r := &repairer{p: f.p, f: f, at: make([]int64, n), cost: make([]int64, n)}
	// The largest buffer counts as 2^16 at most, so that lifetimes and a few
	// doublings fit below maxCost.
	for i := range f.p.Buffers {
		r.unit = max(r.unit, f.p.Buffers[i].Size>>16)
	}
	r.unit = max(r.unit, 1)
	r.out.Less = r.before
	// No sum of costs may overflow.
	r.pinned = math.MaxInt64 / 2 / int64(len(f.pinned)+1)
	r.dearest = max(1, min(maxCost, r.pinned/int64(n+1)))
	return r
}

// descend lowers the placement at, a tenth of the way to goal at a time, until
// visits were spent since the repairer was made. A step that fails after a third
// of what is left is tried again at a quarter of its size, three times at most.
func (r *repairer) descend(at []int64, goal int64, until int) {
	r.sort(at)
	for part := int64(10); part < 1000; {
		h := r.p.Height(at)
		if h <= goal || r.work >= until {
			return
		}
		if !r.lower(at, h-(h-goal+part-1)/part, (until-r.work)/3) {
			part *= 4
		}
	}
}

// sort lists all buffers where a placement has them.
func (r *repairer) sort(at []int64) {
	r.allStart, r.allEnd = r.allStart[:0], r.allEnd[:0]
	for _, list := range [2][]int32{r.f.pinned, r.f.ids} {
		for _, i := range list {
			start := rectangle{at[i], 0, r.f.l[i], r.f.r[i], i}
			end := start
			end.key += r.p.Buffers[i].Size
			r.allStart, r.allEnd = append(r.allStart, start), append(r.allEnd, end)
		}
	}
	slices.SortFunc(r.allStart, compareRectangles)
	slices.SortFunc(r.allEnd, compareRectangles)
}

// lower tries to bring the placement at, which is listed, below the ceiling, in bytes, and reports
// whether it did; at and the lists then hold the new placement. It ends after about budget
// visits.
func (r *repairer) lower(at []int64, ceiling int64, budget int) bool {
	copy(r.at, at)
	r.out.Clear()
	for _, i := range r.f.pinned {
		if r.cost[i] = r.pinned; r.at[i]+r.p.Buffers[i].Size > ceiling {
			return false
		}
	}
	for _, i := range r.f.ids {
		size := r.p.Buffers[i].Size
		r.cost[i] = min(r.dearest, max(1, size/r.unit)*int64(1+math.Sqrt(float64(r.f.r[i]-r.f.l[i]))))
		if r.at[i]+size > ceiling {
			r.at[i] = -1
			r.out.Push(i)
		}
	}
	r.byStart, r.byEnd = r.placed(r.byStart[:0], r.allStart), r.placed(r.byEnd[:0], r.allEnd)
	for until := r.work + budget; r.out.Len() > 0; {
		if r.work >= until || r.f.ctx.Err() != nil || !r.seat(r.out.Pop(), ceiling) {
			return false
		}
	}
	copy(at, r.at)
	r.allStart, r.byStart, r.allEnd, r.byEnd = r.byStart, r.allStart, r.byEnd, r.allEnd
	return true
}

// placed appends those of all buffers that are not out, with what they cost.
func (r *repairer) placed(to, all []rectangle) []rectangle {
	for _, s := range all {
		if r.at[s.id] >= 0 {
			s.cost = r.cost[s.id]
			to = append(to, s)
		}
	}
	return to
}

// seat places buffer i where it costs least and takes out what is in its way. It
// returns false if i fits nowhere.
func (r *repairer) seat(i int32, ceiling int64) bool {
	b := &r.p.Buffers[i]
	a := b.align()
	top := ceiling - b.Size // the highest place
	if top < 0 {
		return false
	}
	top -= top % a
	best, least := r.cheapest(i, a, top)
	if least >= r.pinned {
		return false
	}
	r.hit = r.hit[:0]
	if least > 0 {
		for k := range r.byStart {
			s := &r.byStart[k]
			if s.key >= best+b.Size {
				break
			}
			if r.overlaps(i, s) && best < s.key+r.p.Buffers[s.id].Size {
				r.hit = append(r.hit, s.id)
			}
		}
		for _, j := range r.hit {
			r.remove(j)
			r.cost[j] = min(r.dearest, r.cost[j]+r.cost[j]/4+1)
			r.out.Push(j)
		}
	}
	r.at[i] = best
	end := best + b.Size
	r.byStart = insertRectangle(r.byStart, rectangle{best, r.cost[i], r.f.l[i], r.f.r[i], i})
	r.byEnd = insertRectangle(r.byEnd, rectangle{end, r.cost[i], r.f.l[i], r.f.r[i], i})
	return true
}

// overlaps reports whether the buffer of s conflicts with i.
func (r *repairer) overlaps(i int32, s *rectangle) bool {
	return s.l < r.f.r[i] && r.f.l[i] < s.r
}

// cheapest returns the multiple of a up to top where buffer i costs least, the
// lowest among equals, and the cost. Going upwards, cost falls only where a
// rectangle ends, so the bottom and these offsets are all that matters.
func (r *repairer) cheapest(i int32, a, top int64) (best, least int64) {
	size, l, right := r.p.Buffers[i].Size, r.f.l[i], r.f.r[i]
	starts, ends := r.byStart, r.byEnd
	least = math.MaxInt64
	x, cost := int64(0), int64(0)
	s, e := 0, 0
	for {
		for ; e < len(ends) && ends[e].key <= x; e++ {
			cost -= ends[e].costIn(l, right)
		}
		for ; s < len(starts) && starts[s].key < x+size; s++ {
			cost += starts[s].costIn(l, right)
		}
		if cost < least {
			if best, least = x, cost; cost == 0 {
				break
			}
		}
		for e < len(ends) && ends[e].costIn(l, right) == 0 {
			e++
		}
		if e == len(ends) {
			break
		}
		x = ends[e].key
		if x&(a-1) != 0 || a&(a-1) != 0 { // a division for each end would tell
			x = alignUp(x, a)
		}
		if x > top {
			break
		}
	}
	r.work += s + e
	return best, least
}

// costIn is the cost of s if it lives in columns [l, r), else 0. It has no branch:
// which rectangles do is as good as random.
func (s *rectangle) costIn(l, r int32) int64 {
	return s.cost & ((int64(s.l) - int64(r)) & (int64(l) - int64(s.r)) >> 63)
}

// remove takes a placed buffer out of both lists.
func (r *repairer) remove(i int32) {
	r.byStart = deleteRectangle(r.byStart, r.at[i], i)
	r.byEnd = deleteRectangle(r.byEnd, r.at[i]+r.p.Buffers[i].Size, i)
	r.at[i] = -1
}

func compareRectangles(a, b rectangle) int {
	if a.key != b.key {
		return cmp.Compare(a.key, b.key)
	}
	return int(a.id - b.id)
}

func insertRectangle(list []rectangle, s rectangle) []rectangle {
	k, _ := slices.BinarySearchFunc(list, s, compareRectangles)
	return slices.Insert(list, k, s)
}

func deleteRectangle(list []rectangle, key int64, i int32) []rectangle {
	k, _ := slices.BinarySearchFunc(list, rectangle{key: key, id: i}, compareRectangles)
	return slices.Delete(list, k, k+1)
}

// before orders the buffers to place: the dearest first, since it has the least
// choice.
func (r *repairer) before(a, b int32) bool {
	if r.cost[a] != r.cost[b] {
		return r.cost[a] > r.cost[b]
	}
	return a < b
}
