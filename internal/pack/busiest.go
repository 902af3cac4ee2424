package pack

import (
	"cmp"
	"slices"
)

// Moment is a time of highest demand: what lives then and how much it needs.
type Moment struct {
	Time    int64
	Bytes   int64
	Buffers []int // by descending size, then index
}

// Busiest returns the earliest time at which the live buffers' sizes add up to
// the most, so that an error about a capacity can name them. O(n log n).
func Busiest(p Problem) Moment {
	type event struct {
		at, by int64
	}
	var events []event
	for _, b := range p.Buffers {
		if b.Upper > b.Lower {
			events = append(events, event{b.Lower, b.Size}, event{b.Upper, -b.Size})
		}
	}
	// At one time, what ends makes room before what starts.
	slices.SortFunc(events, func(a, b event) int { return cmp.Or(cmp.Compare(a.at, b.at), cmp.Compare(a.by, b.by)) })
	var best Moment
	live := int64(0)
	for _, e := range events {
		if live += e.by; live > best.Bytes {
			best.Bytes, best.Time = live, e.at
		}
	}
	for i, b := range p.Buffers {
		if b.Lower <= best.Time && best.Time < b.Upper {
			best.Buffers = append(best.Buffers, i)
		}
	}
	slices.SortStableFunc(best.Buffers, func(a, b int) int { return cmp.Compare(p.Buffers[b].Size, p.Buffers[a].Size) })
	return best
}
